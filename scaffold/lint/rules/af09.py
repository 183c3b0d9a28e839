"""AF09: a tensor that is marked dirty is not returned."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts, Returned, is_none
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """Dirty inputs that are in no output, for sure."""
    forward = facts.function.forward
    if forward is None or forward.ctx is None or forward not in facts.function.own:
        return
    values = facts.values(forward)
    for item in facts.context_calls(forward, "mark_dirty"):
        for argument in item.call.args:
            root = (
                values.root(argument, item.step)
                if isinstance(argument, ast.Name)
                else None
            )
            if root is None or root.origin != "parameter" or root.viewed:
                continue
            after = [
                r for r in facts.outputs if forward.flow.may_follow(item.step, r.step)
            ]
            if after and all(_lacks(facts, root.name, r) for r in after):
                message = (
                    f"'{root.name}' is marked dirty and not returned: RuntimeError"
                )
                yield Found(item.call, message)


def _lacks(facts: Facts, name: str, item: Returned) -> bool:
    """Whether a return holds, for sure, no such tensor."""
    forward = facts.function.forward
    if item.values is None or forward is None:
        return False
    values = facts.values(forward)
    roots = [None if is_none(v) else values.root(v, item.step) for v in item.values]
    known = all(
        r is not None or is_none(v) for r, v in zip(roots, item.values, strict=True)
    )
    return known and all(
        r is None or r.origin == "fresh" or (r.origin == "parameter" and r.name != name)
        for r in roots
    )


RULE = Rule(
    id="AF09",
    title="a tensor that is marked dirty is not returned",
    why=(
        "Everything that mark_dirty names must be an output: otherwise apply raises a "
        "RuntimeError."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x + 0

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
)
