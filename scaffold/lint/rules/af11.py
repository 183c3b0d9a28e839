"""AF11: an output gradient is changed in place.

The tensor is the caller's: another branch of the graph, or the user, reads it afterwards and gets the changed values. The fix
clones it at the top of backward.

Words: a *root* is the origin of a tensor's memory, here a parameter of backward; it is `sure` unless a cast or copy in between,
`grad.float()`, may have made new memory; `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, inserted_first


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the first change in place of each incoming gradient, under any name of its memory; advice if that may be a copy."""
    gradients, values, seen = (
        # One with a default may be no gradient: beyond the outputs it keeps its default.
        {item.name for item in backward.positional if item.default is None},
        facts.values(backward),
        set(),
    )
    for change in facts.changes(backward):
        root = values.possible_root(change.target, change.step)
        if root is None or root.origin != "parameter" or root.name not in gradients:
            continue
        if root.name in seen:
            continue
        seen.add(root.name)
        message = f"'{root.name}' is changed in place ({change.how}): it is the caller's tensor; clone it first"
        if root.sure:
            copied = inserted_first(backward, f"{root.name} = {root.name}.clone()")
            yield Found(change.node, message, copied)
        else:
            text = ast.unparse(change.target)
            message = f"'{text}' may still be the caller's tensor '{root.name}', and is changed in place ({change.how}); clone it first"
            yield Found(change.node, message, level="advice")


RULE = Rule(
    id="AF11",
    title="an output gradient is changed in place",
    why=(
        "The tensor is the caller's: another branch of the graph, or the user, reads it "
        "afterwards and gets the changed values (pytorch#81417)."
    ),
    bad="""\
class Relu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_output[x < 0] = 0
        return grad_output
""",
    good="""\
class Relu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[x < 0] = 0
        return grad_input
""",
    each=find,
    fixes=True,
)
