"""What is to be remembered of an op after a run.

In: the record from before, the prospects of the op's files, and which of their paths were written. Out: the files of the
record: path and text.
Invariant: a record never says more than what is on disk: of a file that was left as it was, the old tale is kept.
"""

from collections.abc import Collection

from scaffold.workspace.proofs import Proof
from scaffold.workspace.reconcile import Prospect
from scaffold.workspace.state import (
    Kept,
    Origin,
    Record,
    base_path,
    digest,
    encode,
    record_path,
)


def record_files(
    record: Record,
    prospects: tuple[Prospect, ...],
    written: Collection[str],
    code: str = "",
) -> dict[str, str]:
    """The texts of `record` brought up to date; `record` already says what the files now follow from, and what was proven.

    `code` is the digest of the Function as it is wanted, where proofs matter.
    """
    files, texts, current = [], {}, True
    for prospect in prospects:
        kept = _kept(prospect, prospect.path in written)
        if kept is None:
            current = current and prospect.need == "drop"
            continue
        files.append(kept)
        current = current and kept.draft in ("", _draft(prospect))
        changed = kept != prospect.kept or prospect.mends
        if prospect.wanted is not None and changed:
            texts[base_path(record.op, kept.role)] = prospect.wanted.text
    if not files:
        return {}
    origin = record.origin if current else Origin("", "", "", "")
    whole = record._replace(files=tuple(files), origin=origin)
    if record.proof is not None and record.proof.function == code:
        whole = whole._replace(proof=_of_written(record.proof, whole, prospects))
    return {record_path(record.op): encode(whole), **texts}


def _of_written(proof: Proof, record: Record, prospects: tuple[Prospect, ...]) -> Proof:
    """The proof, which is of the text on record too where that is the one that was wanted: then nobody need parse the file."""
    kept = record.kept("op")
    wanted = (
        next((_draft(item) for item in prospects if item.path == kept.path), "")
        if kept
        else ""
    )
    return proof._replace(text=kept.text) if kept and kept.draft == wanted else proof


def _draft(prospect: Prospect) -> str:
    return prospect.wanted.draft if prospect.wanted else ""


def _kept(prospect: Prospect, written: bool) -> Kept | None:
    """The record of one file; None where there is nothing to remember."""
    wanted, kept = prospect.wanted, prospect.kept
    if wanted is None:
        gone = prospect.need == "drop" and written
        return None if gone or kept is None else kept._replace(draft="")
    as_before = kept is not None and kept.draft == wanted.draft
    if not prospect.mends and (
        prospect.need == "keep" or prospect.need == "same" and as_before
    ):
        return kept
    if prospect.need == "same" or prospect.mends or written:
        text = digest(wanted.text.encode())
        return Kept(wanted.role, wanted.path, wanted.draft, text)
    return kept
