"""Configuration of a project: `[tool.scaffold]` of the nearest pyproject.toml.

In: a directory. Out: a `Configuration`; where no file says anything, the defaults.
Invariant: an unknown key or a value of another kind is an error, never ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.grammar import parse_dims
from scaffold.spec.model import Dim, Style
from scaffold.spec.names import is_identifier
from scaffold.spec.shapes import read_dims

# Names that occur together, with their shapes.
Convention = tuple[tuple[str, tuple[Dim, ...]], ...]
LINEAR: Convention = (
    ("input", ("N", "in_features")),
    ("weight", ("out_features", "in_features")),
    ("bias", ("out_features",)),
)
PARAMETERS = ("weight", "weights", "bias", "gamma", "beta", "alpha", "scale")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where files go and what is taken for granted. Directories count from `root`."""

    root: str = "."  # the directory of the pyproject.toml that said so
    source: str = "."
    tests: str | None = None  # None: beside the op
    package: str | None = None  # dotted import path of the source directory
    importable: bool = (
        False  # the project is installed, or its tests' path is configured
    )
    style: Style = "setup-context"
    line_length: int = 88
    parameter_names: tuple[str, ...] = PARAMETERS
    conventions: tuple[Convention, ...] = (LINEAR,)


KEYS = (
    "source",
    "tests",
    "package",
    "style",
    "line-length",
    "parameter-names",
    "conventions",
)


def load_configuration(start: Path) -> Configuration:
    """The configuration of the nearest pyproject.toml that has a [tool.scaffold], from `start` upward."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if path.is_file():
            text = _read(path)
            if "tool" in text and "scaffold" in text:
                found = read_configuration(text, str(path), str(directory))
                if found is not None:
                    return found
    return Configuration()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ScaffoldError(f"cannot read '{path}': {reason}") from None


def read_configuration(text: str, path: str, root: str) -> Configuration | None:
    """The configuration in the text of a pyproject.toml; None if it has no [tool.scaffold]."""
    from scaffold.spec.toml import Places, parse_toml

    data = parse_toml(text, path)
    tool = data.get("tool", {})
    table = tool.get("scaffold")
    if not isinstance(table, dict):
        return None
    reader = _Reader(table, Places(text, path, ("tool", "scaffold")))
    known = Configuration(
        root=root,
        importable="project" in data or "pythonpath" in _pytest(tool),
        line_length=_line_length(tool),
    )
    return reader.configuration(known)


def _pytest(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    options = tool.get("pytest", {}).get("ini_options", {})
    return options if isinstance(options, dict) else {}


def _line_length(tool: Mapping[str, Any]) -> int:
    """The line length that black or ruff is configured with."""
    for name in ("black", "ruff"):
        length = tool.get(name, {}).get("line-length")
        if isinstance(length, int):
            return length
    return 88


class _Reader:
    """Reads the keys of one table; problems are gathered."""

    def __init__(self, table: Mapping[str, Any], places: Any) -> None:
        self.table, self.places = table, places
        self.problems: list[ScaffoldError] = []

    def configuration(self, known: Configuration) -> Configuration:
        for key in self.table:
            if key not in KEYS:
                hint = did_you_mean(key, KEYS) or f"the keys: {', '.join(KEYS)}"
                place = self.places((key,), key=True)
                message = f"unknown key '{key}' in [tool.scaffold]"
                self.problems.append(ScaffoldError(message, place, hint))
        found = replace(
            known,
            source=self._directory("source") or known.source,
            tests=self._directory("tests"),
            package=self._package(),
            style=self._style(known.style),
            line_length=self._length(known.line_length),
            parameter_names=self._names(known.parameter_names),
            conventions=self._conventions(known.conventions),
        )
        raise_all(self.problems)
        return found

    def _fail(self, key: str, message: str, hint: str | None = None) -> None:
        self.problems.append(ScaffoldError(message, self.places((key,)), hint))

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            self._fail(key, f"'{key}' must be a string")
            return None
        return value

    def _directory(self, key: str) -> str | None:
        value = self._text(key)
        if value is not None and Path(value).is_absolute():
            self._fail(
                key, f"'{key}' must be a directory of the project", "write it from here"
            )
        return value

    def _package(self) -> str | None:
        value = self._text("package")
        if value is not None and not all(
            is_identifier(part) for part in value.split(".")
        ):
            self._fail(
                "package", f"'{value}' is no package", "write: package = 'myops'"
            )
        return value

    def _style(self, default: Style) -> Style:
        value = self._text("style") or default
        for style in get_args(Style):
            if style == value:
                return style  # type: ignore[no-any-return]
        hint = (
            did_you_mean(value, get_args(Style))
            or f"one of: {', '.join(get_args(Style))}"
        )
        self._fail("style", f"unknown style '{value}'", hint)
        return default

    def _length(self, default: int) -> int:
        value = self.table.get("line-length", default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 40:
            self._fail("line-length", "'line-length' must be a number from 40 up")
            return default
        return value

    def _names(self, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.table.get("parameter-names", default)
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, str) for item in value
        ):
            self._fail("parameter-names", "'parameter-names' must be a list of strings")
            return default
        return tuple(value)

    def _conventions(self, default: tuple[Convention, ...]) -> tuple[Convention, ...]:
        value = self.table.get("conventions")
        if value is None:
            return default
        if not isinstance(value, list) or not all(
            isinstance(item, dict) for item in value
        ):
            hint = "write: conventions = [{ x = 'N, D', scale = 'D' }]"
            self._fail("conventions", "'conventions' must be a list of tables", hint)
            return default
        return tuple(self._convention(item) for item in value)

    def _convention(self, table: Mapping[str, Any]) -> Convention:
        found: list[tuple[str, tuple[Dim, ...]]] = []
        start: Location = self.places(("conventions",))
        for name, dims in table.items():
            if not isinstance(dims, str):
                self._fail("conventions", f"the shape of '{name}' must be a string")
                continue
            try:
                found.append((name, read_dims(parse_dims(dims, start))))
            except ScaffoldError as error:
                self.problems.append(ScaffoldError(error.message, start, error.hint))
        return tuple(found)
