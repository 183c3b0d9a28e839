"""AF25: a Function is used in a way that torch refuses."""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """vjp beside backward; calls of an instance."""
    function = facts.function
    if "vjp" in function.methods and "backward" in function.methods:
        yield Found(
            function.methods["vjp"].node,
            "both vjp and backward are defined: RuntimeError; keep one",
        )
    callable_itself = {"__call__", "__new__"} & set(function.methods)
    if (
        callable_itself
        or not function.unique
        or not function.complete
        or function.nested
    ):
        return
    if function.name in facts.module.names.imported or _defined_otherwise(facts):
        return
    for call in facts.module.calls:
        made = call.func
        if (
            isinstance(made, ast.Call)
            and isinstance(made.func, ast.Name)
            and made.func.id == function.name
        ):
            text = f"{function.name}.apply"
            edits = (
                (Edit("replace", span(made), text),)
                if not (made.args or made.keywords)
                else ()
            )
            yield Found(
                call,
                f"an instance of {function.name} is called: RuntimeError; use {text}",
                edits,
            )


def _defined_otherwise(facts: Facts) -> bool:
    """Whether a function has the name of the class."""
    return any(
        isinstance(node, ast.FunctionDef) and node.name == facts.function.name
        for node in facts.module.scopes
    )


RULE = Rule(
    id="AF25",
    title="a Function is used in a way that torch refuses",
    why=(
        "Defining both vjp and backward raises when it is differentiated, and an "
        "instance cannot be called: Functions are used through apply."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


def double(x):
    return Double()(x)
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


def double(x):
    return Double.apply(x)
""",
    each=find,
    fixes=True,
)
