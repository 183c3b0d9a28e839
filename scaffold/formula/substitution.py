"""Names in statements replaced by other names or by expressions.

In: statements of `ast`, and what their names stand for. Out: the same statements. Invariant: an expression that is put in
keeps its own place in the file, a name takes the place of the one before it.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from scaffold.formula.fold import truth_of

Part = TypeVar("Part", bound=ast.AST)


def substituted(part: Part, values: Mapping[str, ast.expr]) -> Part:
    """The part with what its names stand for."""
    result: Part = _Substitution(values).visit(part)
    return result


def renamed(part: Part, names: Mapping[str, str]) -> Part:
    """The part with other names."""
    for node in ast.walk(part):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return part


class _Substitution(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self.values.get(node.id)
        if value is None:
            return node
        if isinstance(value, ast.Name):
            return ast.copy_location(ast.Name(value.id, node.ctx), node)
        return copy.deepcopy(value)


def named(name: str, value: ast.expr) -> ast.Assign:
    """The assignment of a value to a name, at the place of the value."""
    target = ast.copy_location(ast.Name(name, ast.Store()), value)
    return ast.copy_location(ast.Assign([target], value), value)


def versioned(
    body: list[ast.stmt], name: str, value: ast.expr, later: str
) -> list[ast.stmt] | None:
    """`x = x.float()` with what x stands for on the right, and another name from there on.

    None where x is not assigned as a whole at first.
    """
    at = next(k for k, item in enumerate(body) if name in stored([item]))
    values = {name: value}
    first = _versioned(body[at], name, value, later)
    if first is None:
        return None
    return [
        *(substituted(item, values) for item in body[:at]),
        *first,
        *(renamed(item, {name: later}) for item in body[at + 1 :]),
    ]


def _versioned(
    item: ast.stmt, name: str, value: ast.expr, later: str
) -> list[ast.stmt] | None:
    """The statement that assigns the name first; after a choice both of its branches have."""
    match item:
        case ast.Assign([ast.Name(found)], inner) if found == name:
            pass
        case ast.AnnAssign(ast.Name(found), value=inner) if found == name and inner:
            pass
        case ast.If():
            return _chosen(item, name, value, later)
        case _:
            return None
    made = named(later, substituted(inner, {name: value}))
    return [ast.copy_location(made, item)]


def _chosen(
    item: ast.If, name: str, value: ast.expr, later: str
) -> list[ast.stmt] | None:
    test = substituted(item.test, {name: value})
    branches: list[list[ast.stmt]] = []
    for body in _settled(test, item):
        if name in stored(body):
            inner = versioned(body, name, value, later)
            if inner is None:
                return None
        else:
            inner = [substituted(one, {name: value}) for one in body]
            inner.append(named(later, value))
        branches.append(inner)
    if len(branches) == 1:
        return branches[0]
    return [ast.copy_location(ast.If(test, *branches), item)]


def _settled(test: ast.expr, item: ast.If) -> tuple[list[ast.stmt], ...]:
    """The branches that may run."""
    truth = truth_of(test)
    if truth is None:
        return item.body, item.orelse
    return (item.body if truth else item.orelse,)


def stored(body: Iterable[ast.AST]) -> list[str]:
    """The names that statements bind to values, each once, those of functions in them left out."""
    return list(dict.fromkeys(_stored(body)))


def _stored(body: Iterable[ast.AST]) -> Iterator[str]:
    for item in body:
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Lambda):
            continue
        elif not isinstance(item, ast.FunctionDef | ast.Lambda):
            yield from _stored(ast.iter_child_nodes(item))


def reads(body: Sequence[ast.AST], name: str) -> int:
    """How often a name is read; in a function more than once."""
    count = 0
    for item in body:
        if isinstance(item, ast.Name):
            count += item.id == name and isinstance(item.ctx, ast.Load)
        else:
            inner = reads(list(ast.iter_child_nodes(item)), name)
            often = isinstance(item, ast.FunctionDef | ast.Lambda)
            count += 2 * inner if often else inner
    return count


def names_in(parts: Iterable[ast.AST]) -> set[str]:
    """Every name in the parts."""
    nodes = (node for part in parts for node in ast.walk(part))
    return {node.id for node in nodes if isinstance(node, ast.Name)}
