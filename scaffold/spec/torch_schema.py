"""PyTorch's schema strings -> the entries of a signature.

    linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor

For a user who has the schema of a registered op, as PyTorch's native_functions.yaml or `torch.library` has it, instead of writing
`--inputs`. In: the text of `--schema`. Out: entries of its inputs and outputs, and the inputs changed in place. Invariant: the
result could also be written with `--inputs`, `--outputs` and `--dirty`.

Words: an *entry* is one input or output as `grammar` has it, before its checks; `Tensor(a!)` marks a tensor that the op changes
in place (*dirty*); `Tensor[]` is a list of tensors, our variadic `*xs`.
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

# Types of a schema -> types of an attribute.
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
LONGEST = (
    16  # items of a list written one by one: a large number shall make no large text
)
EXAMPLE = "write: 'name(Tensor x, float eps=1e-6) -> Tensor'"


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema: entries of the inputs and outputs, and the names of inputs changed in place."""

    inputs: tuple[Entry, ...]
    outputs: tuple[Entry, ...]
    dirty: tuple[str, ...] = ()


class _Reader(Cursor):
    """A recursive-descent parser of one argument or one return."""

    def name(self, wanted: str) -> Words:
        """Read a name; raise, saying that `wanted` is expected, for anything else."""
        return self.word(wanted, EXAMPLE)

    def finish(self) -> None:
        """Raise unless everything has been read."""
        if self.next.kind != "end":
            message = f"unexpected '{self.next.text}'"
            raise ScaffoldError(message, self.next.place, EXAMPLE)

    def type(self) -> "_Type":
        """Read a type: `Tensor(a!)?`, `int[2]`, `float`; raise for a list whose elements may be None, `Tensor?[]`.

        A `?` before the brackets belongs to the elements, one after them to the list.
        """
        name = self.name("a type")
        dirty = self.alias() if self.take("(") else False
        optional = self.take("?")
        size = None
        if self.take("["):
            size = ""
            if self.next.kind == "number":
                size = self.next.text
                self.position += 1
            if not self.take("]"):
                raise ScaffoldError("expected ']'", self.next.place, EXAMPLE)
            if optional:
                message = "a list with optional elements is not supported"
                raise ScaffoldError(message, name.place)
            optional = self.take("?")
        return _Type(name, dirty, optional, size)

    def alias(self) -> bool:
        """Skip the rest of `(a!)` after its bracket; return whether it marks the tensor as changed in place."""
        first = self.position
        # It is closed: `split_entries` raises for brackets without a partner.
        while not self.take(")"):
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
    """Return the inputs and outputs a schema states, its name dropped; raise the errors of all arguments together."""
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
    """Return the name, of `aten::add.out` the `add`, and the position of the `(` behind it; raise without one."""
    reader = _Reader(tokens)
    name = reader.name("the op's name")
    # The grammar has no token `::`, so these are two.
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
    """Return the tokens between the bracket at `position` and its partner, with an `end` token, and those after it.

    Raise if it is never closed.
    """
    depth = 0
    for k in range(position, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[k].text, 0)
        if depth == 0:
            end = tokens[k]._replace(kind="end", text="", end=tokens[k].start)
            return [*tokens[position + 1 : k], end], list(tokens[k + 1 :])
    hint = "close it with ')', as in: 'scale(Tensor x, float a) -> Tensor'"
    raise ScaffoldError("'(' is never closed", tokens[position].place, hint)


def _arguments(
    tokens: Sequence[Token], problems: list[ScaffoldError]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the entries of the arguments, and the names of the tensors changed in place; add the errors of the others to `problems`.

    `tokens` are those between the brackets. A bare `*` makes the arguments after it keyword-only, as in Python.
    """
    entries: list[Entry] = []
    dirty: list[str] = []
    keyword_only = False
    # One token is the `end` alone, of `f()`: no arguments.
    for part in split_entries(tokens) if len(tokens) > 1 else []:
        # A bare `*`, and the `end` token of its part.
        if [token.text for token in part] == ["*", ""]:
            keyword_only = True
            continue
        try:
            entry, kind = _argument(part)
        except ScaffoldError as error:
            problems.append(error)
            continue
        entries.append(entry._replace(keyword_only=keyword_only))
        if kind.dirty:
            dirty.append(entry.name.text)
    return tuple(entries), tuple(dirty)


def _argument(tokens: Sequence[Token]) -> tuple[Entry, _Type]:
    """Return the entry of one argument, `Tensor? bias=None`, and its type as written; raise for an impossible default.

    The entry of a tensor has neither type nor default: being optional says both. A list of tensors, `Tensor[] xs`, is `*xs`.
    """
    reader = _Reader(tokens)
    kind = reader.type()
    name = reader.name("the name of the argument")
    default: list[Token] = []
    if reader.take("="):
        # All tokens up to the `end`, since a default may be a list.
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
        count = int(kind.size) if kind.size.isdecimal() else 0  # "": any length
        if 2 <= count <= LONGEST:
            base = f"tuple[{', '.join([base] * count)}]"
        else:  # `int[1]` means one or many
            base = f"tuple[{base}, ...]"
    return f"{base} | None" if kind.optional else base


def _default(stated: Words, kind: _Type) -> Words:
    """Return a schema's default as Python has it: a literal, or a constant of torch (`long` -> `torch.int64`).

    A list becomes a tuple, `[1, 2]` -> `(1, 2)`; a single number fills a list of known length, `int[2] size=3` -> `(3, 3)`.
    """
    text = DEFAULTS.get(stated.text, stated.text)
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip().rstrip(",")
        text = f"({inner}{',' if inner and ',' not in inner else ''})"
    elif kind.size is not None and text != "None":
        count = int(kind.size) if kind.size.isdecimal() else 1  # "": any length
        # A large count shall make no large text.
        items = ", ".join([text] * min(count, LONGEST))
        text = f"({items})" if count > 1 else f"({text},)"
    return Words(text, stated.place)


def _returns(tokens: Sequence[Token]) -> tuple[Entry, ...]:
    """Return the outputs from the tokens after the arguments: `-> Tensor`, `-> (Tensor a, Tensor b)`; raise if there are none.

    An output without a name gets one by its position: `output0`.
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
    if len(rest) == 1:  # the `end` token alone: `-> ()`
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
        message = f"a return of type '{kind.name.text}{'?' if kind.optional else ''}'"
        hint = "an op returns tensors: Tensor, (Tensor, Tensor) or Tensor[]"
        raise ScaffoldError(f"{message} cannot be generated", kind.name.place, hint)
    name = reader.name("a name") if reader.next.kind == "name" else None
    reader.finish()
    return kind, name


def _unnamed(position: int, count: int, variadic: bool) -> str:
    """Return a name for an output without one, by its position among `count` of them."""
    if count > 1:
        return f"output{position}"
    return "outputs" if variadic else "output"
