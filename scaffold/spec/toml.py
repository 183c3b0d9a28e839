"""TOML text: the ops in a file, the places of keys and values, and values in TOML syntax.

Python's `tomllib` gives values without places, and writes nothing. So this module finds places, for messages (`Places`); the
extent of each statement, for `project.manifest_edits` to change a file without losing its comments (`statements`); and writes
TOML (`toml_text`, `op_table`). In: text. Out: its tables; the place of a key or of its value (of a string, its first
character); the extent of each header and assignment. Invariant: places are computed once, on demand; a missing key has the
place of the nearest table around it.

Words: a *header* is `[ops.swish]`, or `[[rules]]` for an element of an array of tables; an *assignment* is `grad.x = "..."`,
whose *parts* are `grad` and `x`; an *inline* table is `{ x = "..." }`; a *basic* string has double quotes and escapes, a
*literal* one single quotes and none; an *offset* counts the characters from the beginning of the text.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.problems import KeyPath, Locate

# --- Values and tables in TOML syntax.
#
# In: values from a TOML parser. Out: text. Invariant: parsing the text gives the same value.


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # invalid in a literal string


def toml_text(value: Any) -> str:
    """Return a value in TOML syntax, on one line, for hints and generated tables: `["a", "b"]`, `{ x = "x * 2" }`."""
    if isinstance(value, dict):
        entries = (
            f"{toml_key(key)} = {toml_text(item)}" for key, item in value.items()
        )
        return f"{{ {', '.join(entries)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    return repr(value)


def toml_key(key: str) -> str:
    """Return a key in TOML syntax: bare, or quoted if necessary."""
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Return a text as a basic string: as in JSON, but with U+007F escaped too, which TOML forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def op_table(name: str, keys: Mapping[str, Any]) -> str:
    """Return the table of an op as a user would write it: a header, a line for each key, formulas in single quotes, `grad.x = ...`."""
    lines = [f"[ops.{toml_key(name)}]"]
    for key, value in keys.items():
        lines += _assignments(toml_key(key), value)
    return "\n".join(lines) + "\n"


def _assignments(key: str, value: Any) -> Iterator[str]:
    """Yield the line of a key; of a table one for each of its keys, dotted: `grad.x = '...'`."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _assignments(f"{key}.{toml_key(name)}", item)
    else:
        yield f"{key} = {written_value(value)}"


def written_value(value: Any) -> str:
    """Return a value as a user would write it: `'x * 2'` in single quotes, a list of such; any other as `toml_text` has it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written_value, value))}]"
    return _formula(value) if isinstance(value, str) else toml_text(value)


def _formula(text: str) -> str:
    """Return a formula in single quotes, without escapes, if possible (a literal string); else in double ones (a basic string)."""
    if _NOT_LITERAL.search(text):
        return _string(text)
    if "\n" in text:
        plain = "'''" not in text and not text.endswith("'")  # no early end
        return f"'''\n{text}'''" if plain else _string(text)
    return f"'{text}'" if "'" not in text else _string(text)


# --- The places of keys and values in a TOML text.


# White space and comments; a number, a date or a boolean; the four forms of strings, with
# and without line ends; a piece of a basic string: an escape, or one character.
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}\n#]*")
_LONG_LITERAL = re.compile(r"'''(?:\r?\n)?(?P<text>(?:.|\n)*?'{0,2})'''(?!')")
_LONG_BASIC = re.compile(r'"""(?:\r?\n)?(?P<text>(?:[^\\]|\\(?:.|\n))*?"{0,2})"""(?!")')
_LITERAL = re.compile(r"'(?P<text>[^'\n]*)'")
_BASIC = re.compile(r'"(?P<text>(?:[^"\\\n]|\\.)*)"')
# Those of three quotes first: else `'''` would begin with the empty string `''`.
_STRINGS = (_LONG_LITERAL, _LONG_BASIC, _LITERAL, _BASIC)
_PIECE = re.compile(
    r"\\(?P<nothing>[ \t]*\n\s*)|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|\\?.", re.DOTALL
)


class Places:
    """A lookup of the places of keys in a TOML text: `Places(text, "ops.toml", ("ops", "swish"))(("grad", "x"))`.

    Paths are relative to the table `prefix`. It is a `Locate`: readers of an op know nothing else of the file.
    """

    def __init__(self, text: str, path: str, prefix: KeyPath = ()) -> None:
        self.text, self.path, self.prefix = text, path, prefix

    def below(self, prefix: KeyPath) -> "Places":
        """Return a lookup in the same text for paths relative to an inner table."""
        return Places(self.text, self.path, (*self.prefix, *prefix))

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location:
        """Return the place of a key's value, or with `key` of the key itself; for a missing key that of the nearest table around it.

        Without even that it is the beginning of the file.
        """
        wanted = (*self.prefix, *path)
        found = _scanned(self.text).found
        for end in range(len(wanted), 0, -1):
            if wanted[:end] in found:
                name, value = found[wanted[:end]]
                # The place of a table around a missing key is that of its name.
                if key or end < len(wanted):
                    return self._location(name)
                return self._within(value)
        return Location(self.path)

    def _within(self, offset: int) -> Location:
        """Return the place of the value at an offset.

        A parser of a formula goes on from there by characters of the value, so a string with escapes gets an `Escaped` place.
        """
        start, end = self._location(offset), _scanned(self.text).escaping.get(offset)
        return start if end is None else Escaped(start, self.text[offset:end])

    def _location(self, offset: int) -> Location:
        """Return the line and column of an offset."""
        line = self.text.count("\n", 0, offset)
        column = offset - (self.text.rfind("\n", 0, offset) + 1)
        return Location(self.path, line + 1, column + 1)


class Escaped(Location):
    """A place in the source of a string, addressed by lines and columns of its value: there `\\n` is a line end, here two letters."""

    __slots__ = ("_start", "_steps", "_written")
    _start: Location
    _steps: tuple[int, int]
    _written: str

    def __init__(
        self, start: Location, written: str, steps: tuple[int, int] = (0, 0)
    ) -> None:
        """Address a position in a string: `start` is its place, `written` its source text, `steps` are lines and columns of its value.

        In `"a\\tb"` the `b` is 2 columns from the start of the value, but 3 from that of `written`.
        `Location` is frozen, so its fields are set by `object.__setattr__`.
        """
        place = start.shifted(*_written_steps(written, steps))
        for name in ("source", "line", "column"):
            object.__setattr__(self, name, getattr(place, name))
        object.__setattr__(self, "_start", start)
        object.__setattr__(self, "_written", written)
        object.__setattr__(self, "_steps", steps)

    def shifted(self, line: int, column: int) -> Location:
        """Return the place some lines and columns further in the string's value."""
        lines, columns = self._steps
        steps = (lines + line, column if line else columns + column)
        return Escaped(self._start, self._written, steps)


def _written_steps(written: str, steps: tuple[int, int]) -> tuple[int, int]:
    r"""Return how many lines and columns of a string's source, `written`, belong to `steps`, lines and columns of its value.

    The escape `\n` is a line end of the value, but two columns of the source; a backslash at the end of a line is nothing.
    """
    line = column = end = 0
    for piece in _PIECE.finditer(written):
        # A line that goes on at the very position belongs before it: it is nothing in the value.
        if (line, column) >= steps and not piece["nothing"]:
            break
        end = piece.end()
        if piece.group() in ("\n", r"\n"):
            line, column = line + 1, 0
        elif not piece["nothing"]:
            column += 1
    passed = written[:end]
    return passed.count("\n"), end - (passed.rfind("\n") + 1)


class Part(NamedTuple):
    """One part of a dotted key, `x` of `grad.x`: its extent, quotes included, and the key it means."""

    start: int
    end: int
    key: str


class Statement(NamedTuple):
    """A header or an assignment, with offsets into the text; `end` is exclusive."""

    path: KeyPath
    table: KeyPath  # of the table it stands in, to which the parts add; () for a header
    parts: tuple[Part, ...]
    value: int | None  # its beginning, with its quotes; None for a header
    end: int
    inline: bool  # inside an inline table

    @property
    def start(self) -> int:
        """Return the offset of the key."""
        return self.parts[0].start


def statements(text: str) -> tuple[Statement, ...]:
    """Return every header and assignment of a text in order; those inside an inline table come before the assignment of the table."""
    return tuple(_scanned(text).statements)


@lru_cache(maxsize=1)
def _scanned(text: str) -> "_Scanner":
    """Return a text as scanned; the last result is kept, as all places of one file are asked one after another."""
    return _Scanner(text)


class _Scanner:
    """A single pass over a TOML text, noting where each key and value stands; it checks nothing: `tomllib` does.

    `found` maps each key path to the offsets of key and value; `escaping` maps the start of a string with escapes to its end.
    """

    def __init__(self, text: str) -> None:
        """Read a whole text, at once."""
        self.text, self.position = text, 0
        self.found: dict[KeyPath, tuple[int, int]] = {}
        self.escaping: dict[int, int] = {}
        self.tables: dict[KeyPath, int] = {}  # the length of each array of tables
        self.statements: list[Statement] = []
        self.document()

    def blank(self) -> None:
        """Skip white space, line ends and comments."""
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def take(self, piece: str) -> bool:
        """Skip a piece of text if it is next; return whether it was."""
        if self.text.startswith(piece, self.position):
            self.position += len(piece)
            return True
        return False

    def document(self) -> None:
        """Read headers and assignments up to the end, or to invalid text, and note their places.

        `table` is the path of the last header: the assignments below it belong to it. An element of an array of tables has its
        number as the last key: `("rules", "0")`.
        """
        table: KeyPath = ()
        self.blank()
        while self.position < len(self.text):
            before = self.position
            if self.take("[["):
                table = self.header(many=True)
            elif self.take("["):
                table = self.header(many=False)
            else:
                self.assignment(table)
            self.blank()
            if self.position == before:  # not TOML: keep the places found so far
                return

    def header(self, many: bool) -> KeyPath:
        """Read `[table]`, or with `many` `[[table]]`, after its first bracket, and note it; return the path of the table.

        A header `[a.b]` implies a table `a`: its place is that of the `a`, unless it has one.
        """
        path: KeyPath = ()
        parts = self.keys()
        *outer, (start, _, last) = parts  # `keys` returns one at least
        for place, _, key in outer:
            path = self.element((*path, key))
            self.found.setdefault(path, (place, place))
        path = (*path, last)
        if many:
            count = self.tables.get(path, 0)
            self.tables[path] = count + 1
            # The array itself has the place of its first element.
            self.found.setdefault(path, (start, start))
            path = (*path, str(count))
        self.found[path] = (start, start)
        self.take("]]" if many else "]")
        header = Statement(path, (), tuple(parts), None, self.position, inline=False)
        self.statements.append(header)
        return path

    def element(self, path: KeyPath) -> KeyPath:
        """Return the path of the table a path in a header means: if it is an array of tables, its latest element, `(*path, "0")`."""
        count = self.tables.get(path)
        return path if count is None else (*path, str(count - 1))

    def assignment(self, table: KeyPath, *, inline: bool = False) -> None:
        """Read `key = value` in a table and note the offsets of both.

        `table` is the path of the table around it; `inline`: the table is written `{ ... }`.
        """
        parts = self.keys()
        *outer, (start, _, last) = parts
        self.take("=")
        self.blank()
        value, path = self.position, table
        for place, _, key in outer:  # `a.b = 1` implies a table `a`
            path = (*path, key)
            self.found.setdefault(path, (place, place))
        path = (*path, last)
        self.value(path, start)
        self.statements.append(
            Statement(path, table, tuple(parts), value, self.position, inline)
        )

    def keys(self) -> list[Part]:
        """Read a dotted key; return its parts, one at least: an empty one if there is none."""
        found: list[Part] = []
        while not found or self.take("."):
            self.blank()
            start, key = self.position, self.key()
            found.append(Part(start, self.position, key))
            self.blank()
        return found

    def key(self) -> str:
        """Read one part of a dotted key, quoted or bare; "" if there is none."""
        match = self.string() or _BARE.match(self.text, self.position)
        if match is None:
            return ""
        self.position = match.end()
        if match.re is _BARE:
            return match.group()
        return match["text"] if match.re is _LITERAL else _unescaped(match["text"])

    def string(self) -> re.Match[str] | None:
        """Return the match of a string at the position, in any of TOML's four forms; None if there is none."""
        for pattern in _STRINGS:
            match = pattern.match(self.text, self.position)
            if match:
                return match
        return None

    def value(self, path: KeyPath, key: int) -> None:
        """Read a value; note under `path` its offset (of a string, that of its first character) and `key`, the offset of its key.

        In a string with escapes the characters of the value are not those of the text: `escaping` notes where it ends.
        """
        match = self.string()
        self.found[path] = (key, match.start("text") if match else self.position)
        if match is not None:
            self.position = match.end()
            # A literal string, '\n', has no escapes.
            if match.re in (_LONG_BASIC, _BASIC) and "\\" in match["text"]:
                self.escaping[match.start("text")] = match.end("text")
        elif self.take("["):
            self.items("]", lambda at: self.value((*path, str(at)), self.position))
        elif self.take("{"):
            self.items("}", lambda at: self.assignment(path, inline=True))
        else:
            scalar = _SCALAR.match(self.text, self.position)
            self.position += len(scalar.group().rstrip()) if scalar else 0

    def items(self, closer: str, read: Callable[[int], None]) -> None:
        """Read the items of an array or an inline table up to its closing bracket, each by `read`, which gets its number."""
        count = 0
        self.blank()
        while not self.take(closer) and self.position < len(self.text):
            before = self.position
            read(count)
            self.blank()
            self.take(",")
            self.blank()
            count += 1
            # Nothing was read: it is not TOML.
            if self.position == before:
                return


def _unescaped(text: str) -> str:
    """Return the value of a quoted key, its escapes replaced; unchanged if they are invalid: `\\u0041` -> `A`."""
    import tomllib

    try:
        return str(tomllib.loads(f'key = "{text}"')["key"])
    except tomllib.TOMLDecodeError:
        return text


# --- TOML files: their ops.
#
# In: the text of a file. Out: an `Entry` for each op, with the places of its keys. Invariant: invalid TOML, or
# anything but tables of ops, is an error at its place.


class Entry(NamedTuple):
    """One op of a file, with its raw table."""

    name: str
    raw: Mapping[str, Any]
    locate: Locate


LONG = 60  # characters that a hint quotes of a line


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """Return the tables of a TOML file; raise an error at the place of invalid TOML, with a hint for the commonest mistakes.

    `tomllib` tells the place only as words of its message, `(at line 3, column 5)`, if at all.
    """
    import tomllib  # needed only for reading files

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line, column = (int(found[1]), int(found[2])) if found else _end(text)
        written = text.split("\n")[line - 1] if found else ""
        message = str(error).split(" (at ")[0]
        if isinstance(error, RecursionError):
            message = "it is nested too deeply"
        from scaffold.formula.text import long_number  # needed only for errors

        if place := long_number(text, error):
            message = "a number has thousands of digits"
            line, column = place[0] + 1, place[1] + 1
            written = ""  # a hint would quote all the digits
        message = f"not valid TOML: {message[:1].lower() + message[1:]}"
        shown = written.strip()[:LONG]
        hint = _quoted(written) or (f"fix this line: {shown}" if shown else None)
        raise ScaffoldError(message, Location(path, line, column), hint) from None


def _quoted(line: str) -> str | None:
    """Return a hint that shows a line as TOML: `forward = x * 2` -> `write: forward = 'x * 2'`, `inputs: 'x'` with an equals sign.

    None for a line with another mistake.
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*([=:])\s*(\S.*?)\s*", line)
    if match is None:
        return None
    key, mark, value = match.groups()
    # A value without quotes, and no list or table either.
    bare = re.match(r"[\[{'\"]", value) is None
    shown = f"'{value}'" if bare and "'" not in value else value
    return f"write: {key} = {shown}" if bare or mark == ":" else None


def _end(text: str) -> tuple[int, int]:
    """Return the line and column, from 1, of the end of a text."""
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def read_ops(text: str, path: str) -> tuple[Entry, ...]:
    """Return every op of a file, `[ops.NAME]`, with its unchecked keys, perhaps none; raise the errors of all other contents together."""
    data = parse_toml(text, path)
    places = Places(text, path)
    problems = []
    for key in data.keys() - {"ops"}:
        hint = did_you_mean(key, ["ops"]) or "an op is a table: [ops.NAME]"
        place = places((key,), key=True)
        problems.append(ScaffoldError(f"unknown table '{key}'", place, hint))
    ops = data.get("ops", {})
    if not isinstance(ops, dict):
        place = places(("ops",), key=True)
        problems.append(ScaffoldError("'ops' must be a table", place, "[ops.NAME]"))
        ops = {}
    for name, raw in ops.items():
        if not isinstance(raw, dict):
            place = places(("ops", name), key=True)
            message = f"'ops.{name}' must be a table"
            problems.append(ScaffoldError(message, place, f"[ops.{name}]"))
    raise_all(sorted(problems, key=lambda item: item.location or Location(path)))
    below = ((name, raw, places.below(("ops", name))) for name, raw in ops.items())
    return tuple(Entry(name, raw, place) for name, raw, place in below)
