"""AF18: backward leaves autograd, and is not once differentiable."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import once

CUTS = {"detach", "item", "numpy", "tolist", "detach_"}


def find(facts: Facts) -> Iterator[Found]:
    """Yield the first cut of the graph in backward.

    If forward detaches too, detach in backward is accepted: it is a constant there as well.
    """
    function = facts.function
    backward = function.backward
    if backward is None or function.once_differentiable or facts.is_trivial:
        return
    if backward not in function.own:
        return
    for node in ast.walk(backward.node):
        what = _cut(facts, node)
        if what:
            message = f"{what} in a backward that is not @once_differentiable: a second derivative may be silently wrong"
            yield Found(node, message, once(facts))
            return


def _cut(facts: Facts, node: ast.AST) -> str:
    if (
        isinstance(node, ast.Attribute)
        and node.attr == "data"
        and isinstance(node.ctx, ast.Load)
    ):
        return "" if facts.names.resolve(node).startswith("torch.") else ".data"
    if isinstance(node, ast.Call):
        method = method_call(node, facts.names)
        if method == "detach" and _detaches(facts):
            return ""
        if method in CUTS and not node.args:
            return f".{method}()"
        if facts.names.resolve(node.func) == "torch.no_grad":
            return "torch.no_grad()"
    return ""


def _detaches(facts: Facts) -> bool:
    """Return whether forward detaches, as in `x + (x.round() - x).detach()`.

    The second derivative has the same constants then.
    """
    forward = facts.function.forward
    calls = ast.walk(forward.node) if forward else ()
    return any(
        isinstance(node, ast.Call) and method_call(node, facts.names) == "detach"
        for node in calls
    )


RULE = Rule(
    id="AF18",
    title="backward leaves autograd, and is not once differentiable",
    why=(
        ".data, .detach(), .item(), .numpy() and no_grad cut the graph of the gradient: "
        "a second derivative is silently wrong. Say @once_differentiable, and it is an "
        "error."
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
        return grad_output * 2 * x.detach()
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
        return grad_output * 2 * x
""",
    level="advice",
    each=find,
    fixes=True,
)
