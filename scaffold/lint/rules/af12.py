"""AF12: a saved tensor is changed in place in backward."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """The first change of each tensor that `ctx.saved_tensors` gave."""
    backward = facts.function.backward
    if backward is None or backward not in facts.function.own:
        return
    values, seen = facts.values(backward), set()
    for change in facts.changes(backward):
        root = values.root(change.target, change.step)
        if root is None or root.origin != "saved" or root.detached:
            continue
        if root.element not in seen:
            seen.add(root.element)
            text = ast.unparse(change.target)
            message = f"saved tensor '{text}' is changed in place ({change.how}): a second backward raises"
            yield Found(change.node, message)


RULE = Rule(
    id="AF12",
    title="a saved tensor is changed in place in backward",
    why=(
        "A second backward over the same graph (retain_graph, or one gradient at a "
        "time) then raises, since the saved tensor has another version."
    ),
    bad="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return x.mul_(2 * grad_output)
""",
    good="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return x.mul(2 * grad_output)
""",
    each=find,
)
