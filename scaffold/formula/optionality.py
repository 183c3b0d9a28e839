"""Optionality of formula text: values that may be None, and tests for None.

In: expressions, tests and calls, as syntax or as nodes. Out: names that are present or may be None. Invariant: a name is
present only if the test proves it. An optional tensor may be an argument that may be None: for functions of torch, those
documented so; for the user's own functions, all, since nothing is known of them.
"""

import ast

from scaffold.formula.graph import Graph, Node
from scaffold.formula.text import WELL_KNOWN
from scaffold.primitives.calls import optional_tensors

# Optional names known to be present, or known to be None.
Guarded = frozenset[str]


def is_none(value: ast.AST | None) -> bool:
    """Return whether an expression is absent or the literal None."""
    return value is None or isinstance(value, ast.Constant) and value.value is None


def may_be_none(value: Node) -> bool:
    """Return whether an expression has None for a value: `None`, `x if c else None`."""
    match value:
        case Node("constant", "None"):
            return True
        case Node("conditional", _, (_, *values)) | Node("boolean", _, values):
            return any(map(may_be_none, values))
    return False


def is_present(graph: Graph, name: str) -> Node:
    """Return the test `name is not None`."""
    return graph.node("compare", "is not", (graph.name(name), graph.constant("None")))


def checked_for_none(test: ast.expr | Node) -> tuple[str, bool] | None:
    """Return the name in `x is None` or `x is not None`, and whether it is present if the test holds; None for other tests."""
    match test:
        case ast.Compare(
            ast.Name(name), [ast.Is() | ast.IsNot() as operator], [ast.Constant(None)]
        ):
            return name, isinstance(operator, ast.IsNot)
        case Node(
            "compare",
            "is" | "is not" as label,
            (Node("name", name), Node("constant", "None")),
        ):
            return name, label == "is not"
    return None


def guards(test: ast.expr) -> tuple[Guarded, Guarded]:
    """Return the names present if a test is true, and the names present if it is false."""
    nothing = Guarded()
    match test:
        case ast.UnaryOp(ast.Not(), inner):
            there, gone = guards(inner)
            return gone, there
        case ast.BoolOp(operator, values):
            parts = [guards(value) for value in values]
            # If `a and b` is false, either may be: nothing is proved.
            if isinstance(operator, ast.And):
                return nothing.union(*(there for there, _ in parts)), nothing
            return nothing, nothing.union(*(gone for _, gone in parts))
    name, present = checked_for_none(test) or ("", False)
    settled = frozenset({name} - {""})
    return (settled, nothing) if present else (nothing, settled)


# torch.batch_norm(input, weight, bias, running_mean, ...): other parameter order than
# F.batch_norm.
OTHER_ORDER = {"torch.batch_norm", "torch.instance_norm"}


def takes_none(call: ast.Call, values: frozenset[str]) -> set[int]:
    """Return the positions of arguments at which None is allowed.

    `values` are names of values, so `x.f(None)` is a method of one. A function of a module of the user's accepts None
    everywhere.
    """
    root, callee = call.func, call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    name = root.id if isinstance(root, ast.Name) else None
    if name is not None and name not in values and name not in WELL_KNOWN:
        return set(range(len(call.args) + len(call.keywords)))
    if not isinstance(callee, ast.Attribute) or ast.unparse(callee) in OTHER_ORDER:
        return set()
    return _optional_arguments(call, callee.attr, method=name is None or name in values)


def _optional_arguments(call: ast.Call, function: str, *, method: bool) -> set[int]:
    """Return the positions of optional tensors by PyTorch's documentation: 2 for `F.linear(x, w, b)`.

    Arguments by keyword are counted after the others: 2 too for `F.linear(x, w, bias=b)`.
    """
    optional = optional_tensors(function)
    # A method's first parameter is its tensor, so its arguments begin with the second.
    plain = range(method, method + len(call.args))
    found = {at - method for at, _ in optional if at in plain}
    names = {name for _, name in optional}
    return found | {
        position
        for position, keyword in enumerate(call.keywords, len(call.args))
        if keyword.arg in names
    }
