"""Entries -> inputs and outputs.

In: entries of the signature grammar or of a schema. Out: `Input`s and `Output`s, names, order and shapes checked.
Invariant: all problems of a signature are raised together, each at its column.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.annotation import parse_annotation, parse_default
from scaffold.spec.grammar import Entry, parse_entries
from scaffold.spec.model import Attribute, Input, Output, TensorInput
from scaffold.spec.names import DIMENSIONS, check_name
from scaffold.spec.shapes import check_domain, read_dims, read_traits
from scaffold.spec.tokens import Words

T = TypeVar("T")


def parse_inputs(text: str, start: Location) -> tuple[Input, ...]:
    """Read `--inputs`."""
    return read_inputs(parse_entries(text, start))


def parse_outputs(text: str, start: Location) -> tuple[Output, ...]:
    """Read `--outputs`."""
    return read_outputs(parse_entries(text, start))


def read_inputs(entries: Sequence[Entry]) -> tuple[Input, ...]:
    """Judge the entries of an op's inputs; a variadic one comes out last, what stood after it by keyword."""
    problems: list[ScaffoldError] = []
    entries = _keyword_only(entries)
    inputs = _each(entries, _input, problems)
    names = {entry.name.text for entry in entries}
    problems += _names(entries, "an input")
    problems += _order(entries)
    problems += dim_problems(entries, names, "an input")
    problems += _bounds(entries)
    if not any(entry.tensor for entry in entries):
        hint = "a bare name is a tensor: 'x, eps: float = 1e-6'"
        place = entries[0].name.place
        problems.append(ScaffoldError("an op needs a tensor", place, hint))
    raise_all(problems)
    return tuple(sorted(inputs, key=_is_variadic))


def read_outputs(entries: Sequence[Entry]) -> tuple[Output, ...]:
    """Judge the entries of an op's outputs."""
    problems: list[ScaffoldError] = []
    outputs = _each(entries, _output, problems)
    names = {entry.name.text for entry in entries}
    problems += _names(entries, "an output")
    problems += dim_problems(entries, names, "an output")
    for entry in entries[:-1]:
        if entry.variadic:
            message = f"'*{entry.name.text}' must be the last output"
            problems.append(ScaffoldError(message, entry.name.place))
    raise_all(problems)
    return tuple(outputs)


def dim_problems(
    entries: Sequence[Entry], taken: set[str], what: str
) -> list[ScaffoldError]:
    """Dimensions whose names cannot stand in code, or are those of `what`; features may be `F`, a context `ctx`."""
    problems: list[ScaffoldError] = []
    for word in _dim_words(entries):
        if word.text in taken:
            message = f"the dimension '{word.text}' is called like {what}"
            hint = "give one of them another name"
            problems.append(ScaffoldError(message, word.place, hint))
        elif _is_word(word.text) and word.text not in DIMENSIONS:
            problem = check_name(word.text, word.place, "a dimension")
            problems += [problem] if problem else []
    return problems


def _is_word(text: str) -> bool:
    """Whether it is meant for a name, if one that Python may not take: no number, no `...`."""
    return text.replace("_", "a").isalnum() and not text[0].isdigit()


def _is_variadic(item: Input) -> bool:
    return isinstance(item, TensorInput) and item.variadic


def _each(
    entries: Sequence[Entry],
    read: Callable[[Entry], T],
    problems: list[ScaffoldError],
) -> list[T]:
    found = []
    for entry in entries:
        try:
            found.append(read(entry))
        except ScaffoldError as error:
            problems.append(error)
    return found


def _input(entry: Entry) -> Input:
    return _tensor(entry) if entry.tensor else _attribute(entry)


def _tensor(entry: Entry) -> TensorInput:
    if entry.variadic and (entry.optional or entry.default):
        message = f"'*{entry.name.text}' cannot be optional"
        raise ScaffoldError(message, entry.name.place, "it may be empty as it is")
    traits = read_traits(entry.traits)
    dims = None if entry.dims is None else read_dims(entry.dims)
    check_domain(dims, entry.traits)
    return TensorInput(
        entry.name.text,
        dims,
        dtype=traits.dtype,
        bound=traits.bound,
        domain=traits.domain,
        const=traits.const and traits.dtype in ("float", "complex"),
        optional=entry.optional or entry.default is not None,
        variadic=entry.variadic,
        keyword_only=entry.keyword_only,
    )


def _attribute(entry: Entry) -> Attribute:
    name, typed = entry.name, entry.annotation is not None
    if entry.variadic:
        message = f"'*{name.text}' can only hold tensors"
        hint = f"write: {name.text}: tuple[int, ...]"
        raise ScaffoldError(message, name.place, hint)
    if entry.dims is not None or entry.traits:
        hint = "leave the type out" if typed else "the default of a tensor is None"
        message = f"'{name.text}' has the shape of a tensor and "
        message += (
            "the type of an attribute" if typed else "the default of an attribute"
        )
        raise ScaffoldError(message, name.place, hint)
    if entry.optional:
        kind = entry.annotation.text if entry.annotation else "float"
        hint = f"write: {name.text}: {kind} | None = None"
        raise ScaffoldError("'?' is for tensors", name.place, hint)
    default = parse_default(entry.default, typed) if entry.default else None
    code = default.code if default else None
    if entry.annotation is None:
        kind = default.inferred if default else "object"
        return Attribute(name.text, kind, code, keyword_only=entry.keyword_only)
    found = parse_annotation(entry.annotation, default)
    return Attribute(name.text, found.code, code, found.imported, entry.keyword_only)


def _output(entry: Entry) -> Output:
    if entry.annotation or entry.default:
        word = entry.annotation or entry.default or entry.name
        hint = f"an integer output is written '{entry.name.text}[N; int]'"
        message = "an output is a tensor: it has no type and no default"
        raise ScaffoldError(message, word.place, hint)
    if entry.optional:
        raise ScaffoldError("an output cannot be optional", entry.name.place)
    traits = read_traits(entry.traits, output=True)
    dims = None if entry.dims is None else read_dims(entry.dims)
    const = traits.const and traits.dtype in ("float", "complex")
    return Output(entry.name.text, dims, traits.dtype, const, entry.variadic)


def _keyword_only(entries: Sequence[Entry]) -> list[Entry]:
    """As in Python, what follows `*tensors` is passed by keyword."""
    after, found = False, []
    for entry in entries:
        keyword = entry.keyword_only or (after and not entry.tensor)
        found.append(entry._replace(keyword_only=keyword))
        after = after or entry.variadic
    return found


def _names(entries: Sequence[Entry], what: str) -> list[ScaffoldError]:
    problems: list[ScaffoldError] = []
    seen: set[str] = set()
    for name in (entry.name for entry in entries):
        problem = check_name(name.text, name.place, what)
        if name.text in seen:
            problem = ScaffoldError(f"'{name.text}' occurs twice", name.place)
        problems += [problem] if problem else []
        seen.add(name.text)
    return problems


def _order(entries: Sequence[Entry]) -> list[ScaffoldError]:
    """What Python would refuse in the signature of the wrapper, or never reach."""
    problems: list[ScaffoldError] = []
    given: Words | None = None  # the last attribute with a default
    variadic: Words | None = None
    for entry in entries:
        name = entry.name
        if variadic and entry.tensor:
            message = f"'*{variadic.text}' must be the last tensor"
            hint = f"move '{name.text}' before '*{variadic.text}'"
            if entry.variadic:
                message = "only one input can have a star"
                hint = f"give both as one: '*{variadic.text}'"
            problems.append(ScaffoldError(message, variadic.place, hint))
        elif given and entry.variadic:
            message = (
                f"the default of '{given.text}' could not be used before '*{name.text}'"
            )
            hint = f"move it behind: '*{name.text}, {given.text} = ...'"
            problems.append(ScaffoldError(message, given.place, hint))
        elif given and not entry.keyword_only and _required(entry):
            message = f"'{name.text}' has no default but follows '{given.text}', which has one"
            hint = f"move '{name.text}' before '{given.text}'"
            problems.append(ScaffoldError(message, name.place, hint))
        if entry.variadic:
            variadic = name
        if not entry.tensor and entry.default and not entry.keyword_only:
            given = name
    return problems


def _required(entry: Entry) -> bool:
    return not (entry.optional or entry.default or entry.variadic)


def _dim_words(entries: Sequence[Entry]) -> list[Words]:
    return [word for entry in entries for word in entry.dims or ()]


def _bounds(entries: Sequence[Entry]) -> list[ScaffoldError]:
    """`index(C)` counts below a size that some input has."""
    known = {word.text for word in _dim_words(entries)}
    arguments = [trait.argument for entry in entries for trait in entry.traits]
    problems = []
    for bound in arguments:
        if bound and not bound.text[0].isdigit() and bound.text not in known:
            hint = did_you_mean(bound.text, known)
            hint = (
                hint
                or f"declare it, as in 'logits[N, {bound.text}]', or write a number"
            )
            message = f"no input has a dimension '{bound.text}'"
            problems.append(ScaffoldError(message, bound.place, hint))
    return problems
