"""AF44: a kernel reads an output gradient without its strides.

The caller's gradient has any strides (that of `y.sum()` is one number, expanded): a kernel that walks memory from a pointer reads
beyond it. The fix makes it contiguous at the top of backward.

Words: a *root* is the origin of a tensor's memory, here a parameter of backward; `facts` are what is known of one
autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, inserted_first, keeps_arguments, kernels


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the first launch `kernel[grid](grad_output, ...)` of each incoming gradient whose strides are not passed.

    Nothing is yielded if backward reads is_contiguous.
    """
    if not keeps_arguments(backward) or "is_contiguous" in ast.unparse(backward.node):
        return
    values, seen = facts.values(backward), set[str]()
    # One with a default may be no gradient: beyond the outputs it keeps its default.
    given = {item.name for item in backward.positional if item.default is None}
    for step in backward.flow.steps:
        for node in kernels(step.expressions(), facts.names):
            if not isinstance(node.func, ast.Subscript):
                continue
            text = ast.unparse(node)
            for argument in (*node.args, *(item.value for item in node.keywords)):
                root = values.root(argument, step)
                name = root.name if root and root.origin == "parameter" else ""
                if (
                    name in given - seen
                    and f"{ast.unparse(argument)}.stride" not in text
                ):
                    seen.add(name)
                    message = f"'{name}' goes to a kernel without its strides: the expanded gradient of a sum is read as other memory; make it contiguous"
                    edits = inserted_first(backward, f"{name} = {name}.contiguous()")
                    yield Found(argument, message, edits)


RULE = Rule(
    id="AF44",
    title="a kernel reads an output gradient without its strides",
    why=(
        "The caller's gradient has any strides: that of y.sum() is one number, expanded "
        "over all elements. A kernel that walks memory from its pointer reads beyond it, "
        "or rows for columns, and the gradient is silently wrong or NaN."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        double_kernel[(x.numel(),)](x.contiguous(), y, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_x = torch.empty_like(grad_output)
        double_kernel[(grad_x.numel(),)](grad_output, grad_x, grad_x.numel())
        return grad_x
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        double_kernel[(x.numel(),)](x.contiguous(), y, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_output = grad_output.contiguous()
        grad_x = torch.empty_like(grad_output)
        double_kernel[(grad_x.numel(),)](grad_output, grad_x, grad_x.numel())
        return grad_x
""",
    level="advice",
    each=find,
    fixes=True,
)
