"""Parameters, annotations and results of an op, as they stand in generated code.

Words: a *registered* op is one in library style, `torch.library.custom_op`, whose schema has a list for a variadic input (`*tensors`, any
number of tensors); an *attribute* is an argument other than a tensor.
In: an `OpSpec`, or its inputs. Out: pieces of signatures. Invariant: typed for `mypy --strict`.
"""

from collections.abc import Iterable

from scaffold.spec import Attribute, Input, OpSpec, is_variadic
from scaffold.spec.library import schema_type

ANNOTATIONS = {"object": "Any", "dtype": "torch.dtype", "device": "torch.device | str"}


def annotation(item: Input) -> str:
    """Return the type of a parameter."""
    if isinstance(item, Attribute):
        return ANNOTATIONS.get(item.annotation, item.annotation)
    return "Tensor | None" if item.optional else "Tensor"


def parameter(item: Input) -> str:
    """Return a parameter without its default: `bias: Tensor | None`."""
    star = "*" if is_variadic(item) else ""
    return f"{star}{item.name}: {annotation(item)}"


def parameters(items: Iterable[Input]) -> str:
    """Return a parameter list in call order, without defaults."""
    return ", ".join(parameter(item) for item in items)


def registered_parameters(items: Iterable[Input]) -> str:
    """Return the parameter list of a registered op; its schema has a list for a variadic input."""
    return ", ".join(f"{item.name}: {_registered(item)}" for item in items)


def _registered(item: Input) -> str:
    """Return the type of a registered op's parameter, as its schema needs it."""
    if isinstance(item, Attribute):
        return schema_type(item.annotation) or annotation(item)
    return "list[Tensor]" if item.variadic else annotation(item)


def registered_arguments(items: Iterable[Input]) -> str:
    """Return the arguments in call order, as a registered op takes them."""
    return ", ".join(
        f"list({item.name})" if is_variadic(item) else item.name for item in items
    )


def parameters_with_defaults(items: Iterable[Input]) -> str:
    """Return the parameter list of the wrapper: in call order, then the keyword-only ones."""
    items = tuple(items)
    listed = _positional([item for item in items if not item.keyword_only])
    keywords = [item for item in items if item.keyword_only]
    # Behind `*tensors` all parameters are keyword-only without another star.
    star = ["*"] if keywords and not any(map(is_variadic, items)) else []
    listed += star
    for item in keywords:
        default = _default(item)
        listed.append(f"{parameter(item)} = {default}" if default else parameter(item))
    return ", ".join(listed)


def _positional(items: list[Input]) -> list[str]:
    """Return parameters in call order; one has its default only if all after it have one, as Python demands."""
    listed: list[str] = []
    may_have_one = True  # all parameters after this one have a default
    for item in reversed(items):
        default = _default(item)
        # `*tensors` has no default, and a parameter before it may have one.
        may_have_one = may_have_one and (default is not None or is_variadic(item))
        shown = parameter(item)
        if may_have_one and default:
            shown = f"{shown} = {default}"
        listed.insert(0, shown)
    return listed


def _default(item: Input) -> str | None:
    if isinstance(item, Attribute):
        return item.default
    return "None" if item.optional else None


def arguments(items: Iterable[Input]) -> str:
    """Return the arguments in call order, a variadic one unpacked."""
    return ", ".join(starred(item) for item in items)


def call_arguments(values: Iterable[tuple[Input, str]]) -> str:
    """Return the arguments of a call of the wrapper, from pairs of an input and its value."""
    positional, keywords = [], []
    for item, value in values:
        if item.keyword_only:
            keywords.append(f"{item.name}={value}")
        else:
            positional.append(value)
    return ", ".join([*positional, *keywords])


def starred(item: Input) -> str:
    """Return the name of an input, with a star if it is variadic."""
    return f"*{item.name}" if is_variadic(item) else item.name


def result_type(count: int, variadic: bool) -> str:
    """Return the return type of a function with `count` tensors as its result, or any number if `variadic`: `tuple[Tensor, ...]`."""
    if variadic:
        return "tuple[Tensor, ...]"
    return "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"


def wrapper_type(spec: OpSpec) -> str:
    """Return the return type of the functional wrapper."""
    return result_type(
        len(spec.outputs), any(output.variadic for output in spec.outputs)
    )
