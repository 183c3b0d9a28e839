"""Which parameters are tensors, by how a method uses and annotates them.

In: a method's flow. Out: names.
Invariant: a use counts only if anything but a tensor would fail there.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.flow import Flow
from scaffold.inspect.imported_names import Names, torch_call
from scaffold.inspect.vocabulary import changes, is_tensor_call
from scaffold.primitives.calls import is_made_of_numbers, may_be

# Methods of tensors that other things have as well: `queue.put`, `rng.normal`, `items.index`.
OF_OTHERS = frozenset(
    [
        "copy",
        "cpu",
        "cuda",
        "expand",
        "float",
        "gather",
        "get",
        "int",
        "normal",
        "put",
        "repeat",
        "round",
        "select",
        "take",
        "to",
        "trace",
        "type",
    ]
)


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
        if owner not in names.imported and _is_of_tensors(function.attr):
            yield owner
        if function.attr in ("save_for_backward", "mark_dirty"):
            yield from (arg.id for arg in node.args if isinstance(arg, ast.Name))
    name = torch_call(node, names)
    if is_tensor_call(name) and _takes_tensor_first(name):
        yield from (arg.id for arg in node.args[:1] if isinstance(arg, ast.Name))


def _is_of_tensors(method: str) -> bool:
    """Whether only a tensor has a method."""
    if method in ("size", "dim", "numel", "stride"):
        return True
    return method not in OF_OTHERS and (is_tensor_call(method) or changes(method))


def _takes_tensor_first(function: str) -> bool:
    """Whether the first argument of a function that returns a tensor is one, and neither a number, a size nor several."""
    if function in ("as_tensor", "einsum", "normal", "where"):
        return False
    return not is_made_of_numbers(function) and not may_be(function, "joins")
