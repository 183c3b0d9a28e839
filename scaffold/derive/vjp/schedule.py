"""Which values get a statement of their own, and in which branch it stands.

In: the gradients. Out: a `Schedule`. Invariant: a value is computed only under the tests that guard its uses; a value that
several places share is computed once, unless no common place is safe.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.present import decides, implies
from scaffold.formula import Node

# The choices around a place: serial of the `cond`, and its branch. One that several conds share has `SHARED` on top.
Region = tuple[tuple[int, int], ...]
SHARED = 1 << 40
TRIVIAL = frozenset(
    {
        "input",
        "cotangent",
        "const",
        "static",
        "shape",
        "size",
        "rank",
        "count",
        "dtype",
        "list",
        "item",
        "range",
        "same",
    }
)
CHEAP = frozenset(
    {
        "mT",
        "t",
        "T",
        "mH",
        "unsqueeze",
        "expanded",
        "neg",
        "slice",
        "select",
        "conj",
        "squeeze",
        "zeros",
    }
)
# What costs nothing: the value that is looked at has a name rather than the view.
VIEWS = frozenset({"mT", "t", "T", "mH", "unsqueeze", "squeeze"})


class Schedule(NamedTuple):
    """The ops that get a name, by the region of their statement."""

    named: dict[Op, Region]
    regions: dict[Op, set[Region]]
    uses: dict[Op, int]


def scheduled(
    roots: Iterable[tuple[Op, Region]],
    held: Collection[Op],
    safe: "Safety",
    forced: Collection[Op],
) -> Schedule:
    """Place every op below the roots; `held` ones have names already."""
    wanted = set(forced)
    roots = tuple(roots)
    while True:
        found = _place(roots, held, safe, wanted)
        missing = {
            op
            for op in found.regions
            if op.rule == "cond"
            and op not in held
            and op not in found.named
            and all(op is not root for root, _ in roots)
            and any(
                region[-1:]
                and region[-1][0] == op.serial
                or (op.serial in dict(region))
                for region in found.named.values()
            )
        }
        if not missing - wanted:
            return found
        wanted |= missing


def _place(
    roots: tuple[tuple[Op, Region], ...],
    held: Collection[Op],
    safe: "Safety",
    wanted: set[Op],
) -> Schedule:
    below = {op.serial: op for root, _ in roots for op in root.walk()}
    regions: dict[Op, set[Region]] = {}
    uses: dict[Op, int] = {}
    named: dict[Op, Region] = {}
    for root, region in roots:
        regions.setdefault(root, set()).add(region)
        uses[root] = uses.get(root, 0) + 1
    for serial in sorted(below, reverse=True):
        op = below[serial]
        if op not in regions or op in held:
            continue
        places = regions[op]
        if op in wanted or _comes_often(op, uses[op], held):
            common = _common(places)
            if common not in places:
                common = _guarded(common, places, below, safe.needs(op)) or common
            if common in places or safe(op) or common[-1:] > ((SHARED, 0),):
                named[op] = common
                places = {common}
        for at, arg in enumerate(op.args):
            regions.setdefault(arg, set()).update(_inside(op, at, places))
            uses[arg] = uses.get(arg, 0) + _readings(op, at, op in named, uses[op])
    return Schedule(named, regions, uses)


def _comes_often(op: Op, uses: int, held: Collection[Op]) -> bool:
    """Whether it is read more than once, and is more than a view or a sign of what has a name."""
    trifling = op.rule in CHEAP and _is_leaf(op, held)
    return uses > 1 and op.rule not in TRIVIAL | VIEWS and not trifling


def _inside(op: Op, at: int, places: set[Region]) -> set[Region]:
    """Where an argument is read."""
    if op.rule != "cond":
        return places
    return {(*place, (op.serial, at)) for place in places}


def _readings(op: Op, at: int, named: bool, uses: int) -> int:
    """How often an argument is read by one op, which is written out where it has no name."""
    again = not named and uses > 1 and op.rule not in TRIVIAL
    return 2 if again or (op.rule == "unsliced" and at == 0) else 1


def _is_leaf(op: Op, held: Collection[Op]) -> bool:
    return all(arg.rule in TRIVIAL or arg in held for arg in op.args)


def _common(places: set[Region]) -> Region:
    """The innermost region around all of them."""
    first, *rest = sorted(places)
    for place in rest:
        count = 0
        while count < min(len(first), len(place)) and first[count] == place[count]:
            count += 1
        first = first[:count]
    return first


def _guarded(
    common: Region,
    places: set[Region],
    below: dict[int, Op],
    needs: frozenset[str],
) -> Region | None:
    """The region under all tests that the places share, where those tell that what is needed is there."""

    def tests(place: Region) -> list[tuple[object, int]]:
        steps = place[len(common) :]
        return [(below[step % SHARED].data, at) for step, at in steps if step >= 0]

    first, *rest = map(tests, sorted(places))
    shared = [pair for pair in first if all(pair in other for other in rest)]
    if not all(any(implies(*pair, name) for pair in shared) for name in needs):
        return None
    shared = [
        pair for pair in shared if not any(decides(*other, *pair) for other in shared)
    ]
    conds = sorted((op for op in below.values() if op.rule == "cond"), key=_serial)
    steps = [
        (SHARED + next(op.serial for op in conds if op.data is test), at)
        for test, at in shared
    ]
    return (*common, *steps)


def _serial(op: Op) -> int:
    return op.serial


class Safety:
    """Whether an op may be computed whatever the tests say: it reads nothing that may be absent."""

    def __init__(
        self,
        optional: Collection[Op],
        held: Collection[Op],
        takes_none: Callable[[Op, Op], bool],
    ) -> None:
        self.optional, self.held, self.takes_none = optional, held, takes_none
        self.absent = frozenset(_named(op) for op in optional if op.rule == "static")
        self.known: dict[Op, frozenset[str]] = {}

    def __call__(self, op: Op) -> bool:
        return not self.needs(op)

    def needs(self, op: Op) -> frozenset[str]:
        """What must be there: names, or a serial of what has none."""
        if op not in self.known:
            self.known[op] = self._needs(op)
        return self.known[op]

    def _needs(self, op: Op) -> frozenset[str]:
        if op in self.optional:
            return frozenset({_named(op)})
        if op.rule == "static" and isinstance(op.data, Node):
            return op.data.names() & self.absent
        if op in self.held:
            return frozenset()
        if op.rule == "cond":
            return frozenset(
                name
                for at, arg in enumerate(op.args)
                for name in self.needs(arg)
                if not implies(op.data, at, name)
            )
        needed = (arg for arg in op.args if not self.takes_none(op, arg))
        return frozenset[str]().union(*map(self.needs, needed))


def _named(op: Op) -> str:
    if isinstance(op.data, Node):
        return op.data.label if op.rule == "static" else f"<{op.serial}>"
    return str(op.data) if op.rule == "input" else f"<{op.serial}>"
