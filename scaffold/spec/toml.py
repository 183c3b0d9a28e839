"""TOML files: their tables, and where in the text a key or its value stands.

In: the text of a file. Out: what it holds, and a search for places that runs only when there is a problem.
Invariant: a place is that of the key asked for or of the nearest table around it; it is never made up.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.problems import KeyPath, Locate

HEADER = re.compile(r"\s*\[\[?\s*(?P<keys>[^\]#]+?)\s*\]\]?")
ASSIGNMENT = re.compile(
    r"\s*(?P<keys>(?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=\s*"
)
PART = re.compile(r"[\w-]+|\"[^\"]*\"|'[^']*'")
QUOTES = ("'''", '"""', "'", '"')


@dataclass(frozen=True, slots=True)
class Entry:
    """One op of a file, as it stands."""

    name: str
    raw: Mapping[str, Any]
    locate: Locate


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """The tables of a TOML file, or where it is not TOML."""
    import tomllib  # only where a file is read

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line, column = (
            (int(found[1]), int(found[2])) if found else (text.count("\n") + 1, 1)
        )
        message = str(error).split(" (at ")[0]
        message = message[:1].lower() + message[1:]
        raise ScaffoldError(
            f"not valid TOML: {message}", Location(path, line, column)
        ) from None


def read_ops(text: str, path: str) -> tuple[Entry, ...]:
    """Every `[ops.NAME]` of a file."""
    data = parse_toml(text, path)
    places = Places(text, path)
    problems = []
    for key in data:
        if key != "ops":
            hint = did_you_mean(key, ["ops"]) or "an op is a table [ops.NAME]"
            problems.append(
                ScaffoldError(f"unknown table '{key}'", places((key,), key=True), hint)
            )
    ops = data.get("ops", {})
    for name, raw in ops.items() if isinstance(ops, dict) else ():
        if not isinstance(raw, dict):
            place = places(("ops", name), key=True)
            problems.append(ScaffoldError(f"'ops.{name}' must be a table", place))
    raise_all(problems)
    if not ops:
        raise ScaffoldError(
            "the file holds no op", Location(path), "write a table [ops.NAME]"
        )
    return tuple(
        Entry(name, raw, places.below(("ops", name))) for name, raw in ops.items()
    )


class Places:
    """Finds keys in TOML text by reading it line by line."""

    def __init__(self, text: str, path: str, prefix: KeyPath = ()) -> None:
        self.text, self.path, self.prefix = text, path, prefix

    def below(self, prefix: KeyPath) -> "Places":
        """The same text; paths are counted from a table of it."""
        return Places(self.text, self.path, (*self.prefix, *prefix))

    def __call__(self, path: KeyPath, *, key: bool = False) -> Location:
        """Where the value of a key begins (its text, if it is a string), or the key itself."""
        wanted = (*self.prefix, *path)
        found = {keys: (name, value) for keys, name, value in self._assignments()}
        for end in range(len(wanted), 0, -1):
            if wanted[:end] in found:
                name, value = found[wanted[:end]]
                return (
                    name
                    if key or end < len(wanted) and not _is_number(wanted[-1])
                    else value
                )
        return Location(self.path)

    def _assignments(self) -> Iterator[tuple[KeyPath, Location, Location]]:
        """Every key with its own place and its value's, tables included."""
        table: KeyPath = ()
        lines = self.text.split("\n")
        number = 0
        while number < len(lines):
            line = lines[number]
            header, assignment = HEADER.match(line), ASSIGNMENT.match(line)
            if header and not assignment:
                table = _parts(header["keys"])
                place = Location(self.path, number + 1, header.start("keys") + 1)
                yield table, place, place
            elif assignment:
                keys = (*table, *_parts(assignment["keys"]))
                place = Location(self.path, number + 1, assignment.start("keys") + 1)
                yield keys, place, self._value(line, number, assignment.end())
                number = _last_line(lines, number, assignment.end())
            number += 1

    def _value(self, line: str, number: int, start: int) -> Location:
        """The place of a value; of a string, that of its first character."""
        for quote in QUOTES:
            if line.startswith(quote, start):
                if len(quote) == 3 and not line[start + 3 :].strip():
                    return Location(self.path, number + 2, 1)
                return Location(self.path, number + 1, start + len(quote) + 1)
        return Location(self.path, number + 1, start + 1)


def _parts(keys: str) -> KeyPath:
    return tuple(part.strip("\"'") for part in PART.findall(keys))


def _is_number(key: str) -> bool:
    return key.isdigit()


def _last_line(lines: list[str], number: int, start: int) -> int:
    """The line on which the value that begins there ends."""
    for quote in QUOTES[:2]:
        if lines[number].startswith(quote, start):
            if quote in lines[number][start + 3 :]:
                return number
            closing = (k for k in range(number + 1, len(lines)) if quote in lines[k])
            return next(closing, number)
    return number
