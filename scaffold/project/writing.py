"""Writing of texts to files: conflicts settled by the policy or by asking, then all files written or none.

For commands that write a few files; `update` has the same for ops with records.
In: {path: text}, the root of the paths, and the policy of `--on-conflict`.
Out: a `Settled`: the changes made, or planned by `look`.
Invariant: a look and a write of the same texts give the same verbs, except for the user's answers to questions.

Words: a *look* plans without writing (`--dry-run`); a *conflict* is an existing file that differs and is not known to be ours;
*verbs* are "create", "update" and so on, one for each file of a plan.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from scaffold.errors import ConflictError, ScaffoldError
from scaffold.project.console import SILENT, Console, from_here
from scaffold.workspace import (
    ChangedError,
    Plan,
    Policy,
    apply,
    in_turn,
    plan,
    recover,
    rehearse,
    resolve,
)

ATTEMPTS = 20  # retries while other runs write
Run = TypeVar("Run")


class Settled(NamedTuple):
    """The plan of a run, and whether it was carried out."""

    plan: Plan
    written: bool
    refusal: ScaffoldError | None = None  # the reason nothing was written
    undone: tuple[str, ...] = ()  # files half done by an earlier, killed run
    obstacle: ScaffoldError | None = None  # the same of a look
    told: tuple[str, ...] = ()  # notes on files of the shared test module left alone

    @property
    def problems(self) -> tuple[ScaffoldError, ...]:
        """Return why nothing was written, or in a look why nothing would be; () if all is well."""
        found = self.refusal or self.obstacle
        return found.problems if found else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user: files restored after an interrupted run, files left alone."""
        listed = ", ".join(self.undone)
        undone = f"undid what an interrupted run had begun: {listed}"
        return (undone, *self.told) if listed else self.told


class Known(NamedTuple):
    """Facts about existing files; paths as in the texts."""

    ours: Collection[str] = ()  # overwritten without asking
    kept: Collection[str] = ()  # stay as they are
    # Files read to make the texts.
    reads: Mapping[str, bytes | None] = MappingProxyType({})


NOTHING = Known()


def look(
    files: Mapping[str, str],
    root: Path,
    policy: Policy,
    known: Known = NOTHING,
    console: Console = SILENT,
) -> Settled:
    """Return the plan of a run, without writing: what `write` would do with the same arguments.

    With the policies "ask" and "abort" conflicts stay in it, undecided, as nobody is asked; `obstacle` has the error a run would
    raise. `rehearse` raises if a file could not be written.
    """
    planned = plan(files, root, **known._asdict())
    if policy in ("ask", "abort"):
        rehearse(planned)
        return Settled(planned, written=False, obstacle=_obstacle(planned))
    try:
        resolved = without_conflicts(planned, policy, console)
        rehearse(resolved)
        return Settled(resolved, written=False)
    except ConflictError as refusal:
        return Settled(planned, False, refusal)


def _obstacle(planned: Plan) -> ScaffoldError | None:
    """Return the error that a plan with conflicts raises if nobody decides them; None without conflicts."""
    try:
        without_conflicts(planned, "abort")
    except ConflictError as error:
        return error
    return None


def write(
    files: Mapping[str, str],
    root: Path,
    policy: Policy,
    known: Known = NOTHING,
    console: Console = SILENT,
) -> Settled:
    """Write all files, or none if the policy or an answer forbids it (`refusal`); do it again if another run interfered."""
    return undisturbed(lambda: write_once(files, root, policy, known, console))


def undisturbed(run: Callable[[], Run]) -> Run:
    """Return the result of `run`, a reading, planning and writing; repeat all of it if another process changed a file in between."""
    try:
        return run()
    except ChangedError as error:
        root = error.root
    with in_turn(root):  # runs that were disturbed wait for each other
        for _ in range(ATTEMPTS - 1):
            # The last attempt, below, raises it.
            with suppress(ChangedError):
                return run()
        return run()


def write_once(
    files: Mapping[str, str],
    root: Path,
    policy: Policy,
    known: Known = NOTHING,
    console: Console = SILENT,
) -> Settled:
    """Write all files, or none, as `write` does, but only once.

    Raise ChangedError if another run interfered: the caller reads the files its texts come from again, and calls again.
    """
    undone = recover(root)
    planned = plan(files, root, **known._asdict())
    try:
        resolved = without_conflicts(planned, policy, console)
    except ConflictError as refusal:
        return Settled(planned, False, refusal, undone)
    apply(resolved)
    return Settled(resolved, True, None, undone)


def without_conflicts(planned: Plan, policy: Policy, console: Console = SILENT) -> Plan:
    """Return the plan with its conflicts decided by the policy, or by asking; raise ConflictError if neither decides.

    Questions show paths as seen from the working directory; the result has those below the root again.
    """
    resolved = resolve(_as_seen_from_here(planned), policy, console.ask)
    both = zip(planned.changes, resolved.changes, strict=True)
    changes = tuple(done._replace(path=known.path) for known, done in both)
    return planned._replace(changes=changes)


def _as_seen_from_here(planned: Plan) -> Plan:
    """Return the plan with paths relative to the working directory, for messages: the root may be above it."""
    changes = (
        change._replace(path=from_here(planned.root, change.path))
        for change in planned.changes
    )
    return planned._replace(changes=tuple(changes))
