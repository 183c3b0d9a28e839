"""A gradient under what is sure where it is asked for.

In: the gradient of an optional input. Out: the same, knowing that the input is there. Invariant: equal wherever that holds.
"""

from collections.abc import Collection

from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.make import Maker
from scaffold.formula import Node


def assumed(make: Maker, root: Op, name: str, held: Collection[Op]) -> Op:
    """The value where the input of that name is not None; what is held by a name is read there anyway."""
    known: dict[Op, Op] = {}

    def renewed(op: Op) -> Op:
        if op not in known:
            known[op] = changed(op)
        return known[op]

    def changed(op: Op) -> Op:
        if op in held:
            return op
        if op.rule == "cond" and is_presence(op.data, name):
            return renewed(op.args[0])
        args = tuple(map(renewed, op.args))
        if args == op.args:
            return op
        return make.program.op(
            op.rule, args, op.data, kind=op.kind, shape=op.shape, active=op.active
        )

    return renewed(root)


def is_presence(test: object, name: str) -> bool:
    """Whether a test is that the input of that name is not None."""
    match test:
        case Node("compare", "is not", (Node("name", label), Node("constant", "None"))):
            return label == name
    return False


def implies(test: object, branch: int, name: str) -> bool:
    """Whether the value of that name is not None where a test took a branch: 0 if it held, 1 if not."""
    match test:
        case Node("name", label):
            return branch == 0 and label == name
        case Node("unary", "not", (inner,)):
            return implies(inner, 1 - branch, name)
        case Node("boolean", label, parts) if label == ("or" if branch else "and"):
            return any(implies(part, branch, name) for part in parts)
        case Node("compare", "is not" | "is" as label, (one, two)):
            held = label == ("is" if branch else "is not")
            return held and one.label == name and two.label == "None"
        case Node("compare", "<" | "<=" | ">" | ">=", parts):
            return any(part.label == name for part in parts)  # None has no order
    return False
