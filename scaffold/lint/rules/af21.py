"""AF21: custom_fwd on a forward beside setup_context."""

from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """torch's custom_fwd where forward has no ctx."""
    function = facts.function
    forward = function.forward
    if forward is None or function.setup_context is None or forward not in function.own:
        return
    for name in forward.decorators:
        if name.startswith("torch.") and name.endswith(".custom_fwd"):
            yield Found(
                forward.node,
                "custom_fwd takes the first input for ctx: AttributeError; cast where apply is called",
            )


RULE = Rule(
    id="AF21",
    title="custom_fwd on a forward beside setup_context",
    why=(
        "custom_fwd writes to its first argument, which it takes for ctx; with "
        "setup_context that is an input: AttributeError (pytorch#132388). Cast in the "
        "function that calls apply."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
)
