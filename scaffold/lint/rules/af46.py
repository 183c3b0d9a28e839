"""AF46: backward reads an attribute of ctx that nothing sets.

The context of a call has the attributes given to it by forward or setup_context, and none of the Function's class: another one is
an AttributeError in the first backward.

Words: `facts` are what is known of one autograd.Function; a Function is *trivial* if its backward gives no gradient; `guards`
are the branches around a statement; the *saver* is the method that saves, setup_context or else forward.
"""

import ast
from collections.abc import Iterator

from scaffold.errors import did_you_mean
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Function, Method
from scaffold.lint.model import Found, Level, Rule
from scaffold.lint.questions import ATTRIBUTES, is_ctx, keeps_arguments

# Expressions of which a part may not be evaluated.
SOMETIMES = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.GeneratorExp)


def find(facts: Facts) -> Iterator[Found]:
    """Yield the first read in backward of each attribute of ctx that nothing in the file sets.

    Only if everything that could set one is in sight. A backward that catches exceptions may expect the error.
    """
    function, backward = facts.function, facts.function.backward
    if backward is None or not _is_in_sight(function) or facts.is_trivial:
        return  # trivial: backward gives no gradient
    set_somewhere = {
        node.attr
        for node in ast.walk(facts.module.tree)
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
    }
    steps, told = backward.flow.steps, set[str]()
    if any(isinstance(s.statement, ast.Try) and s.statement.handlers for s in steps):
        return
    for step in steps:
        for node in step.expressions():
            if not isinstance(node, ast.Attribute) or not is_ctx(node.value, backward):
                continue
            # custom_fwd sets attributes with a leading _.
            if node.attr in ATTRIBUTES | set_somewhere | told or node.attr[0] == "_":
                continue
            told.add(node.attr)
            near = did_you_mean(node.attr, _attributes(facts)) or "set it in forward"
            message = (
                f"ctx.{node.attr} is read, and nothing sets it: AttributeError; {near}"
            )
            level: Level = "error" if _always_runs(steps, step, node) else "advice"
            yield Found(node, message, level=level)


def _is_in_sight(function: Function) -> bool:
    """Return whether only the Function's own methods, and this file, can set attributes of ctx.

    It is false if the class has a base in the file or an unknown one, a method an unknown decorator, or if a method passes ctx on.
    """
    methods = [function.methods.get(name) for name in ("forward", "backward")]
    if None in methods or function.parents or not function.complete:
        return False
    return all(
        method.binding == "static"
        and keeps_arguments(method)
        and not _passes_on(method)
        for method in (*methods, function.methods.get("setup_context"))
        if method is not None
    )


def _passes_on(method: Method) -> bool:
    """Return whether ctx is used as a whole: as an argument, under another name, by its `__dict__`."""
    read = set[int]()
    for node in ast.walk(method.node):
        if isinstance(node, ast.Attribute) and is_ctx(node.value, method):
            if node.attr == "__dict__":
                return True
            read.add(id(node.value))
    return any(
        is_ctx(node, method) and id(node) not in read for node in ast.walk(method.node)
    )


def _attributes(facts: Facts) -> list[str]:
    """Return the attributes forward or setup_context sets on ctx, to suggest one of them."""
    saver = facts.function.saver
    return [item.name for item in facts.kept(saver)] if saver else []


def _always_runs(steps: list[Step], at: Step, node: ast.AST) -> bool:
    """Return whether every call of backward evaluates a node of the statement `at`: no branch, return or short circuit before."""
    ends = any(
        isinstance(step.statement, ast.Return | ast.Raise) for step in steps[: at.order]
    )
    parts = [part for part in at.expressions() if isinstance(part, SOMETIMES)]
    inside = any(node is inner for part in parts for inner in ast.walk(part))
    return not (at.guards or ends or inside)


RULE = Rule(
    id="AF46",
    title="backward reads an attribute of ctx that nothing sets",
    why=(
        "The context of a call has the attributes given to it by forward or "
        "setup_context, and none of the Function's class: another one is an "
        "AttributeError in the first backward."
    ),
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor: float):
        ctx.factors = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
""",
    good="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor: float):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
""",
    each=find,
)
