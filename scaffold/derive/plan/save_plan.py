"""Plan the forward's saved values, and the backward's recomputed ones with their lines, for derived gradients.

After `simplify`, before `write`: saving costs memory, recomputing costs time.
With `--save-policy recompute` nothing but inputs and outputs is saved; with `balanced`, the default, this module weighs.

In: the gradients as a graph. Out: a `SavePlan`. Invariant: the gradients do not depend on the plan; an unsaved value can be
computed from the saved ones; an expensive value is not computed twice if it can be saved.

In balanced mode a minimum cut chooses (`minimum_cut`), by the prices in `costs`. Each forward value read by the backward must be
available: saved, or computed from its arguments, which must then be available too. Cutting a value's own edge saves it, cutting the
edge to the sink recomputes it.

Words: `held` maps the forward's values with a name to it; values `there` are available without computing anything; a dear value is
too expensive to compute twice; a drawn one is random. A local computed in `own` lines is not repeated from the forward. An element
(`item`) is one result of a call with several.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from scaffold.derive.backward_program import needed_for
from scaffold.derive.derivation import Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import is_recorded
from scaffold.derive.graph.op import Op, down_to, unlisted
from scaffold.derive.lower.autograd_saved import retained, storage
from scaffold.derive.lower.forward_names import Places
from scaffold.derive.lower.statements import Lowered
from scaffold.derive.plan.costs import Costs, is_brief, is_dear, is_free
from scaffold.formula import Assign, Lines
from scaffold.spec import OpSpec


class BackwardGraph(NamedTuple):
    """The gradients as a graph, with all known facts about the forward: from this the statements are written."""

    spec: OpSpec
    applier: Applier
    forward: Forward
    lowered: Lowered
    held: Mapping[Op, str]
    seeds: Mapping[Op, Op]  # the cotangent of each result -> that result
    roots: Mapping[str, Op]  # an input -> its gradient
    of: Mapping[Op, Op]  # a cotangent -> its forward value
    # One reader's part of a cotangent -> the forward value, and the reader.
    via: Mapping[Op, tuple[Op, Op]]
    taken: Collection[str]  # names that are not free
    indent: int = 0  # added to all lines if the backward runs under an autocast
    # Values that forward returns to be saved; of these, the gradient that comes in.
    returned: Mapping[Op, str] = {}
    handed: Mapping[Op, Op] = {}
    undefined: frozenset[Op] = frozenset()  # cotangents of results that may be None

    @property
    def saves(self) -> bool:
        """Return whether values of the forward are saved."""
        return self.spec.forgoes_second


class SavePlan(NamedTuple):
    """The forward values to save, and those the backward computes in lines of its own.

    All others are recomputed by repeated statements of the forward.
    """

    saved: tuple[Op, ...]
    own: Mapping[Op, str]  # locals computed in other lines than in the forward
    once: bool  # a gradient uses a primitive that PyTorch differentiates only once


def save_plan(backward: BackwardGraph) -> SavePlan:
    """Choose the forward values to save, and the locals to compute in other lines than those of the forward."""
    saved = _saved(backward) if backward.saves else tuple(backward.returned)
    table = backward.applier.table
    rules = (table.of_op(op.rule) for op in _below(backward, side=0))
    once = any(rule is not None and rule.ends_derivatives for rule in rules)
    return SavePlan(saved, _own(backward, saved), once)


def _saved(backward: BackwardGraph) -> tuple[Op, ...]:
    """Return the values of the forward worth saving besides its inputs and outputs."""
    there = {*backward.lowered.results}
    kept = _cut(backward).kept
    return tuple(op for op in kept if op.rule != "input" and op not in there)


def held_for_backward(backward: BackwardGraph, returns: bool) -> Mapping[Op, str]:
    """Return the named values of the forward, without results cheaper to compute again than to keep.

    Of `x / y` plain autograd keeps x and y, and not the quotient. All of them if values are not saved by cost (`returns`: forward
    returns what it saves), or if an input is changed in place: a result cannot be computed from it again.
    """
    if backward.spec.dirty or not (backward.saves or returns):
        return backward.held
    again = {*_cut(backward).recomputed}.intersection(backward.lowered.results)
    return {op: name for op, name in backward.held.items() if op not in again}


def _cut(backward: BackwardGraph) -> "Cut":
    """Choose the values of the forward worth keeping, among those that can have a name.

    If these take more memory than what autograd keeps, elementwise values that it computes again are recomputed here, too: of
    `x.sin()` and `x.cos()`, whose gradients read one another, autograd keeps x.
    """
    table = backward.applier.table
    costs, results = Costs(table), backward.lowered.results
    ops = {op for result in results for op in result.walk()}
    autograd = {one for op in ops for one in retained(table, op)}
    named = {*backward.held, *backward.lowered.places}
    named -= _numbers(backward.lowered.results)

    def can_be_saved(op: Op) -> bool:
        """Return whether saving a forward value is possible and of use: it can get a name, and takes memory of its own."""
        # An element gets a name where its call is unpacked: `_, indices = x.max(-1)`.
        if op.rule == "item":
            call = op.args[0]
            # A call with a name, `found = x.max(-1)`, is not unpacked.
            is_named = op in backward.held or call in named - backward.held.keys()
            # An element that only a gradient reads is saved only if it needs no cotangent.
            known = not op.active or op in named
            return known and is_named and not call.facts.takes_no_memory
        return op in named and not op.facts.takes_no_memory

    below = _below(backward, side=1)
    cut = minimum_cut(costs, results, autograd, below, can_be_saved)
    if _memory(costs, cut.kept) <= _memory(costs, autograd):
        return cut
    bases = {storage(table, op) for op in autograd}

    def is_worth_its_memory(op: Op) -> bool:
        """Return whether a forward value can be saved, and is kept by autograd or dearer to compute than an elementwise one."""
        return can_be_saved(op) and (op in bases or op.facts.category != "elementwise")

    smaller = minimum_cut(costs, results, autograd, below, is_worth_its_memory)
    return min(cut, smaller, key=lambda one: _memory(costs, one.kept))


def _memory(costs: Costs, kept: Iterable[Op]) -> int:
    """Return the cost of keeping the values, a view's base in its place."""
    bases = {storage(costs.table, op) for op in kept}
    return sum(costs.keep(op, leaf=False) for op in bases)


def _below(backward: BackwardGraph, side: int) -> set[Op]:
    """Return the backward's ops when it is recorded for a second derivative (side 0), or when it is not (side 1).

    A fused call without a derivative stands in the second branch of such a choice.
    """
    test = is_recorded(backward.applier.program)
    seen, waiting = set[Op](), [*backward.roots.values()]
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            asks = op.rule == "cond" and op.test is test
            waiting += (op.args[side],) if asks else op.args
    return seen


def worth_returning(backward: BackwardGraph) -> tuple[Op, ...]:
    """Return the values forward should return, besides its results, because recomputing them is expensive.

    Random draws are left out: they are saved in any case.
    """
    results = backward.forward.returned  # saved as outputs already
    return tuple(
        op
        for op in _saved(backward)
        if op.rule != "drawn" and backward.held.get(op) not in results
    )


def _numbers(results: Iterable[Op]) -> set[Op]:
    """Return the values that are numbers in some calls: they cannot be saved as tensors.

    `w.sum() if w is not None else 2.0`, and values computed elementwise from numbers alone.
    """
    found = set[Op]()
    inner = {op for result in results for op in result.walk()}
    # Arguments come before their readers.
    for op in sorted(inner, key=lambda op: op.serial):
        computed = op.facts.category == "elementwise" and found.issuperset(op.args)
        chosen = op.rule == "cond" and not found.isdisjoint(op.args)
        # `y if flag else None` is no number: where it is not None, it is a tensor.
        number = op.kind == "static" and not (op.rule == "const" and op.value is None)
        if number or computed or chosen:
            found.add(op)
    return found


def _own(backward: BackwardGraph, saved: Collection[Op]) -> Mapping[Op, str]:
    """Return the forward's locals with lines of their own in the backward.

    None with functions of the user's or stated gradients, nor if an op is once differentiable and saves no values by plan: then all
    locals that the backward reads are saved.
    """
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
    """Return the unnamed values computed twice otherwise: in a repeated forward statement and in a gradient.

    They get a name in the repeated statement, for the gradient to read. The gradients (`roots`) are known to read the names in
    `named`, perhaps only for a shape; names in `there` are available, so the statements that assign them are not repeated.
    """
    ends = tuple(roots)
    read = {*named, *(held[op] for op in down_to(ends, held) if op in held)}
    repeated = needed_for(statements, read, there)
    lines = {
        at: item.value
        for at, item in enumerate(statements)
        if at in repeated and isinstance(item, Assign)
    }
    # Values within a repeated line, not the whole of it.
    inside = {
        op
        for op, found in places.items()
        if op not in held and not is_free(op)
        if any(at in lines and lines[at] is not node for at, node in found)
    }
    below = [*down_to(ends, {*held, *inside})]
    uses = Counter(arg for op in below for arg in op.args)
    found = [op for op in below if op in inside]
    # `1 - x` is short enough to stand twice.
    found = [op for op in found if not (is_brief(op) and uses[op] == 1)]
    return tuple(sorted(found, key=lambda op: op.serial))


# --- Rematerialization: locals that the backward computes in its own lines, because it
# also reads values inside them. Each can be recomputed from inputs, results and other
# locals; a local with no other reader of its inside stays as in the forward.


def taken_apart(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    there: Collection[Op],
) -> dict[Op, str]:
    """Return the locals for the backward to compute in its own lines, since it also reads an expensive value inside them.

    To repeat the forward's line would compute that value twice: of `y = x.exp().sum()`, if a gradient reads `x.exp()`. Values in
    `there` are available. A local taken apart may show another one inside, hence the loop.
    """
    ends = tuple(roots)
    found: dict[Op, str] = {}
    while True:
        # Read by name, so nothing inside them is seen.
        stops = {op for op in held if op in there or op not in found}
        seen = {*down_to(ends, stops)}
        inner = {op for op in seen - stops if is_dear(op)}
        # Locals that the backward reads, and what they are computed from.
        below = {*down_to(seen & stops - set(there), there)}
        more = {
            op: name
            for op, name in held.items()
            if op in below
            and op not in found
            and _contains(op, inner, there)
            and _is_plain(op, there)
        }
        if not more:
            return found
        found |= more


def _contains(op: Op, inner: Collection[Op], there: Collection[Op]) -> bool:
    """Return whether a local is computed from one of the values `inner`, expensive ones the backward reads, and is not available itself."""
    return op not in there and any(
        part in inner and part is not op for part in down_to((op,), there)
    )


def _is_plain(op: Op, there: Collection[Op]) -> bool:
    """Return whether new lines can compute a local: it is one tensor, always made by primitives with a rule, from values in `there`."""
    return all(
        part in there
        or part.kind != "group"
        and part.rule not in ("call", "cond", "drawn", "item")
        for part in down_to((op,), there)
    )


# --- A minimum cut of a small graph.
#
# In: capacities of directed edges. Out: the nodes on the source's side of the cut
# nearest to the source. Invariant: the same in every run; an edge of capacity `NEVER`
# is cut only if unavoidable.


NEVER = 10**12


class Flow:
    """A flow network: `rest` is the capacity left on each edge."""

    def __init__(self) -> None:
        self.rest: dict[Hashable, dict[Hashable, int]] = {}

    def edge(self, one: Hashable, two: Hashable, capacity: int) -> None:
        """Add an edge, or add to its capacity."""
        there = self.rest.setdefault(one, {})
        # Two edges that are never to be cut are no more than one.
        there[two] = min(NEVER, there.get(two, 0) + capacity)
        # The reverse edge, on which flow can be sent back.
        self.rest.setdefault(two, {}).setdefault(one, 0)

    def source_side(self, source: Hashable, sink: Hashable) -> frozenset[Hashable]:
        """Return the source's side of a minimum cut: the nodes reachable once no more flow reaches the sink (Edmonds-Karp)."""
        while True:
            before = self._before_each(source, sink)
            if sink not in before:
                return frozenset(before)
            path = [sink]  # walked back from the sink
            while path[-1] != source:
                path.append(before[path[-1]])
            self._push(path[::-1])

    def _before_each(
        self, source: Hashable, sink: Hashable
    ) -> dict[Hashable, Hashable]:
        """Return the nodes reachable from the source, up to the sink, each with the node before it on a shortest path."""
        before, waiting = {source: source}, deque([source])
        while waiting and sink not in before:
            node = waiting.popleft()
            for other, capacity in self.rest.get(node, {}).items():
                if capacity and other not in before:
                    before[other] = node
                    waiting.append(other)
        return before

    def _push(self, path: list[Hashable]) -> None:
        """Send as much flow as fits along a path: take it from its edges, and add it to their reverses, so it can be sent back."""
        edges = list(pairwise(path))
        most = min(self.rest[one][two] for one, two in edges)
        for one, two in edges:
            self.rest[one][two] -= most
            self.rest[two][one] += most


# --- The choice between saving and recomputing.


SOURCE, SINK = "source", "sink"


class Cut(NamedTuple):
    """The forward's values needed by the backward, in order of computation: kept ones, inputs and outputs among them, and the others."""

    kept: list[Op]
    recomputed: list[Op]


def minimum_cut(
    costs: Costs,
    results: Collection[Op],
    autograd: Collection[Op],
    backward: Collection[Op],
    can_be_saved: Callable[[Op], bool],
) -> Cut:
    """Choose the values to keep for the backward at minimum cost.

    `results` are the forward's, `autograd` the values that plain autograd keeps, `backward` the ops of the gradients; a value
    refused by `can_be_saved` has to be recomputed.
    """
    forward = frozenset(op for result in results for op in result.walk())
    # Elements only the backward reads: the indices of `x.max(-1)[0]`.
    forward |= {op for op in backward if op.rule == "item" and op.args[0] in forward}
    read = sorted(_read(backward, forward), key=lambda op: op.serial)
    # To keep another result takes memory that plain autograd does not, and refuses `y.mul_(2)` behind the op, which it allows.
    ends = frozenset(results).intersection(autograd)
    return _Choice(costs, forward, ends, can_be_saved).cut(read)


def _read(backward: Collection[Op], forward: Collection[Op]) -> Iterator[Op]:
    """Yield the forward's values the backward reads directly, so they must be there: saved, or made again."""
    for op in backward:
        if op in forward or op.rule in ("dtype", "zeros"):  # they read no values
            continue
        yield from (arg for arg in _tensors(op.args) if arg in forward)


def _tensors(ops: Iterable[Op]) -> Iterator[Op]:
    """Return the tensors and groups among arguments, also those in lists: Python values cost nothing."""
    return (op for op in unlisted(ops) if op.kind != "static")


class _Choice:
    """The choice between saving and recomputing, for each value the backward reads or that is needed to recompute one."""

    def __init__(
        self,
        costs: Costs,
        forward: frozenset[Op],
        ends: frozenset[Op],
        can_be_saved: Callable[[Op], bool],
    ) -> None:
        """Begin with the forward's ops, of which `ends` are results that autograd keeps, too; `can_be_saved` refuses other values."""
        self.costs, self.ends, self.can_be_saved = costs, ends, can_be_saved
        self.ops = sorted(
            (op for op in forward if op.kind != "static"),
            key=lambda op: op.serial,
        )

    def cut(self, read: Iterable[Op]) -> Cut:
        """Return the choice for the values needed: the edge from `have` to `make` of a value is cut if it is kept."""
        flow = Flow()
        for op in self.ops:
            self._add(flow, op)
        for op in read:
            flow.edge(SOURCE, ("have", op.serial), NEVER)
        near = flow.source_side(SOURCE, SINK)
        cut = Cut([], [])
        for op in self.ops:
            if ("have", op.serial) in near:
                made = ("make", op.serial) in near
                (cut.recomputed if made else cut.kept).append(op)
        return cut

    def _add(self, flow: Flow, op: Op) -> None:
        """Add an op's two nodes: to `have` the value, keep it, or `make` it, which costs time and needs all tensor arguments."""
        have, make = ("have", op.serial), ("make", op.serial)
        flow.edge(have, make, self._keep(op))
        flow.edge(make, SINK, self._compute(op))
        for arg in _tensors(op.args):
            flow.edge(make, ("have", arg.serial), NEVER)

    def _keep(self, op: Op) -> int:
        """Return the cost of keeping a value until the backward; `NEVER` if it cannot be saved, so it is made again."""
        # A leaf is there anyway; a drawn value has to be saved, as no second draw gives it.
        leaf = op.rule == "input" or op in self.ends
        if op.is_tensor and (leaf or op.rule == "drawn" or self.can_be_saved(op)):
            return self.costs.keep(op, leaf)
        return NEVER

    def _compute(self, op: Op) -> int:
        """Return the cost of recomputing a value: `NEVER` if impossible, or if it is expensive and can be saved.

        A call with several results can be saved if each of these can.
        """
        if op.rule in ("input", "drawn"):
            return NEVER
        if op.kind == "group":
            parts = [
                part for part in self.ops if op in part.args and part.rule == "item"
            ]
            # Of no parts, none could be saved in its place.
            saves = bool(parts) and all(self._keep(part) < NEVER for part in parts)
        else:
            saves = self._keep(op) < NEVER
        return NEVER if saves and self.costs.is_too_dear(op) else self.costs.compute(op)
