"""AF16: a list, tuple or dict of tensors is an argument.

apply looks for tensors among its arguments, not inside of them: those in a container get no gradient.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import torch_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own
from scaffold.primitives.calls import may_be

CONTAINERS = {
    "list",
    "List",
    "tuple",
    "Tuple",
    "Sequence",
    "Iterable",
    "dict",
    "Dict",
    "Mapping",
}


@for_own("forward", trivial=False)
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield parameters of forward annotated as containers of tensors, or passed whole to torch.stack or torch.cat."""
    joined = {
        node.args[0].id
        for node in ast.walk(forward.node)
        if isinstance(node, ast.Call)
        and may_be(torch_call(node, facts.names), "joins")
        and node.args
        and isinstance(node.args[0], ast.Name)
    }
    for item in forward.positional:
        # After `xs = prepare(xs)` what is joined is no argument any more.
        rebound = item.name in forward.flow.bindings
        if _contains(facts, item.annotation) or (item.name in joined and not rebound):
            message = f"the tensors in '{item.name}' are not tracked by autograd: pass them as *{item.name}"
            yield Found(forward.node, message)


def _contains(facts: Facts, node: ast.expr | None) -> bool:
    """Return whether an annotation is a container of tensors: `list[Tensor]`."""
    if not isinstance(node, ast.Subscript):
        return False
    if facts.names.resolve(node.value).split(".")[-1] not in CONTAINERS:
        return False
    return any(
        facts.names.resolve(inner).split(".")[-1] == "Tensor"
        for inner in ast.walk(node.slice)
    )


RULE = Rule(
    id="AF16",
    title="a list, tuple or dict of tensors is an argument",
    why=(
        "apply looks for tensors among its arguments, not inside of them: those in a "
        "container are not tracked and get no gradient (pytorch#55509)."
    ),
    bad="""\
class Total(Function):
    @staticmethod
    def forward(ctx, tensors: list[torch.Tensor]):
        return torch.stack(tensors).sum(0)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output
""",
    good="""\
class Total(Function):
    @staticmethod
    def forward(ctx, *tensors: torch.Tensor):
        ctx.count = len(tensors)
        return torch.stack(tensors).sum(0)

    @staticmethod
    def backward(ctx, grad_output):
        return (grad_output,) * ctx.count
""",
    level="advice",
    each=find,
)
