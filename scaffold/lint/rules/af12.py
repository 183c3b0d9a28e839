"""AF12: a saved tensor is changed in place in backward.

A second backward over the same graph then raises, since the saved tensor has another version; an attribute of ctx has no version,
and its gradient is silently wrong.

Words: a *root* is the origin of a tensor's memory: "saved" by save_for_backward, "kept" as an attribute of ctx, "fresh" if it
is newly made; `element` is its position among the saved ones; `facts` are what is known of one autograd.Function; the *saver*
is the method that saves, setup_context or else forward.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield the first change in backward of each saved tensor, and of each tensor forward made and kept on ctx."""
    values, seen = facts.values(backward), set()
    for change in facts.changes(backward):
        root = values.root(change.target, change.step)
        if root is None or (root.name, root.element) in seen or "data" in root.views:
            continue  # reported, or not seen by autograd
        text = ast.unparse(change.target)
        if root.origin == "saved":
            message = f"saved tensor '{text}' is changed in place ({change.how}): a second backward raises"
        elif root.origin == "kept" and _is_made(facts, root.name):
            message = f"'{text}' of ctx is changed in place ({change.how}): a second backward computes with what the first one left"
        else:
            continue
        seen.add((root.name, root.element))
        yield Found(change.node, message)


def _is_made(facts: Facts, attribute: str) -> bool:
    """Return whether all values of an attribute of ctx, or of its element (`pair[0]`), are new tensors of forward.

    A buffer of the caller's may be changed on purpose.
    """
    saver = facts.function.saver
    found = facts.values_on_ctx(saver, attribute) if saver else []
    roots = [facts.values(saver).root(*one) for one in found] if saver else []
    return all(root is not None and root.origin == "fresh" for root in roots)


RULE = Rule(
    id="AF12",
    title="a saved tensor is changed in place in backward",
    why=(
        "A second backward over the same graph (retain_graph, or one gradient at a "
        "time) then raises, since the saved tensor has another version; an attribute of "
        "ctx has none, and the gradient is silently wrong."
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
        return x.mul_(2 * grad_output)
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
        return x.mul(2 * grad_output)
""",
    each=find,
)
