"""Settle choices by the branch of a gradient: `g if bias is not None else 0` is `g` in the branch of `bias`.

The gradient of an optional input is computed only if that input is given, so tests of it for None are decided in there.

In: the graph of such a gradient. Out: the replacement of each op of the graph. Invariant: equal whenever the input is given; a
value also read by other gradients stays, since it would be computed twice.

Words: a choice is `a if test else b`; it is settled if its test is decided in the branch of the gradient; `kept` ops stay as they
are; a test's presence part is `bias is not None`.
"""

from collections.abc import Collection

from scaffold.derive.graph.conditions import is_presence
from scaffold.derive.graph.op import Op, Program
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.rebuilding import Renewal, chosen, rebuilt, renewed


def present(make: Maker, root: Op, name: str, kept: Collection[Op]) -> dict[Op, Op]:
    """Return the replacement of each op below `root`, a gradient computed only if the input `name` is given; ops in `kept` stay.

    `g if bias is not None else 0` -> `g`.
    """

    def settled(op: Op, of: Renewal) -> Op:
        """Return the taken branch of a choice, or the choice by the rest of its test."""
        if op.rule != "cond":
            return rebuilt(make, op, of)
        test = _with_input(make.program, name, op.test)
        if test is None:
            return of(op.args[0])
        return chosen(make, op, test, *map(of, op.args))

    return renewed([root], kept, settled)


def _with_input(program: Program, name: str, test: Op) -> Op | None:
    """Return what is left of a test if the input `name` is not None; None if the test holds then.

    `bias is not None` -> None; `bias is not None and flag` -> `flag`. A choice by `bias is None` does not occur: `conditions.choose`
    turns it around.
    """
    if is_presence(test, name):
        return None
    if not test.is_python("boolean"):
        return test
    left = tuple(part for part in test.args if not is_presence(part, name))
    if len(left) == len(test.args):
        return test
    # `bias is not None or flag` holds by its first part.
    if test.is_python("boolean", "or") or not left:
        return None
    return left[0] if len(left) == 1 else program.python("boolean", "and", *left)
