"""The gradients as statements, and the forward with names for the values of it that these read.

In: the gradients as a graph, and what is saved. Out: `Derived`. Invariant: whatever names the forward has, the statements give the
same gradients.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from scaffold.derive.autocast import autocast_of
from scaffold.derive.backward_program import free_reads, needed_for, read_names
from scaffold.derive.derivation import Derived, Forward
from scaffold.derive.graph.op import Op
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.forward_names import named_apart
from scaffold.derive.plan.save_policy import BackwardGraph, computed_twice, save_plan
from scaffold.derive.write.shape_sources import Holders
from scaffold.derive.write.statements import Emission, emitted
from scaffold.derive.write.value_names import Namer
from scaffold.formula import Node, Statement
from scaffold.spec import Style

LEAST_OVER = 2  # temporaries to be written over, for a second derivative to be given up


class _Attempt(NamedTuple):
    """Statements, what else they ask the shape of, and how many temporaries they write over."""

    statements: tuple[Statement, ...]
    asked: set[Op]
    over: int


def gradient_statements(backward: BackwardGraph, style: Style) -> Derived:
    """The statements of the backward, and the forward that they go with."""
    saved, own, once = save_plan(backward)
    in_place = backward.saves and style == "combined"
    names = _Names(backward, saved)
    attempt = _first_fit(backward, names.new, own, in_place)
    # Only a combined forward can keep the shape of a local; each name may bring the next shape that is asked for.
    while style == "combined" and names.add(attempt.asked):
        attempt = _first_fit(backward, names.new, own, in_place)
    if names.repeat(saved, own, attempt.asked):
        attempt = _first_fit(backward, names.repeated, own, in_place)
    forgoes = once or bool(saved) or bool(backward.spec.once_differentiable)
    if attempt.over and not forgoes and attempt.over < LEAST_OVER:
        attempt = _first_fit(backward, names.repeated, own, False)
    return Derived(
        attempt.statements,
        forward=names.forward(),
        kept=_kept(backward, names.all, saved, attempt.statements),
        once=once or attempt.over > 0,
        again=names.forward_again(),
    )


def _kept(
    backward: BackwardGraph,
    names: Mapping[Op, str],
    saved: Collection[Op],
    lines: tuple[Statement, ...],
) -> frozenset[str]:
    """The locals to save. What was drawn is, for it cannot be drawn again."""
    ops = backward.applier.program.ops
    drawn = frozenset(op.name for op in ops if op.rule == "drawn")
    if backward.spec.once_differentiable and not backward.saves:
        tensors = {name for op, name in names.items() if op.is_tensor}
        return drawn.union(tensors & {read.name for read, _ in free_reads(lines)})
    return drawn.union(names[op] for op in saved)


def _first_fit(
    backward: BackwardGraph,
    new: Mapping[Op, str],
    own: Mapping[Op, str],
    in_place: bool,
) -> _Attempt:
    """Statements over the names that are there, which compute some locals of the forward as their `own`.

    Those locals tell shapes if they come early enough. They stay lines of the forward where another of its lines that comes
    again reads one, or where a shape is asked for that only they have.
    """
    for sources in (own, {}) if own else ():
        try:
            found = _attempt(backward, new, own, sources, in_place)
        except UnsupportedError:
            continue
        names = _repeated(backward.forward.statements, found.statements)
        late = not sources and _asks_inside(found.asked, own)
        if not (late or names & {*own.values()}):
            return found
    return _attempt(backward, new, {}, {}, in_place)


def _attempt(
    backward: BackwardGraph,
    new: Mapping[Op, str],
    own: Mapping[Op, str],
    sources: Mapping[Op, str],
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
    holders = Holders(applier.program, first, optional, {**outer, **sources})
    precision = Precision(backward.seeds) if in_place else None
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
        indent=backward.indent,
        region=autocast_of(spec).amp == "region",
    )
    statements = emitted(emission, backward.roots)
    return _Attempt(statements, emission.asked, len(emission.over))


def _absent(backward: BackwardGraph) -> list[Op]:
    """The attributes that may be None."""
    program = backward.applier.program
    names = [item.name for item in backward.spec.attributes]
    maybe = [name for name in names if name not in program.declared.never_none]
    return [program.static(program.graph.name(name)) for name in maybe]


def _asks_inside(asked: Collection[Op], own: Collection[Op]) -> bool:
    return any(op in own for value in asked for op in value.walk())


def _repeated(forward: Sequence[Statement], lines: tuple[Statement, ...]) -> set[str]:
    """The names that the backward reads, itself and in the lines of the forward that it repeats."""
    names = {read.name for read, _ in free_reads(lines)}
    return names.union(*(read_names(forward[at]) for at in needed_for(forward, names)))


class _Names:
    """Names for values of the forward that have none: those saved, and those whose shape is asked for."""

    def __init__(self, backward: BackwardGraph, saved: Collection[Op]) -> None:
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
        """Name the values whose shape is asked for; whether there was any without a name."""
        places = self.backward.lowered.places
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
