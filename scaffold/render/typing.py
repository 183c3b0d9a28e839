"""Which expressions a type checker knows to be a `Tensor`: others get an annotation in generated code.

In: nodes and the names that are annotated as tensors. Out: whether the value is known to be a `Tensor`.
Invariant: in doubt it is not, and the generated code says so with an annotation.
"""

import re
from collections.abc import Iterable

from scaffold.derive import fresh
from scaffold.formula import (
    Assign,
    Node,
    Statement,
    assignments,
    bound,
    emit,
    emit_lines,
    written,
)
from scaffold.primitives.calls import is_untyped

MODULES = frozenset({"torch", "F"})


def is_typed(node: Node, tensors: frozenset[str]) -> bool:
    """Whether `mypy` infers something better than `Any` for the expression."""
    match node:
        case Node("name", name):
            return name in tensors
        case Node("call", _, (Node("attribute", label, (value,)), *_)):
            of_torch = value.kind == "name" and value.label in MODULES
            return not is_untyped(label) and (of_torch or is_typed(value, tensors))
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
    """The names whose type is known after the statements: it is that of what each is assigned first."""
    known, seen = set(tensors), set(tensors)
    for item in assignments(statements):
        for name, value in _parts(item):
            if name not in seen and is_typed(value, frozenset(known)):
                known.add(name)
            seen.add(name)
    return frozenset(known)


def annotated_body(
    statements: tuple[Statement, ...], result: Node, tensors: frozenset[str], name: str
) -> tuple[list[str], str]:
    """Lines, and the result to return: under an annotated name where its type is not known."""
    lines, value = emit_lines(statements), emit(result)
    if is_typed(result, typed_names(statements, tensors)):
        return lines, value
    if _begins_plainly(statements, value):
        position = next(
            k for k, line in enumerate(lines) if line.lstrip().startswith(f"{value} = ")
        )
        first = lines[position].replace(" = ", ": Tensor = ", 1) + _ignored(
            lines[position]
        )
        return [*lines[:position], first, *lines[position + 1 :]], value
    taken = written(*statements)
    name = name if name not in taken else fresh("result", taken)
    return [*lines, f"{name}: Tensor = {value}{_ignored(value)}"], name


def _ignored(code: str) -> str:
    """The sum of no tensors at all is the number 0, as a type checker knows."""
    summed = re.fullmatch(r"\s*(\w+ = )?sum\([^()]*\)", code) is not None
    return "  # type: ignore[assignment]" if summed else ""


def _begins_plainly(statements: tuple[Statement, ...], name: str) -> bool:
    """Whether a local begins as the sole target of an assignment, which an annotation can stand at."""
    for item in assignments(statements):
        if name in written(item):
            return item.target.kind == "name" and not item.operator
    return False


def _parts(item: Assign) -> list[tuple[str, Node]]:
    """The names that are bound, each with the value that it is or is a part of."""
    target, value = item.target, item.value
    if target.kind == value.kind == "tuple" and len(target.args) == len(value.args):
        pairs = zip(target.args, value.args, strict=True)
        return [(part.label, inner) for part, inner in pairs if part.kind == "name"]
    if item.operator or target.kind == "absent":
        return []
    return [(name, value) for name in sorted(bound(target))]
