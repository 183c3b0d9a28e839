"""What a type checker knows of an expression.

In: nodes and the names that are annotated as tensors. Out: whether the value is known to be a `Tensor`.
Invariant: in doubt it is not, and the generated code says so with an annotation.
"""

from scaffold.formula import Node

MODULES = frozenset({"torch", "F"})


def is_typed(node: Node, tensors: frozenset[str]) -> bool:
    """Whether `mypy` infers something better than `Any` for the expression."""
    match node:
        case Node("name", name):
            return name in tensors
        case Node("call", _, (Node("attribute", _, (value,)), *_)):
            return _root(value) in MODULES or is_typed(value, tensors)
        case Node("attribute", _, (value,)) | Node("unary", _, (value,)):
            return is_typed(value, tensors)
        case Node("subscript", _, (value, _)):
            return is_typed(value, tensors)
        case Node("binary" | "compare", _, (left, *_)):
            return (
                left.kind == "constant"
                and is_typed(node.args[1], tensors)
                or is_typed(left, tensors)
            )
        case Node("conditional", _, (_, body, orelse)):
            return is_typed(body, tensors) and is_typed(orelse, tensors)
    return node.kind in ("constant", "tuple", "list")


def _root(node: Node) -> str:
    while node.kind == "attribute":
        node = node.args[0]
    return node.label if node.kind == "name" else ""
