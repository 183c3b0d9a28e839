"""An op's `Derivation` from the formulas that the user gave.

In: an `OpSpec`. Out: forward and backward as they will stand, what is saved, where each line goes.
Invariant: pure; a gradient that nobody gave is `missing`, never guessed.
"""

from dataclasses import dataclass

from scaffold.derive.activity import leaves_torch
from scaffold.derive.forward import Forward, write_forward
from scaffold.derive.model import Derivation, Kept, Saved
from scaffold.derive.place import joint_gradients, place
from scaffold.derive.program import Line, free_reads, join, lines_of, read_names
from scaffold.derive.recompute import Plan, active_locals, plan
from scaffold.derive.saving import Origins, Transfer, transfer
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Graph,
    Node,
    Statement,
    assigned,
    expressions,
    written,
)
from scaffold.spec import OpSpec


@dataclass(frozen=True, slots=True)
class _Given:
    """What the user wrote of an op, taken apart."""

    graph: Graph
    place: Location
    forward: Forward | None
    program: tuple[Statement, ...]  # the backward, in order
    origins: dict[str, str]  # name in the backward -> the output that it is


def derive(spec: OpSpec) -> Derivation:
    """What forward and backward of the op are."""
    given = _given(spec)
    recomputed = _plan(spec, given)
    once = _once_differentiable(spec, given, recomputed)
    program = (*recomputed.repeated, *given.program)
    lines = lines_of(program, [item.name for item in spec.differentiable])
    origins = Origins(given.origins, recomputed.saved)
    handed = transfer(spec, given.graph, lines, origins, given.place)
    return _derivation(spec, given, handed, once)


def _derivation(
    spec: OpSpec, given: _Given, handed: Transfer, once: bool
) -> Derivation:
    forward = given.forward
    missing = _missing(spec, handed.lines)
    elements, lines = _elements(spec, handed.lines)
    opaque = _opaque(spec, given)
    in_torch = not opaque and not spec.dirty and spec.style == "setup-context"
    saved, kept = (
        _all_for(missing, spec, handed) if missing else (handed.saved, handed.kept)
    )
    return Derivation(
        forward=forward.statements if forward else None,
        results=forward.results if forward else (),
        comments=forward.comments if forward else (),
        blocks=place(lines),
        elements=elements,
        missing=missing,
        joint=joint_gradients(lines),
        saved=saved,
        kept=kept,
        filled=() if spec.materialize_grads else _filled(spec, lines),
        once_differentiable=once,
        opaque=opaque,
        compiles=not opaque and not _sole_constant(spec),
        transforms=in_torch if spec.transforms is None else spec.transforms,
    )


def _given(spec: OpSpec) -> _Given:
    formulas = [*dict(spec.gradients).values(), spec.backward, spec.forward]
    first = next((item for item in formulas if item), None)
    graph = first.graph if first else Graph()
    forward = write_forward(spec, spec.forward) if spec.forward else None
    origins = _origins(spec, forward)
    locals_ = assigned(spec.forward) if spec.forward else frozenset()
    taken = locals_ | {item.name for item in (*spec.inputs, *spec.outputs)}
    program = (
        spec.backward.statements
        if spec.backward
        else join(graph, spec.gradients, taken)
    )
    place = first.location if first else Location(spec.name)
    return _Given(graph, place, forward, program, origins)


def _origins(spec: OpSpec, forward: Forward | None) -> dict[str, str]:
    """The names under which the backward may read an output: its own and the local returned as it."""
    inputs = {item.name for item in spec.inputs}
    origins = {item.name: item.name for item in spec.outputs if item.name not in inputs}
    if forward is None:
        return origins
    locals_ = {name for item in forward.statements for name in written(item)}
    for output, result in zip(spec.outputs, forward.results, strict=True):
        if result.kind == "name" and result.label not in inputs:
            origins[result.label] = output.name
        elif output.name in locals_ and spec.forward:
            message = (
                f"'{output.name}' is a local of the forward and the name of an output"
            )
            hint = "return it under that name, or name it otherwise"
            raise ScaffoldError(message, spec.forward.location, hint)
    return origins


def _plan(spec: OpSpec, given: _Given) -> Plan:
    """Which locals of the forward are computed again in the backward, and which are saved."""
    if given.forward is None:
        return Plan((), ())
    statements = given.forward.statements
    inputs = {item.name for item in spec.inputs}
    known = (
        {name for item in statements for name in written(item)}
        - inputs
        - set(given.origins)
    )
    wanted = frozenset(read.name for read, _ in free_reads(given.program)) & known
    balanced = spec.save_policy == "balanced" and spec.once_differentiable is not False
    save_all = bool(spec.once_differentiable) or balanced
    return plan(statements, wanted, _imported(spec), save_all, given.place)


def _once_differentiable(spec: OpSpec, given: _Given, recomputed: Plan) -> bool:
    """As the user says; else where a second derivative would be silently wrong or is impossible."""
    active = _active(spec, given) & set(recomputed.saved)
    if spec.once_differentiable is not None:
        if active and not spec.once_differentiable:
            message = f"'{min(active)}' cannot be computed again, so it is saved as a constant"
            hint = "the second derivative would be wrong: let the op be once-differentiable"
            raise ScaffoldError(message, given.place, hint)
        return spec.once_differentiable
    return bool(active) or _leaves_torch(spec, given.program)


def _active(spec: OpSpec, given: _Given) -> frozenset[str]:
    if given.forward is None:
        return frozenset()
    inputs = frozenset(item.name for item in spec.differentiable)
    return active_locals(given.forward.statements, inputs)


def _imported(spec: OpSpec) -> frozenset[str]:
    return frozenset(item.binding for item in spec.imports)


def _leaves_torch(spec: OpSpec, statements: tuple[Statement, ...]) -> bool:
    nodes = (node for item in statements for node in expressions(item))
    return any(leaves_torch(node, _imported(spec)) for node in nodes)


def _opaque(spec: OpSpec, given: _Given) -> bool:
    forward = given.forward
    if forward and any(leaves_torch(node, _imported(spec)) for node in forward.results):
        return True
    return _leaves_torch(
        spec, (*(forward.statements if forward else ()), *given.program)
    )


def _sole_constant(spec: OpSpec) -> bool:
    """A single output that is marked non-differentiable, which torch.compile does not take."""
    return len(spec.outputs) == 1 and spec.outputs[0].const


def _missing(spec: OpSpec, lines: tuple[Line, ...]) -> frozenset[str]:
    names = {name for line in lines for name in written(line.statement)}
    return frozenset(
        item.name for item in spec.differentiable if f"grad_{item.name}" not in names
    )


def _elements(
    spec: OpSpec, lines: tuple[Line, ...]
) -> tuple[tuple[tuple[str, Node], ...], tuple[Line, ...]]:
    """Formulas for one element of a variadic input, apart from the other lines."""
    if spec.backward:
        return (), lines
    variadic = {
        f"grad_{item.name}": item.name for item in spec.differentiable if item.variadic
    }
    elements, rest = [], []
    for line in lines:
        statement = line.statement
        if isinstance(statement, Assign) and statement.target.label in variadic:
            elements.append((variadic[statement.target.label], statement.value))
        else:
            rest.append(line)
    return tuple(elements), tuple(rest)


def _all_for(
    missing: frozenset[str], spec: OpSpec, handed: Transfer
) -> tuple[tuple[Saved, ...], tuple[Kept, ...]]:
    """What an unwritten gradient may want: every tensor input and every attribute."""
    found = {item.name: item for item in handed.saved}
    for item in spec.tensors:
        serves = found[item.name].serves if item.name in found else frozenset()
        saved = Saved(item.name, "input", serves | missing, item.name)
        found[item.name] = saved
    ordered = [found.pop(item.name) for item in spec.tensors if not item.variadic]
    last = [found.pop(item.name) for item in spec.tensors if item.variadic]
    kept = {item.name: item for item in handed.kept}
    kept |= {item.name: Kept(item.name, item.name) for item in spec.attributes}
    return (*ordered, *found.values(), *last), tuple(kept.values())


def _filled(spec: OpSpec, lines: tuple[Line, ...]) -> tuple[str, ...]:
    """With gradients that may be None: those of several outputs, each zeros where another is there."""
    outputs = [item.name for item in spec.outputs if item.differentiable]
    if len(outputs) < 2:
        return ()
    names = frozenset().union(*(read_names(line.statement) for line in lines))
    return tuple(name for name in outputs if f"grad_{name}" in names)
