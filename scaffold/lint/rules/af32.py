"""AF32: backward waits for gradients of outputs that do not exist.

backward gets one gradient for each output of forward; a further parameter keeps its default, so what it should contribute is
missing.

Words: `facts` are what is known of one autograd.Function.
"""

from collections.abc import Iterator

from scaffold.formula.names import names_in
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own


@for_own("backward", trivial=False)
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield a backward that reads a parameter beyond the gradients of the outputs: it has its default in every call."""
    outputs = facts.output_count
    if outputs is None:
        return
    read = names_in([backward.node])
    for item in backward.positional[outputs:]:
        if item.default is not None and item.name in read:
            returns = f"{outputs} value{'s' * (outputs != 1)}"
            yield Found(
                backward.node,
                f"'{item.name}' is never filled: forward returns {returns}",
            )


RULE = Rule(
    id="AF32",
    title="backward waits for gradients of outputs that do not exist",
    why=(
        "backward gets one gradient for each output of forward; a further parameter "
        "with a default keeps the default, so what it should contribute is silently "
        "missing."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output, grad_other=0):
        return grad_output * 2 + grad_other
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
)
