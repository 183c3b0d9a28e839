"""AF08: an input is changed in place without mark_dirty.

Without mark_dirty autograd does not know that the input has another value: its check against wrong gradients does not see the
change. The fix marks it.

Words: a *root* is the origin of a tensor's memory, here a parameter, with the `views` taken of it; it is `sure` unless a cast
or copy in between, `x.float()`, may have made new memory; `facts` are what is known of one autograd.Function; `guards` are the
branches around a statement; `marked` are the names passed to a method of ctx such as mark_dirty, None if unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own


@for_own("forward", trivial=False)
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield inputs with a gradient, changed in place and not marked dirty; advice if a copy may be changed, or no gradient is sure."""
    dirty = facts.marked("mark_dirty")
    if dirty is None:
        return
    inputs, values = {item.name for item in forward.positional}, facts.values(forward)
    marked, seen = {*dirty, *_aliases(facts)}, set()
    for change in facts.changes(forward):
        if change.how == ".set_()":
            continue  # it then has other memory; no values were changed
        root = values.possible_root(change.target, change.step)
        # Not sure: `n += 1` may be of a number.
        if root is None or root.origin != "parameter" or not change.sure:
            continue
        if "data" in root.views:
            continue  # autograd does not see the change
        if root.name not in inputs or root.name in marked or root.name in seen:
            continue
        gradient = facts.has_gradient(root.name)
        if gradient is False:
            continue  # a buffer: marking it would force it to be an output
        seen.add(root.name)
        message = f"input '{root.name}' is changed in place ({change.how}) without ctx.mark_dirty"
        if not root.sure:
            text = ast.unparse(change.target)
            message = f"'{text}' may still be the input '{root.name}', and is changed in place ({change.how}): a cast or copy that changes nothing copies nothing; clone it"
            # Then it is advice, and has no fix.
            gradient = None
        edits = _marking(facts, forward, root.name, change.step) if gradient else ()
        yield Found(change.node, message, edits, None if gradient else "advice")


def _aliases(facts: Facts) -> Iterator[str]:
    """Yield the inputs whose memory a marked name shares: `y = x.view(-1); ctx.mark_dirty(y)` marks x."""
    for method in (facts.function.forward, facts.function.setup_context):
        if method is None or method.ctx is None:
            continue
        for item in facts.context_calls(method, "mark_dirty"):
            for argument in item.call.args:
                root = facts.values(method).root(argument, item.step)
                if root is not None and root.origin == "parameter":
                    yield root.name


def _marking(facts: Facts, forward: Method, name: str, step: Step) -> tuple[Edit, ...]:
    """Return the edit to add mark_dirty after the change; () unless every return gives just the input itself."""
    # Without ctx, as beside a setup_context, forward marks nothing; in a branch the mark would be of that one alone.
    if forward.ctx is None or step.guards:
        return ()
    for item in facts.outputs:
        if not isinstance(item.node, ast.Name):
            return ()
        root = facts.values(forward).root(item.node, item.step)
        if root is None or root.views or root.name != name:
            return ()
    return (Edit("after", span(step.statement), f"{forward.ctx}.mark_dirty({name})"),)


RULE = Rule(
    id="AF08",
    title="an input is changed in place without mark_dirty",
    why=(
        "Without it autograd does not know that the input has another value: the check "
        "that saves from wrong gradients does not see the change, and the input keeps "
        "its old history."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
    fixes=True,
)
