"""Which values of the backward get a statement of their own, and under which tests it stands.

In: the graph of the gradients, and which values may be absent. Out: a `Schedule`; of each value, what must be given before it can be
computed (`Safety`). Invariant: a value is computed only under the tests that guard its uses, where it reads nothing that is absent; a
value that several places share is computed once, unless no common place is safe.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from scaffold.derive.graph.conditions import decides, implies
from scaffold.derive.graph.op import Op, names_read
from scaffold.derive.graph.shapes import MatrixProduct, Shape
from scaffold.derive.plan.costs import (
    is_at_hand,
    is_brief,
    is_never_named,
    is_small_multiple,
)

# Ops that ask for a shape that another value has.
SHAPED = frozenset(
    {"zeros", "expanded", "reshaped", "summed_to", "fitted_to", "same", "unsliced"}
)
# A test, and the branch that it takes: 0 if it holds, 1 if not.
Outcome = tuple[Op, int]
# A name that is not None (a serial for what has none, which nothing tells), or a test that assigns what is read.
Need = str | Outcome


# --- What must be given before a value can be computed.


class Safety:
    """Says what must be there before an op is computed; `held` ones have names, `optional` ones may be absent."""

    def __init__(
        self,
        optional: Collection[Op],
        held: Collection[Op],
        takes_none: Callable[[Op, Op], bool],
        present: Mapping[int, str],
        ops: Iterable[Op] = (),
    ) -> None:
        self.optional, self.held, self.takes_none = optional, held, takes_none
        self.present = present  # a step that is taken only where that input is there
        self.absent = frozenset(_named(op) for op in optional if op.rule == "static")
        self.choices = tuple(op for op in held if op.rule == "cond")
        inside = {op: _assigning(op) for op in self.choices}
        self.inside = {op.args[0]: needs for op, needs in inside.items() if needs}
        self.known: dict[Op, frozenset[Need]] = {}
        self.tellers: dict[Shape, list[Op]] = {}  # the values that have such a shape
        for op in ops:
            if op.is_tensor and _is_product(op.shape) and not _asks(op):
                self.tellers.setdefault(op.shape, []).append(op)

    def there(self, steps: Collection[tuple[int, int]]) -> frozenset[str]:
        """The inputs that are surely there after these steps."""
        return frozenset(self.present[step] for step, _ in steps if step < 0)

    def needs(self, op: Op) -> frozenset[Need]:
        """What must be there, or have been tested."""
        if op not in self.known:
            self.known[op] = self._needs(op)
        return self.known[op]

    def _needs(self, op: Op) -> frozenset[Need]:
        if op in self.optional:
            return self.inside.get(op) or frozenset({_named(op)})
        if op.rule == "static":
            return frozenset(op.expression.names() & self.absent)
        if op in self.held:
            return _assigning(op)
        if op.rule == "cond":
            return frozenset(
                need
                for at, arg in enumerate(op.args)
                for need in self.needs(arg)
                if not meets((op.test, at), need)
            )
        needed = (arg for arg in op.args if not self.takes_none(op, arg))
        asked = self._asked(op.shape) if op.rule in SHAPED else frozenset[Need]()
        return asked.union(*map(self.needs, needed))

    def _asked(self, shape: Shape) -> frozenset[Need]:
        """What must be there to know a shape that only a product of matrices has: no known op asks, but one with a LoRA of undeclared shapes."""
        if not _is_product(shape):
            return frozenset()
        several = map(self.needs, self.tellers.get(shape, ()))
        return min(several, key=len, default=frozenset())


def _is_product(shape: Shape) -> bool:
    """Whether only a product of matrices has a shape."""
    return isinstance(shape.origin, MatrixProduct)


def _asks(op: Op) -> bool:
    """Whether a value cannot be computed without the shape of another one."""
    return any(inner.rule in SHAPED for inner in op.walk())


def meets(outcome: Outcome, need: Need) -> bool:
    """Whether a need is met where a test took that branch."""
    if isinstance(need, str):
        return implies(*outcome, need)
    return outcome == need or decides(*outcome, *need)


def guard_of(
    need: Need, tests: Collection[Op], is_met: Callable[[str | Outcome], bool]
) -> Outcome | None:
    """The outcome of one of the tests that meets the need and asks for no more, if the need is met in every place."""
    if not isinstance(need, str):
        return need if need[0] in tests and is_met(need) else None
    for test in filter(_asks_presence, tests) if is_met(need) else ():
        for at in (0, 1):
            if implies(test, at, need):
                return test, at
    return None


def guarded_by(guard: Outcome, need: Need, tests: Collection[Outcome]) -> list[Outcome]:
    """The tests with a guard among them, placed before the first test that reads what the guard asks for."""
    found = list(tests)
    readers = (at for at, (test, _) in enumerate(found) if need in names_read(test))
    found.insert(next(readers, len(found)), guard)
    return found


def _assigning(op: Op) -> frozenset[Need]:
    """What must be there for a name to be assigned, where only one branch of a choice does it."""
    needed = frozenset[Need]()
    if op.rule != "cond":
        return needed
    test = op.test
    for at, arg in enumerate(op.args):
        if arg.rule == "const" and arg.value is None:
            implied = [name for name in names_read(test) if implies(test, 1 - at, name)]
            needed |= {
                implied[0] if implied and _asks_presence(test) else (test, 1 - at)
            }
    return needed.union(
        need
        for at, arg in enumerate(op.args)
        for need in _assigning(arg)
        # `ratio if scale > 0 else y`, where only that branch has a `ratio`.
        if not meets((test, at), need)
    )


def _asks_presence(test: Op) -> bool:
    """Whether a test is only whether a name is None."""
    return test.is_python("compare", "is", "is not")


def _named(op: Op) -> str:
    if op.rule == "static":
        return op.expression.label
    return op.name if op.rule == "input" else f"<{op.serial}>"


# --- Which values get a statement.

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
        self,
        roots: Iterable[tuple[Op, Region]],
        held: Collection[Op],
        safe: Safety,
        sparing: bool = False,  # no pass over a tensor is made twice
    ) -> None:
        self.roots, self.held, self.safe = tuple(roots), held, safe
        ends = (*(root for root, _ in self.roots), *safe.choices)
        self.below = {op.serial: op for end in ends for op in end.walk()}
        readers: dict[Op, int] = {}
        for op in self.below.values():
            for arg in {*op.args}:
                readers[arg] = readers.get(arg, 0) + 1
        self.several = {op for op, count in readers.items() if count > 1}
        in_order = (self.below[serial] for serial in sorted(self.below, reverse=True))
        self.users_first = [
            (op, self._least_uses(op, held, sparing), is_at_hand(op))
            for op in in_order
            if op not in held
        ]
        self.conds = [op for op, *_ in self.users_first if op.rule == "cond"]
        tests = (op for op in self.below.values() if op.rule == "cond")
        first = sorted(tests, key=_serial, reverse=True)
        self.tested = {op.test: op.serial for op in first}  # by the first that asks it
        # What such a sum starts with has its name, unless something else reads it.
        self.summed = {
            op.args[0]
            for op in self.below.values()
            if op.rule == "accumulated" and op.args[0] not in self.several
        }
        self.choices = set[Op]()  # that take an `if` of their own, so far
        # For what needs nothing to be there: the region that its places share.
        self.shared: dict[frozenset[Region], Region | None] = {}

    def _least_uses(self, op: Op, held: Collection[Op], sparing: bool) -> float:
        """From how many reads on an op gets a name: from 2, and from 3 for `1 - x` and `x**2`; a view or the negative of what has a name never gets one."""
        if is_never_named(op) or (op.facts.inline and _is_leaf(op, held)):
            return inf
        if is_small_multiple(op):
            value = op.args[1]
            there = value in held or value in self.several or is_never_named(value)
            return 3 if there else 2
        return 3 if is_brief(op) and not sparing else 2

    def __call__(self, forced: Collection[Op]) -> Schedule:
        """Where every op stands if the `forced` ones get a name."""
        wanted = self.choices.union(forced)
        while True:
            found = self._placed(wanted)
            inside = {step for region in found.named.values() for step, _ in region}
            missing = {op for op in self.conds if self._needs_name(op, found, inside)}
            if not missing - wanted:
                return found
            wanted |= missing
            self.choices |= missing

    def _needs_name(self, op: Op, found: Schedule, inside: set[int]) -> bool:
        """Whether a choice takes an `if` of its own, since something `inside` its branches has a name."""
        return (
            op.serial in inside
            and op in found.regions
            and op not in found.named
            and op not in self.summed
            and all(op is not root for root, _ in self.roots)
        )

    def _placed(self, wanted: set[Op]) -> Schedule:
        regions: dict[Op, set[Region]] = {}
        uses: dict[Op, int] = {}
        named: dict[Op, Region] = {}
        for root, region in self.roots:
            regions.setdefault(root, set()).add(region)
            uses[root] = uses.get(root, 0) + 1
        for op, least, at_hand in self.users_first:
            places = regions.get(op)
            if places is None:
                continue
            if op in wanted or uses[op] >= least:
                common = self._region(op, places)
                if common is not None:
                    named[op] = common
                    places = {common}
            again = uses[op] > 1 and not at_hand and op not in named
            for at, arg in enumerate(op.args):
                inside = _inside(op, at, places) if op.rule == "cond" else places
                there = regions.get(arg)
                if there is None:
                    regions[arg] = {*inside}
                else:
                    there |= inside
                twice = again or (op.rule == "unsliced" and at == 0)
                uses[arg] = uses.get(arg, 0) + 1 + twice
        return Schedule(named, regions, uses)

    def _region(self, op: Op, places: set[Region]) -> Region | None:
        """Where an op is computed that is read in these places; None where no region is safe."""
        if len(places) == 1:
            return next(iter(places))
        if self.safe.needs(op):
            return self._shared(places, op)
        key = frozenset(places)
        if key not in self.shared:
            self.shared[key] = self._shared(places, op)
        return self.shared[key]

    def _shared(self, places: set[Region], op: Op) -> Region | None:
        common = _common(places)
        if common in places:
            return common
        return _guarded(places, common, self.below, self.tested, self.safe, op)


def _inside(op: Op, at: int, places: set[Region]) -> set[Region]:
    """Where an argument of a choice is read."""
    return {(*place, (op.serial, at)) for place in places}


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
    places: set[Region],
    common: Region,
    below: Mapping[int, Op],
    tested: dict[Op, int],
    safe: Safety,
    op: Op,
) -> Region | None:
    """The region in their common one, under all tests that the places share, and under those that guard what the op needs."""

    def tests(place: Region) -> list[Outcome]:
        return [(below[step % SHARED].test, at) for step, at in place if step >= 0]

    known = tests(common)
    first, *rest = (tests(place[len(common) :]) for place in sorted(places))
    shared = [pair for pair in first if all(pair in other for other in rest)]
    tests_there = list(reversed(tested))
    there = safe.there(common)

    def is_met(need: str | Outcome) -> bool:
        return all(
            need in safe.there(place) or any(meets(pair, need) for pair in tests(place))
            for place in places
        )

    for need in sorted(safe.needs(op), key=_need_order):
        if need not in there and not any(
            meets(pair, need) for pair in (*known, *shared)
        ):
            guard = guard_of(need, tests_there, is_met)
            if guard is None:
                return None
            shared = guarded_by(guard, need, shared)
    shared = [
        pair for pair in shared if not any(decides(*other, *pair) for other in shared)
    ]
    return (*common, *((SHARED + tested[test], at) for test, at in shared))


def _serial(op: Op) -> int:
    return op.serial
