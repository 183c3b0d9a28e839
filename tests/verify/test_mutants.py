"""Mutants of generated and hand-written Functions: each has its one mistake, and the rest of the text."""

import ast
import difflib
from textwrap import indent

import pytest

from tests.examples.examples import EXAMPLES
from tests.sweeps import in_every_run
from tests.verify.mutants import MISTAKES, Mistake, mutants
from tests.verify.op_tree import Op
from tests.verify.written import RELU, SCALED

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
