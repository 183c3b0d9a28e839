"""Whether a forward writes into a tensor that is the same for a whole batch: `torch.zeros(4).index_add_(0, index, x)`.

In: the statements and results of a forward. Out: yes or no. Invariant: `torch.func.vmap` refuses what is said to write so.
"""

from collections.abc import Collection, Iterable

from scaffold.formula import If, Node, Statement, bound, same_memory, written_to

# What makes a tensor to be filled, out of Python values.
FACTORIES = frozenset(
    {"empty", "eye", "full", "ones", "rand", "randn", "tensor", "zeros"}
)


def fills_a_constant(statements: Iterable[Statement], results: Iterable[Node]) -> bool:
    """Whether a tensor that comes of Python values alone changes in place."""
    made = set[str]()
    return any(_fills(item, made) for item in statements) or any(
        _changes(node, made) for node in results
    )


def _fills(item: Statement, made: set[str]) -> bool:
    if isinstance(item, If):
        return any(_fills(inner, made) for inner in (*item.body, *item.orelse))
    changed = item.operator or item.target.kind == "subscript"
    if changed and bound(item.target) & made or _changes(item.value, made):
        return True
    if not changed and _is_made(item.value, made):
        made |= bound(item.target)
    return False


def _changes(value: Node, made: Collection[str]) -> bool:
    return any(
        _is_made(changed, made) for node in value.walk() for changed in written_to(node)
    )


def _is_made(value: Node, made: Collection[str]) -> bool:
    """Whether a value may be memory of a factory of torch's."""
    return any(_comes_of_factory(node, made) for node in same_memory(value))


def _comes_of_factory(node: Node, made: Collection[str]) -> bool:
    match node:
        case Node("name", name):
            return name in made
        case Node("call", _, (Node("attribute", label, (Node("name", "torch"),)), *_)):
            return label in FACTORIES
    return False
