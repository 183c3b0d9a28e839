"""AF05: save_for_backward is called twice on one path.

The last call of a run wins: what the first one saved is gone, and backward reads the wrong tensors. The fix merges two calls.

Words: the *saver* is the method that saves, setup_context or else forward; `step` is the statement of a call, `guards` the
branches around it; `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.names import names_in, stores
from scaffold.inspect.facts import ContextCall, Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own


@for_own("saver")
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield a call of save_for_backward that may follow another one, and lacks values of the first: only the last counts."""
    calls = facts.context_calls(saver, "save_for_backward")
    for number, later in enumerate(calls):
        for first in calls[:number]:
            if not saver.flow.may_follow(first.step, later.step):
                continue
            # None holds nothing that could be lost.
            lost = _texts(first.call) - _texts(later.call) - {"None"}
            if lost:
                gone = ", ".join(sorted(lost))
                line = first.call.lineno
                message = f"a second save_for_backward: what line {line} saved is lost ({gone})"
                yield Found(later.call, message, _merged(calls, saver))
                break


def _texts(call: ast.Call) -> set[str]:
    """Return the arguments of a call as text, to compare those of two."""
    return {ast.unparse(item) for item in call.args}


def _merged(calls: tuple[ContextCall, ...], saver: Method) -> tuple[Edit, ...]:
    """Return the edits to merge two calls under the same branches into the second; () if there are more, or other branches.

    Also () if a name that the first one saves is bound again before the second: it would save another value.
    """
    if len(calls) != 2 or calls[0].step.guards != calls[1].step.guards:
        return ()
    first, second = calls
    alone = all(
        isinstance(c.step.statement, ast.Expr) and not c.call.keywords for c in calls
    )
    lines = range(first.call.lineno, second.call.lineno + 1)
    rebound = {name.id for name in stores([saver.node]) if name.lineno in lines}
    if not alone or rebound & names_in(first.call.args):
        return ()
    items = [*first.call.args, *second.call.args]
    text = ", ".join(ast.unparse(item) for item in items)
    whole = f"{ast.unparse(first.call.func)}({text})"
    return (
        Edit("remove", span(first.step.statement)),
        Edit("replace", span(second.call), whole),
    )


RULE = Rule(
    id="AF05",
    title="save_for_backward is called twice on one path",
    why=("The last call wins: what the first one saved is gone."),
    bad="""\
class Mul(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        ctx.save_for_backward(y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
""",
    good="""\
class Mul(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return grad_output * y, grad_output * x
""",
    each=find,
    fixes=True,
)
