"""Returns inside an `if` -> one return at the end.

In: the statements of a formula. Out: statements that give the same value. Invariant: no statement is repeated; where that would be
needed the statements stay as they are.
"""

import ast
from collections.abc import Collection, Sequence

from scaffold.formula.substitution import names_in

NAME = "result"
UNKNOWN = 'raise ValueError(f"unknown {0}: {{{0}}}")'


def with_one_return(
    body: list[ast.stmt], taken: Collection[str] = ()
) -> list[ast.stmt]:
    """The statements with `result = ...` in each branch, if some of them return."""
    body = _with_last_resort(body)
    early = any(isinstance(item, ast.If) and _returns(item) for item in body)
    if not early or not _closes(body):
        return body
    values = [node.value for item in body for node in _found(item)]
    names = _names(values, {*taken, *names_in(body)})
    if names is None:
        return body
    done = _assigned(body, names)
    last = ast.Return(_value(names, ast.Load()))
    return [*done, ast.fix_missing_locations(ast.copy_location(last, body[-1]))]


def _with_last_resort(body: list[ast.stmt]) -> list[ast.stmt]:
    """An error where the last of `if mode == "sum": return ...` does not hold, and nothing would be returned."""
    last = body[-1] if body else None
    if not isinstance(last, ast.If) or not _returns(last):
        return body
    inner = _with_last_resort(last.body)
    if not _closes(inner):
        return body
    if last.orelse:
        orelse = _with_last_resort(last.orelse)
    else:
        match last.test:
            case ast.Compare(
                ast.Name(name), [ast.Eq() | ast.In()], [value]
            ) if isinstance(value, ast.Constant | ast.Tuple | ast.List):
                (error,) = ast.parse(UNKNOWN.format(name)).body
            case _:
                return body
        for node in ast.walk(error):
            ast.copy_location(node, last)
        orelse = [error]
    closed = ast.If(last.test, inner, orelse)
    return [*body[:-1], ast.copy_location(closed, last)]


def _found(item: ast.AST) -> list[ast.Return]:
    return [node for node in ast.walk(item) if isinstance(node, ast.Return)]


def _returns(item: ast.AST) -> bool:
    return bool(_found(item))


def _closes(body: Sequence[ast.stmt]) -> bool:
    """Whether every way through ends in a return, and what follows an `if` belongs to one branch of it."""
    for at, item in enumerate(body):
        if isinstance(item, ast.Return):
            return at == len(body) - 1 and item.value is not None
        if isinstance(item, ast.Raise):
            return at == len(body) - 1
        if isinstance(item, ast.If) and _returns(item):
            rest = body[at + 1 :]
            if _closes(item.body):
                return _closes([*item.orelse, *rest])
            return _closes(item.orelse) and _closes([*item.body, *rest])
        if _returns(item):
            return False
    return False


def _names(values: Sequence[ast.expr | None], taken: set[str]) -> list[str] | None:
    """One name, or as many as each return has values."""
    counts = {
        len(value.elts) if isinstance(value, ast.Tuple) else 0 for value in values
    }
    if len(counts) > 1:
        return None
    count = counts.pop()
    stem = NAME
    while any(name == stem or name.startswith(f"{stem}_") for name in taken):
        stem = f"{stem}_value"
    return [f"{stem}_{at}" for at in range(count)] if count else [stem]


def _value(names: Sequence[str], context: ast.expr_context) -> ast.expr:
    items: list[ast.expr] = [ast.Name(name, context) for name in names]
    return items[0] if len(items) == 1 else ast.Tuple(items, context)


def _assigned(body: Sequence[ast.stmt], names: Sequence[str]) -> list[ast.stmt]:
    """Statements that assign what they returned."""
    done: list[ast.stmt] = []
    for at, item in enumerate(body):
        if isinstance(item, ast.Return) and item.value is not None:
            value = ast.Assign([_value(names, ast.Store())], item.value)
            return [*done, ast.fix_missing_locations(ast.copy_location(value, item))]
        if isinstance(item, ast.If) and _returns(item):
            rest = list(body[at + 1 :])
            inner, other = item.body, item.orelse
            if _closes(inner):
                other = [*other, *rest]
            else:
                inner = [*inner, *rest]
            parts = (_assigned(inner, names), _assigned(other, names))
            return [*done, ast.copy_location(ast.If(item.test, *parts), item)]
        done.append(item)
    return done
