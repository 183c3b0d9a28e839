"""AF27: a default in the schema of a custom operator, on an argument with a gradient.

PyTorch's dispatcher leaves out an argument that equals its default: ctx.needs_input_grad is then shorter, and asking it for that
argument is an IndexError. The fix puts the default into a function that calls the operator:

    def scale(x, b=None): ...  ->  def scale_op(x, b): ...
                                   def scale(x, b=None):
                                       return scale_op(x, b)

Words: an *operator* is a function with @torch.library.custom_op, with its `backward` by register_autograd.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module, Operator, Parameter
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import needed_input


def find(module: Module) -> Iterator[Found]:
    """Yield custom operators with a default of a tensor parameter whose needs_input_grad is tested in backward."""
    for operator in module.operators:
        if operator.autograd is None or operator.backward is None:
            continue
        asked = set(map(needed_input, ast.walk(operator.backward)))
        for position, item in enumerate(operator.parameters):
            tensor = "Tensor" in item.type
            if item.default is not None and tensor and position in asked:
                message = f"default of '{item.name}' in a schema: needs_input_grad[{position}] is an IndexError; put the default into a wrapper"
                yield Found(
                    operator.node,
                    message,
                    _wrapped(module, operator),
                    None,
                    operator.name,
                )


def _wrapped(module: Module, operator: Operator) -> tuple[Edit, ...]:
    """Return the edits to rename the operator and drop its defaults, and to add a function of the old name with them.

    () if the file uses the name for more than calls and registrations, if the new name is taken, or for a parameter by keyword alone or a
    starred one: the new function passes all by position.
    """
    node, name, new = operator.node, operator.name, f"{operator.name}_op"
    nodes = list(ast.walk(module.tree))
    uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == name]
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    # `scale.register_fake(f)` is about the operator, so it gets the new name; calls keep the old one.
    registered = {id(n.value) for n in nodes if isinstance(n, ast.Attribute)}
    # `register_autograd(scale, backward)`: the operator is its first argument.
    if operator.autograd is not None:
        registered |= {id(item) for item in operator.autograd.args[:1]}
    taken = any(isinstance(n, ast.Name) and n.id == new for n in nodes)
    plain = all(item.passing == "positional" for item in operator.parameters)
    if taken or not plain or any(id(n) not in called | registered for n in uses):
        return ()
    column = node.col_offset + len("def ")
    given = [item.name for item in operator.parameters]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    listed = ", ".join(_declared(module, item) for item in operator.parameters)
    wrapper = (
        f"\n\ndef {name}({listed}){returns}:\n"
        f"    return {new}({', '.join(given)})\n"
    )
    place = (node.lineno, column, node.lineno, column + len(name))
    return (
        Edit("replace", place, new),
        Edit("signature", span(node), ", ".join(given)),
        Edit("after", span(node), wrapper),
        *(Edit("replace", span(n), new) for n in uses if id(n) in registered),
    )


def _declared(module: Module, item: Parameter) -> str:
    """Return a parameter as written: name, annotation, default."""
    text = item.name
    if item.annotation is not None:
        text += f": {ast.get_source_segment(module.text, item.annotation)}"
    if item.default is not None:
        equals = " = " if item.annotation is not None else "="
        text += f"{equals}{ast.get_source_segment(module.text, item.default)}"
    return text


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
    return x * 2 if weight is None else x * 2 + weight


def backward(ctx, grad_output):
    return grad_output * 2, grad_output if ctx.needs_input_grad[1] else None


scale.register_autograd(backward)
""",
    good="""\
@torch.library.custom_op("lib::scale", mutates_args=())
def scale(x: Tensor, weight: Optional[Tensor]) -> Tensor:
    return x * 2 if weight is None else x * 2 + weight


def backward(ctx, grad_output):
    return grad_output * 2, grad_output if ctx.needs_input_grad[1] else None


scale.register_autograd(backward)
""",
    whole=find,
    fixes=True,
)
