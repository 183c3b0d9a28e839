"""Which values get a statement of their own, and under which tests it stands.

In: the graph of the gradients. Out: a `Schedule`. Invariant: a value is computed only under the tests that guard its uses; a value that
several places share is computed once, unless no common place is safe.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from scaffold.derive.graph.conditions import decides
from scaffold.derive.graph.op import Op
from scaffold.derive.plan.costs import is_at_hand, is_never_named
from scaffold.derive.write.preconditions import (
    Need,
    Outcome,
    Safety,
    guard_of,
    guarded_by,
    meets,
)

# The branches around a statement, outermost first: (step, branch), branch 0 where the test holds. A step is the serial of a
# `cond`; `SHARED` more, for a test that several of them share; or negative, for the branch of a gradient.
Region = tuple[tuple[int, int], ...]
SHARED = 1 << 40


class Schedule(NamedTuple):
    """The ops that get a name, by the region of their statement."""

    named: dict[Op, Region]
    regions: dict[Op, set[Region]]
    uses: dict[Op, int]


class Scheduler:
    """Places the ops below the roots; `held` ones have names already."""

    def __init__(
        self, roots: Iterable[tuple[Op, Region]], held: Collection[Op], safe: Safety
    ) -> None:
        self.roots, self.held, self.safe = tuple(roots), held, safe
        ends = (*(root for root, _ in self.roots), *safe.choices)
        self.below = {op.serial: op for end in ends for op in end.walk()}
        self.serials = sorted(self.below, reverse=True)  # users before what they use
        self.conds = [op for op in self.below.values() if op.rule == "cond"]

    def __call__(self, forced: Collection[Op]) -> Schedule:
        """Where every op stands if the `forced` ones get a name."""
        wanted = set(forced)
        while True:
            found = self._placed(wanted)
            missing = {op for op in self.conds if self._needs_name(op, found)}
            if not missing - wanted:
                return found
            wanted |= missing

    def _needs_name(self, op: Op, found: Schedule) -> bool:
        """Whether a choice takes an `if` of its own, since something in its branches has a name."""
        return (
            op in found.regions
            and op not in self.held
            and op not in found.named
            and all(op is not root for root, _ in self.roots)
            and any(op.serial in dict(region) for region in found.named.values())
        )

    def _placed(self, wanted: set[Op]) -> Schedule:
        regions: dict[Op, set[Region]] = {}
        uses: dict[Op, int] = {}
        named: dict[Op, Region] = {}
        for root, region in self.roots:
            regions.setdefault(root, set()).add(region)
            uses[root] = uses.get(root, 0) + 1
        for serial in self.serials:
            op = self.below[serial]
            if op not in regions or op in self.held:
                continue
            places = regions[op]
            if op in wanted or _comes_often(op, uses[op], self.held):
                common: Region | None = _common(places)
                if common not in places:
                    common = _guarded(places, self.below, self.safe, op)
                if common is not None:
                    named[op] = common
                    places = {common}
            for at, arg in enumerate(op.args):
                regions.setdefault(arg, set()).update(_inside(op, at, places))
                uses[arg] = uses.get(arg, 0) + _readings(op, at, op in named, uses[op])
        return Schedule(named, regions, uses)


def _comes_often(op: Op, uses: int, held: Collection[Op]) -> bool:
    """Whether it is read more than once, and is more than a view or a sign of what has a name."""
    if uses < 2 or is_never_named(op):
        return False
    return not (op.facts.inline and _is_leaf(op, held))


def _inside(op: Op, at: int, places: set[Region]) -> set[Region]:
    """Where an argument is read."""
    if op.rule != "cond":
        return places
    return {(*place, (op.serial, at)) for place in places}


def _readings(op: Op, at: int, named: bool, uses: int) -> int:
    """How often an argument is read by one op, which is written out where it has no name."""
    again = not named and uses > 1 and not is_at_hand(op)
    return 2 if again or (op.rule == "unsliced" and at == 0) else 1


def _is_leaf(op: Op, held: Collection[Op]) -> bool:
    return all(is_at_hand(arg) or arg in held for arg in op.args)


def _common(places: set[Region]) -> Region:
    """The innermost region that all of them are in."""
    first, *rest = sorted(places)
    for place in rest:
        count = 0
        while count < min(len(first), len(place)) and first[count] == place[count]:
            count += 1
        first = first[:count]
    return first


def _need_order(need: Need) -> tuple[int, str, int]:
    """Names by the alphabet, then tests in the order of the graph."""
    if isinstance(need, str):
        return (0, need, 0)
    test, at = need
    return (test.serial + 1, "", at)


def _guarded(
    places: set[Region], below: dict[int, Op], safe: Safety, op: Op
) -> Region | None:
    """The region under all tests that the places share, and under those that guard what the op needs."""
    common = _common(places)

    def tests(place: Region) -> list[Outcome]:
        return [(below[step % SHARED].test, at) for step, at in place if step >= 0]

    known = tests(common)
    first, *rest = (tests(place[len(common) :]) for place in sorted(places))
    shared = [pair for pair in first if all(pair in other for other in rest)]
    conds = sorted((op for op in below.values() if op.rule == "cond"), key=_serial)
    tested = {op.test: op.serial for op in reversed(conds)}
    tests_there = list(reversed(tested))
    for need in sorted(safe.needs(op) - safe.there(common), key=_need_order):
        if not any(meets(pair, need) for pair in (*known, *shared)):
            guard = guard_of(need, tests_there)
            if guard is None:
                return None
            shared = guarded_by(guard, need, shared)
    shared = [
        pair for pair in shared if not any(decides(*other, *pair) for other in shared)
    ]
    return (*common, *((SHARED + tested[test], at) for test, at in shared))


def _serial(op: Op) -> int:
    return op.serial
