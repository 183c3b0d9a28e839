"""AF13: an input, or a view of one, is returned.

The output is then a view made inside a Function: a later change of it in place is refused. The fix clones it.

Words: a *root* is the origin of a tensor's memory, here a parameter, with the `views` taken of it, as `t` and `data`; `facts`
are what is known of one autograd.Function; `marked` are the names passed to a method of ctx such as mark_dirty, None if
unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import COLLECTIVES, for_own


@for_own("forward", trivial=False)
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield outputs sharing memory with an input with a gradient, if this input is not marked dirty.

    Nothing is yielded if forward changes the input, a mistake of AF08, or returns `x.detach()`: then the memory is shared on purpose.
    """
    dirty = facts.marked("mark_dirty")
    if dirty is None:
        return
    values, inputs = facts.values(forward), {p.name for p in forward.positional}
    for item in facts.outputs:
        # If the values are not listed, a sole name may still hold the input.
        for node in item.values or (
            (item.node,) if isinstance(item.node, ast.Name) else ()
        ):
            root = values.root(node, item.step) if node is not None else None
            if root is None or root.origin != "parameter" or root.name in dirty:
                continue
            if root.name not in inputs or facts.has_gradient(root.name) is not True:
                continue
            if any(
                # The root of the changed input itself has no views.
                values.root(c.target, c.step) == root._replace(views=())
                for c in facts.changes(forward)
            ) or _is_handed(forward, root.name):
                continue  # AF08 reports it, or the call changes it
            if {"data", "detach"}.intersection(root.views):
                continue  # the memory is shared on purpose
            what = "a view of an input" if root.views else "an input"
            text = ast.unparse(node)
            message = f"'{text}' is {what}: a later change of the output in place is refused; clone it"
            edit = Edit("replace", span(node), f"{text}.clone()")
            yield Found(node, message, (edit,))


def _is_handed(forward: Method, name: str) -> bool:
    """Return whether a collective called for its effect, as `group.all_reduce(x)`, changes the input `name`."""
    return any(
        isinstance(step.statement, ast.Expr)
        and isinstance(call := step.statement.value, ast.Call)
        and ast.unparse(call.func).split(".")[-1] in COLLECTIVES
        and name in map(ast.unparse, call.args[:1])
        for step in forward.flow.steps
    )


RULE = Rule(
    id="AF13",
    title="an input, or a view of one, is returned",
    why=(
        "The output is then a view made inside a Function: a later change of it in "
        "place is refused (pytorch#73604)."
    ),
    bad="""\
class Reverse(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return -grad_output
""",
    good="""\
class Reverse(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return -grad_output
""",
    level="advice",
    each=find,
    fixes=True,
)
