"""An autograd.Function as a tree: its parts, and places whose content can be replaced."""

import ast
from pathlib import Path

from tests.verify.op_tree import Op, expression, is_none, slots

LINEAR = Path(__file__).parents[2] / "generated_examples/linear/linear.py"
PLAIN = """\
from torch.autograd import Function


class Twice(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight.t(), None
"""


def test_the_parts_of_a_generated_function() -> None:
    op = Op(LINEAR.read_text())
    assert not op.combined and not op.once_differentiable
    assert [item.arg for item in op.parameters] == ["input", "weight", "bias"]
    assert len(op.gradients()) >= 3 and op.saved()


def test_the_parts_of_a_function_written_by_hand() -> None:
    op = Op(PLAIN)
    assert op.combined
    assert op.grad_outputs == ["g"]
    assert op.unpacked()[1] == ["x", "weight"]


def test_what_a_slot_holds_can_be_replaced() -> None:
    op = Op(PLAIN)
    op.gradients()[0].put("-_")
    assert "-(g @ weight.t())" in ast.unparse(op.tree)


def test_slots_are_every_expression_that_can_be_replaced() -> None:
    tree = ast.parse("f(a, b=c)[d] + e")
    for slot in slots(tree):
        before = ast.unparse(tree)
        node = slot.node
        slot.replace(expression("zzz"))
        assert ast.unparse(tree) != before
        slot.replace(node)
        assert ast.unparse(tree) == before
    assert is_none(expression("None")) and not is_none(expression("0"))
