"""AF06: what save_for_backward gets is no tensor.

save_for_backward raises a TypeError for a number, a size or a string; these are kept as attributes of ctx, as the fix does.

Words: the *saver* is the method that saves; a value is *plain* if it is surely no tensor; `facts` are what is known of one
autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.values import is_shapely
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import for_own, value_of
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


@for_own("saver")
def find(facts: Facts, saver: Method) -> Iterator[Found]:
    """Yield arguments of save_for_backward that are numbers, sizes or strings."""
    for item in facts.context_calls(saver, "save_for_backward"):
        plain = [a for a in item.call.args if _is_plain(facts, saver, a, item.step)]
        edits = kept_instead(facts, saver, item, plain) if plain else ()
        for argument in plain:
            text = ast.unparse(argument)
            message = f"'{text}' is not a tensor: save_for_backward raises a TypeError; keep it on ctx"
            yield Found(argument, message, edits)


def _is_plain(facts: Facts, saver: Method, node: ast.expr, at: Step) -> bool:
    """Return whether an argument of save_for_backward is surely no tensor: a number, a size, a string, a tuple."""
    node, at = value_of(facts, saver, node, at)
    if isinstance(node, ast.Constant):
        # None may be saved.
        return node.value is not None
    if isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.JoinedStr):
        return True
    if is_shapely(node):
        return True
    if not isinstance(node, ast.Name) or not saver.flow.is_parameter(node.id, at):
        return False
    return any(
        item.name == node.id and facts.names.resolve(item.annotation) in PLAIN
        for item in saver.parameters
    )


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
