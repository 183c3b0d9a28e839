"""Choices that are settled where a gradient is computed: `g if bias is not None else 0` is `g` in the branch of `bias`.

In: the graph of a gradient, and what holds wherever it is computed: that an optional input is there (nobody asks for the gradient of
None), or that the test of a choice came out one way (inside a branch of that choice). Out: for each op of the graph the op in its
place. Invariant: equal wherever the assumption holds; a value that other gradients read as well stays as it is, since it would be
computed twice.
"""

from collections.abc import Callable, Collection
from functools import partial

from scaffold.derive.graph.conditions import is_presence, told_by
from scaffold.derive.graph.op import Op, Program
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.rebuilding import Renewal, Users, chosen, rebuilt, renewed

# The branch that a test takes, 0 or 1; or the test that is left of it.
Decide = Callable[[Op], int | Op]


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

    chooses = any(op.rule == "cond" for op in root.walk())
    return renewed([root], kept, settled) if chooses else {}


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
    return chosen(make, op, op.test, body, orelse)


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
        return chosen(make, op, taken, *map(of, op.args))

    return renewed([root], kept, assumed)


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
