"""AF38: backward takes away what a second one needs.

Backward may run again over the same graph (retain_graph=True, gradcheck): an attribute of ctx that the first run set to None, or
a graph that it freed, fails in the second.

Words: a value is *kept* by `ctx.name = value`; the *saver* is the method that saves, setup_context or else forward; forward has
*a graph of its own* if it computes after torch.enable_grad; `facts` are what is known of one autograd.Function; a binding is
*definite* if it alone reaches a statement, and has an `element` if it is a part of an unpacked value; `guards` are the branches
around a statement.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, is_ctx
from scaffold.lint.saved_values import has_graph, listed

RETAINS = {"retain_graph", "create_graph", None}  # None: `**options`, which are unknown


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield a finding for the attributes of ctx that backward clears, and one for each graph of forward that it frees."""
    saver = facts.function.saver
    if saver is None:
        return
    kept = {item.name for item in facts.kept(saver)}
    lost: dict[str, ast.stmt] = {}
    for step in backward.flow.steps:
        for attribute in _cleared(backward, step):
            if attribute in kept and _is_missed(backward, attribute, step):
                lost[attribute] = step.statement
        for node in step.expressions():
            root = _differentiated(facts, node)
            if root is not None and _is_of_forward(facts, root, step):
                message = "the graph that forward kept is freed: a second backward (retain_graph=True) raises a RuntimeError; pass retain_graph=True"
                yield Found(node, message, level="error")
    if lost:
        named = ", ".join(f"ctx.{attribute}" for attribute in lost)
        message = f"taken away by backward: {named}; a second backward (retain_graph=True) fails"
        yield Found(next(iter(lost.values())), message)


def _cleared(backward: Method, step: Step) -> Iterator[str]:
    """Yield attributes of ctx deleted or set to None by a statement under no branch, or under tests of needs_input_grad alone."""
    statement = step.statement
    asked = (getattr(guard.node, "test", None) for guard in step.guards)
    if not all(t is not None and "needs_input_grad" in ast.unparse(t) for t in asked):
        return
    targets: list[ast.expr] = []
    if (
        isinstance(statement, ast.Delete)
        or isinstance(statement, ast.Assign)
        and is_none(statement.value)
    ):
        targets = statement.targets
    for target in targets:
        if isinstance(target, ast.Attribute) and is_ctx(target.value, backward):
            yield target.attr


def _is_missed(backward: Method, attribute: str, at: Step) -> bool:
    """Return whether backward reads an attribute before it clears it, and never compares it with None: the second one fails."""
    reads = [
        (step.order, node)
        for step in backward.flow.steps
        for node in step.expressions()
        if isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Load)
        and is_ctx(node.value, backward)
    ]
    asked = {
        id(inner)
        for node in ast.walk(backward.node)
        if isinstance(node, ast.Compare) and any(map(is_none, node.comparators))
        for inner in ast.walk(node)
    }
    guarded = any(id(node) in asked for _, node in reads)
    return not guarded and any(order < at.order for order, _ in reads)


def _differentiated(facts: Facts, node: ast.AST) -> ast.expr | None:
    """Return y of `torch.autograd.grad(y, ...)` or `y.backward()`, whose graph the call frees; None if it may retain the graph."""
    if not isinstance(node, ast.Call) or RETAINS & {k.arg for k in node.keywords}:
        return None
    dotted = facts.names.resolve(node.func)
    if dotted in ("torch.autograd.grad", "torch.autograd.backward") and node.args:
        # Of several y, `grad([y, z], ...)`, one is enough: the graph of each is freed.
        return listed(node.args[0])[0] if listed(node.args[0]) else None
    # The second argument of `y.backward` is retain_graph.
    if method_call(node, facts.names) == "backward" and len(node.args) < 2:
        return node.func.value if isinstance(node.func, ast.Attribute) else None
    return None


def _is_of_forward(facts: Facts, node: ast.expr, at: Step) -> bool:
    """Return whether a tensor of backward was kept by forward with its graph: on ctx, or as a saved tensor.

    `element` is its position among several kept or saved ones; `at` is the statement that reads it.
    """
    backward, saver = facts.function.backward, facts.function.saver
    assert backward is not None and saver is not None
    element: object = 0  # of `ctx.y = y`: its only value
    if isinstance(node, ast.Name):
        bound = backward.flow.definite(node.id, at)
        if bound is None or bound.value is None or bound.starred:
            return False  # several values reach it, or an unknown one
        node, element = bound.value, bound.element or 0
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        element = node.slice.value
        node = node.value
    if not isinstance(node, ast.Attribute) or not is_ctx(node.value, backward):
        return False
    kept = [item for item in facts.kept(saver) if item.name == node.attr]
    held = [(listed(item.value), item.step) for item in kept]
    if node.attr == "saved_tensors":
        calls = facts.context_calls(saver, "save_for_backward")
        held = [(item.call.args, item.step) for item in calls]
    if len(held) != 1:
        return False  # kept in two branches: which value is read is unknown
    values, step = held[0]
    if not isinstance(element, int) or not 0 <= element < len(values):
        return False
    return _has_own_graph(facts, saver, values[element], step)


def _has_own_graph(facts: Facts, saver: Method, node: ast.expr, at: Step) -> bool:
    """Return whether forward recorded, after enable_grad, how the value is made; a detached one starts a graph, and has none."""
    if not isinstance(node, ast.Name) or not has_graph(facts, saver, at):
        return False
    bound = saver.flow.definite(node.id, at)
    value = bound.value if bound else None
    # Without a value nothing is known: it counts as a leaf.
    leaf = method_call(value, facts.names) if value else "detach"
    return leaf not in ("detach", "requires_grad_")


RULE = Rule(
    id="AF38",
    title="backward takes away what a second one needs",
    why=(
        "Backward may run again over the same graph: retain_graph=True, one gradient at "
        "a time, gradcheck. PyTorch itself frees saved tensors when that is over, and "
        "says so; an attribute of ctx that is None by then, or a graph of one's own that "
        "is freed, fails in the middle."
    ),
    bad="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.cache = x, w
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.cache
        ctx.cache = None
        return grad_output @ w.t(), x.t() @ grad_output
""",
    good="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        return grad_output @ w.t(), x.t() @ grad_output
""",
    level="advice",
    each=find,
)
