"""AF13: an input, or a view of one, is returned."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """Yield outputs sharing memory with an input, not marked dirty."""
    forward, dirty = facts.function.forward, facts.marked("mark_dirty")
    if (
        forward is None
        or dirty is None
        or facts.is_trivial
        or forward not in facts.function.own
    ):
        return
    values, inputs = facts.values(forward), {item.name for item in forward.positional}
    for item in facts.outputs:
        for node in item.values or (
            (item.node,) if isinstance(item.node, ast.Name) else ()
        ):
            root = values.root(node, item.step) if node is not None else None
            if (
                root is None
                or root.origin != "parameter"
                or root.name not in inputs | {"inputs"}
            ):
                continue
            if root.name in dirty or facts.has_gradient(root.name) is not True:
                continue
            if any(
                values.root(c.target, c.step) == root._replace(viewed=False)
                for c in facts.changes(forward)
            ):
                continue  # AF08 reports it
            what = "a view of an input" if root.viewed else "an input"
            then = "is refused"
            if _is_detached(facts, forward, node, item.step):
                then = f"changes '{root.name}', too"
            text = ast.unparse(node)
            edit = Edit("replace", span(node), f"{text}.clone()")
            yield Found(
                node,
                f"'{text}' is {what}: a later change of the output in place {then}; clone it",
                (edit,),
            )


def _is_detached(
    facts: Facts, forward: Method, node: ast.expr | None, at: Step
) -> bool:
    """Return whether a value is `x.detach()` or `x.data`: no view for autograd, but the same memory."""
    while isinstance(node, ast.Name):
        bound = forward.flow.definite(node.id, at)
        if bound is None or bound.element is not None or bound.order >= at.order:
            return False
        node, at = bound.value, forward.flow.steps[bound.order]
    if isinstance(node, ast.Call):
        return method_call(node, facts.names) == "detach"
    return isinstance(node, ast.Attribute) and node.attr == "data"


RULE = Rule(
    id="AF13",
    title="an input, or a view of one, is returned",
    why=(
        "The output is then a view made inside a Function: a later change of it in "
        "place is refused (pytorch#73604). If it is detached, the change is allowed, "
        "and changes the input, too."
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
