"""Configuration of a project: `[tool.scaffold]` of the nearest pyproject.toml.

In: a directory. Out: a `Configuration`; where no file says anything, the defaults.
Invariant: an unknown key or a value of another kind is an error, never ignored.
"""

import os
from collections.abc import Mapping
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple, get_args

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.grammar import Entry, parse_dims
from scaffold.spec.model import Dim, RuleFile, Style
from scaffold.spec.names import check_name, is_identifier
from scaffold.spec.problems import Locate, Problems
from scaffold.spec.rule_files import read_rule_files
from scaffold.spec.shapes import read_dims
from scaffold.spec.signature import dim_problems
from scaffold.spec.tokens import Words

# Names that occur together, with their shapes.
Convention = tuple[tuple[str, tuple[Dim, ...]], ...]
LINEAR: Convention = (
    ("input", ("N", "in_features")),
    ("weight", ("out_features", "in_features")),
    ("bias", ("out_features",)),
)
SHORTEST = 40  # a line that still holds a signature
PARAMETERS = ("weight", "weights", "bias", "gamma", "beta", "alpha", "scale")


class Configuration(NamedTuple):
    """Where files go and what is taken for granted. Directories count from `root`."""

    root: str = "."  # the directory of the pyproject.toml that said so
    source: str = "."
    tests: str | None = None  # None: beside the op
    package: str | None = None  # dotted import path of the source directory
    installed: bool = False  # the project is built and installed before it is tested
    pythonpath: tuple[str, ...] = ()  # directories that pytest adds to the path
    prepends: bool = True  # pytest also adds the directory of a test
    style: Style = "setup-context"
    line_length: int = 88
    parameter_names: tuple[str, ...] = PARAMETERS
    conventions: tuple[Convention, ...] = (LINEAR,)
    rules: tuple[RuleFile, ...] = ()  # tables of the team's own


KEYS = (
    "source",
    "tests",
    "package",
    "style",
    "line-length",
    "parameter-names",
    "conventions",
    "rules",
)


def load_configuration(start: Path) -> Configuration:
    """The configuration of the nearest pyproject.toml that has a [tool.scaffold], from `start` upward.

    Where none has one, the nearest still says how long lines are and what pytest finds.
    """
    nearest: Configuration | None = None
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if path.is_file():
            shown = os.path.relpath(path, start)
            text = _read(path, shown)
            if "scaffold" in text:
                found = read_configuration(text, shown, str(directory))
                if found is not None:
                    return found
            if nearest is None:
                nearest = _surroundings(text, str(directory))._replace(root=".")
    return nearest or Configuration()


def _read(path: Path, shown: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ScaffoldError(f"cannot be read: {reason}", Location(shown)) from None


def _surroundings(text: str, root: str) -> Configuration:
    """What a file that is not about this tool says; if it is not TOML, that is its owner's affair."""
    from scaffold.spec.toml import parse_toml

    if "line-length" not in text and "pytest" not in text:
        return Configuration()
    try:
        return _known(parse_toml(text, ""), root)
    except ScaffoldError:
        return Configuration()


def read_configuration(text: str, path: str, root: str) -> Configuration | None:
    """The configuration in the text of a pyproject.toml; None if it has no [tool.scaffold]."""
    from scaffold.spec.toml import parse_toml
    from scaffold.spec.toml_places import Places

    data = parse_toml(text, path)
    tool = _table(data, "tool")
    if "scaffold" not in tool:
        return None
    places = Places(text, path, ("tool", "scaffold"))
    if not isinstance(tool["scaffold"], dict):
        raise ScaffoldError("'tool.scaffold' must be a table", places(()))
    reader = _Reader(tool["scaffold"], places, os.path.dirname(path))
    return reader.configuration(_known(data, root))


def _known(data: Mapping[str, Any], root: str) -> Configuration:
    """What the tables of other tools say."""
    tool = _table(data, "tool")
    pytest = _table(tool, "pytest")  # of pytest 9; before, its ini_options
    pytest |= _table(pytest, "ini_options")
    paths = _words(pytest.get("pythonpath"))
    return Configuration(
        root=root,
        installed="build-system" in data,
        pythonpath=tuple(os.path.normpath(os.path.join(root, path)) for path in paths),
        prepends="importlib" not in " ".join(_words(pytest.get("addopts"))),
        line_length=_line_length(tool),
    )


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _words(value: Any) -> tuple[str, ...]:
    """A setting of pytest that is a list, or words in one string."""
    words = value.split() if isinstance(value, str) else value
    return tuple(map(str, words)) if isinstance(words, list) else ()


def _line_length(tool: Mapping[str, Any]) -> int:
    """The line length that black or ruff is configured with."""
    for name in ("black", "ruff"):
        length = _table(tool, name).get("line-length")
        if type(length) is int and length >= SHORTEST:
            return length
    return 88


class _Reader:
    """Reads the keys of one table; problems are gathered."""

    def __init__(self, table: Mapping[str, Any], places: Locate, shown: str) -> None:
        self.table, self.problems, self.shown = table, Problems(places), shown

    def configuration(self, known: Configuration) -> Configuration:
        for key in self.table:
            if key not in KEYS:
                hint = did_you_mean(key, KEYS) or f"the keys: {', '.join(KEYS)}"
                message = f"unknown key '{key}' in [tool.scaffold]"
                self.problems.at_key((key,), message, hint)
        found = known._replace(
            source=self._directory("source") or known.source,
            tests=self._directory("tests"),
            package=self._package(),
            style=self._style(known.style),
            line_length=self._length(known.line_length),
            parameter_names=self._names(known.parameter_names),
            conventions=self._conventions(known.conventions),
            rules=read_rule_files(
                self.table.get("rules"), known.root, self.shown, self.problems
            ),
        )
        self.problems.raise_found()
        return found

    def _fail(self, key: str, message: str, hint: str | None = None) -> None:
        self.problems.at((key,), message, hint)

    def _text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            self._fail(key, f"'{key}' must be a string")
            return None
        return value

    def _directory(self, key: str) -> str | None:
        value = self._text(key)
        if value is None:
            return None
        inside = os.path.normpath(value)
        if Path(value).is_absolute() or inside.split(os.sep)[0] == "..":
            hint = "write it relative to the file, such as 'src/ops'"
            self._fail(key, f"'{key}' must be a directory of the project", hint)
            return None
        return Path(inside).as_posix()

    def _package(self) -> str | None:
        value = self._text("package")
        parts = value.split(".") if value is not None else []
        if not all(is_identifier(part) and not iskeyword(part) for part in parts):
            hint = "write: package = 'myops'"
            self._fail("package", f"'{value}' is no package", hint)
            return None
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
        if type(value) is not int or value < SHORTEST:
            self._fail(
                "line-length", f"'line-length' must be a number from {SHORTEST} up"
            )
            return default
        return value

    def _names(self, default: tuple[str, ...]) -> tuple[str, ...]:
        key, value = "parameter-names", self.table.get("parameter-names")
        if value is None:
            return default
        if not isinstance(value, list) or not all(
            isinstance(item, str) for item in value
        ):
            self._fail(key, f"'{key}' must be a list of strings")
            return default
        for position, name in enumerate(value):
            place = self.problems.within((key, str(position)))
            self.problems.add(check_name(name, place, "a parameter"))
        return tuple(value)

    def _conventions(self, default: tuple[Convention, ...]) -> tuple[Convention, ...]:
        key, value = "conventions", self.table.get("conventions")
        if value is None:
            return default
        if not isinstance(value, list) or not all(
            isinstance(item, dict) for item in value
        ):
            hint = "write: conventions = [{ x = 'N, D', scale = 'D' }]"
            self._fail(key, f"'{key}' must be a list of tables", hint)
            return default
        return tuple(self._convention(item, str(k)) for k, item in enumerate(value))

    def _convention(self, table: Mapping[str, Any], position: str) -> Convention:
        found: list[tuple[str, tuple[Dim, ...]]] = []
        for name, text in table.items():
            path = ("conventions", position, name)
            place = self.problems.within(path)
            if not isinstance(text, str):
                self.problems.at(path, f"the shape of '{name}' must be a string")
                continue
            self.problems.add(check_name(name, place, "a tensor"))
            read = partial(_shape, text, place, set(table))
            found.append((name, self.problems.attempt(read) or ()))
        return tuple(found)


def _shape(text: str, start: Location, names: set[str]) -> tuple[Dim, ...]:
    words = parse_dims(text, start)
    raise_all(dim_problems([Entry(Words("", start), dims=words)], names, "a tensor"))
    return read_dims(words)
