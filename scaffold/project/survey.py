"""Which ops of a project are out of date: what changed since their records, what became of their files, whether a proof still holds.

In: a `Project` and the names that are meant. Out: an `Op` each; nothing is rendered, no code of an op runs.
Invariant: where nothing changed, rendering would give what was written last, so it need not be done.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from scaffold.files import read_text
from scaffold.project.project import Project
from scaffold.render.templates import digest
from scaffold.spec.manifest import (
    Listed,
    configuration_digest,
    defined_names,
    proof_digest,
    spec_digest,
    text_digest,
)
from scaffold.version import __version__
from scaffold.workspace.cache import Known
from scaffold.workspace.reconcile import Prospect, Standing, decoded, present, standing
from scaffold.workspace.records import (
    SHARED,
    Origin,
    Proof,
    Record,
    function_digest,
    meaning_digest,
)

if TYPE_CHECKING:
    from scaffold.project.rendering import Provable


NONE_ON_RECORD = "no proof is on record"
OTHER_SPEC = "its specification changed since it was proven"
OTHER_CODE = "its Function is not the one that was proven"


class Proven(NamedTuple):
    """Whether what stands in the op's file was proven; if not, why."""

    status: Literal["proven", "unproven", "unprovable"]
    reason: str = ""


class Op(NamedTuple):
    """An op of the manifest, or the module that all tests share, and how it stands to its record."""

    listed: Listed
    record: Record | None
    origin: Origin  # what its files would follow from now
    standings: dict[str, Standing]  # of the files of the record, by path
    changed: tuple[str, ...]  # since its record; nothing where there is none
    maths: str  # digest of what a proof of it is about
    names: tuple[str, ...]  # of its wrapper and its Function

    @property
    def settled(self) -> bool:
        """Whether there is nothing to render: nothing changed, and every file is there and wanted, its record whole."""
        if self.record is None or self.changed:
            return False
        there = all(
            item.condition != "missing" and not item.lost
            for item in self.standings.values()
        )
        return there and all(kept.draft for kept in self.record.files)

    @property
    def upgrade(self) -> str:
        """The command that merges what is new into its files."""
        name = self.listed.name
        return "scaffold upgrade" if name == SHARED else f"scaffold upgrade {name}"

    def proven(self, root: Path) -> Proven:
        """Whether the proof on record is of this specification, and of the code that stands in the file."""
        proof = self.record.proof if self.record else None
        if proof is None:
            return Proven("unproven", NONE_ON_RECORD)
        if proof.spec != self.maths:
            return Proven("unproven", OTHER_SPEC)
        if not self._stands(root):
            return Proven("unproven", OTHER_CODE)
        return Proven("unprovable", proof.lacks) if proof.lacks else Proven("proven")

    def _stands(self, root: Path) -> bool:
        """Whether the code that was proven is that of the file, which is parsed only where its text is another."""
        kept = self.record.kept("op") if self.record else None
        if self.record is None or self.record.proof is None or kept is None:
            return False
        proof, known = self.record.proof, self.standings[kept.path]
        if known.condition in ("untouched", "reformatted") and proof.text == kept.text:
            return True
        data = present(root, kept.path)
        text = "" if data is None else decoded(data, kept.path)
        return function_digest(text, self.names) == proof.function


class Work(NamedTuple):
    """What is to be done about the files of an op."""

    op: Op
    prospects: tuple[Prospect, ...]
    reads: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    code: str = ""  # digest of the Function as it is rendered, where proofs matter
    proof: Proof | None = None  # of that, where it is known
    provable: "Provable | None" = None  # what proves it, where it is not


def survey(project: Project, names: Sequence[str] = ()) -> tuple[Op, ...]:
    """How the ops stand; all of them where none is named."""
    directories = project.places.directories._replace(line_length=0)
    configurations = {
        path: configuration_digest(project.configuration, directories, path)
        for path in project.texts
    }
    templates = digest(project.places.house.templates)
    digests, meanings = _Digests(project), _Digests(project, meaning_digest)
    known = Known(_cache() / f"known-{__version__}-{sys.implementation.cache_tag}")
    found = []
    for listed in project.chosen(names).values():
        record = project.records.get(listed.name)
        origin = Origin(
            __version__,
            spec_digest(listed.entry),
            configurations[listed.manifest],
            templates,
            digests.again(record.origin.reads if record else ()),
        )
        files = record.files if record else ()
        standings = {
            kept.path: standing(project.root, kept, known.same, known.whole)
            for kept in files
        }
        changed = origin.changed_since(record.origin) if record else ()
        meant = meanings.again(origin.reads)
        maths = proof_digest(listed.entry, project.configuration, meant, meaning_digest)
        names = defined_names(listed.entry, project.configuration)[:2]
        found.append(Op(listed, record, origin, standings, changed, maths, names))
    known.keep()
    return tuple(found)


def _cache() -> Path:
    """Where what is only a matter of time is kept."""
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(place, "scaffold")


class _Digests:
    """Digests of files that formulas name, by that function; each is read once."""

    def __init__(
        self, project: Project, digest: Callable[[str], str] = text_digest
    ) -> None:
        self._root, self._of = project.root, digest
        self._known: dict[str, str] = {}

    def again(self, reads: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """The same files as they are now."""
        return tuple((path, self._digest(path)) for path, _ in reads)

    def _digest(self, path: str) -> str:
        if path not in self._known:
            try:
                text = read_text(self._root / path)
                self._known[path] = self._of(text)
            except (OSError, ValueError):
                self._known[path] = ""  # it is gone: that is a change
        return self._known[path]
