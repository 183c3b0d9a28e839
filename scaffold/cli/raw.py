"""The options of the command line as the raw mapping that a TOML file would hold.

In: options by key. Out: the mapping, and the place in an option where a value of it begins.
Invariant: what an option says and what the same key of a file says mean the same.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaffold.errors import Location, ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.spec.toml import Entry

KeyPath = tuple[str, ...]

TABLES = {"grad", "init", "update"}  # given as NAME=TEXT, several times
NAME_LISTS = {"optional", "nondiff", "dirty", "params", "buffers"}
Places = dict[KeyPath, Location]


def raw_options(values: dict[str, Any]) -> tuple[dict[str, Any], Places]:
    """The mapping, with the place of every value in it."""
    raw: dict[str, Any] = {}
    places: Places = {}
    problems: list[ScaffoldError] = []
    for key, value in values.items():
        places[(key,)] = Location(f"--{key}")
        try:
            raw[key] = _reader(key)(key, value, places)
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    _state_surrogate(raw, places)
    return raw, places


def locate_in(places: Places) -> Callable[..., Location]:
    """Where a value or key is: the option that gave it, or the nearest one around it."""

    def locate(path: KeyPath, *, key: bool = False) -> Location:
        if path == ("name",):
            return Location("NAME")
        if key and len(path) > 1:
            return Location(f"--{path[0]}")
        for end in range(len(path), 0, -1):
            if path[:end] in places:
                return places[path[:end]]
        return Location(f"--{path[0]}" if path else "scaffold new-op")

    return locate


def _reader(key: str) -> Callable[[str, Any, Places], Any]:
    if key in TABLES:
        return _table
    if key == "tolerance":
        return _tolerance
    return _names if key in NAME_LISTS else _as_given


def _as_given(key: str, value: Any, places: Places) -> Any:
    return value


def _names(key: str, value: list[str], places: Places) -> list[str]:
    """Names given in several options or with commas between them."""
    names: list[str] = []
    for text in value:
        column = 1
        for part in text.split(","):
            if part.strip():
                places[(key, str(len(names)))] = Location(f"--{key}", 1, column)
                names.append(part.strip())
            column += len(part) + 1
    return names


def _table(key: str, value: list[str], places: Places) -> dict[str, str]:
    """`weight=grad_output.t() @ input`, one entry an option."""
    table: dict[str, str] = {}
    for text in value:
        name, equals, formula = text.partition("=")
        name = name.strip()
        if not equals or not name:
            hint = f"write: --{key} 'name=...'"
            raise ScaffoldError(f"'{text}' names no input", Location(f"--{key}"), hint)
        if name in table:
            raise ScaffoldError(f"'{name}' is given twice", Location(f"--{key}"))
        skipped = len(text) - len(formula) + len(formula) - len(formula.lstrip())
        places[(key, name)] = Location(f"--{key}", 1, skipped + 1)
        table[name] = formula.strip()
    return table


def _tolerance(key: str, value: str, places: Places) -> dict[str, Any]:
    """`eps=1e-6, atol=1e-4`: numbers by keyword of gradcheck."""
    table: dict[str, Any] = {}
    column = 1
    for part in value.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        place = Location("--tolerance", 1, column + len(part) - len(part.lstrip()))
        if not equals or not _is_number(number):
            hint = "write: --tolerance 'eps=1e-6, atol=1e-4'"
            raise ScaffoldError(f"'{part.strip()}' is not name=number", place, hint)
        places[(key, name)] = place
        table[name] = float(number)
        column += len(part) + 1
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _state_surrogate(raw: dict[str, Any], places: Places) -> None:
    """`--surrogate-forward TEXT` is the file's `surrogate = TEXT`."""
    stated = raw.pop("surrogate-forward", None)
    if stated is not None:
        raw["surrogate"] = stated
        places[("surrogate",)] = places[("surrogate-forward",)]


class Merged:
    """A file's op with the options over it: a table's entries one by one, any other key whole."""

    def __init__(
        self, entry: "Entry", given: dict[str, Any], locate: Callable[..., Location]
    ) -> None:
        self._entry, self._given, self._locate = entry, given, locate
        self.raw = dict(entry.raw)
        for key, value in given.items():
            both = isinstance(value, dict) and isinstance(self.raw.get(key), dict)
            self.raw[key] = self.raw[key] | value if both else value

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """The place in the option if it stated the value, else in the file."""
        value: Any = self._given
        for part in path:
            if isinstance(value, list):
                break
            if not isinstance(value, dict) or part not in value:
                return self._entry.locate(path, key=key)
            value = value[part]
        return self._locate(path, key=key)

    def reader(self, base: Path) -> Callable[[str], str]:
        """Read a file that is named from the directory of the op's own file."""
        return lambda path: (base / path).read_text(encoding="utf-8")
