"""One of two values, by a test that is fixed for a call.

In: the test and both values. Out: an op. Invariant: `not`, `is` and `!=` are turned around, so that equal tests are the same node.
"""

import ast

from scaffold.derive.vjp.ir import Kind, Op, Program, is_number
from scaffold.derive.vjp.written import static_node
from scaffold.formula import Node


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
        test,
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
    while op.rule == "cond" and isinstance(op.data, Node):
        told = _told(op.data, test, holds)
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
