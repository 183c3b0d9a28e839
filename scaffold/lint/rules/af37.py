"""AF37: the gradient of an output is dropped.

Everything computed from that output silently gives no gradient; if none is read, the scale of the loss is ignored. The fix marks
the output as non-differentiable.

Words: a value *carries a gradient* if it surely depends, differentiably, on an input with one; a parameter is *variadic* if it
has a star: `*grads`; *given* are the gradients that backward gets; `facts` are what is known of one autograd.Function; `marked`
are the names passed to a method of ctx such as mark_dirty, None if unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.lint.model import Found, Level, Rule
from scaffold.lint.questions import for_own, to_be_marked, value_of
from scaffold.lint.saved_values import carries_gradient

ZEROS = {"new_zeros", "zeros", "zeros_like"}
GRAD = "torch.autograd.grad"  # a tuple of tensors


@for_own("backward", trivial=False)
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield output gradients not read by backward: all of them, or those of differentiable outputs."""
    nodes = [n for n in ast.walk(backward.node) if isinstance(n, ast.Name)]
    read = {node.id for node in nodes if isinstance(node.ctx, ast.Load)}
    given = [p for p in backward.parameters if p.passing in ("positional", "variadic")]
    if given and read.isdisjoint(item.name for item in given):
        yield from _none_read(facts, backward, [item.name for item in given])
        return
    unread = [
        (n, name) for n, name in enumerate(_names(facts, backward)) if name not in read
    ]
    dropped = (found for item in unread for found in _dropped(facts, *item))
    yield from to_be_marked(facts, dropped)


def _none_read(facts: Facts, backward: Method, given: list[str]) -> Iterator[Found]:
    """Yield a finding for a backward that reads none of its gradients (`given` are their names), and returns a tensor.

    It is an error if an output surely depends on an input, and the names do not begin with _; else advice.
    """
    named, meant = ", ".join(map(repr, given)), all(n.startswith("_") for n in given)
    forward = facts.function.forward
    for item in facts.gradients:
        alone = (item.node,) if item.node else ()
        if any(
            _is_made(facts, backward, value, item.step)
            for value in item.values or alone
        ):
            sure = forward is not None and any(
                carries_gradient(facts, forward, value, output.step)
                for output in facts.outputs
                for value in output.values or ()
            )
            message = f"{named} is read nowhere: whatever is done with the output, the gradient is the same; multiply by it"
            level: Level = "error" if sure and not meant else "advice"
            yield Found(item.step.statement, message, level=level)
            return


def _is_made(facts: Facts, backward: Method, node: ast.expr, at: Step) -> bool:
    """Return whether a returned gradient surely is a tensor, other than zeros: backward computes something."""
    value, _ = value_of(facts, backward, node, at)
    name = torch_call(value, facts.names) or method_call(value, facts.names)
    # Zeros say that there is no gradient.
    if name in ZEROS:
        return False
    dotted = facts.names.resolve(value.func) if isinstance(value, ast.Call) else ""
    return dotted == GRAD or facts.values(backward).is_tensor(node, at)


def _names(facts: Facts, backward: Method) -> Iterator[str]:
    """Yield for each output the parameter of backward that gets its gradient; `grads` of `*grads` for all outputs from its place on."""
    count = facts.output_count or 0
    names = [item.name for item in backward.positional]
    yield from names[:count]
    if backward.variadic is not None:
        yield from [backward.variadic.name] * (count - len(names))


def _dropped(
    facts: Facts, position: int, name: str
) -> Iterator[tuple[ast.expr, Step, str]]:
    """Yield the output at a position, if it surely depends on an input and is not marked; `name` is its gradient's in backward."""
    forward, setup = facts.function.forward, facts.function.setup_context
    marked = facts.marked("mark_non_differentiable")
    # setup_context marks outputs under names of its own.
    if forward is None or marked is None or setup is not None and marked:
        return
    for item in facts.outputs:
        value = (item.values or ())[position : position + 1]
        if not value or not carries_gradient(facts, forward, value[0], item.step):
            continue
        text = ast.unparse(value[0])
        if text not in marked:
            message = f"the gradient of output '{text}' ('{name}' of backward) is dropped: use it, or mark the output as non-differentiable"
            yield value[0], item.step, message
            return


RULE = Rule(
    id="AF37",
    title="the gradient of an output is dropped",
    why=(
        "Everything computed from that output silently gives no gradient, or, where none is "
        "read, the scale of a loss, GradScaler's factor and everything behind the "
        "Function are ignored. Use each gradient, or mark the output with "
        "mark_non_differentiable, so that it requires no grad."
    ),
    bad="""\
class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        lse = torch.logsumexp(x, -1, keepdim=True)
        p = torch.exp(x - lse)
        ctx.save_for_backward(p)
        return p, lse

    @staticmethod
    def backward(ctx, grad_p, grad_lse):
        (p,) = ctx.saved_tensors
        return p * (grad_p - (grad_p * p).sum(-1, keepdim=True))
""",
    good="""\
class Softmax(Function):
    @staticmethod
    def forward(ctx, x):
        lse = torch.logsumexp(x, -1, keepdim=True)
        p = torch.exp(x - lse)
        ctx.save_for_backward(p)
        return p, lse

    @staticmethod
    def backward(ctx, grad_p, grad_lse):
        (p,) = ctx.saved_tensors
        return p * (grad_p - (grad_p * p).sum(-1, keepdim=True) + grad_lse)
""",
    level="advice",
    each=find,
    fixes=True,
)
