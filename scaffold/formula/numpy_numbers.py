"""NumPy's maths of plain numbers -> Python's `math`: `np.sqrt(x.shape[-1])`, `np.pi`.

In: the syntax of a file. Out: the same, with functions of `math` for NumPy's functions of plain numbers. Invariant: a
call stays NumPy's if an argument may be a tensor or an array.
"""

import ast
from collections import Counter
from collections.abc import Iterator

from scaffold.formula.definitions import imported, parameters
from scaffold.formula.names import stores

CONSTANTS = frozenset({"e", "inf", "nan", "pi"})
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
COUNTS = frozenset({"dim", "ndimension", "numel", "nelement"})
NUMBERS = frozenset({"float", "int"})


def with_math(module: ast.Module) -> ast.Module:
    """Replace NumPy by `math` in a file wherever the result is the same: in functions of numbers, `np.sqrt(dim)`.

    A file with a value of its own called `math` stays as it is.
    """
    aliases = {item.name for item in imported(module) if item.dotted == "numpy"}
    if not aliases or any(node.id == "math" for node in stores([module])):
        return module
    known = _numbers(module.body, set(), aliases)
    writer = _Writer(aliases, known)
    writer.generic_visit(module)
    return module


class _Writer(ast.NodeTransformer):
    """A replacement in one body; nested functions are visited with their own known numbers."""

    def __init__(self, aliases: set[str], known: set[str]) -> None:
        self.aliases, self.known = aliases, known

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite a function with the numbers known in it: annotated parameters, and all parameters of an `__init__`."""
        own = {item.arg for item in parameters(node.args)}
        numbers = own if node.name == "__init__" else _number_parameters(node.args)
        known = (self.known - own) | set(numbers)
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
        plain = _is_number(node, self.known, self.aliases)
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(_, name) as callee if plain and self._is_numpy(callee):
                node.func = _of_math(callee, FUNCTIONS[name])
        return node

    def _is_numpy(self, node: ast.Attribute) -> bool:
        return isinstance(node.value, ast.Name) and node.value.id in self.aliases


def _of_math(node: ast.expr, name: str) -> ast.expr:
    root = ast.copy_location(ast.Name("math", ast.Load()), node)
    return ast.copy_location(ast.Attribute(root, name, ast.Load()), node)


def _number_parameters(arguments: ast.arguments) -> Iterator[str]:
    """Yield the parameters annotated as numbers."""
    for item in parameters(arguments):
        if isinstance(item.annotation, ast.Name) and item.annotation.id in NUMBERS:
            yield item.arg


def _numbers(body: list[ast.stmt], known: set[str], aliases: set[str]) -> set[str]:
    """Return the names assigned only numbers in a body; `known` ones are numbers before it.

    `aliases` are the names of NumPy in the file. A name bound in another way, by a loop for example, is no number: its
    bindings (`counts`) are then more than its assignments. `b, n = x.shape` binds numbers.
    """
    found = set(known)
    stored: dict[str, list[ast.expr | None]] = {}
    for node in (inner for item in body for inner in ast.walk(item)):
        match node:
            case ast.Assign([ast.Name(name)], value):
                stored.setdefault(name, []).append(value)
            case ast.Assign([ast.Tuple(targets)], value) if _is_shape(value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        stored.setdefault(target.id, []).append(ast.Constant(0))
    counts = Counter(node.id for node in stores(body))
    for name, values in stored.items():
        plain = (value and _is_number(value, found, aliases) for value in values)
        if len(values) == counts[name] and all(plain):
            found.add(name)
        else:
            found.discard(name)
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

    def plain(item: ast.expr) -> bool:
        return _is_number(item, known, aliases)

    match value:
        case ast.Constant(inner):
            return isinstance(inner, int | float)
        case ast.Name(name):
            return name in known
        case ast.UnaryOp(_, inner):
            return plain(inner)
        case ast.BinOp(left, _, right):
            return plain(left) and plain(right)
        case ast.Subscript(inner, index):
            return _is_shape(inner) and not isinstance(index, ast.Slice)
        case ast.Attribute(ast.Name(root), name):
            return root in aliases | {"math"} and name in CONSTANTS
        case ast.Call(ast.Name("float" | "int" | "len")):
            return True
        case ast.Call(ast.Attribute(_, "size"), [_]):
            return True
        case ast.Call(ast.Attribute(_, name), []) if name in COUNTS:
            return True
        case ast.Call(ast.Attribute(ast.Name(root), "prod"), [item], []):
            return root in aliases and _is_shape(item)
        case ast.Call(ast.Attribute(ast.Name(root), name), args, []):
            return root in aliases and name in FUNCTIONS and all(map(plain, args))
    return False
