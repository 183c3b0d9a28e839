"""The tests of rules: for which calls a rule holds.

In: a test's node, and the argument of each parameter. Out: True or False, or None where only the call decides. Invariant: a rule
is taken only where its test is True.
"""

from collections.abc import Callable, Mapping

from scaffold.derive.vjp.ir import UNKNOWN, Op, literal
from scaffold.formula import Node

Args = Mapping[str, Op]
COMPARE: dict[str, Callable[[object, object], bool]] = {
    "==": lambda one, two: one == two,
    "!=": lambda one, two: one != two,
    "is": lambda one, two: one is two,
    "is not": lambda one, two: one is not two,
}


def holds(node: Node, args: Args) -> bool | None:
    """What a test comes to."""
    match node:
        case Node("boolean", label, parts):
            return _several([holds(part, args) for part in parts], label == "or")
        case Node("unary", "not", (inner,)):
            found = holds(inner, args)
            return None if found is None else not found
        case Node("compare", "in" | "not in" as label, (left, Node("tuple", _, items))):
            equal = [
                _compared("==", _value(left, args), _value(item, args))
                for item in items
            ]
            found = _several(equal, True)
            return found if found is None or label == "in" else not found
        case Node("compare", label, (left, right)) if label in COMPARE:
            return _compared(label, _value(left, args), _value(right, args))
    value = _value(node, args)
    return value if isinstance(value, bool) else None


def _several(found: list[bool | None], decisive: bool) -> bool | None:
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def _compared(label: str, left: object, right: object) -> bool | None:
    if isinstance(left, Op) and right is None:  # a tensor, or an attribute with a value
        return label in ("is not", "!=")
    if UNKNOWN in (left, right) or isinstance(left, Op) or isinstance(right, Op):
        return None
    return COMPARE[label](left, right)


def _value(node: Node, args: Args) -> object:
    """The Python value of an operand; the op itself where that is not known."""
    match node:
        case Node("name", name):
            op = args[name]
            plain = literal(op)
            return op if plain is UNKNOWN else plain
        case Node("constant", text):
            known = {"None": None, "True": True, "False": False}
            return known[text] if text in known else _literal(text)
        case Node("call", _, (Node("name", "rank"), Node("name", name))):
            rank = args[name].shape.rank
            return UNKNOWN if rank is None else rank
    return UNKNOWN


def _literal(text: str) -> object:
    if text[0] in "\"'":
        return text[1:-1]
    return float(text) if any(mark in text for mark in ".eE") else int(text)
