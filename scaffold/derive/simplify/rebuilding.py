"""Rebuild a graph, for passes over whole gradients: each op is replaced given its replaced arguments.

A pass (`scalars_first`, `present`, ...) says what to make of one op; `renewed` walks the graph.

In: the roots, the ops to keep, a pass's replacement of any other op. Out: the replacement of each op below the roots. Invariant:
each op is replaced once; an unchanged op is the same object.

Words: `of(arg)` is the replacement of an argument, a `Renewal`; `kept` ops stay, and so does what only they read.
"""

from collections.abc import Callable, Collection, Iterable

from scaffold.derive.graph.conditions import told_by
from scaffold.derive.graph.op import Op, Test
from scaffold.derive.simplify.constructors import Maker

# Adding a negated term is subtracting it, and the reverse.
TURNED = {"add": "sub", "sub": "add"}
Renewal = Callable[[Op], Op]  # returns an op's replacement


def renewed(
    roots: Iterable[Op], kept: Collection[Op], change: Callable[[Op, Renewal], Op]
) -> dict[Op, Op]:
    """Return the replacement of each op below the roots; ops in `kept` stay, so nothing only they read is replaced.

    `change(op, of)` returns the replacement of one op; `of(arg)` is the replacement of an argument.
    """
    known: dict[Op, Op] = {}

    def of(op: Op) -> Op:
        """Return the replacement of an op, found once."""
        if op not in known:
            known[op] = op if op in kept else change(op, of)
        return known[op]

    for root in roots:
        of(root)
    return known


def rebuilt(make: Maker, op: Op, of: Renewal) -> Op:
    """Return the op over the replacements `of` its arguments, the default of a pass; `a + -b` as `a - b`; the op itself if none changed."""
    args = tuple(map(of, op.args))
    if args == op.args:
        return op
    if op.rule == "cond":
        return chosen(make, op, op.test, *args)
    rule = op.rule
    # A minus that came up by the pass: `a + -b` is `a - b`.
    if rule in TURNED and args[1].rule == "neg" and not make.opaque(args[1]):
        rule, args = TURNED[rule], (args[0], args[1].args[0])
    return make.program.op(
        rule, args, op.data, kind=op.kind, shape=op.shape, active=op.active
    )


def chosen(make: Maker, op: Op, test: Op, body: Op, orelse: Op) -> Op:
    """Return `body if test else orelse`, in place of the choice `op`: one of the values if both are the same, `op` if nothing changed.

    If `orelse` is a choice whose test holds wherever `test` does, and gives `body` then, `orelse` alone is the same.
    """
    if body is orelse:
        return body
    same = orelse.rule == "cond" and orelse.args[0] is body
    if same and told_by(orelse.test, test, True):
        return orelse
    if (body, orelse) == op.args and test is op.test:
        return op
    return make.program.op(
        "cond",
        (body, orelse),
        Test(test),
        kind=op.kind,
        shape=op.shape,
        active=op.active,
    )
