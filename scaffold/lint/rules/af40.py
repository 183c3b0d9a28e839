"""AF40: a Function has no backward.

Its outputs require grad as soon as an input does, and to differentiate them raises NotImplementedError.

Words: `facts` are what is known of one autograd.Function; a binding is *definite* if it alone reaches a statement, and has an
`element` if it is a part of an unpacked value; `marked` are the names passed to a method of ctx such as mark_dirty, None if
unknown.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.formula.made_tensors import elements_of
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own

DERIVATIVES = ("backward", "vjp", "jvp")
# With symbolic it stands for an operator of ONNX, never differentiated.
OTHER_USES = (*DERIVATIVES, "symbolic")

# Tensors without a fraction, and so without a gradient: `torch.LongTensor([0, 1])`.
INTEGERS = re.compile(r"\b(Bool|Byte|Char|Int|Long|Short)Tensor\(")


@for_own("forward")
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield Functions without a backward, and without a subclass to have one, with an output that would require grad."""
    function, marked = facts.function, facts.marked("mark_non_differentiable")
    if marked is None or not function.complete:
        return
    if any(function.method(name) for name in OTHER_USES):
        return
    if any(function in other.parents for other in facts.module.functions):
        return
    for item in facts.outputs:
        for node in item.values or ():
            name = node.id if isinstance(node, ast.Name) else ""
            if name not in marked and _has_gradient(facts, forward, node, item.step):
                message = f"{function.name} has no backward: output '{ast.unparse(node)}' requires grad, and to differentiate it raises NotImplementedError; write one, or mark the output as non-differentiable"
                yield Found(function.node, message)
                return


def _has_gradient(facts: Facts, forward: Method, node: ast.expr, at: Step) -> bool:
    """Return whether an output is surely a tensor, and has neither integers nor booleans."""
    if isinstance(node, ast.Name):
        bound = forward.flow.definite(node.id, at)
        if bound is None or bound.value is None or bound.element is not None:
            return False  # several values reach it, or it is a part of one
        return _has_gradient(
            facts, forward, bound.value, forward.flow.steps[bound.order]
        )
    bindings = forward.flow.bindings.items()
    sole = {name: b[0] for name, b in bindings if len(b) == 1 and b[0].element is None}
    known = {name: bound.value for name, bound in sole.items() if bound.value}
    # `elements_of` gives "" for floats.
    discrete = elements_of(node, known) or INTEGERS.search(ast.unparse(node))
    return facts.values(forward).is_tensor(node, at) and not discrete


RULE = Rule(
    id="AF40",
    title="a Function has no backward",
    why=(
        "Its outputs require grad as soon as an input does, and backward then raises: "
        "you must implement either the backward or vjp method. What has no gradient is "
        "marked with mark_non_differentiable, or is a plain function."
    ),
    bad="""\
class Nearest(Function):
    @staticmethod
    def forward(ctx, points, centers):
        distances = torch.cdist(points, centers)
        index = distances.argmin(-1)
        return index, distances.amin(-1)
""",
    good="""\
class Nearest(Function):
    @staticmethod
    def forward(ctx, points, centers):
        distances = torch.cdist(points, centers)
        index = distances.argmin(-1)
        least = distances.amin(-1)
        ctx.mark_non_differentiable(index, least)
        return index, least
""",
    level="advice",
    each=find,
)
