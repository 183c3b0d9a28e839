"""AF21: custom_fwd on a forward beside setup_context.

custom_fwd notes on its first argument, which it takes for ctx, whether autocast is on; beside setup_context that is an input, and
custom_bwd looks for the note on ctx: an AttributeError. The fix writes the note in setup_context.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Method
from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own, inserted_first, is_ctx, of_torch

READ = "_fwd_used_autocast"  # the attribute of ctx that custom_bwd reads first


@for_own("forward")
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield forwards with torch's custom_fwd and no ctx; advice if no custom_bwd reads the attributes of ctx it sets."""
    backward, setup = facts.function.backward, facts.function.setup_context
    decorator = of_torch(forward, "custom_fwd")
    if setup is None or decorator is None or _notes(facts, setup):
        return
    reads = backward is not None and of_torch(backward, "custom_bwd") is not None
    edits = _noted(facts, setup, reads, *decorator)
    message = "custom_fwd takes the first input for ctx and notes on it whether autocast is on"
    if reads and not _hands_on(setup):
        message += ", where custom_bwd does not find it: AttributeError"
        yield Found(forward.node, message, edits)
    else:
        yield Found(forward.node, message, edits, "advice")


def _notes(facts: Facts, setup: Method) -> bool:
    """Return whether setup_context sets the attribute of ctx read by custom_bwd (READ), or has a decorator perhaps doing so."""
    known = ("torch.", "staticmethod", "classmethod")
    foreign = any(not name.startswith(known) for name in setup.decorators)
    return foreign or any(kept.name == READ for kept in facts.kept(setup))


def _hands_on(setup: Method) -> bool:
    """Return whether setup_context passes ctx to another function, which may set its attributes."""
    return any(
        is_ctx(part, setup)
        for node in ast.walk(setup.node)
        if isinstance(node, ast.Call)
        for part in (*node.args, *(item.value for item in node.keywords))
    )


def _noted(
    facts: Facts, setup: Method, reads: bool, name: str, decorator: ast.expr
) -> tuple[Edit, ...]:
    """Return the edits to set in setup_context what custom_bwd reads, instead of custom_fwd (`name` and its expression, `decorator`).

    Without a custom_bwd (`reads` is False) the only edit removes custom_fwd. () if custom_fwd also casts, or if the device type is unknown.
    """
    if setup not in facts.function.own or setup.ctx is None:
        return ()
    removed = Edit("undecorate", span(decorator))
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    # Without custom_fwd nothing would do what `cast_inputs` does.
    if any(item.arg != "device_type" for item in keywords):
        return ()
    if not reads:
        return (removed,)
    # The new statements read `torch`.
    if facts.names.imported.get("torch") != "torch":
        return ()
    text = facts.module.text
    given = [ast.get_source_segment(text, item.value) for item in keywords]
    device = given[0] if given else '"cuda"'
    # Only the custom_fwd of torch.cuda.amp says its device by its name.
    if not given and not name.startswith("torch.cuda."):
        return ()
    return (
        removed,
        *inserted_first(
            setup, f"{setup.ctx}._dtype = torch.get_autocast_dtype({device})"
        ),
        *inserted_first(
            setup, f"{setup.ctx}.{READ} = torch.is_autocast_enabled({device})"
        ),
    )


RULE = Rule(
    id="AF21",
    title="custom_fwd on a forward beside setup_context",
    why=(
        "custom_fwd writes to its first argument, which it takes for ctx; with "
        "setup_context that is an input: an AttributeError where it is not a tensor, and in "
        "custom_bwd, which reads ctx (pytorch#132388). Cast in the function that calls "
        "apply, or note in setup_context what custom_bwd reads."
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
    @torch.amp.custom_bwd(device_type="cuda")
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
    fixes=True,
)
