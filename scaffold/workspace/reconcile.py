"""What a run has to do about each file of an op, so that it holds what it should.

In: the root, the record of an op if there is one, and what its files should be. Out: a `Prospect` a file.
Invariant: nothing that somebody edited is to be written over without being asked; nothing is written here.
"""

from pathlib import Path
from typing import Literal, NamedTuple

from scaffold.workspace.normal_form import normal_form
from scaffold.workspace.standing import Standing, decoded, present, standing
from scaffold.workspace.state import Kept, Record

Need = Literal["create", "same", "keep", "update", "collide", "drop", "leave"]


class Wanted(NamedTuple):
    """One file as it should be: its part in the op, its path, the digest of its draft, its text."""

    role: str
    path: str
    draft: str
    text: str


class Prospect(NamedTuple):
    """A file, what it should be, what it was, what it is, and what that calls for.

    create: there is none. same: it says what it should. keep: edited, and nothing new to put there. update: ours, and
    out of date. collide: out of date, and edited or not ours. drop: the op has no such file any more, and nobody
    edited it. leave: the same, but somebody did.
    """

    need: Need
    path: str
    wanted: Wanted | None
    kept: Kept | None
    standing: Standing | None
    moved_from: str | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the file was removed by hand."""
        return self.standing is not None and self.standing.condition == "missing"

    @property
    def mends(self) -> bool:
        """Whether the text that was written last is lost, and what is rendered says it again."""
        if self.need not in ("create", "same", "keep") or self.wanted is None:
            return False
        lost = self.standing is not None and self.standing.lost
        return lost and self.kept is not None and self.kept.draft == self.wanted.draft


def reconcile(
    root: Path, op: str, record: Record | None, files: tuple[Wanted, ...]
) -> tuple[Prospect, ...]:
    """Compare what the files of an op should be with what they are."""
    roles = {item.role for item in files}
    prospects = [_prospect(root, op, record, wanted) for wanted in files]
    gone = [kept for kept in record.files if kept.role not in roles] if record else []
    return (*prospects, *(_leftover(root, op, kept) for kept in gone))


def _prospect(root: Path, op: str, record: Record | None, wanted: Wanted) -> Prospect:
    kept = record.kept(wanted.role) if record else None
    if kept is not None and kept.path != wanted.path:
        return _moved(root, op, kept, wanted)
    if kept is None:
        return Prospect(_of_stranger(root, wanted), wanted.path, wanted, None, None)
    known = standing(root, op, kept)
    return Prospect(_of_known(kept, wanted, known), wanted.path, wanted, kept, known)


def _of_stranger(root: Path, wanted: Wanted) -> Need:
    """What to do where no record tells of a file."""
    data = present(root, wanted.path)
    if data is None:
        return "create"
    same = normal_form(decoded(data, wanted.path)) == normal_form(wanted.text)
    return "same" if same else "collide"


def _of_known(kept: Kept, wanted: Wanted, known: Standing) -> Need:
    if known.condition == "missing":
        return "create"
    if kept.draft == wanted.draft:
        return "keep" if known.edited else "same"
    if not known.edited:
        return "update"
    assert known.text is not None  # or else nobody could know
    same = normal_form(known.text) == normal_form(wanted.text)
    return "same" if same else "collide"


def _moved(root: Path, op: str, kept: Kept, wanted: Wanted) -> Prospect:
    """A file that the configuration wants elsewhere: what is there goes with it."""
    known = standing(root, op, kept)
    need = _of_stranger(root, wanted)
    if need == "create" and known.edited:
        need = "collide"
    source = None if known.condition == "missing" else kept.path
    return Prospect(need, wanted.path, wanted, kept, known, source)


def _leftover(root: Path, op: str, kept: Kept) -> Prospect:
    known = standing(root, op, kept)
    need: Need = "leave" if known.edited else "drop"
    return Prospect(need, kept.path, None, kept, known)
