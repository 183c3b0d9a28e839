"""AF33: a gradient is computed under the branch of another input.

Under `if ctx.needs_input_grad[0]` the gradient of input 1 stays None if input 0 needs none, and nothing says so. The fix tests for
each input whose gradient is computed in the branch.

Words: `guards` are the branches around a statement, `bounds` the assignments of a name; `facts` are what is known of one
autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Level, Rule, span
from scaffold.lint.questions import for_own, input_tested_alone


@for_own("backward")
def find(facts: Facts, backward: Method) -> Iterator[Found]:
    """Yield names computed only under `needs_input_grad[i]` and returned as the gradient of another input.

    Advice if a further condition stands around all of them: then the gradient may need the other one.
    """
    # Another return may give the same name to its own input.
    if len(facts.gradients) != 1 or facts.gradients[0].step.guards:
        return
    positions: dict[str, list[int]] = {}
    for position, value in enumerate(facts.gradients[0].values or ()):
        if isinstance(value, ast.Name):
            positions.setdefault(value.id, []).append(position)
    wrong: dict[tuple[int, bool], list[tuple[str, ast.stmt]]] = {}
    for name, (position, *others) in positions.items():
        bounds = backward.flow.bindings.get(name, ())
        bounds = [bound for bound in bounds if not is_none(bound.value)]
        # `return g, g`, or a parameter of backward: computed under no branch of one input.
        if others or not bounds or name in backward.flow.parameters:
            continue
        asked = [input_tested_alone(b.guards) for b in bounds]
        # Each assignment is under a branch of one input, and of none the right one.
        if asked[0] is not None and all(a is not None and a != position for a in asked):
            statement = backward.flow.steps[bounds[0].order].statement
            # under a further condition it may depend on the other input, and need its gradient too
            sure = any(len(bound.guards) == 1 for bound in bounds)
            wrong.setdefault((asked[0], sure), []).append((name, statement))
    for (branch, sure), found in wrong.items():
        named = ", ".join(f"'{name}'" for name, _ in found)
        message = (
            f"{named} computed under needs_input_grad[{branch}], the branch of another "
            "input: None where only its own input needs a gradient"
        )
        edits = _asking(backward, branch, positions)
        level: Level | None = None if sure else "advice"
        yield Found(found[0][1], message, edits, level)


def _asking(
    backward: Method, branch: int, positions: dict[str, list[int]]
) -> tuple[Edit, ...]:
    """Return the edits to test, in `if ctx.needs_input_grad[branch]`, for each input whose gradient is computed there.

    `positions` are the positions of each name among the returned gradients.
    """
    edits = []
    for step in backward.flow.steps:
        statement = step.statement
        # A new test would change when the `else` runs.
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        if ast.unparse(statement.test) != f"{backward.ctx}.needs_input_grad[{branch}]":
            continue
        wanted = {
            position
            for name, places in positions.items()
            for bound in backward.flow.bindings.get(name, ())
            if any(guard.node is statement for guard in bound.guards)
            for position in places
        }
        asked = [f"{backward.ctx}.needs_input_grad[{n}]" for n in sorted(wanted)]
        if wanted - {branch}:
            text = " or ".join(asked)
            edits.append(Edit("replace", span(statement.test), text))
    return tuple(edits)


RULE = Rule(
    id="AF33",
    title="a gradient is computed under the branch of another input",
    why=("Where only this input needs a gradient it stays None, and nothing says so."),
    bad="""\
class Mul(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output * y
        if ctx.needs_input_grad[0]:
            grad_y = grad_output * x
        return grad_x, grad_y
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
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output * y
        if ctx.needs_input_grad[1]:
            grad_y = grad_output * x
        return grad_x, grad_y
""",
    each=find,
    fixes=True,
)
