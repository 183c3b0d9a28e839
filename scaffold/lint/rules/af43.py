"""AF43: forward waits for a number of a tensor.

tensor.item() copies one number to the host, which waits for the device, in each call; torch.compile breaks its graph there.

Words: `facts` are what is known of one autograd.Function; `guards` are the branches around a statement.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own


@for_own("forward", trivial=False)
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield the first unconditional call of .item() in forward; ONNX Functions are skipped, as they are traced."""
    if facts.function.method("symbolic"):
        return
    for step in forward.flow.steps:
        for node in step.expressions():
            # With arguments it may be another object's: `table.item(0, 0)`.
            waits = isinstance(node, ast.Call) and not node.args and not step.guards
            if waits and method_call(node, facts.names) == "item":
                message = f"{ast.unparse(node)} waits for the device, and ends a graph of torch.compile: compute with the tensor"
                yield Found(node, message)
                return


RULE = Rule(
    id="AF43",
    title="forward waits for a number of a tensor",
    why=(
        "tensor.item() copies one number to the host: the host waits until the device "
        "has computed it, in each call, CUDA graphs refuse it, and torch.compile "
        "breaks the graph there. Most often the tensor of one element does as well."
    ),
    bad="""\
class Normalize(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.scale = 1 / x.abs().max().item()
        return x * ctx.scale

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        return grad_output * ctx.scale
""",
    good="""\
class Normalize(Function):
    @staticmethod
    def forward(ctx, x):
        scale = 1 / x.abs().max()
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        (scale,) = ctx.saved_tensors
        return grad_output * scale
""",
    level="advice",
    each=find,
)
