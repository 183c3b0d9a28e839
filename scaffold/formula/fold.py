"""Choices that are settled by constants -> what is chosen.

In: statements in which constants stand for parameters. Out: statements without the branches that never run.
Invariant: no constant is made; a test that is not settled by literals alone stays as it is.
"""

import ast
import operator
from collections.abc import Callable, Sequence

COMPARED: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def folded(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that are left where tests of constants are settled."""
    done: list[ast.stmt] = []
    for item in body:
        found = _Folder().visit(item)
        done += found if isinstance(found, list) else [found]
        if done and isinstance(done[-1], ast.Return):
            break  # what follows never runs
    return done


def _truth(test: ast.expr) -> bool | None:
    """Whether a test holds; None if literals do not tell."""
    match test:
        case ast.Constant(value):
            return bool(value)
        case ast.UnaryOp(ast.Not(), inner):
            truth = _truth(inner)
            return None if truth is None else not truth
        case ast.BoolOp(ast.And(), items) if any(_truth(one) is False for one in items):
            return False
        case ast.BoolOp(ast.Or(), items) if any(_truth(one) for one in items):
            return True
        case ast.Compare(left, [operation], [right]):
            return _compared(left, operation, right)
    return None


def _compared(left: ast.expr, operation: ast.cmpop, right: ast.expr) -> bool | None:
    if isinstance(operation, ast.In | ast.NotIn) and isinstance(
        right, ast.Tuple | ast.List | ast.Set
    ):
        found = [_compared(left, ast.Eq(), item) for item in right.elts]
        if None in found:
            return None
        return any(found) == isinstance(operation, ast.In)
    compare = COMPARED.get(type(operation))
    if not isinstance(left, ast.Constant) or not isinstance(right, ast.Constant):
        return None
    if compare is None:
        return None
    if isinstance(operation, ast.Is | ast.IsNot) and not (
        left.value is None or right.value is None
    ):
        return None  # whether equal literals are one object is Python's affair
    return bool(compare(left.value, right.value))


class _Folder(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        node.test = self.visit(node.test)
        truth = _truth(node.test)
        if truth is not None:
            return folded(node.body if truth else node.orelse)
        node.body, node.orelse = folded(node.body), folded(node.orelse)
        if node.body or not node.orelse:
            node.body = node.body or [ast.copy_location(ast.Pass(), node)]
            return [] if isinstance(node.body[0], ast.Pass) else node
        negated = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        node.test, node.body, node.orelse = negated, node.orelse, []
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is None:
            return node
        return node.body if truth else node.orelse

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """`None or 1e-6` is the latter; `flag and x` is x where the flag is True."""
        self.generic_visit(node)
        wanted = isinstance(node.op, ast.Or)  # the truth that settles it
        kept: list[ast.expr] = []
        for item in node.values:
            truth = _truth(item)
            if truth is None or truth is wanted or item is node.values[-1]:
                kept.append(item)
            if truth is wanted:
                break
        if len(kept) == 1:
            return kept[0]
        node.values = kept
        return node
