"""PyTorch's schema strings -> the entries of a signature.

    linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor

In: the text of `--schema`. Out: the op's name, entries of its inputs and outputs, and the inputs changed in place.
Invariant: the result could also be written with `--inputs`, `--outputs` and `--dirty`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.grammar import (
    Cursor,
    Entry,
    Token,
    Words,
    split_entries,
    tokenize,
    words,
)

TYPES = {
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "Scalar": "float",
    "ScalarType": "dtype",
    "Device": "device",
    "Layout": "torch.layout",
    "MemoryFormat": "torch.memory_format",
    "Generator": "torch.Generator",
}
# Names PyTorch's own schemas use as defaults.
DEFAULTS = {
    "Mean": "1",
    "Sum": "2",
    "long": "torch.int64",
    "float": "torch.float32",
    "contiguous_format": "torch.contiguous_format",
    "preserve_format": "torch.preserve_format",
    "strided": "torch.strided",
}
EXAMPLE = "write: 'name(Tensor x, float eps=1e-6) -> Tensor'"


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema."""

    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    dirty: tuple[str, ...] = ()


class _Reader(Cursor):
    """A recursive-descent parser of one argument or one return."""

    def name(self, wanted: str) -> Words:
        return self.word(wanted, EXAMPLE)

    def finish(self) -> None:
        if self.next.kind != "end":
            message = f"unexpected '{self.next.text}'"
            raise ScaffoldError(message, self.next.place, EXAMPLE)

    def type(self) -> "_Type":
        """Read a type: `Tensor(a!)?`, `int[2]`, `float`."""
        name = self.name("a type")
        dirty = self.alias() if self.take("(") else False
        optional = self.take("?")
        size = None
        if self.take("["):
            size = "" if self.next.kind != "number" else self.next.text
            self.position += self.next.kind == "number"
            if not self.take("]"):
                raise ScaffoldError("expected ']'", self.next.place, EXAMPLE)
            if optional:
                message = "a list with optional elements is not supported"
                raise ScaffoldError(message, name.place)
            optional = self.take("?")
        return _Type(name, dirty, optional, size)

    def alias(self) -> bool:
        """Skip `a!)`; return whether it marks the tensor as changed."""
        first = self.position
        while not self.take(")"):
            if self.next.kind == "end":
                raise never_closed(self.tokens[first])
            self.position += 1
        return any(token.text == "!" for token in self.tokens[first : self.position])


@dataclass(frozen=True, slots=True)
class _Type:
    """A type as written: `Tensor(a!)?` or `int[2]`."""

    name: Words
    dirty: bool = False
    optional: bool = False
    size: str | None = None  # of a list; "" for a list of any size

    @property
    def tensor(self) -> bool:
        return self.name.text == "Tensor"


def parse_schema(text: str, start: Location) -> Schema:
    """Parse a schema; raise the errors of all arguments together."""
    tokens = tokenize(text, start)
    name, position = _name(tokens)
    arguments, rest = _bracketed(tokens, position)
    problems: list[ScaffoldError] = []
    inputs, dirty = _arguments(arguments, problems)
    outputs: tuple[Entry, ...] = ()
    try:
        outputs = _returns(rest)
    except ScaffoldError as error:
        problems.append(error)
    if not inputs and not problems:
        problems.append(ScaffoldError("an op needs a tensor", name.place, EXAMPLE))
    raise_all(problems)
    return Schema(inputs, outputs, dirty)


def _name(tokens: Sequence[Token]) -> tuple[Words, int]:
    """Return the name without namespace and overload, and the position of its `(`."""
    reader = _Reader(tokens)
    name = reader.name("the op's name")
    while reader.take(":"):
        if not reader.take(":"):
            raise ScaffoldError("expected '::'", reader.next.place, EXAMPLE)
        name = reader.name("the op's name")
    if reader.take("."):
        reader.name("the name of an overload")
    if reader.next.text != "(":
        raise ScaffoldError("expected '('", reader.next.place, EXAMPLE)
    return name, reader.position


def _bracketed(
    tokens: Sequence[Token], position: int
) -> tuple[list[Token], list[Token]]:
    """Return the tokens between the bracket at `position` and its partner, and the tokens after it."""
    depth = 0
    for k in range(position, len(tokens)):
        depth += (tokens[k].text == "(") - (tokens[k].text == ")")
        if depth == 0:
            end = tokens[k]._replace(kind="end", text="", end=tokens[k].start)
            return [*tokens[position + 1 : k], end], list(tokens[k + 1 :])
    raise never_closed(tokens[position])


def never_closed(token: Token) -> ScaffoldError:
    """Return the error for an unclosed bracket."""
    hint = "close it with ')', as in: 'scale(Tensor x, float a) -> Tensor'"
    return ScaffoldError("'(' is never closed", token.place, hint)


def _arguments(
    tokens: Sequence[Token], problems: list[ScaffoldError]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the entries of the arguments, and the names of the tensors changed in place; add errors to `problems`."""
    entries: list[Entry] = []
    dirty: list[str] = []
    keyword_only = False
    for part in split_entries(tokens) if len(tokens) > 1 else []:
        if [token.text for token in part] == ["*", ""]:
            keyword_only = True
            continue
        try:
            entry, kind = _argument(part)
        except ScaffoldError as error:
            problems.append(error)
            continue
        entries.append(entry._replace(keyword_only=keyword_only))
        dirty += [entry.name.text] if kind.dirty else []
    return tuple(entries), tuple(dirty)


def _argument(tokens: Sequence[Token]) -> tuple[Entry, _Type]:
    """Return the entry of one argument, `Tensor? bias=None`, and its type as written; raise for an impossible default.

    A tensor has no type and no default but None as an input; a list of them, `Tensor[] xs`, is `*xs`.
    """
    reader = _Reader(tokens)
    kind = reader.type()
    name = reader.name("the name of the argument")
    default: list[Token] = []
    if reader.take("="):
        default = list(tokens[reader.position : -1])
        reader.position = len(tokens) - 1
        if not default:
            raise ScaffoldError("expected a default", reader.next.place)
    reader.finish()
    stated = words(default) if default else None
    if not kind.tensor:
        annotation = Words(_annotation(kind), kind.name.place)
        value = _default(stated, kind) if stated else None
        return Entry(name, annotation=annotation, default=value), kind
    if kind.size is not None and (kind.optional or stated):
        message = "a list of tensors cannot be optional"
        raise ScaffoldError(message, name.place, "it may be empty as it is")
    if stated and stated.text != "None":
        message = "the default of a tensor is None"
        raise ScaffoldError(message, stated.place, "write: Tensor? bias=None")
    if stated and not kind.optional:
        message = "only an optional tensor may be None"
        raise ScaffoldError(message, stated.place, "write: Tensor? bias=None")
    variadic = kind.size is not None
    return Entry(name, variadic=variadic, optional=kind.optional), kind


def _annotation(kind: _Type) -> str:
    """Return a type of the schema as `inputs` would have it: `tuple[int, int]` for `int[2]`, `float | None` for `float?`.

    Raise for an unknown type.
    """
    base = TYPES.get(kind.name.text)
    if base is None:
        known = ["Tensor", *TYPES]
        hint = did_you_mean(kind.name.text, known) or f"known: {', '.join(known)}"
        message = f"unknown type '{kind.name.text}'"
        raise ScaffoldError(message, kind.name.place, hint)
    if kind.size is not None:
        count = int(kind.size) if kind.size.isdecimal() else 0
        if not 2 <= count <= 16:  # int[1] means one or many
            base = f"tuple[{base}, ...]"
        else:
            base = f"tuple[{', '.join([base] * count)}]"
    return f"{base} | None" if kind.optional else base


def _default(stated: Words, kind: _Type) -> Words:
    """Return the default as a Python literal.

    A list becomes a tuple; a single number fills a list of known length.
    """
    text = DEFAULTS.get(stated.text, stated.text)
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip().rstrip(",")
        text = f"({inner}{',' if inner and ',' not in inner else ''})"
    elif kind.size is not None and text != "None":
        count = int(kind.size) if kind.size.isdecimal() else 1
        items = ", ".join([text] * min(count, 16))
        text = f"({items})" if count > 1 else f"({text},)"
    return Words(text, stated.place)


def _returns(tokens: Sequence[Token]) -> tuple[Entry, ...]:
    """Return the outputs, read after the arguments: `-> Tensor`, `-> (Tensor a, Tensor b)`; raise if there are none.

    An output without a name gets one by its position.
    """
    reader = _Reader(tokens)
    if reader.next.kind == "end":
        message = "the schema does not say what it returns"
        raise ScaffoldError(message, reader.next.place, "end it with: -> Tensor")
    if not reader.take("->"):
        message = f"expected '->', found '{reader.next.text}'"
        raise ScaffoldError(message, reader.next.place, EXAMPLE)
    rest = tokens[reader.position :]
    if reader.next.text == "(":
        inner, after = _bracketed(tokens, reader.position)
        _Reader(after).finish()
        rest = inner
    if len(rest) == 1:
        message = "an op returns at least one tensor"
        raise ScaffoldError(message, rest[0].place, "write: -> Tensor")
    found = [_return(part) for part in split_entries(rest)]
    entries = []
    for k, (kind, name) in enumerate(found):
        variadic = kind.size is not None
        name = name or Words(_unnamed(k, len(found), variadic), kind.name.place)
        entries.append(Entry(name, variadic=variadic))
    return tuple(entries)


def _return(tokens: Sequence[Token]) -> tuple[_Type, Words | None]:
    """Return the type of one output, and its name or None; raise for anything but a tensor."""
    reader = _Reader(tokens)
    kind = reader.type()
    if not kind.tensor or kind.optional:
        message = f"a return of type '{kind.name.text}{'?' * kind.optional}'"
        hint = "an op returns tensors: Tensor, (Tensor, Tensor) or Tensor[]"
        raise ScaffoldError(f"{message} cannot be generated", kind.name.place, hint)
    name = reader.name("a name") if reader.next.kind == "name" else None
    reader.finish()
    return kind, name


def _unnamed(position: int, count: int, variadic: bool) -> str:
    if count > 1:
        return f"output{position}"
    return "outputs" if variadic else "output"
