"""AF35: torch.autograd.Variable, ctx.saved_variables, or a parameter from uninitialised memory.

Variable and saved_variables are deprecated; torch.Tensor(3, 4) is memory as it was, so such a parameter is garbage unless it is
initialised later. The fixes write the tensor itself, saved_tensors, torch.empty.

Words: `own` are the methods that its class itself defines, as a mistake in an inherited one is reported for the parent.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module
from scaffold.inspect.imported_names import torch_call
from scaffold.inspect.vocabulary import creates
from scaffold.lint.model import Edit, Found, Rule, span


def find(module: Module) -> Iterator[Found]:
    """Yield calls of Variable; saved_variables; parameters made of torch.Tensor(sizes)."""
    for method in (m for function in module.functions for m in function.own):
        for node in ast.walk(method.node):
            if isinstance(node, ast.Attribute) and node.attr == "saved_variables":
                owner = ast.unparse(node.value)
                if owner == method.ctx:
                    message = f"{owner}.saved_variables is deprecated: saved_tensors"
                    edit = Edit("replace", span(node), f"{owner}.saved_tensors")
                    yield Found(node, message, (edit,))
    for call in module.calls:
        name = module.names.resolve(call.func)
        if name in ("torch.autograd.Variable", "torch.autograd.variable.Variable"):
            message = "torch.autograd.Variable is deprecated: a Tensor does"
            yield Found(call, message, _bare(module, call))
        elif name == "torch.nn.Parameter" or name == "torch.nn.parameter.Parameter":
            made = call.args[0] if call.args else None
            if (
                isinstance(made, ast.Call)
                and module.names.resolve(made.func) in TYPES
                and _is_sizes(made)
            ):
                yield Found(
                    made,
                    "torch.Tensor(sizes) is uninitialised memory: use torch.empty and an initialiser",
                    _empty(made),
                )


def _bare(module: Module, call: ast.Call) -> tuple[Edit, ...]:
    """Return the edit to write `torch.ones(3)` for `Variable(torch.ones(3))`; () for tensors not new: Variable drops their history."""
    made = call.args[0] if len(call.args) == 1 and not call.keywords else None
    if made is None or not creates(torch_call(made, module.names)):
        return ()
    keywords = made.keywords if isinstance(made, ast.Call) else []
    # Variable gives a tensor without `requires_grad`; None: `**options`, which may hold it.
    if any(item.arg in ("requires_grad", "out", None) for item in keywords):
        return ()
    text = ast.get_source_segment(module.text, made)
    return (Edit("replace", span(call), text),) if text else ()


TYPES = {"torch.Tensor", "torch.FloatTensor"}


def _is_sizes(call: ast.Call) -> bool:
    """Return whether arguments of torch.Tensor are sizes, not data: no list or tuple, and no call alone."""
    data: tuple[type[ast.expr], ...] = (ast.List, ast.Tuple, ast.ListComp)
    if len(call.args) == 1:
        data += (ast.Call,)
    return (
        bool(call.args)
        and not call.keywords
        and not any(isinstance(a, data) for a in call.args)
    )


def _empty(call: ast.Call) -> tuple[Edit, ...]:
    """Return the edit to call torch.empty with the same sizes; () unless there are several: one may be data."""
    plain = ast.unparse(call.func) == "torch.Tensor" and len(call.args) > 1
    return (Edit("replace", span(call.func), "torch.empty"),) if plain else ()


RULE = Rule(
    id="AF35",
    title="torch.autograd.Variable, saved_variables, or a parameter from uninitialised memory",
    why=(
        "Variable is a Tensor since torch 0.4 and deprecated, as saved_variables is, "
        "which are the saved tensors; torch.Tensor(sizes) is "
        "memory as it was, so a parameter that is not initialised afterwards is "
        "garbage."
    ),
    bad="""\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(features))
""",
    good="""\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
""",
    level="advice",
    whole=find,
    fixes=True,
)
