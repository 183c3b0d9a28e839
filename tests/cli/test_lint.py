"""`scaffold lint` as a user runs it."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.cli.output import TERMINAL
from scaffold.lint.model import Finding
from scaffold.project.source_files import look_through
from scaffold.verify.pool import over, processes_for
from tests.cli.running import COMMAND, environment, listing, run, scaffold

CLEAN = """\
from torch.autograd import Function


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
"""
SHORT = CLEAN.replace("ctx.factor, None", "ctx.factor")
ADVICE = CLEAN.replace("return grad_output", "return grad_output.data")
FOUND = "ops.py:12:16: AF03 backward returns 1 gradient, but forward has 2 inputs: RuntimeError\n"
SHOWN = """\
   12 |         return grad_output * ctx.factor
      |                ^^^^^^^^^^^^^^^^^^^^^^^^
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ops.py").write_text(SHORT)
    return tmp_path


IN_SINGLE = """\
import torch
from torch.autograd import gradcheck


def test_exp():
    assert gradcheck(torch.exp, (torch.rand(3, requires_grad=True),))
"""
NEXT = "note: scaffold verify ops.py runs a Function and judges its gradients\n"


def test_an_error_fails(project: Path) -> None:
    outcome = scaffold(project, "lint")
    assert outcome.code == 1 and outcome.err == NEXT
    total = "Found 1 error, 0 of advice. 1 can be fixed with --fix.\n"
    assert outcome.out == FOUND + SHOWN + total


def test_what_is_said_of_a_function_leads_to_the_verdict_on_it(project: Path) -> None:
    (project / "other.py").write_text(ADVICE)
    assert scaffold(project, "lint").err == NEXT.replace("ops.py", "FILE")
    for name in ("json", "github", "sarif"):
        assert scaffold(project, "lint", "--format", name).err == ""
    (project / "checks.py").write_text(IN_SINGLE)
    outcome = scaffold(project, "lint", "checks.py")
    assert "AF30" in outcome.out and outcome.err == ""


def test_clean_code_passes(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(CLEAN)
    outcome = scaffold(tmp_path, "lint", "ops.py")
    assert (outcome.code, outcome.out) == (0, "All checks passed.\n")


def test_advice_is_shown_and_fails_only_when_strict(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(ADVICE)
    relaxed, strict = scaffold(tmp_path, "lint"), scaffold(tmp_path, "lint", "--strict")
    assert "AF18 (advice) .data" in relaxed.out
    assert (relaxed.code, strict.code) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--select", "AF03"], 1),
        (["--select", "AF0"], 1),
        (["--select", "AF01,af03"], 1),
        (["--select", "AF01"], 0),
        (["--select", "ALL", "--ignore", "AF03,AF20"], 0),
        (["--ignore", "AF"], 0),
        (["--select", "AF20"], 0),
        (["--select", "AF20", "--strict"], 1),
    ],
)
def test_rules_are_selected_and_ignored(
    project: Path, arguments: list[str], code: int
) -> None:
    assert scaffold(project, "lint", *arguments).code == code


@pytest.mark.parametrize(
    ("comment", "code"),
    [
        ("# noqa", 0),
        ("# noqa: AF03", 0),
        ("#noqa:AF01,AF03", 0),
        ("# noqa: E501, AF03 - on purpose", 0),
        ("# noqa: AF01", 1),
        ("# noqa: E501", 1),
    ],
)
def test_a_comment_switches_a_rule_off(project: Path, comment: str, code: int) -> None:
    marked = SHORT.replace("ctx.factor\n\n    @", "ctx.factor  # keep\n\n    @")
    lines = marked.rstrip("\n").split("\n")
    lines[-1] += f"  {comment}"
    (project / "ops.py").write_text("\n".join(lines) + "\n")
    assert scaffold(project, "lint").code == code


def test_the_configuration_selects_by_path(project: Path) -> None:
    (project / "old").mkdir()
    (project / "old" / "ops.py").write_text(SHORT)
    (project / "pyproject.toml").write_text(
        "[tool.scaffold.lint]\nignore = ['AF19']\n"
        "per-file-ignores = { 'old/*' = ['AF03'] }\n"
    )
    outcome = scaffold(project, "lint")
    assert FOUND in outcome.out and "old" not in outcome.out


def test_json_is_of_a_stable_form(project: Path) -> None:
    outcome = scaffold(project, "lint", "--format", "json")
    assert json.loads(outcome.out) == {
        "version": 1,
        "findings": [
            {
                "path": "ops.py",
                "line": 12,
                "column": 16,
                "rule": "AF03",
                "level": "error",
                "message": "backward returns 1 gradient, but forward has 2 inputs: RuntimeError",
                "function": "Scale",
                "fixable": True,
            }
        ],
        "unread": [],
    }


def test_github_shows_it_beside_the_line(project: Path) -> None:
    outcome = scaffold(project, "lint", "--format", "github")
    assert outcome.out == (
        "::error file=ops.py,line=12,col=16,title=AF03::backward returns 1 gradient, "
        "but forward has 2 inputs: RuntimeError\n"
    )


def test_sarif_has_what_a_service_needs(project: Path) -> None:
    data = json.loads(scaffold(project, "lint", "--format", "sarif").out)
    (run_,) = data["runs"]
    (result,) = run_["results"]
    assert data["version"] == "2.1.0" and result["level"] == "error"
    assert run_["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "AF03"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "ops.py"
    assert place["region"] == {"startLine": 12, "startColumn": 16}


def test_a_fix_is_written(project: Path) -> None:
    outcome = scaffold(project, "lint", "--fix")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "update  ops.py\nAll checks passed.\n"
    assert (project / "ops.py").read_text() == CLEAN


def test_a_combined_style_is_advice_that_is_fixed(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(CLEAN)
    outcome = scaffold(tmp_path, "lint", "--select", "AF20")
    assert (outcome.code, "AF20 (advice) forward takes ctx" in outcome.out) == (0, True)
    assert scaffold(tmp_path, "lint", "--strict").code == 0  # off unless it is selected
    assert scaffold(tmp_path, "lint", "--select", "AF20", "--fix").code == 0
    text = (tmp_path / "ops.py").read_text()
    assert "def setup_context(ctx, inputs, output):" in text
    assert scaffold(tmp_path, "lint", "--select", "ALL", "--strict").code == 0


def test_a_terminal_sees_colours_and_a_pipe_sees_none(project: Path) -> None:
    command = [*COMMAND, "lint"]
    known = {**environment(TERM="xterm"), "NO_COLOR": "", "FORCE_COLOR": ""}
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", 0) as seen, os.fdopen(follower, "wb") as terminal:
        subprocess.run(command, cwd=project, env=known, stdout=terminal, check=False)
        shown = seen.read(10_000).decode().replace("\r\n", "\n")
    done = subprocess.run(
        command, cwd=project, env=known, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(FOUND + SHOWN)
    assert "\x1b[" in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown).startswith(FOUND + SHOWN)


def test_a_difference_is_shown_and_nothing_written(project: Path) -> None:
    before = listing(project)
    outcome = scaffold(project, "lint", "--diff")
    assert "-        return grad_output * ctx.factor\n" in outcome.out
    assert "+        return grad_output * ctx.factor, None\n" in outcome.out
    assert listing(project) == before


@pytest.mark.parametrize("options", [["--diff"], ["--fix", "--diff"]], ids=" ".join)
def test_a_difference_is_no_success_while_errors_remain(
    project: Path, options: list[str]
) -> None:
    outcome = scaffold(project, "lint", *options)
    assert outcome.code == 1
    assert outcome.err == "note: 1 finding, of which --fix can fix 1\n"
    raising = SHORT.replace("return grad_output", "return grad_output * ctx.other")
    (project / "ops.py").write_text(raising)
    unmended = scaffold(project, "lint", *options, "--select", "AF46")
    assert unmended.code == 1 and unmended.out == ""
    assert unmended.err == "note: 1 finding, of which --fix can fix 0\n"
    (project / "ops.py").write_text(CLEAN)
    assert scaffold(project, "lint", *options).code == 0


def test_a_difference_of_advice_fails_only_when_strict(project: Path) -> None:
    (project / "ops.py").write_text(ADVICE)
    assert scaffold(project, "lint", "--diff").code == 0
    assert scaffold(project, "lint", "--diff", "--strict").code == 1


def test_what_cannot_be_fixed_is_still_shown(project: Path) -> None:
    both = SHORT.replace("grad_output *", "grad_output.data *")
    (project / "ops.py").write_text(
        both.replace("    def backward", "    def backward")
    )
    outcome = scaffold(project, "lint", "--fix", "--select", "AF03,AF19")
    assert outcome.code == 0
    again = scaffold(project, "lint", "--fix", "--select", "AF18")
    assert "update  ops.py" in again.out
    assert "once_differentiable" in (project / "ops.py").read_text()


# Two findings of one line: a tensor on ctx that it reads, and a gradient that it lacks.
TWICE = CLEAN.replace("ctx.factor = factor", "ctx.factor = factor\n        ctx.x = x")
TWICE = TWICE.replace("x * factor", "x * x * factor")
TWICE = TWICE.replace(
    "return grad_output * ctx.factor, None", "return grad_output * ctx.x * ctx.factor"
)


def test_two_findings_of_one_line_are_fixed_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "ops.py"
    path.write_text(TWICE)
    shown = scaffold(tmp_path, "lint", "--diff")
    assert shown.err == "note: 2 findings, of which --fix can fix 2\n"
    outcome = scaffold(tmp_path, "lint", "--fix")
    assert (outcome.code, outcome.out) == (0, "update  ops.py\nAll checks passed.\n")
    assert "(x,) = ctx.saved_tensors" in path.read_text()
    assert "return grad_output * x * ctx.factor, None" in path.read_text()
    assert scaffold(tmp_path, "lint", "--strict").code == 0


def test_an_error_that_a_fix_left_fails(tmp_path: Path) -> None:
    """Where a comment would be lost nothing is edited: the error stands, and no fix is offered."""
    path = tmp_path / "ops.py"
    long = "return (\n            grad_output  # of y\n            * ctx.x * ctx.factor\n        )"
    path.write_text(TWICE.replace("return grad_output * ctx.x * ctx.factor", long))
    outcome = scaffold(tmp_path, "lint", "--fix")
    assert "ctx.save_for_backward(x)" in path.read_text()
    assert outcome.code == scaffold(tmp_path, "lint").code == 1
    assert "AF03" in outcome.out and "with --fix" not in outcome.out


def test_a_baseline_still_holds_after_a_fix(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(TWICE)
    scaffold(tmp_path, "lint", "--select", "AF03", "--write-baseline", "known.json")
    outcome = scaffold(tmp_path, "lint", "--fix", "--baseline", "known.json")
    assert (outcome.code, outcome.out[-19:]) == (0, "All checks passed.\n")
    assert "None" not in (tmp_path / "ops.py").read_text()


def test_fixes_are_offered_only_where_they_can_be_made(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    outcome = scaffold(project, "lint")
    total = "Found 1 error, 0 of advice. With libcst installed, --fix can fix 1.\n"
    assert outcome.out == FOUND + SHOWN + total


def test_line_ends_are_kept(project: Path) -> None:
    (project / "ops.py").write_bytes(SHORT.replace("\n", "\r\n").encode())
    assert scaffold(project, "lint", "--fix").code == 0
    assert (project / "ops.py").read_bytes() == CLEAN.replace("\n", "\r\n").encode()


def test_another_encoding_is_read_and_not_rewritten(project: Path) -> None:
    text = f"# -*- coding: latin-1 -*-\n# \xe4\n{SHORT}"
    (project / "ops.py").write_bytes(text.encode("latin-1"))
    outcome = scaffold(project, "lint", "--fix")
    assert outcome.code == 1 and "not fixed" in outcome.err
    assert (project / "ops.py").read_bytes() == text.encode("latin-1")


def test_fixing_needs_libcst(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    monkeypatch.delitem(sys.modules, "scaffold.lint.fixing", raising=False)
    outcome = scaffold(project, "lint", "--fix")
    assert outcome.code == 2
    assert outcome.err == (
        "error: --fix needs libcst\nhint: pip install 'libcst>=1.4', beside scaffold\n"
    )
    assert (project / "ops.py").read_text() == SHORT


PYTHON_2 = b"from torch.autograd import Function\nprint 'x'\n"
NO_TEXT = b"\xff(ctx\n"
OTHERS = b"type X[T] = = int\n"  # nothing to do with autograd


@pytest.mark.parametrize(
    "content", [PYTHON_2, NO_TEXT, OTHERS], ids=["python2", "bytes", "others"]
)
def test_what_is_no_python_is_advice_in_a_tree(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "old.py").write_bytes(content)
    outcome = scaffold(tmp_path, "lint")
    assert outcome.code == 0 and outcome.err == ""
    assert outcome.out.startswith("old.py:")
    assert "AF00 (advice) cannot be" in outcome.out
    assert "passed" not in outcome.out
    assert scaffold(tmp_path, "lint", "--strict").code == 1


@pytest.mark.parametrize(
    "content", [PYTHON_2, NO_TEXT, b"def f(:\n"], ids=["python2", "bytes", "other"]
)
def test_what_is_no_python_is_an_error_where_it_was_named(
    tmp_path: Path, content: bytes
) -> None:
    """Also where its text, as far as it goes, has nothing to do with autograd."""
    (tmp_path / "old.py").write_bytes(content)
    for path in ("old.py", "./old.py"):
        outcome = scaffold(tmp_path, "lint", path)
        assert outcome.code == 1 and ": AF00 cannot be" in outcome.out, outcome.out
    assert scaffold(tmp_path, "lint", ".", "old.py").code == 1


@pytest.mark.parametrize(
    "arguments", [["--ignore", "AF00"], ["--select", "AF01"], ["--ignore", "AF0"]]
)
def test_what_is_no_python_is_switched_off_as_any_rule_and_has_not_passed(
    tmp_path: Path, arguments: list[str]
) -> None:
    (tmp_path / "old.py").write_bytes(PYTHON_2)
    outcome = scaffold(tmp_path, "lint", "old.py", *arguments)
    assert outcome.code == 0
    assert outcome.out == "No findings, but 1 file could not be read.\n"


def test_the_configuration_says_where_no_python_is_expected(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for path in ("old/ops.py", "ops.py"):
        (tmp_path / path).write_bytes(PYTHON_2)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold.lint]\nper-file-ignores = { 'old/*' = ['AF00'] }\n"
    )
    outcome = scaffold(tmp_path, "lint", "old/ops.py", "ops.py")
    assert outcome.code == 1 and "old/ops.py" not in outcome.out
    assert outcome.out.startswith("ops.py:2:1: AF00 ")


def test_a_comment_says_that_no_python_is_expected(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_bytes(PYTHON_2.replace(b"'x'", b"'x'  # noqa: AF00"))
    assert scaffold(tmp_path, "lint", "old.py").code == 0


def test_a_baseline_holds_what_is_no_python_whatever_python_says_of_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "old.py").write_bytes(PYTHON_2)
    scaffold(tmp_path, "lint", "old.py", "--write-baseline", "known.json")
    (tmp_path / "old.py").write_bytes(PYTHON_2.replace(b"print 'x'", b"exec 'x'"))
    outcome = scaffold(tmp_path, "lint", "old.py", "--baseline", "known.json")
    assert outcome.code == 0 and "passed" not in outcome.out
    (tmp_path / "new.py").write_bytes(PYTHON_2)
    outcome = scaffold(tmp_path, "lint", ".", "new.py", "--baseline", "known.json")
    assert outcome.code == 1 and "old.py" not in outcome.out


def test_programs_are_told_of_what_is_no_python(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_bytes(PYTHON_2)
    data = json.loads(scaffold(tmp_path, "lint", "--format", "json").out)
    assert [item["path"] for item in data["unread"]] == ["old.py"]
    (found,) = data["findings"]
    assert (found["rule"], found["level"], found["line"]) == ("AF00", "advice", 2)
    sarif = json.loads(scaffold(tmp_path, "lint", "old.py", "--format", "sarif").out)
    (result,) = sarif["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("AF00", "error")


def test_nothing_makes_it_fail(tmp_path: Path) -> None:
    deep = "x = " + "(" * 3000 + ")" * 3000
    (tmp_path / "deep.py").write_text(f"from torch.autograd import Function\n{deep}\n")
    (tmp_path / "long.py").write_text(
        "from torch.autograd import Function\nx = " + "1 + " * 5000 + "1\n"
    )
    (tmp_path / "nul.py").write_bytes(b"autograd\0")
    (tmp_path / "dir.py").mkdir()
    (tmp_path / "link.py").symlink_to("nowhere.py")
    outcome = scaffold(tmp_path, "lint")
    assert outcome.code == 0
    assert "deep.py:2:205: AF00" in outcome.out and "nul.py:1:1: AF00" in outcome.out


def test_hidden_directories_and_environments_are_not_entered(tmp_path: Path) -> None:
    for name in (".git", "venv", "__pycache__", "node_modules"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ops.py").write_text(SHORT)
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert scaffold(tmp_path, "lint").code == 0


def test_an_old_code_base_starts_clean(project: Path) -> None:
    written = scaffold(project, "lint", "--write-baseline", "known.json")
    assert (written.code, written.out) == (0, "1 findings are in known.json\n")
    assert scaffold(project, "lint", "--baseline", "known.json").code == 0
    moved = "# a line more\n" + (project / "ops.py").read_text()
    (project / "ops.py").write_text(moved)
    assert scaffold(project, "lint", "--baseline", "known.json").code == 0
    other = SHORT.replace("Scale", "Other")
    (project / "other.py").write_text(other)
    outcome = scaffold(project, "lint", "--baseline", "known.json")
    assert outcome.code == 1 and "other.py" in outcome.out
    assert "ops.py:13" not in outcome.out


def test_explain_needs_no_files(tmp_path: Path) -> None:
    outcome = scaffold(tmp_path, "lint", "--explain", "af08")
    assert outcome.code == 0 and outcome.out.startswith("AF08: an input is changed")


def test_a_base_in_another_file_is_known(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(CLEAN.replace("Scale", "Base"))
    (tmp_path / "ops.py").write_text(
        "from base import Base\n\n\nclass Scale(Base):\n"
        "    @staticmethod\n    def forward(c, x):\n        return [x * 2]\n\n"
        "    @staticmethod\n    def backward(c, g):\n        return g * 2\n"
    )
    outcome = scaffold(tmp_path, "lint", "--select", "AF17")
    assert outcome.code == 1 and "ops.py:7:16" in outcome.out


def test_the_number_of_processes_makes_no_difference(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"ops{number}.py").write_text(SHORT if number % 3 else CLEAN)
    paths = look_through([str(tmp_path)]).relevant
    assert len(paths) == 100
    assert list(over(len, paths, 1)) == list(over(len, paths, 2))
    assert processes_for(10) == 1
    alone = run(tmp_path, "lint", "--format", "json")
    assert len(json.loads(alone.out)["findings"]) == 66


def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with TERMINAL.progress(32) as update:
        for done in range(1, 33):
            update(done)
    said = capsys.readouterr().err.split("\r")
    assert [line.partition("] ")[2] for line in said[1:3]] == [
        "16/32 files",
        "32/32 files",
    ]
    assert said[1].count("=") * 2 == said[2].count("=") and said[3:] == ["\033[K"]


def test_findings_cross_processes() -> None:
    import pickle

    finding = Finding("a.py", 1, 1, "AF01", "error", "x", "F", 1)
    assert pickle.loads(pickle.dumps(finding)) == finding


def test_a_file_with_conflict_markers_is_said_to_hold_them(tmp_path: Path) -> None:
    mine, theirs = "    y = 1\n", "    y = 2\n"
    conflict = f"<<<<<<< mine\n{mine}=======\n{theirs}>>>>>>> theirs\n"
    text = f"from torch.autograd import Function\ndef f():\n{conflict}"
    (tmp_path / "ops.py").write_text(text)
    outcome = scaffold(tmp_path, "lint", "ops.py")
    said = "ops.py:3:1: AF00 cannot be parsed: it holds conflict markers\n"
    assert (outcome.code, outcome.out.splitlines(True)[0]) == (1, said)
