"""AF14: an output is a mask, and is not marked.

A mask, `(x > 0).float()`, has no gradient, but as a float it requires grad, and everything computed from it is recorded for
nothing. The fix marks it as non-differentiable.

Words: the gradient of an output is the parameter of backward at the same position; `facts` are what is known of one
autograd.Function; `own` are the methods that its class itself defines, as a mistake in an inherited one is reported for the
parent; `marked` are the names passed to a method of ctx such as mark_dirty, None if unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.names import names_in
from scaffold.inspect import Method
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import to_be_marked, value_of
from scaffold.primitives.calls import is_mask


def find(facts: Facts) -> Iterator[Found]:
    """Yield each mask among the outputs; with a fix if it is the only one."""
    return to_be_marked(facts, _masks(facts))


def _masks(facts: Facts) -> Iterator[tuple[ast.expr, Step, str]]:
    """Yield outputs that are comparisons cast to float, not marked, with a gradient backward does not read; each with its return."""
    function = facts.function
    forward, backward = function.forward, function.backward
    marked = facts.marked("mark_non_differentiable")
    if forward is None or backward is None or marked is None:
        return
    if forward not in function.own or not facts.gradients:
        return  # a backward that only raises is left to subclasses
    read = names_in([backward.node])
    for item in facts.outputs:
        for position, node in enumerate(item.values or ()):
            if (
                # In `*grads`, or read: its gradient is used.
                position >= len(backward.positional)
                or backward.positional[position].name in read
            ):
                continue
            name = node.id if isinstance(node, ast.Name) else ""
            if name in marked or not _is_mask(facts, forward, node, item.step):
                continue
            text = ast.unparse(node)
            message = f"output '{text}' is a mask that will require grad: ctx.mark_non_differentiable"
            yield node, item.step, message


def _is_mask(facts: Facts, forward: Method, node: ast.expr, at: Step) -> bool:
    """Return whether a value is a comparison cast to another dtype: `(x > 0).float()`, or a name bound to one."""
    node, _ = value_of(facts, forward, node, at)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    cast = node.func.attr in ("float", "double", "half", "to", "type", "type_as")
    value = node.func.value
    name = torch_call(value, facts.names) or method_call(value, facts.names)
    return cast and (isinstance(value, ast.Compare) or is_mask(name))


RULE = Rule(
    id="AF14",
    title="an output is a mask, and is not marked",
    why=(
        "Cast to a float it requires grad, and everything computed from it is recorded "
        "for nothing."
    ),
    bad="""\
class Keep(Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, grad_output, grad_mask):
        (mask,) = ctx.saved_tensors
        return grad_output * mask
""",
    good="""\
class Keep(Function):
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        ctx.mark_non_differentiable(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, grad_output, grad_mask):
        (mask,) = ctx.saved_tensors
        return grad_output * mask
""",
    level="advice",
    each=find,
    fixes=True,
)
