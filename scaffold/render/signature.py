"""Parameters, annotations and results of an op, as they stand in generated code.

In: an `OpSpec`. Out: pieces of signatures. Invariant: typed for `mypy --strict`.
"""

from collections.abc import Iterable

from scaffold.spec import Attribute, Input, OpSpec, TensorInput

ANNOTATIONS = {"object": "Any", "dtype": "torch.dtype", "device": "torch.device | str"}


def annotation(item: Input) -> str:
    """The type of a parameter."""
    if isinstance(item, Attribute):
        return ANNOTATIONS.get(item.annotation, item.annotation)
    return "Tensor | None" if item.optional else "Tensor"


def parameter(item: Input) -> str:
    """`bias: Tensor | None`, without its default."""
    star = "*" if isinstance(item, TensorInput) and item.variadic else ""
    return f"{star}{item.name}: {annotation(item)}"


def parameters(items: Iterable[Input]) -> str:
    """A parameter list in call order, without defaults."""
    return ", ".join(parameter(item) for item in items)


def parameters_with_defaults(items: Iterable[Input]) -> str:
    """A parameter list in call order; an optional has a default where everything after it has one."""
    listed: list[str] = []
    open_end = True
    for item in reversed(tuple(items)):
        default = _default(item)
        variadic = isinstance(item, TensorInput) and item.variadic
        open_end = open_end and (default is not None or variadic)
        shown = (
            f"{parameter(item)} = {default}"
            if open_end and default
            else parameter(item)
        )
        listed.insert(0, shown)
    return ", ".join(listed)


def _default(item: Input) -> str | None:
    if isinstance(item, Attribute):
        return item.default
    return "None" if item.optional else None


def arguments(items: Iterable[Input]) -> str:
    """The names in call order, a variadic one unpacked."""
    return ", ".join(starred(item) for item in items)


def starred(item: Input) -> str:
    """The name of an input, with a star if it is variadic."""
    return (
        f"*{item.name}"
        if isinstance(item, TensorInput) and item.variadic
        else item.name
    )


def result_type(count: int, variadic: bool) -> str:
    """What a function returns that returns `count` tensors."""
    if variadic:
        return "tuple[Tensor, ...]"
    return "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"


def wrapper_type(spec: OpSpec) -> str:
    """What the functional wrapper returns."""
    return result_type(
        len(spec.outputs), any(output.variadic for output in spec.outputs)
    )
