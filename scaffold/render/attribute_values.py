"""For the proof: further values of attributes, so that each branch of a forward that asks for them is run.

In: an `OpSpec`. Out: positions of attributes, with values. Invariant: a value that the forward refuses says nothing of the op; one that
`require` or the bound of an index reads is not tried.
"""

import ast
from collections.abc import Iterator
from math import isfinite
from typing import TypeGuard

from scaffold.formula import Node
from scaffold.formula.constant_folding import evaluated
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Attribute, OpSpec

Value = bool | int | float | str | None


def further_values(spec: OpSpec) -> dict[int, tuple[Value, ...]]:
    """Both values of a bool, None where it may be; what a number or a string is compared with, and what lies on either side of that; another number."""
    if spec.samples is not None or any(item.variadic for item in spec.tensors):
        return {}
    bound = {item.bound for item in spec.tensors}
    read = {
        name
        for item in spec.require
        for node in item.expressions()
        for name in node.names()
    }
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
    if "str" in types:
        values += _words(spec, item.name)
    values += _others(types, usual)
    return tuple(value for value in dict.fromkeys(values) if repr(value) != usual)


def _around(number: float) -> tuple[float, ...]:
    return (number - 1, number, number + 1)


def _others(types: set[str], usual: str) -> Iterator[Value]:
    """Other numbers than the one that the tests use, for which alone a stated gradient may be right."""
    try:
        number = ast.literal_eval(usual)
    except (SyntaxError, ValueError):
        return
    if not _is_number(number):
        return
    if "float" in types:
        yield from (float(number + 1), float(number + 0.25))
    elif "int" in types:
        yield int(number + 1)


def _words(spec: OpSpec, name: str) -> Iterator[str]:
    """The strings that the attribute is compared with."""
    for node in spec.forward.nodes() if spec.forward else ():
        if node.kind == "compare" and any(_is_name(arg, name) for arg in node.args):
            values = map(evaluated, node.args)
            yield from (value for value in values if isinstance(value, str))


def _compared(spec: OpSpec, name: str) -> Iterator[float]:
    """The numbers that the attribute is compared with; 0 where it is a test itself."""
    if spec.forward is None:
        return
    if any(_is_name(item, name) for item in spec.forward.expressions()):
        yield 0  # `if n:`
    for node in spec.forward.nodes():
        if not any(_is_name(arg, name) for arg in node.args):
            continue
        if node.kind == "compare":
            values = map(evaluated, node.args)
            yield from (value for value in values if _is_number(value))
        elif node.kind in ("conditional", "boolean") or node.label == "not":
            yield 0


def _is_name(node: Node, name: str) -> bool:
    return node.kind == "name" and node.label == name


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a real number, from which others lie on either side."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    )
