"""AF20: a forward that takes ctx and fills it, which no transform of torch.func takes."""

from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """Functions in the combined style."""
    function = facts.function
    if (
        function.style == "combined"
        and function.complete
        and "forward" in function.methods
    ):
        yield Found(
            function.node,
            "forward takes ctx: torch.func refuses it; move what is saved to setup_context",
        )


RULE = Rule(
    id="AF20",
    title="forward and setup_context are one",
    why=(
        "torch.func (grad, vmap, jacrev) refuses a Function whose forward takes ctx; "
        "setup_context serves both worlds."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
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
    each=find,
    default=False,
)
