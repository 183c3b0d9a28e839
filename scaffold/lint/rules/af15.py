"""AF15: gradients are not materialized, and None is not looked for.

After set_materialize_grads(False) the gradient of an output that nobody used arrives as None, and arithmetic on it is a TypeError.
The fix returns early for None, or removes the setting.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own, inserted_first


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the first use as a tensor of each output gradient that may be None, and is never compared with it.

    With one output it is advice: its gradient is rarely None. With several, an unused output's is.
    """
    if facts.materializes:
        return
    nodes = list(ast.walk(backward.node))
    if any(isinstance(node, ast.comprehension | ast.For) for node in nodes) and _asks(
        nodes, None
    ):
        return  # a loop tests all of them
    several = facts.output_count is not None and facts.output_count > 1
    for item in backward.positional:
        # Bound again, it may have been filled: `g, h = zeros_for_none(g, h)`.
        if _asks(nodes, item.name) or item.name in backward.flow.bindings:
            continue
        used = [node for node in nodes if _uses(node, item.name)]
        if used:
            message = (
                f"'{item.name}' may be None (set_materialize_grads is False): guard it"
            )
            edits = (
                _materialized(facts) if several else _guard(facts, backward, item.name)
            )
            yield Found(used[0], message, edits, None if several else "advice")


def _asks(nodes: list[ast.AST], name: str | None) -> bool:
    """Return whether a name is compared with None, or stands in a test, in some code (`nodes`).

    For the name None: whether anything is compared with None.
    """
    for node in nodes:
        if isinstance(node, ast.Compare) and any(map(is_none, node.comparators)):
            left = node.left.id if isinstance(node.left, ast.Name) else ""
            if name is None or left == name:
                return True
        test = getattr(node, "test", None)
        for inner in ast.walk(test) if test is not None and name else ():
            if isinstance(inner, ast.Name) and inner.id == name:
                return True
    return False


def _uses(node: ast.AST, name: str) -> bool:
    """Return whether a node raises if the name is None: an operand, or the owner of an attribute or index."""
    if isinstance(node, ast.BinOp):
        sides: list[ast.expr] = [node.left, node.right]
    elif isinstance(node, ast.Attribute | ast.Subscript):
        sides = [node.value]
    else:
        return False
    return any(isinstance(side, ast.Name) and side.id == name for side in sides)


def _guard(facts: Facts, backward: Method, name: str) -> tuple[Edit, ...]:
    """Return the edit to begin backward with `if grad is None: return None, ...`.

    There is one None for each input; () if their number may vary.
    """
    if any(item.passing != "positional" for item in facts.inputs):
        return ()
    nothing = ", ".join(["None"] * max(len(facts.inputs), 1))
    return inserted_first(backward, f"if {name} is None:\n    return {nothing}")


def _materialized(facts: Facts) -> tuple[Edit, ...]:
    """Return the edit to remove the only set_materialize_grads call: then gradients of unused outputs are zeros, not None."""
    calls = [
        item
        for method in facts.function.own
        for item in facts.context_calls(method, "set_materialize_grads")
    ]
    if len(calls) != 1 or not isinstance(calls[0].step.statement, ast.Expr):
        return ()
    return (Edit("remove", span(calls[0].step.statement)),)


RULE = Rule(
    id="AF15",
    title="gradients are not materialized, and None is not looked for",
    why=(
        "With set_materialize_grads(False) the gradient of an output that nobody used "
        "arrives as None: arithmetic on it is a TypeError."
    ),
    bad="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        return grad_double * 2 + grad_triple * 3
""",
    good="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        grad_x = None
        if grad_double is not None:
            grad_x = grad_double * 2
        if grad_triple is not None:
            grad_x = grad_triple * 3 if grad_x is None else grad_x + grad_triple * 3
        return grad_x
""",
    each=find,
    fixes=True,
)
