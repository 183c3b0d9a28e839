"""AF31: a kernel computes the gradient, and backward is not once differentiable."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import is_kernel, once


def find(facts: Facts) -> Iterator[Found]:
    """Yield the first call of compiled code in backward."""
    function = facts.function
    backward = function.backward
    if backward is None or function.once_differentiable or backward not in function.own:
        return
    for node in ast.walk(backward.node):
        if isinstance(node, ast.Call) and is_kernel(node, facts.names):
            text = ast.unparse(node.func)
            message = f"{text} is a kernel: a second derivative may be silently wrong; add @once_differentiable"
            yield Found(node, message, once(facts))
            return


RULE = Rule(
    id="AF31",
    title="a kernel computes the gradient, and backward is not once differentiable",
    why=(
        "Autograd does not see into a kernel: a second derivative is silently None or "
        "wrong. @once_differentiable makes it an error."
    ),
    bad="""\
from my_ops import _C


class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _C.norm_forward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return _C.norm_backward(grad_output, x)
""",
    good="""\
from my_ops import _C


class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _C.norm_forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return _C.norm_backward(grad_output, x)
""",
    level="advice",
    each=find,
    fixes=True,
)
