"""What the schema of an op that is registered with PyTorch can say: `--style library`.

In: the types of the arguments. Out: those of the schema, or problems at their places. Invariant: what passes is a signature that
`torch.library.custom_op` takes.
"""

import ast
from collections.abc import Mapping
from typing import Any

from scaffold.spec.arguments import Arguments
from scaffold.spec.op_spec import Attribute
from scaffold.spec.problems import Problems

PLAIN = frozenset({"bool", "float", "int", "str", "torch.dtype"})
ELEMENTS = frozenset({"bool", "float", "int"})  # of lists
HINT = "write: style = 'setup-context'"


def check_library(
    style: str, raw: Mapping[str, Any], arguments: Arguments, problems: Problems
) -> None:
    """Note what an op in library style cannot have."""
    if style != "library":
        return
    path = ("style",) if "style" in raw else ("name",)
    if arguments.dirty:
        message = f"'{arguments.dirty[0]}' changes in place, and PyTorch gives a registered op that changes its inputs wrong gradients"
        problems.at(path, message, HINT)
    if raw.get("amp") == "region":
        message = (
            "a compiler does not run a registered op under the autocast of its call"
        )
        problems.at(("amp",), message, "amp = 'lower', or 'float32'")
    for item in arguments.inputs:
        if item.name == "output":
            message = "PyTorch calls what a registered op returned 'output'"
            problems.at(path, message, "call the input otherwise")
        if isinstance(item, Attribute) and schema_type(item.annotation) is None:
            message = f"the schema of a registered op has no type for '{item.name}: {item.annotation.strip(chr(34))}'"
            hint = "a number, a string, a dtype, a tuple of numbers of one type, or another style"
            problems.at(path, message, hint)
    if any(output.variadic for output in arguments.outputs):
        message = "a registered op returns as many tensors each time"
        problems.at(path, message, HINT)


def schema_type(annotation: str) -> str | None:
    """The type of an attribute in the signature that is registered; None for one that no schema has."""
    tree = ast.parse(annotation, mode="eval").body
    match tree:
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None)):
            inner = _of(left)
            return inner and f"{inner} | None"
    return _of(tree)


def _of(tree: ast.expr) -> str | None:
    text = ast.unparse(tree)
    match tree:
        case ast.Name("dtype"):
            return "torch.dtype"
        case ast.Name("device") | ast.Attribute(ast.Name("torch"), "device"):
            return "torch.device"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            kinds = {ast.unparse(item) for item in items} - {"..."}
            one = kinds.pop() if len(kinds) == 1 else ""
            return f"Sequence[{one}]" if one in ELEMENTS else None
        case ast.Subscript(ast.Name("Literal"), choices):
            listed = choices.elts if isinstance(choices, ast.Tuple) else [choices]
            types = {type(ast.literal_eval(item)).__name__ for item in listed}
            one = types.pop() if len(types) == 1 else ""
            return one if one in PLAIN else None
    return text if text in PLAIN else None
