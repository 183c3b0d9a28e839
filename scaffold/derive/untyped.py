"""Functions of PyTorch that say no type, which a strict type checker does not let typed code call.

In: statements of the backward. Out: the same over bare names, `broadcast_shapes(x.shape, y.shape)`, to which the generated code
gives a type. Invariant: no name of the user's is taken.
"""

from collections.abc import Collection

from scaffold.formula import Graph, Node, Statement, rewritten

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
