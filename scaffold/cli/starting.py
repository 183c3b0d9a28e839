"""What a project begins with: its configuration, an empty manifest, the schema for editors, a job for CI, how git shows the records.

In: the project's directory and what the options say. Out: a `Start`: texts by path; nothing is written.
Invariant: with what is added, the pyproject.toml is a configuration that loads; the rest of it stays as it is.
"""

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scaffold import __version__
from scaffold.cli.around import check_above, with_keys
from scaffold.cli.guessing import guess_places
from scaffold.cli.schema import schema_text
from scaffold.errors import Location, ScaffoldError
from scaffold.files import read_bytes
from scaffold.spec import Configuration
from scaffold.spec.config import Said, Sources, read_configuration, read_sources
from scaffold.spec.problems import KeyPath, Locate
from scaffold.spec.surroundings import Surroundings, table_of
from scaffold.spec.toml import Places, parse_toml, toml_text
from scaffold.workspace.records import DIRECTORY

PROJECT = "pyproject.toml"
SCHEMA = "scaffold.schema.json"
WORKFLOW = ".github/workflows/scaffold.yml"
ATTRIBUTES = ".gitattributes"
RECORDS = f"/{DIRECTORY}/*.json linguist-generated -diff"  # reviews fold them up
WILD = frozenset("*?[")
MARK = "\ufeff"

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
      - run: pip install 'torch-scaffold~={version}'
      - run: scaffold check --format github
      - run: scaffold lint --format github
"""


class Start(NamedTuple):
    """The files that a project begins with."""

    files: dict[str, str]
    changed: tuple[str, ...]  # files of the user's that get an addition
    kept: tuple[str, ...]  # files that stay whatever they hold
    notes: tuple[str, ...]
    reads: dict[str, bytes | None]  # the files that get an addition, as they were read


def start_project(directory: Path, given: Mapping[str, str], ci: str | None) -> Start:
    """The files; `given` are keys of the configuration."""
    reads = {name: _read(directory / name) for name in (PROJECT, ATTRIBUTES)}
    before = _text(reads[PROJECT], PROJECT)
    tables = parse_toml(before.removeprefix(MARK), PROJECT)
    there = "scaffold" in table_of(tables, "tool")
    name = table_of(tables, "project").get("name")
    said = guess_places(directory, name if isinstance(name, str) else None, given)
    _check(said, directory)
    notes = () if there else check_above(directory, own=(directory / PROJECT).exists())
    after = (
        _with_given(before, given, directory) if there else _with_table(before, said)
    )
    configuration = _configuration(after, directory)
    manifest = _manifest(configuration)
    files = {PROJECT: after}
    if manifest is not None:
        files[manifest] = _empty_manifest(manifest)
    files[SCHEMA] = schema_text()
    if (ci or _usual_ci(directory)) == "github":
        files[WORKFLOW] = JOB.format(version=__version__)
    if _in_git(directory):
        files[ATTRIBUTES] = _with_records(_text(reads[ATTRIBUTES], ATTRIBUTES))
    kept = (manifest,) if manifest and (directory / manifest).exists() else ()
    if there:
        becomes = "stays as it is" if after == before else "gets what it lacks"
        notes = (f"'{PROJECT}' has a [tool.scaffold], which {becomes}",)
    return Start(files, (PROJECT, ATTRIBUTES), kept, notes, reads)


def _read(path: Path) -> bytes | None:
    try:
        return read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ScaffoldError(message, Location(path.name)) from None


def _text(data: bytes | None, name: str) -> str:
    try:
        return (data or b"").decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        message = "cannot be read: not UTF-8"
        raise ScaffoldError(message, Location(name)) from None


def _in_git(directory: Path) -> bool:
    above = (directory, *directory.parents)
    return any((place / ".git").exists() for place in above)


def _with_records(before: str) -> str:
    """The attributes of the files in git, with those of the records at the end, unless they stand there."""
    if RECORDS in before.splitlines():
        return before
    return f"{before.rstrip()}\n{RECORDS}\n".lstrip()


def _check(said: Mapping[str, str], directory: Path) -> None:
    """Refuse what the configuration would refuse, at the option that says it."""
    stated = {key: Said(value, _option(key)) for key, value in said.items()}
    read_sources(Sources(str(directory), "", stated, Surroundings()))


def _option(name: str) -> Locate:
    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location(f"--{name}")

    return locate


def _with_given(before: str, given: Mapping[str, str], directory: Path) -> str:
    """The file with the keys that options name in the table that it has."""
    plain = before.removeprefix(MARK)
    # What is wrong with the table is said before anything is added to it.
    read_configuration(plain, PROJECT, str(directory))
    return before[: len(before) - len(plain)] + with_keys(plain, given, PROJECT)


def _with_table(before: str, said: Mapping[str, str]) -> str:
    """The file with a [tool.scaffold] at its end."""
    lines = [f"{key} = {toml_text(value)}\n" for key, value in said.items()]
    table = f"[tool.scaffold]\n{''.join(lines)}"
    if not before.removeprefix(MARK).strip():
        return before + table
    return f"{before.rstrip()}\n\n{table}"


def _configuration(text: str, directory: Path) -> Configuration:
    """What the file then says; a `tool` in one line takes no further table."""
    plain = text.removeprefix(MARK)
    try:
        parse_toml(plain, PROJECT)
    except ScaffoldError:
        place = Places(plain, PROJECT)(("tool",), key=True)
        message = "no [tool.scaffold] can be added: 'tool' is written in one line"
        hint = "write each of its tables as [tool.NAME]"
        raise ScaffoldError(message, place, hint) from None
    found = read_configuration(plain, PROJECT, str(directory))
    assert found is not None  # the table is there
    return found


def _manifest(configuration: Configuration) -> str | None:
    """The file that new ops go to; patterns name none."""
    plain = (path for path in configuration.manifest if not WILD & set(path))
    return next(plain, None)


def _empty_manifest(path: str) -> str:
    """A manifest without ops; its first line tells editors where the schema is."""
    schema = posixpath.relpath(SCHEMA, posixpath.dirname(path) or ".")
    schema = schema if schema.startswith(".") else f"./{schema}"
    return f"#:schema {schema}\n# An op is a table, [ops.NAME]; `scaffold new-op NAME` adds one.\n"


def _usual_ci(directory: Path) -> str:
    return "github" if (directory / ".github").is_dir() else "none"
