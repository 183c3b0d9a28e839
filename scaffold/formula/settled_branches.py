"""Branches whose test is settled by literals -> the one that runs.

In: statements in which constants stand for parameters. Out: statements without the branches that never run.
Invariant: no constant is made (numbers are folded in `python_values`); a test that is not settled by literals alone stays as it is.
"""

import ast
from collections.abc import Sequence

from scaffold.formula.python_values import COMPARE, OPPOSITES, UNKNOWN, compared

Names = frozenset[str]
NONE: Names = frozenset()
SYNTAX = {label: kind for kind, label in COMPARE.items()}


def folded(body: Sequence[ast.stmt], there: Names = NONE) -> list[ast.stmt]:
    """The statements that are left where tests of constants are settled; the names of `there` are never None."""
    done: list[ast.stmt] = []
    for item in body:
        found = _Folder(there).visit(item)
        done += found if isinstance(found, list) else [found]
        if done and isinstance(done[-1], ast.Return):
            break  # what follows never runs
    return done


def without_empty(item: ast.If) -> list[ast.stmt]:
    """A choice that has statements in its first branch, or nothing."""
    if item.body:
        return [item]
    item.test, item.body, item.orelse = negated(item.test), item.orelse, []
    return [item] if item.body else []


def negated(test: ast.expr) -> ast.expr:
    """The test that holds where another does not."""
    match test:
        case ast.UnaryOp(ast.Not(), inner):
            return inner
        case ast.Compare(left, [order], right) if COMPARE[type(order)] in OPPOSITES:
            opposite = SYNTAX[OPPOSITES[COMPARE[type(order)]]]()
            found: ast.expr = ast.Compare(left, [opposite], right)
        case _:
            found = ast.UnaryOp(ast.Not(), test)
    return ast.copy_location(found, test)


def truth_of(test: ast.expr, there: Names = NONE) -> bool | None:
    """Whether a test holds; None if literals do not tell."""
    match test:
        case ast.Constant(value):
            return bool(value)
        case ast.Tuple(items) if all(isinstance(one, ast.Constant) for one in items):
            return bool(items)
        case ast.UnaryOp(ast.Not(), inner):
            truth = truth_of(inner, there)
            return None if truth is None else not truth
        case ast.BoolOp(operation, items):
            settling = isinstance(operation, ast.Or)
            found = any(truth_of(one, there) is settling for one in items)
            return settling if found else None
        case ast.Compare(
            ast.Name(name), [ast.Is() | ast.IsNot() as compare], [ast.Constant(None)]
        ) if (name in there):
            return isinstance(compare, ast.IsNot)
        case ast.Compare(left, [operation], [right]):
            return _compared(left, operation, right)
    return None


def _compared(left: ast.expr, order: ast.cmpop, right: ast.expr) -> bool | None:
    values = [_literal(left), _literal(right, isinstance(order, ast.In | ast.NotIn))]
    return compared(COMPARE[type(order)], *values)


def _literal(item: ast.expr, several: bool = False) -> object:
    """The value of a literal, or of `several` in a row."""
    match item:
        case ast.Constant(value):
            return value
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts) if several:
            values = tuple(map(_literal, elts))
            return UNKNOWN if UNKNOWN in values else values
    return UNKNOWN


class _Folder(ast.NodeTransformer):
    def __init__(self, there: Names) -> None:
        self.there = there

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        node.test = self.visit(node.test)
        truth = truth_of(node.test, self.there)
        if truth is not None:
            return folded(node.body if truth else node.orelse, self.there)
        node.body = folded(node.body, self.there)
        node.orelse = folded(node.orelse, self.there)
        return without_empty(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        truth = truth_of(node.test, self.there)
        if truth is None:
            return node
        return node.body if truth else node.orelse

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """`None or 1e-6` as `1e-6`, `True and x` as `x`, `t and True and x` as `t and x`."""
        self.generic_visit(node)
        wanted = isinstance(node.op, ast.Or)  # the truth that settles it
        kept: list[ast.expr] = []
        for item in node.values:
            truth = truth_of(item, self.there)
            if truth is None or truth is wanted or item is node.values[-1]:
                kept.append(item)
            if truth is wanted:
                break
        if len(kept) == 1:
            return kept[0]
        node.values = kept
        return node
