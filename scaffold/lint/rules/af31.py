"""AF31: a kernel computes the gradient, and backward is not once differentiable.

Autograd does not see into a kernel (compiled code): a second derivative is silently None or wrong. @once_differentiable, the fix,
makes it an error.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import behind_results, for_own, kernels, once


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the call of compiled code in backward nearest to a returned gradient."""
    if facts.function.once_differentiable:
        return
    node = _nearest_kernel(facts, backward)
    if node is not None:
        text = ast.unparse(node.func)
        message = f"{text} is a kernel: a second derivative may be silently wrong; add @once_differentiable"
        yield Found(node, message, once(facts))


def _nearest_kernel(facts: Facts, backward: Method) -> ast.Call | None:
    """Return the call of a kernel nearest to a gradient, by the names in between; without one, the last called for its effect.

    None if backward calls none. The finding is shown there.
    """
    steps = backward.flow.steps
    effects = (s for s in reversed(steps) if isinstance(s.statement, ast.Expr))
    for step in (*behind_results(facts, backward), *effects):
        for kernel in kernels(step.expressions(), facts.names):
            if kernel.args:  # without them it has nothing to compute from
                return kernel
    return None


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
