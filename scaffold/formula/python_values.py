"""Constant folding: what Python's operators, and expressions over literals and names with a value, come to.

In: an expression, and what is known of its names; or an operator and its operands. Out: the value, or `UNKNOWN`. Invariant: no value is
guessed. It is the one folder of constants: of tests that choose a branch, of a rule's `when`, of sizes, of numbers in a gradient.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from scaffold.formula.graph import Node

Number = int | float | complex
Read = Callable[[Node], object]


class _Unknown:
    """What is not known before the call."""


UNKNOWN = _Unknown()
PRESENT = object()  # what is there, so not None, and no more is known of it: a tensor
NO_STRING = object()  # the same of what is no string either: a number, a tuple

# --- Operators: as syntax, as they are written, and what they compute.


BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
    ast.Pow: "**",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
UNARY: Mapping[type[ast.unaryop], str] = {
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Not: "not",
}
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
OPPOSITES = {"==": "!=", "is": "is not", "in": "not in"}
OPPOSITES |= {after: before for before, after in OPPOSITES.items()}

ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda item, several: item in several,
    "not in": lambda item, several: item not in several,
}
ONLY_ONE = (None, True, False, ...)  # of which there is one object each
LARGEST_POWER = 1000  # `10 ** 10 ** 10` takes minutes


def compared(label: str, left: object, right: object) -> bool | None:
    """What a comparison says; None where the values do not tell."""
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if label in ("is", "is not"):
        if not any(left is item or right is item for item in ONLY_ONE):
            return None  # whether equal literals are one object is Python's affair
    elif left is NO_STRING and _all_text(right):
        return {"==": False, "in": False, "!=": True, "not in": True}.get(label)
    elif any(item is told for item in (left, right) for told in (PRESENT, NO_STRING)):
        return None
    try:
        return bool(COMPARISONS[label](left, right))
    except TypeError:  # `kernel_size > 0` of a tuple
        return None


def _all_text(value: object) -> bool:
    """Whether a value is a string, or several of them."""
    several = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, str) for item in several)


def computed(
    label: str, left: Number, right: Number, *, short: bool = False
) -> Number | None:
    """What arithmetic makes of two numbers; None where Python raises.

    With `short` it is as an author would write it: a whole number as an int, and None for one of more digits than that takes.
    """
    compute = ARITHMETIC.get(label)
    if compute is None or label == "**" and abs(right) > LARGEST_POWER:
        return None
    try:
        result: Number = compute(left, right)
    except (ZeroDivisionError, OverflowError, ValueError, TypeError):
        return None
    if not short:
        return result
    if isinstance(result, float) and result.is_integer() and abs(result) < 2**53:
        whole = isinstance(left, int) and isinstance(right, int)
        return int(result) if whole or abs(result) < 1000 else result
    longest = max(len(repr(left)), len(repr(right))) + 2
    return result if len(repr(result)) <= longest else None


def as_number(value: object) -> Number | None:
    """The number that a value is, if it is one; True and False are none."""
    plain = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return value if plain else None  # type: ignore[return-value]


# --- Expressions.


@lru_cache(maxsize=512)  # defaults of parameters, which each call of a primitive reads
def literal_value(text: str) -> object:
    """The value of a literal as it is written."""
    return ast.literal_eval(text)


def evaluated(node: Node, read: Read | None = None) -> object:
    """The value of an expression; `and` and `or` give a truth value.

    `read` says what a name, a call or an attribute is: without it, what `math` says of numbers.
    """
    read = read or of_math
    match node.kind:
        case "constant":
            return literal_value(node.label)
        case "name":
            return read(node)
        case "tuple" | "list":
            values = tuple(evaluated(item, read) for item in node.args)
            return UNKNOWN if UNKNOWN in values else values
        case "unary":
            return _signed(node.label, evaluated(node.args[0], read))
        case "binary":
            return _combined(node.label, *(evaluated(arg, read) for arg in node.args))
        case "conditional":
            return _chosen(node, read)
        case "boolean":
            return _together(node, read)
        case "compare":
            return _chained(node, [evaluated(arg, read) for arg in node.args])
    return read(node)


def of_math(node: Node, read: Read | None = None) -> object:
    """A constant of `math`, or what a function of it makes of numbers; `UNKNOWN` for anything else."""
    if node.kind == "attribute" and _is_math(node.args[0]):
        return getattr(math, node.label, UNKNOWN)
    if node.kind != "call" or node.args[0].kind != "attribute" or node.keywords:
        return UNKNOWN
    callee, *args = node.args
    values = [as_number(evaluated(arg, read)) for arg in args]
    if not _is_math(callee.args[0]) or None in values:
        return UNKNOWN
    try:
        return getattr(math, callee.label)(*values)
    except (ArithmeticError, ValueError, TypeError, AttributeError):
        return UNKNOWN


def truth(value: object) -> bool | None:
    """Whether a value counts as true; None where that is not known."""
    open_ = (UNKNOWN, PRESENT, NO_STRING)
    return None if any(value is item for item in open_) else bool(value)


def _signed(label: str, value: object) -> object:
    if label == "not":
        told = truth(value)
        return UNKNOWN if told is None else not told
    number = as_number(value)
    if number is None or label not in ("-", "+"):
        return UNKNOWN
    return -number if label == "-" else number


def _combined(label: str, left: object, right: object) -> object:
    one, two = as_number(left), as_number(right)
    found = None if one is None or two is None else computed(label, one, two)
    return UNKNOWN if found is None else found


def _is_math(node: Node) -> bool:
    return node.kind == "name" and node.label == "math"


def _chosen(node: Node, read: Read) -> object:
    test, body, orelse = node.args
    told = truth(evaluated(test, read))
    return UNKNOWN if told is None else evaluated(body if told else orelse, read)


def _together(node: Node, read: Read) -> object:
    """Whether all or any of several hold; what follows a decisive one does not count."""
    decisive, sure = node.label == "or", True
    for item in node.args:
        told = truth(evaluated(item, read))
        if told is decisive:
            return decisive
        sure = sure and told is not None
    return not decisive if sure else UNKNOWN


def _chained(node: Node, values: list[object]) -> object:
    """`a < b`, `a < b < c`."""
    labels = node.label.split(",")
    pairs = zip(labels, values, values[1:], strict=False)
    told = [compared(*pair) for pair in pairs]
    if False in told:
        return False
    return UNKNOWN if None in told else True
