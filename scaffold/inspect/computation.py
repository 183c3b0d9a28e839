"""The computation of a Function alone: without what a generated one does for autocast and for second derivatives.

In: a `Function`. Out: the same with a backward that only computes, decorated with `once_differentiable` where it refused to be
differentiated. Invariant: what is taken away computes neither output nor gradient; what has another form is left as it is.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import replace

from scaffold.inspect.functions import Function, Method

DECORATOR = "torch.autograd.function.once_differentiable"


def computation_of(function: Function) -> Function:
    """The Function without its autocast and its refusal of second derivatives; both stand in a specification as keys."""
    return _as_decorated(_without_autocast(function))


def _without_autocast(function: Function) -> Function:
    """Without `with ctx.autocast:` around the backward, and what it is set to."""
    backward, saver = function.methods.get("backward"), function.saver
    if backward is None or saver is None:
        return function
    body = [item for each in backward.node.body for item in _inside(each, backward)]
    if body == backward.node.body:
        return function
    kept = f"{saver.ctx}.autocast"
    left: list[ast.stmt] = []
    read: set[str] = set()  # by what is left out
    for statement in reversed(saver.node.body):
        target = _target(statement)
        if target == kept or target in read:
            names = ast.walk(statement.value)  # type: ignore[attr-defined]
            read |= {item.id for item in names if isinstance(item, ast.Name)}
        else:
            left.insert(0, statement)
    changed = {
        "backward": _with_body(backward, body),
        saver.node.name: _with_body(saver, left or [ast.Pass()]),
    }
    return replace(function, methods={**function.methods, **changed})


def _inside(statement: ast.stmt, backward: Method) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.With) and [
        ast.unparse(item) for item in statement.items
    ] == [f"{backward.ctx}.autocast"]:
        yield from statement.body
    else:
        yield statement


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0])
    return ""


def _with_body(method: Method, body: list[ast.stmt]) -> Method:
    node = copy.copy(method.node)
    node.body = body
    return replace(method, node=node)


def _as_decorated(function: Function) -> Function:
    """With the decorator in place of its own refusal."""
    backward = function.methods.get("backward")
    body = _computation(backward.node.body) if backward else None
    if backward is None or body is None:
        return function
    plain = _with_body(backward, body)
    plain = replace(plain, decorators=(*backward.decorators, DECORATOR))
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
