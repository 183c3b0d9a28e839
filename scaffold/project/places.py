"""Locations and style of an op's files: from the configuration, the options and the disk.

The first step of every command that renders: a path decides the imports in the op's file and test, so it is needed before any text.
In: the configuration, `--out-dir`, `--test-dir` and `--template-dir`. Out: a root above both directories, `Directories` relative
to it; the templates, the head of each file, the formatter.
Invariant: options override the configuration. The same options and configuration give the same root, so a run finds the
remains of a killed one there.

Words: the *root* is the directory all paths are below; the *base* is that of the pyproject.toml; *source* and *tests* are the directories of
the op's file and its test; a *package* is a dotted import path, `my.ops`, None for a directory outside any package; an import *starts* at
the directory above its first package; an op *joins* the project if it goes into the configured directories; *beside*: a test can
import it without help, since pytest (`prepends`, its import mode) puts the start of the test's own package on the path.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
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
    directories: Directories  # with the packages, and how tests import the op
    house: House = PLAIN  # templates, licence lines, header
    formatter: Formatter = format_files


def find_places(configuration: Configuration, settings: Mapping[str, Any]) -> Places:
    """Return the places of an op's files, by options (relative to here) and configuration (relative to its file).

    `settings` has the options `out-dir`, `test-dir` and `template-dir`, if given. Raise ScaffoldError for each unusable one.
    """
    base = _absolute(configuration.root)
    problems: list[ScaffoldError] = []
    out_dir = _option("out-dir", settings, problems)
    test_dir = _option("test-dir", settings, problems)
    house = _attempt(lambda: find_house(configuration, settings), problems)
    raise_all(problems)
    assert house is not None  # or else there was a problem
    source = out_dir or _absolute(base / configuration.source)
    # With --out-dir the test goes beside the op, not into the project's tests.
    configured = None if out_dir or configuration.tests is None else configuration.tests
    tests = test_dir or (_absolute(base / configured) if configured else source)
    # An op elsewhere is none of the project's: it is in no manifest, and shares no module of tests.
    joins = configuration.project and out_dir is None and test_dir is None
    root = _root(base, source, tests, moves=not joins)
    # With `exports`, this run makes the directory a package, if it is not one yet; never the base itself.
    will_be = configuration.exports and out_dir is None and source != base
    package = _configured_package(configuration, base, source)
    top = base if configuration.project else None  # without one all parents count
    package = package or _package(source, will_be, top)
    if configuration.exports and joins:
        _check_exports(configuration, source, package)
    directories = Directories(
        source=_below(source, root),
        tests=_below(tests, root),
        package=package,
        importable=_is_importable(configuration, base, source, package),
        # pytest knows no base: it goes up through all directories with an `__init__.py`.
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
    """Return the style of files by `find`; None if it raises, with the error added to `problems`, to be raised with others."""
    try:
        return find()
    except ScaffoldError as error:
        problems.append(error)
        return None


def refuse_sources(root: Path, paths: Iterable[str], reads: Iterable[str]) -> None:
    """Raise ScaffoldError if a file to be written is one a formula was read from: `--forward @swish.py:f` for the op swish.

    `paths` are to be written, relative to the root; `reads` were read, relative to here.
    """
    sources = {os.path.realpath(path) for path in reads}
    message = "the op's file would overwrite the file of its formula"
    hint = "write the op elsewhere: --out-dir ops; or rename the op or the file"
    raise_all(
        [
            ScaffoldError(message, Location(from_here(root, path)), hint)
            for path in paths
            if os.path.realpath(root / path) in sources
        ]
    )


def _option(
    key: str, settings: Mapping[str, Any], problems: list[ScaffoldError]
) -> Path | None:
    """Return the directory given by an option, perhaps not made yet; None without the option, or for a text that is no path.

    `problems` gets an error for such a text, and for an existing file that is no directory.
    """
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
    """Raise ScaffoldError if `exports` is on but the directory of ops, `source`, is no package: an `__init__.py` cannot export from it.

    `package` is its import path, None if it has none.
    """
    if package is not None or (source / "__init__.py").exists():
        return
    message = f"'exports' is on, but '{configuration.source}' is not a package"
    said = find_sources(working_directory(), os.environ).said["exports"]
    place = said.locate(("exports",), key=True)
    raise ScaffoldError(message, place, "give ops a directory: source = 'ops'")


def _root(base: Path, source: Path, tests: Path, *, moves: bool) -> Path:
    """Return the directory all paths are relative to; the journal of a run, to undo it if killed, is kept there too.

    It is the base, if both directories lie in it, else their nearest common parent that exists. `moves`: an op outside a project
    may have another root if the base is not writable; a project keeps its manifest and records in the base.
    """
    inside = source.is_relative_to(base) and tests.is_relative_to(base)
    if inside and (not moves or os.access(base, os.W_OK)):
        return base
    root = Path(os.path.commonpath([source, tests]))
    # The directories may have to be made; the journal needs one that exists.
    while not root.is_dir():
        root = root.parent
    return root


def _below(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()


def _configured_package(
    configuration: Configuration, base: Path, source: Path
) -> str | None:
    """Return the import path of `source` by the configuration's `package`; None if it has none, or `source` lies elsewhere.

    With `source = "src/my"` and `package = "my"`, the directory src/my/norms of `--out-dir` is `my.norms`.
    """
    top = _absolute(base / configuration.source)
    if configuration.package is None or not source.is_relative_to(top):
        return None
    parts = source.relative_to(top).parts
    if not all(is_identifier(part) for part in parts):
        return None
    return ".".join([configuration.package, *parts])


def _package(directory: Path, will_be: bool, top: Path | None = None) -> str | None:
    """Return the import path of a directory by the `__init__.py` files of it and its parents; None if it is no package.

    `will_be`: it gets an `__init__.py` by this run. The path starts below `top`, the project's base: a checkout may have any
    name, even one with an `__init__.py` in it.
    """
    names: list[str] = []
    # A directory `my-ops` cannot be imported, whatever is in it.
    will_be = will_be and is_identifier(directory.name)
    while directory.parent != directory and directory != top:
        gets_one = will_be and not names  # the given directory alone gets a file
        if not (gets_one or (directory / "__init__.py").is_file()):
            break
        names.insert(0, directory.name)
        directory = directory.parent
    return ".".join(names) or None


def _is_importable(
    configuration: Configuration, base: Path, source: Path, package: str | None
) -> bool:
    """Return whether tests can import the op as they are: its package is installed, or on the configured pythonpath of pytest.

    If not, a generated test adds the directory to `sys.path`.
    """
    # Only the project's own package is known to be installed, none of another directory.
    if configuration.installed and package and source.is_relative_to(base):
        return True
    return str(_start(source, package)) in configuration.pythonpath


def _start(source: Path, package: str | None) -> Path:
    """Return the directory an import of the package at `source` starts from: for src/my/ops as `my.ops`, src; without a package, `source`."""
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
    """Return the place of `op_testing`, the module shared by all tests of a project, and what a test needs to import it.

    It stands where the configuration says, else in the directory of the tests. In the ops' directory it is imported as they are, from
    their `package`. Otherwise its import needs no help if it starts on pytest's pythonpath (then `start` is None), or where that of
    the test starts (`beside`); else a test adds `start` to `sys.path`.
    """
    base = _absolute(configuration.root)
    named = configuration.testing.file
    path = base / named if named else tests / FILE
    beside_ops = path.parent == source
    its_package = package if beside_ops else _package(path.parent, False, base)
    start = _start(path.parent, its_package)
    will_be = configuration.exports and tests == source != base
    # As pytest sees it: without a base.
    test_start = _start(tests, _package(tests, will_be))
    importable = (
        _is_importable(configuration, base, source, package)
        if beside_ops
        else str(start) in configuration.pythonpath
    )
    return OpTesting(
        module=f"{its_package}.{path.stem}" if its_package else path.stem,
        path=_below(path, root),
        start=None if importable else _below(start, root),
        beside=configuration.prepends and start == test_start,
    )


TEMPLATE_DIR = "--template-dir"


def find_house(configuration: Configuration, settings: Mapping[str, Any]) -> House:
    """Return the style of files by configuration and options: templates, licence, docstrings; `headed` adds the manifest's header."""
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
    """Return the templates in effect: of one file name the option's, else the configuration's, else ours.

    Raise ScaffoldError for each configured directory that is missing, and for an invalid template.
    """
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
    """Return the error for a missing template directory, the one at this position of `template-dirs`, at its place in the configuration."""
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
    from scaffold.verify.external_tools import format_with_ruff

    return partial(format_with_ruff, root=root)
