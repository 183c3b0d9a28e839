"""AF06: what save_for_backward gets is no tensor.

save_for_backward raises a TypeError for a number, a size or a string; these are kept as attributes of ctx, as the fix does.

Words: the *saver* is the method that saves; a value is *plain* if it is surely no tensor; a binding is *definite* if it alone
reaches a statement, and has an `element` if it is a part of an unpacked value; `facts` are what is known of one
autograd.Function; `own` are the methods that its class itself defines, as a mistake in an inherited one is reported for the
parent.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import ContextCall, Facts
from scaffold.inspect.values import is_shapely
from scaffold.lint.model import Found, Rule
from scaffold.lint.saved_values import kept_instead

PLAIN = {
    "int",
    "float",
    "bool",
    "str",
    "bytes",
    "torch.dtype",
    "torch.device",
    "torch.Size",
}


def find(facts: Facts) -> Iterator[Found]:
    """Yield arguments of save_for_backward that are numbers, sizes or strings."""
    saver = facts.function.saver
    if saver is None or saver not in facts.function.own:
        return  # not its own: reported for the parent class
    for item in facts.context_calls(saver, "save_for_backward"):
        plain = [a for a in item.call.args if _is_plain(facts, a, item)]
        edits = kept_instead(facts, item, plain) if plain else ()
        for argument in plain:
            text = ast.unparse(argument)
            message = f"'{text}' is not a tensor: save_for_backward raises a TypeError; keep it on ctx"
            yield Found(argument, message, edits)


def _is_plain(facts: Facts, node: ast.expr, item: ContextCall) -> bool:
    """Return whether an argument of the call `item` of save_for_backward is surely no tensor: a number, a size, a string, a tuple."""
    if isinstance(node, ast.Constant):
        # None may be saved.
        return node.value is not None
    if isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.JoinedStr):
        return True
    if is_shapely(node):
        return True
    if not isinstance(node, ast.Name):
        return False
    saver = facts.function.saver
    assert saver is not None
    flow = saver.flow
    if flow.is_parameter(node.id, item.step):
        for parameter in saver.parameters:
            if parameter.name == node.id:
                return facts.names.resolve(parameter.annotation) in PLAIN
        return False
    bound = flow.definite(node.id, item.step)
    if bound is None or bound.value is None or bound.element is not None:
        return False  # several values reach it, or it is a part of one
    if isinstance(bound.value, ast.Constant):
        return bound.value.value is not None
    return is_shapely(bound.value)


RULE = Rule(
    id="AF06",
    title="save_for_backward gets a value that is not a tensor",
    why=(
        "It takes tensors and None; anything else is a TypeError. Numbers, sizes and "
        "flags are attributes of ctx."
    ),
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor: float):
        ctx.save_for_backward(x, factor)
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        x, factor = ctx.saved_tensors
        return grad_output * factor, None
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
    level="advice",
    each=find,
    fixes=True,
)
