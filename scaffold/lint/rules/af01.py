"""AF01: an output is kept on ctx.

An output on ctx is a reference cycle: ctx belongs to the node that made the output, so the memory is held until the garbage
collector runs. `saved_values` finds these; the fix saves the output by save_for_backward, which knows outputs.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own
from scaffold.lint.saved_values import outputs_on_ctx, saved_instead


@for_own("saver", trivial=False)
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield each output kept as an attribute of ctx, with the edits to save it instead."""
    for kept in outputs_on_ctx(facts, saver):
        message = f"output '{ast.unparse(kept.value)}' is kept as ctx.{kept.name}: a reference cycle; use save_for_backward"
        yield Found(kept.step.statement, message, saved_instead(facts, saver, kept))


RULE = Rule(
    id="AF01",
    title="an output is kept on ctx",
    why=(
        "ctx belongs to the node that made the output, so the two refer to each other: "
        "the memory is held until the garbage collector runs (pytorch#25340). "
        "save_for_backward knows outputs and does not."
    ),
    bad="""\
class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        output = torch.exp(x)
        ctx.output = output
        return output

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.output
""",
    good="""\
class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        output = torch.exp(x)
        ctx.save_for_backward(output)
        return output

    @staticmethod
    def backward(ctx, grad_output):
        (output,) = ctx.saved_tensors
        return grad_output * output
""",
    each=find,
    fixes=True,
)
