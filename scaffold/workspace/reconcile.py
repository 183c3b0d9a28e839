"""The state of an op's files (missing, out of date, edited by hand) and the action a run takes for each.

`project.update` asks it what to do with each file of an op, `project.survey` how it stands. In: the record of an op, its files on
disk, and their texts as rendered now. Out: a `Prospect` for each, and the record after the run. Invariant: an edit by hand is never
mistaken for a file out of date, nor the reverse.

Words: *kept* is the record of one file: its text as written last, its digest, and that of its *draft*, the text before formatting;
*wanted* is the file as rendered now; a *role* is the part a file has in its op, "op" or "test"; *lost*: the record no longer
unpacks to the text it was made of, and a run that *mends* it stores that text again; a *stranger* is a file without a record;
`known` is how a file on disk compares with its record; a file is *current* if it is of the wanted draft; an *origin* are digests of
the sources of the files: while they are the same, nothing is rendered.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Literal, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.files import read_bytes
from scaffold.workspace.merge import has_markers
from scaffold.workspace.records import (
    Kept,
    Origin,
    Proof,
    Record,
    digest,
    kept_file,
    written_record,
)
from scaffold.workspace.statements import normal_form

# --- A file on disk, compared with the text written last.
#
# In: the root, and the record of one of its files. Out: a `Standing`.
# Invariant: formatting alone is not an edit; nothing is written.


Condition = Literal["untouched", "reformatted", "edited", "missing", "conflict-markers"]


class Standing(NamedTuple):
    """The present state of a file, compared with its record."""

    condition: Condition
    text: str | None  # its present text, if it was worth reading
    lost: bool = False  # the text written last is lost or altered

    @property
    def edited(self) -> bool:
        """Return whether overwriting the file would lose somebody's work."""
        return self.condition in ("edited", "conflict-markers")


def says_the_same(one: str, other: str) -> bool:
    """Return whether two texts of Python differ at most in formatting: comments count, line length and quotes do not."""
    return normal_form(one) == normal_form(other)


def is_whole(kept: Kept) -> bool:
    """Return whether the record of a file still holds the text written last, undamaged."""
    return kept.written is not None


def standing(
    root: Path,
    kept: Kept,
    same: Callable[[str, str], bool] = says_the_same,
    whole: Callable[[Kept], bool] = is_whole,
) -> Standing:
    """Return the state of a file on disk, compared with its record: untouched, edited, missing and so on.

    `same` tells whether two texts differ at most in formatting, `whole` whether a record's text is intact: a caller that asks for
    many files passes cached forms of them. Without the recorded text any change counts as an edit.
    """
    data, lost = present(root, kept.path), not whole(kept)
    if data is None:
        return Standing("missing", None, lost)
    if digest(data) == kept.text:
        return Standing("untouched", None, lost)
    text = decoded(data, kept.path)
    if has_markers(text):
        return Standing("conflict-markers", text, lost)
    # Not lost, so `written` is there: `or ""` only satisfies the type checker.
    if not lost and same(kept.written or "", text):
        return Standing("reformatted", text)
    return Standing("edited", text, lost)


def present(root: Path, path: str) -> bytes | None:
    """Return the content of a file, `path` below `root`, None if there is none; raise ScaffoldError if it cannot be read."""
    try:
        return read_bytes(f"{root}/{path}")
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ScaffoldError(message, Location(path)) from None


def decoded(data: bytes, path: str) -> str:
    """Return the text of a file, with newlines for line ends; raise ScaffoldError unless it is UTF-8."""
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise ScaffoldError("is not UTF-8", Location(path)) from None


# --- The action a run takes for each file of an op, to give it the wanted text.


Need = Literal["create", "same", "keep", "update", "collide", "drop", "leave"]


class Wanted(NamedTuple):
    """A file as it should be: its role in the op, its path, the digest of its draft, its formatted text."""

    role: str
    path: str
    draft: str
    text: str


class Prospect(NamedTuple):
    """A file's wanted, recorded and current text, and the action.

    create: there is none. same: it has the wanted text. keep: edited, and there is nothing new to write. update: ours, and
    out of date. collide: out of date, and edited or not ours. drop: the op no longer has such a file, and nobody
    edited it. leave: the same, but somebody did.
    """

    need: Need
    path: str
    wanted: Wanted | None
    kept: Kept | None
    standing: Standing | None
    moved_from: str | None = None  # its present path, if it is to be at another

    @property
    def is_gone(self) -> bool:
        """Return whether the file was removed by hand."""
        return self.standing is not None and self.standing.condition == "missing"

    @property
    def mends(self) -> bool:
        """Return whether the record had lost the text written last, and this run can restore it: the draft rendered now is the recorded one.

        The file itself need not change for it.
        """
        # A conflict, here an edited file that moves, is for the user to decide first.
        if self.need == "collide" or self.wanted is None:
            return False
        lost = self.standing is not None and self.standing.lost
        return lost and self.kept is not None and self.kept.draft == self.wanted.draft


def reconcile(
    root: Path, record: Record | None, files: tuple[Wanted, ...]
) -> tuple[Prospect, ...]:
    """Return what to do with each wanted file of an op, then with each recorded file it no longer has. `record` is None for a new op."""
    roles = {item.role for item in files}
    prospects = [_prospect(root, record, wanted) for wanted in files]
    gone = [kept for kept in record.files if kept.role not in roles] if record else []
    return (*prospects, *(_leftover(root, kept) for kept in gone))


def _prospect(root: Path, record: Record | None, wanted: Wanted) -> Prospect:
    """Return what to do with a wanted file, by the record of the file in its role, if there is one: at the same path, or at a former one."""
    kept = record.kept(wanted.role) if record else None
    if kept is not None and kept.path != wanted.path:
        return _moved(root, kept, wanted)
    if kept is None:
        return Prospect(_of_stranger(root, wanted), wanted.path, wanted, None, None)
    known = standing(root, kept)
    return Prospect(_of_known(kept, wanted, known), wanted.path, wanted, kept, known)


def _of_stranger(root: Path, wanted: Wanted) -> Need:
    """Return the action for a wanted file without a record: create it; nothing if the same is there, perhaps formatted; else a conflict."""
    data = present(root, wanted.path)
    if data is None:
        return "create"
    same = says_the_same(decoded(data, wanted.path), wanted.text)
    return "same" if same else "collide"


def _of_known(kept: Kept, wanted: Wanted, known: Standing) -> Need:
    """Return the action for a recorded file at its place; `known` compares the file with its record.

    If the drafts, recorded and wanted, are equal, generation has nothing new, so an edit stays. New text for an edited file is a
    conflict, unless the edit already says the same.
    """
    if known.condition == "missing":
        return "create"
    if kept.draft == wanted.draft:
        return "keep" if known.edited else "same"
    if not known.edited:
        return "update"
    assert known.text is not None  # an edited file was read
    return "same" if says_the_same(known.text, wanted.text) else "collide"


def _moved(root: Path, kept: Kept, wanted: Wanted) -> Prospect:
    """Return what to do with a recorded file wanted at another path: it moves there, with its edits, from `moved_from`.

    So if the project changes its names of files, say. An edited file is a conflict, as in its old place; a missing one has nothing
    to move.
    """
    known = standing(root, kept)
    need = _of_stranger(root, wanted)
    # Nothing stands at the new path; but the edits at the old one must not get lost.
    if need == "create" and known.edited:
        need = "collide"
    source = None if known.condition == "missing" else kept.path
    return Prospect(need, wanted.path, wanted, kept, known, source)


def _leftover(root: Path, kept: Kept) -> Prospect:
    """Return what to do with a recorded file the op no longer has, as its test is switched off: remove it, or leave it if it was edited."""
    known = standing(root, kept)
    need: Need = "leave" if known.edited else "drop"
    return Prospect(need, kept.path, None, kept, known)


# --- The record of an op after a run.
#
# In: the record from before, the prospects of the op's files, and the paths written. Out: the path and the text of
# the record; None for a file to be removed.
# Invariant: a record never says more than the disk: a file left as it was keeps its old entry.


def record_files(
    record: Record,
    prospects: tuple[Prospect, ...],
    written: Collection[str],
    code: str = "",
) -> dict[str, str | None]:
    """Return the path and text of the op's record after a run, with None for a file to remove; {} if no file is left to record.

    `record` has the new origin and proof, and the old files. `written` are the paths the run writes: a file left as it was keeps
    its old entry, and if one is left out of date (not `current`) the origin is emptied, so that the next run looks again. `code` is
    the digest of the wanted Function, if proofs matter.
    """
    files, current = [], True
    for prospect in prospects:
        kept = _kept(prospect, prospect.path in written)
        if kept is None:
            # Nothing to record: the file was removed as wanted, or was skipped and never ours.
            current = current and prospect.need == "drop"
            continue
        files.append(kept)
        # "": the op has no such file any more, so it cannot be out of date.
        current = current and kept.draft in ("", _draft(prospect))
    if not files:
        return {}
    origin = record.origin if current else Origin("", "", "", "")
    after = record._replace(files=tuple(files), origin=origin)
    # The proof is of the very Function that this run renders.
    if record.proof is not None and record.proof.function == code:
        after = after._replace(proof=_of_written(record.proof, after, prospects))
    return written_record(after)


def _of_written(proof: Proof, record: Record, prospects: tuple[Prospect, ...]) -> Proof:
    """Return the proof with the digest of the op's file as recorded, if the file has the wanted, proven text; else as it is.

    A later run then trusts an unchanged file by this digest, without parsing it.
    """
    kept = record.kept("op")
    drafts = [_draft(item) for item in prospects if kept and item.path == kept.path]
    return proof._replace(text=kept.text) if kept and kept.draft in drafts else proof


def _draft(prospect: Prospect) -> str:
    """Return the digest of a wanted file's draft; "" if no file is wanted."""
    return prospect.wanted.draft if prospect.wanted else ""


def _kept(prospect: Prospect, written: bool) -> Kept | None:
    """Return one file's entry in the record after a run; None if there is nothing to remember. `written`: the run writes the file.

    A new entry if the file then has the wanted text; the former one if it stays as it was, as an edited or skipped one does.
    """
    wanted, kept = prospect.wanted, prospect.kept
    if wanted is None:
        gone = prospect.need == "drop" and written
        # Without a draft: the op has no such file any more, but it is still there.
        return None if gone or kept is None else kept._replace(draft="")
    as_before = kept is not None and kept.draft == wanted.draft
    # The file stays as it is, and so does its entry: its base is that of the next merge.
    if not prospect.mends and (
        prospect.need == "keep" or prospect.need == "same" and as_before
    ):
        return kept
    # A file that has the wanted text already counts as written.
    if prospect.need == "same" or prospect.mends or written:
        return kept_file(*wanted, before=kept)
    return kept
