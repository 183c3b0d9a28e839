"""What a type checker knows of an expression.

In: nodes and the names that are annotated as tensors. Out: whether the value is known to be a `Tensor`.
Invariant: in doubt it is not, and the generated code says so with an annotation.
"""

from collections.abc import Iterable

from scaffold.formula import If, Node, Statement, emit, emit_lines, written

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
            of_torch = value.kind == "name" and value.label in MODULES
            return label not in UNTYPED and (of_torch or is_typed(value, tensors))
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


def annotated_body(
    statements: tuple[Statement, ...], result: Node, tensors: frozenset[str], name: str
) -> tuple[list[str], str]:
    """Lines, and the result to return: under an annotated name where its type is not known."""
    lines, value = emit_lines(statements), emit(result)
    if is_typed(result, typed_names(statements, tensors)):
        return lines, value
    for position, line in enumerate(lines):
        if line.startswith(f"{value} = "):
            first = line.replace(" = ", ": Tensor = ", 1)
            return [*lines[:position], first, *lines[position + 1 :]], value
    return [*lines, f"{name}: Tensor = {value}"], name
