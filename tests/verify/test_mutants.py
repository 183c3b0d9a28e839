"""Mutants of generated and hand-written Functions: each has its one mistake, and the rest of the text."""

import ast
import difflib
from contextlib import chdir
from pathlib import Path
from textwrap import indent

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.mutants import (
    MISTAKES,
    Mistake,
    Outcome,
    mutants,
    planted,
    score,
)
from scaffold.verify.op_tree import Op
from tests.cli.running import listing
from tests.examples.examples import EXAMPLES
from tests.sweeps import in_every_run
from tests.verify.written import KILLED, RELU, SCALED, VALUES

TEXTS = {
    **{item.op: item.op_file.read_text() for item in EXAMPLES if not item.skeleton},
    "relu": RELU,
    "scaled": SCALED,
}


def changed(before: str, after: str) -> set[str]:
    """The lines of the original that are not in the mutant."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return {line[2:].strip() for line in lines if line.startswith("- ")}


@pytest.mark.parametrize(
    "name", in_every_run(TEXTS, [*TEXTS][::3], pytest.mark.each_commit)
)
def test_a_mutant_parses_and_differs(name: str) -> None:
    text = TEXTS[name]
    plain = ast.dump(ast.parse(text))
    found = mutants(text)
    assert len({mutant.text for mutant in found}) == len(found)
    for mutant in found:
        assert ast.dump(ast.parse(mutant.text)) != plain, mutant.name


def test_the_mutants_of_a_hand_written_function() -> None:
    assert [mutant.name for mutant in mutants(RELU)] == [
        "wrong_transpose: grad_x",
        "detach: grad_output",
        "view_for_reshape: forward, x",
        "grad_output_view: grad_output",
        "tensor_on_ctx: x",
        "factor_2: grad_x",
        "sign: grad_x",
    ]


def test_a_function_without_annotations_and_with_a_nested_return() -> None:
    names = {mutant.name for mutant in mutants(SCALED)}
    assert {"factor_2: grad_x", "missing_branch: ctx.needs_input_grad[0]"} <= names


def test_what_is_not_changed_stays_as_it_was_written() -> None:
    for mutant in mutants(RELU):
        assert "# not formatted   at all" in mutant.text
        assert "def   helper( a ): return a" in mutant.text
        assert changed(RELU, mutant.text) <= {
            line.strip() for line in RELU.splitlines()[8:]
        }


def test_each_function_of_a_module_has_its_mutants() -> None:
    both = f"{RELU}\n{SCALED}"
    functions = [mutant.function for mutant in mutants(both)]
    assert functions == sorted(functions, key=["Relu", "Scaled"].index)
    assert len(functions) == len(mutants(RELU)) + len(mutants(SCALED))


def test_a_module_without_a_function_has_none() -> None:
    assert (
        mutants("class Function:\n    pass\n\nclass Foo(Function):\n    pass\n") == ()
    )


def outcomes(
    directory: Path, test: str, op: str = RELU, limit: int = 60
) -> list[Outcome]:
    """The score of a test file in the directory; no file there changes."""
    (directory / "ops.py").write_text(op)
    (directory / "test_ops.py").write_text(test)
    before = listing(directory)
    with chdir(directory):
        path = Path("ops.py")
        found = list(score(Path("test_ops.py"), path, planted(path), limit))
    assert listing(directory) == before
    return found


def test_what_a_test_does_not_look_at_lives(tmp_path: Path) -> None:
    found = outcomes(tmp_path, VALUES.format(module="ops"))
    assert {item.mistake: item.killed for item in found} == KILLED
    assert {item.by for item in found if item.killed} == {"test_ops.py::test_values"}


LOADED = """\
import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("any_name", Path(__file__).parent / "ops.py")
ops = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ops)
"""


def test_a_project_that_runs_tests_in_parallel_and_loads_by_path(
    tmp_path: Path,
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = '-n 2'\n"
    )
    (tmp_path / "conftest.py").write_text("assert True\n")
    test = LOADED + VALUES.format(module="ops").replace(
        "from ops import Relu", "Relu = ops.Relu"
    )
    found = outcomes(tmp_path, test)
    assert {item.mistake: item.killed for item in found} == KILLED


def test_a_mutant_that_ends_or_stops_its_process_is_killed(tmp_path: Path) -> None:
    ends = (
        "    import os, signal, time\n"
        "    if x.grad[0, 0] == 4:\n        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if x.grad[0, 0] == -2:\n        time.sleep(600)\n"
    )
    text = VALUES.format(module="ops")
    cut = text.index("    assert")
    found = outcomes(tmp_path, text[:cut] + ends + text[cut:], limit=4)
    ended = {item.mistake: item.by for item in found}
    assert ended["factor_2"] == "killed by SIGSEGV"
    assert ended["sign"] == "out of time"
    assert {item.mistake: item.killed for item in found} == KILLED


def test_tests_that_fail_as_they_are_have_no_score(tmp_path: Path) -> None:
    wrong = VALUES.format(module="ops").replace("8.0", "9.0")
    with pytest.raises(ScaffoldError) as caught:
        outcomes(tmp_path, wrong)
    assert str(caught.value) == (
        "error: the tests of 'test_ops.py' do not pass as they are: "
        "test_ops.py::test_values\nhint: mend them, then plant mistakes"
    )


def test_a_file_without_tests_has_no_score(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="do not pass as they are: no tests"):
        outcomes(tmp_path, "import ops\n")


def test_a_process_without_pytest_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['pytest'] = None\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        ScaffoldError, match="the process that runs the tests has ended"
    ):
        outcomes(tmp_path, VALUES.format(module="ops"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_changes_the_op_at_each_of_its_places(mistake: Mistake) -> None:
    """In some example there is a place for it; what is planted there differs from the op, and from what the others are."""
    found = 0
    for name in ("linear", "linear_in_out", "layer_norm"):
        op = Op(TEXTS[name])
        for at in range(len([*mistake(op)])):
            mutated = Op(TEXTS[name])
            label, plant = [*mistake(mutated)][at]
            plant()
            assert label
            assert ast.unparse(mutated.tree) != ast.unparse(op.tree)
            found += 1
    assert found


def test_no_two_mistakes_have_one_name() -> None:
    names = [mistake.__name__ for mistake in MISTAKES]
    assert len({*names}) == len(names)


SHARED = """
import torch
from torch.autograd import Function


class Once(Function):
    @staticmethod
    def forward(ctx, grad):
        return grad.view_as(grad)

    @staticmethod
    def backward(ctx, _grad_output):
        raise RuntimeError("differentiable once")


class Gate(Function):
    @staticmethod
    def forward(ctx, x, w, mask):
        ctx.save_for_backward(x, w, mask)
        return x * w * mask

    @staticmethod
    def backward(ctx, grad_output):
        x, w, mask = ctx.saved_tensors
        grad_x = grad_w = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            grad_masked = (grad_output * mask).sum_to_size(mask.shape)
        if ctx.needs_input_grad[0]:
            grad_x = (grad_masked * w).sum_to_size(x.shape)
        if ctx.needs_input_grad[1]:
            grad_w = (grad_masked * x).sum_to_size(w.shape)
        return grad_x, grad_w, None
"""


def test_what_a_caller_could_not_see_is_no_mistake() -> None:
    found = {(one.mistake, one.place) for one in mutants(SHARED)}
    assert {one.function for one in mutants(SHARED)} == {"Gate"}
    places = {place for mistake, place in found if mistake == "missing_branch"}
    assert places == {f"ctx.needs_input_grad[{at}]" for at in (0, 1)}
    assert ("detach", "mask") not in found and ("detach", "x") in found
    sums = {place for mistake, place in found if mistake == "missing_sum"}
    assert sums == {
        f"(grad_masked * {x}).sum_to_size({y}.shape)" for x, y in ("wx", "xw")
    }


LOSS = """
class Gate(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return -(x * w).sum()

    @staticmethod
    def backward(ctx, grad_loss):
"""
LINES = """\
x, w = ctx.saved_tensors
grad_w = (grad_loss * x).sum_to_size(w.shape)
return (grad_loss * w).sum_to_size(x.shape), grad_w
"""


def test_a_backward_in_one_block_has_the_mistakes_of_its_lines() -> None:
    """And a loss has none of memory, as what comes in is one number."""
    block = "        with ctx.autocast:\n"
    texts = [LOSS + indent(LINES, " " * 8), LOSS + block + indent(LINES, " " * 12)]
    found, inside = ({(m.mistake, m.place) for m in mutants(t)} for t in texts)
    assert found == inside
    kinds = {mistake for mistake, _ in found}
    assert {"swapped_grads", "detach", "tensor_on_ctx", "missing_sum"} <= kinds
    assert "grad_output_view" not in kinds
