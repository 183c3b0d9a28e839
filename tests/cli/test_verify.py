"""`new-op --verify` as a user sees it."""

import json
import os
import pty
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from scaffold.cli.output import TERMINAL
from scaffold.project import interpreter
from scaffold.project import rendering as generating
from scaffold.project.interpreter import Proving
from scaffold.verify import Failure, Verdict
from tests.cli.projects import contents, project
from tests.cli.running import Outcome, environment, listing, new_op, run

PRODUCT = ("--inputs", "x, y", "--forward", "x * y", "--grad", "x=grad_output * y")
RIGHT = (*PRODUCT, "--grad", "y=grad_output * x", "--no-module")
WRONG = (*PRODUCT, "--grad", "y=2 * grad_output * x", "--no-module")
DERIVED = (*PRODUCT[:4], "--no-module")
MESSAGE = [
    "--grad:1:3: grad_y: factor 2; nothing was written",
    "hint: if the gradient is meant to differ from the derivative, use --surrogate",
]


def test_a_wrong_formula_is_not_written(tmp_path: Path) -> None:
    outcome = new_op(tmp_path, *WRONG, "--verify")
    assert (outcome.code, outcome.out) == (1, "")
    said = outcome.err.splitlines()
    assert said[:5] == [
        *MESSAGE,
        "note: case: base",
        "note: inputs: x (2, 3), y (2, 3)",
        "note: needed: x, y",
    ]
    assert not listing(tmp_path)


@pytest.mark.parametrize(
    ("formula", "hint"),
    [
        ("(grad_output * x).sum(0)", "a gradient, even of a surrogate, has the shape"),
        (
            "(grad_output * x).float()",
            "a gradient, even of a surrogate, has the shape",
        ),
        ("grad_output * x + x * 0.5", "if the gradient is meant to differ"),
    ],
)
def test_a_surrogate_is_proposed_only_where_it_would_be_taken(
    formula: str, hint: str, tmp_path: Path
) -> None:
    """Shape and dtype are asked of a surrogate too."""
    asked = (*PRODUCT, "--grad", f"y={formula}", "--no-module")
    outcome = new_op(tmp_path, *asked, "--verify")
    assert f"\nhint: {hint}" in outcome.err
    taken = new_op(tmp_path, *asked, "--verify", "--surrogate")
    assert (taken.code == 0) is hint.startswith("if")


@pytest.mark.parametrize("looking", ["--dry-run", "--diff", "--stdout"])
def test_a_look_tells_what_the_run_would(looking: str, tmp_path: Path) -> None:
    outcome = new_op(tmp_path, *WRONG, "--verify", looking)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines()[:2] == MESSAGE


def test_programs_get_the_case_too(tmp_path: Path) -> None:
    outcome = new_op(tmp_path, *WRONG, "--verify", "--format", "json")
    answer = json.loads(outcome.out)
    assert outcome.code == 1 and not answer["written"]
    assert answer["notes"][0] == "case: base"
    (problem,) = answer["problems"]
    assert problem["message"] == "grad_y: factor 2; nothing was written"


def test_a_right_formula_is_written(tmp_path: Path) -> None:
    outcome = new_op(tmp_path, *RIGHT, "--verify")
    assert (outcome.code, outcome.err) == (0, "")
    assert list(listing(tmp_path)) == ["foo.py", "test_foo.py"]


def test_what_the_user_states_is_held_against_the_forward_unasked(
    tmp_path: Path,
) -> None:
    outcome = new_op(tmp_path, *WRONG)
    assert outcome.code == 1 and not listing(tmp_path)
    assert outcome.err.splitlines()[:2] == MESSAGE
    with patch.object(Proving, "prove", side_effect=AssertionError):
        outcome = new_op(tmp_path, *WRONG, "--no-verify")
    assert (outcome.code, outcome.err) == (0, "")


def test_what_is_derived_is_verified_unasked(tmp_path: Path) -> None:
    wrong = Failure("grad_y", "sign", case="base")
    with patch.object(Proving, "prove", return_value=Verdict(1, wrong)):
        outcome = new_op(tmp_path, *DERIVED)
        assert outcome.code == 1
        assert "grad_y: sign; nothing was written" in outcome.err
        assert new_op(tmp_path, *DERIVED, "--no-verify").code == 0
    with patch.object(interpreter, "find_interpreter", return_value=None):
        unverified = new_op(tmp_path, *DERIVED)
    assert unverified.code == 0
    assert unverified.err == (
        "note: not proven: no PyTorch found "
        "(name an interpreter that has it: --python PATH, or pip install torch)\n"
    )


PAIR = ("--inputs", "h[N, D], a[W]", "--forward", "torch.cat((h, h.exp()), 1) @ a")
REFUSED = Verdict(0, Failure("forward", "raised"), conditions=("W == 2 * D",))


@pytest.mark.parametrize("settled", [False, True])
def test_sizes_that_the_forward_turns_out_to_want(
    settled: bool, tmp_path: Path
) -> None:
    """They are those of the tests, and of the table where there is a manifest."""
    if settled:
        project(tmp_path)
    with patch.object(Proving, "prove", side_effect=[REFUSED, Verdict(5)]):
        outcome = new_op(tmp_path, *PAIR)
    assert outcome.code == 0
    note = "sizes of the tests as the forward wants them: --require 'W == 2 * D'"
    assert f"note: {note}\n" in outcome.err
    written = contents(tmp_path)
    assert b"W: int = 4" in written["tests/test_foo.py" if settled else "test_foo.py"]
    if settled:
        assert b'require = ["W == 2 * D"]' in written["ops.toml"].replace(b"'", b'"')


BARE = (
    "--inputs",
    "x, w[; const], b?",
    "--forward",
    "(x @ w) * 1 if b is None else x @ w + b",
)
UNSHAPED = Verdict(
    0,
    Failure("forward", "raised"),
    conditions=("D % 2 == 0",),
    shapes={"x": "N, D", "w": "D, K", "b": "K"},
)
NONE = Failure(
    "forward", "accepts none of 9 shapes", tried=("tried: 9",), hint="declare"
)


@pytest.mark.parametrize("settled", [False, True])
def test_shapes_that_were_found_are_those_of_the_tests(
    settled: bool, tmp_path: Path
) -> None:
    """A note has them as they are declared; the table of a manifest keeps them for the tests."""
    if settled:
        project(tmp_path)
    with patch.object(Proving, "prove", side_effect=[UNSHAPED, Verdict(5)]):
        outcome = new_op(tmp_path, *BARE)
    assert outcome.code == 0
    declared = "--inputs 'x[N, D], w[D, K; const], b[K]?' --require 'D % 2 == 0'"
    assert f"these options declare them: {declared}\n" in outcome.err
    if settled:
        kept = "test-shapes = 'x[N, D], w[D, K], b[K]; D % 2 == 0'"
        written = contents(tmp_path)["ops.toml"].decode()
        assert kept in written.replace('"', "'")


def test_where_no_shapes_are_found_they_have_to_be_declared(tmp_path: Path) -> None:
    project(tmp_path)
    before = contents(tmp_path)
    with patch.object(Proving, "prove", return_value=Verdict(0, NONE)):
        outcome = new_op(tmp_path, *BARE)
    assert (outcome.code, contents(tmp_path)) == (2, before)
    assert outcome.err.endswith(
        "forward: accepts none of 9 shapes; nothing was written\nhint: declare\n"
        "note: tried: 9\n"
    )


def test_what_the_user_says_of_sizes_is_not_replaced(tmp_path: Path) -> None:
    with patch.object(Proving, "prove", return_value=REFUSED):
        outcome = new_op(tmp_path, *PAIR, "--require", "D > 2")
    assert outcome.code == 1 and not listing(tmp_path)
    assert outcome.err.endswith("hint: --require 'W == 2 * D'\n")


def test_what_is_known_of_the_inputs_is_the_hint(tmp_path: Path) -> None:
    failure = Failure("forward", "raised", hint="give the tests inputs")
    with patch.object(Proving, "prove", return_value=Verdict(0, failure)):
        outcome = new_op(tmp_path, *PAIR)
    assert outcome.code == 1 and not listing(tmp_path)
    assert outcome.err.endswith("hint: give the tests inputs\n")


def test_a_wrong_gradient_is_told_whatever_the_sizes(tmp_path: Path) -> None:
    wrong = Verdict(5, Failure("grad_a", "sign"))
    with patch.object(Proving, "prove", side_effect=[REFUSED, wrong]):
        outcome = new_op(tmp_path, *PAIR)
    assert outcome.code == 1 and not listing(tmp_path)
    assert "grad_a: sign; nothing was written" in outcome.err


def test_a_formula_for_each_gradient_leaves_nothing_derived() -> None:
    from scaffold.derive import derive
    from tests.derive.building import spec_of

    grad = {"x": "grad_output * y"}
    whole = "grad_x = grad_output * y; grad_y = grad_output * x"
    for raw, names in (
        ({"grad": grad}, {"y"}),
        ({"grad": grad, "derive": False}, set()),
        ({"backward": whole}, set()),
        ({}, {"x", "y"}),
        ({"surrogate": True}, set()),
    ):
        spec = spec_of("x, y", forward="x * y", **raw)
        assert derive(spec).derived == names


def test_a_skeleton_is_not_verified(tmp_path: Path) -> None:
    outcome = new_op(tmp_path, "--inputs", "x", "--verify")
    assert outcome.code == 0
    assert (
        outcome.err.splitlines()[-1]
        == "note: not verified, as it lacks forward, grad_x"
    )


def test_a_surrogate_is_noted(tmp_path: Path) -> None:
    options = ("--inputs", "x", "--forward", "torch.sign(x)", "--surrogate")
    outcome = new_op(tmp_path, *options, "--grad", "x=grad_output", "--verify")
    assert outcome.code == 0
    assert outcome.err.startswith("note: surrogate: grad_x differs from the derivative")


def without_torch(directory: Path, *arguments: str) -> Outcome:
    """A run in a process in which torch cannot be imported."""
    blocked = directory / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import sys\nsys.modules['torch'] = None\n"
    )
    path = os.pathsep.join([str(blocked), environment()["PYTHONPATH"]])
    return run(directory, *arguments, PYTHONPATH=path, VIRTUAL_ENV="", PATH="")


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--verify", ("new-op", "foo", *RIGHT, "--verify")),
        ("scaffold verify", ("verify", "test_foo.py")),
    ],
)
def test_without_torch_it_cannot_be_asked_for(
    option: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    outcome = without_torch(tmp_path, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"{option}: no PyTorch found\n"
        "hint: name an interpreter that has it: --python PATH, or pip install torch\n"
    )


def test_a_terminal_sees_that_it_is_verified(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", 0) as seen, os.fdopen(follower, "w") as terminal:
        shown = TERMINAL.proving(["foo"], "verifying")
        with patch.object(sys, "stderr", terminal), shown:
            assert seen.read(100) == b"\rverifying foo ..."
        terminal.flush()


@pytest.mark.each_commit
def test_a_proof_that_takes_too_long_ends(tmp_path: Path) -> None:
    """The hint is what makes it longer."""
    (tmp_path / "slow.py").write_text(
        "import time\ndef f(x):\n    time.sleep(100)\n    return x\n"
    )
    kernel = ("--inputs", "x", "--forward", "f(x)", "--import", "slow:f", "--verify")
    options = (*kernel, "--grad", "x=grad_output", "--no-module", "--limit", "2")
    before = listing(tmp_path)
    outcome = new_op(tmp_path, *options)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines()[:2] == [
        "error: process: still running after 2 seconds; nothing was written",
        "hint: give it longer: --limit 4",
    ]
    assert listing(tmp_path) == before


@pytest.fixture
def no_proof() -> Iterator[None]:
    """No proof is made, whatever it would find."""
    with patch.object(Proving, "prove", side_effect=AssertionError):
        yield


@pytest.mark.parametrize("policy", [(), ("--on-conflict", "abort")])
@pytest.mark.parametrize("settled", [False, True])
def test_a_file_that_exists_is_told_of_before_the_proof(
    settled: bool, policy: tuple[str, ...], tmp_path: Path, no_proof: None
) -> None:
    if settled:
        project(tmp_path)
    outcome = new_op(tmp_path, *DERIVED, "--no-verify")
    assert outcome.code == 0
    (file,) = tmp_path.rglob("foo.py")
    file.write_text("mine = 1\n")
    if settled:
        shutil.rmtree(tmp_path / ".scaffold")
    outcome = new_op(tmp_path, *DERIVED, *policy)
    assert outcome.code == 1
    assert "exists and differs; nothing was written" in outcome.err
    assert file.read_text() == "mine = 1\n"


def test_a_conflict_in_json_is_told_of_before_the_proof(
    tmp_path: Path, no_proof: None
) -> None:
    (tmp_path / "foo.py").write_text("mine = 1\n")
    outcome = new_op(tmp_path, *DERIVED, "--format", "json")
    answer = json.loads(outcome.out)
    assert outcome.code == 1 and not answer["written"]
    assert {item["path"]: item["verb"] for item in answer["files"]}["foo.py"] == (
        "conflict"
    )


def test_what_cannot_be_written_is_told_of_before_the_proof(
    tmp_path: Path, no_proof: None
) -> None:
    (tmp_path / "taken").write_text("")
    outcome = new_op(tmp_path, *DERIVED, "--out-dir", "taken/ops")
    assert outcome.code == 2 and "taken" in outcome.err
    outcome = new_op(tmp_path, *DERIVED, name="x" * 250)
    assert outcome.code == 2 and "File name too long" in outcome.err
    with patch("scaffold.workspace.disk.writable", return_value=False):
        outcome = new_op(tmp_path, *DERIVED)
    assert outcome.code == 2 and "is read-only" in outcome.err
    assert list(listing(tmp_path)) == ["taken"]


def test_what_is_skipped_or_overwritten_is_proven(tmp_path: Path) -> None:
    (tmp_path / "foo.py").write_text("mine = 1\n")
    for policy in ("skip", "overwrite"):
        with patch.object(Proving, "prove", return_value=Verdict(3)) as proven:
            assert new_op(tmp_path, *DERIVED, "--on-conflict", policy).code == 0
        assert proven.called


def test_the_child_is_started_before_anything_is_read(tmp_path: Path) -> None:
    """It imports torch while the op is being made; where options are wrong it is not started at all."""
    order: list[str] = []

    def noted(owner: Any, name: str) -> Any:
        original = getattr(owner, name)

        def call(*arguments: Any) -> Any:
            order.append(name)
            return original(*arguments)

        return patch.object(owner, name, call)

    with (
        noted(Proving, "start"),
        noted(generating, "generate"),
        patch.object(Proving, "prove", return_value=Verdict(3)),
    ):
        assert new_op(tmp_path, *DERIVED).code == 0
        assert order == ["start", "generate"]
        order.clear()
        assert new_op(tmp_path, *DERIVED, "--no-verify", name="bar").code == 0
        assert new_op(tmp_path, "--inputs", "x", name="baz").code == 0
        assert new_op(tmp_path, *DERIVED, "--format", "yaml").code == 2
        assert order == ["generate"] * 3
