"""What a project remembers of an op: what its files were made from, and their texts as they were written.

In: the project's root. Out: a `Record` an op, read from `.scaffold/OP.json`; the texts stand beside it, in `OP.ROLE.base`.
Invariant: a record that cannot be read is an error at its place, never taken for none; paths count from the root, with
forward slashes, so that a record is the same on every machine.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, get_args

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import read_bytes
from scaffold.workspace.proofs import By, Proof

DIRECTORY = ".scaffold"
VERSION = 1
UNREADABLE = (
    "take the file from version control; or remove it, and 'scaffold sync' asks"
)
_ORIGIN = ("tool", "spec", "configuration", "templates")
_PROOF = Proof._fields


class Origin(NamedTuple):
    """What the files of an op follow from: the version of this tool, and digests of the rest."""

    tool: str
    spec: str
    configuration: str
    templates: str
    reads: tuple[tuple[str, str], ...] = ()  # files that the formulas name

    def moved(self, before: "Origin") -> tuple[str, ...]:
        """What is not what it was, in words."""
        names = ("tool", "spec", "configuration", "template")
        pairs = zip(names, self[:4], before[:4], strict=True)
        moved = tuple(name for name, now, then in pairs if now != then)
        if self.reads != before.reads and "spec" not in moved:
            moved = (*moved, "spec")
        return moved


class Kept(NamedTuple):
    """One file as it was written last: its part in the op, its path, digests of draft and text."""

    role: str  # "op" or "test"
    path: str
    draft: str  # before it was formatted; "" once the op has no such file any more
    text: str


class Record(NamedTuple):
    """What is known of an op's files."""

    op: str
    manifest: str
    origin: Origin
    files: tuple[Kept, ...]
    proof: Proof | None = None

    def kept(self, role: str) -> Kept | None:
        """The file with that part in the op."""
        return next((item for item in self.files if item.role == role), None)


def digest(data: bytes) -> str:
    """The fingerprint of a file, whatever its line ends."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def record_path(op: str) -> str:
    """Where the record of an op is, below the root."""
    return f"{DIRECTORY}/{op}.json"


def base_path(op: str, role: str) -> str:
    """Where the text of a file is, as it was written last."""
    return f"{DIRECTORY}/{op}.{role}.base"


def state_paths(record: Record) -> tuple[str, ...]:
    """Every file that a record consists of."""
    bases = (base_path(record.op, item.role) for item in record.files)
    return (record_path(record.op), *bases)


def read_state(root: Path) -> dict[str, bytes]:
    """The files of all records of a project, by path below the root, as they stand."""
    try:
        names = sorted(os.listdir(root / DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, bytes] = {}
    problems: list[ScaffoldError] = []
    for path in (f"{DIRECTORY}/{name}" for name in names if name.endswith(".json")):
        try:
            found[path] = read_bytes(f"{root}/{path}")
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            problems.append(ScaffoldError(message, Location(path), UNREADABLE))
    raise_all(problems)
    return found


def decode_records(state: Mapping[str, bytes]) -> dict[str, Record]:
    """Every record of a project, by op."""
    found: dict[str, Record] = {}
    problems: list[ScaffoldError] = []
    for path, data in state.items():
        try:
            record = _record(data, path)
            found[record.op] = record
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return found


def _record(data: bytes, shown: str) -> Record:
    op = os.path.basename(shown).removesuffix(".json")
    try:
        return _decoded(json.loads(data), op)
    except json.JSONDecodeError as error:
        place = Location(shown, error.lineno, error.colno)
    except (ValueError, KeyError, TypeError, RecursionError):
        place = Location(shown)
    raise ScaffoldError("is no record of an op", place, UNREADABLE)


def _decoded(raw: Any, op: str) -> Record:
    if raw["version"] > VERSION:
        raise ScaffoldError(
            f"was written by a newer version, {raw['tool']}",
            Location(record_path(op)),
            "install that version of torch-scaffold",
        )
    reads = tuple(sorted(_texts(raw["reads"])))
    files = tuple(
        Kept(
            _plain(role),
            _below(file["path"]),
            _text(file["draft"]),
            _text(file["text"]),
        )
        for role, file in raw["files"].items()
    )
    tool, spec, configuration, templates = (_text(raw[key]) for key in _ORIGIN)
    origin = Origin(tool, spec, configuration, templates, reads)
    return Record(op, _text(raw["manifest"]), origin, files, _proof(raw.get("proof")))


def _proof(raw: Any) -> Proof | None:
    """The proof of a record; those of earlier versions have none."""
    if raw is None:
        return None
    by = raw["by"]
    if by not in get_args(By):
        raise ValueError
    return Proof(**{key: _text(raw[key]) for key in _PROOF if key != "by"}, by=by)


def _below(value: Any) -> str:
    """A path below the root: what a record names may be moved and removed."""
    path = PurePosixPath(_text(value))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError
    return str(value)


def _plain(role: str) -> str:
    """A role, which is part of a file's name."""
    if not role.isidentifier():
        raise ValueError
    return role


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(table: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, _text(value)) for key, value in table.items()]


def encode(record: Record) -> str:
    """The text of a record; the same record is the same text."""
    told: dict[str, Any] = {"version": VERSION, "manifest": record.manifest}
    told |= {key: getattr(record.origin, key) for key in _ORIGIN}
    told["reads"] = dict(record.origin.reads)
    told["files"] = {
        item.role: {"path": item.path, "draft": item.draft, "text": item.text}
        for item in record.files
    }
    if record.proof is not None:
        told["proof"] = record.proof._asdict()
    return json.dumps(told, indent=2) + "\n"


def read_base(root: Path, op: str, kept: Kept) -> str | None:
    """The text that was written last; None where it is lost, or not the one that the record means."""
    data = _stored(root, op, kept)
    if data is None or digest(data) != kept.text:
        return None
    return data.decode("utf-8").replace("\r\n", "\n")


def holds_base(root: Path, op: str, kept: Kept, known: bytes | None = None) -> bool:
    """Whether the text that was written last is still there; `known` is a file that says the same."""
    data = _stored(root, op, kept)
    return data is not None and (data == known or digest(data) == kept.text)


def _stored(root: Path, op: str, kept: Kept) -> bytes | None:
    try:
        return read_bytes(f"{root}/{base_path(op, kept.role)}")
    except OSError:
        return None
