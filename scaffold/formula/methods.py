"""Methods where functions are wanted.

In: the syntax of a file, and a method in it. Out: the function that the user would write in its place. Invariant: of `self`
only attributes become parameters; what it calls is named, since nothing says what that computes.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.definitions import parameters

OWN = ("self", "cls", "ctx")  # first parameters that hold what is no argument


def method_called(
    wanted: str, role: str, module: ast.Module
) -> tuple[str, ast.FunctionDef] | None:
    """The class and the method that `forward`, `Norm` or `Norm.forward` means in a file."""
    for owner, method in _methods(module):
        if wanted in (method.name, f"{owner}.{method.name}"):
            return owner, method
        if wanted == owner and method.name == role:
            return owner, method
    return None


def _methods(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for owner in module.body:
        if isinstance(owner, ast.ClassDef):
            for item in owner.body:
                if isinstance(item, ast.FunctionDef):
                    yield owner.name, item


def as_function(method: ast.FunctionDef) -> str:
    """What to write in place of a method, as a hint."""
    names = [item.arg for item in parameters(method.args)]
    own = names[0] if names and names[0] in OWN else ""
    given = names[1:] if own else names
    if own == "ctx":  # of an autograd.Function
        listed = ", ".join(given)
        return f"write a function without ctx: def {method.name}({listed})"
    read = sorted(_reads(method, own), key=lambda node: (node.lineno, node.col_offset))
    called = {id(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)}
    values = [node.attr for node in read if id(node) not in called]
    listed = ", ".join(dict.fromkeys([*given, *values]))
    done = dict.fromkeys(f"{own}.{node.attr}" for node in read if id(node) in called)
    out = f", and write out {' and '.join(done)}" if done else ""
    return f"write a function of what it reads{out}: def {method.name}({listed})"


def _reads(method: ast.FunctionDef, own: str) -> Iterator[ast.Attribute]:
    """The attributes of `self` in a method."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(ast.Name(name)) if name == own:
                yield node
