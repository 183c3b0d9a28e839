"""Proofs in a project: what a run writes was proven, the record says so, and `check` says where none holds."""

import io
import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import black
import pytest

from scaffold import __version__, verify, workspace
from scaffold.cli.output import TERMINAL
from scaffold.project import proofs, update
from scaffold.verify import Request, Verdict, verify_many
from scaffold.workspace import ChangedError, Plan
from tests.cli.projects import CONFIGURATION, SCALE, SHIFT, contents, edit, project
from tests.cli.running import scaffold

WRONG = SCALE.replace("grad_output * factor", "grad_output * 3")
GATE = """[ops.gate]
inputs = 'x[..., D]'
forward = 'torch.sigmoid(x)'
backward = '''
s = torch.sigmoid(x)
grad_x = grad_output * s
'''
"""
MISNAMED = """[ops.gate]
inputs = 'x[..., D]'
forward = 'torch.sigmiod(x)'
"""
MEANT = "if the gradient is meant to differ from the derivative, use surrogate = true"
SKELETON = "[ops.later]\ninputs = 'x[..., D]'\n"


class Counted:
    """Proofs that succeed without PyTorch, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[Request]] = []

    def __call__(self, requests: list[Request], *_: object) -> Iterator[Verdict]:
        self.asked.append(list(requests))
        yield from (Verdict(1, torch="0.0") for _request in requests)

    @property
    def count(self) -> int:
        return sum(map(len, self.asked))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    monkeypatch.setattr(verify, "verify_many", found)
    return found


@pytest.fixture
def synced(tmp_path: Path, counted: Counted) -> Path:
    project(tmp_path, SCALE, SHIFT)
    assert scaffold(tmp_path, "sync").code == 0
    assert counted.count == 2
    counted.asked.clear()
    return tmp_path


def proof(root: Path, op: str = "scale") -> dict[str, Any]:
    """The proof on record."""
    record = json.loads((root / f".scaffold/{op}.json").read_text())
    return dict(record["proof"])


def check(root: Path) -> list[str]:
    outcome = scaffold(root, "check")
    assert outcome.code == 0, outcome.out + outcome.err
    return outcome.out.splitlines()


def configured(root: Path, line: str) -> None:
    (root / "pyproject.toml").write_text(f"{CONFIGURATION}{line}\n")


def test_a_manifest_with_wrong_ops_is_refused_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    """Each failure at its place, all of them in one run; ops that are right beside them are not written either."""
    project(tmp_path, WRONG, SHIFT, GATE)
    before = contents(tmp_path)
    for arguments in (("sync",), ("upgrade", "--all"), ("sync", "--dry-run")):
        outcome = scaffold(tmp_path, *arguments)
        assert (outcome.code, outcome.out) == (1, "")
        assert contents(tmp_path) == before
        first, hint, second, _ = (
            line for line in outcome.messages if "note:" not in line
        )
        assert first == "ops.toml:4:11: grad_x: factor 3/2; nothing was written"
        assert hint == f"hint: {MEANT}"
        assert second.startswith("ops.toml:16:1: grad_x: largest difference ")
        assert "note: scale: inputs: x (2, 3), factor=2.0" in outcome.err


def test_a_name_that_pytorch_has_not_is_refused_at_its_place(tmp_path: Path) -> None:
    project(tmp_path, SCALE, MISNAMED)
    before = contents(tmp_path)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code != 0
    assert outcome.err.startswith("ops.toml:8:12: ")
    assert "hint: did you mean 'sigmoid'?" in outcome.err
    assert contents(tmp_path) == before


def test_without_a_proof_it_is_written_all_the_same_and_check_says_so(
    tmp_path: Path,
) -> None:
    project(tmp_path, WRONG, SHIFT)
    assert scaffold(tmp_path, "sync", "--no-verify").code == 0
    assert check(tmp_path) == [
        "unproven  ops/scale.py: no proof is on record",
        "unproven  ops/shift.py: no proof is on record",
        "3 ok, 2 unproven",
    ]
    edit(tmp_path / "ops.toml", "grad_output * 3", "grad_output * factor")
    assert scaffold(tmp_path, "upgrade", "--all", "--no-verify").code == 0
    assert check(tmp_path)[-1] == "3 ok, 2 unproven"


def test_the_record_says_what_was_proven_and_by_what(tmp_path: Path) -> None:
    project(tmp_path, SCALE)
    assert scaffold(tmp_path, "sync").code == 0
    found = proof(tmp_path)
    assert found["by"] == "proof"
    assert (found["tool"], found["torch"]) == (__version__, version("torch"))
    assert len(found["spec"]) == len(found["function"]) == 40
    assert check(tmp_path) == ["3 ok"]


def test_what_is_proven_costs_nothing(synced: Path, counted: Counted) -> None:
    """No process is started: of ops that did not change, that come back, or whose tests and Module change."""
    before = proof(synced)
    assert scaffold(synced, "sync").code == 0
    (synced / "ops/scale.py").unlink()
    assert scaffold(synced, "sync").code == 0
    configured(synced, "licence = 'Ours'\nparameter-names = ['bias']")
    outcome = scaffold(synced, "sync")
    assert outcome.out.splitlines()[-1] == "2 updated (5 files)"
    edit(synced / "ops.toml", "[ops.scale]", "[ops.scale]\ndoc = 'Scale.'")
    edit(synced / "ops.toml", "[ops.shift]", "[ops.shift]\nmodule = false")
    assert scaffold(synced, "sync").code == 0
    assert counted.asked == []
    assert check(synced) == ["5 ok"]
    assert proof(synced)["function"] == before["function"]
    assert scaffold(synced, "sync", "--prove").code == 0
    assert counted.asked == []


def test_only_what_changes_is_proven(synced: Path, counted: Counted) -> None:
    edit(synced / "ops.toml", "'x + bias'", "'bias + x'")
    assert scaffold(synced, "sync").code == 0
    assert counted.count == 1
    assert "bias + x" in counted.asked[0][0].op
    edit(synced / "ops.toml", "'x[..., D], factor", "'x[N, D], factor")
    assert scaffold(synced, "sync").code == 0
    assert counted.count == 2, "the code is the same, what is said of it is not"
    assert check(synced) == ["5 ok"]


def test_a_proof_that_fails_leaves_the_record_of_the_last_one(synced: Path) -> None:
    before = contents(synced)
    edit(synced / "ops.toml", "grad_output * factor", "grad_output * 3")
    with patch.object(verify, "verify_many", verify_many):
        assert scaffold(synced, "sync").code == 1
    before["ops.toml"] = (synced / "ops.toml").read_bytes()
    assert contents(synced) == before


def test_an_edit_of_the_function_voids_the_proof_and_formatting_does_not(
    synced: Path,
) -> None:
    path = synced / "ops/scale.py"
    text = path.read_text()
    path.write_text(black.format_str(text, mode=black.Mode(line_length=40)))
    assert check(synced) == ["5 ok"]
    path.write_text(f"# ours\n{text}")
    assert check(synced) == ["edited  ops/scale.py", "4 ok, 1 edited"]
    path.write_text(text)
    edit(path, "return x * factor", "return factor * x")
    assert check(synced) == [
        "edited    ops/scale.py",
        "unproven  ops/scale.py: its Function has changed since the proof",
        "4 ok, 1 edited, 1 unproven",
    ]
    path.write_text(text)
    assert check(synced) == ["5 ok"]


FORMULAS = """
def forward(x, factor):
    return x * factor
"""


def test_comments_and_documentation_of_a_formula_leave_the_proof(
    tmp_path: Path, counted: Counted
) -> None:
    of_file = SCALE.replace("'x * factor'", "'@formulas.py:forward'")
    of_table = SHIFT.replace("'x + bias'", "'''\n# once\nx + bias\n'''")
    assert of_file != SCALE and of_table != SHIFT
    formulas = tmp_path / "formulas.py"
    formulas.write_text(FORMULAS)
    project(tmp_path, of_file, of_table)
    assert scaffold(tmp_path, "sync").code == 0
    counted.asked.clear()
    said = '"""Documented."""\n    # and said\n    return x'
    formulas.write_text(FORMULAS.replace("return x", said))
    edit(tmp_path / "ops.toml", "# once", "# twice")
    assert scaffold(tmp_path, "sync").code == 0
    assert (check(tmp_path), counted.asked) == (["5 ok"], [])
    edit(formulas, "* factor", "* factor * 1")
    assert scaffold(tmp_path, "sync").code == 0
    assert counted.count == 1


def test_the_record_of_another_specification_holds_for_this_one_no_more(
    synced: Path,
) -> None:
    """A record that came with a merge: the files are those of the manifest, the proof is not."""
    path = synced / ".scaffold/scale.json"
    record = json.loads(path.read_text())
    record["proof"]["spec"] = "0" * 64
    path.write_text(json.dumps(record))
    assert check(synced)[0] == (
        "unproven  ops/scale.py: its specification has changed since the proof"
    )


def test_what_has_no_proof_is_proven_on_request_and_only_its_record_is_written(
    tmp_path: Path, counted: Counted
) -> None:
    project(tmp_path, SCALE, SHIFT, SKELETON)
    assert scaffold(tmp_path, "sync", "--no-verify").code == 0
    before = contents(tmp_path)
    assert scaffold(tmp_path, "sync").out == "3 identical (6 files)\n"
    assert counted.asked == [], "it did not change"
    outcome = scaffold(tmp_path, "sync", "--prove")
    assert (outcome.code, outcome.out) == (0, "3 identical (6 files)\n")
    assert counted.count == 2
    after = contents(tmp_path)
    assert {path for path in after if after[path] != before.get(path)} == {
        *(".scaffold/scale.json", ".scaffold/shift.json", ".scaffold/later.json"),
    }
    assert check(tmp_path)[-1] == "6 ok, 1 unprovable"
    assert scaffold(tmp_path, "sync", "--prove").code == 0
    assert counted.count == 2


def test_all_are_proven_in_one_go(tmp_path: Path, counted: Counted) -> None:
    """What runs them shares them out to as many processes as there are cores."""
    ops = [SCALE.replace("scale", f"scale{number}") for number in range(5)]
    project(tmp_path, *ops)
    assert scaffold(tmp_path, "sync").code == 0
    assert [len(asked) for asked in counted.asked] == [5]


def test_an_op_that_cannot_be_proven_is_neither_proven_nor_unproven(
    tmp_path: Path,
) -> None:
    project(tmp_path, SKELETON)
    assert scaffold(tmp_path, "sync").code == 0
    assert check(tmp_path) == [
        "unprovable  ops/later.py: it lacks forward, grad_x",
        "2 ok, 1 unprovable",
    ]
    assert proof(tmp_path, "later")["torch"] == ""


def test_a_project_may_require_proofs(synced: Path) -> None:
    configured(synced, "require = ['proof']")
    assert check(synced) == ["5 ok"]
    text = (synced / "ops/scale.py").read_text()
    (synced / "ops/scale.py").write_text(text.replace("x * factor", "factor * x"))
    outcome = scaffold(synced, "check")
    assert outcome.code == 1
    assert "unproven  ops/scale.py" in outcome.out
    assert (
        "::error file=ops/scale.py"
        in scaffold(synced, "check", "--format", "github").out
    )
    configured(synced, "")
    told = scaffold(synced, "check", "--format", "github")
    assert told.code == 0
    assert "::error" not in told.out


def test_check_tells_programs(tmp_path: Path) -> None:
    project(tmp_path, SCALE)
    scaffold(tmp_path, "sync", "--no-verify")
    told = json.loads(scaffold(tmp_path, "check", "--format", "json").out)
    assert told["files"][0] == {
        "path": "ops/scale.py",
        "op": "scale",
        "status": "unproven",
        "reason": "no proof is on record",
        "hint": "scaffold sync --prove",
    }


def test_where_there_is_no_torch_it_is_written_and_said(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proofs, "find_interpreter", lambda given: None)
    project(tmp_path, SCALE)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 0
    assert outcome.err.startswith("note: not proven: no PyTorch found")
    assert outcome.err.count("\n") == 1
    assert check(tmp_path)[0] == "unproven  ops/scale.py: no proof is on record"
    for option in ("--prove", "--verify"):
        outcome = scaffold(tmp_path, "sync", option)
        assert outcome.code == (2 if option == "--prove" else 0), "nothing changes"
    (tmp_path / "ops/scale.py").unlink()
    edit(tmp_path / "ops.toml", "'x * factor'", "'factor * x'")
    outcome = scaffold(tmp_path, "sync", "--verify")
    assert outcome.code == 2
    assert outcome.err.startswith("--verify: no PyTorch found")
    assert counted.asked == []


def test_new_op_records_its_proof_and_is_proven_once(
    tmp_path: Path, counted: Counted
) -> None:
    project(tmp_path)
    op = ("new-op", "scale", "--inputs", "x[..., D]", "--forward", "2 * x")
    assert scaffold(tmp_path, *op).code == 0
    assert counted.asked == [], "it was proven before its table was written"
    assert proof(tmp_path)["torch"] == version("torch")
    assert check(tmp_path) == ["3 ok"]
    assert scaffold(tmp_path, "sync", "--prove").code == 0
    assert counted.asked == []


def test_new_op_without_a_proof_has_none_on_record(tmp_path: Path) -> None:
    project(tmp_path)
    op = ("new-op", "scale", "--inputs", "x[..., D]", "--forward", "2 * x")
    assert scaffold(tmp_path, *op, "--no-verify").code == 0
    assert check(tmp_path)[0] == "unproven  ops/scale.py: no proof is on record"


def test_a_skeleton_of_new_op_is_unprovable(tmp_path: Path) -> None:
    project(tmp_path)
    assert scaffold(tmp_path, "new-op", "later", "--inputs", "x[..., D]").code == 0
    assert check(tmp_path)[0] == "unprovable  ops/later.py: it lacks forward, grad_x"
    told = scaffold(tmp_path, "check", "--strict")
    assert told.err == (
        "hint: write that in ops/later.py, then scaffold verify later\n"
    )


def test_another_name_keeps_the_proof_and_a_removed_op_has_none(
    synced: Path, counted: Counted
) -> None:
    path = synced / "ops/scale.py"
    path.write_text(f"{path.read_text()}\n\n# ours\n")
    assert scaffold(synced, "rename", "scale", "stretch").code == 0
    assert check(synced) == ["edited  ops/stretch.py", "4 ok, 1 edited"]
    assert proof(synced, "stretch")["torch"] == "0.0"
    assert scaffold(synced, "sync", "--prove").code == 0
    assert counted.asked == []
    assert scaffold(synced, "remove", "shift").code == 0
    assert not (synced / ".scaffold/shift.json").exists()


def test_another_name_proves_nothing(tmp_path: Path) -> None:
    project(tmp_path, WRONG)
    assert scaffold(tmp_path, "sync", "--no-verify").code == 0
    assert scaffold(tmp_path, "rename", "scale", "stretch").code == 0
    assert check(tmp_path)[0] == "unproven  ops/stretch.py: no proof is on record"


def test_an_edited_function_keeps_its_edits_and_is_not_taken_for_proven(
    synced: Path, counted: Counted
) -> None:
    """What an upgrade merges is not what was proven, unless the edit was elsewhere."""
    path = synced / "ops/scale.py"
    edit(path, "return x * factor", "return factor * x")
    edit(synced / "ops/shift.py", "class Shift(", "# ours\nclass Shift(")
    edit(synced / "ops.toml", "grad_output * factor", "factor * grad_output")
    edit(synced / "ops.toml", "'x + bias'", "'bias + x'")
    outcome = scaffold(synced, "upgrade", "--all")
    assert outcome.code == 0
    assert "note: scale: not proven as it stands: " in outcome.err
    assert "note: shift" not in outcome.err
    assert counted.count == 2
    said = check(synced)
    assert "unproven  ops/scale.py: its Function has changed since the proof" in said
    assert said[-1] == "3 ok, 2 edited, 1 unproven"


def test_a_record_of_an_earlier_version_has_no_proof(synced: Path) -> None:
    path = synced / ".scaffold/scale.json"
    record = json.loads(path.read_text())
    del record["proof"]
    path.write_text(json.dumps(record, indent=2) + "\n")
    assert check(synced)[0] == "unproven  ops/scale.py: no proof is on record"


@pytest.mark.parametrize("value", ["1", '{"by": "rumour"}', '{"by": "tests"}'])
def test_a_proof_that_cannot_be_read_is_an_error(synced: Path, value: str) -> None:
    path = synced / ".scaffold/scale.json"
    record = json.loads(path.read_text())
    record["proof"] = json.loads(value)
    path.write_text(json.dumps(record))
    outcome = scaffold(synced, "check")
    assert outcome.code == 2
    assert ".scaffold/scale.json:1:1: is not a valid record of an op" in outcome.err


def test_an_edit_is_not_proven_by_the_code_that_would_be_generated(
    synced: Path, counted: Counted
) -> None:
    edit(synced / "ops/scale.py", "return x * factor", "return factor * x")
    before = contents(synced)
    for _ in range(2):
        outcome = scaffold(synced, "sync", "--prove")
        assert outcome.code == 0
        assert outcome.err == (
            "note: scale: not proven as it stands: its Function is not the generated "
            "one; scaffold verify scale runs its tests\n"
        )
        assert contents(synced) == before
    assert counted.asked == []


def test_a_run_that_starts_again_proves_nothing_twice(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, SCALE)
    disturbed = iter([True, False])

    def apply(plan: Plan) -> None:
        if next(disturbed):
            raise ChangedError(plan.root, "another run came in between")
        workspace.apply(plan)

    monkeypatch.setattr(update, "apply", apply)
    assert scaffold(tmp_path, "sync").code == 0
    assert counted.count == 1
    assert check(tmp_path) == ["3 ok"]


def test_a_terminal_is_told_how_far_the_proofs_are(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    project(tmp_path, SCALE, SHIFT)
    terminal = Terminal()
    with TERMINAL.proving(["scale", "shift"]) as update:
        update(1)
    monkeypatch.setattr(sys, "stderr", terminal)
    with TERMINAL.proving(["scale", "shift"]) as update:
        update(1)
    assert terminal.getvalue() == (
        f"\r[{' ' * 24}] proving 0/2 ops\r[{'=' * 12}{' ' * 12}] proving 1/2 ops\r\033[K"
    )


def test_a_hint_names_the_keys_of_the_manifest(tmp_path: Path) -> None:
    """What a hint says can be written where the op stands."""
    square = "[ops.square]\ninputs = 'x'\nforward = 'x @ x'\n"
    whole = "[ops.whole]\ninputs = 'x[N]'\nforward = 'torch.linalg.inv(x[:, None])'\n"
    two = "[ops.two]\ninputs = 'x, w'\nforward = 'x @ w'\n"
    halves = "[ops.halves]\ninputs = 'x'\nforward = 'x @ x + x.view(2, -1).sum()'\n"
    project(tmp_path, square, whole, two, halves)
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 1
    assert "for its tests: test-shapes = 'x[N, D], w[D, K]'" in outcome.err
    assert "for its tests: test-shapes = 'x[N, N]'\n" in outcome.err
    assert "for its tests: test-shapes = 'x[N, N]; N % 2 == 0'\n" in outcome.err
    assert " --inputs" not in outcome.err
    assert "--samples" not in outcome.err
