"""The grammar of `--inputs` and `--outputs`: text -> entries.

    [*] NAME [ '[' dims [';' traits] ']' ] ['?'] [':' type] ['=' default]

Common notations of Python or PyTorch's schemas are read with their evident meaning: `x: Tensor`, `mask: BoolTensor`,
`Tensor x`, `float eps=1e-5` and `mask; bool`.

First of two steps: `signature` reads the entries further, into inputs and outputs. In: text and its start. Out: entries as
written, not yet compared with each other. Invariant: an entry has the place of everything a later check may report.

Words: a *token* is a piece of the text, a name, a number or a symbol; an *entry* is one input or output, `x[N, D; int]?`; its
*traits* stand after the `;`; `Words` are a part of the text with its place.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all

# --- Tokens of a signature, each with its place.
#
# In: the text of `--inputs` or `--outputs`. Out: tokens, cut into entries at the commas outside brackets.
# Invariant: a place is exact to the column.


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<string>'(?:[^'\\\n]|\\[^\n])*' | "(?:[^"\\\n]|\\[^\n])*")
    | (?P<number>(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?[jJ]?)
    | (?P<name>[^\W\d]\w*)
    | (?P<symbol>\.\.\.|->|[][*?:;,=().|{}+!<>-])
    """,
    re.VERBOSE,
)
_NAME = re.compile(r"\b[^\W\d]\w*")
CLOSERS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of the text with its kind, a group of `_TOKEN`, and its extent; an empty one of kind `end` marks the end."""

    kind: str
    text: str
    place: Location
    start: int
    end: int


class Words(NamedTuple):
    """A slice of the text with its place; white space in it has become a blank."""

    text: str
    place: Location


def tokenize(text: str, start: Location) -> list[Token]:
    """Return the tokens of a text; raise an error at an unexpected character, and at a computed dim such as `2*D`.

    `x[N], y` -> `x`, `[`, `N`, `]`, `,`, `y` and an empty token of kind `end`. White space only separates.
    """
    tokens: list[Token] = []
    position, line, line_start = 0, 0, 0
    while position < len(text):
        place = start.shifted(line, position - line_start)
        match = _TOKEN.match(text, position)
        # A dim such as `2*D` is made of valid tokens, but refused.
        if match is None or _computes(text, position, match.group()):
            raise _unknown(text, position, place)
        kind, piece = match.lastgroup or "", match.group()
        if kind != "space":
            tokens.append(Token(kind, piece, place, position, match.end()))
        elif "\n" in piece:
            line += piece.count("\n")
            line_start = position + piece.rindex("\n") + 1
        position = match.end()
    last = start.shifted(line, position - line_start)
    return [*tokens, Token("end", "", last, position, position)]


EXAMPLE = "write inputs as in: 'x[N, D], bias[D]?, eps: float = 1e-6'"


def _unknown(text: str, position: int, place: Location) -> ScaffoldError:
    """Return the error for the character at a position; if it is part of a computed dim, `D/2`, the hint gives the dim a name."""
    character = text[position]
    if character in "'\"":
        return ScaffoldError("this string is not closed", place)
    # A letter is refused only right behind a digit, as the D of `2D` (`_computes`).
    computed = character in "/+-%*" or character.isalpha()
    hint = _with_name(text, position) if computed else EXAMPLE
    return ScaffoldError(f"unexpected character {character!r}", place, hint)


def _computes(text: str, position: int, piece: str) -> bool:
    """Return whether a token of the text, `piece` at `position`, computes a dim: an operator between two values, or a name after a digit.

    `x[2*D, 2D]` has both; the `*` of `x[*batch]` computes nothing, as no value stands before it.
    """
    opened = text.rfind("[", 0, position) > text.rfind("]", 0, position)
    # `/` and `%` are no tokens, so they are refused anyway.
    if piece in ("*", "+", "-"):
        # With these a value ends: a name, a number, `(N + 1)`.
        before = text[:position].rstrip()[-1:]
        return opened and (before.isalnum() or before in "_)")
    # A name is a second value right behind a digit: the D of `2D`.
    return opened and piece.isidentifier() and text[position - 1].isdigit()


def _with_name(text: str, position: int) -> str:
    """Return a hint for a computed dim at a position, `2*D`: write a free name for it, `M`, with a condition, `--require 'M == 2 * D'`.

    That needs all its names declared elsewhere (`others`); without, a known factor still gives a condition: `M % 2 == 0`.
    """
    # The dim is what stands between the bracket or comma before it and the next one.
    start = max(text.rfind(mark, 0, position) for mark in "[,") + 1
    written = re.split(r"[],;]", text[start:])[0]
    dim = re.sub(r"\b(\d+)(?=[^\W\d])", r"\1 * ", written)  # 2 * D for 2D
    elsewhere = f"{text[:start]} {text[start + len(written):]}"
    names, others = {*_NAME.findall(dim)}, {*_NAME.findall(elsewhere)}
    name = next((one for one in "MNKPQRS" if one not in names | others), "a name")
    hint = f"a dim is a name or a number: write {name} for {written.strip()}"
    # A product with a factor that has a value: a number, or a name declared elsewhere.
    known = rf"(?:\w+\*)?(\d+|{'|'.join(others)})(?:\*\w+)?"
    factor = re.fullmatch(known, re.sub(r"\s", "", dim))
    if names <= others:
        # Sizes are integers: `D / 2` is meant as `D // 2`.
        computed = re.sub(r"/+", "//", dim.strip())
        return f"{hint}, with --require '{name} == {computed}'"
    return f"{hint}, with --require '{name} % {factor[1]} == 0'" if factor else hint


def split_entries(tokens: Sequence[Token]) -> list[list[Token]]:
    """Return the tokens of each entry: `x[N, D], eps: float` -> those of `x[N, D]` and of `eps: float`, each with an `end` token.

    They are split at the commas outside brackets; one at the end is allowed. Raise for brackets without a partner.
    """
    parts: list[list[Token]] = [[]]
    open_: list[Token] = []
    for token in tokens:
        if token.kind == "symbol":
            _follow(token, open_)
        if token.kind == "end" or (token.text == "," and not open_):
            parts[-1].append(Token("end", "", token.place, token.start, token.start))
            parts.append([])
        else:
            parts[-1].append(token)
    if open_:
        last = open_[-1]
        hint = f"close it with '{CLOSERS[last.text]}', as in: 'x[N, D], eps: float'"
        raise ScaffoldError(f"'{last.text}' is never closed", last.place, hint)
    parts.pop()  # begun at the last token
    if len(parts) > 1 and len(parts[-1]) == 1:  # a comma at the end
        parts.pop()
    return parts


def _follow(token: Token, open_: list[Token]) -> None:
    """Add an opening bracket to the list of open ones, `open_`, or remove the partner of a closing one; raise if it has none."""
    if token.text in CLOSERS:
        open_.append(token)
    elif token.text in CLOSERS.values():
        opener = open_.pop() if open_ else None
        if opener is None or CLOSERS[opener.text] != token.text:
            hint = "write a shape as in: 'x[N, D]'"
            raise ScaffoldError(f"unmatched '{token.text}'", token.place, hint)


def words(tokens: Sequence[Token]) -> Words:
    """Return the text of adjacent tokens as written, but on one line: each character between two of them becomes a blank."""
    text = ""
    # Each token with the one before it: one list is longer by the None of the first.
    for before, token in zip([None, *tokens], tokens, strict=False):
        text += " " * (token.start - before.end) if before else ""
        text += token.text
    return Words(text, tokens[0].place)


class Cursor:
    """A position in a list of tokens: the base of parsers by recursive descent. The last token is an `end`, which is never skipped."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        """Begin at the first of the tokens, of which there is one at least, the `end`."""
        self.tokens = tokens
        self.position = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self, text: str) -> bool:
        """Skip a symbol if it is next; return whether it was."""
        if self.next.kind == "symbol" and self.next.text == text:
            self.position += 1
            return True
        return False

    def word(self, wanted: str, hint: str | None = None) -> Words:
        """Return the next token, a name, and skip it; for anything else raise an error that `wanted` is expected, "a trait"."""
        token = self.next
        if token.kind != "name":
            raise self.unexpected(wanted, hint)
        self.position += 1
        return Words(token.text, token.place)

    def unexpected(self, wanted: str, hint: str | None = None) -> ScaffoldError:
        """Return the error that `wanted` is expected, "a trait", and the next token found; the hint is an example by default."""
        found = f"'{self.next.text}'" if self.next.text else "nothing"
        hint = hint or EXAMPLE
        return ScaffoldError(f"expected {wanted}, found {found}", self.next.place, hint)


# --- The grammar of `--inputs` and `--outputs`: text -> entries.


class Trait(NamedTuple):
    """One word after the `;`: `bool`, or with an argument `index(C)`."""

    word: Words
    argument: Words | None = None


class Entry(NamedTuple):
    """One input or output as written."""

    name: Words
    variadic: bool = False
    optional: bool = False
    dims: tuple[Words, ...] | None = None
    traits: tuple[Trait, ...] = ()
    annotation: Words | None = None
    default: Words | None = None
    keyword_only: bool = False

    @property
    def tensor(self) -> bool:
        """Return whether the entry is a tensor: no type, and no default but None.

        Any type or another default makes it an attribute.
        """
        return self.annotation is None and not self.valued

    @property
    def valued(self) -> bool:
        """Return whether it has a default other than None."""
        return self.default is not None and self.default.text != "None"


def parse_entries(text: str, start: Location) -> tuple[Entry, ...]:
    """Return the entries of a comma-separated list; raise the errors of all entries together, and one for an empty list."""
    parts = split_entries(tokenize(text, start))
    if len(parts[0]) == 1 and len(parts) == 1:  # its `end` token alone
        raise ScaffoldError("the list is empty", start, "write: 'x, weight, bias?'")
    entries: list[Entry] = []
    problems: list[ScaffoldError] = []
    for part in parts:
        try:
            entries.append(_EntryParser(part).entry())
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return tuple(entries)


def parse_dims(text: str, start: Location) -> tuple[Words, ...]:
    """Return the dims of one shape, written without brackets: `N, in_features`; raise for anything after them."""
    parser = _EntryParser(tokenize(text, start))
    dims = parser.dims()
    if parser.next.kind != "end":
        raise parser.unexpected("a dimension")
    return dims


# Types of tensors in Python's annotations and PyTorch's schemas, and dtypes used as
# types, with the traits they imply.
TENSOR_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Tensor", "FloatTensor", "DoubleTensor"), ()),
    **dict.fromkeys(("HalfTensor", "BFloat16Tensor", "torch.bfloat16"), ()),
    **dict.fromkeys(("torch.float", "torch.float32", "torch.float64"), ()),
    **dict.fromkeys(("torch.double", "torch.half", "torch.float16"), ()),
    **dict.fromkeys(("LongTensor", "torch.long", "torch.int64"), ("int",)),
    **dict.fromkeys(("IntTensor", "torch.int", "torch.int32"), ("int",)),
    **dict.fromkeys(("BoolTensor", "torch.bool"), ("bool",)),
    "ComplexTensor": ("complex",),
    **dict.fromkeys(("torch.complex64", "torch.complex128"), ("complex",)),
}
# A type, perhaps with `| None` or inside `Optional[...]`.
_TENSOR_TYPE = re.compile(
    r"(?P<name>(?:torch\.)?\w+)(?P<none>\s*\|\s*None)?"
    r"|(?:typing\.)?Optional\[\s*(?P<inner>(?:torch\.)?\w+)\s*\]"
)
# Allowed before a name, as in C and in PyTorch's schemas.
PREFIXES = frozenset({*TENSOR_TYPES, "float", "int", "bool", "str"})


class _EntryParser(Cursor):
    """A recursive-descent parser of one entry's tokens."""

    def entry(self) -> Entry:
        """Read one input: `*name`, `name[dims; traits]?`, `name: type = default`; raise for any other form.

        The `?` of an optional input may stand after its type, its name or its shape, but only once.
        """
        variadic = self.take("*")
        before = self.type_before()
        optional = before is not None and self.take("?")
        name = self.word("a name")
        optional = self.take("?") or optional
        dims, traits = self.shape()
        mark = self.next
        if self.take("?"):
            if optional:
                raise ScaffoldError("'?' is given twice", mark.place)
            optional = True
        annotation = self.until("=", "a type") if self.take(":") else before
        default = self.until("", "a default") if self.take("=") else None
        if self.next.kind != "end":
            raise self.unexpected_end(name)
        found = Entry(name, variadic, optional, dims, traits, annotation, default)
        return _as_tensor(found)

    def type_before(self) -> Words | None:
        """Read the type before a name, as in `float eps=1e-5` or `Tensor? x`; None, with nothing read, if the name comes first."""
        following = self.tokens[self.position + 1 :]
        if following and following[0].text == "?":
            following = following[1:]
        before_name = bool(following) and following[0].kind == "name"
        if before_name and self.next.text in PREFIXES:
            return self.word("a type")
        return None

    def unexpected_end(self, name: Words) -> ScaffoldError:
        """Return the error for text behind the complete entry of `name`, with the probably meant form as a hint: `x float` -> `x: float`."""
        found = self.next
        if found.kind == "name":
            # A type behind a name lacks the colon, any other word is the next input.
            mark = ":" if found.text in PREFIXES else ","
            hint = f"write: '{name.text}{mark} {found.text}'"
            # The hint leaves out the shape in between.
            if self.tokens[self.position - 1].text == "]":
                hint = f"write: '...]{mark} {found.text}'"
            message = f"expected '{mark}' before '{found.text}'"
            return ScaffoldError(message, found.place, hint)
        if found.text == "(":
            hint = f"a shape stands in square brackets: '{name.text}[N, D]'"
            return self.unexpected("',' or the end", hint)
        if found.text == "!":
            hint = "say what is changed in place with --dirty"
            return self.unexpected("',' or the end", hint)
        return self.unexpected("',' or the end")

    def shape(self) -> tuple[tuple[Words, ...] | None, tuple[Trait, ...]]:
        """Read `[dims; traits]`, if it is there; the dims are None if none are stated, as in `[; bool]`: the shape is not declared.

        `[]` is the shape of a scalar, (). Traits may also follow a bare name, `mask; bool`.
        """
        if self.take(";"):
            if self.next.kind != "name":
                raise self.unexpected("a trait", "for example: mask[N; bool]")
            return None, self.traits()
        if not self.take("["):
            return None, ()
        # `[; bool]`: no shape, rather than the `[]` of a scalar.
        bare = self.next.text == ";"
        dims = None if bare else self.dims()
        traits = self.traits() if self.take(";") else ()
        if not self.take("]"):
            hint = "separate dimensions with commas"
            before = self.tokens[self.position - 1].text
            if before == "..." and self.next.kind == "name":
                hint = f"leading dims that have a name: '*{self.next.text}'"
            raise self.unexpected("',' or ']'", hint)
        return dims, traits

    def dims(self) -> tuple[Words, ...]:
        """Read dims with commas between them, up to a `]`, a `;` or the end, perhaps none; the caller checks what follows."""
        dims: list[Words] = []
        # "" is the text of the `end` token.
        while self.next.text not in ("]", ";", ""):
            dims.append(self.dim())
            if not self.take(","):
                break
        return tuple(dims)

    def dim(self) -> Words:
        """Read one dim: a name, a size, `...` or `*batch`."""
        token = self.next
        if self.take("*"):
            name = self.word("the name of the leading dims", "write: 'q[*batch, S, D]'")
            return Words(f"*{name.text}", token.place)
        if token.kind not in ("name", "number") and token.text != "...":
            hint = "a dimension is a name, a size, '...' or '*batch'"
            raise self.unexpected("a dimension", hint)
        self.position += 1
        return Words(token.text, token.place)

    def traits(self) -> tuple[Trait, ...]:
        """Read the traits after a `;`, each a word, perhaps with an argument, `index(C)`; a comma between them may be left out."""
        traits: list[Trait] = []
        while self.next.text not in ("]", "?", ":", "="):
            # At an end without any trait, `word` raises that one is expected.
            if self.next.kind == "end" and traits:
                break
            word = self.word("a trait", "for example: mask[N; bool]")
            argument = self.argument() if self.take("(") else None
            traits.append(Trait(word, argument))
            self.take(",")
        return tuple(traits)

    def argument(self) -> Words:
        """Read the argument of a trait, a name or a size, and its `)`."""
        token = self.next
        if token.kind not in ("name", "number"):
            raise self.unexpected("the name of a dimension or a size")
        self.position += 1
        if not self.take(")"):
            raise self.unexpected("')'")
        return Words(token.text, token.place)

    def until(self, stop: str, wanted: str) -> Words:
        """Read the text up to the symbol `stop` outside brackets, or to the end; raise if it is empty.

        `stop` is "" if only the end counts; `wanted` names the text in the error: "a type".
        """
        first, depth = self.position, 0
        while self.next.kind != "end":
            symbol = self.next.text if self.next.kind == "symbol" else ""
            if depth == 0 and stop and symbol == stop:
                break
            if symbol in CLOSERS:
                depth += 1
            elif symbol in CLOSERS.values():
                depth -= 1
            self.position += 1
        if self.position == first:
            raise self.unexpected(wanted)
        return words(self.tokens[first : self.position])


def _as_tensor(entry: Entry) -> Entry:
    """Return an entry typed as a tensor, `mask: BoolTensor`, without the type but with its trait, `mask[; bool]`; any other unchanged.

    `mask: bool` is no tensor but a switch, `mask[N]: bool` is one: it has a shape. With a default other than None it is none
    either. Stated traits go before those of the type (`implied`).
    """
    if entry.annotation is None:
        return entry
    match = _TENSOR_TYPE.fullmatch(entry.annotation.text)
    name = match["name"] or match["inner"] if match else ""
    bare = name.removeprefix("torch.")
    dtype = name if entry.dims is None else f"torch.{bare}"  # `mask[N]: bool`
    # By the bare name `torch.Tensor` and `torch.BoolTensor` are found.
    implied = TENSOR_TYPES.get(dtype, TENSOR_TYPES.get(bare))
    if match is None or implied is None or entry.valued:
        return entry
    place = entry.annotation.place
    traits = entry.traits or tuple(Trait(Words(word, place)) for word in implied)
    optional = entry.optional or bool(match["none"] or match["inner"])
    return entry._replace(annotation=None, traits=traits, optional=optional)
