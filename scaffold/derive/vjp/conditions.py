"""Whether a call is one that a rule is for: its `when`, over the arguments.

In: the test as a node, and the op of each parameter. Out: True only where it is known to hold. Invariant: what is not known
before the call is no ground to use the rule.
"""

import math
import operator
from collections.abc import Callable, Mapping

from scaffold.derive.vjp.ir import UNKNOWN, Op, literal
from scaffold.formula import Node

COMPARE: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "is": operator.is_,
    "is not": operator.is_not,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda item, several: item in several,
    "not in": lambda item, several: item not in several,
}
SOME = object()  # a tensor: it is there, and that is all that a test may ask of it


def holds(test: Node, args: Mapping[str, Op]) -> bool:
    """Whether the test holds for certain."""
    return _value(test, args) is True


def _value(node: Node, args: Mapping[str, Op]) -> object:
    match node:
        case Node("name", name):
            return SOME if args[name].is_tensor else literal(args[name])
        case Node("constant", label):
            return _constant(label)
        case Node("tuple", _, items):
            values = tuple(_value(item, args) for item in items)
            return UNKNOWN if UNKNOWN in values else values
        case Node("unary", "not", (item,)):
            value = _value(item, args)
            return UNKNOWN if value is UNKNOWN else not value
        case Node("boolean", label, items):
            return _together(label, [_value(item, args) for item in items])
        case Node("compare", label, (left, right)) if label in COMPARE:
            return _compared(label, _value(left, args), _value(right, args))
        case Node("binary", "-", (left, right)):
            one, two = _value(left, args), _value(right, args)
            plain = isinstance(one, int | float) and isinstance(two, int | float)
            return one - two if plain else UNKNOWN  # type: ignore[operator]
        case Node("attribute", "inf", _):
            return math.inf
        case Node("call", _, (Node("name", "rank"), Node("name", name))):
            rank = args[name].shape.rank
            return UNKNOWN if rank is None else rank
    return UNKNOWN


def _constant(label: str) -> object:
    words = {"None": None, "True": True, "False": False}
    if label in words:
        return words[label]
    if label[0] in "'\"":
        return label[1:-1]
    return float(label)


def _together(label: str, values: list[object]) -> object:
    decisive = label == "or"
    if any(value is not UNKNOWN and bool(value) is decisive for value in values):
        return decisive
    return UNKNOWN if UNKNOWN in values else not decisive


def _compared(label: str, left: object, right: object) -> object:
    if left is UNKNOWN or right is UNKNOWN:
        return UNKNOWN
    if SOME in (left, right) and label not in ("is", "is not"):
        return UNKNOWN
    return COMPARE[label](left, right)
