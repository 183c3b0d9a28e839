"""Statements of several meanings -> plain ones.

In: the statements of a formula. Out: the same without those that do nothing, each assigning one target. Invariant: the
statements that are given stay as they are.
"""

import ast
from collections.abc import Sequence

from scaffold.formula.fold import without_empty


def plain(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements without `pass` and bare annotations; `a = b = x` is two of them."""
    found: list[ast.stmt] = []
    for item in body:
        match item:
            case ast.Pass() | ast.AnnAssign(value=None):
                pass
            case ast.Assign([ast.Name(name) as first, *others], value) if others:
                found.append(_assigned(item, first, value))
                known = ast.copy_location(ast.Name(name, ast.Load()), first)
                found += [_assigned(item, other, known) for other in others]
            case ast.If(test, inner, other):
                choice = ast.If(test, plain(inner), plain(other))
                found += without_empty(ast.copy_location(choice, item))
            case _:
                found.append(item)
    return found


def _assigned(item: ast.stmt, target: ast.expr, value: ast.expr) -> ast.Assign:
    return ast.copy_location(ast.Assign([target], value), item)
