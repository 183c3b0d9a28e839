"""Which parameters are tensors, by how a method uses and annotates them.

In: a method's flow. Out: names.
Invariant: a use counts only if anything but a tensor would fail there.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.flow import Flow
from scaffold.inspect.names import Names, torch_call
from scaffold.inspect.vocabulary import CHANGES, ONE_TENSOR


def evident_tensors(flow: Flow, names: Names) -> Iterator[str]:
    """Parameters that only a tensor can be."""
    arguments = flow.node.args
    for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if names.resolve(item.annotation) in ("torch.Tensor", "Tensor"):
            yield item.arg
    for node in ast.walk(flow.node):
        if isinstance(node, ast.Call):
            yield from _evident_in_call(node, names)
        elif isinstance(node, ast.Attribute):
            known = node.attr in ("requires_grad", "is_cuda", "dtype", "ndim")
            if known and isinstance(node.value, ast.Name):
                yield node.value.id


def _evident_in_call(node: ast.Call, names: Names) -> Iterator[str]:
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner = function.value.id
        only = (ONE_TENSOR | CHANGES | {"size", "dim", "numel", "stride"}) - {
            *("index", "copy", "type", "to", "round", "float", "int", "expand"),
            *("select", "trace", "gather", "repeat", "take", "cuda", "cpu", "get"),
        }
        if owner not in names.imported and function.attr in only:
            yield owner
        if function.attr in ("save_for_backward", "mark_dirty"):
            yield from (arg.id for arg in node.args if isinstance(arg, ast.Name))
    name = torch_call(node, names)
    if name in ONE_TENSOR - {"tensor", "as_tensor", "full", "where", "from_numpy"}:
        first = node.args[:1] if name not in ("cat", "stack", "concat") else []
        if name.endswith("_like") or name not in (
            *("empty", "zeros", "ones", "rand", "randn", "arange", "linspace", "eye"),
            *("randint", "randperm", "einsum", "logspace", "empty_strided"),
            *("hstack", "vstack"),
        ):
            yield from (arg.id for arg in first if isinstance(arg, ast.Name))
