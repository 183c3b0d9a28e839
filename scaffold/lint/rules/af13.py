"""AF13: an input, or a view of one, is returned."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import detaches


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
            if root.detached or root.viewed and detaches(facts):
                continue  # the memory is shared on purpose
            what = "a view of an input" if root.viewed else "an input"
            text = ast.unparse(node)
            message = f"'{text}' is {what}: a later change of the output in place is refused; clone it"
            edit = Edit("replace", span(node), f"{text}.clone()")
            yield Found(node, message, (edit,))


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
