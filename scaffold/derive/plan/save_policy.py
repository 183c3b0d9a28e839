"""What the save policy makes of gradients: what is saved, what gets a name in the forward, and how the backward is written.

In: a `Backward`. Out: `Derived`. Invariant: whatever is saved, the statements give the same gradients.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from scaffold.derive.derivation import Derived, Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.forward_names import Places, named_apart
from scaffold.derive.lower.statements import Lowered
from scaffold.derive.plan.costs import Costs
from scaffold.derive.plan.min_cut import to_save
from scaffold.derive.plan.rematerialization import taken_apart
from scaffold.derive.rules.table import Table
from scaffold.derive.write.backward_program import free_reads, needed_for, read_names
from scaffold.derive.write.schedule import CHEAP, TRIVIAL, VIEWS
from scaffold.derive.write.shape_sources import Holders
from scaffold.derive.write.statements import Emission, emitted
from scaffold.derive.write.value_names import Namer
from scaffold.formula import Assign, Node, Statement
from scaffold.spec import OpSpec

# --- Values inside the expressions of the forward that the backward would compute a second time.
#
# In: the gradients, over named values of the forward. Out: the values that get a name where the forward comes again. Invariant: each
# stands inside a statement that the backward repeats anyway, so that a name for it costs nothing.


FREE = TRIVIAL | VIEWS | CHEAP


def computed_twice(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    places: Places,
    statements: tuple[Statement, ...],
    there: Collection[str],
) -> tuple[Op, ...]:
    """The values inside repeated statements that the gradients read; names that are `there` are not repeated."""
    ends = tuple(roots)
    read = {held[op] for op in down_to(ends, held) if op in held}
    repeated = needed_for(statements, read, there)
    lines = {
        at: item.value
        for at, item in enumerate(statements)
        if at in repeated and isinstance(item, Assign)
    }
    inside = {
        op
        for op, found in places.items()
        if op not in held and op.rule not in FREE
        if any(lines.get(at, node) is not node for at, node in found)
    }
    found = [op for op in down_to(ends, {*held, *inside}) if op in inside]
    return tuple(sorted(found, key=lambda op: op.serial))


# --- What the save policy makes of gradients: what is saved, what gets a name in the forward, and how the backward is written.


WORTH = 2  # temporaries written over, for which a second derivative is given up


class Backward(NamedTuple):
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

    @property
    def saves(self) -> bool:
        """Whether values of the forward are saved."""
        return self.spec.forgoes_second


def settled(backward: Backward) -> Derived:
    """The statements of the backward, and the forward that they go with."""
    saved = _saved(backward) if backward.saves else ()
    once = any(_is_once(backward.applier.table, op) for op in _below(backward))
    names = _Names(backward, saved)
    own = _own(backward, saved)
    for _ in range(len(backward.applier.program.ops)):
        attempt = _first_fit(backward, names.new, own, backward.saves)
        if not names.add(attempt.asked):
            break
    if names.repeat(saved, own, attempt.asked):
        attempt = _first_fit(backward, names.repeated, own, backward.saves)
    forgoes = once or bool(saved) or bool(backward.spec.once_differentiable)
    if attempt.over and not forgoes and attempt.over < WORTH:
        attempt = _first_fit(backward, names.repeated, own, False)
    return Derived(
        attempt.statements,
        forward=names.forward(),
        kept=frozenset(names.all[op] for op in saved) if backward.saves else None,
        once=once or attempt.over > 0,
        again=names.forward_again(),
    )


def _saved(backward: Backward) -> tuple[Op, ...]:
    """The values of the forward to save."""
    costs = Costs(backward.applier.table)
    named = {*backward.held, *backward.lowered.places}
    return to_save(
        costs,
        backward.lowered.results,
        backward.roots.values(),
        lambda op: op in named and not costs.is_view(op),
    )


def _own(backward: Backward, saved: Collection[Op]) -> Mapping[Op, str]:
    """The locals of the forward that the backward computes in lines of its own."""
    spec, lowered = backward.spec, backward.lowered
    stated = spec.gradients or spec.backward
    if spec.foreign or stated or (spec.once_differentiable and not backward.saves):
        return {}
    there = {*saved, *lowered.results, *lowered.inputs.values()}
    costs = Costs(backward.applier.table)
    return taken_apart(costs, backward.roots.values(), backward.held, there)


def _below(backward: Backward) -> Collection[Op]:
    return {op for root in backward.roots.values() for op in root.walk()}


def _is_once(table: Table, op: Op) -> bool:
    rule = table.of_op(op.rule)
    return rule is not None and rule.once


class _Names:
    """Names for values of the forward that have none: those saved, and those of which a shape is asked."""

    def __init__(self, backward: Backward, saved: Collection[Op]) -> None:
        self.backward = backward
        self.namer = Namer(
            {*backward.taken, *backward.held.values()}, backward.held, {}, {}, {}, {}
        )
        self.new: dict[Op, str] = {}
        self.again: dict[Op, str] = {}  # only where the forward comes again
        for op in saved:
            if op not in backward.held:
                self.new[op] = self.namer.name(op)

    @property
    def all(self) -> dict[Op, str]:
        return {**self.backward.held, **self.new}

    @property
    def repeated(self) -> dict[Op, str]:
        """Those names, and those that the forward has only where it comes again."""
        return {**self.new, **self.again}

    def add(self, asked: Collection[Op]) -> bool:
        """Name what only a combined forward can keep the shape of; whether there was any."""
        places = self.backward.lowered.places
        if self.backward.spec.style != "combined":
            return False
        more = [op for op in asked if op in places and op not in self.new]
        for op in sorted(more, key=lambda op: op.serial):
            self.new[op] = self.namer.name(op)
        return bool(more)

    def repeat(
        self, saved: Collection[Op], own: Collection[Op], asked: Collection[Op]
    ) -> bool:
        """Name what would be computed twice where the forward comes again; whether there was any."""
        forward = self.backward.forward
        held = {op: name for op, name in self.all.items() if op not in own}
        twice = computed_twice(
            (*self.backward.roots.values(), *asked),
            held,
            self.backward.lowered.places,
            forward.statements,
            {*forward.returned, *(held[op] for op in saved)},
        )
        for op in twice:
            self.again[op] = self.namer.name(op)
        return bool(twice)

    def forward(self) -> tuple[tuple[Statement, ...], tuple[Node, ...]] | None:
        """The statements and results of the forward with the new names, if there are any."""
        if not self.new:
            return None
        named = self._named(self.new)
        return named.statements, named.results

    def forward_again(self) -> tuple[Statement, ...] | None:
        """The statements that the backward may repeat, if they are others."""
        return self._named(self.repeated).statements if self.again else None

    def _named(self, names: Mapping[Op, str]) -> Forward:
        places = self.backward.lowered.places
        graph = self.backward.applier.program.graph
        return named_apart(graph, self.backward.forward, places, names)


class _Attempt(NamedTuple):
    """Statements, what else they ask the shape of, and how many temporaries they write over."""

    statements: tuple[Statement, ...]
    asked: set[Op]
    over: int


def _first_fit(
    backward: Backward, new: Mapping[Op, str], own: Mapping[Op, str], in_place: bool
) -> _Attempt:
    """Statements over the names that are there, which compute some locals of the forward as their `own`.

    Those locals tell shapes if they come early enough. They come as the forward has them where a line of it that is
    repeated reads one, or where a shape is asked that only they tell.
    """
    for telling in (own, {}) if own else ():
        try:
            found = _attempt(backward, new, own, telling, in_place)
        except UnsupportedError:
            continue
        names = _repeated(backward.forward.statements, found.statements)
        late = not telling and _asks_inside(found.asked, own)
        if not (late or names & {*own.values()}):
            return found
    return _attempt(backward, new, {}, {}, in_place)


def _asks_inside(asked: Collection[Op], own: Collection[Op]) -> bool:
    return any(op in own for value in asked for op in value.walk())


def _repeated(forward: Sequence[Statement], lines: tuple[Statement, ...]) -> set[str]:
    """The names that the backward reads, itself and in the lines of the forward that it repeats."""
    names = {read.name for read, _ in free_reads(lines)}
    return names.union(*(read_names(forward[at]) for at in needed_for(forward, names)))


def _attempt(
    backward: Backward,
    new: Mapping[Op, str],
    own: Mapping[Op, str],
    telling: Mapping[Op, str],
    in_place: bool,
) -> _Attempt:
    spec, lowered, applier = backward.spec, backward.lowered, backward.applier
    kept = {op: name for op, name in backward.held.items() if op not in own}
    outer = {**kept, **new}
    held = {**lowered.held_in_branches, **outer}
    inputs = [lowered.inputs[item.name] for item in spec.tensors if not item.variadic]
    optional = [lowered.inputs[item.name] for item in spec.tensors if item.optional]
    inside = (op for op in lowered.held_in_branches if op not in backward.held)
    sure = [op for op in inputs if op not in optional]
    first = (*backward.seeds, *sure)
    holders = Holders(applier.program, first, optional, {**outer, **telling})
    precision = (
        Precision(backward.seeds) if in_place and spec.style == "combined" else None
    )
    emission = Emission(
        applier=applier,
        holders=holders,
        held=held,
        of=backward.of,
        via=backward.via,
        optional=(*optional, *inside, *_absent(backward)),
        taken={*backward.taken, *new.values()},
        asked=set(),
        precision=precision,
        over=set(),
        own=own,
    )
    statements = emitted(emission, backward.roots)
    return _Attempt(statements, emission.asked, len(emission.over))


def _absent(backward: Backward) -> list[Op]:
    """The attributes that may be None."""
    program = backward.applier.program
    names = [item.name for item in backward.spec.attributes]
    maybe = [name for name in names if name not in program.never_none]
    return [program.static(program.graph.name(name)) for name in maybe]
