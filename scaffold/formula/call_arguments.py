"""A call and the function that it calls -> what each parameter stands for.

In: `ast` of both. Out: the expression of every parameter, in the order in which Python evaluates them.
Invariant: a call that Python would refuse is a `Refusal` at its place.
"""

import ast
from collections.abc import Sequence

from scaffold.errors import ScaffoldError
from scaffold.formula.definitions import (
    Function,
    Meanings,
    defaults,
    is_constant,
    parameters,
    telling_decorator,
)
from scaffold.formula.text import Text, place_in
from scaffold.primitives.calls import draws_random, is_in_place

# What the names of modules mean once a function is resolved.
ALWAYS = {"F": "torch.nn.functional", "math": "math", "torch": "torch"}


class Refusal(Exception):
    """What cannot be put in place of a call, at the node that is to blame."""

    def __init__(self, node: ast.AST, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.node, self.message, self.hint = node, message, hint

    def within(self, text: Text) -> ScaffoldError:
        """The problem, where the node stands in its text."""
        return ScaffoldError(self.message, place_in(text, self.node), self.hint)


class NotHere(Refusal):
    """A call that would have to run before a choice is made."""


def own_name(identifier: str) -> str:
    """The name that the user wrote for a resolved one."""
    return identifier.rpartition(".")[2].removeprefix("@")


def check_decorators(function: ast.FunctionDef, shown: str, imports: Meanings) -> None:
    """Refuse a function with a decorator that may change values."""
    decorator = telling_decorator(function, imports)
    if decorator is not None:
        message = f"a decorator may change what '{shown}' computes"
        hint = "take it off, or name a function without it"
        raise Refusal(decorator, message, hint)


def bound_arguments(call: ast.Call, function: Function) -> dict[str, ast.expr]:
    """The expression that each parameter has for a call, those with a default last."""
    known = function.arguments
    shown = own_name(function.name)
    if known.vararg or known.kwarg:
        hint = "give each of its parameters a name"
        raise Refusal(call, f"'{shown}' takes any number of arguments", hint)
    positional = [item.arg for item in (*known.posonlyargs, *known.args)]
    by_name = {
        own_name(item.arg): item.arg for item in (*known.args, *known.kwonlyargs)
    }
    hint = f"its parameters: {', '.join(map(own_name, _all(function)))}"
    if len(call.args) > len(positional):
        extra = call.args[len(positional)]
        count = f"{len(positional)} argument{'s' * (len(positional) != 1)}"
        raise Refusal(
            extra, f"'{shown}' takes {count}, and gets {len(call.args)}", hint
        )
    found = dict(zip(positional, call.args, strict=False))
    for item in [*call.args, *(word.value for word in call.keywords if not word.arg)]:
        if isinstance(item, ast.Starred) or item not in call.args:
            raise Refusal(item, f"the arguments of '{shown}' are not listed", hint)
    for word in call.keywords:
        name = by_name.get(word.arg or "")
        if name is None:
            raise Refusal(word, f"'{shown}' takes no argument '{word.arg}'", hint)
        if name in found:
            raise Refusal(word, f"'{shown}' gets '{word.arg}' twice", hint)
        found[name] = word.value
    preset = defaults(known)
    for name in _all(function):
        if name not in found and name not in preset:
            raise Refusal(call, f"'{shown}' is called without '{own_name(name)}'", hint)
        if name not in found:
            found[name] = constant(
                preset[name], own_name(name), "pass it as an argument"
            )
    return found


def constant(default: ast.expr, name: str, hint: str) -> ast.expr:
    """A default that is the same whenever it is evaluated."""
    if is_constant(default, ALWAYS):
        return default
    message = f"the default of '{name}' is no constant"
    raise Refusal(default, message, hint)


def _all(function: Function) -> list[str]:
    return [item.arg for item in parameters(function.arguments)]


def is_simple(value: ast.expr) -> bool:
    """Whether an expression may stand wherever its value is needed: a name, a literal, `torch.float32`."""
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
    """Whether some part may change a tensor in place."""
    return any(_changes(node) for part in parts for node in ast.walk(part))


def _changes(node: ast.AST) -> bool:
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
    """Whether some part draws random numbers."""
    nodes = (node for part in parts for node in ast.walk(part))
    callees = (node.func for node in nodes if isinstance(node, ast.Call))
    return any(
        isinstance(of, ast.Attribute) and draws_random(of.attr) for of in callees
    )


def is_pure(parts: Sequence[ast.AST]) -> bool:
    """Whether it makes no difference when the parts are evaluated."""
    return not changes(parts) and not is_random(parts)
