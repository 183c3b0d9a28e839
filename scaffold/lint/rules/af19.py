"""AF19: gradients are computed whether they are needed or not.

With a frozen weight its gradient is work for nothing; ctx.needs_input_grad[i] tells which gradients are needed.

Words: a gradient is *ready* if backward returns it without computing anything; *given* are those that it computes; `facts` are
what is known of one autograd.Function; a binding is *definite* if it alone reaches a statement, and has an `element` if it is a
part of an unpacked value.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import unsubscripted
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own


@for_own("backward", trivial=False)
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield a backward that computes several gradients and never asks which are needed."""
    if _asks(backward):
        return
    for item in facts.gradients:
        given = [
            value
            for value in item.values or ()
            if not is_none(facts.if_none(value, item.step))
            and not _is_ready(facts, backward, value, item.step)
        ]
        if len(given) > 1:
            message = f"{len(given)} gradients are computed without asking ctx.needs_input_grad"
            yield Found(backward.node, message)
            return


def _asks(backward: Method) -> bool:
    """Return whether backward asks what is needed: it reads ctx.needs_input_grad, or branches on `x.requires_grad` of an input.

    That of an output gradient, a parameter of backward, says nothing about inputs.
    """
    nodes = list(ast.walk(backward.node))
    read = [node for node in nodes if isinstance(node, ast.Attribute)]
    tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp)]
    tested = {id(inner) for test in tests for inner in ast.walk(test)}
    asked = [n.value for n in read if n.attr == "requires_grad" and id(n) in tested]
    return any(node.attr == "needs_input_grad" for node in read) or any(
        ast.unparse(unsubscripted(x)) not in backward.flow.parameters for x in asked
    )


def _is_ready(facts: Facts, backward: Method, node: ast.expr, at: Step) -> bool:
    """Return whether a gradient costs nothing: an argument of backward, an attribute of ctx, or saved by forward."""
    values = facts.values(backward)
    bound = backward.flow.definite(node.id, at) if isinstance(node, ast.Name) else None
    value = bound.value if bound else None
    # `by_x, by_y = ctx.parts`: forward has computed them.
    if isinstance(value, ast.Attribute) and values.is_ctx(value, value.attr):
        return True
    root = values.root(node, at)
    return root is not None and root.origin != "fresh"


RULE = Rule(
    id="AF19",
    title="gradients are computed whether they are needed or not",
    why=(
        "With a frozen weight its gradient is work for nothing; ctx.needs_input_grad[i] "
        "says which are wanted."
    ),
    bad="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight.t(), x.t() @ grad_output
""",
    good="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight.t()
        if ctx.needs_input_grad[1]:
            grad_weight = x.t() @ grad_output
        return grad_x, grad_weight
""",
    level="advice",
    each=find,
)
