"""AF28: a custom operator that changes its arguments, with a gradient.

register_autograd raises for such an operator, and without it the gradient is silently wrong.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module
from scaffold.lint.model import Found, Rule


def find(module: Module) -> Iterator[Found]:
    """Yield custom operators that declare mutates_args, other than empty, and have an autograd formula (register_autograd)."""
    for operator in module.operators:
        mutates = operator.mutates
        some = isinstance(mutates, ast.Tuple | ast.List | ast.Set) and bool(
            mutates.elts
        )
        # `mutates_args="unknown"`: any of them may change.
        named = isinstance(mutates, ast.Constant) and bool(mutates.value)
        if operator.autograd is not None and (some or named):
            message = f"'{operator.name}' changes its arguments: it can have no autograd formula"
            yield Found(operator.autograd, message, function=operator.name)


RULE = Rule(
    id="AF28",
    title="a custom operator that changes its arguments, with a gradient",
    why=(
        "An operator that mutates cannot have an autograd formula: register_autograd "
        "raises, and where it is left out the gradient is silently wrong."
    ),
    bad="""\
@torch.library.custom_op("lib::double_", mutates_args=("x",))
def double_(x: Tensor) -> None:
    x.mul_(2)


double_.register_autograd(lambda ctx, grad: grad * 2)
""",
    good="""\
@torch.library.custom_op("lib::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return x * 2


double.register_autograd(lambda ctx, grad: grad * 2)
""",
    whole=find,
)
