"""What differs, of a file that `scaffold check` found to be not what it should.

In: a `Project` and a `Checked`. Out: a unified diff. Invariant: nothing is written.
"""

from scaffold.cli.checking import Checked
from scaffold.cli.project import Project
from scaffold.workspace.changes import Change
from scaffold.workspace.difference import diff_file
from scaffold.workspace.reconcile import present


def difference(project: Project, item: Checked) -> str:
    """What somebody changed in an edited file; what would change in one that is stale or missing."""
    there = present(project.root, item.path)
    base = item.kept.written if item.kept else None
    before, after = _sides(item, there, base)
    if before == after or after is None:
        return ""
    target = project.root / item.path
    return diff_file(Change(item.path, target, "update", before, after))


def _sides(
    item: Checked, there: bytes | None, base: str | None
) -> tuple[bytes | None, bytes | None]:
    written = base.encode() if base is not None else None
    if item.status in ("edited", "conflict-markers"):
        return written, there
    wanted = item.wanted.text.encode() if item.wanted and item.wanted.text else written
    return (there, wanted) if item.status in ("stale", "missing") else (None, None)
