"""Changes to the disk: each file is created, identical, updated, removed, kept or in conflict; also as a unified diff.

The first step of every write, and all of a dry run. In: texts by path, and a root. Out: a `Plan`, for `conflicts` to decide and
`transaction` to carry out; a diff for `git apply` and `patch`. Invariant: nothing is written here; a path leads to one file below
the root, whatever its spelling and links, and a text keeps its file's line ends. A diff ignores line ends, and only names a file
other than text.

Words: a file is *ours* if it is known to be as we wrote it; any other that differs is in *conflict*; its *base* is its text as
written last, from which a merge starts; `path` is a file's name as the user knows it, `target` its real place.
"""

import io
import os
import shlex
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Literal, NamedTuple
from unicodedata import normalize

from scaffold.errors import ScaffoldError, raise_all
from scaffold.workspace import disk

# --- Resolving a path: the file it leads to, below the root, and the file's content.
#
# In: a path as the user knows it, and the root. Out: the real path, or its content.
# Invariant: no path leads out of the root, through whatever links, and none is mistaken for another by any file system.


def find_target(path: str, base: Path, folder: "Folder", *, follow: bool) -> Path:
    """Return the real path that a relative one leads to; raise ScaffoldError unless it is below the root, `base`.

    With `follow`, a link as the last part is followed to its file, to be written; without it the link itself is the place, to be
    removed. `folder` knows the directories' entries, to raise for a name that differs only in case.
    """
    if "\0" in path or not _encodable(path):
        raise ScaffoldError(f"{path!r} is not a path")
    name = Path(os.path.normpath(base / path))
    if not name.is_relative_to(base):
        raise ScaffoldError(f"'{path}' is outside '{base}'")
    folder.check_case(path, base, name)
    target = Path(os.path.realpath(name))
    if not target.is_relative_to(base):
        raise ScaffoldError(f"'{path}' is a link that leads outside '{base}'")
    if name.is_symlink() and not name.exists():
        hint = f"rm {shlex.quote(os.path.relpath(name))}"
        raise ScaffoldError(f"'{path}' is a link that leads nowhere", hint=hint)
    # To be removed is the link itself, not the file that it leads to.
    if name.is_symlink() and not follow:
        return Path(os.path.realpath(name.parent), name.name)
    return target


def _encodable(path: str) -> bool:
    """Return whether the file system can have a file of this name: its encoding has all characters."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


class Folder:
    """The entries of directories as they were when first asked for; each directory is listed once in a run."""

    def __init__(self) -> None:
        self._names: dict[Path, dict[str, list[str]]] = {}

    def check_case(self, path: str, base: Path, name: Path) -> None:
        """Raise ScaffoldError if a part of a path differs only in case, or in Unicode form, from an existing file.

        macOS and Windows confuse them. `path` is the path as the user knows it, for the message; `name` the same below `base`.
        """
        directory = base
        for part in name.relative_to(base).parts:
            if not directory.is_dir():
                return
            # Without an entry of this form there is none to confuse it with: then it is its own neighbour.
            near = self._listed(directory).get(folded(part), [part])  # perhaps itself
            if part not in near:
                raise ScaffoldError(
                    f"'{path}' differs only in case from the existing "
                    f"'{(directory / near[0]).relative_to(base)}'",
                    hint="some file systems cannot tell them apart: rename one of them",
                )
            directory = directory / part

    def _listed(self, directory: Path) -> dict[str, list[str]]:
        """Return the names in a directory by their `folded` form: those of one form are one file on some file systems."""
        if directory not in self._names:
            names: dict[str, list[str]] = {}
            for name in disk.names(directory):
                names.setdefault(folded(name), []).append(name)
            self._names[directory] = names
        return self._names[directory]


def folded(name: str) -> str:
    """Return a name in one case and Unicode form: names equal in it are one file on some file systems."""
    return normalize("NFC", name).casefold()


def read_file(path: str, target: Path) -> bytes | None:
    """Return the content of the file at `target`, None if there is none; raise ScaffoldError for anything but a regular file."""
    try:
        kind = os.stat(target).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(kind):
        raise ScaffoldError(f"'{path}' is a directory")
    if not stat.S_ISREG(kind):
        raise ScaffoldError(f"'{path}' is not a regular file")
    return disk.read(target)


def check_parent(path: str, target: Path) -> None:
    """Raise ScaffoldError if the nearest existing directory above the target is read-only; `path` is its name in the message."""
    parent = target.parent
    while not parent.exists():
        parent = parent.parent
    if not disk.writable(parent):
        raise ScaffoldError(f"'{path}' cannot be written: '{parent}' is read-only")


# --- Texts as the bytes of a file, and back: UTF-8, with the file's own line ends.
#
# In: a text or bytes. Out: the other. Invariant: line ends and a byte order mark belong to the file; comparisons ignore them.


_MARK = b"\xef\xbb\xbf"  # put before a text by some editors


def encode(path: str, text: str) -> bytes:
    """Return the bytes of a text with newlines for line ends; raise ScaffoldError if it is not encodable."""
    try:
        return unix(text.encode())
    except UnicodeEncodeError as error:
        raise ScaffoldError(
            f"the text of '{path}' cannot be written as UTF-8: {error.reason}"
        ) from None


def unix(data: bytes) -> bytes:
    """Return the bytes of a text with newlines for line ends, without a byte order mark: so contents are compared."""
    return data.removeprefix(_MARK).replace(b"\r\n", b"\n")


def like(before: bytes, after: bytes) -> bytes:
    """Return the new content, `after`, with the old one's byte order mark, and with Windows line ends if most of its lines have them."""
    if before.startswith(_MARK):
        after = _MARK + after.removeprefix(_MARK)
    if before.count(b"\r\n") * 2 > before.count(b"\n"):
        return after.replace(b"\n", b"\r\n")
    return after


def merge_into(before: bytes, base: str, after: bytes) -> tuple[bytes, int]:
    """Return a file's content, `before`, with the generated text, `after`, merged in, in the file's line ends; and the number of conflicts.

    `base` is the text as last written. Raise UnicodeDecodeError if the file is not UTF-8.
    """
    from scaffold.workspace.merge import merge

    text, conflicts = merge(base, unix(before).decode(), unix(after).decode())
    return like(before, unix(text.encode())), conflicts


# --- The changes of a run: each file is created, identical, updated, removed, kept or in conflict.


Verb = Literal["create", "identical", "update", "remove", "skip", "conflict"]


class Change(NamedTuple):
    """One file: its path as the user knows it, its real place, its content before and after."""

    path: str
    target: Path
    verb: Verb
    before: bytes | None  # None: there is no file
    after: bytes | None  # None: there will be none
    base: str | None = None  # the text as last written, if known
    conflicts: int = 0  # places left by a merge for the user to settle


class Plan(NamedTuple):
    """The changes of a run, in the order of the request."""

    root: Path
    changes: tuple[Change, ...]
    reads: tuple[tuple[Path, bytes | None], ...] = ()  # sources of the texts, as read

    @property
    def conflicts(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.verb == "conflict")

    @property
    def unsettled(self) -> tuple[Change, ...]:
        """Return the undecided conflicts; merged ones are written, with markers."""
        return tuple(change for change in self.conflicts if not change.conflicts)

    @property
    def writes(self) -> tuple[Change, ...]:
        """Return the changes to carry out: creations, updates, removals, and merges with conflict markers."""
        # A merge with places left to settle is a "conflict" with a count of these.
        return tuple(
            change
            for change in self.changes
            if change.verb in ("create", "update", "remove") or change.conflicts
        )


class _Known(NamedTuple):
    """What the caller of `plan` knows of existing files, by path."""

    ours: Collection[str]
    bases: Mapping[str, str]
    kept: Collection[str]


def plan(
    files: Mapping[str, str | None],
    root: Path,
    *,
    ours: Collection[str] = (),
    bases: Mapping[str, str] | None = None,
    kept: Collection[str] = (),
    reads: Mapping[str, bytes | None] | None = None,
) -> Plan:
    """Return the plan to give files their texts, each compared with the disk; a file with the text None is to be removed.

    Paths are relative to `root`, an existing directory none of them may leave. `ours` are paths of files known to be as we wrote
    them, perhaps reformatted: they are overwritten without a question; any other existing file that differs is a conflict. `kept`
    ones stay as they are. `bases` are the texts as last written. `reads` are the files the texts were made from, as read: if one
    changes before `apply`, nothing is written. Raise ScaffoldError for unusable and clashing paths.
    """
    base = Path(os.path.realpath(root))
    if not base.is_dir():
        raise ScaffoldError(f"'{root}' is not a directory")
    folder = Folder()
    known = _Known(ours, bases or {}, kept)
    changes: list[Change] = []
    problems: list[ScaffoldError] = []
    for path, text in files.items():
        try:
            target = find_target(path, base, folder, follow=text is not None)
            changes.append(_change(path, text, target, known))
        except OSError as error:
            problems.append(ScaffoldError(f"cannot use '{path}': {error.strerror}"))
        except ScaffoldError as error:
            problems.append(error)
    raise_all([*problems, *_clashes(changes)])
    read = ((base / path, data) for path, data in (reads or {}).items())
    return Plan(base, tuple(changes), tuple(read))


def _change(path: str, text: str | None, target: Path, known: _Known) -> Change:
    """Return the change of one file: kept, identical, created; else updated or removed if it is ours, and a conflict if it is not."""
    base = known.bases.get(path)
    if path in known.kept:
        # It is not read: nobody compares the contents of a skipped file.
        return Change(path, target, "skip", None, None, base)
    after = None if text is None else encode(path, text)
    before = read_file(path, target)
    # Both are None if a file to be removed is gone already. Other line ends are no change.
    if before == after or before is not None and unix(before) == after:
        return Change(path, target, "identical", before, before, base)
    check_parent(path, target)
    if before is None:
        return Change(path, target, "create", None, after, base)
    _check_writable(path, target, after)
    ours = path in known.ours
    if after is None:
        return Change(
            path, target, "remove" if ours else "conflict", before, None, base
        )
    if not ours:
        return Change(path, target, "conflict", before, like(before, after), base)
    return Change(path, target, "update", before, _updated(before, base, after), base)


def _updated(before: bytes, base: str | None, after: bytes) -> bytes:
    """Return the new content of a file of ours: `after` merged into the present one, `before`, to keep a team's formatting.

    Without a recorded text (`base`), or if the merge has conflicts, the generated text as it is.
    """
    if base is None or unix(before) == base.encode():
        return like(before, after)
    try:
        merged, conflicts = merge_into(before, base, after)
    except UnicodeDecodeError:
        return like(before, after)
    return like(before, after) if conflicts else merged


def _check_writable(path: str, target: Path, after: bytes | None) -> None:
    """Raise ScaffoldError for a read-only file; `after` is its new content, None if it is to be removed."""
    if not disk.writable(target):
        what = "would be removed" if after is None else "differs"
        raise ScaffoldError(
            f"'{path}' is read-only and {what}", hint=f"chmod u+w '{path}'"
        )


def _clashes(changes: list[Change]) -> Iterator[ScaffoldError]:
    """Yield an error for two paths that lead to one file, by links or by case, and for a file where another one needs a directory."""
    seen: dict[str, str] = {}
    files = {change.target: change.path for change in changes}
    for change in changes:
        for parent in change.target.parents:
            if parent in files:
                yield ScaffoldError(
                    f"'{files[parent]}' would be a file and the directory "
                    f"of '{change.path}'"
                )
        first = seen.setdefault(folded(str(change.target)), change.path)
        if first != change.path:
            yield ScaffoldError(f"'{first}' and '{change.path}' would be the same file")


SHOWN = ("create", "update", "remove", "conflict")


def diff(plan: Plan) -> str:
    """Return the unified diff of a plan, as `--diff` shows it: of each file created, updated or removed, and of each conflict."""
    return "".join(diff_change(change) for change in plan.changes)


def diff_change(change: Change) -> str:
    """Return the unified diff of a change; "" if the file stays as it is."""
    return diff_file(change) if change.verb in SHOWN else ""


def diff_file(change: Change) -> str:
    """Return the unified diff from a change's old to its new content; for anything but UTF-8, the line git prints for binary files."""
    try:
        before, after = _lines(change.before or b""), _lines(change.after or b"")
    except UnicodeDecodeError:
        return f"Binary files a/{change.path} and b/{change.path} differ\n"
    tab = "\t" if " " in change.path else ""  # ends a name with a space in it
    old = "/dev/null" if change.before is None else f"a/{change.path}{tab}"
    new = "/dev/null" if change.after is None else f"b/{change.path}{tab}"
    return "".join(_terminated(unified_diff(before, after, old, new)))


def _lines(data: bytes) -> list[str]:
    """Return the lines of a text file with their ends; only a newline ends one, as in git. Raise UnicodeDecodeError if it is not UTF-8."""
    return list(io.StringIO(data.decode().replace("\r\n", "\n")))


def _terminated(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a diff, each with a newline; one without is followed by the remark patch needs."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
