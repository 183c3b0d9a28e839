"""AF04: backward does not take one gradient for each output."""

from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """A backward that cannot be called with as many gradients as forward has outputs."""
    function = facts.function
    backward, outputs = function.backward, facts.output_count
    if backward is None or outputs is None or facts.is_trivial:
        return
    if not any(method in function.own for method in (function.forward, backward)):
        return
    if any(
        item.passing == "keyword" and item.default is None
        for item in backward.parameters
    ):
        return
    most = len(backward.positional)
    few = outputs > most and backward.variadic is None
    if few or outputs < backward.required:
        takes = f"{most} gradient{'s' * (most != 1)}"
        returns = f"{outputs} value{'s' * (outputs != 1)}"
        message = f"backward takes {takes}, but forward returns {returns}: TypeError"
        yield Found(backward.node, message)


RULE = Rule(
    id="AF04",
    title="backward does not take one gradient for each output",
    why=(
        "The engine calls backward with one gradient for each value that forward "
        "returns: another number of parameters is a TypeError."
    ),
    bad="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        return grad_double * 2 + grad_triple * 3
""",
    each=find,
)
