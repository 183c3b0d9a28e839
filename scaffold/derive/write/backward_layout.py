"""A derived backward as an author would lay it out: nothing computed twice, choices by one test in one place.

In: an op and the statements of its backward. Out: statements, and the blocks that they stand in. Invariant: the same values; of a
backward that holds a formula of the user's no expression is renamed.
"""

from collections.abc import Collection

from scaffold.derive.backward_program import Line, lines_of
from scaffold.derive.derivation import Block, Maths
from scaffold.derive.forward.live_forward import effects
from scaffold.derive.stated_gradients import outer_names
from scaffold.derive.value_kinds import kinds_of_inputs
from scaffold.derive.write.common_subexpressions import Backward, named_once
from scaffold.derive.write.placement import gathered, place
from scaffold.formula import Graph, Node, Statement, rewritten, written
from scaffold.spec import OpSpec

# --- Functions of PyTorch that say no type, which a strict type checker does not let typed code call.


# The function, and what it returns.
UNTYPED = {"broadcast_shapes": "torch.Size"}


def by_bare_names(
    graph: Graph, statements: tuple[Statement, ...], taken: Collection[str]
) -> tuple[Statement, ...]:
    """The statements with `broadcast_shapes` for `torch.broadcast_shapes`, unless that is the name of something else."""

    def bare(node: Node) -> Node | None:
        match node:
            case Node("attribute", label, (Node("name", "torch"),)) if (
                label in UNTYPED and label not in taken
            ):
                return graph.name(label)
        return None

    return rewritten(graph, statements, bare)


def by_full_names(
    graph: Graph, statements: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """The statements with `torch.broadcast_shapes` for `broadcast_shapes`, unless they assign that."""
    own = written(*statements)

    def full(node: Node) -> Node | None:
        if node.kind == "name" and node.label in UNTYPED and node.label not in own:
            return graph.node("attribute", node.label, (graph.name("torch"),))
        return None

    return rewritten(graph, statements, full)


# --- The passes.


def laid_out(
    spec: OpSpec, maths: Maths, program: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """The program with names for what stands in it several times; one with a formula of the user's stays as it is."""
    wanted = tuple(item.name for item in spec.differentiable)
    if not maths.derived.issuperset(wanted):
        return program
    blocks = blocks_of(maths, lines_of(program, wanted))
    program = tuple(item for block in blocks for item in block.statements)
    taken = outer_names(spec, maths.forward)
    known = Backward(
        maths.graph,
        kinds_of_inputs(spec).after(program),
        taken,
        effects(spec),
        wanted,
        frozenset(item.name for item in spec.tensors if item.optional),
    )
    return by_bare_names(maths.graph, named_once(known, program), taken)


def blocks_of(maths: Maths, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """The lines in blocks, each under the inputs that need it; where a derived gradient is among them, choices by one test are one."""
    blocks = place(lines)
    if not maths.derived:
        return blocks
    return tuple(Block(block.serves, gathered(block.statements)) for block in blocks)
