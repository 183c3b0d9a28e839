"""How many values a return gives.

In: the `Values` of a method and an expression. Out: a number.
Invariant: None wherever a run could give another number, or the text does not tell.
"""

import ast

from scaffold.inspect.flow import Step
from scaffold.inspect.values import DEPTH, Values


def count(
    values: Values, node: ast.expr | None, at: Step, depth: int = DEPTH
) -> int | None:
    """How many values a return gives; None where that is not known."""
    if node is None:
        return 1
    if depth == 0:
        return None
    if isinstance(node, ast.Constant):
        return 1
    if isinstance(node, ast.Tuple):
        return _displayed(values, node, at, depth)
    if isinstance(node, ast.List):
        return None  # to autograd it is one value, and no tensor
    if isinstance(node, ast.Name):
        bound = values.flow.definite(node.id, at)
        if bound and bound.value is not None and bound.element is None:
            step = values.flow.steps[bound.order]
            if values.is_tensor(bound.value, step):
                return 1
            if not _grows(values, node.id, step, at):
                return count(values, bound.value, step, depth - 1)
            return None
        return 1 if values.is_tensor(node, at) else None
    length = _sequence(values, node, at, depth)
    if length is not None:
        return length
    return 1 if values.is_tensor(node, at) else None


def _displayed(
    values: Values, node: ast.Tuple | ast.List, at: Step, depth: int
) -> int | None:
    total = 0
    for item in node.elts:
        if not isinstance(item, ast.Starred):
            total += 1
            continue
        inner = _sequence(values, item.value, at, depth - 1)
        if inner is None:
            return None
        total += inner
    return total


def _sequence(values: Values, node: ast.expr, at: Step, depth: int) -> int | None:
    """The length of a tuple or list."""
    if isinstance(node, ast.Tuple | ast.List):
        return _displayed(values, node, at, depth)
    if isinstance(node, ast.BinOp):
        return _combined(values, node, at, depth)
    if isinstance(node, ast.Name):
        bound = values.flow.definite(node.id, at)
        if bound and bound.value is not None and bound.element is None and depth:
            step = values.flow.steps[bound.order]
            if not _grows(values, node.id, step, at):
                return _sequence(values, bound.value, step, depth - 1)
    return None


def _grows(values: Values, name: str, since: Step, until: Step) -> bool:
    """Whether a list may have become longer between two steps: it is used as more than a value."""
    for step in values.flow.steps[since.order + 1 : until.order]:
        for node in step.expressions():
            if isinstance(node, ast.Attribute | ast.Subscript | ast.AugAssign):
                value = getattr(node, "value", None)
                if isinstance(value, ast.Name) and value.id == name:
                    return True
        if isinstance(step.statement, ast.AugAssign):
            target = step.statement.target
            if isinstance(target, ast.Name) and target.id == name:
                return True
    return False


def _combined(values: Values, node: ast.BinOp, at: Step, depth: int) -> int | None:
    """The length of `(None,) * 3` and of `grads + (None, None)`."""
    if isinstance(node.op, ast.Mult):
        for one, times in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.Tuple | ast.List):
                if isinstance(times, ast.Constant) and type(times.value) is int:
                    inner = _displayed(values, one, at, depth)
                    return None if inner is None else inner * times.value
                return None
    if isinstance(node.op, ast.Add):
        lengths = [
            _sequence(values, side, at, depth - 1) for side in (node.left, node.right)
        ]
        if lengths[0] is not None and lengths[1] is not None:
            return lengths[0] + lengths[1]
    return None
