"""For the proof: further values of attributes, so that each branch of a forward that asks for them is run.

In: an `OpSpec`. Out: positions of attributes, with values. Invariant: a value that the forward refuses says nothing of the op; one that
`require` or the bound of an index reads is not tried.
"""

import ast
from collections.abc import Iterable, Iterator

from scaffold.formula import Formula, Node, expressions
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Attribute, OpSpec

Value = bool | int | float | None


def further_values(spec: OpSpec) -> dict[int, tuple[Value, ...]]:
    """Both values of a bool, None where it may be; what a number is compared with, and what lies on either side of that."""
    if spec.samples is not None or any(item.variadic for item in spec.tensors):
        return {}
    bound = {item.bound for item in spec.tensors}
    read = {node.label for node in _nodes(spec.require) if node.kind == "name"}
    found = {}
    for item in spec.attributes:
        if item.name not in bound | read:
            values = _values(spec, item)
            if values:
                found[spec.index(item.name)] = values
    return found


def _values(spec: OpSpec, item: Attribute) -> tuple[Value, ...]:
    types = {part.strip() for part in item.annotation.split("|")}
    usual = attribute_value(spec, item)
    values: list[Value] = [None] if "None" in types else []
    if "bool" in types:
        values += [False, True]
    numbers = dict.fromkeys(_compared(spec, item.name))
    if "float" in types:
        values += [float(near) for number in numbers for near in _around(number)]
    elif "int" in types:
        values += [int(near) for n in numbers if n == int(n) for near in _around(n)]
    return tuple(value for value in dict.fromkeys(values) if repr(value) != usual)


def _around(number: float) -> tuple[float, ...]:
    return (number - 1, number, number + 1)


def _compared(spec: OpSpec, name: str) -> Iterator[float]:
    """The numbers that the attribute is compared with; 0 where it is a test itself."""
    for node in _nodes([spec.forward] if spec.forward else []):
        if not any(_is_name(arg, name) for arg in node.args):
            continue
        if node.kind == "compare":
            numbers = map(_number, node.args)
            yield from (number for number in numbers if number is not None)
        elif node.kind in ("conditional", "boolean") or node.label == "not":
            yield 0


def _is_name(node: Node, name: str) -> bool:
    return node.kind == "name" and node.label == name


def _nodes(formulas: Iterable[Formula]) -> Iterator[Node]:
    for formula in formulas:
        tops = [node for item in formula.statements for node in expressions(item)]
        tops += [formula.result] if formula.result else []
        for top in tops:
            yield from top.walk()


def _number(node: Node) -> float | None:
    """The number that is written there."""
    if node.kind == "unary" and node.label == "-":
        value = _number(node.args[0])
        return None if value is None else -value
    if node.kind != "constant":
        return None
    try:
        value = ast.literal_eval(node.label)
    except (ValueError, SyntaxError):
        return None
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if plain else None
