"""What the user wrote of an op, taken apart: its forward, and its backward as one program.

In: an `OpSpec`. Out: a `Given`. Invariant: in the program every name that the op has outside of it (inputs, attributes,
imports) still means that, wherever ctx must stand for it.
"""

from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.forward import (
    grad_name,
    gradient_names,
    returned_names,
    write_forward,
)
from scaffold.derive.join import join
from scaffold.derive.memory import Trace
from scaffold.derive.metadata import reads
from scaffold.derive.model import Derived, Forward
from scaffold.derive.names import apart_from, hidden_builtins, outer_renamed
from scaffold.derive.program import free_reads, read_names
from scaffold.derive.underived import refusal
from scaffold.derive.unfold import Unfolder
from scaffold.derive.versions import with_versions
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Statement,
    assigned,
    expressions,
    sharing,
    written,
)
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
    program = _program(spec, graph, forward)
    _refuse_ambiguous(spec)
    forward, versions = _with_versions(spec, graph, forward)
    found = _derived(spec, graph, forward, program)
    origins = _origins(spec, forward)
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
        from scaffold.derive.vjp.engine import derived  # with all the rules behind it

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


def outer_names(spec: OpSpec, forward: Forward | None) -> frozenset[str]:
    """The names that a formula of a gradient finds outside."""
    names = {item.name for item in (*spec.inputs, *spec.outputs)}
    names |= {item.binding for item in spec.imports} | gradient_names(spec)
    if forward is not None and spec.forward is not None:
        names |= assigned(spec.forward) | written(*forward.statements)
    return frozenset(names)


def _program(spec: OpSpec, graph: Graph, forward: Forward | None) -> Lines:
    outer = outer_names(spec, forward)
    renamed = _renamed(spec, forward)
    for formula in (*dict(spec.gradients).values(), spec.backward):
        if formula is not None:
            _refuse_in_place(spec, formula, outer)
    if spec.backward is not None:
        program = _isolated(spec, graph, spec.backward.statements, forward, renamed)
    else:
        _refuse_index(spec)
        formulas = [
            (name, _reads_renamed(graph, formula, renamed))
            for name, formula in spec.gradients
        ]
        program = join(graph, formulas, outer | _builtins(formulas))
    taken = outer | written(*program)
    return Unfolder(graph, set(taken), _whole(spec)).block(program)


def _whole(spec: OpSpec) -> frozenset[str]:
    """Gradients that must stay one expression: those of an element of a variadic input."""
    return frozenset(f"grad_{item.name}" for item in spec.tensors if item.variadic)


def _renamed(spec: OpSpec, forward: Forward | None) -> dict[str, str]:
    """Names in the user's formulas that are called otherwise in the op."""
    renamed = dict(forward.renamed) if forward else {}
    sole = len(spec.outputs) == 1 and not spec.outputs[0].variadic
    if sole and any(item.name == "output" for item in spec.inputs):
        renamed["grad_output"] = grad_name(spec, spec.outputs[0].name)
    return renamed


def _builtins(formulas: list[tuple[str, Formula]]) -> frozenset[str]:
    results = [item.result for _, item in formulas if item.result]
    return frozenset().union(
        *(hidden_builtins(item.statements, *results) for _, item in formulas)
    )


def _reads_renamed(graph: Graph, formula: Formula, renamed: dict[str, str]) -> Formula:
    """The formula over the names that locals of the forward have got."""
    body = _lines(formula)
    for old, new in renamed.items():
        body, _ = outer_renamed(graph, body, old, new)
    last = body[-1]
    assert isinstance(last, Assign)
    return replace(formula, statements=body[:-1], result=last.value)


def _isolated(
    spec: OpSpec,
    graph: Graph,
    program: Lines,
    forward: Forward | None,
    renamed: dict[str, str],
) -> Lines:
    """A whole backward, whose locals hide only what no rewriting to ctx can touch."""
    for old, new in renamed.items():
        program, _ = outer_renamed(graph, program, old, new)
    metadata = {
        read.name
        for item in program
        for node in expressions(item)
        for read in reads(node)
        if read.facets
    }
    tensors = {item.name for item in spec.tensors} | set(_origins(spec, forward))
    outer = {attribute.name for attribute in spec.attributes} | tensors & metadata
    outer |= {item.binding for item in spec.imports} | hidden_builtins(program)
    taken = outer_names(spec, None) | written(*program)
    taken |= assigned(spec.forward) if spec.forward else frozenset()
    return apart_from(graph, program, outer, taken)[0]


def _refuse_in_place(spec: OpSpec, formula: Formula, outer: frozenset[str]) -> None:
    """A backward changes only tensors that it made, and none of them under two names."""
    statements = _lines(formula)
    attributes = {item.name for item in spec.attributes}
    for change in Trace(statements, sharing).changes:
        foreign = sorted(change.outside & outer - attributes)
        if foreign:
            message = (
                f"the backward changes '{foreign[0]}' in place, which it did not make"
            )
            hint = f"work on a copy: {foreign[0]}.clone()"
            raise ScaffoldError(message, formula.location, hint)
        later = statements[change.position + 1 :]
        read = read_names(*later)
        wanted = read | gradient_names(spec)
        others = sorted(change.holders & wanted - {change.name} - attributes)
        if others:
            message = f"'{change.name}' changes in place while '{others[0]}' shares its memory"
            hint = "give it memory of its own with .clone()"
            raise ScaffoldError(message, formula.location, hint)


def _refuse_index(spec: OpSpec) -> None:
    """`i` is the index in the formula of a variadic input."""
    several = {item.name for item in spec.tensors if item.variadic}
    for name, formula in spec.gradients:
        if name in several and any(each.name == "i" for each in spec.inputs):
            message = f"'i' is an input, and the index in the gradient of '{name}'"
            raise ScaffoldError(message, formula.location, "name the input otherwise")


def _origins(spec: OpSpec, forward: Forward | None) -> dict[str, str]:
    """The names under which the backward may read an output: its own and the local returned as it."""
    inputs = {item.name for item in spec.inputs}
    origins = {item.name: item.name for item in spec.outputs if item.name not in inputs}
    if forward is None:
        return origins
    for local, output in forward.returned.items():
        if local not in inputs:
            origins[local] = output
    return origins


def _refuse_ambiguous(spec: OpSpec) -> None:
    """A name that is an output and another local of the forward: the backward must not read it."""
    if spec.forward is None:
        return
    locals_ = assigned(spec.forward)
    returned = returned_names(spec, spec.forward.result)
    other = {
        item.name
        for item in spec.outputs
        if item.name in locals_ and returned.get(item.name) != item.name
    }
    for formula in (*dict(spec.gradients).values(), spec.backward):
        for name in sorted(other & _outside_reads(formula)):
            message = f"'{name}' is a local of the forward and the name of an output"
            hint = "return it under that name, or name it otherwise"
            raise ScaffoldError(message, formula.location if formula else None, hint)


def _outside_reads(formula: Formula | None) -> frozenset[str]:
    lines = _lines(formula) if formula else ()
    return frozenset(read.name for read, _ in free_reads(lines))


def _lines(formula: Formula) -> Lines:
    """The statements of a formula, the last of which has its result."""
    if formula.result is None:
        return formula.statements
    return (*formula.statements, Assign(formula.graph.node("absent"), formula.result))
