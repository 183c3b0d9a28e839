"""Configuration of a project: `[tool.scaffold]` of the nearest pyproject.toml, and the environment.

Every command reads it first: where files go, and the defaults of all ops. In: a directory and variables. Out: a
`Configuration`, and for `scaffold config` the origin of each key; defaults for keys not set. Invariant: an unknown key or a
value of the wrong kind is an error, never ignored.

Words: a *row* is the entry of a key in `config_keys.KEYS`: its kind, default and reader; *said* is a value as the user set it,
not yet checked; *around* are settings of other tools in the same file (black's line length); `locate(path)` finds the place of
a value for a message; *shown* is a path as messages print it.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all, why_unread
from scaffold.files import NOT_TEXT, read_text
from scaffold.spec.config_keys import KEYS, Docstrings, Formatter, Typing
from scaffold.spec.config_values import Convention, Stated
from scaffold.spec.keys import SavePolicy, Style
from scaffold.spec.kinds import Kind, check_value
from scaffold.spec.lint_settings import NOTHING_SAID, LintConfiguration
from scaffold.spec.names import DEFAULT, Patterns
from scaffold.spec.op_spec import RuleFile
from scaffold.spec.other_tools import (
    LINE_LENGTH,
    Surroundings,
    read_surroundings,
    table_of,
)
from scaffold.spec.problems import Locate, Problems, always_at
from scaffold.spec.testing_settings import BESIDE, Testing

# --- Environment variables for keys of the configuration: SCAFFOLD_LINE_LENGTH is `line-length`.
#
# In: the variables. Out: the values of keys, as TOML would give them. Invariant: a variable means the same as the key
# in the file; text that is no value of the key's kind stays text, and is rejected when values are read. A misspelt
# variable is an error, never ignored.


PREFIX = "SCAFFOLD_"
CLOSE = 0.75  # the least similarity of a misspelt name, by letters in the same order
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
PATHS = ("manifest", "rules", "template-dirs")  # separated like PATH


def variable_of(key: str) -> str:
    """Return the name of the variable for a key."""
    return PREFIX + key.upper().replace("-", "_")


def variables_of(environment: Mapping[str, str]) -> dict[str, tuple[Any, Locate]]:
    """Return the keys set by environment variables, each with its value and a function that gives its place, the variable's name.

    An empty variable sets nothing.
    """
    found: dict[str, tuple[Any, Locate]] = {}
    for key, row in KEYS.items():
        name = variable_of(key)
        if environment.get(name):
            found[key] = _from_text(environment[name], key, row.kind), always_at(name)
    return found


def misspelt(environment: Mapping[str, str]) -> tuple[ScaffoldError, ...]:
    """Return an error for each environment variable that seems misspelt: `SCAFFOLD_LINE_LENGHT`.

    Only a name close to one of ours is reported: others may be another tool's. `own` is a name without our prefix; without the
    prefix at all it is no variable of ours. An empty variable counts as not set.
    """
    known = {variable_of(key).removeprefix(PREFIX) for key in KEYS}
    found = []
    for name in environment:
        own = name.removeprefix(PREFIX)
        if own == name or own in known or not environment[name]:
            continue
        close = get_close_matches(own.upper(), sorted(known), n=1, cutoff=CLOSE)
        if close:
            message = f"the configuration has no such key: {name}"
            hint = f"did you mean {PREFIX}{close[0]}?"
            found.append(ScaffoldError(message, Location(name), hint))
    return tuple(found)


def _from_text(text: str, key: str, kind: Kind) -> Any:
    """Return a variable's text as the value the key would have in TOML: `"100"` -> 100 for a number, `"a, b"` -> a list.

    The kind is tried by a sample value (`kind.accepts(True)`: is it a switch?). Text of the wrong kind stays text: `check_value`
    rejects it later, with the other problems.
    """
    if key in PATHS:
        return text.split(os.pathsep)
    if kind.accepts(text):
        return text
    if kind.accepts(True):
        return SWITCHES.get(text.lower(), text)
    if kind.accepts(1):
        return int(text) if text.isdecimal() else text
    if kind.accepts([text]):
        return [item.strip() for item in text.split(",")]
    return _from_inline(text)


def _from_inline(text: str) -> Any:
    """Return a variable's table, or list of tables, from TOML's inline syntax: `{ N = 4 }`; any other text stays text."""
    from scaffold.spec.toml import parse_toml

    try:
        return parse_toml(f"value = {text}", "")["value"]
    except ScaffoldError:
        return text


# --- Configuration of a project: `[tool.scaffold]` of the nearest pyproject.toml, and the environment.


NOBODY: Mapping[str, str] = {}


def _default(key: str) -> Any:
    """Return the default of a key for `Configuration`: that of its row in `KEYS`, read as a user's value would be."""
    stated = Stated(KEYS[key].default, key, Problems(always_at("")), ".", "")
    return KEYS[key].read(stated)


class Configuration(NamedTuple):
    """The settings of a project: where files go, how they look, and the defaults of its ops. Paths are relative to `root`.

    A default with words of its own stands in `config_keys.KEYS` alone (`_default`).
    """

    root: str = "."  # the directory of the pyproject.toml read
    project: bool = False  # there is a [tool.scaffold]
    # from the tables of other tools
    installed: bool = False  # the project is built and installed before its tests
    pythonpath: tuple[str, ...] = ()  # directories pytest adds to the path
    prepends: bool = True  # pytest also adds the directory of a test
    single_line_imports: bool = False
    # the keys
    source: str = _default("source")
    tests: str | None = None  # None: beside the op
    package: str | None = None  # dotted import path of the source directory
    manifest: tuple[str, ...] = _default("manifest")  # with * and **
    style: Style = _default("style")
    namespace: str | None = None
    save_policy: SavePolicy = _default("save-policy")
    shape_checks: bool = True
    defaults: tuple[tuple[str, Any], ...] = ()  # keys of an op
    require: tuple[str, ...] = ()  # features of every op
    parameter_names: tuple[str, ...] = _default("parameter-names")
    conventions: tuple[Convention, ...] = _default("conventions")
    rules: tuple[RuleFile, ...] = ()  # the team's own tables
    names: Patterns = DEFAULT
    template_dirs: tuple[str, ...] = ()
    licence: str | None = None
    header: bool = True
    docstrings: Docstrings = _default("docstrings")
    typing: Typing = _default("typing")
    exports: bool = False
    formatter: Formatter = _default("formatter")
    line_length: int = LINE_LENGTH
    python: str | None = None  # the interpreter with torch
    testing: Testing = BESIDE
    lint: LintConfiguration = NOTHING_SAID


class Said(NamedTuple):
    """The value set for a key, unchecked, and the function that finds its place."""

    value: Any
    locate: Locate


class Sources(NamedTuple):
    """The keys set for a directory, unchecked, and the settings of other tools in the same file."""

    root: str
    shown: str  # the root in messages
    said: Mapping[str, Said]
    around: Surroundings
    places: Locate | None = None  # finds the place of any key of the file
    project: bool = False
    problems: tuple[ScaffoldError, ...] = ()


def load_configuration(
    start: Path, environment: Mapping[str, str] = NOBODY
) -> Configuration:
    """Return the configuration for a directory.

    It is read from the nearest pyproject.toml with a [tool.scaffold], from `start` upward; if
    there is none, line length and pytest's paths still come from the nearest pyproject.toml.
    Variables override the file.
    """
    return read_sources(find_sources(start, environment))


def find_sources(start: Path, environment: Mapping[str, str] = NOBODY) -> Sources:
    """Return the keys set by files from `start` upward and by variables, unchecked; misspelt variables are among its problems.

    Apart from `read_sources`, as callers also need the places of values.
    """
    found = _find_sources(start, environment)
    return found._replace(problems=(*found.problems, *misspelt(environment)))


def _find_sources(start: Path, environment: Mapping[str, str]) -> Sources:
    """Return the keys of the nearest pyproject.toml with a [tool.scaffold], at or above a directory; variables override it.

    Without one, the nearest pyproject.toml still tells other tools' settings. A file without the word "scaffold" is not parsed for ours.
    """
    variables = {key: Said(*said) for key, said in variables_of(environment).items()}
    nearest: Sources | None = None
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        if path.exists():
            shown = os.path.relpath(path, start)
            text = _read(path, shown)
            if "scaffold" in text:
                found = _sources(text, shown, str(directory), variables)
                if found is not None:
                    return found
            # Its settings of other tools count unless a file above has our table.
            if nearest is None:
                nearest = _around(text, shown, str(directory), variables)
    return nearest or Sources(".", "", variables, Surroundings())


def _read(path: Path, shown: str) -> str:
    """Return the text of a pyproject.toml; raise an error if it cannot be read."""
    try:
        return read_text(path, "utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read: {why_unread(error)}"
        raise ScaffoldError(message, Location(shown), NOT_TEXT) from None


def _around(text: str, path: str, root: str, variables: Mapping[str, Said]) -> Sources:
    """Return the settings of other tools, and the keys set by `variables`, for a file without our table; invalid TOML has none.

    The file is parsed only if it holds a word of such a setting, since parsing takes time at each start.
    """
    from scaffold.spec.toml import Places, parse_toml

    around = Surroundings()
    if any(word in text for word in ("line-length", "pytest", "force")):
        with suppress(ScaffoldError):
            around = read_surroundings(parse_toml(text, ""), root)
    # Our root is the present directory: the directory of that file is no project of ours.
    return Sources(".", "", variables, around, Places(text, path))


def read_configuration(text: str, path: str, root: str) -> Configuration | None:
    """Return the configuration in a pyproject.toml's text, for `scaffold init`, which changes the text; None without [tool.scaffold]."""
    found = _sources(text, path, root, {})
    return None if found is None else read_sources(found)


def _sources(
    text: str, path: str, root: str, variables: Mapping[str, Said]
) -> Sources | None:
    """Return the keys set in a `pyproject.toml`, overridden by variables; None if it has no [tool.scaffold].

    `path` is the file's in messages, `root` its directory. Raise for a file of invalid TOML, and for a `tool.scaffold` that is no
    table; unknown keys become problems of the result.
    """
    from scaffold.spec.toml import Places, parse_toml

    data = parse_toml(text, path)
    tool = table_of(data, "tool")
    if "scaffold" not in tool:
        return None
    places = Places(text, path, ("tool", "scaffold"))
    table = tool["scaffold"]
    if not isinstance(table, dict):
        raise ScaffoldError("'tool.scaffold' must be a table", places(()))
    said, problems = dict[str, Said](), Problems(places)
    for key, value in table.items():
        if key in KEYS:
            said[key] = Said(value, places)
        else:
            problems.unknown_key((key,), "[tool.scaffold]", KEYS)
    return Sources(
        root,
        os.path.dirname(path),
        {**said, **variables},
        read_surroundings(data, root),
        Places(text, path),
        project=True,
        problems=problems.found,
    )


def read_sources(sources: Sources) -> Configuration:
    """Return the configuration from its sources: each value checked against the kind of its key, then read; others by default.

    Raise all errors together, in the order of their places. Of other tools' settings those that are fields of it are copied; a
    key of ours goes before.
    """
    values, problems = {}, list(sources.problems)
    for key, said in sources.said.items():
        found = Problems(said.locate)
        row = KEYS[key]
        hint = f"write: {row.example}" if row.example else None
        if check_value((key,), said.value, row.kind, found, hint):
            stated = Stated(said.value, key, found, sources.root, sources.shown)
            values[key.replace("-", "_")] = row.read(stated)
        problems += found.found
    raise_all(sorted(problems, key=lambda item: item.location or Location("")))
    # `line_length_key`, for instance, is no field of `Configuration`.
    around = {
        name: value
        for name, value in sources.around._asdict().items()
        if name in Configuration._fields
    }
    return Configuration(sources.root, sources.project, **{**around, **values})


# --- The value of every key of the configuration, and its origin.
#
# In: a directory and variables. Out: a `Setting` for each key, in the order of the table of keys. Invariant: the
# values are those read by `load_configuration`.


BY_DEFAULT = "default"


class Setting(NamedTuple):
    """A key, its value in TOML form (None: not set), and its origin: a line of a file, a variable, `default`."""

    key: str
    value: Any
    origin: str


def load_settings(start: Path, environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return every key's setting for a directory, as `scaffold config` lists them; raise if any is invalid."""
    sources = find_sources(start, environment)
    read_sources(sources)  # for its errors alone
    return tuple(_setting(key, sources) for key in KEYS)


def _setting(key: str, sources: Sources) -> Setting:
    """Return the setting of a key and its origin; `line-length` may come from black's or ruff's table."""
    said = sources.said.get(key)
    if said is not None:
        return Setting(key, said.value, _shown(said.locate((key,), key=True)))
    around = sources.around
    # Of our keys this one alone may have its value from another tool's table.
    if key == "line-length" and around.line_length_key and sources.places:
        place = sources.places(around.line_length_key, key=True)
        return Setting(key, around.line_length, _shown(place))
    return Setting(key, KEYS[key].default, BY_DEFAULT)


def _shown(place: Location) -> str:
    """Return a place without its column, or the name of a variable."""
    if place.source.startswith(PREFIX):
        return place.source
    return f"{place.source}:{place.line}"
