"""A graph made anew, for passes over whole gradients: what each op becomes, of what its arguments have become.

In: the roots, which ops stay as they are, what a pass makes of any other op. Out: for each op below the roots the op in its place.
Invariant: an op is asked of once; what of it stays the same is the same object.
"""

from collections.abc import Callable, Collection, Iterable

from scaffold.derive.graph.conditions import told_by
from scaffold.derive.graph.op import Op, Test
from scaffold.derive.simplify.constructors import Maker

# To add a negated term is to subtract it, and the reverse.
TURNED = {"add": "sub", "sub": "add"}
Renewal = Callable[[Op], Op]  # what an op becomes


def renewed(
    roots: Iterable[Op], kept: Collection[Op], change: Callable[[Op, Renewal], Op]
) -> dict[Op, Op]:
    """What each op below the roots becomes, asked of once; what is `kept` stays as it is, and so does what only that reads.

    `change` gets an op and what it asks for the renewed arguments.
    """
    known: dict[Op, Op] = {}

    def of(op: Op) -> Op:
        if op not in known:
            known[op] = op if op in kept else change(op, of)
        return known[op]

    for root in roots:
        of(root)
    return known


def rebuilt(make: Maker, op: Op, of: Renewal) -> Op:
    """The op over what its arguments have become; the op itself where they are the same."""
    args = tuple(map(of, op.args))
    if args == op.args:
        return op
    if op.rule == "cond":
        return chosen(make, op, op.test, *args)
    rule = op.rule
    if rule in TURNED and args[1].rule == "neg" and not make.opaque(args[1]):
        rule, args = TURNED[rule], (args[0], args[1].args[0])
    return make.program.op(
        rule, args, op.data, kind=op.kind, shape=op.shape, active=op.active
    )


def chosen(make: Maker, op: Op, test: Op, body: Op, orelse: Op) -> Op:
    """A choice between these two values in the place of an op; the one value where both are the same."""
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
