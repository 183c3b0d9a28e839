"""AF39: backward calls view on an output gradient.

The caller's gradient has any strides (that of `y.sum(0)` is expanded), and view cannot join such dims: it raises. The fix calls
reshape, which copies if it must.

Words: a *root* is the origin of a tensor's memory, here a parameter of backward; `facts` are what is known of one
autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own, keeps_arguments


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield calls of view joining dims of an incoming gradient, as its strides are unknown; with the edit to call reshape."""
    if not keeps_arguments(backward):
        return
    values = facts.values(backward)
    given = {item.name for item in backward.positional}
    for step in backward.flow.steps:
        for node in step.expressions():
            if not isinstance(node, ast.Call) or not _joins(node):
                continue
            assert isinstance(node.func, ast.Attribute)
            root = values.root(node.func.value, step)
            if root is None or root.origin != "parameter" or root.name not in given:
                continue
            owner = ast.unparse(node.func.value)
            message = f"'{owner}' may not be contiguous: view raises for the gradient of a sum over a dim, or of a transpose; call reshape"
            edit = Edit("replace", span(node.func), f"{owner}.reshape")
            yield Found(node, message, (edit,))


def _joins(node: ast.Call) -> bool:
    """Return whether a call is a view that joins dims: `x.view(-1, D)` or `x.view(B * T, D)`, but not `x.view(-1, 1)`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "view":
        return False
    # Without positional arguments, `x.view(dtype=d)`, the call stands in: its text is not "-1".
    first, *others = map(ast.unparse, node.args or [node])
    product = any(
        isinstance(item, ast.BinOp) and isinstance(item.op, ast.Mult)
        for item in node.args
    )
    return product or first == "-1" and not (others and set(others) == {"1"})


RULE = Rule(
    id="AF39",
    title="backward calls view on an output gradient",
    why=(
        "The caller's gradient has any strides: that of y.sum(0) is expanded, that of "
        "y.t() transposed. view cannot join their dims and raises (pytorch#64529); "
        "reshape copies where it must."
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
        flat = grad_output.view(-1)
        return (2 * x.reshape(-1) * flat).reshape(x.shape)
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
        flat = grad_output.reshape(-1)
        return (2 * x.reshape(-1) * flat).reshape(x.shape)
""",
    level="advice",
    each=find,
    fixes=True,
)
