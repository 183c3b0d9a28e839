"""A backward that itself refuses to be differentiated, as one that is decorated with `once_differentiable`.

In: a `Function` whose backward may end as a generated one does. Out: the same with its computation alone.
Invariant: what is taken away computes no gradient; a backward of another form is left as it is.
"""

import ast
import copy
from dataclasses import replace

from scaffold.inspect.functions import Function

DECORATOR = "torch.autograd.function.once_differentiable"


def as_decorated(function: Function) -> Function:
    """The Function with the decorator in place of its own refusal."""
    backward = function.methods.get("backward")
    body = _computation(backward.node.body) if backward else None
    if backward is None or body is None:
        return function
    node = copy.copy(backward.node)
    node.body = body
    decorators = (*backward.decorators, DECORATOR)
    plain = replace(backward, node=node, decorators=decorators)
    return replace(function, methods={**function.methods, "backward": plain})


def _computation(body: list[ast.stmt]) -> list[ast.stmt] | None:
    first = body[0]
    if _asks(first, "torch.is_grad_enabled()") and isinstance(first.body[0], ast.Raise):  # type: ignore[attr-defined]
        return body[1:]
    for index, statement in enumerate(body):
        if _is_without_gradients(statement):
            assert isinstance(statement, ast.With)
            value = _value(statement.body[-1], body[index + 1 :])
            if value is None:
                return None
            *inner, last = statement.body
            whole = isinstance(value, ast.Name)
            inner = [*inner, last] if whole else inner
            return [*body[:index], *inner, ast.copy_location(ast.Return(value), last)]
    return None


def _value(last: ast.stmt, after: list[ast.stmt]) -> ast.expr | None:
    """What is returned where no graph is recorded: the gradient by its name, or all of them as a tuple."""
    if not after or not isinstance(after[-1], ast.Return):
        return None
    if _asks(after[0], "torch.is_grad_enabled()") and len(after) == 2:
        return after[-1].value
    if not _asks(after[0], "not torch.is_grad_enabled()"):
        return None
    returned = after[0].body[0]  # type: ignore[attr-defined]
    if not isinstance(returned, ast.Return) or not isinstance(last, ast.Assign):
        return None
    same = ast.unparse(last.targets[0]) == ast.unparse(returned)[len("return ") :]
    return last.value if same else None


def _asks(statement: ast.stmt, test: str) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == test


def _is_without_gradients(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.With) and [
        ast.unparse(item) for item in statement.items
    ] == ["torch.no_grad()"]
