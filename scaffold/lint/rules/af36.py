"""AF36: backward returns a number as a gradient.

PyTorch takes a tensor or None, and raises a RuntimeError for anything else. The fix writes None for 0.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own, never_differentiable, value_of


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield gradients that are numbers by their text; the fix for 0 is None."""
    if never_differentiable(facts):
        return
    for item in facts.gradients:
        alone = (item.node,) if item.node else ()
        for value in item.values or alone:
            known, _ = value_of(facts, backward, value, item.step)
            if _is_number(known, facts):
                message = f"{ast.unparse(value)} is not a tensor: RuntimeError; a gradient is a tensor or None"
                none = (Edit("replace", span(value), "None"),)
                yield Found(value, message, none if _is_zero(value) else ())


def _is_number(node: ast.expr, facts: Facts) -> bool:
    """Return whether an expression is surely a number: a literal, `float(...)`, `x.item()`."""
    match node:
        case ast.UnaryOp(ast.USub() | ast.UAdd(), inner):
            return _is_number(inner, facts)
        case ast.Constant(value):
            return isinstance(value, int | float | complex)
        case ast.Call():
            python = facts.names.resolve(node.func) in ("float", "int", "bool", "len")
            return python or method_call(node, facts.names) == "item"
    return False


def _is_zero(node: ast.expr) -> bool:
    """Return whether an expression is the literal 0: no gradient is meant."""
    return isinstance(node, ast.Constant) and node.value == 0


RULE = Rule(
    id="AF36",
    title="backward returns a number as a gradient",
    why=(
        "PyTorch takes a tensor or None and raises for anything else, of an input that "
        "has no gradient as well."
    ),
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, 0
""",
    good="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
""",
    each=find,
    fixes=True,
)
