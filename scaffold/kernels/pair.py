"""The row programs of an op: of its forward, and of the backward derived for inputs with the same leading dims.

In: an `OpSpec`. Out: a `Pair`, or an `UnsupportedError` that names what no row kernel computes. Invariant: the backward reads gradients,
inputs and outputs, and attributes; no row that can be computed again is saved.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scaffold.derive import Derivation, derive, grad_name, zero_gradients
from scaffold.derive.derivation import Forward
from scaffold.derive.forward.body import write_forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, Program
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.rules.team_tables import table_of
from scaffold.derive.saving import is_of_ctx
from scaffold.formula import (
    Graph,
    Lines,
    Node,
    emit,
    emit_lines,
    rewritten,
    written,
)
from scaffold.kernels.lowering import Lowering, Shapes, finished, refuse_foreign
from scaffold.kernels.names import AFFIXES, FIXED, LOCAL, OWN, Own, own_names
from scaffold.kernels.packed import Packed, Parts, unpacked
from scaffold.kernels.row_program import (
    NUMBER,
    ONE,
    Name,
    Result,
    RowProgram,
    Space,
)
from scaffold.spec import ANY_DIMS, Dim, OpSpec, Output, TensorInput, is_leading

ROWS = "*rows"
PLAIN = ("float", "int", "bool")  # the attributes a registered op can take


class Pair(NamedTuple):
    """The programs of an op, and the values read by its backward."""

    forward: RowProgram
    backward: RowProgram | None  # None: it copies a gradient, or there is none
    saved: tuple[str, ...] = ()  # what the backward reads of inputs and outputs
    attributes: tuple[str, ...] = ()  # ... and of attributes
    shapes: Shapes = Shapes({}, (), "")
    formula: tuple[str, ...] = ()  # the lines that the forward is of
    gradient: tuple[str, ...] = ()  # ... and the backward
    own: Own = Own()


def kernel_pair(spec: OpSpec) -> Pair:
    """Return the row programs of an op, elementwise if possible; UnsupportedError names the reason if there are none."""
    _refuse(spec)
    packed = unpacked(spec)
    own = own_names(_names(spec) | _names(packed.spec) | _locals(spec))
    if packed.inputs:
        return _repacked(spec, packed, _pair(_over_rows(packed.spec), own))
    try:
        return _pair(_over_elements(spec), own)
    except UnsupportedError as error:
        if all(spec.dims(item.name) is None for item in spec.tensors):
            hint = "; declare the shapes: 'x[..., D]'"
            raise UnsupportedError(f"{error}{hint}") from None
        return _pair(_over_rows(spec), own)


def _refuse(spec: OpSpec) -> None:
    """Refuse inputs and primitives unknown to kernels."""
    for item in spec.tensors:
        if item.optional or item.variadic:
            kind = "is optional" if item.optional else "is any number of tensors"
            raise UnsupportedError(f"'{item.name}' {kind}")
        if item.dtype == "complex":
            raise UnsupportedError(f"'{item.name}' is complex")
    if spec.dirty:
        raise UnsupportedError(f"'{spec.dirty[0]}' changes in place")
    if spec.forward is None:
        raise UnsupportedError("there is no forward")
    if spec.foreign:
        raise UnsupportedError(f"{min(spec.foreign)} is not PyTorch's")
    if not spec.materialize_grads:
        raise UnsupportedError("an output gradient may be None")
    _refuse_names(spec)
    # First of all, before what is said of shapes.
    applier, forward = _applier(spec), write_forward(spec, spec.forward)
    for result in lower(spec, forward, applier, frozenset()).results:
        for op in result.walk():
            if op.is_tensor:
                refuse_foreign(applier.table, op)


def _refuse_names(spec: OpSpec) -> None:
    """Refuse names the file of the kernels gives to what cannot have another."""
    tensors = {item.name for item in (*spec.tensors, *spec.outputs)}
    made = {f"{name}{affix}" for name in tensors for affix in AFFIXES}
    taken = sorted(_names(spec) & (FIXED | made | {f"{spec.name}_forward"}))
    if taken:
        raise UnsupportedError(f"'{taken[0]}' is a name of the kernels' own")


def _names(spec: OpSpec) -> frozenset[str]:
    """Return the names in the signature of an op."""
    sizes = (str(dim) for item in spec.tensors for dim in item.dims or ())
    every = (*spec.inputs, *spec.outputs)
    return frozenset({*sizes, *(item.name for item in every)})


def _locals(spec: OpSpec) -> frozenset[str]:
    """Return the names in a forward."""
    assert spec.forward is not None  # or else it was refused
    return spec.forward.names() | written(*spec.forward.statements)


# --- Rows of several parts: their programs are those of the parts, which lie in the rows.


def _repacked(spec: OpSpec, packed: Packed, pair: Pair) -> Pair:
    """Return the programs of the parts as programs of their rows."""
    lead = pair.shapes.lead
    rows = {row for row, _ in packed.inputs.values()}
    width = pair.forward.width
    spaces = {
        item.name: (
            Space(True, f"{packed.of} * {width}")
            if item.name in rows
            else pair.shapes.spaces[item.name]
        )
        for item in spec.tensors
    }
    grads = {
        grad_name(packed.spec, name): (grad_name(spec, row), part)
        for name, (row, part) in packed.outputs.items()
    }
    back = pair.backward and _with_rows(
        pair.backward,
        packed.inputs | grads,
        {
            f"grad_{k}": (f"grad_{row}", part)
            for k, (row, part) in packed.inputs.items()
        },
        packed.inputs,
    )
    if back is not None:
        order = [f"grad_{item.name}" for item in spec.differentiable]
        results = sorted(back.results, key=lambda item: order.index(item.name))
        back = back._replace(results=tuple(results))
    saved = dict.fromkeys(packed.inputs.get(name, (name,))[0] for name in pair.saved)
    return pair._replace(
        forward=_with_rows(pair.forward, packed.inputs, packed.outputs, packed.inputs),
        backward=back,
        saved=tuple(saved),
        shapes=Shapes(spaces, lead, width, of=packed.of),
        formula=(*packed.lines, *pair.formula),
        gradient=(*packed.lines, *pair.gradient),
    )


def _with_rows(
    program: RowProgram, sources: Parts, targets: Parts, dtypes: Parts
) -> RowProgram:
    """Return a program with its loads and results placed in rows."""
    loads = [
        (
            load._replace(source=sources[load.source][0], part=sources[load.source][1])
            if load.source in sources
            else load
        )
        for load in program.loads
    ]
    results: dict[str, Result] = {}
    for item in program.results:
        name, part = targets.get(item.name, (item.name, None))
        if name in results:
            pieces = (*results[name].pieces, (part, item.pieces[0][1]))
            results[name] = results[name]._replace(pieces=pieces)
            continue
        of = dict.fromkeys(dtypes.get(x, (x,))[0] for x in item.dtypes)
        pieces = ((part, item.pieces[0][1]),)
        results[name] = item._replace(name=name, pieces=pieces, dtypes=tuple(of))
    return program._replace(loads=tuple(loads), results=tuple(results.values()))


# --- Declared shapes, as a kernel takes them.


def _over_elements(spec: OpSpec) -> OpSpec:
    """Return the op for tensors of one shape."""
    if len({spec.dims(item.name) for item in spec.tensors}) > 1:
        raise UnsupportedError("its inputs have several shapes")
    return _declared(spec, lambda item: (ROWS,))


def _over_rows(spec: OpSpec) -> OpSpec:
    """Return the op for tensors with the same leading dims."""

    def dims(item: TensorInput) -> tuple[Dim, ...]:
        given = spec.dims(item.name)
        if given is None:
            raise UnsupportedError(f"the shape of '{item.name}' is not declared")
        return tuple(ROWS if dim == ANY_DIMS else dim for dim in given)

    return _declared(spec, dims)


def _declared(spec: OpSpec, dims: Callable[[TensorInput], tuple[Dim, ...]]) -> OpSpec:
    inputs = tuple(
        item._replace(dims=dims(item)) if isinstance(item, TensorInput) else item
        for item in spec.inputs
    )
    return replace(
        spec,
        inputs=inputs,
        conventional=(),
        save_policy="recompute",
        style="setup-context",
        style_is_free=False,
        amp="off",
        kernels=(),
        shape_checks=False,
    )


def _shapes(spec: OpSpec) -> Shapes:
    """Return the space of each input."""
    dims = {item.name: item.dims or () for item in spec.tensors}
    longest = max(dims.values(), key=len, default=())
    names = frozenset(item.name for item in spec.attributes)
    if longest == (ROWS,):
        spaces = dict.fromkeys(dims, Space(rows=True))
        return Shapes(spaces, longest, "", names)
    lead, width = longest[:-1], str(longest[-1:][0]) if longest else ""
    if not lead or is_leading(width) or not width.isidentifier():
        raise UnsupportedError("no input has rows of a size with a name")
    spaces = {name: _space(name, given, lead) for name, given in dims.items()}
    return Shapes(spaces, lead, width, names)


def _space(name: str, dims: tuple[Dim, ...], lead: tuple[Dim, ...]) -> Space:
    if dims == lead:
        return Space(rows=True)
    if dims and dims[:-1] in (lead, ()) and not is_leading(dims[-1]):
        return Space(dims[:-1] == lead, str(dims[-1]))
    if dims == ():
        return NUMBER
    raise UnsupportedError(f"'{name}' has neither the rows of the others nor columns")


# --- The programs.


def _pair(spec: OpSpec, own: Own) -> Pair:
    shapes, derivation = _shapes(spec), derive(spec)
    if derivation.missing or derivation.forward is None:
        note = next(iter(derivation.notes), "its gradient is not derived")
        raise UnsupportedError(note)
    flat = sorted(zero_gradients(derivation))
    if flat:
        raise UnsupportedError(f"the gradient of '{flat[0]}' is zero everywhere")
    forward = _forward(spec, derivation, shapes, own)
    backward: RowProgram | None = None
    saved: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    if spec.differentiable:
        backward = _backward(spec, derivation, shapes, forward, own)
        saved = tuple(item.origin for item in derivation.saved)
        attributes = backward.numbers
        read = {load.name for load in backward.loads}
        if all(_is_copied(result, read) for result in backward.results):
            backward = None
    values = zip(spec.outputs, derivation.results, strict=True)
    results = [f"{item.name} = {emit(value)}" for item, value in values]
    graph = _graph(spec)
    lines = tuple(line for block in derivation.blocks for line in block.statements)
    lines = rewritten(graph, lines, partial(_off_ctx, graph))
    return Pair(
        forward,
        backward,
        saved,
        attributes,
        shapes,
        (*emit_lines(derivation.forward), *results),
        tuple(emit_lines(lines)),
        own,
    )


def _reserved(spec: OpSpec, own: Own) -> frozenset[str]:
    """Return the names no line of a kernel may get."""
    given = (*AFFIXES, *LOCAL)
    made = {f"{item.name}{affix}" for item in spec.inputs for affix in given}
    return FIXED | {*own} | _names(spec) - {x.name for x in spec.outputs} | made


def _is_copied(result: Result, read: Collection[str]) -> bool:
    """Return whether a gradient is only a copy of an incoming one."""
    values = [value for _, value in result.pieces]
    copied = all(isinstance(item, Name) and item.text in read for item in values)
    return copied and not result.summed


def _forward(
    spec: OpSpec, derivation: Derivation, shapes: Shapes, own: Own
) -> RowProgram:
    assert derivation.forward is not None
    applier = _applier(spec)
    lowered = _lowered(spec, derivation.forward, derivation.results, applier)
    lowering = Lowering(applier, lowered, shapes, _reserved(spec, own))
    lowering.run()
    results = []
    for output, op in zip(spec.outputs, lowered.results, strict=True):
        if op.kind != "real":
            raise UnsupportedError(f"'{output.name}' is not of real numbers")
        value = lowering.named(lowering.value(op), output.name, own=True)
        results.append(
            Result(
                output.name,
                ((None, value),),
                value.space,
                dtypes=_dtypes(op, shapes),
                float32=any(item.facts.autocast == "float32" for item in op.walk()),
            )
        )
    return _program(lowering, results)


def _dtypes(op: Op, shapes: Shapes) -> tuple[str, ...]:
    """Return the inputs with a part in the dtype of a result."""
    read = {item.name for item in op.walk() if item.rule == "input"}
    real = {
        item.name for item in op.walk() if item.kind == "real" if item.rule == "input"
    }
    found = [name for name in shapes.spaces if name in read & real]
    return tuple(name for name in found if shapes.spaces[name] != NUMBER)


def _backward(
    spec: OpSpec, derivation: Derivation, shapes: Shapes, forward: RowProgram, own: Own
) -> RowProgram:
    graph = _graph(spec)
    back, spaces = _of_backward(spec, derivation, shapes, forward)
    lines = tuple(line for block in derivation.blocks for line in block.statements)
    lines = rewritten(graph, lines, partial(_off_ctx, graph))
    names = [f"grad_{item.name}" for item in spec.differentiable]
    applier = _applier(back)
    lowered = _lowered(back, lines, tuple(map(graph.name, names)), applier)
    known = shapes._replace(spaces=spaces)
    lowering = Lowering(applier, lowered, known, _reserved(back, own))
    lowering.run()
    results = []
    for item, name, op in zip(spec.differentiable, names, lowered.results, strict=True):
        space = shapes.spaces[item.name]
        value, summed = finished(lowering, op, space)
        value = value if summed else lowering.named(value, name, own=True)
        results.append(Result(name, ((None, value),), space, summed, (item.name,)))
    return _program(lowering, results)


def _of_backward(
    spec: OpSpec, derivation: Derivation, shapes: Shapes, forward: RowProgram
) -> tuple[OpSpec, dict[str, Space]]:
    """Return the backward as an op of the incoming gradients, the saved tensors and the attributes."""
    spaces = {grad_name(spec, item.name): item.space for item in forward.results}
    tensors = {item.name: item for item in spec.tensors}
    inputs = [TensorInput(name, _dims(space, shapes)) for name, space in spaces.items()]
    outputs = {item.name: item.space for item in forward.results}
    for item in derivation.saved:
        if item.source == "input":
            inputs.append(tensors[item.origin]._replace(name=item.name))
            spaces[item.name] = shapes.spaces[item.origin]
        elif item.origin in outputs:
            spaces[item.name] = outputs[item.origin]
            inputs.append(TensorInput(item.name, _dims(spaces[item.name], shapes)))
        else:
            raise UnsupportedError(f"the backward reads '{item.origin}' again")
    own = replace(
        spec,
        inputs=(*inputs, *spec.attributes),
        outputs=tuple(Output(f"grad_{item.name}") for item in spec.differentiable),
        require=(),
    )
    return own, spaces


def _dims(space: Space, shapes: Shapes) -> tuple[Dim, ...]:
    lead: tuple[Dim, ...] = shapes.lead if space.rows else ()
    last: tuple[Dim, ...] = (space.width,) if space.has_columns else ()
    return (*lead, *((1,) if space.width == ONE else last))


def _off_ctx(graph: Graph, node: Node) -> Node | None:
    return graph.name(node.label) if is_of_ctx(node) else None


def _graph(spec: OpSpec) -> Graph:
    assert spec.forward is not None  # or else it was refused
    return spec.forward.graph


def _applier(spec: OpSpec) -> Applier:
    table = table_of(spec)
    return Applier(Program(_graph(spec), table.facts, declared(spec)), table)


def _lowered(
    spec: OpSpec, lines: Lines, results: tuple[Node, ...], applier: Applier
) -> Lowered:
    forward = Forward(lines, results, (), {}, {}, {})
    return lower(spec, forward, applier, frozenset())


def _program(lowering: Lowering, results: Iterable[Result]) -> RowProgram:
    return RowProgram(
        tuple(lowering.loads.values()),
        tuple(lowering.numbers),
        tuple(lowering.lines),
        tuple(results),
        lowering.shapes.width,
    )
