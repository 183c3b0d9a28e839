"""AF02: an input or an intermediate tensor is kept on ctx.

A tensor on ctx escapes the version check, so a later change in place gives a silently wrong gradient, and is not freed after
backward. `saved_values` finds these; the fix saves the tensor by save_for_backward.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own
from scaffold.lint.saved_values import let_go, saved_instead, tensors_on_ctx


@for_own("saver", trivial=False)
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield attributes of ctx that hold tensors other than outputs, with the edits to save these."""
    for kept, parts in tensors_on_ctx(facts, saver):
        several = "s" * (len(parts) > 1)
        named = ", ".join(f"'{ast.unparse(part)}'" for part in parts)
        lost = "no version check"
        if not let_go(facts, kept.name):
            lost = f"not freed after backward, and {lost}"
        message = f"tensor{several} {named} kept as ctx.{kept.name}: {lost}; use save_for_backward"
        yield Found(kept.step.statement, message, saved_instead(facts, saver, kept))


RULE = Rule(
    id="AF02",
    title="an input or an intermediate tensor is kept on ctx",
    why=(
        "It escapes the version check, so a later change in place gives a silently "
        "wrong gradient, and the hooks for saved tensors, so that checkpointing and "
        "offloading do not see it. Saved tensors are freed as backward runs, attributes "
        "of ctx are not."
    ),
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.x = x
        return torch.mul(x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output * ctx.x
""",
    good="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        return torch.mul(x, weight)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return None, grad_output * x
""",
    level="advice",
    each=find,
    fixes=True,
)
