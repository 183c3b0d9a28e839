"""Status of a project's ops: changes since their records, the state of their files, and the validity of proofs.

The first step of `sync` and `check`: rendering all ops takes long, so only the changed ones are rendered after it.
In: a `Project` and names of ops. Out: an `Op` each; nothing is rendered, no code of an op runs.
Invariant: an op without changes would be rendered as it was last written, so rendering is skipped.

Words: an op's *record* remembers the sources of its files (`Origin`: digests of the table, configuration, templates), each
file's text as written (`Kept`), and a proof; a *standing* is the state of a file on disk compared with it, such as "edited";
*reads* are files that formulas come from, with digests; a *prospect* is a file with what a run will do with it.
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
OTHER_SPEC = "its specification has changed since the proof"
OTHER_CODE = "its Function has changed since the proof"


class Proven(NamedTuple):
    """Status of the proof of an op's file, and the reason if it is not proven; unprovable: a try found why there can be none."""

    status: Literal["proven", "unproven", "unprovable"]
    reason: str = ""


class Op(NamedTuple):
    """An op of the manifest, or the shared test module, compared with its record."""

    listed: Listed
    record: Record | None
    origin: Origin  # the sources its files would be rendered from now
    standings: dict[str, Standing]  # of the recorded files, by path
    changed: tuple[str, ...]  # since its record; empty without one
    maths: str  # digest of everything a proof of it depends on
    names: tuple[str, ...]  # of its wrapper and its Function

    @property
    def settled(self) -> bool:
        """Return whether the op need not be rendered: no source of its files changed, every file is there and still part of the op.

        And its record still has each file's text as written, from which a merge starts; if that is lost, rendering restores it.
        """
        if self.record is None or self.changed:
            return False
        all_there = all(
            item.condition != "missing" and not item.lost
            for item in self.standings.values()
        )
        # A record without a draft is of a file the op no longer has.
        return all_there and all(kept.draft for kept in self.record.files)

    @property
    def upgrade(self) -> str:
        """Return the command, for a hint, to merge new text into its edited files."""
        name = self.listed.name
        return "scaffold upgrade" if name == SHARED else f"scaffold upgrade {name}"

    def proven(self, root: Path) -> Proven:
        """Return the status of the op's proof: a recorded one counts if it is of the present specification and of the code now in the file."""
        proof = self.record.proof if self.record else None
        if proof is None:
            return Proven("unproven", NONE_ON_RECORD)
        if proof.spec != self.maths:
            return Proven("unproven", OTHER_SPEC)
        if not self._stands(root):
            return Proven("unproven", OTHER_CODE)
        return Proven("unprovable", proof.lacks) if proof.lacks else Proven("proven")

    def _stands(self, root: Path) -> bool:
        """Return whether the proven code is still in the file.

        A file with the proven text, perhaps formatted, is not parsed; of another the digest of its Function is compared.
        """
        kept = self.record.kept("op") if self.record else None
        if self.record is None or self.record.proof is None or kept is None:
            return False
        proof, known = self.record.proof, self.standings[kept.path]
        # Kernels are no part of the proven code's digest: an edit of theirs ends the proof.
        kernels = self.record.kept("triton")
        if kernels and self.standings[kernels.path].edited:
            return False
        # The text of the file is the proven one: it need not be parsed.
        if known.condition in ("untouched", "reformatted") and proof.text == kept.text:
            return True
        data = present(root, kept.path)
        text = "" if data is None else decoded(data, kept.path)
        return function_digest(text, self.names) == proof.function


class Work(NamedTuple):
    """The work on an op's files in a run: the plan for each, and the needs of a proof."""

    op: Op
    prospects: tuple[Prospect, ...]
    reads: tuple[tuple[str, str], ...]  # to record: files of its formulas, with digests
    notes: tuple[str, ...]  # for the user
    code: str = ""  # digest of the rendered Function, if proofs matter
    proof: Proof | None = None  # of that code, if known
    provable: "Provable | None" = None  # to make a proof, if none is known


def survey(project: Project, names: Sequence[str] = ()) -> tuple[Op, ...]:
    """Return the named ops, or all, each compared with its record and the disk; nothing is rendered.

    A cache between runs saves comparisons of texts. The line length is no part of an op's origin: formatting alone is no change.
    """
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
        # For a proof comments in those files mean nothing; for the record they do (`origin`).
        meant = meanings.again(origin.reads)
        maths = proof_digest(listed.entry, project.configuration, meant, meaning_digest)
        names = defined_names(listed.entry, project.configuration)[:2]
        found.append(Op(listed, record, origin, standings, changed, maths, names))
    known.keep()
    return tuple(found)


def _cache() -> Path:
    """Return the user's directory for caches of ours; whatever is in it may be deleted, it only saves time."""
    place = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(place, "scaffold")


class _Digests:
    """The present digests of files that formulas come from; each is read once in a run, though several ops may name it."""

    def __init__(
        self, project: Project, digest: Callable[[str], str] = text_digest
    ) -> None:
        """Begin with no file read; `digest` makes the digest of a text, which may ignore comments."""
        self._root, self._of = project.root, digest
        self._known: dict[str, str] = {}

    def again(self, reads: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the recorded files of an op, `reads`, with their present digests: if one differs from the recorded, the op has changed."""
        return tuple((path, self._digest(path)) for path, _ in reads)

    def _digest(self, path: str) -> str:
        """Return the present digest of a file, "" if it is missing or unreadable: it then differs from the recorded one."""
        if path not in self._known:
            try:
                text = read_text(self._root / path)
                self._known[path] = self._of(text)
            except (OSError, ValueError):
                self._known[path] = ""  # a missing file is a change
        return self._known[path]
