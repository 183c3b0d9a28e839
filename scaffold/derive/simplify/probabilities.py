"""`exp(log_softmax(x))` -> `softmax(x)`, where the backward reads the logarithms for nothing else.

In: the gradients, and the names of values. Out: the gradients with `softmax(x)` for `exp(log_probs)`. Invariant: the same
value; a `log_probs` that is at hand, or that another value of the backward needs, is read.
"""

from collections.abc import Collection, Mapping

from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.simplify.assumptions import rebuilt
from scaffold.derive.simplify.constructors import Maker


def with_probabilities(
    make: Maker, roots: Mapping[str, Op], held: Collection[Op], there: Collection[Op]
) -> dict[Op, Op]:
    """What each op below the gradients becomes."""
    seen = {*down_to(roots.values(), held)}
    users: dict[Op, set[str]] = {}
    for op in seen - {*held}:
        for arg in op.args:
            users.setdefault(arg, set()).add(op.rule)
    others = {op for op in seen if op in held and not _is_logarithm(op)}
    needed = {*down_to(others, there)}
    logs = {
        op
        for op in seen - {*there} - needed
        if _is_logarithm(op) and users.get(op) == {"exp"}
    }
    known: dict[Op, Op] = {}

    def renewed(op: Op) -> Op:
        if op not in known:
            if op.rule == "exp" and op.args[0] in logs:
                known[op] = make.applier.named("softmax", *op.args[0].args)
            else:
                known[op] = op if op in held else rebuilt(make, op, renewed)
        return known[op]

    if logs:
        for root in roots.values():
            renewed(root)
    return known


def _is_logarithm(op: Op) -> bool:
    return "log_distribution" in op.facts.flags
