"""AF34: a tensor is saved for a gradient that may not be needed.

If its only reader in backward is under `if ctx.needs_input_grad[i]`, with that input frozen the memory is held for nothing. The fix
saves `x if ctx.needs_input_grad[i] else None`.

Words: the *saver* is the method that saves; `guards` are the branches around a statement; a name's `element` is its position in
the unpacked ctx.saved_tensors; `facts` are what is known of one autograd.Function.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect import Method
from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own, input_tested_alone
from scaffold.spec.config_keys import PARAMETER_NAMES


@for_own("saver")
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield saved names read in backward only under the branch of one input; one finding for all those of an input."""
    backward = facts.function.backward
    if backward is None:
        return
    if facts.context_calls(saver, "save_for_forward"):
        return  # needs_input_grad does not cover an input with a tangent
    calls = facts.context_calls(saver, "save_for_backward")
    if len(calls) != 1 or calls[0].starred:
        return
    returned = (item.values or () for item in facts.gradients)
    if not any(sum(not is_none(v) for v in values) > 1 for values in returned):
        return  # backward runs only if the one gradient is needed
    readers: dict[int, list[ast.Name]] = {}
    for position, argument in enumerate(calls[0].call.args):
        if isinstance(argument, ast.Name) and not _is_held_anyway(facts, argument.id):
            index = _only_reader(facts, backward, position)
            if index is not None:
                readers.setdefault(index, []).append(argument)
    for index, saved in readers.items():
        needed = f"{saver.ctx}.needs_input_grad[{index}]"
        named = ", ".join(f"'{item.id}'" for item in saved)
        is_read, it = ("are", "them") if len(saved) > 1 else ("is", "it")
        message = f"{named} {is_read} only read for the gradient of input {index}: save {it} only if that gradient is needed"
        edits = (
            Edit("replace", span(item), f"{item.id} if {needed} else None")
            for item in saved
        )
        yield Found(saved[0], message, tuple(edits))


def _is_held_anyway(facts: Facts, name: str) -> bool:
    """Return whether to save a tensor costs no memory: the caller holds it too (a parameter, an index, a mask), or it is small."""
    forward = facts.function.forward
    inputs = {item.name for item in forward.positional} if forward else set()
    kept = name in PARAMETER_NAMES or facts.has_gradient(name) is False
    return name in inputs and kept or _is_vector(facts, name)


def _is_vector(facts: Facts, name: str) -> bool:
    """Return whether forward demands a vector or a scalar, `if b.ndim != 1: raise`: it is small."""
    forward = facts.function.forward
    told = re.compile(rf"{name}\.(shape != \([^,]*,\)|ndim != [01])")
    nodes = ast.walk(forward.node) if forward else ()
    tests = (node for node in nodes if isinstance(node, ast.Compare))
    return any(told.fullmatch(ast.unparse(test)) for test in tests)


def _only_reader(facts: Facts, backward: Method, position: int) -> int | None:
    """Return i if all reads of the saved tensor at a position are under `needs_input_grad[i]`, else None."""
    flow, values = backward.flow, facts.values(backward)
    for name, bounds in flow.bindings.items():
        bound = bounds[0]
        # In a branch, or bound again, the name may hold another value where it is read.
        if (
            len(bounds) != 1
            or bound.element != position
            or bound.guards
            or bound.starred
        ):
            continue
        step = flow.steps[bound.order]
        if bound.value is None or not values.is_saved(bound.value, step):
            continue
        asked = {
            input_tested_alone(other.guards)
            for other in flow.steps
            for node in other.expressions()
            if isinstance(node, ast.Name)
            and node.id == name
            and other.order != bound.order
        }
        # A function inside backward may read the tensor under any branch.
        nested = any(isinstance(s.statement, ast.FunctionDef) for s in flow.steps)
        return asked.pop() if len(asked) == 1 and not nested else None
    return None


RULE = Rule(
    id="AF34",
    title="a tensor is saved for a gradient that may not be needed",
    why=(
        "Its only reader is behind a needs_input_grad branch: with that input frozen "
        "the memory is held for nothing. Save `x if ctx.needs_input_grad[i] else None`."
    ),
    bad="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight.t()
        if ctx.needs_input_grad[1]:
            grad_weight = x.t() @ grad_output
        return grad_x, grad_weight
""",
    good="""\
class Matmul(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None,
            weight,  # a parameter is in memory anyway
        )
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output @ weight.t()
        if ctx.needs_input_grad[1]:
            grad_weight = x.t() @ grad_output
        return grad_x, grad_weight
""",
    level="advice",
    each=find,
    fixes=True,
)
