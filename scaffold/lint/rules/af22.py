"""AF22: a Function defines jvp."""

from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """Functions with a jvp and a backward of their own."""
    function = facts.function
    if "jvp" in function.methods and "backward" in function.methods:
        yield Found(
            function.methods["jvp"].node,
            "jvp makes torch.compile(fullgraph=True) fail; define it in a subclass",
        )


RULE = Rule(
    id="AF22",
    title="a Function defines jvp",
    why=(
        "torch.compile(fullgraph=True) fails on a Function that defines jvp where an "
        "input needs grad. Put it into a subclass that is used outside of compiled "
        "code."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    level="advice",
    each=find,
)
