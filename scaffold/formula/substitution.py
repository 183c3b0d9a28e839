"""Substitution of names by names or expressions, and the conditions for it.

Inlining a function puts the arguments of a call in place of its parameters, unrolling a loop the values of its variable. This
is right only if the expression gives the same value there, and is not computed twice.

Words: syntax is *pure* if it changes no tensor and draws no random number, so it may be evaluated at any time; a value is
*simple* if it may also be written several times; names in `there` are never None; `later` is the name of a parameter from its
first assignment on.

In: statements of `ast`, and replacements of their names. Out: the same statements; and whether the order of evaluation
of some syntax matters. Invariant: a substituted expression keeps its own place in the file,
a name takes the place of the one it replaces.
"""

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

from scaffold.formula.constant_folding import NONE, Names, truth_of
from scaffold.formula.names import names_in, store_of, stored, stores
from scaffold.formula.text import TAKEN, Scope
from scaffold.primitives.calls import draws_random, is_in_place

Part = TypeVar("Part", bound=ast.AST)


def substituted(part: Part, values: Mapping[str, ast.expr]) -> Part:
    """Return some syntax with names replaced by the expressions in `values`; the syntax itself is changed."""
    result: Part = _Substitution(values).visit(part)
    return result


def renamed(part: Part, names: Mapping[str, str]) -> Part:
    """Return some syntax with names renamed (old -> new); the syntax itself is changed."""
    for node in ast.walk(part):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return part


class _Substitution(ast.NodeTransformer):
    """The transformer behind `substituted`; `values` are the expressions by name."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name by its expression, a copy with its own place; a name takes the place of the one it replaces."""
        value = self.values.get(node.id)
        if value is None:
            return node
        # With the context of the replaced one: a target must be a `Store`.
        if isinstance(value, ast.Name):
            return ast.copy_location(ast.Name(value.id, node.ctx), node)
        return copy.deepcopy(value)


def named(name: str, value: ast.expr) -> ast.Assign:
    """Return the assignment of a value to a name, at the place of the value."""
    return ast.copy_location(ast.Assign([store_of(name, value)], value), value)


def placed(made: Part, at: ast.AST) -> Part:
    """Give all of some new syntax the position of the user's text it replaces, for messages about it.

    A constant is made to end on another line: readers of a number's own digits (`1e-3`, not 0.001) then see that the text
    does not hold them.
    """
    for node in ast.walk(made):
        ast.copy_location(node, at)
        if isinstance(node, ast.Constant):
            node.end_lineno = node.lineno + 1
    return made


def with_sizes(body: list[ast.stmt], scope: Scope) -> list[ast.stmt]:
    """Replace declared sizes by reads of them: `x / D` -> `x / x.shape[-1]`, for an input `x[N, D]`.

    If the statements assign `x`, the size is read above them: `D = x.shape[-1]`. A name `D` that the statements bind, or that
    means something else outside, is no size.
    """
    nodes = [node for item in body for node in ast.walk(item)]
    bound = {node.id for node in stores(body)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    unknown = scope.sizes.keys() - scope.outer - TAKEN - bound
    found = [name for name in scope.sizes if name in unknown & names_in(body)]
    values = {name: ast.parse(scope.sizes[name], mode="eval").body for name in found}
    read_above = [name for name in found if names_in([values[name]]) & bound]
    # `pop`: these names stay in the text, as locals assigned above it.
    lines = [named(name, placed(values.pop(name), body[0])) for name in read_above]
    return [*lines, *map(_Sizes(values).visit, body)]


class _Sizes(_Substitution):
    """A substitution of declared sizes by the expressions that read them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a declared size and give its expression the place of the name."""
        value = super().visit_Name(node)
        return value if value is node else placed(value, node)


def versioned(
    body: list[ast.stmt], name: str, value: ast.expr, later: str, there: Names = NONE
) -> list[ast.stmt] | None:
    """Split a parameter (`name`) that an inlined function assigns anew into two versions, and return the body.

    Up to the first assignment the name is replaced by `value`, the argument of the call, from there on by the name `later`:
    `x = x.float()` -> `later = value.float()`. None if the first assignment is not of the whole name, as `x[0] = 1`. Names in
    `there` are never None.
    """
    values = {name: value}
    # The index of the first statement that assigns the name.
    at = next((k for k, item in enumerate(body) if name in stored([item])), None)
    # From `_chosen`, or after a settled test: this branch does not assign the name.
    if at is None:
        return [substituted(item, values) for item in body]
    item, rest = body[at], body[at + 1 :]
    if isinstance(item, ast.If):
        # A test settled by the value leaves one branch.
        # A copy, since the test must keep its name if it is not settled.
        truth = truth_of(substituted(copy.deepcopy(item.test), values), there)
        if truth is not None:
            only = item.body if truth else item.orelse
            return versioned([*body[:at], *only, *rest], name, value, later, there)
    first = _versioned(item, name, value, later, there)
    if first is None:
        return None
    return [
        *(substituted(item, values) for item in body[:at]),
        first,
        *(renamed(item, {name: later}) for item in rest),
    ]


def _versioned(
    item: ast.stmt, name: str, value: ast.expr, later: str, there: Names
) -> ast.stmt | None:
    """Return the statement that first assigns the name, with `later` as the target; of an `if` in both branches.

    None for any other form, such as `x += 1`. The parameters are those of `versioned`.
    """
    match item:
        case ast.Assign([ast.Name(found)], inner) if found == name:
            pass
        case ast.AnnAssign(ast.Name(found), value=inner) if found == name and inner:
            pass
        case ast.If():
            return _chosen(item, name, value, later, there)
        case _:
            return None
    made = named(later, substituted(inner, {name: value}))
    return ast.copy_location(made, item)


def _chosen(
    item: ast.If, name: str, value: ast.expr, later: str, there: Names
) -> ast.If | None:
    """Return an `if` with `later` assigned in both branches; None if a branch assigns a part of the name first."""
    branches: list[list[ast.stmt]] = []
    for body in (item.body, item.orelse):
        branch = versioned(body, name, value, later, there)
        if branch is None:
            return None
        if later not in stored(branch):  # after the `if`, `later` is read whatever ran
            branch.append(named(later, value))
        branches.append(branch)
    test = substituted(item.test, {name: value})
    return ast.copy_location(ast.If(test, *branches), item)


def is_simple(value: ast.expr) -> bool:
    """Return whether an expression may be duplicated: a name, a literal, `torch.float32`."""
    match value:
        case ast.Name() | ast.Constant():
            return True
        case ast.UnaryOp(_, ast.Constant()):
            return True
        case ast.Attribute(ast.Name("torch" | "math"), _):
            return True
        case ast.Tuple(items):
            return all(is_simple(item) for item in items)
    return False


def changes(parts: Sequence[ast.AST]) -> bool:
    """Return whether some of the syntax may change a tensor in place."""
    return any(_changes(node) for part in parts for node in ast.walk(part))


def _changes(node: ast.AST) -> bool:
    """Return whether a node changes a tensor in place: `y += x`, `y[0] = x`, `x.exp_()`, `f(x, out=y)`."""
    match node:
        case ast.AugAssign():
            return True
        case ast.Subscript(ctx=ast.Store()):
            return True
        case ast.Call(ast.Attribute(_, name)) if is_in_place(name):
            return True
        case ast.Call(keywords=words):
            return any(word.arg in ("out", "inplace") for word in words)
    return False


def is_random(parts: Sequence[ast.AST]) -> bool:
    """Return whether some of the syntax calls a function that draws random numbers: `torch.rand(3)`.

    In syntax with resolved names (`definitions`) no function of PyTorch is a name alone.
    """
    nodes = (node for part in parts for node in ast.walk(part))
    callees = (node.func for node in nodes if isinstance(node, ast.Call))
    return any(
        isinstance(of, ast.Attribute) and draws_random(of.attr) for of in callees
    )


def is_pure(parts: Sequence[ast.AST]) -> bool:
    """Return whether the parts may be evaluated at any time, without in-place changes or randomness."""
    return not changes(parts) and not is_random(parts)
