"""Tokens of a signature, each with its place.

In: the text of `--inputs` or `--outputs`. Out: tokens, cut into entries at the commas outside brackets.
Invariant: a place is exact to the column.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError

_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<string>'(?:[^'\\\n]|\\[^\n])*' | "(?:[^"\\\n]|\\[^\n])*")
    | (?P<number>(?:[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?[jJ]?)
    | (?P<name>[^\W\d]\w*)
    | (?P<symbol>\.\.\.|->|[][*?:;,=().|{}+!<>-])
    """,
    re.VERBOSE,
)
CLOSERS = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A piece of text; an empty one stands for the end."""

    kind: str
    text: str
    place: Location
    start: int
    end: int


class Words(NamedTuple):
    """A slice of the text: white space of any kind is a blank, and its start is kept."""

    text: str
    place: Location


def tokenize(text: str, start: Location) -> list[Token]:
    """Cut text into tokens; a character that begins none is an error at its place."""
    tokens: list[Token] = []
    position, line, line_start = 0, 0, 0
    while position < len(text):
        place = start.shifted(line, position - line_start)
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unknown(text[position], place)
        kind, piece = match.lastgroup or "", match.group()
        if kind != "space":
            tokens.append(Token(kind, piece, place, position, match.end()))
        elif "\n" in piece:
            line += piece.count("\n")
            line_start = position + piece.rindex("\n") + 1
        position = match.end()
    last = start.shifted(line, position - line_start)
    return [*tokens, Token("end", "", last, position, position)]


def _unknown(character: str, place: Location) -> ScaffoldError:
    if character in "'\"":
        return ScaffoldError("this string is not closed", place)
    return ScaffoldError(f"unexpected character {character!r}", place)


def split_entries(tokens: Sequence[Token]) -> list[list[Token]]:
    """Cut at the commas outside brackets; every part ends with an `end` token."""
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
        raise ScaffoldError(f"'{open_[-1].text}' is never closed", open_[-1].place)
    parts.pop()
    if len(parts) > 1 and len(parts[-1]) == 1:  # a comma at the end
        parts.pop()
    return parts


def _follow(token: Token, open_: list[Token]) -> None:
    """Keep the list of brackets that are open."""
    if token.text in CLOSERS:
        open_.append(token)
    elif token.text in CLOSERS.values() and (
        not open_ or CLOSERS[open_.pop().text] != token.text
    ):
        raise ScaffoldError(f"unmatched '{token.text}'", token.place)


def words(tokens: Sequence[Token]) -> Words:
    """The text of neighbouring tokens, as written but on one line."""
    text = ""
    for before, token in zip([None, *tokens], tokens, strict=False):
        text += " " * (token.start - before.end) if before else ""
        text += token.text
    return Words(text, tokens[0].place)


class Cursor:
    """A place among tokens, for descent by recursion."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.position = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def take(self, text: str) -> bool:
        """Step over a symbol if it comes next."""
        if self.next.kind == "symbol" and self.next.text == text:
            self.position += 1
            return True
        return False

    def word(self, wanted: str, hint: str | None = None) -> Words:
        """Step over a name."""
        token = self.next
        if token.kind != "name":
            raise self.unexpected(wanted, hint)
        self.position += 1
        return Words(token.text, token.place)

    def unexpected(self, wanted: str, hint: str | None = None) -> ScaffoldError:
        """What is wrong with what comes next."""
        found = f"'{self.next.text}'" if self.next.text else "nothing"
        return ScaffoldError(f"expected {wanted}, found {found}", self.next.place, hint)
