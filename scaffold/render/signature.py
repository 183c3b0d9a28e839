"""Parameters, annotations and results of an op, as they stand in generated code.

In: an `OpSpec`. Out: pieces of signatures. Invariant: typed for `mypy --strict`.
"""

from collections.abc import Iterable

from scaffold.spec import Attribute, Input, OpSpec, is_variadic
from scaffold.spec.library import schema_type

ANNOTATIONS = {"object": "Any", "dtype": "torch.dtype", "device": "torch.device | str"}


def annotation(item: Input) -> str:
    """The type of a parameter."""
    if isinstance(item, Attribute):
        return ANNOTATIONS.get(item.annotation, item.annotation)
    return "Tensor | None" if item.optional else "Tensor"


def parameter(item: Input) -> str:
    """`bias: Tensor | None`, without its default."""
    star = "*" if is_variadic(item) else ""
    return f"{star}{item.name}: {annotation(item)}"


def parameters(items: Iterable[Input]) -> str:
    """A parameter list in call order, without defaults."""
    return ", ".join(parameter(item) for item in items)


def registered_parameters(items: Iterable[Input]) -> str:
    """The same of an op that is registered, whose schema has a list for any number of tensors."""
    return ", ".join(f"{item.name}: {_registered(item)}" for item in items)


def _registered(item: Input) -> str:
    if isinstance(item, Attribute):
        return schema_type(item.annotation) or annotation(item)
    return "list[Tensor]" if item.variadic else annotation(item)


def registered_arguments(items: Iterable[Input]) -> str:
    """The names in call order, as such an op takes them."""
    return ", ".join(
        f"list({item.name})" if is_variadic(item) else item.name for item in items
    )


def parameters_with_defaults(items: Iterable[Input]) -> str:
    """The parameter list of the wrapper: in call order, then those that go by keyword."""
    items = tuple(items)
    listed = _positional([item for item in items if not item.keyword_only])
    keywords = [item for item in items if item.keyword_only]
    star = ["*"] if keywords and not any(map(is_variadic, items)) else []
    listed += star
    for item in keywords:
        default = _default(item)
        listed.append(f"{parameter(item)} = {default}" if default else parameter(item))
    return ", ".join(listed)


def _positional(items: list[Input]) -> list[str]:
    """In call order; an optional has a default where everything after it has one."""
    listed: list[str] = []
    open_end = True
    for item in reversed(items):
        default = _default(item)
        open_end = open_end and (default is not None or is_variadic(item))
        shown = (
            f"{parameter(item)} = {default}"
            if open_end and default
            else parameter(item)
        )
        listed.insert(0, shown)
    return listed


def _default(item: Input) -> str | None:
    if isinstance(item, Attribute):
        return item.default
    return "None" if item.optional else None


def arguments(items: Iterable[Input]) -> str:
    """The names in call order, a variadic one unpacked."""
    return ", ".join(starred(item) for item in items)


def call_arguments(values: Iterable[tuple[Input, str]]) -> str:
    """The values of a call of the wrapper, each with the input that it is for."""
    positional, keywords = [], []
    for item, value in values:
        if item.keyword_only:
            keywords.append(f"{item.name}={value}")
        else:
            positional.append(value)
    return ", ".join([*positional, *keywords])


def starred(item: Input) -> str:
    """The name of an input, with a star if it is variadic."""
    return f"*{item.name}" if is_variadic(item) else item.name


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
