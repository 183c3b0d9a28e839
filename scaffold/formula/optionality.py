"""Optionality of formula text: values that may be None, and tests for None.

An op may have an input `bias: Tensor | None`; the parser must know where it is read although it may be None.

Words: an *optional* is a name that may be None; it is *present* if it is not None; a test for None *guards* the branch in
which it proves the optional present.

In: expressions, tests and calls, as syntax or as nodes. Out: names that are present or may be None. Invariant: a name is
present only if the test proves it. An optional tensor may be an argument that may be None: for functions of torch, those
documented so; for the user's own functions, all, since nothing is known of them.
"""

import ast

from scaffold.formula.graph import Graph, Node
from scaffold.formula.text import WELL_KNOWN
from scaffold.primitives.calls import optional_tensors

# The optional names known to be present at a place.
Guarded = frozenset[str]


def is_none(value: ast.AST | None) -> bool:
    """Return whether an expression is absent or the literal None."""
    return value is None or isinstance(value, ast.Constant) and value.value is None


def may_be_none(value: Node) -> bool:
    """Return whether an expression may have None for a value by its form: `None`, `x if c else None`, `None or x`."""
    match value:
        case Node("constant", "None"):
            return True
        # `x or None` may be None only if x is false; in doubt it may be.
        case Node("conditional", _, (_, *values)) | Node("boolean", _, values):
            return any(map(may_be_none, values))
    return False


def is_present(graph: Graph, name: str) -> Node:
    """Return the node of the test `name is not None`."""
    return graph.node("compare", "is not", (graph.name(name), graph.constant("None")))


def checked_for_none(test: ast.expr | Node) -> tuple[str, bool] | None:
    """Return the name in `x is None` or `x is not None`, and whether it is present if the test holds; None for other tests.

    It reads both forms of a formula: syntax, and nodes.
    """
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
    """Return the names present if a test is true, and the names present if it is false: for `x is None`, none and `x`."""
    nothing = Guarded()
    match test:
        case ast.UnaryOp(ast.Not(), inner):
            if_true, if_false = guards(inner)
            return if_false, if_true
        case ast.BoolOp(operator, values):
            parts = [guards(value) for value in values]
            # If `a and b` is false, either may be: nothing is proved.
            if isinstance(operator, ast.And):
                return nothing.union(*(if_true for if_true, _ in parts)), nothing
            return nothing, nothing.union(*(if_false for _, if_false in parts))
    checked = checked_for_none(test)
    if checked is None:
        return nothing, nothing
    name, present_if_true = checked
    names = frozenset({name})
    return (names, nothing) if present_if_true else (nothing, names)


# torch.batch_norm(input, weight, bias, running_mean, ...): other parameter order than
# F.batch_norm.
OTHER_ORDER = {"torch.batch_norm", "torch.instance_norm"}


def takes_none(call: ast.Call, values: frozenset[str]) -> set[int]:
    """Return the positions of the arguments of a call at which None is allowed, so an optional may be passed untested.

    `values` are the names of values, so `x.f(None)` is a method of one. A function of the user's accepts None everywhere, as
    nothing is known of it; one of PyTorch where its documentation says so.
    """
    root, callee = call.func, call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    name = root.id if isinstance(root, ast.Name) else None
    if name is not None and name not in values and name not in WELL_KNOWN:
        return set(range(len(call.args) + len(call.keywords)))
    # A builtin, `len(bias)`, or the result of a call, `f(x)(bias)`: None is not known to be allowed.
    if not isinstance(callee, ast.Attribute) or ast.unparse(callee) in OTHER_ORDER:
        return set()
    return _optional_arguments(call, callee.attr, method=name is None or name in values)


def _optional_arguments(call: ast.Call, function: str, *, method: bool) -> set[int]:
    """Return the positions of optional tensors by PyTorch's documentation: 2 for `F.linear(x, w, b)`.

    Arguments by keyword are counted after the others: 2 too for `F.linear(x, w, bias=b)`.
    """
    optional = optional_tensors(function)
    # A method's first parameter is its tensor, so its arguments begin with the second.
    first = 1 if method else 0
    found = {at - first for at, _ in optional if 0 <= at - first < len(call.args)}
    names = {name for _, name in optional}
    return found | {
        position
        for position, keyword in enumerate(call.keywords, len(call.args))
        if keyword.arg in names
    }
