"""Selections whose length depends on data: `x[x > 0]`, `mask.nonzero()`.

In: statements and results of a forward. Out: yes or no. Invariant: what is said selects so; neither vmap nor a compiler runs it.
"""

from collections.abc import Collection, Iterable, Iterator

from scaffold.formula import Assign, Node, Statement, assignments, bound, expressions

SELECTS = frozenset({"argwhere", "masked_select", "nonzero", "unique"})
TO_MASK = frozenset(
    {"bool", "eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and"}
    | {"logical_not", "logical_or", "logical_xor", "lt", "ne"}
)
STATIC = frozenset({"in", "is", "is not", "not in"})


def selects_by_data(
    statements: Iterable[Statement], results: Iterable[Node], masks: Collection[str]
) -> bool:
    """Whether a mask or its like selects elements; `masks` are the inputs that are masks."""
    known, lines = set(masks), tuple(statements)
    for item in assignments(lines):
        _learn(item, known)
    nodes = (node for item in lines for node in expressions(item))
    return any(
        _selects(inner, known) for node in (*nodes, *results) for inner in node.walk()
    )


def _learn(item: Assign, known: set[str]) -> None:
    """Note the names that are masks, wherever they are."""
    if item.target.kind == "name" and _is_mask(item.value, known):
        known |= bound(item.target)


def _selects(node: Node, masks: Collection[str]) -> bool:
    if node.kind == "call":
        return node.args[0].label in SELECTS and node.args[0].kind == "attribute"
    return node.kind == "subscript" and any(
        _is_mask(part, masks) for part in _parts(node.args[1])
    )


def _parts(index: Node) -> Iterator[Node]:
    yield from index.args if index.kind == "tuple" else (index,)


def _is_mask(node: Node, masks: Collection[str]) -> bool:
    """Whether an expression is a tensor of truth values."""
    match node:
        case Node("name", name):
            return name in masks
        case Node("compare", label):
            return label not in STATIC
        case Node("unary", "~", (inner,)) | Node("subscript", _, (inner, _)):
            return _is_mask(inner, masks)
        case Node("binary", "&" | "|" | "^", args):
            return any(_is_mask(arg, masks) for arg in args)
        case Node("call", _, (Node("attribute", name), *_)):
            return name in TO_MASK
    return False
