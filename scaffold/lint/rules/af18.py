"""AF18: backward leaves autograd, and is not once differentiable.

.data, .detach(), .item(), .numpy() and no_grad cut the graph of the gradient, so a second derivative is silently wrong.
@once_differentiable, the fix, makes it an error.

Words: a *cut* is such an expression; a node is *aside* if its value reaches no gradient, so a cut there does no harm; `facts`
are what is known of one autograd.Function; a binding is *definite* if it alone reaches a statement, and has an `element` if it
is a part of an unpacked value; the *saver* is the method that saves, setup_context or else forward.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Method
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.values import is_metadata
from scaffold.inspect.vocabulary import creates
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import (
    behind_results,
    detaches,
    for_own,
    once,
    read_for_shape,
    value_of,
)

CUTS = {"detach", "item", "numpy", "tolist", "detach_"}


@for_own("backward", trivial=False)
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the first cut of the graph in backward, as `x.detach()`, on the way to a gradient.

    If forward detaches too, detach in backward is accepted: it is a constant there as well.
    """
    if facts.function.once_differentiable:
        return
    numbers = {f"{name}.item()" for name in _numbers(facts, backward)}
    aside = set(map(id, _aside(facts, backward)))
    for node in _computing(backward.node, aside):
        what = _cut(facts, node)
        if what and ast.unparse(node) not in numbers:
            message = f"{what} in a backward that is not @once_differentiable: a second derivative may be silently wrong"
            yield Found(node, message, once(facts))
            return


def _aside(facts: Facts, backward: Method) -> Iterator[ast.AST]:
    """Yield nodes of backward whose values reach no gradient, so a cut in them does no harm.

    They are statements behind no result, `y` in `torch.zeros_like(y)`, and saved state, as in `running.data.copy_(mean)`.
    """
    behind = {id(step.statement) for step in behind_results(facts, backward)}
    for step in backward.flow.steps:
        if behind.isdisjoint(map(id, ast.walk(step.statement))):
            yield step.statement
    for node in ast.walk(backward.node):
        yield from read_for_shape(node, facts.names)
    for change in facts.changes(backward):
        root = facts.values(backward).root(change.target, change.step)
        if root and root.origin in ("saved", "kept"):
            yield change.target


def _computing(node: ast.AST, aside: set[int]) -> Iterator[ast.AST]:
    """Yield the nodes below one whose values may reach a gradient; `aside` are the ids of nodes reaching none.

    Tests, blocks that end in raise, and sizes are left out, too.
    """
    if is_metadata(node) or id(node) in aside:
        return  # a size is `x.data.shape[0]`
    yield node
    for name, value in ast.iter_fields(node):
        parts = value if isinstance(value, list) else [value]
        if name == "test" or (parts and isinstance(parts[-1], ast.Raise)):
            continue
        for part in parts:
            if isinstance(part, ast.AST):
                yield from _computing(part, aside)


def _numbers(facts: Facts, backward: Method) -> Iterator[str]:
    """Yield the names in backward of saved tensors made of plain numbers, as `torch.tensor(dt)`: they have no derivative to lose."""
    saver, flow = facts.function.saver, backward.flow
    saved = facts.context_calls(saver, "save_for_backward") if saver else ()
    if saver is None or len(saved) != 1 or saved[0].starred:
        return
    for name, (bound, *others) in flow.bindings.items():
        at = bound.element
        # Only a name bound once, by unpacking, at a sure position.
        if others or bound.starred or at is None or bound.value is None:
            continue
        given = saved[0].call.args[at : at + 1]
        unpacks = facts.values(backward).is_saved(bound.value, flow.steps[bound.order])
        if unpacks and any(_is_made(facts, saver, x, saved[0].step) for x in given):
            yield name


def _is_made(facts: Facts, saver: Method, node: ast.expr, at: Step) -> bool:
    """Return whether forward creates a tensor, under a name too, without another one's values."""
    node, at = value_of(facts, saver, node, at)
    if not isinstance(node, ast.Call):
        return False
    if facts.names.resolve(node.func) == "torch.autograd.Variable" and node.args:
        return _is_made(facts, saver, node.args[0], at)
    return creates(torch_call(node, facts.names) or method_call(node, facts.names))


def _cut(facts: Facts, node: ast.AST) -> str:
    """Return how an expression cuts a tensor off the graph: `.data`, `.detach()`; "" if it does not."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        # `torch.utils.data` is a module.
        of_torch = facts.names.resolve(node).startswith("torch.")
        return ".data" if node.attr == "data" and not of_torch else ""
    if isinstance(node, ast.Call):
        method = method_call(node, facts.names)
        if method == "detach" and detaches(facts):
            return ""  # to the true second derivative, too, it is a constant
        # With arguments it may be another object's: `table.item(0, 0)`.
        if method in CUTS and not node.args:
            return f".{method}()"
        if facts.names.resolve(node.func) == "torch.no_grad":
            return "torch.no_grad()"
    return ""


RULE = Rule(
    id="AF18",
    title="backward leaves autograd, and is not once differentiable",
    why=(
        ".data, .detach(), .item(), .numpy() and no_grad cut the graph of the gradient: "
        "a second derivative is silently wrong. Say @once_differentiable, and it is an "
        "error."
    ),
    bad="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x.detach()
""",
    good="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x
""",
    level="advice",
    each=find,
    fixes=True,
)
