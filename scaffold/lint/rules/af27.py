"""AF27: a default in the schema of a custom operator, on an argument with a gradient."""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module
from scaffold.lint.model import Found, Rule


def find(module: Module) -> Iterator[Found]:
    """Tensor parameters with a default whose place in needs_input_grad the backward asks for."""
    for operator in module.operators:
        if operator.autograd is None or operator.backward is None:
            continue
        asked = set(_asked(operator.backward))
        for position, item in enumerate(operator.parameters):
            tensor = "Tensor" in ast.dump(item.annotation) if item.annotation else False
            if item.default is not None and tensor and position in asked:
                message = f"default of '{item.name}' in a schema: needs_input_grad[{position}] is an IndexError; put the default into a wrapper"
                yield Found(operator.node, message, function=operator.name)


def _asked(backward: ast.FunctionDef) -> Iterator[int]:
    """The positions of needs_input_grad that a backward reads."""
    for node in ast.walk(backward):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner, index = node.value, node.slice.value
            asks = isinstance(owner, ast.Attribute) and owner.attr == "needs_input_grad"
            if asks and isinstance(index, int):
                yield index


RULE = Rule(
    id="AF27",
    title="a default in the schema of a custom operator, on an argument with a gradient",
    why=(
        "The dispatcher leaves out an argument that equals its default, even an "
        "explicit None: ctx.needs_input_grad is then shorter, and asking it for that "
        "argument is an IndexError. Put the default into a function that calls the "
        "operator."
    ),
    bad="""\
@torch.library.custom_op("lib::scale", mutates_args=())
def scale(x: Tensor, weight: Optional[Tensor] = None) -> Tensor:
    return x * 2 if weight is None else x * weight


def backward(ctx, grad_output):
    return grad_output, grad_output if ctx.needs_input_grad[1] else None


scale.register_autograd(backward)
""",
    good="""\
@torch.library.custom_op("lib::scale", mutates_args=())
def scale(x: Tensor, weight: Optional[Tensor]) -> Tensor:
    return x * 2 if weight is None else x * weight


def backward(ctx, grad_output):
    return grad_output, grad_output if ctx.needs_input_grad[1] else None


scale.register_autograd(backward)
""",
    whole=find,
)
