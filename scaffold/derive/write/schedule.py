"""The schedule: which backward values get a statement of their own, and under which tests.

In: the graph of the gradients, and the values that may be absent. Out: a `Schedule`; for each value, the conditions for
computing it (`Safety`). Invariant: a value is computed only under the tests that guard its uses, and reads nothing
absent; a value shared by several places is computed once, unless no common place is safe.

Words: `held` ops have a name from the forward; a choice is a `cond`, `a if test else b`; a region is the branches around a
statement, a place the region of one reader.
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

# Ops that need the shape of another value.
SHAPED = frozenset(
    {"zeros", "expanded", "reshaped", "summed_to", "fitted_to", "same", "unsliced"}
)
# A test and the branch taken: 0 if the test holds, 1 if not.
Outcome = tuple[Op, int]
# A name that must not be None (a serial for an unnamed value, met by no test), or the
# outcome of a test under which the value is assigned.
Need = str | Outcome


# --- The conditions for computing a value.


class Safety:
    """The conditions for computing an op; `held` ops have names, `optional` ones may be absent."""

    def __init__(
        self,
        optional: Collection[Op],
        held: Collection[Op],
        takes_none: Callable[[Op, Op], bool],
        present: Mapping[int, str],
        ops: Iterable[Op] = (),
    ) -> None:
        """Begin with the values known to be absent in some calls; `present` maps a gradient's step to its optional input.

        `takes_none` tells of an op and an argument if None is accepted for it.
        """
        self.optional, self.held, self.takes_none = optional, held, takes_none
        self.present = present  # steps taken only if that input is present
        self.absent = frozenset(_named(op) for op in optional if op.rule == "static")
        self.choices = tuple(op for op in held if op.rule == "cond")
        inside = {op: _assigning(op) for op in self.choices}
        self.inside = {op.args[0]: needs for op, needs in inside.items() if needs}
        self.known: dict[Op, frozenset[Need]] = {}
        self.tellers: dict[Shape, list[Op]] = {}  # values with such a shape
        for op in ops:
            if op.is_tensor and _is_product(op.shape) and not _asks(op):
                self.tellers.setdefault(op.shape, []).append(op)

    def there(self, steps: Collection[tuple[int, int]]) -> frozenset[str]:
        """Return the inputs surely present in a region: a gradient's branch is taken only if its input is."""
        return frozenset(self.present[step] for step, _ in steps if step < 0)

    def needs(self, op: Op) -> frozenset[Need]:
        """Return the inputs to be present, and the test outcomes required, before an op is computed."""
        if op not in self.known:
            self.known[op] = self._needs(op)
        return self.known[op]

    def _needs(self, op: Op) -> frozenset[Need]:
        """Return the conditions for computing a value: an optional input or a local of one branch is read below it."""
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
        """Return the conditions for knowing the shape of a matrix product: those of one value with that shape; none for other shapes.

        No known op needs one, except a LoRA of undeclared shapes.
        """
        if not _is_product(shape):
            return frozenset()
        several = map(self.needs, self.tellers.get(shape, ()))
        return min(several, key=len, default=frozenset())


def _is_product(shape: Shape) -> bool:
    """Return whether a shape comes from a matrix product: nothing but such a product has it."""
    return isinstance(shape.origin, MatrixProduct)


def _asks(op: Op) -> bool:
    """Return whether a value depends on the shape of another one."""
    return any(inner.rule in SHAPED for inner in op.walk())


def meets(outcome: Outcome, need: Need) -> bool:
    """Return whether a test's outcome meets a need: it implies a name is not None, or decides the test asked for."""
    if isinstance(need, str):
        return implies(*outcome, need)
    return outcome == need or decides(*outcome, *need)


def guard_of(
    need: Need, tests: Collection[Op], is_met: Callable[[str | Outcome], bool]
) -> Outcome | None:
    """Return the outcome of one of the tests to guard a need and no more; None without one, or if a place does not meet the need.

    A need is the name of an optional input, or an outcome itself: a test, with 0 for true and 1 for false.
    """
    if not isinstance(need, str):
        return need if need[0] in tests and is_met(need) else None
    for test in filter(_asks_presence, tests) if is_met(need) else ():
        for at in (0, 1):
            if implies(test, at, need):
                return test, at
    return None


def guarded_by(guard: Outcome, need: Need, tests: Collection[Outcome]) -> list[Outcome]:
    """Return the tests with a guard before the first one that reads the name it guards."""
    found = list(tests)
    readers = (at for at, (test, _) in enumerate(found) if need in names_read(test))
    found.insert(next(readers, len(found)), guard)
    return found


def _assigning(op: Op) -> frozenset[Need]:
    """Return the conditions under which a name is assigned, if only one branch of a choice assigns it.

    The other branch is None then. A condition is an input to be present, or a test with the branch taken (0 if it is true).
    """
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
        # `ratio if scale > 0 else y`: only that branch assigns `ratio`.
        if not meets((test, at), need)
    )


def _asks_presence(test: Op) -> bool:
    """Return whether a test only checks a name for None."""
    return test.is_python("compare", "is", "is not")


def _named(op: Op) -> str:
    """Return the name a test for None would read; `<12>` for an unnamed value, which no test reads."""
    if op.rule == "static":
        return op.expression.label
    return op.name if op.rule == "input" else f"<{op.serial}>"


# --- The choice of values that get a statement.

# The branches around a statement, outermost first: (step, branch), branch 0 if the test
# holds. A step is the serial of a `cond`; plus `SHARED` for a test shared by several
# `cond`s; or negative, for the branch of a gradient.
Region = tuple[tuple[int, int], ...]
SHARED = 1 << 40


class Schedule(NamedTuple):
    """The named ops, each with its statement's region."""

    named: dict[Op, Region]
    regions: dict[Op, set[Region]]
    uses: dict[Op, int]


class Scheduler:
    """The placement of the ops below the roots; `held` ones have names already."""

    def __init__(
        self,
        roots: Iterable[tuple[Op, Region]],
        held: Collection[Op],
        safe: Safety,
        sparing: bool = False,  # whether to avoid every repeated pass over a tensor
    ) -> None:
        """Begin with the roots, each with the region it is assigned in."""
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
        first = sorted(tests, key=lambda op: op.serial, reverse=True)
        self.tested = {op.test: op.serial for op in first}  # the first such `cond`
        # The first term of such a sum takes the sum's name, unless something else reads
        # it.
        self.summed = {
            op.args[0]
            for op in self.below.values()
            if op.rule == "accumulated" and op.args[0] not in self.several
        }
        self.choices = set[Op]()  # choices known to need an `if` of their own
        # Cache for ops without needs: their places -> the common region.
        self.shared: dict[frozenset[Region], Region | None] = {}

    def _least_uses(self, op: Op, held: Collection[Op], sparing: bool) -> float:
        """Return the number of reads from which an op gets a name: 2 in general, 3 for `1 - x` and `x**2`.

        A view never gets one, nor does the negative of a named value.
        """
        if is_never_named(op) or (op.facts.inline and _is_leaf(op, held)):
            return inf
        if is_small_multiple(op):
            value = op.args[1]
            there = value in held or value in self.several or is_never_named(value)
            return 3 if there else 2
        return 3 if is_brief(op) and not sparing else 2

    def __call__(self, forced: Collection[Op]) -> Schedule:
        """Place every op, given that the `forced` ones get a name; a choice with a named value in a branch gets one too."""
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
        """Return whether a choice needs an `if` of its own, and so a name: `inside` are choices with a named value in a branch.

        A root, or a term of a sum, gets its `if` without another name.
        """
        return (
            op.serial in inside
            and op in found.regions
            and op not in found.named
            and op not in self.summed
            and all(op is not root for root, _ in self.roots)
        )

    def _placed(self, wanted: set[Op]) -> Schedule:
        """Choose the values to name and the region of each, walking from results to inputs; the ops in `wanted` get a name.

        A value gets one if it is read often enough, and its readers have a region in common where it is safe to compute.
        """
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
            # Computed anew by each reader, it reads its own arguments more than once.
            again = uses[op] > 1 and not at_hand and op not in named
            for at, arg in enumerate(op.args):
                inside = places
                if op.rule == "cond":
                    inside = {(*place, (op.serial, at)) for place in places}
                there = regions.get(arg)
                if there is None:
                    regions[arg] = {*inside}
                else:
                    there |= inside
                # The gradient of a slice is written with its value twice.
                twice = again or (op.rule == "unsliced" and at == 0)
                uses[arg] = uses.get(arg, 0) + 1 + twice
        return Schedule(named, regions, uses)

    def _region(self, op: Op, places: set[Region]) -> Region | None:
        """Return the region for an op read in these places, or None if it is safe in none that encloses them."""
        if len(places) == 1:
            return next(iter(places))
        # Without needs it is safe anywhere: one answer for all such ops.
        if self.safe.needs(op):
            return self._shared(places, op)
        key = frozenset(places)
        if key not in self.shared:
            self.shared[key] = self._shared(places, op)
        return self.shared[key]

    def _shared(self, places: set[Region], op: Op) -> Region | None:
        """Return the innermost region around all places: one of them, or else one extended by the tests they share and the op needs."""
        common = _common(places)
        if common in places:
            return common
        return _guarded(places, common, self.below, self.tested, self.safe, op)


def _is_leaf(op: Op, held: Collection[Op]) -> bool:
    """Return whether all arguments of an op have names or are Python values."""
    return all(is_at_hand(arg) or arg in held for arg in op.args)


def _common(places: set[Region]) -> Region:
    """Return the innermost region enclosing all places."""
    first, *rest = sorted(places)
    for place in rest:
        count = 0
        while count < min(len(first), len(place)) and first[count] == place[count]:
            count += 1
        first = first[:count]
    return first


def _need_order(need: Need) -> tuple[int, str, int]:
    """Return the sort key of a need: names alphabetically, then tests in graph order."""
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
    """Return the common region extended by the tests shared by all places, and by guards for the op's needs.

    Return None if a need has no guard. `below` are the ops by serial, `tested` the first choice with each test.
    """

    def tests(place: Region) -> list[Outcome]:
        return [(below[step % SHARED].test, at) for step, at in place if step >= 0]

    known = tests(common)
    first, *rest = (tests(place[len(common) :]) for place in sorted(places))
    shared = [pair for pair in first if all(pair in other for other in rest)]
    tests_there = list(reversed(tested))
    there = safe.there(common)

    def is_met(need: str | Outcome) -> bool:
        """Return whether every place meets a need: its input is present there, or a test around it says so."""
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
