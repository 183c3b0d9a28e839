"""AF07: an intermediate is saved, and a second derivative is silently wrong."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import ContextCall, Facts
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import once
from scaffold.primitives.calls import is_constant


def find(facts: Facts) -> Iterator[Found]:
    """Tensors that forward made, saves and does not return."""
    function = facts.function
    forward = function.forward
    if forward is None or forward.ctx is None or function.once_differentiable:
        return
    if facts.is_trivial or forward not in function.own:
        return
    returned = {
        node.id
        for item in facts.outputs
        for node in item.values or ()
        if isinstance(node, ast.Name)
    }
    values = facts.values(forward)
    for item in facts.context_calls(forward, "save_for_backward"):
        for argument in item.call.args:
            if not isinstance(argument, ast.Name) or argument.id in returned:
                continue
            root = values.root(argument, item.step)
            if (
                root is None
                or root.origin != "fresh"
                or _is_constant(facts, argument.id, item)
            ):
                continue
            message = f"intermediate '{argument.id}' is saved: a second derivative is silently wrong; add @once_differentiable"
            yield Found(argument, message, once(facts))
            return


def _is_constant(facts: Facts, name: str, item: ContextCall) -> bool:
    """Whether no derivative goes through it: a mask, an index, noise."""
    forward = facts.function.forward
    bound = forward.flow.definite(name, item.step) if forward else None
    if bound is None or bound.value is None:
        return True
    value = bound.value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if is_constant(value.func.attr):
            return True
        value = value.func.value
    return isinstance(value, ast.Compare)


RULE = Rule(
    id="AF07",
    title="an intermediate is saved, and a second derivative is silently wrong",
    why=(
        "What forward computes on the way is a constant to the second derivative "
        "(pytorch#58509, #104040). once_differentiable makes double backward an error; "
        "otherwise compute it again in backward, or return it as an output."
    ),
    bad="""\
class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        scale = torch.rsqrt(x.square().sum())
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale - x * scale**3 * (grad_output * x).sum()
""",
    good="""\
class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        scale = torch.rsqrt(x.square().sum())
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale - x * scale**3 * (grad_output * x).sum()
""",
    level="advice",
    each=find,
    fixes=True,
)
