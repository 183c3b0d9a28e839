"""NumPy's maths of plain numbers -> Python's `math`: `np.sqrt(x.shape[-1])`, `np.pi`.

People write `np.sqrt(dim)` for plain numbers in a function over tensors; generated code imports no NumPy, so such a call is
translated when the user's file is read.

Words: a *number* is a Python number, no tensor; an *alias* is a name of the module NumPy in the file, `np`.

In: the syntax of a file. Out: the same, with functions of `math` for NumPy's functions of plain numbers. Invariant: a
call stays NumPy's if an argument may be a tensor or an array.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from scaffold.formula.definitions import imported, parameters
from scaffold.formula.names import load_of, stores

CONSTANTS = frozenset({"e", "inf", "nan", "pi"})  # of both modules
# NumPy's functions, with the name of the same function of `math`.
FUNCTIONS = {
    **{name: name for name in ("sqrt", "exp", "log", "log2", "log10", "log1p")},
    **{name: name for name in ("expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "hypot": "hypot",
    "power": "pow",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "prod": "prod",
}
# Methods of a tensor that return a number.
COUNTS = frozenset({"dim", "ndimension", "numel", "nelement"})
NUMBERS = frozenset({"float", "int"})  # annotations of a number


def with_math(module: ast.Module) -> ast.Module:
    """Replace NumPy by `math` in a file wherever the result is the same: in functions of numbers, `np.sqrt(dim)`.

    A file with a value of its own called `math` stays as it is.
    """
    aliases = {item.name for item in imported(module) if item.dotted == "numpy"}
    if not aliases or any(node.id == "math" for node in stores([module])):
        return module  # no NumPy to replace, or another `math`
    known = _numbers(module.body, set(), aliases)
    writer = _Writer(aliases, known)
    writer.generic_visit(module)
    return module


class _Writer(ast.NodeTransformer):
    """A replacement in one body; nested functions are visited with their own known numbers."""

    def __init__(self, aliases: set[str], known: set[str]) -> None:
        self.aliases, self.known = aliases, known

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a function with the numbers known in it: annotated parameters, and all parameters of an `__init__`.

        Those of an `__init__` are the settings of a module. Any other parameter may be a tensor, even if it hides a number.
        """
        names = {item.arg for item in parameters(node.args)}
        numbers = names if node.name == "__init__" else _number_parameters(node.args)
        # A parameter hides a number of the same name outside.
        known = (self.known - names) | set(numbers)
        inner = _Writer(self.aliases, _numbers(node.body, known, self.aliases))
        inner.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `np.pi` by `math.pi`."""
        if self._is_numpy(node) and node.attr in CONSTANTS:
            return _of_math(node, node.attr)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace `np.sqrt(n)` by `math.sqrt(n)` if the result is surely a number."""
        # Asked first: visiting the arguments turns `np.pi` in them into `math.pi`.
        number = _is_number(node, self.known, self.aliases)
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(_, name) as callee if number and self._is_numpy(callee):
                node.func = _of_math(callee, FUNCTIONS[name])
        return node

    def _is_numpy(self, node: ast.Attribute) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id in self.aliases


def _of_math(node: ast.expr, name: str) -> ast.expr:
    made = ast.Attribute(load_of("math", node), name, ast.Load())
    return ast.copy_location(made, node)


def _number_parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters annotated as numbers."""
    for item in parameters(arguments):
        if isinstance(item.annotation, ast.Name) and item.annotation.id in NUMBERS:
            yield item.arg


def _numbers(body: list[ast.stmt], known: set[str], aliases: set[str]) -> set[str]:
    """Return the names that hold a number throughout a body; `known` ones are numbers before it.

    A name is one if all its assignments give a number; `b, n = x.shape` gives two. A name also bound in another way, by a loop for
    example, is none: its bindings (`counts`) are then more than its assignments (`stored`). `aliases` are the names of NumPy.
    """
    found = set(known)
    stored: dict[str, list[ast.expr]] = {}
    for node in (inner for item in body for inner in ast.walk(item)):
        match node:
            case ast.Assign([ast.Name(name)], value):
                stored.setdefault(name, []).append(value)
            case ast.Assign([ast.Tuple(targets)], value) if _is_shape(value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        # Any number serves: a size is one.
                        stored.setdefault(target.id, []).append(ast.Constant(0))
    counts = Counter(node.id for node in stores(body))
    for name, values in stored.items():
        numbers = (_is_number(value, found, aliases) for value in values)
        # Fewer values than bindings: it is also bound by a loop or in an unknown tuple.
        if len(values) == counts[name] and all(numbers):
            found.add(name)
        else:
            found.discard(name)
    # Without the names bound only in another way.
    return found - (counts.keys() - stored.keys())


def _is_shape(value: ast.expr) -> bool:
    """Return whether an expression is a shape or a part of one, a tuple of numbers: `x.shape[1:]`, `x.size()`."""
    match value:
        case ast.Attribute(_, "shape") | ast.Call(ast.Attribute(_, "size"), []):
            return True
        case ast.Subscript(inner, ast.Slice()):
            return _is_shape(inner)
    return False


def _is_number(value: ast.expr, known: set[str], aliases: set[str]) -> bool:
    """Return whether an expression is surely a Python number; `known` names are numbers, `aliases` are NumPy."""

    def is_number(item: ast.expr) -> bool:
        return _is_number(item, known, aliases)

    match value:
        case ast.Constant(inner):
            return isinstance(inner, int | float)
        case ast.Name(name):
            return name in known
        case ast.UnaryOp(_, inner):
            return is_number(inner)
        case ast.BinOp(left, _, right):
            return is_number(left) and is_number(right)
        # `x.shape[1:]` is a shape.
        case ast.Subscript(inner, index):
            return _is_shape(inner) and not isinstance(index, ast.Slice)
        case ast.Attribute(ast.Name(root), name):
            return root in aliases | {"math"} and name in CONSTANTS
        case ast.Call(ast.Name("float" | "int" | "len")):
            return True
        # `x.size()` without a dim is a shape.
        case ast.Call(ast.Attribute(_, "size"), [_]):
            return True
        case ast.Call(ast.Attribute(_, name), []) if name in COUNTS:
            return True
        case ast.Call(ast.Attribute(ast.Name(root), "prod"), [item], []):
            return root in aliases and _is_shape(item)
        case ast.Call(ast.Attribute(ast.Name(root), name), args, []):
            return root in aliases and name in FUNCTIONS and all(map(is_number, args))
    return False
