"""`scaffold init`: start a project: configuration, empty manifest, schema for editors, CI job.

Words: the *places* of a project are the directories of its ops and tests, and the package that imports them; *said* are the values
to be written, `given` those typed as options; the *manifest* is the TOML file with the tables of all ops.

In: a directory and options. Out: files, through a plan.
Invariant: existing content stays: a key is never changed, and the rest of a pyproject.toml keeps its text, comments too. With the
addition the configuration loads. A second run changes nothing. Only names of files are read from the tree.
"""

import os
import posixpath
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from scaffold.cli.options import (
    DIFF,
    DRY_RUN,
    FORMAT,
    ON_CONFLICT,
    check_choice,
    check_format,
    completing,
)
from scaffold.cli.output import TERMINAL, Showing, show_next, tell
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import NOT_TEXT, read_bytes
from scaffold.project.writing import Known, look, undisturbed, write_once
from scaffold.spec import Configuration
from scaffold.spec.config import (
    Said,
    Sources,
    find_sources,
    read_configuration,
    read_sources,
)
from scaffold.spec.json_schema import schema_text
from scaffold.spec.names import is_identifier
from scaffold.spec.other_tools import Surroundings, table_of
from scaffold.spec.problems import always_at
from scaffold.spec.toml import Places, parse_toml, toml_text
from scaffold.version import __version__
from scaffold.workspace.conflicts import POLICIES
from scaffold.workspace.records import DIRECTORY as STATE

if TYPE_CHECKING:
    from scaffold.project.writing import Settled


CI = ("github", "none")
DIRECTORY = Annotated[
    str, typer.Argument(metavar="DIR", help="The project (default: here).")
]
SOURCE = Annotated[
    str | None,
    typer.Option(
        "--source", help="Where ops go (default: from the tree).", metavar="DIR"
    ),
]
TESTS = Annotated[
    str | None,
    typer.Option(
        "--tests", help="Where tests go (default: from the tree).", metavar="DIR"
    ),
]
PACKAGE = Annotated[
    str | None,
    typer.Option(
        "--package",
        help="The import path of the source (default: from the tree).",
        metavar="NAME",
    ),
]
SYSTEM = Annotated[
    str | None,
    typer.Option(
        "--ci",
        help="github or none (default: github if there is a .github).",
        metavar="SYSTEM",
        autocompletion=completing(CI),
    ),
]


def init(
    directory: DIRECTORY = ".",
    source: SOURCE = None,
    tests: TESTS = None,
    package: PACKAGE = None,
    ci: SYSTEM = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    format_: FORMAT = "text",
) -> None:
    """Make a directory a project.

    It gets a [tool.scaffold] in pyproject.toml, an empty manifest of ops, its JSON Schema and, with --ci, a job for CI.
    Existing files are kept.

    Example: scaffold init --source src/myops --tests tests
    """
    stated = {"source": source, "tests": tests, "package": package}
    given = {key: value for key, value in stated.items() if value is not None}
    check_format(format_)
    raise_all(_problems(directory, on_conflict, ci))
    root = Path(os.path.abspath(directory))
    settle = look if dry_run or diff else write_once

    def attempt() -> "tuple[Start, Settled]":
        """Read the directory and write, or plan; it is repeated if a file changes in between."""
        start = start_project(root, given, ci)
        known = Known(start.changed, start.kept, start.reads)
        return start, settle(start.files, root, on_conflict, known, TERMINAL)  # type: ignore[arg-type]

    start, settled = undisturbed(attempt)
    tell(settled, Showing(diff=diff, format_=format_), start.notes)
    if settled.written and settled.plan.writes and format_ == "text":
        show_next(_next_commands(directory))


def _next_commands(directory: str) -> tuple[str, ...]:
    """Return the commands to type next in the new project, each with `cd` if it is not here."""
    there = f"cd {shlex.quote(directory)} && " if directory != "." else ""
    return (
        f"{there}scaffold new-op swish --inputs x --forward 'x * torch.sigmoid(x)'",
        "scaffold check   # in CI: the files are what the manifest says",
        "scaffold verify  # runs the tests of the ops",
    )


def _problems(directory: str, policy: str, ci: str | None) -> list[ScaffoldError]:
    """Return the problems of the arguments: unknown words, no such directory."""
    found = check_choice("--on-conflict", policy, POLICIES)
    if ci is not None:
        found += check_choice("--ci", ci, CI)
    if not os.path.isdir(directory):
        message = f"'{directory}' is not a directory"
        hint = None
        if not os.path.exists(directory):
            hint = f"make it first: mkdir -p {shlex.quote(directory)}"
        found.append(ScaffoldError(message, Location("DIR"), hint))
    return found


PROJECT = "pyproject.toml"
SCHEMA = "scaffold.schema.json"
WORKFLOW = ".github/workflows/scaffold.yml"
ATTRIBUTES = ".gitattributes"
RECORDS = f"/{STATE}/*.json linguist-generated -diff"  # reviews fold them up
WILD = frozenset("*?[")
MARK = "\ufeff"  # a byte-order mark, which some editors write first

JOB = """\
name: scaffold
on: [push, pull_request]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      # Until torch-scaffold is on PyPI: pip install 'git+https://HOST/OWNER/scaffold', where you keep it.
      - run: pip install 'torch-scaffold~={version}'
      - run: scaffold check --format github
      - run: scaffold lint --format github
      # The tests of the ops need PyTorch, and what your package needs: pip install -e .
      - run: pip install torch --index-url https://download.pytorch.org/whl/cpu
      - run: pip install pytest numpy
      - run: scaffold verify
"""
UNPUBLISHED = (
    "torch-scaffold is not on PyPI yet: say where you keep it, for pip to install, in"
)


class Start(NamedTuple):
    """The files to begin a project with."""

    files: dict[str, str]
    changed: tuple[str, ...]  # the user's files to append to
    kept: tuple[str, ...]  # files left as they are
    notes: tuple[str, ...]
    reads: dict[str, bytes | None]  # the files to append to, as read


def start_project(directory: Path, given: Mapping[str, str], ci: str | None) -> Start:
    """Return the files of a new project, or of one to complete.

    `given` are keys of the configuration; `ci` is "github", "none", or None for github if there is a .github. Raise a ScaffoldError if the
    configuration cannot be written, or says otherwise already.
    """
    reads = {name: _read(directory / name) for name in (PROJECT, ATTRIBUTES)}
    before = _text(reads[PROJECT], PROJECT)
    tables = parse_toml(before.removeprefix(MARK), PROJECT)
    table = table_of(tables, "tool").get("scaffold")
    there = table is not None
    name = table_of(tables, "project").get("name")
    said = guess_places(directory, name if isinstance(name, str) else None, given)
    _check(said, directory)
    notes = () if there else check_above(directory, own=(directory / PROJECT).exists())
    after = before if there else _with_table(before, said)
    configuration = _configuration(after, directory)
    # An existing table is not changed, so the options have to agree with it.
    if table is not None:
        _check_given(before.removeprefix(MARK), given, table)
    manifest = _manifest(configuration)
    files = {PROJECT: after}
    if manifest is not None:
        files[manifest] = _empty_manifest(manifest)
    files[SCHEMA] = schema_text()
    if ci == "github" or ci is None and (directory / ".github").is_dir():
        files[WORKFLOW] = JOB.format(version=__version__)
        if not (directory / WORKFLOW).exists():
            notes = (*notes, f"{UNPUBLISHED} '{WORKFLOW}'")
    if _in_git(directory):
        files[ATTRIBUTES] = _with_records(_text(reads[ATTRIBUTES], ATTRIBUTES))
    # It may list ops already.
    kept = (manifest,) if manifest and (directory / manifest).exists() else ()
    if there:
        notes = (*notes, f"'{PROJECT}' has a [tool.scaffold], which stays as it is")
    # Said when the project begins: until then tests cannot import the package.
    elif configuration.installed and configuration.package:
        said_of = f"tests import '{configuration.package}' as it is installed"
        notes = (*notes, f"{said_of}: pip install -e . before they run")
    return Start(files, (PROJECT, ATTRIBUTES), kept, notes, reads)


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file, None if there is none; raise ScaffoldError if it cannot be read."""
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ScaffoldError(message, Location(path.name), NOT_TEXT) from None


def _text(data: bytes | None, name: str) -> str:
    """Return the text of a file's bytes, "" for None; raise ScaffoldError unless it is UTF-8."""
    try:
        return (data or b"").decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        message = "cannot be read: not UTF-8"
        raise ScaffoldError(message, Location(name), NOT_TEXT) from None


def _in_git(directory: Path) -> bool:
    """Return whether the directory is inside a git repository."""
    above = (directory, *directory.parents)
    return any((place / ".git").exists() for place in above)


def _with_records(before: str) -> str:
    """Return the text of .gitattributes with a line that folds the records of .scaffold/ in reviews; as it is if it has one."""
    if RECORDS in before.splitlines():
        return before
    return f"{before.rstrip()}\n{RECORDS}\n".lstrip()


def _check(said: Mapping[str, str], directory: Path) -> None:
    """Raise the errors that these values would give in a configuration, each at its option, before they are written."""
    stated = {key: Said(value, always_at(f"--{key}")) for key, value in said.items()}
    read_sources(Sources(str(directory), "", stated, Surroundings()))


def _with_table(before: str, said: Mapping[str, str]) -> str:
    """Return the text of pyproject.toml with a [tool.scaffold] of these keys at its end."""
    lines = [f"{key} = {toml_text(value)}\n" for key, value in said.items()]
    table = f"[tool.scaffold]\n{''.join(lines)}"
    # An empty file gets no blank line above the table.
    if not before.removeprefix(MARK).strip():
        return before + table
    return f"{before.rstrip()}\n\n{table}"


def _configuration(text: str, directory: Path) -> Configuration:
    """Return the configuration a new text of pyproject.toml gives.

    Raise ScaffoldError if the text is no TOML: a `tool = {...}` in one line admits no further table.
    """
    plain = text.removeprefix(MARK)
    try:
        parse_toml(plain, PROJECT)
    except ScaffoldError:
        # The text was valid TOML before the table was added: so `tool` itself is in the way.
        place = Places(plain, PROJECT)(("tool",), key=True)
        message = "no [tool.scaffold] can be added: 'tool' is written in one line"
        hint = "write each of its tables as [tool.NAME]"
        raise ScaffoldError(message, place, hint) from None
    found = read_configuration(plain, PROJECT, str(directory))
    assert found is not None  # it has the table
    return found


def _manifest(configuration: Configuration) -> str | None:
    """Return the configured manifest for new ops, the first path without a wildcard; None if all have one."""
    plain = (path for path in configuration.manifest if not WILD & set(path))
    return next(plain, None)


def _empty_manifest(path: str) -> str:
    """Return a manifest without ops; its first line names the schema for editors."""
    schema = posixpath.relpath(SCHEMA, posixpath.dirname(path) or ".")
    schema = schema if schema.startswith(".") else f"./{schema}"
    return f"#:schema {schema}\n# An op is a table, [ops.NAME]; `scaffold new-op NAME` adds one.\n"


def check_above(directory: Path, *, own: bool) -> tuple[str, ...]:
    """Return a note if a project in a directory above contains this one; raise ScaffoldError unless it has its `own` pyproject.toml.

    The nearest pyproject.toml counts: without one here, ops would go on to belong to the project above.
    """
    found = None
    with suppress(ScaffoldError):  # a broken file above contains nothing
        found = find_sources(directory.parent)
    if found is None or not found.project or found.places is None:
        return ()
    shown = Path(os.path.relpath(Path(found.root, "pyproject.toml"))).as_posix()
    here = Path(os.path.relpath(directory, found.root)).as_posix()
    if own:
        return (f"'{here}' is no longer part of the project of '{shown}'",)
    place = found.places(("tool", "scaffold"), key=True)
    raise ScaffoldError(
        f"'{here}' is part of this project already; nothing was written",
        replace(place, source=shown),
        "use it from there; or write a pyproject.toml there first, for a project of its own",
    )


def _check_given(text: str, given: Mapping[str, str], table: Mapping[str, Any]) -> None:
    """Raise ScaffoldError for options (`given`) contradicting an existing [tool.scaffold]: it is never changed.

    `text` is the pyproject.toml, `table` the values in it.
    """
    places = Places(text, PROJECT, ("tool", "scaffold"))
    raise_all(
        [
            ScaffoldError(
                f"--{key} is {value!r}, but [tool.scaffold] has another value, or none",
                places((key,)),
                f"edit it: {key} = {toml_text(value)}",
            )
            for key, value in given.items()
            if not _same(value, table.get(key))
        ]
    )


def _same(one: str, other: Any) -> bool:
    """Return whether two values of a key are the same directory or package."""
    return isinstance(other, str) and posixpath.normpath(one) == posixpath.normpath(
        other
    )


# Names of packages that a project has beside the one it ships.
BESIDE = frozenset(
    {"benchmarks", "build", "dist", "docs", "examples", "scripts", "test", "tests"}
)


def guess_places(
    directory: Path, project: str | None, given: Mapping[str, str]
) -> dict[str, str]:
    """Return the keys "source", "tests" and "package" of the configuration as given, or by the directories there.

    A key without a likely value is left out. `project` is the name in pyproject.toml.
    """
    found = dict(given)
    package = _package(directory, project)
    if "source" not in found and package is not None:
        below = package / "ops"
        found["source"] = str(below if (directory / below).is_dir() else package)
    dotted = _dotted(directory, found.get("source"))
    if "package" not in found and dotted:
        found["package"] = dotted
    tests = _tests(directory, package is not None)
    if "tests" not in found and tests:
        found["tests"] = tests
    return {key: found[key] for key in ("source", "tests", "package") if key in found}


def _package(directory: Path, project: str | None) -> PurePosixPath | None:
    """Return the directory of the project's package, in `src` or here: the one with its name, else the only one; None if unclear."""
    for top in ("src", "."):
        found = _packages(directory / top)
        named = re.sub(r"[-.]+", "_", project or "")
        # `my-ops` in pyproject.toml is the package `my_ops`.
        chosen = named if named in found else found[0] if len(found) == 1 else None
        if chosen is not None:
            return PurePosixPath(top, chosen)
    return None


def _packages(directory: Path) -> list[str]:
    """Return the names of a directory's packages, sorted, without such usual ones as `tests`."""
    if not directory.is_dir():
        return []
    return sorted(
        path.name
        for path in directory.iterdir()
        if (path / "__init__.py").is_file()
        and is_identifier(path.name)
        and path.name not in BESIDE
    )


def _dotted(directory: Path, source: str | None) -> str | None:
    """Return the import path of the source directory, `a.b` for `src/a/b` or for a package's `a/b`; None outside both."""
    parts = PurePosixPath(source or ".").parts
    # `src` is on Python's path, and no part of an import.
    if parts[:1] == ("src",):
        parts = parts[1:]
    elif not parts or not (directory / parts[0] / "__init__.py").is_file():
        return None
    return ".".join(parts) if all(map(is_identifier, parts)) else None


def _tests(directory: Path, packaged: bool) -> str | None:
    """Return the existing directory of tests, else "tests" for a package; None if neither applies."""
    there = (name for name in ("tests", "test") if (directory / name).is_dir())
    return next(there, "tests" if packaged else None)
