"""Locations and style of an op's files: from the configuration, the options and the disk.

In: the configuration, `--out-dir`, `--test-dir` and `--template-dir`. Out: a root above both directories, `Directories` relative
to it; the templates, the head of each file, the formatter.
Invariant: options override the configuration. The same options and configuration give the same root, so a run finds the
remains of a killed one there.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.project.configuration import working_directory
from scaffold.project.console import from_here
from scaffold.render.file_style import PLAIN, House, header_line, licence_lines
from scaffold.render.formatting import Formatter, format_files
from scaffold.render.layout import Directories, OpTesting
from scaffold.render.templates import Templates, read_templates
from scaffold.spec import Configuration
from scaffold.spec.config import find_sources
from scaffold.spec.names import is_identifier
from scaffold.spec.testing_settings import FILE


class Places(NamedTuple):
    """The root of all written files, the directories below it, and the style of files."""

    root: Path
    directories: Directories
    house: House = PLAIN
    formatter: Formatter = format_files


def find_places(configuration: Configuration, settings: Mapping[str, Any]) -> Places:
    """Return the places of an op's files, by options (relative to here) and configuration (relative to its file); raise if one is unusable."""
    base = _absolute(configuration.root)
    problems: list[ScaffoldError] = []
    out_dir = _option("out-dir", settings, problems)
    test_dir = _option("test-dir", settings, problems)
    house = _attempt(lambda: find_house(configuration, settings), problems)
    raise_all(problems)
    assert house is not None  # or else there was a problem
    source = out_dir or _absolute(base / configuration.source)
    configured = None if out_dir or configuration.tests is None else configuration.tests
    tests = test_dir or (_absolute(base / configured) if configured else source)
    # An op elsewhere is none of the project's: it is in no manifest, and shares no module of tests.
    joins = configuration.project and out_dir is None and test_dir is None
    root = _root(base, source, tests, moves=not joins)
    # With `exports`, this run makes the directory a package, if it is not one yet.
    will_be = configuration.exports and out_dir is None and source != base
    package = _configured_package(configuration, base, source)
    top = base if configuration.project else None
    package = package or _package(source, will_be, top)
    if configuration.exports and joins:
        _check_exports(configuration, source, package)
    directories = Directories(
        source=_below(source, root),
        tests=_below(tests, root),
        package=package,
        importable=_is_importable(configuration, base, source, package),
        beside=configuration.prepends
        and _start(source, package) == _start(source, _package(source, will_be)),
        line_length=configuration.line_length,
        patterns=configuration.names,
        op_testing=(
            _op_testing(configuration, root, source, tests, package) if joins else None
        ),
    )
    return Places(root, directories, house, find_formatter(configuration, root))


def _attempt(find: Callable[[], House], problems: list[ScaffoldError]) -> House | None:
    """Return the style of files; None if it cannot be found, with the error added to `problems`."""
    try:
        return find()
    except ScaffoldError as error:
        problems.append(error)
        return None


def refuse_sources(root: Path, paths: Iterable[str], reads: Iterable[str]) -> None:
    """Raise if a written file is a formula's own file; `paths` are relative to the root, `reads` to here."""
    sources = {os.path.realpath(path) for path in reads}
    hint = "write the op elsewhere: --out-dir ops; or rename the op or the file"
    raise_all(
        [
            ScaffoldError(
                "the op's file would overwrite the file of its formula", place, hint
            )
            for path in paths
            if os.path.realpath(root / path) in sources
            for place in (Location(from_here(root, path)),)
        ]
    )


def _option(
    key: str, settings: Mapping[str, Any], problems: list[ScaffoldError]
) -> Path | None:
    """Return the directory given by an option, perhaps not made yet; None without the option, or, with a problem added, if it is no directory."""
    value = settings.get(key)
    if value is None:
        return None
    if not value or "\0" in value:
        problems.append(ScaffoldError(f"'{value}' is not a path", Location(f"--{key}")))
        return None
    path = _absolute(value)
    if path.exists() and not path.is_dir():
        message = f"'{value}' is not a directory"
        hint = f"name the directory of the files: --{key} ops"
        problems.append(ScaffoldError(message, Location(f"--{key}"), hint))
    return path


def _absolute(path: str | Path) -> Path:
    return Path(os.path.abspath(path))


def _check_exports(
    configuration: Configuration, source: Path, package: str | None
) -> None:
    """Raise ScaffoldError if `exports` is on but the directory is no package: its `__init__.py` has no path to import ops by."""
    if package is not None or (source / "__init__.py").exists():
        return
    message = f"'exports' is on, but '{configuration.source}' is not a package"
    said = find_sources(working_directory(), os.environ).said["exports"]
    place = said.locate(("exports",), key=True)
    raise ScaffoldError(message, place, "give ops a directory: source = 'ops'")


def _root(base: Path, source: Path, tests: Path, *, moves: bool) -> Path:
    """Return the directory all paths are relative to, with the run's journal: the project's, or else the common parent of both directories.

    Outside a project (`moves`) it has to be writable; a project keeps its manifest and records in it.
    """
    inside = source.is_relative_to(base) and tests.is_relative_to(base)
    if inside and (not moves or os.access(base, os.W_OK)):
        return base
    root = Path(os.path.commonpath([source, tests]))
    while not root.is_dir():
        root = root.parent
    return root


def _below(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()


def _configured_package(
    configuration: Configuration, base: Path, source: Path
) -> str | None:
    """Return the import path of `source` by the configuration's `package`; None if it has none, or `source` lies elsewhere."""
    top = _absolute(base / configuration.source)
    if configuration.package is None or not source.is_relative_to(top):
        return None
    parts = source.relative_to(top).parts
    if not all(is_identifier(part) for part in parts):
        return None
    return ".".join([configuration.package, *parts])


def _package(directory: Path, will_be: bool, top: Path | None = None) -> str | None:
    """Return the import path of a directory by the `__init__.py` files of it and its parents; None if it is no package.

    `will_be`: it gets an `__init__.py` by this run. The path starts below `top`, the project, so that the name of a checkout is not part of it.
    """
    names: list[str] = []
    will_be = will_be and is_identifier(directory.name)
    while directory.parent != directory and directory != top:
        if not (directory / "__init__.py").is_file() and not (will_be and not names):
            break
        names.insert(0, directory.name)
        directory = directory.parent
    return ".".join(names) or None


def _is_importable(
    configuration: Configuration, base: Path, source: Path, package: str | None
) -> bool:
    """Return whether tests can import the op without our help: its package is installed, or on the configured pythonpath of pytest."""
    if configuration.installed and package and source.is_relative_to(base):
        return True
    return str(_start(source, package)) in configuration.pythonpath


def _start(source: Path, package: str | None) -> Path:
    """Return the directory above a package, the first to search for its import; `source` itself if it is no package."""
    for _ in package.split(".") if package else ():
        source = source.parent
    return source


def _op_testing(
    configuration: Configuration,
    root: Path,
    source: Path,
    tests: Path,
    package: str | None,
) -> OpTesting:
    """Return the place of the shared test module, and the needs of a test importing it; `package` is the ops' own.

    It stands where the configuration says, else in the directory of the tests. Beside the ops it is imported as they are. pytest
    with `prepend` puts the directory of a test file on the path: that helps if the import starts there (`beside`).
    """
    base = _absolute(configuration.root)
    named = configuration.testing.file
    path = base / named if named else tests / FILE
    beside_ops = path.parent == source
    inside = package if beside_ops else _package(path.parent, False, base)
    start = _start(path.parent, inside)
    will_be = configuration.exports and tests == source != base
    runs_from = _start(tests, _package(tests, will_be))
    found = (
        _is_importable(configuration, base, source, package)
        if beside_ops
        else str(start) in configuration.pythonpath
    )
    return OpTesting(
        module=f"{inside}.{path.stem}" if inside else path.stem,
        path=_below(path, root),
        start=None if found else _below(start, root),
        beside=configuration.prepends and start == runs_from,
    )


TEMPLATE_DIR = "--template-dir"


def find_house(configuration: Configuration, settings: Mapping[str, Any]) -> House:
    """Return the style of files by configuration and options; `headed` adds the manifest's header."""
    return House(
        templates=find_templates(configuration, settings),
        licence=licence_lines(configuration.licence or ""),
        docstrings=configuration.docstrings,
        single_line_imports=configuration.single_line_imports,
    )


def headed(house: House, configuration: Configuration, manifest: str) -> House:
    """Return the style for an op in this manifest: unless the configuration forbids it, the header of the files names the manifest."""
    return (
        house._replace(header=header_line(manifest)) if configuration.header else house
    )


def find_templates(
    configuration: Configuration, settings: Mapping[str, Any]
) -> Templates:
    """Return the templates in effect: the option's, the configuration's, and ours, of one name the first in this order."""
    configured = configured_directories(configuration)
    missing = [
        position for position, path in enumerate(configured) if not path.is_dir()
    ]
    raise_all([_missing(configuration, position) for position in missing])
    place = Location(Path(configuration.root, "pyproject.toml").as_posix())
    given = settings.get(TEMPLATE_DIR.removeprefix("--"), ())
    options = [(Path(item), Location(TEMPLATE_DIR)) for item in given]
    return read_templates([*options, *((path, place) for path in configured)])


def configured_directories(configuration: Configuration) -> tuple[Path, ...]:
    """Return the team's template directories, by priority; they may not exist yet."""
    root = Path(configuration.root)
    return tuple(root / item for item in configuration.template_dirs)


def _missing(configuration: Configuration, position: int) -> ScaffoldError:
    """Return the error for a missing template directory, at its place in the configuration."""
    said = find_sources(working_directory(), os.environ).said["template-dirs"]
    place = said.locate(("template-dirs", str(position)))
    message = f"'{configuration.template_dirs[position]}' is not a directory"
    shown = os.path.relpath(configured_directories(configuration)[position])
    hint = f"scaffold templates eject op --template-dir {shlex.quote(shown)}"
    return ScaffoldError(message, place, hint)


def find_formatter(configuration: Configuration, root: Path) -> Formatter:
    """Return the function to format the project's files: black's, or a run of the project's ruff."""
    if configuration.formatter == "black":
        return format_files
    from functools import partial

    from scaffold.verify.external_tools import format_with_ruff

    return partial(format_with_ruff, root=root)
