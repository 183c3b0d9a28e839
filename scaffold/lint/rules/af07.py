"""AF07: an intermediate is saved, and a second derivative may be silently wrong.

A value computed in forward is a constant to the second derivative, whose part through it is missing. @once_differentiable, the
fix, makes a second derivative an error instead.

Words: the *saver* is the method that saves, setup_context or else forward; a *root* is the origin of a tensor's memory: a
parameter, a saved tensor, an attribute of ctx ("kept"), or "fresh" if it is newly made; `step` is the statement of an
expression; `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.values import Root
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, once, read_for_shape
from scaffold.lint.saved_values import carries_gradient, has_graph, listed


@for_own("saver", trivial=False)
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield the first tensor computed in forward and saved for backward, but not returned: a second derivative lacks its graph."""
    if facts.function.once_differentiable:
        return  # a second derivative raises
    returned = {
        node.id
        for item in facts.outputs
        for node in item.values or ()
        if isinstance(node, ast.Name)
    }
    for node, step, read in _saved(facts, saver):
        # Autograd knows the graph of an output.
        if isinstance(node, ast.Name) and node.id in returned or _is_mask(facts, read):
            continue
        if _is_made(facts, saver, node, step):
            message = f"intermediate '{ast.unparse(node)}' is a constant to a second derivative, which may be silently wrong; add @once_differentiable"
            yield Found(node, message, once(facts))
            return


def _saved(facts: Facts, saver: Method) -> Iterator[tuple[ast.expr, Step, Root]]:
    """Yield saved tensors, and attributes of ctx read in backward: each as expression, its statement, and how backward reads it."""
    for item in facts.context_calls(saver, "save_for_backward"):
        for position, argument in enumerate(item.call.args):
            yield argument, item.step, Root("saved", element=position)
    backward = facts.function.backward
    read = {
        node.attr
        for node in (ast.walk(backward.node) if backward else ())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    for kept in facts.kept(saver):
        if kept.name in read and not has_graph(facts, saver, kept.step):
            for node in listed(kept.value):
                yield node, kept.step, Root("kept", kept.name)


def _is_mask(facts: Facts, read_root: Root) -> bool:
    """Return whether backward only compares a saved tensor, or makes another of its shape (`zeros_like`): no derivative goes through that.

    `read_root` is the root of its reads in backward: which saved tensor, or which attribute of ctx.
    """
    backward = facts.function.backward
    assert backward is not None
    nodes, values = list(ast.walk(backward.node)), facts.values(backward)
    seen = [part for node in nodes for part in read_for_shape(node, facts.names)]
    seen += [node for node in nodes if isinstance(node, ast.Compare)]
    compared = {id(inner) for node in seen for inner in ast.walk(node)}
    reads = [
        id(node)
        for step in backward.flow.steps
        for node in step.expressions()
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and values.root(node, step) == read_root
    ]
    return bool(reads) and compared.issuperset(reads)


def _is_made(facts: Facts, saver: Method, node: ast.expr, at: Step) -> bool:
    """Return whether a saved value was computed, by differentiable steps, from an input with a gradient; an input itself was not."""
    root = facts.values(saver).root(node, at)
    made = root is not None and (root.origin == "fresh" or root.views != ())
    return made and carries_gradient(facts, saver, node, at)


RULE = Rule(
    id="AF07",
    title="an intermediate is saved, and a second derivative may be silently wrong",
    why=(
        "An intermediate value of forward is a constant to the second derivative "
        "(pytorch#58509, #104040). once_differentiable makes double backward an error; "
        "otherwise compute it again in backward, or return it as an output."
    ),
    bad="""\
class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        scale = torch.rsqrt(x.square().sum())
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale - x * scale**3 * (grad_output * x).sum()
""",
    good="""\
class Norm(Function):
    @staticmethod
    def forward(ctx, x):
        scale = torch.rsqrt(x.square().sum())
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        x, scale = ctx.saved_tensors
        return grad_output * scale - x * scale**3 * (grad_output * x).sum()
""",
    level="advice",
    each=find,
    fixes=True,
)
