"""The backward of an op as an op of its own, with a gradient: PyTorch's `*_double_backward`.

In: the gradients of an op as lines over its inputs, its outputs and their gradients, nothing of which is saved; and as lines that are
fast, which read what the forward saves. Out: a `DoubleBackward`. Invariant: what is differentiated is the former: an intermediate that is
saved spares time and is a constant to autograd, and what depends on it is computed of the inputs. `pipeline.py` derives that op as
any other.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import NamedTuple

from scaffold.derive.analysis.activity import callee
from scaffold.derive.analysis.metadata import TYPES
from scaffold.derive.autocast import amp_of
from scaffold.derive.backward_program import Line, free_reads, surely_written
from scaffold.derive.derivation import (
    BY_AUTOGRAD,
    Absent,
    Block,
    Derivation,
    DoubleBackward,
    Kept,
    Saved,
    Source,
)
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.outputs import cloned, kept_apart, own_results
from scaffold.derive.graph import sizes
from scaffold.derive.graph.shapes import LeadingDims, Origin, Own, Shape
from scaffold.derive.saving import (
    Context,
    ContextNames,
    expression_of,
    is_of_ctx,
    read_of_ctx,
)
from scaffold.errors import Location
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    emit,
    expressions,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.primitives.calls import may_be
from scaffold.spec import Attribute, Input, OpSpec, Output, TensorInput

MASK = "output_mask"  # as ATen calls it: which gradients are wanted
SOURCES: tuple[Source, ...] = ("input", "output", "intermediate")


class FirstDerivative(NamedTuple):
    """The gradients of an op as lines over names of its inputs, outputs and their gradients."""

    graph: Graph
    blocks: tuple[Block, ...]
    origins: Mapping[str, str]  # name in the lines -> the output that it is
    shapes: Mapping[str, Shape]  # of outputs


def why_not(
    spec: OpSpec, once: bool, saved: Collection[str], lines: Iterable[Line]
) -> str:
    """Why the lines of the first derivative cannot be differentiated, or None; `saved` are the locals of the forward that they cannot do without."""
    if once and (spec.gradients or spec.backward):
        stated = filter(None, (*dict(spec.gradients).values(), spec.backward))
        nodes = (node for one in stated for node in one.expressions())
        read = frozenset[str]().union(*(node.names() for node in nodes))
        what = next(
            map("'{}' is".format, sorted(read & spec.foreign)), "what is stated is"
        )
        return f"{what} code whose derivative PyTorch does not know"
    if once:
        return next(
            map("PyTorch does not differentiate {}".format, _last_calls(lines)),
            "the backward is differentiable once even where it computes everything again",
        )
    if saved:
        return f"'{min(saved)}' cannot be computed again"
    several = [item.name for item in spec.tensors if item.variadic]
    several += [item.name for item in spec.outputs if item.variadic]
    if several:
        return "it takes or returns any number of tensors"
    if spec.dirty:
        return "it changes an input in place"
    if spec.surrogate or spec.kept:
        return "its gradient does not follow from its forward"
    return ""


def _last_calls(lines: Iterable[Line]) -> Iterator[str]:
    """The calls that PyTorch does not differentiate: `torch.ops.aten._pdist_backward`."""
    for line in lines:
        for node in (n for one in expressions(line.statement) for n in one.walk()):
            name = callee(node)
            ends = ("once", "undifferentiated")
            if name is not None and any(may_be(name, flag) for flag in ends):
                yield emit(node.args[0])


def why_not_of(second: Derivation) -> str:
    """Why there is no second derivative, if there is none."""
    whole = any(BY_AUTOGRAD in note for note in second.notes)
    if second.missing or second.once_differentiable or whole:
        reasons = [note.rpartition(": ")[2] for note in second.notes]
        return reasons[0] if reasons else "that would be differentiable once"
    outputs = [item.origin for item in second.saved if item.source == "output"]
    if outputs or any(item.output is not None for item in second.kept):
        return "the second derivative reads the first one"
    if any(item.source == "intermediate" for item in second.saved):
        return "the second derivative saves an intermediate"
    return ""


class AsOp(NamedTuple):
    """The first derivative as an op; `results`: what outputs are called among its inputs."""

    spec: OpSpec
    shapes: Mapping[str, Shape]
    results: Mapping[str, str]


def as_op(spec: OpSpec, first: FirstDerivative, place: Location) -> AsOp:
    """An op that computes the gradients of another."""
    graph = first.graph
    lines = tuple(
        line for block in first.blocks for line in _where_given(spec, graph, block)
    )
    results = _names_of_results(spec, first, lines)
    lines = rewritten(graph, lines, renaming(graph, results))
    of_outputs = _of_outputs(spec, first, results)
    shapes = {new: first.shapes.get(origin) for new, origin in of_outputs.items()}
    known = {
        name: shape for name, shape in shapes.items() if shape and _is_of_inputs(shape)
    }
    bare = replace(
        spec,
        inputs=_inputs(spec, lines, of_outputs),
        outputs=tuple(
            Output(f"grad_{item.name}", item.dims, item.dtype)
            for item in spec.differentiable
        ),
        forward=_formula(spec, graph, lines, place),
        amp="region" if amp_of(spec) == "region" else "off",
    )
    return AsOp(_of_backward(bare), known, results)


def _formula(spec: OpSpec, graph: Graph, lines: Lines, place: Location) -> Formula:
    """What returns the gradients."""
    nodes = tuple(_result(graph, item) for item in spec.differentiable)
    value = nodes[0] if len(nodes) == 1 else graph.node("tuple", "", nodes)
    return Formula(lines, value, "", place, graph=graph)


def _of_backward(spec: OpSpec) -> OpSpec:
    """The spec under a name of its own, without what the user says of the op alone."""
    return replace(
        spec,
        name=f"{spec.name}_backward",
        class_name=f"{spec.class_name}Backward",
        doc=None,
        gradients=(),
        backward=None,
        surrogate=None,
        save_policy="recompute",
        once_differentiable=None,
        double_backward=False,
        materialize_grads=True,
        # Where a combined forward would keep the shape of a local, which the fast lines may not have.
        style="setup-context",
        style_is_free=False,
        shape_checks=False,
        module=None,
        test=False,
        conventional=(),
    )


def _result(graph: Graph, item: TensorInput) -> Node:
    """A gradient as a result that no other line reads: where it is not wanted it is None."""
    name = graph.name(f"grad_{item.name}")
    return name if item.optional else cloned(graph, name)


def _where_given(spec: OpSpec, graph: Graph, block: Block) -> Lines:
    """The lines of a block, under the test that is sure where they run: an optional input has a gradient where it is given."""
    optional = {item.name for item in spec.tensors if item.optional}
    if not block.serves <= optional:
        return block.statements
    none = graph.constant("None")
    tests = [
        graph.node("compare", "is not", (graph.name(name), none))
        for name in sorted(block.serves)
    ]
    test = tests[0] if len(tests) == 1 else graph.node("boolean", "or", tuple(tests))
    return (If(test, block.statements),)


def _names_of_results(
    spec: OpSpec, first: FirstDerivative, lines: Lines
) -> dict[str, str]:
    """Outputs that the lines read -> what they are called among inputs, where their gradient would be called like one that comes in."""
    read = {read.name for read, _ in free_reads(lines)}
    coming = {grad_name(spec, output.name) for output in spec.outputs}
    taken = {item.name for item in (*spec.inputs, *spec.outputs)} | written(*lines)
    found: dict[str, str] = {}
    for name in first.origins:
        if name in read and f"grad_{name}" in coming:
            stem = "result" if len(spec.outputs) == 1 else f"result_{name}"
            found[name] = fresh(stem, taken)
            taken.add(found[name])
    return found


def _of_outputs(
    spec: OpSpec, first: FirstDerivative, results: Mapping[str, str]
) -> dict[str, str]:
    """What is an output of the op among the inputs of its backward, or the gradient of one -> that output."""
    read = _free_names(first.blocks)
    found = {
        results.get(name, name): origin
        for name, origin in first.origins.items()
        if name in read
    }
    coming = {grad_name(spec, item.name): item.name for item in spec.outputs}
    return found | {name: origin for name, origin in coming.items() if name in read}


def _free_names(blocks: Iterable[Block]) -> frozenset[str]:
    lines = tuple(line for block in blocks for line in block.statements)
    return frozenset(read.name for read, _ in free_reads(lines))


def _inputs(
    spec: OpSpec, lines: Lines, of_outputs: Mapping[str, str]
) -> tuple[Input, ...]:
    """What the first derivative is computed of; where only the shape of a tensor is asked it has no gradient."""
    data = {read.name for read, _ in free_reads(lines) if not read.facets}
    outputs = {item.name: item for item in spec.outputs}
    own = [
        item._replace(const=item.const or item.name not in data)
        for item in spec.tensors
    ]
    others = [
        TensorInput(
            name,
            outputs[origin].dims,
            outputs[origin].dtype,
            const=outputs[origin].const or name not in data,
        )
        for name, origin in of_outputs.items()
    ]
    # Gradients come last, so that what is told of shapes is told by inputs.
    return (*own, *spec.attributes, *others)


def _is_of_inputs(shape: Shape) -> bool:
    """Whether what the shape is told by is the same in every program that has these inputs."""
    if shape.dims is not None:
        return all(
            isinstance(dim, LeadingDims) or sizes.is_told_by_names(dim)
            for dim in shape.dims
        )
    return shape.origin is not None and _origin_is_of_inputs(shape.origin)


def _origin_is_of_inputs(origin: Origin) -> bool:
    if isinstance(origin, Own):
        return False
    values = [getattr(origin, item.name) for item in fields(origin)]
    parts = [
        part
        for value in values
        for part in (value if isinstance(value, tuple) else (value,))
    ]
    return all(
        (
            _is_of_inputs(part)
            if isinstance(part, Shape)
            else isinstance(part, int | str | frozenset | None)
        )
        for part in parts
    )


# --- The two Functions.


class Fast(NamedTuple):
    """The gradients as they are computed, over ctx: blocks, what ctx holds, and how names on it are chosen."""

    blocks: tuple[Block, ...]
    context: Context
    names: ContextNames
    once: bool  # they cannot be differentiated


class _Value(NamedTuple):
    """A value that is no tensor, which the ctx of the op hands to the Function of the double backward."""

    on_ctx: str
    parameter: Attribute


def joined(
    spec: OpSpec, first: FirstDerivative, op: AsOp, second: Derivation, fast: Fast
) -> tuple[Context, DoubleBackward]:
    """What the forward of the op saves, and the Function that its backward calls."""
    masked = any(not _serves_all(spec, block) for block in fast.blocks)
    saved = _saved(spec, first, op, second, fast.context)
    second = _with_absent(spec, op, second) if masked else second
    values, second, kept = _values(spec, op, second, fast, saved)
    tensors = _tensors(first, op, saved)
    body = _body(spec, first.graph, fast, tensors, values)
    coming = _coming(spec, op, fast.blocks)
    inputs: tuple[Input, ...] = (*coming, *tensors.values())
    inputs = (*inputs, *(item.parameter for item in values))
    arguments = [
        *(item.name for item in coming),
        *tensors,
        *(f"ctx.{item.on_ctx}" for item in values),
    ]
    if masked:
        inputs = (*inputs, Attribute(MASK, "tuple[bool, ...]"))
        arguments.append(_mask(spec))
    backward = replace(op.spec, inputs=inputs, style=spec.style)
    results = tuple(first.graph.name(output.name) for output in backward.outputs)
    lines, own = own_results(backward, first.graph, body, results)
    # `grad_output.sum_to_size(shape)` may be grad_output, which is saved.
    own, _ = kept_apart(backward, first.graph, lines, own, second.saved)
    own = tuple(
        _where_wanted(first.graph, *pair) for pair in zip(results, own, strict=True)
    )
    found = replace(
        second,
        forward=lines,
        results=own,
        style=spec.style,
        comments=(),
        notes=(),
        amp=amp_of(backward),
    )
    context = fast.context._replace(saved=saved, kept=kept)
    return context, DoubleBackward(backward, found, tuple(arguments), masked)


def _where_wanted(graph: Graph, name: Node, own: Node) -> Node:
    """`grad_y.clone()`, of what is the gradient of another input too, where it is wanted."""
    if own is not cloned(graph, name):
        return own
    test = graph.node("compare", "is not", (name, graph.constant("None")))
    return graph.node("conditional", "", (test, own, graph.constant("None")))


def _serves_all(spec: OpSpec, block: Block) -> bool:
    return block.serves >= {item.name for item in spec.differentiable}


def _mask(spec: OpSpec) -> str:
    """Which gradients are wanted, one flag for each that there can be."""
    positions = [spec.index(item.name) for item in spec.differentiable]
    flags = "ctx.needs_input_grad"
    if positions == [*range(len(spec.inputs))]:
        return flags
    if positions == [*range(len(positions))]:
        return f"{flags}[:{len(positions)}]"
    return f"({', '.join(f'{flags}[{at}]' for at in positions)})"


def _saved(
    spec: OpSpec,
    first: FirstDerivative,
    op: AsOp,
    second: Derivation,
    context: Context,
) -> tuple[Saved, ...]:
    """The tensors that the first or the second derivative reads. None is left out where a gradient is not wanted: the second derivative of the others may read it."""
    every = frozenset(item.name for item in spec.differentiable)
    found = {(item.source, item.origin): item for item in context.saved}
    back = {new: name for name, new in op.results.items()}
    own = {item.name for item in spec.tensors}
    needed = [item.origin for item in second.saved]
    needed += [item.name for item in op.spec.differentiable]
    for name in (back.get(name, name) for name in needed):
        source: Source = "input" if name in own else "output"
        origin = name if name in own else first.origins.get(name)
        if origin is not None:  # else it comes in
            found.setdefault((source, origin), Saved(name, source, every, origin))
    inputs = [item.name for item in spec.tensors]
    several = sorted(
        found.values(),
        key=lambda item: (
            SOURCES.index(item.source),
            inputs.index(item.name) if item.source == "input" else 0,
        ),
    )
    return tuple(item._replace(serves=every) for item in several)


def _tensors(
    first: FirstDerivative, op: AsOp, saved: Iterable[Saved]
) -> dict[str, TensorInput]:
    """What is saved, by its name in the first backward -> what it is to the second Function."""
    known = {item.name: item for item in op.spec.tensors}
    by_output = {
        origin: op.results.get(name, name)
        for name, origin in first.origins.items()
        if op.results.get(name, name) in known
    }
    found = {}
    for item in saved:
        name = (
            by_output.get(item.origin, item.name)
            if item.source == "output"
            else item.name
        )
        found[item.name] = known.get(name) or TensorInput(name, const=True)
    return found


def _coming(spec: OpSpec, op: AsOp, blocks: Iterable[Block]) -> tuple[TensorInput, ...]:
    """The parameters for the gradients that come in."""
    known = {item.name: item for item in op.spec.tensors}
    read = _free_names(blocks)
    names = (grad_name(spec, output.name) for output in spec.outputs)
    return tuple(
        known.get(name) or TensorInput(name, const=True)
        for name in names
        if name in known or name in read
    )


def _with_absent(spec: OpSpec, op: AsOp, second: Derivation) -> Derivation:
    """The second derivative where some gradients are not wanted: what would come in for them is zero."""
    every = frozenset(item.name for item in op.spec.differentiable)
    saved = {item.name: item for item in second.saved}
    sure = [
        item for item in op.spec.tensors if item.name in saved and not item.optional
    ]
    absent, kept = [], {item.name: item for item in second.kept}
    for item in spec.differentiable:
        name = f"grad_grad_{item.name}"
        given, zeros = item.name, f"torch.zeros_like({item.name})"
        read = {item.name}
        if item.name not in saved:
            there = f"{item.name}_shape"
            kept.setdefault(there, Kept(there, expression_of(item, "shape")))
            given, zeros = f"ctx.{there}", f"{sure[0].name}.new_zeros(ctx.{there})"
            read = {sure[0].name}
        saved |= {name: saved[name]._replace(serves=every) for name in read}
        absent.append(Absent(name, zeros, given if item.optional else ""))
    return replace(
        second,
        saved=tuple(saved.values()),
        kept=tuple(kept.values()),
        absent=tuple(absent),
    )


def _values(
    spec: OpSpec, op: AsOp, second: Derivation, fast: Fast, saved: Iterable[Saved]
) -> tuple[tuple[_Value, ...], Derivation, tuple[Kept, ...]]:
    """What goes over besides tensors, the second derivative that keeps those, and what the first ctx keeps for them."""
    attributes = {item.name: item for item in spec.attributes}
    lines = [line for block in fast.blocks for line in block.statements]
    taken = written(*lines) | {item.name for item in (*op.spec.inputs, *spec.outputs)}
    kept = {item.name: item for item in fast.context.kept}
    there = {item.name for item in saved}
    told = _told(spec)
    values: dict[str, _Value] = {}

    def value(item: Kept) -> str:
        """The parameter of the second Function that takes a value of ctx."""
        if item.name not in values:
            known = attributes.get(item.expression) if item.output is None else None
            found = known or Attribute(fresh(item.name, taken), _type(item, told))
            found = found._replace(keyword_only=False, default=None)
            values[item.name] = _Value(item.name, found)
        return values[item.name].parameter.name

    read = read_of_ctx(lines)
    for item in fast.context.kept:
        if item.name in read and not _is_told_by(item, told, there):
            value(item)
    again = []
    for item in second.kept:
        facet = told.get(item.expression)
        if item.expression in attributes:
            name = fast.names.attribute(item.expression)
        elif facet and facet[0].name not in there:
            name = fast.names.facet(facet[0].name, facet[1])
        else:
            again.append(item)
            continue
        mine = kept.setdefault(name, Kept(name, item.expression))
        again.append(item._replace(expression=value(mine)))
    filled = {name for item in fast.context.filled for name in item[1:]}
    needed = [item for item in kept.values() if item.name in {*values, *filled}]
    return tuple(values.values()), replace(second, kept=tuple(again)), tuple(needed)


Told = Mapping[str, tuple[TensorInput, str]]  # the text of metadata -> of which input


def _told(spec: OpSpec) -> Told:
    return {
        expression_of(item, facet): (item, facet)
        for item in spec.tensors
        for facet in TYPES
    }


def _type(item: Kept, told: Told) -> str:
    """What a type checker is told of a value on ctx; of an optional input it would want a test at each place."""
    if item.output is None and item.expression in told:
        owner, facet = told[item.expression]
        return "Any" if owner.optional else TYPES[facet]
    return "Any" if item.output is None else TYPES[item.expression]


def _is_told_by(item: Kept, told: Told, there: Collection[str]) -> bool:
    """Whether the value of a name on ctx can be read of a tensor that is handed over, as its shape."""
    if item.output is not None or item.expression not in told:
        return False
    owner, facet = told[item.expression]
    return owner.name in there and not owner.optional and facet != "presence"


def _body(
    spec: OpSpec,
    graph: Graph,
    fast: Fast,
    tensors: Mapping[str, TensorInput],
    values: Iterable[_Value],
) -> Lines:
    """The lines that compute the gradients, each where one that needs it is wanted."""
    told = _told(spec)
    texts = {item.name: item.expression for item in fast.context.kept}
    names = {item.on_ctx: item.parameter.name for item in values}
    renamed = {old: item.name for old, item in tensors.items() if old != item.name}

    def change(node: Node) -> Node | None:
        if is_of_ctx(node) and node.label in names:
            return graph.name(names[node.label])
        if is_of_ctx(node):
            owner, facet = told[texts[node.label]]
            return graph.node("attribute", facet, (graph.name(owner.name),))
        if node.kind == "name" and node.label in renamed:
            return graph.name(renamed[node.label])
        return None

    sure = frozenset[str]()
    lines: list[Statement] = []
    for block in fast.blocks:
        inner = rewritten(graph, block.statements, change)
        if _serves_all(spec, block):
            sure |= surely_written(*inner)
            lines += inner
        else:
            lines.append(If(_wanted(spec, graph, block.serves), inner))
    begun = [
        Assign(graph.name(f"grad_{item.name}"), graph.constant("None"))
        for item in spec.differentiable
        if f"grad_{item.name}" not in sure
    ]
    return (*begun, *lines)


def _wanted(spec: OpSpec, graph: Graph, names: Collection[str]) -> Node:
    """The test that one of some gradients is wanted."""
    mask = graph.name(MASK)
    tests = [
        graph.node("subscript", "", (mask, graph.constant(str(at))))
        for at, item in enumerate(spec.differentiable)
        if item.name in names
    ]
    return tests[0] if len(tests) == 1 else graph.node("boolean", "or", tuple(tests))
