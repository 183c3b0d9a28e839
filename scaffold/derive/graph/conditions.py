"""One of two values, by a test that is fixed for a call.

In: the test and both values. Out: an op. Invariant: `not`, `is` and `!=` are turned around, so that equal tests are the same node.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping

from scaffold.derive.graph.op import (
    UNKNOWN,
    Kind,
    Op,
    Program,
    Test,
    is_number,
    literal,
)
from scaffold.derive.graph.static_values import static_node
from scaffold.formula import Node

# --- Whether a call is one that a rule is for: its `when`, over the arguments.
#
# In: the test as a node, and the op of each parameter. Out: True only where it is known to hold. Invariant: what is not known
# before the call is no ground to use the rule.


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


# --- One of two values, by a test that is fixed for a call.


def choose(program: Program, test: Node, body: Op, orelse: Op) -> Op:
    """One of two values by a test that is fixed for a call; `not` and `is` are turned around."""
    if body is orelse:
        return body
    match test:
        case Node("unary", "not", (inner,)):
            return choose(program, inner, orelse, body)
        case Node("compare", "is" | "!=" as label, args):
            turned = {"is": "is not", "!=": "=="}[label]
            return choose(
                program, program.graph.node("compare", turned, args), orelse, body
            )
        case Node(
            "compare", "==", (Node("binary", "/", (x, by)), Node("constant", "0"))
        ):
            if by.kind == "constant":  # which is not 0, or there is no test
                test = program.graph.node("compare", "==", (x, test.args[1]))
    match test:
        case Node("compare", "==", (Node("constant", one), Node("constant", "0"))):
            if one.isdecimal():
                return orelse if int(one) else body
    if body.kind == orelse.kind == "static":
        nodes = [static_node(program, item) for item in (body, orelse)]
        return program.static(program.graph.node("conditional", "", (test, *nodes)))
    tensor = body if body.is_tensor else orelse
    kind: Kind = "complex" if "complex" in (body.kind, orelse.kind) else tensor.kind
    same = body.shape == orelse.shape or not (body.is_tensor and orelse.is_tensor)
    return program.op(
        "cond",
        (body, orelse),
        Test(test),
        kind=kind,
        shape=tensor.shape if same else None,
        active=body.active or orelse.active,
    )


def may_be_zero(op: Op) -> bool:
    """Whether it is the number 0, under some test or always."""
    if op.rule in ("cond", "neg"):
        return any(map(may_be_zero, op.args))
    if op.rule in ("add", "sub"):
        return all(map(may_be_zero, op.args))
    return is_number(op, 0)


def under(op: Op, test: Node, holds: bool) -> Op:
    """What a value is where a test holds, or does not: of a choice that this settles, the one branch."""
    while op.rule == "cond":
        told = _told(op.test, test, holds)
        if told is None:
            return op
        op = op.args[0 if told else 1]
    return op


def _told(asked: Node, test: Node, holds: bool) -> bool | None:
    """What a test says of another one: `mode == "sum"` that `mode == "mean"` does not hold."""
    match test:
        case Node("unary", "not", (inner,)):
            return _told(asked, inner, not holds)
        case Node("compare", "is" | "!=" as label, args):
            turned = {"is": "is not", "!=": "=="}[label]
            same = (asked.kind, asked.label, asked.args) == ("compare", turned, args)
            if same:
                return not holds
            return None if label == "is" or holds else _other(asked, args)
    if asked is test:
        return holds
    plain = holds and test.kind == "compare" and test.label == "=="
    return _other(asked, test.args) if plain else None


def _other(asked: Node, known: tuple[Node, ...]) -> bool | None:
    """False where the one thing equals a constant, and is asked for another."""
    match asked:
        case Node("compare", "==", (name, Node("constant", text))) if (
            name is known[0] and known[1].kind == "constant"
        ):
            one, other = ast.literal_eval(text), ast.literal_eval(known[1].label)
            return None if one == other else False
    return None
