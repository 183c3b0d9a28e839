"""Choices that are settled where a gradient is computed: `g if bias is not None else 0` is `g` in the branch of `bias`.

In: the graph of the gradient of an optional input, which is computed only where that input is given. Out: for each op of the graph the op
in its place. Invariant: equal wherever the input is given; a value that other gradients read as well stays as it is, since it would be
computed twice.
"""

from collections.abc import Collection

from scaffold.derive.graph.conditions import is_presence
from scaffold.derive.graph.op import Op, Program
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.rebuilding import Renewal, chosen, rebuilt, renewed


def present(make: Maker, root: Op, name: str, kept: Collection[Op]) -> dict[Op, Op]:
    """What each value below becomes where the input of that name is not None; what is `kept` stays as it is."""

    def settled(op: Op, of: Renewal) -> Op:
        if op.rule != "cond":
            return rebuilt(make, op, of)
        taken = _with_input(make.program, name, op.test)
        if isinstance(taken, int):
            return of(op.args[taken])
        return chosen(make, op, taken, *map(of, op.args))

    return renewed([root], kept, settled)


def _with_input(program: Program, name: str, test: Op) -> int | Op:
    """The branch that a test takes where the input of that name is not None, 0 or 1; or the test that is left of it."""
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
