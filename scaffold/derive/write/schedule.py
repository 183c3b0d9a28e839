"""Schedule the backward: which values are computed once, in a statement of their own, and the tests each one stands under.

`statements` asks before it writes lines: a value read twice gets a line `inner = ...` in place of being written twice.

In: the graph of the gradients, and the values that may be absent. Out: a `Schedule`; for each value, the conditions for computing
it (`Safety`). Invariant: a value is computed only under the tests that guard its uses, and reads nothing absent; a value shared by
several places is computed once, unless no common place is safe.

Words: `held` ops have a name from the forward; a choice is a `cond`, `a if test else b`; an outcome is a test and whether it holds;
a need is a condition without which a value cannot be computed. A region is the branches around a statement, a place the region of
one reader. A root is the gradient of an input. A guard is a test around a statement, for a need of its value.
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
    """The conditions for computing each value: inputs to be present, tests to hold. `x * y` needs an optional `y`."""

    def __init__(
        self,
        optional: Collection[Op],
        held: Collection[Op],
        takes_none: Callable[[Op, Op], bool],
        present: Mapping[int, str],
        ops: Iterable[Op] = (),
    ) -> None:
        """Begin with the values that are None in some calls: `optional` inputs, and choices among the `held` values of the forward.

        `present` maps the step of a gradient in a region to the optional input that the gradient is of. `takes_none(op, arg)` says
        whether None is accepted for that argument. `ops` are all of the graph.
        """
        self.optional, self.held, self.takes_none = optional, held, takes_none
        self.present = present
        # Attributes that may be None, by name.
        self.absent = frozenset(_named(op) for op in optional if op.rule == "static")
        self.choices = tuple(op for op in held if op.rule == "cond")
        # Of a local assigned in one branch alone, the value there -> when it is there.
        inside = {op: _assigning(op) for op in self.choices}
        self.inside = {op.args[0]: needs for op, needs in inside.items() if needs}
        self.known: dict[Op, frozenset[Need]] = {}
        self.tellers: dict[Shape, list[Op]] = {}  # of a matrix product -> values to ask
        for op in ops:
            if op.is_tensor and _is_product(op.shape) and not _asks(op):
                self.tellers.setdefault(op.shape, []).append(op)

    def there(self, steps: Collection[tuple[int, int]]) -> frozenset[str]:
        """Return the inputs surely present in a region, given by its `steps`: the branch of a gradient is taken only if its input is."""
        return frozenset(self.present[step] for step, _ in steps if step < 0)

    def needs(self, op: Op) -> frozenset[Need]:
        """Return the needs of a value: inputs to be present, and outcomes of tests, before it is computed."""
        if op not in self.known:
            self.known[op] = self._needs(op)
        return self.known[op]

    def _needs(self, op: Op) -> frozenset[Need]:
        """Find the needs of a value: those of all values it reads, down to optional inputs and locals of one branch.

        A choice needs nothing that its own test shows: `x * 2 if x is not None else 0` needs no `x`.
        """
        # Asked first: a value that may be None is among the `held` ones, too.
        if op in self.optional:
            # A local of one branch is there if that branch is taken; any other one is asked for by name.
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
        args = (arg for arg in op.args if not self.takes_none(op, arg))
        more = self._by_shape(op.shape) if op.rule in SHAPED else frozenset[Need]()
        return more.union(*map(self.needs, args))

    def _by_shape(self, shape: Shape) -> frozenset[Need]:
        """Return the needs of knowing a matrix product's shape: the fewest needs of a value with this shape; none for other shapes.

        No known op has any, except a LoRA of undeclared shapes.
        """
        if not _is_product(shape):
            return frozenset()
        several = map(self.needs, self.tellers.get(shape, ()))
        return min(several, key=len, default=frozenset())


def _is_product(shape: Shape) -> bool:
    """Return whether a shape comes from a matrix product: nothing but such a product has it."""
    return isinstance(shape.origin, MatrixProduct)


def _asks(op: Op) -> bool:
    """Return whether a value depends on the shape of another one: it cannot be asked for its own then."""
    return any(inner.rule in SHAPED for inner in op.walk())


def meets(outcome: Outcome, need: Need) -> bool:
    """Return whether a test's outcome meets a need: it implies that the name is not None, or the outcome the need asks for."""
    if isinstance(need, str):
        return implies(*outcome, need)
    return outcome == need or decides(*outcome, *need)


def guard_of(
    need: Need, tests: Collection[Op], is_met: Callable[[Need], bool]
) -> Outcome | None:
    """Return the outcome of one of the `tests` that guards a need and no more: (`x is not None`, 0) for the need "x".

    None if there is no such test, or if `is_met` is False: some reader of the value stands where the need is not met, and would
    lack the value.
    """
    if not is_met(need):
        return None
    if not isinstance(need, str):
        return need if need[0] in tests else None
    for test in filter(_asks_presence, tests):
        for at in (0, 1):
            if implies(test, at, need):
                return test, at
    return None


def guarded_by(guard: Outcome, need: Need, tests: Collection[Outcome]) -> list[Outcome]:
    """Return the outcomes to nest a statement under, with a guard before the first test that reads the guarded name (`need`)."""
    outcomes = list(tests)
    readers = (at for at, (test, _) in enumerate(outcomes) if need in names_read(test))
    outcomes.insert(next(readers, len(outcomes)), guard)
    return outcomes


def _assigning(op: Op) -> frozenset[Need]:
    """Return the needs of a choice with None in one branch: they hold if the other branch assigns it; none for other ops.

    `y = x * 2 if x is not None else None` needs `x`; with another test it needs the outcome (test, 0), or (test, 1) for the other
    branch.
    """
    needed = frozenset[Need]()
    if op.rule != "cond":
        return needed
    test = op.test
    for at, arg in enumerate(op.args):
        if arg.rule == "const" and arg.value is None:
            # The other branch is taken wherever the value is no None.
            implied = [name for name in names_read(test) if implies(test, 1 - at, name)]
            by_presence = implied and _asks_presence(test)
            needed |= {implied[0] if by_presence else (test, 1 - at)}
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
    """Return the name a test for None would read; `<12>` for an unnamed value, which no test reads, so no outcome meets it."""
    if op.rule == "static":
        return op.expression.label
    return op.name if op.rule == "input" else f"<{op.serial}>"


# --- The choice of values that get a statement.

# The branches around a statement, outermost first: (step, branch), branch 0 if the test
# holds. A step is the serial of a `cond`; plus `SHARED`, more than any serial, for a
# test shared by several `cond`s; or negative, for the branch of a gradient.
Region = tuple[tuple[int, int], ...]
SHARED = 1 << 40


class Schedule(NamedTuple):
    """The ops that get a statement, each with its region; for every op, the regions of its readers, and how often it is read."""

    named: dict[Op, Region]
    regions: dict[Op, set[Region]]
    uses: dict[Op, int]


class Scheduler:
    """The choice of ops to get a statement; called again and again, with more ops as their lines were too long."""

    def __init__(
        self,
        roots: Iterable[tuple[Op, Region]],
        held: Collection[Op],
        safe: Safety,
        sparing: bool = False,  # whether to avoid every repeated pass over a tensor
    ) -> None:
        """Begin with the roots, each with the region it is assigned in; `held` ops have names already, so they get no statement."""
        self.roots, self.held, self.safe = tuple(roots), held, safe
        ends = (*(root for root, _ in self.roots), *safe.choices)
        # All ops, by serial: an op has a higher one than its arguments.
        self.below = {op.serial: op for end in ends for op in end.walk()}
        # How many ops read each; `several` are those with more readers than one.
        readers: dict[Op, int] = {}
        for op in self.below.values():
            # `x * x` is one reader of `x`.
            for arg in {*op.args}:
                readers[arg] = readers.get(arg, 0) + 1
        self.several = {op for op, count in readers.items() if count > 1}
        in_order = [self.below[serial] for serial in sorted(self.below)]
        # Readers before what they read; each with the uses from which it gets a name.
        self.users_first = [
            (op, self._least_uses(op, sparing), is_at_hand(op))
            for op in reversed(in_order)
            if op not in held
        ]
        self.conds = [op for op, *_ in self.users_first if op.rule == "cond"]
        self.tested: dict[Op, int] = (
            {}
        )  # a test -> the serial of the first `cond` by it
        for op in in_order:
            if op.rule == "cond":
                self.tested.setdefault(op.test, op.serial)
        # The first term of such a sum takes the sum's name, unless something else reads
        # it.
        self.summed = {
            op.args[0]
            for op in self.below.values()
            if op.rule == "accumulated" and op.args[0] not in self.several
        }
        self.choices = set[Op]()  # choices known to need an `if` of their own
        # For ops without needs, which are safe anywhere: their places -> the region.
        self.enclosing: dict[frozenset[Region], Region | None] = {}

    def _least_uses(self, op: Op, sparing: bool) -> float:
        """Return the least number of reads for an op to get a name: 2 in general, 3 for the short `1 - x` and `x**2`, and small multiples.

        A view never gets one, nor does the negative of a named value. With `sparing` the short ones get it at 2, to save the pass; not the
        small multiples (`2 * g.unsqueeze(1)`), of rank 0 or with a dim of size 1: to compute one again is no pass over a large tensor.
        """
        # `-x` of a named `x`.
        if is_never_named(op) or (op.facts.inline and _is_leaf(op, self.held)):
            return inf
        if is_small_multiple(op):
            value = op.args[1]
            # Else each use of the product would compute the value again, too. A view costs nothing.
            has_name = value in self.held or value in self.several
            return 3 if has_name or is_never_named(value) else 2
        return 3 if is_brief(op) and not sparing else 2

    def __call__(self, forced: Collection[Op]) -> Schedule:
        """Place every op, given that the `forced` ones get a name.

        A choice with a named value in a branch must be an `if` statement, so it gets a name too; that may add others, hence the
        loop.
        """
        wanted = self.choices.union(forced)
        while True:
            plan = self._placed(wanted)
            inside = {step for region in plan.named.values() for step, _ in region}
            missing = {op for op in self.conds if self._needs_name(op, plan, inside)}
            if not missing - wanted:
                return plan
            wanted |= missing
            self.choices |= missing

    def _needs_name(self, op: Op, plan: Schedule, inside: set[int]) -> bool:
        """Return whether a choice must get a name because it is an `if` of its own: `inside` are those with a named value in a branch.

        A root, or the first term of a sum, gets its `if` under the name it is assigned to anyway.
        """
        return (
            op.serial in inside
            and op in plan.regions
            and op not in plan.named
            and op not in self.summed
            and all(op is not root for root, _ in self.roots)
        )

    def _placed(self, wanted: set[Op]) -> Schedule:
        """Choose the values to name and the region of each, from results to inputs, so all readers of a value are known.

        A value gets a name if it is read often enough, or is in `wanted`, and if some region around all its readers is safe for it.
        A branch of a choice is a place of its own for what is read in it.
        """
        regions: dict[Op, set[Region]] = {}
        uses: dict[Op, int] = {}
        named: dict[Op, Region] = {}
        for root, region in self.roots:
            regions.setdefault(root, set()).add(region)
            uses[root] = uses.get(root, 0) + 1
        for op, least, at_hand in self.users_first:
            places = regions.get(op)
            if places is None:  # nothing but named values of the forward reads it
                continue
            if op in wanted or uses[op] >= least:
                common = self._region(op, places)
                if common is not None:
                    named[op] = common
                    places = {common}
            # Without a name it is computed anew for each reader: it reads its arguments
            # more than once.
            is_repeated = uses[op] > 1 and not at_hand and op not in named
            for at, arg in enumerate(op.args):
                inside = places
                if op.rule == "cond":
                    inside = {(*place, (op.serial, at)) for place in places}
                regions.setdefault(arg, set()).update(inside)
                # The gradient of a slice has its value twice: `slice_scatter(g.new_zeros(...), g)`.
                is_twice = is_repeated or (op.rule == "unsliced" and at == 0)
                uses[arg] = uses.get(arg, 0) + (2 if is_twice else 1)
        return Schedule(named, regions, uses)

    def _region(self, op: Op, places: set[Region]) -> Region | None:
        """Return the region for computing an op read in these places, or None if it is safe in no region enclosing them."""
        if len(places) == 1:
            return next(iter(places))
        if self.safe.needs(op):
            return self._enclosing(places, op)
        # Without needs it is safe anywhere: one answer for all such ops.
        key = frozenset(places)
        if key not in self.enclosing:
            self.enclosing[key] = self._enclosing(places, op)
        return self.enclosing[key]

    def _enclosing(self, places: set[Region], op: Op) -> Region | None:
        """Return the innermost region around all places, or the same region extended by tests all places share and the op needs.

        None if the op is safe in neither.
        """
        common = _common(places)
        # A reader stands right there, so the value is computed there in any case.
        if common in places:
            return common
        return _guarded(places, common, self.below, self.tested, self.safe, op)


def _is_leaf(op: Op, held: Collection[Op]) -> bool:
    """Return whether all arguments of an op have names or are Python values."""
    return all(is_at_hand(arg) or arg in held for arg in op.args)


def _common(places: set[Region]) -> Region:
    """Return the innermost region around all places: the steps they all begin with."""
    first, *rest = sorted(places)
    for place in rest:
        count = 0
        while count < min(len(first), len(place)) and first[count] == place[count]:
            count += 1
        first = first[:count]
    return first


def _need_order(need: Need) -> tuple[int, str, int]:
    """Return the sort key of a need, so each run nests tests alike: names alphabetically, then tests in graph order."""
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
    """Return the region `common` to all places, extended by tests shared by all of them and by guards for the needs of `op`.

    Return None if a need has no guard. `below` are the ops by serial, `tested` has for each test, in the order of the graph, the
    serial of the first choice by it: that serial, plus `SHARED`, stands for the test in a region.
    """

    def tests(place: Region) -> list[Outcome]:
        return [(below[step % SHARED].test, at) for step, at in place if step >= 0]

    # A negative step is the branch of a gradient, which has no test in the graph (`step >= 0`).
    around = tests(common)
    # Tests around every place, though not yet in the common region.
    # Sorted, so that each run nests tests in one order.
    first, *rest = (tests(place[len(common) :]) for place in sorted(places))
    shared = [pair for pair in first if all(pair in other for other in rest)]
    present = safe.there(common)

    def is_met(need: Need) -> bool:
        """Return whether every place meets a need: its input is present, or a test around it says so."""
        return all(
            need in safe.there(place) or any(meets(pair, need) for pair in tests(place))
            for place in places
        )

    for need in sorted(safe.needs(op), key=_need_order):
        if need in present or any(meets(pair, need) for pair in (*around, *shared)):
            continue
        guard = guard_of(need, tested, is_met)
        if guard is None:  # no test says when the value can be computed
            return None
        shared = guarded_by(guard, need, shared)
    # A test decided by another one is not asked again.
    shared = [
        pair for pair in shared if not any(decides(*other, *pair) for other in shared)
    ]
    return (*common, *((SHARED + tested[test], at) for test, at in shared))
