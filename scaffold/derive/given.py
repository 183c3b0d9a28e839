"""What the user wrote of an op, taken apart: its forward, and its backward as one program.

In: an `OpSpec`. Out: a `Given`. Invariant: in the program every name that the op has outside of it (inputs, attributes,
imports) still means that, wherever ctx must stand for it.
"""

from typing import NamedTuple

from scaffold.derive.derivation import Derived, Forward
from scaffold.derive.forward.body import write_forward
from scaffold.derive.forward.ssa_names import with_versions
from scaffold.derive.stated_gradients import origins_of, outer_names, stated_backward
from scaffold.derive.underived import refusal
from scaffold.derive.write.backward_program import free_reads
from scaffold.errors import Location
from scaffold.formula import Graph, Statement, written
from scaffold.spec import Domain, OpSpec

Lines = tuple[Statement, ...]


class Given(NamedTuple):
    """The user's maths, with names that do not clash."""

    graph: Graph
    place: Location
    forward: Forward | None
    program: Lines  # the backward, in order
    origins: dict[str, str]  # name in the backward -> the output that it is
    derived: frozenset[str] = frozenset()  # whose gradient follows from the forward
    notes: tuple[str, ...] = ()  # of what was derived, and what was not
    domains: tuple[tuple[str, Domain], ...] = ()
    kept: frozenset[str] | None = None  # the locals to save, where that was planned
    once: bool = False  # the program cannot be differentiated
    versions: tuple[tuple[str, str], ...] = ()  # a name of the forward -> the user's
    again: Lines | None = None  # the forward as it comes again in the backward
    like: tuple[tuple[str, str], ...] = ()  # input -> the output that has its shape


def take_apart(spec: OpSpec) -> Given:
    """The forward and the backward that the user gave."""
    formulas = (*dict(spec.gradients).values(), spec.backward, spec.forward)
    first = next(filter(None, formulas), None)
    graph = first.graph if first else Graph()
    place = first.location if first else Location(spec.name)
    forward = write_forward(spec, spec.forward) if spec.forward else None
    program = stated_backward(spec, graph, forward)
    forward, versions = _with_versions(spec, graph, forward)
    found = _derived(spec, graph, forward, program)
    origins = origins_of(spec, forward)
    lines = (*program, *found.statements)
    names = written(*found.statements)
    own = frozenset(
        item.name for item in spec.differentiable if f"grad_{item.name}" in names
    )
    kept = found.kept
    if kept is not None:
        kept |= frozenset(read.name for read, _ in free_reads(program))
    if forward is not None and found.forward is not None:
        statements, results = found.forward
        forward = forward._replace(statements=statements, results=results)
    return Given(
        graph=graph,
        place=place,
        forward=forward,
        program=lines,
        origins=origins,
        derived=own,
        notes=found.notes,
        domains=found.domains,
        kept=kept,
        once=found.once,
        versions=versions,
        again=found.again,
        like=found.like,
    )


def _with_versions(
    spec: OpSpec, graph: Graph, forward: Forward | None
) -> tuple[Forward | None, tuple[tuple[str, str], ...]]:
    """The forward with a name for every value, and which names that takes."""
    if forward is None:
        return None, ()
    names = written(*forward.statements)
    inputs = frozenset(item.name for item in spec.inputs)
    taken = names | outer_names(spec, forward)
    statements, origin = with_versions(graph, forward.statements, names - inputs, taken)
    return forward._replace(statements=statements), tuple(origin.items())


def _derived(
    spec: OpSpec, graph: Graph, forward: Forward | None, program: Lines
) -> Derived:
    """The gradients that no formula states, if the spec asks for them and they are derivatives."""
    wanted = _unstated(spec, program)
    if forward is None or not wanted:
        return Derived()
    refused = refusal(spec, forward)
    if refused is not None:
        found = Derived(notes=(refused,))
    else:
        from scaffold.derive.gradients import derived

        given = written(*program)
        found = derived(
            spec, graph, forward, wanted, outer_names(spec, forward) | given
        )
    assert spec.forward is not None  # or else there was none to write
    place = (spec.kept or spec.forward).location
    return found._replace(notes=tuple(f"{place}: {note}" for note in found.notes))


def _unstated(spec: OpSpec, program: Lines) -> list[str]:
    """The inputs whose gradients are to be derived."""
    if not spec.derive or spec.surrogate:
        return []
    given = written(*program)
    names = [item.name for item in spec.differentiable]
    return [name for name in names if f"grad_{name}" not in given]
