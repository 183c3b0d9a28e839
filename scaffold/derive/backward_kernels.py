"""Registered ops for kernels in a library-style backward: calls out of PyTorch become ops of their own.

In: an `OpSpec` and its `Derivation`. Out: the `Derivation` whose blocks call such ops. Invariant: a compiler, tracing
the backward of a registered op, finds nothing it cannot run: each such op has a fake, which gives gradients of the
shapes of their inputs.

Words: library style registers the op with torch. A kernel is code out of PyTorch; its fake gives the shapes of its
results without running it. A block is a group of lines under one test of `needs_input_grad`; lines for elements of a
variadic input (any number of tensors) stand apart from blocks (`elements`). Sharding says for each dim of a tensor
how it is split among devices, by an index (a letter) for each.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from scaffold.derive.analysis.metadata import TYPES
from scaffold.derive.derivation import BackwardKernel, Block, Derivation
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.outputs import registered_apart
from scaffold.derive.library import leaves, shape_of, sure_inputs
from scaffold.derive.saving import expression_of, is_of_ctx, read_of_ctx
from scaffold.formula import (
    Assign,
    Graph,
    Node,
    free_names,
    read_names,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import Attribute, Input, OpSpec, Output, TensorInput
from scaffold.spec.op_spec import ANY_DIMS, WHOLE, Sharding

# Annotations of a registered op that differ from Python's own.
REGISTERED = TYPES | {"shape": "Sequence[int]", "dtype": "dtype", "device": "device"}


def with_registered_backward(
    spec: OpSpec, graph: Graph, derivation: Derivation
) -> Derivation:
    """Turn backward code that leaves PyTorch into registered ops: one per block, else one for the whole backward.

    Last resort: the derivation as it was, which `library` then refuses with a message.
    """
    if not (spec.is_library and derivation.opaque):
        return derivation
    leaving = [x for x in derivation.blocks if leaves(spec, x.statements, ())]
    replaced = _with_kernels(spec, graph, derivation, leaving)
    # Lines for the elements of a variadic input stand in a loop, in no block.
    if replaced is None and not derivation.elements:
        joint = _in_one_block(spec, derivation)
        replaced = _with_kernels(spec, graph, joint, joint.blocks)
    return replaced or derivation


def _with_kernels(
    spec: OpSpec, graph: Graph, derivation: Derivation, leaving: Sequence[Block]
) -> Derivation | None:
    """Replace the `leaving` blocks, those with code out of PyTorch, by calls of registered ops.

    Return None if one of them cannot be an op.
    """
    blocks, kernels = [], list[BackwardKernel]()
    for block in derivation.blocks:
        if block in leaving:
            owners = _gradients_of(spec, derivation, block)
            # A sole op needs no name of an input to tell it apart.
            suffix = f"_{owners[0].name}" if owners and len(leaving) > 1 else ""
            kernel = _kernel(spec, graph, derivation, block, owners, suffix)
            if kernel is None:
                return None
            kernels.append(kernel)
            block = Block(block.serves, (_call(graph, kernel),))
        blocks.append(block)
    return replace(derivation, blocks=tuple(blocks), kernels=tuple(kernels))


def _in_one_block(spec: OpSpec, derivation: Derivation) -> Derivation:
    """Return the same backward as one block, which computes all gradients if one is needed: a kernel computes them together.

    So every saved tensor serves all gradients and is always saved, and each gradient is computed along with the
    others (`joint`).
    """
    all_inputs = frozenset(item.name for item in spec.differentiable)
    return replace(
        derivation,
        blocks=(Block(all_inputs, derivation.lines),),
        joint=all_inputs,
        saved=tuple(
            item._replace(serves=all_inputs, always=True) for item in derivation.saved
        ),
    )


def _gradients_of(
    spec: OpSpec, derivation: Derivation, block: Block
) -> tuple[TensorInput, ...]:
    """Return the inputs whose gradients a block assigns; none if the block cannot become an op of its own.

    It cannot if other blocks read or write its names. And an op always returns tensors, so the gradient of an
    optional input, None without it, must stand alone.
    """
    names = written(*block.statements)
    owners = tuple(x for x in spec.differentiable if f"grad_{x.name}" in names)
    others = [
        x for item in derivation.blocks if item is not block for x in item.statements
    ]
    if names & (read_names(*others) | written(*others)):
        return ()
    return () if len(owners) > 1 and any(x.optional for x in owners) else owners


def _kernel(
    spec: OpSpec,
    graph: Graph,
    derivation: Derivation,
    block: Block,
    owners: tuple[TensorInput, ...],
    suffix: str,
) -> BackwardKernel | None:
    """Return a block as an op of its own, for the gradients of the inputs `owners`; `suffix` tells several such ops apart.

    Return None if it has no `owners` or reads more than PyTorch hands to a backward, or if the shapes of the gradients are
    unknown. With `strict_types` it is called through a name `kernel`, typed as a function of tensors.
    """
    inputs = _kernel_inputs(spec, derivation, block)
    if not owners or inputs is None:
        return None
    op = replace(
        spec,
        name=f"{spec.name}_backward{suffix}",
        inputs=inputs,
        outputs=tuple(Output(f"grad_{x.name}", spec.dims(x.name)) for x in owners),
        forward=None,  # its lines are the block's
        sharding=_sharding(spec, derivation, inputs, owners),
    )
    shapes = tuple(filter(None, (_shape_of_gradient(op, x) for x in op.outputs)))
    if len(shapes) < len(owners):
        return None
    statements = rewritten(graph, block.statements, partial(_off_ctx, graph))
    results = tuple(graph.name(output.name) for output in op.outputs)
    # PyTorch refuses a result that is an input of the op, or a view of one.
    results, _ = registered_apart(op, graph, statements, results, ())
    called = op.function_name
    if spec.strict_types:
        names = {item.name for item in (*spec.inputs, *inputs)} | written(*statements)
        called = fresh(f"kernel{suffix}", names)
    return BackwardKernel(op, called, statements, results, shapes)


def _kernel_inputs(
    spec: OpSpec, derivation: Derivation, block: Block
) -> tuple[Input, ...] | None:
    """Return the inputs of a block as an op: incoming gradients, saved tensors, values on ctx; None if it reads more.

    More is a value of another block, a saved local, whose shape is not declared, or a variadic input or output.
    """
    tensors = {item.name: item for item in spec.tensors}
    outputs = {item.name: item for item in spec.outputs}
    known: dict[str, Input] = {}
    for output in spec.outputs:
        name = grad_name(spec, output.name)
        known[name] = TensorInput(name, output.dims, output.dtype)
    for item in derivation.saved:
        source = tensors if item.source == "input" else outputs
        declared = source.get(item.origin)
        if declared is None or declared.variadic:
            return None
        optional = isinstance(declared, TensorInput) and declared.optional
        known[item.name] = TensorInput(
            item.name, declared.dims, declared.dtype, optional=optional
        )
    # A value of another block has no place among the inputs of an op.
    read = free_names(block.statements)
    earlier = written(*(line for item in derivation.blocks for line in item.statements))
    if read & earlier - known.keys():
        return None
    on_ctx = _values_on_ctx(spec, derivation, read_of_ctx(block.statements))
    return (*(item for name, item in known.items() if name in read), *on_ctx)


def _values_on_ctx(
    spec: OpSpec, derivation: Derivation, read: Collection[str]
) -> Iterator[Attribute]:
    """Yield the values on ctx named in `read`, as attributes of the op for the backward, with the types a registered op takes."""
    # Of each `x.shape` and its like, as forward puts it on ctx: its type in a registered op.
    types = {
        expression_of(item, facet): f"{kind} | None" if item.optional else kind
        for item in spec.tensors
        for facet, kind in REGISTERED.items()
    }
    types |= {item.name: item.annotation for item in spec.attributes}
    for item in derivation.kept:
        if item.name in read:
            kinds = REGISTERED if item.output else types
            yield Attribute(item.name, kinds.get(item.expression, "object"))


def _off_ctx(graph: Graph, node: Node) -> Node | None:
    """Return the parameter `eps` for `ctx.eps`: the lines move into an op without ctx. None for other nodes, which stay."""
    return graph.name(node.label) if is_of_ctx(node) else None


def _call(graph: Graph, kernel: BackwardKernel) -> Assign:
    """Return the call that stands in the block's place: `grad_x, grad_weight = kernel(grad_output, x, weight, ctx.eps)`."""
    # Its attributes are values on ctx, its tensors have their own names in the backward.
    arguments = tuple(
        (
            graph.node("attribute", item.name, (graph.name("ctx"),))
            if isinstance(item, Attribute)
            else graph.name(item.name)
        )
        for item in kernel.spec.inputs
    )
    call = graph.node("call", "", (graph.name(kernel.called), *arguments))
    names = tuple(graph.name(output.name) for output in kernel.spec.outputs)
    return Assign(names[0] if len(names) == 1 else graph.node("tuple", "", names), call)


def _shape_of_gradient(spec: OpSpec, output: Output) -> str | None:
    """Return the shape of a gradient as code for the fake, the same as its input's: `x.shape`; None if unknown.

    `spec` is the op for the backward: of an `x` that it does not take, the declared dims tell the shape.
    """
    name = output.name.removeprefix("grad_")
    if any(item.name == name for item in sure_inputs(spec)):
        return f"{name}.shape"
    return shape_of(spec, output)


def _sharding(
    spec: OpSpec,
    derivation: Derivation,
    inputs: Iterable[Input],
    owners: Iterable[TensorInput],
) -> Sharding | None:
    """Derive the backward op's sharding from the forward's; the gradient of an unsharded input is a sum.

    Leave whole any index that a saved output lacks: the output is a sum over it, and lines for a part of the inputs
    might need their own term. `owners` are the inputs with a gradient.
    """
    if spec.sharding is None:
        return None
    of_inputs = dict(
        zip((x.name for x in spec.tensors), spec.sharding.inputs, strict=True)
    )
    of_outputs = dict(
        zip((x.name for x in spec.outputs), spec.sharding.outputs, strict=True)
    )
    indices = {grad_name(spec, name): group for name, group in of_outputs.items()}
    whole = set[str]()  # indices not sharded
    for item in derivation.saved:
        known = of_inputs if item.source == "input" else of_outputs
        indices[item.name] = known[item.origin]
        if item.source == "output":
            used = {index for group in spec.sharding.inputs for index in group}
            whole |= used - {*known[item.origin]}
    if ANY_DIMS in whole:  # `...`, of unknown number: not to be left whole one by one
        return None

    def sharded(groups: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
        """Return the indices of several tensors, not sharded if in `whole`."""
        return tuple(
            tuple(WHOLE if index in whole else index for index in group)
            for group in groups
        )

    took = sharded(indices[x.name] for x in inputs if isinstance(x, TensorInput))
    gave = sharded(of_inputs[x.name] for x in owners)
    text = " -> ".join(", ".join(map("".join, side)) for side in (took, gave))
    return Sharding(text, spec.sharding.place, took, gave)
