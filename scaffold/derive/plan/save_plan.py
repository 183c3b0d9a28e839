"""The save plan: what is saved of the forward, what the backward computes again, and in which lines.

In: the gradients as a graph. Out: a `SavePlan`. Invariant: whatever is saved, the gradients are the same; what is not saved can be
computed from what is; values are saved only where that is noticeably faster than to compute them all again.

Under balanced a minimum cut chooses (`to_save`), by the prices in `costs`. Each value of the forward that the backward reads must be at
hand: saved, or computed from its arguments, which must then be at hand. Cutting a value's own edge saves it, cutting the edge to the sink
computes it. A table of pairs (the scores of attention) is priced higher than its bytes: it grows with the square of a length.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import combinations, pairwise, product
from typing import NamedTuple

from scaffold.derive.backward_program import needed_for
from scaffold.derive.derivation import Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, down_to, tensors
from scaffold.derive.graph.shapes import (
    Dim,
    LeadingDims,
    MatrixProduct,
    Shape,
    is_lead,
)
from scaffold.derive.lower.forward_names import Places
from scaffold.derive.lower.statements import Lowered
from scaffold.derive.plan.costs import Costs, is_brief, is_free, is_reduction
from scaffold.derive.rules.table import Table
from scaffold.formula import Assign, Lines
from scaffold.spec import OpSpec

DEAR = 2  # passes from which on a value is not computed a second time
PLAIN = ("real", "complex")


class BackwardGraph(NamedTuple):
    """The gradients as a graph, with all that is known of the forward."""

    spec: OpSpec
    applier: Applier
    forward: Forward
    lowered: Lowered
    held: Mapping[Op, str]
    seeds: Mapping[Op, Op]  # the cotangent of each result -> that result
    roots: Mapping[str, Op]
    of: Mapping[Op, Op]
    via: Mapping[Op, tuple[Op, Op]]
    taken: Collection[str]
    indent: int = 0  # of the lines, where the backward runs under an autocast

    @property
    def saves(self) -> bool:
        """Whether values of the forward are saved."""
        return self.spec.forgoes_second


class SavePlan(NamedTuple):
    """Which values of the forward are saved, and which the backward computes in lines of its own.

    All others come again as statements of the forward.
    """

    saved: tuple[Op, ...]
    own: Mapping[Op, str]  # locals of the forward, computed in other lines than there
    once: bool  # a gradient is of a primitive that PyTorch differentiates once


def save_plan(backward: BackwardGraph) -> SavePlan:
    """What is saved of the forward, and which of its locals are computed another way than there."""
    saved = _saved(backward) if backward.saves else ()
    table = backward.applier.table
    below = {op for root in backward.roots.values() for op in root.walk()}
    rules = (table.of_op(op.rule) for op in below)
    once = any(rule is not None and rule.ends_derivatives for rule in rules)
    return SavePlan(saved, _own(backward, saved), once)


def _saved(backward: BackwardGraph) -> tuple[Op, ...]:
    """The values of the forward to save."""
    costs = Costs(backward.applier.table, backward.spec.double_backward)
    named = {*backward.held, *backward.lowered.places}
    named -= _numbers(backward.lowered.results)
    return to_save(
        costs,
        backward.lowered.results,
        backward.roots.values(),
        lambda op: op in named and not op.facts.takes_no_memory,
    )


def _numbers(results: Iterable[Op]) -> set[Op]:
    """The values that are Python numbers in some calls, `w.sum() if w is not None else 2.0`: these cannot be saved."""
    found = set[Op]()
    inner = {op for result in results for op in result.walk()}
    for op in sorted(inner, key=lambda op: op.serial):
        computed = op.facts.category == "elementwise" and found.issuperset(op.args)
        chosen = op.rule == "cond" and not found.isdisjoint(op.args)
        number = op.kind == "static" and not (op.rule == "const" and op.value is None)
        if number or computed or chosen:
            found.add(op)
    return found


def _own(backward: BackwardGraph, saved: Collection[Op]) -> Mapping[Op, str]:
    """The locals of the forward that the backward computes in lines of its own."""
    spec, lowered = backward.spec, backward.lowered
    stated = spec.gradients or spec.backward
    if spec.foreign or stated or (spec.once_differentiable and not backward.saves):
        return {}
    there = {*saved, *lowered.results, *lowered.inputs.values()}
    return taken_apart(backward.roots.values(), backward.held, there)


def computed_twice(
    roots: Iterable[Op],
    named: Collection[str],
    held: Mapping[Op, str],
    places: Places,
    statements: Lines,
    there: Collection[str],
) -> tuple[Op, ...]:
    """The values without a name that would be computed twice: in a repeated statement of the forward, and in a gradient.

    `named` are names that the gradients are known to read, for a shape maybe; `there` those that are at hand: what assigns them is not
    repeated.
    """
    ends = tuple(roots)
    read = {*named, *(held[op] for op in down_to(ends, held) if op in held)}
    repeated = needed_for(statements, read, there)
    lines = {
        at: item.value
        for at, item in enumerate(statements)
        if at in repeated and isinstance(item, Assign)
    }
    inside = {
        op
        for op, found in places.items()
        if op not in held and not is_free(op)
        if any(lines.get(at, node) is not node for at, node in found)
    }
    below = [*down_to(ends, {*held, *inside})]
    uses = Counter(arg for op in below for arg in op.args)
    found = [op for op in below if op in inside]
    found = [op for op in found if not (is_brief(op) and uses[op] == 1)]
    return tuple(sorted(found, key=lambda op: op.serial))


# --- Rematerialization: locals of the forward that the backward computes in its own lines, since it reads what is inside them. Each can
# be computed again from inputs, results and other locals; one whose inside nobody else reads stays as the forward has it.


def taken_apart(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    there: Collection[Op],
) -> dict[Op, str]:
    """The locals inside which the backward reads another value as well; what is `there` need not be computed."""
    ends = tuple(roots)
    found: dict[Op, str] = {}
    while True:
        stops = {op for op in held if op in there or op not in found}
        seen = {*down_to(ends, stops)}
        inner = {op for op in seen - stops if is_dear(op)}
        below = {*down_to(seen & stops - set(there), there)}
        more = {
            op: name
            for op, name in held.items()
            if op in below
            and op not in found
            and _holds(op, inner, there)
            and _is_plain(op, there)
        }
        if not more:
            return found
        found |= more


def _holds(op: Op, inner: Collection[Op], there: Collection[Op]) -> bool:
    return op not in there and any(
        part in inner and part is not op for part in down_to((op,), there)
    )


def is_dear(op: Op) -> bool:
    """Whether a value is better computed once."""
    if is_free(op) or op.kind not in PLAIN:
        return False
    return op.facts.is_dear or op.facts.passes >= DEAR or is_reduction(op)


def _is_plain(op: Op, there: Collection[Op]) -> bool:
    """Whether it is one tensor that every call computes, by primitives that have a rule."""
    return all(
        part in there
        or part.kind != "group"
        and part.rule not in ("call", "cond", "drawn", "item")
        for part in down_to((op,), there)
    )


# --- Tables of pairs: products of each row of one tensor with each row of another, like the scores of attention.
#
# In: the ops of a forward. Out: those among them that are such tables. Invariant: what an input or an output is as large as is
# no table; nor is a product with a weight, which has no leading dim in common with what it is multiplied by.


Pair = tuple[Dim, Dim]
LEAD = LeadingDims("")  # of any input


def tables_of_pairs(
    table: Table, forward: Collection[Op], ends: Collection[Op]
) -> frozenset[Op]:
    """The values that grow with the square of a length with which inputs and outputs grow."""
    pairs = {pair for op in forward if _is_product(table, op) for pair in _pairs(op)}
    leaves = [op for op in forward if op.rule == "input" or op in ends]
    sizes = [Counter(_dims(op.shape)) for op in leaves]

    def is_table(own: Counter[Dim]) -> bool:
        return any(Counter(pair) <= own for pair in pairs) and not any(
            own <= other for other in sizes
        )

    return frozenset(op for op in forward if is_table(Counter(_dims(op.shape))))


def _is_product(table: Table, op: Op) -> bool:
    rule = table.of_op(op.rule)
    if rule is not None:
        return rule.category == "contraction"
    return op.rule == "contracted"


def _pairs(op: Op) -> Iterator[Pair]:
    """Two dims of a product, one of each factor, that come for every index of a dim of both."""
    result = _dims(op.shape)
    for left, right in combinations(
        [_dims(item.shape) for item in tensors(op.args)], 2
    ):
        both = set(left) & set(right) & set(result)
        own = [
            [dim for dim in result if dim in one and dim not in other]
            for one, other in ((left, right), (right, left))
        ]
        squares = [(dim, dim) for dim in both if result.count(dim) > 1]
        for pair in (*product(*own), *squares):
            if both.difference(pair):
                yield pair[0], pair[1]


def _dims(shape: Shape) -> tuple[Dim, ...]:
    """The dims that are known; the leading ones of any number are taken for the same."""
    match shape:
        case Shape(tuple() as dims):
            return tuple(LEAD if is_lead(dim) else dim for dim in dims)
        case Shape(None, MatrixProduct(left, right)):
            one, two = _dims(left), _dims(right)
            if len(one) > 1 and len(two) > 1:
                lead = (LEAD,) * (LEAD in one or LEAD in two)
                return (*lead, one[-2], two[-1])
    return ()


# --- A minimum cut of a small graph.
#
# In: capacities of directed edges. Out: the nodes on the source's side of the cut nearest to the source. Invariant: the same
# in every run; an edge of capacity `NEVER` is not cut if that can be avoided.


NEVER = 10**12


class Flow:
    """A flow network: each edge with the capacity that is left."""

    def __init__(self) -> None:
        self.rest: dict[Hashable, dict[Hashable, int]] = {}

    def edge(self, one: Hashable, two: Hashable, capacity: int) -> None:
        """Add an edge, or to its capacity."""
        there = self.rest.setdefault(one, {})
        there[two] = min(NEVER, there.get(two, 0) + capacity)
        self.rest.setdefault(two, {}).setdefault(one, 0)

    def source_side(self, source: Hashable, sink: Hashable) -> frozenset[Hashable]:
        """The source's side of a minimum cut: what can still be reached once no more flow can be pushed to the sink."""
        while True:
            before = self._before_each(source, sink)
            if sink not in before:
                return frozenset(before)
            path = [sink]
            while path[-1] != source:
                path.append(before[path[-1]])
            self._push(path[::-1])

    def _before_each(
        self, source: Hashable, sink: Hashable
    ) -> dict[Hashable, Hashable]:
        """The nodes within reach, as far as the sink, and the one before each on a shortest path."""
        before, waiting = {source: source}, deque([source])
        while waiting and sink not in before:
            node = waiting.popleft()
            for other, capacity in self.rest.get(node, {}).items():
                if capacity and other not in before:
                    before[other] = node
                    waiting.append(other)
        return before

    def _push(self, path: list[Hashable]) -> None:
        edges = list(pairwise(path))
        most = min(self.rest[one][two] for one, two in edges)
        for one, two in edges:
            self.rest[one][two] -= most
            self.rest[two][one] += most


# --- What is saved, and what is computed again.


NOTICEABLE = 0.03  # the part of forward and backward that saving must spare
SOURCE, SINK = "source", "sink"


def to_save(
    costs: Costs,
    results: Iterable[Op],
    roots: Iterable[Op],
    can_be_saved: Callable[[Op], bool],
) -> tuple[Op, ...]:
    """The values that are saved, in the order in which they are computed."""
    ends = tuple(results)
    forward = frozenset(op for result in ends for op in result.walk())
    backward = frozenset(op for root in roots for op in root.walk())
    read = sorted(_read(backward, forward), key=lambda op: op.serial)
    if all(op.rule == "input" for op in read):
        return ()
    choice = _Choice(costs, forward, frozenset(ends), read)
    none, _ = choice.best(lambda op: False)
    cost, saved = choice.best(can_be_saved)
    total = sum(costs.compute(op) for op in forward | backward)
    return saved if none - cost >= NOTICEABLE * total else ()


def _read(backward: Collection[Op], forward: Collection[Op]) -> Iterator[Op]:
    """The values of the forward that the backward starts from."""
    for op in backward:
        if op in forward or op.rule in ("dtype", "zeros"):  # they read no values
            continue
        yield from (arg for arg in _tensors(op.args) if arg in forward)


def _tensors(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        if op.rule == "list":
            yield from _tensors(op.args)
        elif op.is_tensor or op.kind == "group":
            yield op


class _Choice:
    """Chooses for each value that is read: saved, or computed again."""

    def __init__(
        self,
        costs: Costs,
        forward: frozenset[Op],
        ends: frozenset[Op],
        read: list[Op],
    ) -> None:
        self.costs, self.ends, self.read = costs, ends, read
        self.tables = tables_of_pairs(costs.table, forward, ends)
        self.ops = sorted(
            (op for op in forward if op.is_tensor or op.kind == "group"),
            key=lambda op: op.serial,
        )

    def best(self, can_be_saved: Callable[[Op], bool]) -> tuple[int, tuple[Op, ...]]:
        """The least cost, and what is saved for it, inputs and outputs apart."""
        flow = Flow()
        for op in self.ops:
            self._add(flow, op, can_be_saved)
        for op in self.read:
            flow.edge(SOURCE, ("have", op.serial), NEVER)
        near = flow.source_side(SOURCE, SINK)
        cost, saved = 0, []
        for op in self.ops:
            have, make = (("have", op.serial) in near, ("make", op.serial) in near)
            if have and not make:
                cost += self._keep(op, can_be_saved)
                saved.append(op)
            elif make:
                cost += self._compute(op)
        apart = (op for op in saved if op.rule != "input" and op not in self.ends)
        return cost, tuple(apart)

    def _add(self, flow: Flow, op: Op, can_be_saved: Callable[[Op], bool]) -> None:
        have, make = ("have", op.serial), ("make", op.serial)
        flow.edge(have, make, self._keep(op, can_be_saved))
        flow.edge(make, SINK, self._compute(op))
        for arg in _tensors(op.args):
            flow.edge(make, ("have", arg.serial), NEVER)

    def _keep(self, op: Op, can_be_saved: Callable[[Op], bool]) -> int:
        leaf = op.rule == "input" or op in self.ends
        if op.is_tensor and (leaf or op.rule == "drawn" or can_be_saved(op)):
            return self.costs.keep(op, leaf, op in self.tables)
        return NEVER

    def _compute(self, op: Op) -> int:
        """What it costs to compute a value again; no price is high enough for what cannot be."""
        return NEVER if op.rule in ("input", "drawn") else self.costs.compute(op)
