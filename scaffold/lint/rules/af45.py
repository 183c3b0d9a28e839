"""AF45: custom_fwd does not say which dtype a kernel gets.

Autocast casts the inputs of PyTorch's own functions, not those of a kernel: an activation arrives in half precision beside a
weight in float32, unless custom_fwd has cast_inputs.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, kernels, of_torch

# What forward says where it sees to the dtypes of its inputs itself.
CASTS = {"to", "type", "type_as", "float", "half", "bfloat16", "double"}


@for_own("forward")
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield torch's custom_fwd without `cast_inputs` on a forward that calls a kernel, and looks at no dtype itself."""
    if facts.function.setup_context:
        return  # beside setup_context it is in the wrong place: AF21
    decorator = of_torch(forward, "custom_fwd")
    if decorator is None or _casts(decorator[1]) or _sees_to_dtypes(forward, facts):
        return
    call = next(kernels(_body(forward), facts.names), None)
    if call is not None:
        kernel = ast.unparse(call.func).partition("[")[0]
        message = f"under autocast {kernel} gets whatever dtype comes in, as custom_fwd casts nothing; say cast_inputs=..."
        yield Found(decorator[1], message)


def _casts(decorator: ast.expr) -> bool:
    """Return whether custom_fwd is given cast_inputs, or `**options` that may hold it."""
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return any(item.arg in ("cast_inputs", None) for item in keywords)


def _body(forward: Method) -> Iterator[ast.AST]:
    """Yield every node of forward's body, its decorators and parameters left out."""
    for statement in forward.node.body:
        yield from ast.walk(statement)


def _sees_to_dtypes(forward: Method, facts: Facts) -> bool:
    """Return whether forward casts a tensor, or reads a dtype or the state of autocast."""
    return any(
        method_call(node, facts.names) in CASTS
        or isinstance(node, ast.Attribute)
        and (node.attr == "dtype" or "autocast" in node.attr)
        or isinstance(node, ast.Name)
        and "autocast" in node.id
        for node in _body(forward)
    )


RULE = Rule(
    id="AF45",
    title="custom_fwd does not say which dtype a kernel gets",
    why=(
        "Autocast casts the inputs of PyTorch's own functions, not those of a kernel. "
        "Without cast_inputs, custom_fwd only notes whether autocast is on: an activation "
        "arrives in half precision beside a weight in float32. With it, the inputs are "
        "cast, and forward runs with autocast off."
    ),
    bad="""\
from my_ops import _C


class Norm(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return _C.norm_forward(x, weight)

    @staticmethod
    @once_differentiable
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return _C.norm_backward(grad_output, x, weight)
""",
    good="""\
from my_ops import _C


class Norm(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return _C.norm_forward(x, weight)

    @staticmethod
    @once_differentiable
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return _C.norm_backward(grad_output, x, weight)
""",
    level="advice",
    each=find,
)
