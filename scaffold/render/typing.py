"""What a type checker knows of an expression.

In: nodes and the names that are annotated as tensors. Out: whether the value is known to be a `Tensor`.
Invariant: in doubt it is not, and the generated code says so with an annotation.
"""

from collections.abc import Iterable

from scaffold.formula import If, Node, Statement, written

MODULES = frozenset({"torch", "F"})
UNTYPED = frozenset(
    {"norm", "split", "stft", "istft", "unique", "unique_consecutive", "lu"}
)


def is_typed(node: Node, tensors: frozenset[str]) -> bool:
    """Whether `mypy` infers something better than `Any` for the expression."""
    match node:
        case Node("name", name):
            return name in tensors
        case Node("call", _, (Node("attribute", label, (value,)), *_)):
            return label not in UNTYPED and (
                _root(value) in MODULES or is_typed(value, tensors)
            )
        case Node("attribute" | "unary" | "subscript", _, (value, *_)):
            return is_typed(value, tensors)
        case Node("binary" | "compare" | "boolean", _, operands):
            return all(is_typed(operand, tensors) for operand in operands)
        case Node("conditional", _, (_, body, orelse)):
            return is_typed(body, tensors) and is_typed(orelse, tensors)
    return node.kind in ("constant", "tuple", "list")


def typed_names(
    statements: Iterable[Statement], tensors: frozenset[str]
) -> frozenset[str]:
    """The names that are known to be tensors after the statements."""
    known = set(tensors)
    for item in statements:
        if isinstance(item, If):
            inner = typed_names((*item.body, *item.orelse), frozenset(known))
            known -= {name for name in written(item) if name not in inner}
        elif item.target.kind == "name" and is_typed(item.value, frozenset(known)):
            known.add(item.target.label)
        elif item.target.kind == "name" and not item.operator:
            known.discard(item.target.label)
    return frozenset(known)


def _root(node: Node) -> str:
    while node.kind == "attribute":
        node = node.args[0]
    return node.label if node.kind == "name" else ""
