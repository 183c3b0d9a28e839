"""A function of the user's file -> a copy in which every name of the file is told from a local.

In: a function and what its file defines. Out: a `Function`. Invariant: a name with a dot is a local of a function that is
called, one that begins with `@` a function of the file; neither can be written by a user. Positions stay those of the
file.
"""

import ast
import copy
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scaffold.formula.definitions import (
    FUNCTIONAL,
    Defined,
    Definitions,
    Meanings,
    dotted_name,
    is_known,
    parameters,
    without_docstring,
)


class Function(NamedTuple):
    """A function with its names resolved."""

    name: str
    arguments: ast.arguments
    body: list[ast.stmt]
    node: Defined


def resolve(
    name: str, function: Defined, definitions: Definitions, called: bool = True
) -> Function:
    """A copy of a function in which its names are told apart; the locals of one that is called are prefixed."""
    node = copy.deepcopy(function)
    resolver = _Resolver(definitions, {}, f"{name}." if called else "")
    return resolver.function(name, node)


def statements_of(node: Defined) -> list[ast.stmt]:
    """The body of a function without its docstring; that of a lambda returns its value."""
    if isinstance(node, ast.Lambda):
        return [ast.copy_location(ast.Return(node.body), node.body)]
    return without_docstring(node.body)


def _bound(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names that a body binds, without those of the functions in it."""
    for item in body:
        if isinstance(item, ast.FunctionDef):
            yield item.name
        elif isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id
        elif not isinstance(item, ast.Lambda):
            yield from _bound(ast.iter_child_nodes(item))


class _Resolver(ast.NodeTransformer):
    """Replaces the names of one function, and with a longer prefix those of the functions in it."""

    def __init__(self, definitions: Definitions, around: Meanings, prefix: str) -> None:
        self.definitions, self.locals, self.prefix = definitions, dict(around), prefix

    def function(self, name: str, node: Defined) -> Function:
        arguments, body = node.args, statements_of(node)
        constants = [self.visit(item) for item in arguments.defaults]
        arguments.defaults = constants
        arguments.kw_defaults = [
            item and self.visit(item) for item in arguments.kw_defaults
        ]
        starred = [item for item in (arguments.vararg, arguments.kwarg) if item]
        named = [*parameters(arguments), *starred]
        bound = (*(item.arg for item in named), *_bound(body))
        self.locals |= {item: f"{self.prefix}{item}" for item in bound}
        for item in named:
            item.arg = self.locals[item.arg]
        return Function(name, arguments, [self.visit(item) for item in body], node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.locals:
            node.id = self.locals[node.id]
        elif node.id in self.definitions.constants:
            value = copy.deepcopy(self.definitions.constants[node.id])
            resolver = _Resolver(self.definitions, {}, "")
            return resolver.visit(value)  # type: ignore[no-any-return]
        elif node.id in self.definitions.functions:
            node.id = f"@{node.id}"
        else:
            return self._of_module(node, node.id, "")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        of_file = isinstance(node.value, ast.Name) and node.value.id not in self.locals
        self.generic_visit(node)
        match node:
            case ast.Subscript(
                ast.Tuple(items) | ast.List(items), ast.Constant(int(at))
            ) if of_file and at < len(items):
                return items[at]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        root, _, rest = (dotted_name(node) or "").partition(".")
        plain = root not in self.locals and not any(
            isinstance(inner, ast.Call) for inner in ast.walk(node)
        )
        if plain and root in self.definitions.imports:
            return self._of_module(node, root, rest)
        self.generic_visit(node)
        return node

    def _of_module(self, node: ast.expr, root: str, rest: str) -> ast.expr:
        """What the file's import means, by the names that every formula has."""
        full = self.definitions.imports.get(root, "")
        if not is_known(full):
            return node
        full = f"{full}.{rest}" if rest else full
        if full == FUNCTIONAL or full.startswith(f"{FUNCTIONAL}."):
            full = f"F{full.removeprefix(FUNCTIONAL)}"
        elif full == root:
            return node
        first, *others = full.split(".")
        value: ast.expr = ast.copy_location(ast.Name(first, ast.Load()), node)
        for other in others:
            value = ast.copy_location(ast.Attribute(value, other, ast.Load()), node)
        return value

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        inner = f"{self.locals.get(node.name, node.name)}."
        found = _Resolver(self.definitions, self.locals, inner).function(
            node.name, node
        )
        node.name, node.body = self.locals.get(node.name, node.name), found.body
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        inner = f"{self.prefix}lambda_{node.lineno}_{node.col_offset}."
        found = _Resolver(self.definitions, self.locals, inner).function("", node)
        returned = found.body[0]
        assert isinstance(returned, ast.Return) and returned.value
        node.body = returned.value
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node
