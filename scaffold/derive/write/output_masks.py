"""Ask PyTorch's own backward calls for the wanted gradients alone, as autograd does: by `ctx.needs_input_grad`.

A call such as `native_layer_norm_backward` computes several gradients, and its last argument says which: the *mask*,
`(True, weight is not None, True)` as the table has it. A weight that is frozen costs no pass over its input then.

In: the lines of a backward. Out: the same, with each entry of a mask true only if a wanted gradient reads that result: False, a
flag, `ctx.needs_input_grad[1]`, or a test of several. Invariant: a result that a wanted gradient reads is computed.
"""

from collections import defaultdict

from scaffold.derive.backward_program import Line, needs_gradient
from scaffold.formula import Graph, Node, assignments, nodes, rewritten
from scaffold.primitives.calls import position_of
from scaffold.spec import OpSpec

# For each result of a call, by its position: the inputs it is for.
Uses = dict[str, set[str]]


def with_output_masks(
    spec: OpSpec, graph: Graph, lines: tuple[Line, ...]
) -> tuple[Line, ...]:
    """Return the lines with the masks of backward calls narrowed to the results that are read, by the gradients reading them.

    Unchanged with an input of any number of tensors, whose flags are several.
    """
    calls = {
        node for line in lines for node in nodes(line.statement) if _has_mask(node)
    }
    if not calls or any(item.variadic for item in spec.tensors):
        return lines

    def narrowed(line: Line) -> Line:
        """Return a line with its masks narrowed; a call that another line repeats has that line's own mask."""
        new = {
            call: _narrowed(spec, graph, call, _uses(call, line, lines), line.serves)
            for call in calls.intersection(nodes(line.statement))
        }
        return line._replace(statement=rewritten(graph, (line.statement,), new.get)[0])

    return tuple(map(narrowed, lines))


def _has_mask(node: Node) -> bool:
    """Return whether it is a call with a mask that is written out: its last parameter is `output_mask` in the table."""
    if node.kind != "call" or node.args[-1].kind != "tuple":
        return False
    return position_of(node.args[0].label, "output_mask") is not None


def _uses(call: Node, at: Line, lines: tuple[Line, ...]) -> Uses:
    """Return for each result of a call in the line `at` the inputs whose gradients read it.

    `f(x)[1]` in that line, or `grads[1]` in any, after `grads = f(x)` there.
    """
    names = {item.target for item in assignments((at.statement,)) if item.value is call}
    uses: Uses = defaultdict(set)
    for line in lines:
        for node in nodes(line.statement):
            match node:
                case Node(
                    "subscript", "", (of, Node("constant", position))
                ) if of in names or (of is call and line is at):
                    uses[position] |= line.serves
    return uses


def _narrowed(
    spec: OpSpec, graph: Graph, call: Node, uses: Uses, serves: frozenset[str]
) -> Node:
    """Return the call with a mask for the results that are read; `serves` are the inputs that the call itself is for."""
    if not uses:  # its results have names of their own
        return call
    *others, mask = call.args
    entries = tuple(
        _entry(spec, graph, entry, uses[str(at)], serves)
        for at, entry in enumerate(mask.args)
    )
    narrowed = _as_slice(spec, graph, entries) or graph.node("tuple", "", entries)
    return graph.node("call", "", (*others, narrowed), call.keywords)


def _as_slice(spec: OpSpec, graph: Graph, entries: tuple[Node, ...]) -> Node | None:
    """Return the flags of the first inputs as `ctx.needs_input_grad[:2]`, those of all without a slice; None for other entries."""
    flags = tuple(needs_gradient(spec, graph, item.name) for item in spec.inputs)
    if entries != flags[: len(entries)]:
        return None
    every, absent = flags[0].args[0], graph.node("absent")
    if len(entries) == len(flags):
        return every
    bounds = (absent, graph.constant(str(len(entries))), absent)
    return graph.node("subscript", "", (every, graph.node("slice", "", bounds)))


def _entry(
    spec: OpSpec, graph: Graph, entry: Node, inputs: set[str], serves: frozenset[str]
) -> Node:
    """Return the entry of a mask for a result that the gradients of `inputs` read."""
    if not inputs:
        return graph.constant("False")
    match entry:
        case Node("constant", "True"):
            flag_suffices = True
        # An input that is absent needs no gradient: its flag says so, too.
        case Node("compare", "is not", (Node("name", name), _)):
            flag_suffices = {name} == inputs
        case _:
            flag_suffices = False
    # The call is made for these alone, or the result may be missing for another reason.
    if inputs >= serves or not flag_suffices:
        return entry
    flags = tuple(
        needs_gradient(spec, graph, item.name)
        for item in spec.inputs
        if item.name in inputs
    )
    return flags[0] if len(flags) == 1 else graph.node("boolean", "or", flags)
