"""An op's specification, from options, a TOML table and the configuration: the first stage of `new-op`, `sync`, `adopt` and the API.

Options are brought into the form of a table's keys, keys left out are inferred from the forward, and `spec.build` checks all of them. One
function a way to give an op: `specified` (options, perhaps over a file's table), `specified_keys` (Python), `specified_table` (a table
not written yet), `specification` (a table of a manifest).
In: options and settings by key, or a table. Out: a `Specified`, with the place of each value.
Invariant: an option and the same key of a file mean the same; all problems of the user's input are
raised together.

Words: a *key* is a word of an op's table, `save-policy`, and an option of that name; *raw* are an op's keys, key -> value; *stated* ones were
given by the user, others are *inferred*; to *locate* a key is to find its place for an error; *settings* are options of a
run, no keys of the op: `--out-dir`, `--spec FILE` (read the op from this TOML file).
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, why_unread
from scaffold.files import read_text
from scaffold.project.configuration import configuration_here, working_directory
from scaffold.project.console import from_here
from scaffold.project.inferred_keys import Completed, as_surrogate, completed, meant
from scaffold.project.places import Places, find_places
from scaffold.spec import Configuration, OpSpec
from scaffold.spec.build import build
from scaffold.spec.keys import KEYS
from scaffold.spec.kinds import NAMES, TABLE
from scaffold.spec.manifest import Listed, text_digest
from scaffold.spec.names import op_names
from scaffold.spec.problems import KeyPath, Locate, Problems
from scaffold.spec.toml import Entry, read_ops

if TYPE_CHECKING:
    from scaffold.project.inferred_inputs import Inferred

# Kinds of keys: tables are given as NAME=TEXT, several times; lists of names with commas between them; formulas may name a file.
TABLES = frozenset(key for key, row in KEYS.items() if row.kind is TABLE)
NAME_LISTS = frozenset(key for key, row in KEYS.items() if row.kind is NAMES)
FORMULAS = frozenset(key for key, row in KEYS.items() if row.formula)
SWITCHES = {"true": True, "false": False}


@dataclass(slots=True)
class Given:
    """The values of options as keys of a table, the place of each, and problems."""

    raw: dict[str, Any] = field(default_factory=dict)
    # By key, and by entry of a key: ("grad", "x") -> `--grad:1:3`.
    places: dict[KeyPath, Location] = field(default_factory=dict)
    problems: list[ScaffoldError] = field(default_factory=list)

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """Return the place of the value at `path`, ("grad", "x"), for an error: its option, or the nearest one around it.

        With `key`, the place of the key itself: of an entry of a table it is the whole option.
        """
        # The name is an argument, `new-op NAME`, and no option.
        if path == ("name",):
            return Location("NAME")
        if key and path[0] in TABLES and len(path) > 1:
            return Location(f"--{path[0]}")
        for end in range(len(path), 0, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return Location(f"--{path[0]}" if path else "scaffold new-op")


def read_options(values: Mapping[str, Any]) -> Given:
    """Return options as keys of a table: `--grad 'x=grad_output * 2'` gives {"grad": {"x": "grad_output * 2"}}, and its place.

    Problems are collected, not raised, to be shown with those of the op.
    """
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
    """Return an option's value with one kind of newline, as files are read: the same text gives the same op from both."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _reader(key: str) -> Callable[[str, Any, Given], Any]:
    """Return the function to read an option's value into a key's: it takes the key, the value, and the `Given` to note places in."""
    if key in TABLES:
        return _table
    if key == "tolerance":
        return _tolerance
    return _names if key in NAME_LISTS else _as_given


def _as_given(key: str, value: Any, given: Given) -> Any:
    return value


def _names(key: str, value: list[str], given: Given) -> list[str]:
    """Return names given by several options or separated by commas, `--params weight,bias`; note the place of each in `given.places`.

    It is kept by the name's position, ("params", "1"), as for a list of a file.
    """
    names: list[str] = []
    for text in value:
        column = 0
        for part in text.split(","):
            name = part.strip()
            if name:
                start = column + len(part) - len(part.lstrip())
                given.places[(key, str(len(names)))] = _place(key, text, start)
                names.append(name)
            column += len(part) + 1  # and the comma
    return names


def _table(key: str, value: list[str], given: Given) -> dict[str, str]:
    """Return a table given by options of the form `weight=grad_output.t() @ input`; note the place of each text in `given.places`.

    `--grad 'grad_output * 2'` without a name has the key "": the only differentiable input, named later. Raise ScaffoldError for
    another text without a name, such as `weight: ...`, and for a name given twice.
    """
    table: dict[str, str] = {}
    for text in value:
        name, equals, formula = text.partition("=")
        name = name.strip()
        # `weight: text`, as in YAML or Python: the hint has it with "=".
        mapped = re.fullmatch(r"\s*(\w+)\s*:\s*(.+)", text, re.DOTALL)
        may_be_sole = key == "grad" and text.strip() and not mapped
        # `x * (x == 1)` has an `=` too, but no name before it.
        if may_be_sole and not _names_an_input(name, equals):
            name, formula = "", text  # of the only differentiable input
        elif mapped or not equals or not name:
            meant = f"{mapped[1]}={mapped[2]}" if mapped else "NAME=..."
            hint = f"write: --{key} '{meant}'"
            message = f"'{text}' does not begin with a name and '='"
            raise ScaffoldError(message, Location(f"--{key}"), hint)
        if name in table:
            hint = f"keep one: --{key} '{name or 'NAME'}=...'"
            message = f"'{name}' is given twice"
            raise ScaffoldError(message, Location(f"--{key}"), hint)
        # A line end stays: the line after it is indented as the others are.
        stated = formula.lstrip(" \t")
        given.places[(key, name)] = _place(key, text, len(text) - len(stated))
        table[name] = stated.rstrip()
    return table


def _names_an_input(name: str, equals: str) -> bool:
    """Return whether the text before the first '=' of a `--grad`, if there is one, may be a name: not in `grad_output * (x <= 1)`."""
    return bool(equals) and re.fullmatch(r"[\w.*]*", name) is not None


def _tolerance(key: str, value: str, given: Given) -> dict[str, float | bool]:
    """Read `eps=1e-6, atol=1e-4` as numbers by keyword of gradcheck; note the place of each in `given.places`, for later errors.

    Raise ScaffoldError for a part of another form, or a keyword given twice.
    """
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
            hint = f"keep one: '{name}={text}'"
            raise ScaffoldError(f"'{name}' is given twice", place, hint)
        given.places[(key, name)] = place
        table[name] = number
        column += len(part) + 1
    return table


def _place(key: str, text: str, offset: int) -> Location:
    """Return the place of a character in an option's value."""
    *above, before = re.split(r"\r\n|\r|\n", text[:offset])
    return Location(f"--{key}").shifted(len(above), len(before))


def _number(text: str) -> float | bool | None:
    """Return the number or switch a TOML file would hold for an option's text, "1e-6" or "true"; None if it is neither."""
    if text.lower() in SWITCHES:
        return SWITCHES[text.lower()]
    # One of more digits is read as a float: `int` refuses thousands of them.
    if re.fullmatch(r"[+-]?[0-9]{1,300}", text):
        return int(text)
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        return float(text)
    return None


def _state_surrogate(given: Given) -> None:
    """Move `--surrogate-forward TEXT` to the key `surrogate`: in a table one key is a switch, as `--surrogate`, or a text.

    A contradiction, with `--no-surrogate`, goes into `given.problems`.
    """
    stated = given.raw.pop("surrogate-forward", None)
    if stated is None:
        return
    if given.raw.get("surrogate") is False:
        place = given.places[("surrogate-forward",)]
        given.problems.append(
            ScaffoldError(
                "--surrogate-forward and --no-surrogate exclude each other", place
            )
        )
    given.raw["surrogate"] = stated
    given.places[("surrogate",)] = given.places[("surrogate-forward",)]


class Merged:
    """A file's op overridden by options: of a key with a table, `grad`, single entries; any other key as a whole.

    Files named by the op are relative to its own file, in `directory`; in `raw` they are relative to the working directory.
    """

    def __init__(self, entry: Entry, given: Given, directory: Path) -> None:
        """Merge the `entry` of a file with the options `given`; `directory` is the file's own."""
        self._entry, self._given = entry, given
        self.raw = {
            key: with_files(value, directory.joinpath) if key in FORMULAS else value
            for key, value in entry.raw.items()
        }
        for key, value in given.raw.items():
            # `--grad x=...` changes one entry; any other option takes the place of the key's value.
            tables = isinstance(value, dict) and isinstance(self.raw.get(key), dict)
            self.raw[key] = self.raw[key] | value if tables else value

    def locate(self, path: KeyPath, *, key: bool = False) -> Location:
        """Return the place of a value: its option if one overrides the file, else its place in the file. With `key`, the place of its key."""
        value: Any = self._given.raw  # follow the path through the options
        for part in path:
            if isinstance(value, list):  # overridden as a whole
                break
            # No option says this part: the file does.
            if not isinstance(value, dict) or part not in value:
                return self._entry.locate(path, key=key)
            value = value[part]
        return self._given.locate(path, key=key)


def with_files(value: Any, moved: Callable[[str], Path]) -> Any:
    """Return a formula, or a table of formulas, with each reference `@file.py:function` made `@` and `moved("file.py:function")`.

    A file is named from the manifest in a manifest, and from the working directory in options: for the other use it is moved.
    """
    if isinstance(value, Mapping):
        return {key: with_files(item, moved) for key, item in value.items()}
    if not isinstance(value, str) or not value.lstrip().startswith("@"):
        return value
    return f"@{moved(value.lstrip().removeprefix('@')).as_posix()}"


Files = Mapping[str, str]  # texts by absolute path
Values = dict[str, Any]  # options or settings of a run, by key


class Reader:
    """A reader of the files named by formulas; it keeps their texts, as the op is out of date as soon as one changes."""

    def __init__(self, unwritten: Files = MappingProxyType({})) -> None:
        """Begin with no file read; `unwritten` are texts to take for files, as they are written by the same run."""
        self._unwritten = unwritten
        self._texts: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """Return the text of a file; raise OSError or ValueError if it cannot be read."""
        text = self._unwritten.get(os.path.abspath(path))
        text = read_text(path) if text is None else text
        self._texts[path] = text
        return text

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files read, as they were named."""
        return tuple(self._texts)

    def digests(
        self, root: Path, digest: Callable[[str], str] = text_digest
    ) -> tuple[tuple[str, str], ...]:
        """Return the path below the root and the digest of each file read, sorted, for the op's record."""
        found = {
            Path(os.path.relpath(path, root)).as_posix(): digest(text)
            for path, text in self._texts.items()
        }
        return tuple(sorted(found.items()))


class Specified(NamedTuple):
    """An op specified by options, files and configuration, and its places."""

    spec: OpSpec
    places: Places
    raw: Mapping[str, Any]  # its keys, with files relative to the working directory
    configuration: Configuration
    typed: str  # its name as typed: RMSNorm also names its classes
    locate: Locate
    reads: Reader  # of the files named by its formulas
    joins: bool  # it becomes part of the project
    inferred: "Inferred | None" = None  # its inputs, if inferred from the forward
    completed: tuple[str, ...] = ()  # notes on other inferred keys


class Companion(NamedTuple):
    """A file named by an op's formulas and written together with the op: the author's code of an adopted Function."""

    path: str  # below the root
    module: str  # the op imports it by this name
    text: str


class Said(NamedTuple):
    """An op's name, keys and their places."""

    name: str
    raw: Mapping[str, Any]
    locate: Locate


def specified(
    name: str, values: Values, settings: Values, found: list[ScaffoldError]
) -> Specified:
    """Specify an op for `new-op NAME`, from options and the configuration; raise all problems, with `found`, the caller's.

    `values` are the options for keys of the op, `settings` those of the run; with `--spec` among these, or without any
    option, the keys are those of a file's table.
    """
    given = read_options(values)
    problems = Problems(given.locate)
    for problem in (*found, *given.problems):
        problems.add(problem)
    return _specified(
        lambda known, packaged: _stated_keys(name, given, settings, known, packaged),
        settings,
        Reader(),
        problems,
    )


def specified_keys(said: Said, settings: Values, unwritten: Files) -> Specified:
    """Specify an op from keys outside any file, as given in Python; `unwritten` texts by absolute path stand for files."""
    problems = Problems(said.locate)
    return _specified(lambda *_: said, settings, Reader(unwritten), problems)


def _specified(
    say: Callable[[Configuration, bool], Said],
    settings: Values,
    read: Reader,
    problems: Problems,
) -> Specified:
    """Return an op with its places, stated and inferred keys; raise all problems together, with those in `problems`.

    `say(configuration, packaged)` gives the stated keys. Then are inferred: types of stated inputs, inputs, sizes, other keys.
    """
    working_directory()  # without one nothing else can be checked
    configuration = problems.attempt(configuration_here) or Configuration()
    places = problems.attempt(lambda: find_places(configuration, settings))
    package = places.directories.package if places is not None else None
    said = problems.attempt(lambda: say(configuration, package is not None))
    inferred, typed = None, tuple[str, ...]()  # the latter: notes on added types
    if said is not None and "spec" not in settings:  # a file is complete
        said, typed = _with_types(said, read)
        # Without inputs, `build` would only add errors of their absence.
        before = len(problems)
        inferred = problems.attempt(partial(_inferred, said, read))
        if len(problems) > before:
            problems.raise_found()
        # Stated inputs have the sizes the user wants.
        if inferred is not None and inferred.shapes and not inferred.stated:
            from scaffold.project.inferred_inputs import with_shapes

            attempt = partial(_op_if_valid, said, configuration, read, package)
            inferred = with_shapes(inferred, attempt)
        if inferred is not None:
            inferred = inferred.without_starts(said.raw)
            said = said._replace(raw=inferred.added_to(said.raw))
    built = said and problems.attempt(
        lambda: _built(said, configuration, read, package, "spec" not in settings)
    )
    problems.raise_found()
    assert said and built and places  # or else there was a problem
    spec, (raw, notes) = built
    # No key says in which order __init__ of the user's nn.Module takes its arguments.
    if spec.module is not None and inferred is not None:
        module = spec.module._replace(made_by=inferred.made_by)
        spec = replace(spec, module=module)
    stated = (raw, configuration, said.name, said.locate)
    joins = _joins(configuration, settings)
    notes = (*typed, *notes)
    return Specified(spec, places, *stated, read, joins, inferred, notes)


def _op_if_valid(
    said: Said,
    configuration: Configuration,
    read: Reader,
    package: str | None,
    inferred: "Inferred",
) -> OpSpec | None:
    """Return the op with these inferred inputs, a trial to find sizes by (`with_shapes`); None if it is invalid."""
    raw = inferred.added_to(said.raw)
    try:
        return build(said.name, raw, said.locate, configuration, read, package)
    except ScaffoldError:  # reported when the op itself is built
        return None


def _built(
    said: Said, config: Configuration, read: Reader, package: str | None, infers: bool
) -> tuple[OpSpec, Completed]:
    """Return the op, and its keys with inferred ones, such as `outputs`, unless not `infers`; its inputs are inferred before, by the caller.

    Some keys are inferred before the op is built, from texts; others after, from its forward, and it is built again with these.
    """

    def built(raw: Mapping[str, Any]) -> OpSpec:
        return build(said.name, raw, said.locate, config, read, package)

    if not infers or "forward" not in said.raw:
        return built(said.raw), Completed(said.raw)
    before = completed(said.raw, said.locate, read)
    spec = built(before.raw)
    after = meant(spec, before.raw)
    notes = (*before.notes, *after.notes)
    # No note: no key was added, and the op stays as it was built.
    spec = built(after.raw) if after.notes else spec
    return spec, Completed(after.raw, notes)


def _with_types(said: Said, read: Reader) -> tuple[Said, tuple[str, ...]]:
    """Return the keys with a type added to each stated input without one, if its uses prove it, and notes: `i` -> `i[; int]`."""
    if not {"inputs", "forward"} <= said.raw.keys():
        return said, ()
    from scaffold.project.inferred_inputs import of_stated_names

    found = of_stated_names(said.raw, said.locate, read)
    if found is None:
        return said, ()
    inputs, notes = found
    return said._replace(raw={**said.raw, "inputs": inputs}), notes


def _inferred(said: Said, read: Reader) -> "Inferred | None":
    """Return the inputs inferred from the forward; None if there is nothing to infer, or no forward.

    If the inputs are stated and the forward is an nn.Module of a file, the result tells which of them are its parameters and buffers.
    """
    if "schema" in said.raw or "forward" not in said.raw:
        return None
    if "inputs" in said.raw:
        # Only a file can have an nn.Module.
        if not str(said.raw["forward"]).lstrip().startswith("@"):
            return None  # most ops, without the import below
        from scaffold.project.inferred_inputs import of_stated_inputs

        return of_stated_inputs(said.raw, said.locate, read)
    from scaffold.project.inferred_inputs import inferred_inputs

    return inferred_inputs(said.raw, said.locate, read)


def _joins(configuration: Configuration, settings: Values) -> bool:
    """Return whether the op becomes part of the project, with a table in its manifest: it goes into the configured directories."""
    return configuration.project and not {"out-dir", "test-dir"} & settings.keys()


def specified_table(
    name: str,
    said: Merged,
    settings: Values,
    companions: Callable[[Places], tuple[Companion, ...]],
) -> tuple[Specified, tuple[Companion, ...]]:
    """Specify an op from a table not written yet, of `adopt`; return it with its companions, files of its formulas, not written yet either.

    `companions` makes these for the directories of the op's files. Nothing is inferred: the table is complete.
    """
    configuration = configuration_here()
    places = find_places(configuration, settings)
    beside = companions(places)
    unwritten = {str(places.root / item.path): item.text for item in beside}
    read = Reader(unwritten)
    package = places.directories.package
    spec = build(name, said.raw, said.locate, configuration, read, package)
    stated = (said.raw, configuration, name, said.locate)
    joins = _joins(configuration, settings)
    return Specified(spec, places, *stated, read, joins), beside


def _stated_keys(
    name: str, given: Given, settings: Values, known: Configuration, packaged: bool
) -> Said:
    """Return an op's stated keys: of the file of `--spec`, overridden by options; of options alone; without any, of the project's manifest.

    `packaged`: the op's file is in a package, where it may have the name of a module of the standard library. Raise ScaffoldError if
    there are no keys: no option, and no table of this name.
    """
    path = settings.get("spec")
    stated: Given | Merged = given
    if path is not None:
        stated = Merged(_entry(path, name), given, Path(path).parent)
    # Without any option, as in `scaffold bench swish`, the op is one of the project's.
    elif known.project and not given.places:
        listed = _listed(name, known, packaged)
        if listed is None:
            raise _not_defined(name, known)
        name, stated = listed.entry.name, from_manifest(listed)
    elif not given.places:
        raise _not_defined(name, known)
    return Said(name, stated.raw, stated.locate)


def _not_defined(name: str, known: Configuration) -> ScaffoldError:
    """Return the error for an op without any keys, with a hint on the name perhaps meant; `name.py` may be code, to be adopted instead."""
    lists = "; or see: scaffold list" if known.project else ""
    message = f"op '{name}' is not defined"
    close = ""
    if known.project:
        from scaffold.project.project import open_project

        message += ": it is in no manifest, and no option gives its forward"
        ops = open_project(may_lack=True).listed
        close = f"{near} else " if (near := did_you_mean(name, ops)) else ""
    hint = (
        f"{close}give its inputs and its forward: --inputs 'x' --forward 'x * 2'{lists}"
    )
    file = f"{name.removesuffix('.py')}.py"
    if Path(file).is_file():
        message += f"; '{file}' has the code, not its specification"
        hint += f"; of a Function written by hand: scaffold adopt {file}::CLASS"
    return ScaffoldError(message, Location("NAME"), hint)


def _listed(name: str, known: Configuration, packaged: bool) -> Listed | None:
    """Return the op's table in the project's manifests, for RMSNorm or rms_norm; None if there is none, or the name is invalid."""
    try:
        op = op_names(name, Location("NAME"), packaged, known.names)[0]
    except ScaffoldError:  # reported when the op is built
        return None
    from scaffold.project.project import open_project  # only needed for a project

    return open_project(may_lack=True).listed.get(op)


def from_manifest(listed: Listed) -> Merged:
    """Return a manifest's keys of an op, with files relative to the working directory."""
    shown = listed.entry.locate((), key=True).source  # the manifest, as seen from here
    return Merged(listed.entry, Given(), Path(shown).parent)


def _entry(path: str, name: str) -> Entry:
    """Return the op of that name in the TOML file of `--spec`; raise ScaffoldError if it is missing or the file unreadable."""
    try:
        text = read_text(path, "utf-8-sig")
    except (OSError, ValueError) as error:
        message = f"cannot read '{path}': {why_unread(error)}"
        hint = "name a TOML file with a table [ops.NAME]"
        raise ScaffoldError(message, Location("--spec"), hint) from None
    entries = {entry.name: entry for entry in read_ops(text, path)}
    if not entries:
        hint = "write a table: [ops.NAME]"
        raise ScaffoldError("the file holds no op", Location(path), hint)
    if name not in entries:
        hint = did_you_mean(name, entries) or f"its ops: {', '.join(entries)}"
        raise ScaffoldError(f"no op '{name}' in the file", Location(path), hint)
    return entries[name]


def specification(
    listed: Listed,
    configuration: Configuration,
    places: Places,
    read: Callable[[str], str] = read_text,
) -> OpSpec:
    """Return the op of a manifest's table, for `sync` and others; raise all of its problems. `read` gives the text of a file."""
    manifest = Path(from_here(places.root, listed.manifest))
    merged = Merged(listed.entry, Given(), manifest.parent)
    name, package = listed.entry.name, places.directories.package

    def built(raw: Mapping[str, Any]) -> OpSpec:
        return build(name, raw, merged.locate, configuration, read, package=package)

    return as_surrogate(built(merged.raw), merged.raw, built)
