"""What a method changes in place.

In: the `Values` of a method. Out: each change with its target.
Invariant: a change of something that may be no tensor, such as `n += 1`, says so.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.inspect import vocabulary
from scaffold.inspect.flow import Step
from scaffold.inspect.names import method_call, torch_call
from scaffold.inspect.values import Values


class Change(NamedTuple):
    """A tensor is changed in place."""

    node: ast.AST
    target: ast.expr
    step: Step
    how: str
    sure: bool  # the target is a tensor for sure


def changes(values: Values) -> Iterator[Change]:
    """Every tensor that is changed in place, in the order of the text."""
    for step in values.flow.steps:
        yield from _changed_by(values, step)
        for node in step.expressions():
            if isinstance(node, ast.Call):
                yield from _changed_by_call(values, node, step)


def _changed_by(values: Values, step: Step) -> Iterator[Change]:
    statement = step.statement
    if isinstance(statement, ast.AugAssign):
        target = _stripped(statement.target)
        if isinstance(target, ast.Name) or _is_data(target):
            sure = values.is_tensor(target, step)
            yield Change(statement, target, step, "augmented assignment", sure)
    elif isinstance(statement, ast.Assign):
        for item in statement.targets:
            if isinstance(item, ast.Subscript):
                target = _stripped(item)
                sure = values.is_tensor(target, step)
                yield Change(statement, target, step, "item assignment", sure)


def _changed_by_call(values: Values, node: ast.Call, step: Step) -> Iterator[Change]:
    name = torch_call(node, values.names)
    for keyword in node.keywords:
        if name and keyword.arg == "out":
            yield Change(node, keyword.value, step, f"{name}(out=...)", True)
        elif name and keyword.arg == "inplace" and _is_true(keyword.value):
            yield from (
                Change(node, argument, step, f"{name}(inplace=True)", True)
                for argument in node.args[:1]
            )
    if vocabulary.changes(name) and node.args:
        yield Change(node, node.args[0], step, f"{name}()", True)
    name = method_call(node, values.names)
    if vocabulary.changes(name) and isinstance(node.func, ast.Attribute):
        if name == "copy_" and _is_own_copy(node, node.func.value):
            return
        yield Change(node, _stripped(node.func.value), step, f".{name}()", True)


def _is_own_copy(node: ast.Call, target: ast.expr) -> bool:
    """Whether `x.copy_(x)` gives a tensor the values that it has."""
    return [ast.dump(item) for item in node.args] == [ast.dump(target)]


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _stripped(node: ast.expr) -> ast.expr:
    """What a subscript, however deep, is taken of."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _is_data(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "data"
