"""A project read from its files: configuration, directories, manifests and records.

`sync`, `check`, `list`, `remove` and others begin with it. In: the working directory, and manifests named on the command line.
Out: a `Project`; nothing is rendered or written.
Invariant: all problems of the files read are raised together.

Words: a *manifest* is a file of ops, `ops.toml`; a *record* is a file below `.scaffold/` that remembers how an op's files were
written; paths are relative to the *root*, the directory of the pyproject.toml.
"""

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.files import read_bytes
from scaffold.project.configuration import configuration_here
from scaffold.project.console import from_here
from scaffold.project.places import Places, find_places
from scaffold.spec import Configuration
from scaffold.spec.manifest import Listed, list_ops
from scaffold.workspace.reconcile import present
from scaffold.workspace.records import SHARED, Record, decode_records, read_state
from scaffold.workspace.statements import unix

WILD = frozenset("*?[")
NOTHING: Mapping[str, str] = {}


class Project(NamedTuple):
    """The data of a run over many ops, before any is rendered."""

    configuration: Configuration
    places: Places
    texts: dict[str, str]  # of the manifests, by path below the root
    listed: dict[str, Listed]
    records: dict[str, Record]
    # Manifests, records and the `__init__.py` as read: a run stops if one has changed before it writes.
    reads: dict[str, bytes | None]
    # Manifests and files of formulas that the run is to write too.
    unwritten: Mapping[str, str] = NOTHING
    shared: Record | None = None  # of the module imported by tests

    @property
    def root(self) -> Path:
        return self.places.root

    def orphans(self) -> tuple[Record, ...]:
        """Return the records of ops no longer in their manifest, for `scaffold remove`; a manifest not read by this run may have the op."""
        return tuple(
            record
            for op, record in self.records.items()
            if op not in self.listed
            and (
                # Only a manifest that was read, or is gone, can be said not to have the op.
                record.manifest in self.texts
                or not (self.root / record.manifest).exists()
            )
        )

    def chosen(self, names: Sequence[str]) -> dict[str, Listed]:
        """Return the named ops, or all without names; raise ScaffoldError for each name in none of the manifests read."""
        if not names:
            return self.listed
        problems = []
        read = [from_here(self.root, path) for path in self.texts]
        place = Location(read[0]) if len(read) == 1 else None
        shown = "the file" if place else ", ".join(read) or "any manifest"
        for name in names:
            if name not in self.listed:
                hint = did_you_mean(name, self.listed) or "see: scaffold list"
                message = f"no op '{name}' in {shown}"
                problems.append(ScaffoldError(message, place, hint))
        raise_all(problems)
        return {name: self.listed[name] for name in dict.fromkeys(names)}


def open_project(
    manifests: Sequence[str] = (),
    *,
    settled: bool = False,
    may_lack: bool = False,
    template_dirs: Sequence[str] = (),
) -> Project:
    """Return the project of the working directory, with these manifests or the configured ones.

    `settled`: raise ScaffoldError without a [tool.scaffold], as nothing is recorded then. `may_lack`: go on without any manifest
    instead of raising. `template_dirs` go before the configuration's.
    """
    configuration = configuration_here()
    if settled and not configuration.project:
        raise no_project()
    places = find_places(configuration, {"template-dir": template_dirs})
    root = places.root
    paths = _named(root, manifests) if manifests else _configured(root, configuration)
    if not paths and not may_lack:
        wanted = ", ".join(configuration.manifest)
        hint = "scaffold init makes one; scaffold new-op adds an op to it"
        raise ScaffoldError("there is no such manifest", Location(wanted), hint)
    data = {path: _read(root, path) for path in paths}
    texts = {path: _text(root, path, data[path]) for path in paths}
    shown = {from_here(root, path): text for path, text in texts.items()}
    packaged = places.directories.package is not None
    listed = list_ops(shown, packaged, configuration.names)
    below = dict(zip(shown, paths, strict=True))  # as shown -> below the root
    state = read_state(root) if configuration.project else {}
    records = decode_records(state)
    shared = records.pop(SHARED, None)
    path = exporting_path(places)
    exporting = {path: present(root, path)} if configuration.exports else {}
    return Project(
        configuration,
        places,
        texts,
        {item.name: item._replace(manifest=below[item.manifest]) for item in listed},
        records,
        {**data, **state, **exporting},
        shared=shared,
    )


def exporting_path(places: Places) -> str:
    """Return the path of the source directory's `__init__.py`."""
    return posixpath.normpath(f"{places.directories.source}/__init__.py")


def new_manifest(configuration: Configuration, op: str) -> str | None:
    """Return the path of the manifest that `new-op` adds an op to: the first one configured without a wildcard, or a file of its own.

    None if it cannot be told: several patterns, or one with a wildcard elsewhere than in the file's name.
    """
    plain = [path for path in configuration.manifest if not WILD & set(path)]
    if plain:
        return Path(plain[0]).as_posix()
    return _own_manifest(configuration.manifest, op)


def _own_manifest(patterns: Sequence[str], op: str) -> str | None:
    """Return the manifest named after the op, `ops/gelu.toml` for `ops/*.toml`.

    None unless this is the only pattern, with one `*` in the file's name and no other wildcard: what these stand for is not known.
    """
    if len(patterns) != 1:
        return None
    path = PurePath(patterns[0])
    one_star = path.name.count("*") == 1 and not {"?", "["} & set(path.name)
    if not one_star or WILD & set(str(path.parent)):
        return None
    return path.with_name(path.name.replace("*", op)).as_posix()


def no_project() -> ScaffoldError:
    """Return the error of a command without a project's records."""
    return ScaffoldError(
        "no pyproject.toml here or above has a [tool.scaffold]",
        hint="scaffold init adds it",
    )


def _configured(root: Path, configuration: Configuration) -> list[str]:
    """Return the paths of the configured manifests; a pattern may match none, and a sole file may be missing: it is reported later."""
    found: list[str] = []
    for pattern in configuration.manifest:
        if WILD & set(pattern):
            found += sorted(_below(root, path) for path in root.glob(pattern))
        # A sole manifest may not exist yet, before the first op; of several each one has to.
        elif (root / pattern).exists() or len(configuration.manifest) > 1:
            found.append(PurePath(pattern).as_posix())
    return list(dict.fromkeys(found))


def _named(root: Path, manifests: Iterable[str]) -> list[str]:
    """Return the manifests typed by the user, relative to the working directory, as paths below the root; each once."""
    return list(dict.fromkeys(_below(root, Path.cwd() / name) for name in manifests))


def _below(root: Path, path: Path) -> str:
    """Return a path relative to the root; raise ScaffoldError if it is outside."""
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        message = f"'{path}' is outside of the project, '{root}'"
        raise ScaffoldError(message) from None


def _read(root: Path, path: str) -> bytes:
    """Return the bytes of a manifest; raise ScaffoldError if it is missing or unreadable."""
    try:
        return read_bytes(root / path)
    except FileNotFoundError:
        beside = (
            from_here(root, str(near)) for near in (root / path).parent.glob("*.toml")
        )
        shown = from_here(root, path)
        default = Configuration().manifest[0]
        hint = did_you_mean(shown, beside) or f"scaffold init makes one, {default}"
        message = "there is no such manifest"
        raise ScaffoldError(message, Location(shown), hint) from None
    except OSError as error:
        raise _unread(root, path, error.strerror or str(error)) from None


def _text(root: Path, path: str, data: bytes) -> str:
    """Return the text of a manifest's bytes; raise ScaffoldError unless it is UTF-8."""
    try:
        return unix(data.decode())
    except UnicodeDecodeError:
        raise _unread(root, path, "not UTF-8") from None


def _unread(root: Path, path: str, reason: str) -> ScaffoldError:
    """Return the error for a manifest that cannot be read."""
    place = Location(from_here(root, path))
    hint = "save it as text in UTF-8, or name another manifest"
    return ScaffoldError(f"cannot be read: {reason}", place, hint)
