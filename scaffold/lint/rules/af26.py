"""AF26: setup_context takes the tuple of inputs for the input.

`inputs` is a tuple even for one input: after `x = inputs` saving x is a TypeError. The fix writes `(x,) = inputs`.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.inspect.values import evident_tensors
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own


@for_own("setup_context")
def find(facts: Facts, setup: Method) -> Iterator[Found]:
    """Yield `x = inputs` in setup_context if x is then saved or used as a tensor; a fix if forward has one input."""
    forward = facts.function.forward
    if forward is None or len(setup.positional) < 2:
        return  # not `(ctx, inputs, output)`
    given = setup.positional[0].name
    saved = {
        name
        for call in facts.context_calls(setup, "save_for_backward")
        for name in call.names
    }
    tensors = saved | set(evident_tensors(setup.flow, facts.names))
    for step in setup.flow.steps:
        statement = step.statement
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        if not isinstance(target, ast.Name) or target.id not in tensors:
            continue
        if (
            isinstance(value, ast.Name)
            and value.id == given
            # Bound again, `inputs` may be no tuple any more.
            and setup.flow.is_parameter(given, step)
        ):
            text = f"({target.id},)"
            edits = (
                (Edit("replace", span(target), text),)
                if len(forward.positional) == 1
                else ()
            )
            yield Found(
                statement,
                f"'{given}' is a tuple: write ({target.id},) = {given}",
                edits,
            )


RULE = Rule(
    id="AF26",
    title="setup_context takes the tuple of inputs for the input",
    why=(
        "inputs is a tuple even where forward has one parameter: `x = inputs` is that "
        "tuple, and saving it a TypeError."
    ),
    bad="""\
class Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        x = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
""",
    good="""\
class Square(Function):
    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
""",
    each=find,
    fixes=True,
)
