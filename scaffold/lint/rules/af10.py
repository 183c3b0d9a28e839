"""AF10: an input is marked dirty and there are several outputs.

Where the input is a view of another tensor, apply raises: a Function that changes a view must return that one tensor.

Words: `facts` are what is known of one autograd.Function; `own` are the methods that its class itself defines, as a mistake in
an inherited one is reported for the parent; a Function is *trivial* if its backward gives no gradient; `marked` are the names
passed to a method of ctx such as mark_dirty, None if unknown.
"""

from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """Yield mark_dirty of an input with a gradient, in a Function of several outputs; one finding for each call."""
    if facts.output_count is None or facts.output_count < 2 or facts.is_trivial:
        return  # trivial: backward gives no gradient
    constant = facts.marked("mark_non_differentiable")
    if constant is None:
        return
    seen: set[str] = set()
    for method in facts.function.own:  # an inherited one is reported for the parent
        for item in facts.context_calls(method, "mark_dirty"):
            # for a tensor without a gradient, such as a counter, torch does not check for a view
            for name in sorted(item.names - constant - seen):
                if facts.has_gradient(name):
                    message = f"input '{name}' is changed in place and there are {facts.output_count} outputs: RuntimeError where it is a view"
                    yield Found(item.call, message)
                    seen.add(name)
                    break


RULE = Rule(
    id="AF10",
    title="an input is marked dirty and there are several outputs",
    why=(
        "Where the input is a view of another tensor, apply raises: a Function that "
        "changes a view in place must return that one tensor."
    ),
    bad="""\
class Pair(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, x.sum()

    @staticmethod
    def backward(ctx, grad_output, grad_sum):
        return (grad_output + grad_sum) * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
)
