"""From texts to files: conflicts settled by the policy or by asking, then all files written or none.

In: {path: text}, the root that the paths count from, and the policy of `--on-conflict`.
Out: a `Settled`: what was done, or with `look` what would be.
Invariant: a look and a write of the same texts give the same verbs, but for what the user answers to a question.
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

ATTEMPTS = 20  # to write while other runs do
Run = TypeVar("Run")


class Settled(NamedTuple):
    """What became of each file."""

    plan: Plan
    written: bool
    refusal: ScaffoldError | None = None  # why nothing was
    undone: tuple[str, ...] = ()  # files that an earlier, killed run had left half done
    obstacle: ScaffoldError | None = None  # why a run would write nothing: of a look
    told: tuple[str, ...] = ()  # of files that a run might have touched, and did not

    @property
    def problems(self) -> tuple[ScaffoldError, ...]:
        """What stands in the way of a run, or would."""
        found = self.refusal or self.obstacle
        return found.problems if found else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know beside the verbs."""
        listed = ", ".join(self.undone)
        undone = f"undid what an interrupted run had begun: {listed}"
        return (undone, *self.told) if listed else self.told


class Known(NamedTuple):
    """What is known of the files that are there; paths as in the texts."""

    ours: Collection[str] = ()  # need no question
    kept: Collection[str] = ()  # stay as they are
    # What the texts were made from.
    reads: Mapping[str, bytes | None] = MappingProxyType({})


NOTHING = Known()


def look(
    files: Mapping[str, str],
    root: Path,
    policy: Policy,
    known: Known = NOTHING,
    console: Console = SILENT,
) -> Settled:
    """What a run would do; where it would ask or stop, the conflicts stay."""
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
    """What a run says that aborts, as one does that can ask nobody."""
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
    """Write the files, unless the policy or an answer forbids it; then none of them."""
    return undisturbed(lambda: write_once(files, root, policy, known, console))


def undisturbed(run: Callable[[], Run]) -> Run:
    """What a run gives that reads, plans and writes; again from its start where another run came in between."""
    try:
        return run()
    except ChangedError as error:
        root = error.root
    with in_turn(root):
        for _ in range(ATTEMPTS - 1):
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
    """The same; ChangedError where another run comes in between: whoever read the files reads them again."""
    undone = recover(root)
    planned = plan(files, root, **known._asdict())
    try:
        resolved = without_conflicts(planned, policy, console)
    except ConflictError as refusal:
        return Settled(planned, False, refusal, undone)
    apply(resolved)
    return Settled(resolved, True, None, undone)


def without_conflicts(planned: Plan, policy: Policy, console: Console = SILENT) -> Plan:
    """The plan as policy or answers settle it; ConflictError where they do not."""
    resolved = resolve(_as_seen_from_here(planned), policy, console.ask)
    both = zip(planned.changes, resolved.changes, strict=True)
    changes = tuple(done._replace(path=known.path) for known, done in both)
    return planned._replace(changes=changes)


def _as_seen_from_here(planned: Plan) -> Plan:
    """The plan with the paths that a message shows: the user need not be in the root."""
    changes = (
        change._replace(path=from_here(planned.root, change.path))
        for change in planned.changes
    )
    return planned._replace(changes=tuple(changes))
