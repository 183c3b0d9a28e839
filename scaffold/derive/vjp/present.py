"""A gradient under what is sure where it is asked for.

In: the gradient of an optional input. Out: the same, knowing that the input is there. Invariant: equal wherever that holds.
"""

from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.make import Maker
from scaffold.formula import Node


def assumed(make: Maker, root: Op, name: str) -> Op:
    """The value where the input of that name is not None."""
    known: dict[Op, Op] = {}

    def renewed(op: Op) -> Op:
        if op not in known:
            known[op] = changed(op)
        return known[op]

    def changed(op: Op) -> Op:
        if op.rule == "cond" and _is_presence(op.data, name):
            return renewed(op.args[0])
        args = tuple(map(renewed, op.args))
        if args == op.args:
            return op
        return make.program.op(
            op.rule, args, op.data, kind=op.kind, shape=op.shape, active=op.active
        )

    return renewed(root)


def _is_presence(test: object, name: str) -> bool:
    match test:
        case Node("compare", "is not", (Node("name", label), Node("constant", "None"))):
            return label == name
    return False
