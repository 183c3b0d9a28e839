"""Choices that are settled where a gradient is computed: `g if bias is not None else 0` is `g` in the branch of `bias`.

In: the graph of a gradient, and what holds wherever it is computed: that an optional input is there (nobody asks for the gradient of
None), or that the test of a choice came out one way (inside a branch of that choice). Out: for each op of the graph the op in its
place. Invariant: equal wherever the assumption holds; a value that other gradients read as well stays as it is, since it would be
computed twice.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from scaffold.derive.graph.conditions import is_presence, told_by
from scaffold.derive.graph.op import Op, Program, Test
from scaffold.derive.simplify.constructors import Maker

Users = Mapping[Op, set[Op]]
TURNED = {
    "add": "sub",
    "sub": "add",
}  # to add a negated term is to subtract it, and the reverse
# The branch that a test takes, 0 or 1; or the test that is left of it.
Decide = Callable[[Op], int | Op]
Renewal = Callable[[Op], Op]  # what an op becomes


def present(make: Maker, root: Op, name: str, kept: Collection[Op]) -> dict[Op, Op]:
    """What each value below becomes where the input of that name is not None; what is `kept` stays as it is."""
    decide = partial(_with_input, make.program, name)
    return _assumed(make, root, decide, kept)


def settled_tests(
    make: Maker, root: Op, kept: Collection[Op], users: Users
) -> dict[Op, Op]:
    """What each value below becomes where a choice stands in a branch that settles it.

    `(a if s else 0) if s else b` is `a if s else b`. What is read outside of the branch too stays as it is.
    """

    def settled(op: Op, of: Renewal) -> Op:
        inner = _decided(make, op, kept, users) if op.rule == "cond" else op
        return rebuilt(make, inner, of)

    chosen = any(op.rule == "cond" for op in root.walk())
    return renewed([root], kept, settled) if chosen else {}


def users_of(roots: Iterable[Op]) -> Users:
    """The ops that read each op; a root is read by itself."""
    found: dict[Op, set[Op]] = {}
    for root in roots:
        found.setdefault(root, set()).add(root)
        for op in root.walk():
            for arg in op.args:
                found.setdefault(arg, set()).add(op)
    return found


def _decided(make: Maker, op: Op, kept: Collection[Op], users: Users) -> Op:
    body, orelse = (
        _assumed(
            make,
            arg,
            partial(_with_test, op.test, at == 0),
            {*kept, *_used_elsewhere(op, arg, users)},
        )[arg]
        for at, arg in enumerate(op.args)
    )
    return _chosen(make, op, op.test, body, orelse)


def _used_elsewhere(choice: Op, branch: Op, users: Users) -> Collection[Op]:
    """The values of a branch that are read outside of it."""
    inside = {choice}
    for op in sorted(branch.walk(), key=lambda op: op.serial, reverse=True):
        if users.get(op, inside) <= inside:
            inside.add(op)
    return {op for op in branch.walk() if op not in inside}


def _assumed(
    make: Maker, root: Op, decide: Decide, kept: Collection[Op]
) -> dict[Op, Op]:
    def assumed(op: Op, of: Renewal) -> Op:
        if op.rule != "cond":
            return rebuilt(make, op, of)
        taken = decide(op.test)
        if isinstance(taken, int):
            return of(op.args[taken])
        return _chosen(make, op, taken, *map(of, op.args))

    return renewed([root], kept, assumed)


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
    """The op of the arguments that stand for its own; of the same ones the op itself."""
    args = tuple(map(of, op.args))
    if args == op.args:
        return op
    if op.rule == "cond":
        return _chosen(make, op, op.test, *args)
    rule = op.rule
    if rule in TURNED and args[1].rule == "neg" and not make.opaque(args[1]):
        rule, args = TURNED[rule], (args[0], args[1].args[0])
    return make.program.op(
        rule, args, op.data, kind=op.kind, shape=op.shape, active=op.active
    )


def _chosen(make: Maker, op: Op, test: Op, body: Op, orelse: Op) -> Op:
    """A choice in the place of another."""
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


def _with_input(program: Program, name: str, test: Op) -> int | Op:
    """A test, where the input of that name is not None."""
    if is_presence(test, name):
        return 0
    if not test.is_python("boolean"):
        return test
    left = tuple(part for part in test.args if not is_presence(part, name))
    if len(left) == len(test.args):
        return test
    if test.is_python("boolean", "or") or not left:
        return 0
    return left[0] if len(left) == 1 else program.python("boolean", "and", *left)


def _with_test(known: Op, held: bool, test: Op) -> int | Op:
    """A test inside the branch of another: 0 if it holds there, 1 if it does not."""
    told = told_by(test, known, held)
    return test if told is None else int(not told)
