"""The options of the command line as the raw mapping that a TOML file would hold.

In: options by key. Out: the mapping, and the place in an option where a value of it begins.
Invariant: what an option says and what the same key of a file says mean the same.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.problems import KeyPath

if TYPE_CHECKING:
    from scaffold.spec.toml import Entry

TABLES = {"grad", "init", "update"}  # given as NAME=TEXT, several times
FORMULAS = {"forward", "grad", "backward", "surrogate", "samples", "update"}
NAME_LISTS = {"optional", "nondiff", "dirty", "params", "buffers"}
SWITCHES = {"true": True, "false": False}


@dataclass(slots=True)
class Given:
    """What the options say: values, where each begins, and what could not be read."""

    raw: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, Location] = field(default_factory=dict)
    problems: list[ScaffoldError] = field(default_factory=list)

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """Where a value or key is: the option that gave it, or the nearest one around it."""
        if path == ("name",):
            return Location("NAME")
        if key and path[0] in TABLES and len(path) > 1:
            return Location(f"--{path[0]}")
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return Location(f"--{path[0]}" if path else "scaffold new-op")


def read_options(values: Mapping[str, Any]) -> Given:
    """The mapping that a file would hold, with the place of every value in it."""
    given = Given()
    for key, value in values.items():
        given.places[(key,)] = Location(f"--{key}")
        try:
            given.raw[key] = _reader(key)(key, _plain(value), given)
        except ScaffoldError as error:
            given.problems.append(error)
    _state_surrogate(given)
    return given


def _plain(value: Any) -> Any:
    """A value with one kind of newline, as files are read."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _reader(key: str) -> Callable[[str, Any, Given], Any]:
    if key in TABLES:
        return _table
    if key == "tolerance":
        return _tolerance
    return _names if key in NAME_LISTS else _as_given


def _as_given(key: str, value: Any, given: Given) -> Any:
    return value


def _names(key: str, value: list[str], given: Given) -> list[str]:
    """Names given in several options or with commas between them."""
    names: list[str] = []
    for text in value:
        column = 0
        for part in text.split(","):
            name = part.strip()
            if name:
                start = column + len(part) - len(part.lstrip())
                given.places[(key, str(len(names)))] = _place(key, text, start)
                names.append(name)
            column += len(part) + 1
    return names


def _table(key: str, value: list[str], given: Given) -> dict[str, str]:
    """`weight=grad_output.t() @ input`, one entry an option."""
    table: dict[str, str] = {}
    for text in value:
        name, equals, formula = text.partition("=")
        name = name.strip()
        if not equals or not name:
            hint = f"write: --{key} 'NAME=...'"
            message = f"'{text}' does not begin with a name and '='"
            raise ScaffoldError(message, Location(f"--{key}"), hint)
        if name in table:
            raise ScaffoldError(f"'{name}' is given twice", Location(f"--{key}"))
        stated = formula.lstrip(" \t")
        given.places[(key, name)] = _place(key, text, len(text) - len(stated))
        table[name] = stated.rstrip()
    return table


def _tolerance(key: str, value: str, given: Given) -> dict[str, float | bool]:
    """`eps=1e-6, atol=1e-4`: numbers by keyword of gradcheck."""
    table: dict[str, float | bool] = {}
    column = 0
    for part in value.split(","):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        place = _place(key, value, column + len(part) - len(part.lstrip()))
        number = _number(text)
        if not equals or number is None:
            hint = "write: --tolerance 'eps=1e-6, atol=1e-4'"
            raise ScaffoldError(f"'{part.strip()}' is not name=number", place, hint)
        if name in table:
            raise ScaffoldError(f"'{name}' is given twice", place)
        given.places[(key, name)] = place
        table[name] = number
        column += len(part) + 1
    return table


def _place(key: str, text: str, offset: int) -> Location:
    """Where a character of an option's value stands."""
    *above, before = re.split(r"\r\n|\r|\n", text[:offset])
    return Location(f"--{key}").shifted(len(above), len(before))


def _number(text: str) -> float | bool | None:
    """The number that a file would hold for the same text, None where it is none."""
    if text.lower() in SWITCHES:
        return SWITCHES[text.lower()]
    if re.fullmatch(r"[+-]?[0-9]{1,300}", text):
        return int(text)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return float(text)
    return None


def _state_surrogate(given: Given) -> None:
    """`--surrogate-forward TEXT` is the file's `surrogate = TEXT`."""
    stated = given.raw.pop("surrogate-forward", None)
    if stated is None:
        return
    if given.raw.get("surrogate") is False:
        place = given.places[("surrogate-forward",)]
        given.problems.append(
            ScaffoldError("--no-surrogate says that there is none", place)
        )
    given.raw["surrogate"] = stated
    given.places[("surrogate",)] = given.places[("surrogate-forward",)]


class Merged:
    """A file's op with the options over it: a table's entries one by one, any other key whole.

    Files that the op names are counted from its own file, which stands in `directory`.
    """

    def __init__(self, entry: "Entry", given: Given, directory: Path) -> None:
        self._entry, self._given = entry, given
        self.raw = {
            key: _from(directory, value) if key in FORMULAS else value
            for key, value in entry.raw.items()
        }
        for key, value in given.raw.items():
            both = isinstance(value, dict) and isinstance(self.raw.get(key), dict)
            self.raw[key] = self.raw[key] | value if both else value

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """The place in the option if it stated the value, else in the file."""
        value: Any = self._given.raw
        for part in path:
            if isinstance(value, list):
                break
            if not isinstance(value, dict) or part not in value:
                return self._entry.locate(path, key=key)
            value = value[part]
        return self._given.locate(path, key=key)


def _from(directory: Path, value: Any) -> Any:
    """A formula that names a file, seen from the working directory rather than from `directory`."""
    if isinstance(value, dict):
        return {key: _from(directory, item) for key, item in value.items()}
    if not isinstance(value, str) or not value.lstrip().startswith("@"):
        return value
    named = value.lstrip().removeprefix("@")
    return f"@{(directory / named).as_posix()}"
