"""What a call of a function of the file returns, and what becomes of it.

In: the statements of the function, and the target that its caller assigns. Out: the statements without their return.
Invariant: a name is left out only where nothing can tell the difference.
"""

import ast

from scaffold.formula.arguments import Refusal, is_pure, own_name
from scaffold.formula.resolve import Function
from scaffold.formula.returns import with_one_return
from scaffold.formula.substitution import names_in, renamed, stored

Block = list[ast.stmt]


def returned(
    function: Function, body: Block, idle: bool = False
) -> tuple[Block, ast.expr]:
    """The statements before the return, and what it returns; an `idle` call may return nothing, as nobody looks at it."""
    shown = own_name(function.name)
    own = set(stored(body))
    body = with_one_return(body)
    added = {name: f"{shown}.{name}" for name in stored(body) if name not in own}
    body = [renamed(item, added) for item in body]
    inner = [
        node
        for item in body[:-1]
        for node in ast.walk(item)
        if isinstance(node, ast.Return)
    ]
    if inner:
        raise Refusal(
            inner[0], f"'{shown}' returns in the middle", "assign a name in each branch"
        )
    last = body[-1] if body else None
    if idle and not (isinstance(last, ast.Return) and last.value):
        done = body[:-1] if isinstance(last, ast.Return) else body
        return done, ast.copy_location(ast.Constant(None), last or function.node)
    if not isinstance(last, ast.Return) or last.value is None:
        hint = f"end it with: return ..., or call it alone: {shown}(...)"
        raise Refusal(last or function.node, f"'{shown}' returns nothing", hint)
    rest, value = body[:-1], last.value
    match rest[-1:], value:
        case [ast.Assign([ast.Name(name)], made)], ast.Name(
            read
        ) if name == read and name not in stored(rest[:-1]):
            return rest[:-1], made
    return rest, value


def names_of_target(
    target: ast.expr | None, value: ast.expr, local: set[str], seen: set[str]
) -> dict[str, str]:
    """What a call returns is called at once as its caller will call it."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    match target, value:
        case ast.Name(), ast.Name():
            pairs = [(target, value)]
        case ast.Tuple(targets), ast.Tuple(values) if len(targets) == len(values):
            pairs = list(zip(targets, values, strict=True))
    found: dict[str, str] = {}
    for one, other in pairs:
        if not isinstance(one, ast.Name) or not isinstance(other, ast.Name):
            continue
        if (
            "." in other.id
            and other.id in local
            and one.id not in seen
            and other.id not in found
        ):
            found[other.id] = one.id
    return found


def assigned_values(item: ast.Assign) -> list[ast.stmt]:
    """`a, b = c, d` as two statements where that is the same; nothing where a name is assigned to itself."""
    match item:
        case ast.Assign([ast.Name(name)], ast.Name(same)) if name == same:
            return []
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(
            values
        ):
            pass
        case _:
            return [item]
    done: list[ast.stmt] = []
    for at, (target, value) in enumerate(zip(targets, values, strict=True)):
        if not isinstance(target, ast.Name) or target.id in names_in(values[at + 1 :]):
            return [item]
        if not (isinstance(value, ast.Name) and value.id == target.id):
            done.append(ast.copy_location(ast.Assign([target], value), item))
    return done if is_pure(values) else [item]
