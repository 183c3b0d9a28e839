"""Every message that a user can get, byte for byte, with its place, its hint and the exit code.

The cases are the transcripts in `cases/`, described in `transcript.py`. After a change of messages, or to add a case
(write it down to its command), run

    SCAFFOLD_REGENERATE=1 python -m pytest tests/failures

and read the difference: it is what users will read.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from tests.cli.running import EXCERPT, ROOT, Outcome, listing, scaffold
from tests.failures.transcript import Case, read, write

CASES = Path(__file__).with_name("cases")
TRANSCRIPTS = {path.stem: read(path.read_text()) for path in sorted(CASES.iterdir())}
ALL = [
    pytest.param(case, id=f"{name}-{number}")
    for name, cases in TRANSCRIPTS.items()
    for number, case in enumerate(cases, 1)
]
# A line of a file or of an option; an option, a command, an argument or a variable as a whole.
PLACE = re.compile(r".+:\d+:\d+|-[a-z-]+|scaffold[a-z -]*|[A-Z_]+|\[[a-z.]+\]")
REGENERATE = bool(os.environ.get("SCAFFOLD_REGENERATE"))
Site = tuple[str, int]  # file below the package, line


def run(case: Case, directory: Path) -> Outcome:
    """Prepare the directory and run the command; nothing there may change."""
    for name, text in case.files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    for line in case.setup:
        subprocess.run(["sh", "-ec", line], cwd=directory, check=True)
    before = state(directory)
    outcome = scaffold(directory, *case.arguments)
    assert state(directory) == before, "something was written"
    return outcome


def state(directory: Path) -> tuple[dict[str, bytes], list[str]]:
    """Files and everything else: links, directories."""
    return listing(directory), sorted(str(path) for path in directory.rglob("*"))


def result(case: Case, directory: Path) -> Case:
    """The case with what it says now; a command that succeeds fails the tests later."""
    try:
        outcome = run(case, directory)
    except AssertionError:
        return case.with_result("", 0)
    stderr = outcome.err.replace(str(directory), "{root}")
    return case.with_result(stderr, outcome.code)


@pytest.mark.exhaustive  # one at a time; all of them at once are below
@pytest.mark.skipif(REGENERATE, reason="the results are being written")
@pytest.mark.parametrize("case", ALL)
def test_the_message_is_as_written(case: Case, tmp_path: Path) -> None:
    outcome = run(case, tmp_path)
    assert outcome.err.replace(str(tmp_path), "{root}") == case.stderr
    assert outcome.code == case.code


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_a_failure_is_a_message(name: str) -> None:
    """What holds of all of them."""
    for case in TRANSCRIPTS[name]:
        check_message(case)


def check_message(case: Case) -> None:
    assert case.code in (1, 2)
    lines = [line for line in case.stderr.splitlines() if not line.startswith("note: ")]
    assert lines, "a failure says something"
    assert case.stderr.startswith(lines[0]), "notes stand behind the error"
    assert "Traceback" not in case.stderr
    if "Error: " not in case.stderr and "Usage: " not in case.stderr:  # Typer's own
        said = EXCERPT.sub("", case.stderr).splitlines()
        places = [x.split(": ")[0] for x in said if not x.startswith("note: ")]
        assert places[0] != "hint"
        for before, place in zip(["", *places], places, strict=False):
            assert place in ("hint", "error") or PLACE.fullmatch(place), place
            assert (before, place) != ("hint", "hint")


def test_regenerate(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not REGENERATE:
        pytest.skip("only with SCAFFOLD_REGENERATE=1")
    for name, cases in TRANSCRIPTS.items():
        done = (result(case, tmp_path_factory.mktemp("case")) for case in cases)
        (CASES / f"{name}.txt").write_text(write(done))


def test_a_transcript_is_read_and_written_as_it_is() -> None:
    for name, cases in TRANSCRIPTS.items():
        assert write(cases) == (CASES / f"{name}.txt").read_text()


# What no single command can bring about. Moments, and paths that the command never asks for: tests/workspace
# has them. Checks that an earlier one makes needless: whoever composes the packages otherwise will need them.
IN_PYTHON = ("api.py", "notebook.py", "function_sources.py")  # tests of their names
OUT_OF_REACH = (
    *("another run is writing", "cannot recover from", "an earlier run in"),
    *("changed while the run was under way", "putting things back", "cannot write in"),
    *('is not a directory")', "is not a path", "is outside", "would be the same file"),
    *("would be a file and", "cannot be written as UTF-8"),
    "matplotlib is not installed",  # which it may be: tests/cli/test_bench.py
    *("score: ", "_answer: ", "_late: "),  # tests/verify
    "NONE_FOUND",  # there is torch where the tests run: tests/cli/test_verify.py
    "_show_verdict: ",  # a process that died: tests/verify
    "the working directory does not exist any more",  # tests/cli/test_app.py
    "as_ours: ",  # what the system says, of a full disk: tests/cli/test_app.py
    "not valid Python: {error}",  # characters that are refused before
    *("_refuse_index: ", "_refuse_ambiguous: "),  # the parser refuses, or renames
    # no command reads a table of rules as yet: tests/derive/rules/test_table_checks.py
    *("problem: ", "is not a rule"),
    "found.died",  # tests/verify/test_rules.py
    # in a process with limits: tests/render/test_sandbox.py, tests/project/test_rendering.py
    *("blamed: ", "_no_python: ", "_beyond_limits: "),
    "alias: ",  # the tokens are split at brackets before
    "asked_arguments: ",  # a terminal: tests/cli/test_dialogue.py
    *("cannot run ruff", "ruff does not format"),  # tests/verify/test_external_tools.py
    "--fix needs libcst",  # tests/cli/test_lint.py
    'ScaffoldError(message, Location("--record")',  # tests/verify/test_recordings.py
    "misspelt: ",  # variables of the environment: tests/spec/test_config.py
    "read_source: ",  # a file that cannot be read is a note: tests/cli/test_lint.py
)


ERRORS = ("ScaffoldError", "ConflictError")
TELLING = ("at", "at_key", "fail", "_fail")
CALLS = (*(f"{name}(" for name in ERRORS), *(f".{name}(" for name in TELLING))


def complaints(path: Path, reached: set[Site]) -> Iterator[tuple[int, str]]:
    """Every expression of a module that makes an error and is not reached: its line, its function and its text."""
    source = path.read_text()
    if not any(call in source for call in CALLS):
        return  # three modules of four make none
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _complains(node):
                    lines = range(node.lineno, (node.end_lineno or 0) + 1)
                    if not any((str(path), line) in reached for line in lines):
                        text = ast.get_source_segment(source, node)
                        yield node.lineno, f"{function.name}: {text}"


def _complains(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(name):
            return name in ERRORS
        case ast.Attribute(_, name):
            return name in TELLING and len(call.args) > 1
    return False


def frames(frame: FrameType | None) -> Iterator[Site]:
    package = str(ROOT / "scaffold")
    while frame is not None:
        if frame.f_code.co_filename.startswith(package):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def test_every_message_is_as_written_and_has_a_case(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    few_samples: None,
) -> None:
    """Whatever in the package makes an error is reached by some case: all are run, once for both questions."""
    reached: set[Site] = set()
    original = ScaffoldError.__init__

    def noting(self: ScaffoldError, *args: Any, **kwargs: Any) -> None:
        reached.update(frames(sys._getframe(1)))
        original(self, *args, **kwargs)

    monkeypatch.setattr(ScaffoldError, "__init__", noting)
    for name, cases in TRANSCRIPTS.items():
        done = [result(case, tmp_path_factory.mktemp("case")) for case in cases]
        if not REGENERATE:
            assert write(done) == (CASES / f"{name}.txt").read_text()
    missing = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "scaffold").rglob("*.py"))
        if path.name not in IN_PYTHON
        for line, text in complaints(path, reached)
        if not any(words in text for words in OUT_OF_REACH)
    ]
    assert not missing, "no case for:\n" + "\n".join(missing)
