"""AF23: save_for_backward and save_for_forward save different tensors.

Under grad of vmap PyTorch wants the two to be the same, and crashes otherwise. The fix saves for forward all that is saved for
backward.

Words: `facts` are what is known of one autograd.Function; `guards` are the branches around a statement; the *saver* is the
method that saves, setup_context or else forward.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own


@for_own("saver")
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield a save_for_forward in the same block as a save_for_backward of other tensors.

    It has a fix if save_for_backward saves all that save_for_forward does, and more.
    """
    backward = facts.context_calls(saver, "save_for_backward")
    forward = facts.context_calls(saver, "save_for_forward")
    if len(backward) != 1 or len(forward) != 1:
        return
    first, second = backward[0], forward[0]
    if first.step.guards != second.step.guards or first.starred or second.starred:
        return
    saved = [ast.unparse(item) for item in first.call.args]
    if set(saved) != {ast.unparse(item) for item in second.call.args}:
        whole = f"{ast.unparse(second.call.func)}({', '.join(saved)})"
        superset = set(saved) > {ast.unparse(item) for item in second.call.args}
        edits = (Edit("replace", span(second.call), whole),) if superset else ()
        yield Found(
            second.call,
            "save_for_forward saves other tensors than save_for_backward: grad of vmap crashes",
            edits,
        )


RULE = Rule(
    id="AF23",
    title="save_for_backward and save_for_forward save different tensors",
    why=("grad of vmap wants the two to be the same, and crashes where they are not."),
    bad="""\
class Mul(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x)
""",
    good="""\
class Mul(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)
""",
    each=find,
    fixes=True,
)
