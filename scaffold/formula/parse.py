"""Parsing: formula text -> graph, by the parser for its kind of text.

`spec` calls it for the forward, and for a backward or a stated gradient that the user gives as text, and `derive` works on
the result; the gradients in the table of primitives are read by it too.

Words: *straight-line* code has no loop; a forward is *kept* whole, as text, if straight-line statements cannot express it,
and is then left to autograd; `scope.kept` tells whether this is allowed (it is for a forward); the `targets` of a backward
are the gradients it has to assign.

In: `Text` and the `Scope` of its names. Out: a `Formula`. Invariant: a forward is kept whole only if straight-line
statements cannot express it. Names are resolved in `statements.py`.
"""

import ast
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from scaffold.formula.desugar import straightened
from scaffold.formula.graph import Formula, Graph
from scaffold.formula.loop_unrolling import unrolled
from scaffold.formula.names import store_of, stored
from scaffold.formula.operators import not_operators, with_functions
from scaffold.formula.optionality import is_none
from scaffold.formula.own_text import own_text
from scaffold.formula.program import program_of
from scaffold.formula.statements import StatementParser
from scaffold.formula.substitution import named
from scaffold.formula.text import Scope, Text
from scaffold.formula.verbatim import VerbatimParser

LOOP = "there is a loop"
COMPREHENSION = "there is a comprehension"
# Syntax that keeps a forward whole, with the reason told to the user.
REASONS: dict[type[ast.AST], str] = {
    ast.For: LOOP,
    ast.While: LOOP,
    ast.ListComp: COMPREHENSION,
    ast.GeneratorExp: COMPREHENSION,
    ast.With: "there is a with statement",
}


def parse(text: Text, scope: Scope, graph: Graph) -> Formula:
    """Return the formula of a text, with its nodes in `graph`; raise all its problems together."""
    formula = _parsed(text, scope, graph)
    return replace(formula, own_text=partial(own_text, text, scope))


def _parsed(text: Text, scope: Scope, graph: Graph) -> Formula:
    """Return the formula of a text read as straight-line statements, or kept verbatim because of a loop.

    Short loops are unrolled first: a loop left over is the reason to keep a text. Names of no operator (`named`) are problems
    of either parser.
    """
    program = program_of(text, scope)
    if scope.targets is not None:
        program = program._replace(body=_assigning(program.body, scope.targets))
    if scope.kept:
        program = program._replace(body=with_functions(program.body, scope.names))
    named = tuple(not_operators(program.body, scope.meanings))
    if scope.kept:
        straight = straightened(unrolled(program.body, scope.names))
        # Straight-line code does not know the elements of a list grown in a branch: the loop stays.
        if any(map(_grows_a_list, straight)):
            straight = straightened(program.body)
        found = _unsupported(straight)
        if found is not None:
            verbatim = VerbatimParser(text, program, scope, graph)
            verbatim.refuse(named)
            return verbatim.kept(REASONS[type(found)], found)
        program = program._replace(body=straight)
    straight_body = StatementParser(text, program, scope, graph)
    straight_body.refuse(named)
    return straight_body.formula()


def _grows_a_list(item: ast.stmt) -> bool:
    """Return whether a statement still grows a list, `ys.append(y)`, since `straightened` left it as it is."""
    match item:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(), name))):
            return name in ("append", "extend", "insert")
        case ast.If(_, body, orelse):
            return any(map(_grows_a_list, (*body, *orelse)))
    return False


def _unsupported(body: Sequence[ast.stmt]) -> ast.AST | None:
    """Return the first node, in reading order, of a loop, comprehension or `with`; None for straight-line maths."""
    nodes = chain.from_iterable(map(ast.walk, body))
    found = (node for node in nodes if type(node) in REASONS)
    return min(found, key=_position, default=None)


def _position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


# --- A backward that returns its gradients: `return grad_output * w, (grad_output * x).sum(0)`.


def _assigning(body: list[ast.stmt], targets: Sequence[str]) -> list[ast.stmt]:
    """Return a backward with its returned values assigned to the gradients (`targets`), in the order of the inputs.

    `return grad_output * w, None` -> `grad_x = grad_output * w`. A backward that assigns the gradients itself stays as it is. A
    returned None belongs to an input without a gradient; if there are as many values as gradients, None is assigned to one.
    """
    last = body[-1] if body else None
    match last:
        case ast.Return(ast.Tuple(items)) | ast.Expr(ast.Tuple(items)):
            not_none = [item for item in items if not is_none(item)]
            # With a None for each input without a gradient there are more values than gradients.
            values = not_none if len(items) != len(targets) else items
        case ast.Return(ast.expr() as value) | ast.Expr(ast.expr() as value):
            values = [value]
        case _:
            return body
    # `return grad_x, grad_w` of locals with these names is a return, too.
    returned_names = {item.id for item in values if isinstance(item, ast.Name)}
    if {*stored(body)} & {*targets} - returned_names:
        return body  # it assigns gradients itself; other returned values are reported later
    # `return grad_x, grad_w`: the body has assigned them, so there is nothing to add.
    if all(_is_name(item, targets) or is_none(item) for item in values):
        return body
    if len(values) != len(targets):
        # One call may return all gradients: `return kernel_backward(grad_output, x, w)`.
        if len(values) > 1 or not isinstance(values[0], ast.Call):
            return body  # a wrong number, reported later
        names: list[ast.expr] = [store_of(name, last) for name in targets]
        made = ast.Assign([ast.Tuple(names, ast.Store())], values[0])
        ast.copy_location(made.targets[0], last)
        return [*body[:-1], ast.copy_location(made, last)]
    found = [
        named(name, value)
        for name, value in zip(targets, values, strict=True)
        if not _is_name(value, (name,))
    ]
    return [*body[:-1], *found]


def _is_name(node: ast.expr, names: Sequence[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names
