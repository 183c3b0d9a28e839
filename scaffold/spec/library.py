"""Checks of ops registered with PyTorch (`--style library`), and their rule for DTensor (`--sharding`).

`torch.library.custom_op` makes an operator with a schema, `mylib::scale(Tensor x, float a) -> Tensor`, which admits fewer types
than a Function does. In: the types of the arguments. Out: those of the schema, or problems at their places. Invariant:
`torch.library.custom_op` accepts every signature without problems.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import Any

from scaffold.spec.arguments import Arguments
from scaffold.spec.names import is_identifier
from scaffold.spec.op_spec import (
    ANY_DIMS,
    WHOLE,
    Attribute,
    Dim,
    Indices,
    Sharding,
    leading,
)
from scaffold.spec.problems import Problems

# Types that a schema has under the same name.
PLAIN = frozenset({"bool", "float", "int", "str", "torch.dtype", "torch.device"})
ELEMENTS = frozenset({"bool", "float", "int"})  # types of list elements
HINT = "write: style = 'setup-context'"


def check_library(
    style: str, raw: Mapping[str, Any], arguments: Arguments, problems: Problems
) -> None:
    """Report what an op in library style cannot have (a changed input, a type without a schema), and a namespace in another style.

    `raw` are the keys of the op. A problem with the style itself is reported at the key `style`; if that is a setting of the
    project, at the op's name.
    """
    _check_namespace(style, raw.get("namespace"), problems)
    if style != "library":
        return
    path = ("style",) if "style" in raw else ("name",)
    if arguments.dirty:
        message = f"'{arguments.dirty[0]}' is changed in place: PyTorch computes wrong gradients for a registered op that changes an input"
        problems.at(path, message, HINT)
    if raw.get("amp") == "region":
        message = "'region' does not work in library style: torch.compile does not run a registered op under the caller's autocast"
        problems.at(("amp",), message, "write: amp = 'float32'")
    for item in arguments.inputs:
        if item.name == "output":
            message = "an input of a registered op cannot be called 'output': PyTorch calls the result so"
            problems.at(path, message, "rename the input")
        if isinstance(item, Attribute) and schema_type(item.annotation) is None:
            shown = item.annotation.strip('"')  # a type of another package has quotes
            message = (
                f"the schema of a registered op has no type for '{item.name}: {shown}'"
            )
            hint = "use a number, a string, a dtype or a tuple of numbers of one type; or write: style = 'setup-context'"
            problems.at(path, message, hint)
    if any(output.variadic for output in arguments.outputs):
        message = "a registered op must return a fixed number of tensors"
        problems.at(path, message, HINT)


def _check_namespace(style: str, name: str | None, problems: Problems) -> None:
    """Report an invalid namespace, or one for a style other than library; none at all is fine."""
    if name is None:
        return
    if style != "library":
        message = "only an op in library style is registered under a namespace"
        hint = "write: style = 'library'"
        problems.at(("namespace",), message, hint)
    elif not is_identifier(name) or iskeyword(name):
        hint = "write: namespace = 'mylib'"
        problems.at(("namespace",), f"'{name}' is not a namespace", hint)


def schema_type(annotation: str) -> str | None:
    """Return an attribute's type as the registered function must annotate it: `tuple[int, ...]` -> `Sequence[int]`.

    None if `torch.library` has no such type: the op cannot be registered. `annotation` is text, such as `int | None`.
    """
    tree = ast.parse(annotation, mode="eval").body
    match tree:
        case ast.BinOp(left, ast.BitOr(), ast.Constant(None)):
            inner = _registered_type(left)
            return inner and f"{inner} | None"
    return _registered_type(tree)


def _registered_type(tree: ast.expr) -> str | None:
    """Return a type other than `... | None` as `torch.library` accepts it; None if it accepts no such type.

    A tuple becomes a sequence, if all its elements are of one type; `Literal["sum", "mean"]` becomes the type of its values, `str`.
    """
    text = ast.unparse(tree)
    match tree:
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(items)):
            kinds = {ast.unparse(item) for item in items} - {"..."}
            # "" if the elements differ, or for `tuple[()]`: no type of an element.
            one = kinds.pop() if len(kinds) == 1 else ""
            return f"Sequence[{one}]" if one in ELEMENTS else None
        case ast.Subscript(ast.Name("Literal"), choices):
            listed = choices.elts if isinstance(choices, ast.Tuple) else [choices]
            types = {type(ast.literal_eval(item)).__name__ for item in listed}
            one = types.pop() if len(types) == 1 else ""
            return one if one in PLAIN else None
    return text if text in PLAIN else None


# --- Sharding: the split of an op over devices, `mk, nk -> mn`.

NOTATION = "write the indices of each tensor: sharding = 'mk, nk -> mn'"
# One index of a group, and a whole group: `...mk`.
_INDEX = re.compile(r"\.\.\.|[A-Za-z_]")
_GROUP = re.compile(r"\s*(\.\.\.)?\s*([A-Za-z_]\s*)*")


def read_sharding(
    style: str, text: str | None, arguments: Arguments, problems: Problems
) -> Sharding | None:
    """Return the possible splits of an op over devices; `text` is `mk, nk -> mn`. None without one, or if it is no such notation (reported).

    A letter is a dim that DTensor may split, alike in all tensors with this letter; `_` is a dim that is not split. A notation that
    contradicts the op's tensors is reported too, but returned.
    """
    if text is None:
        return None
    path = ("sharding",)
    if style != "library":
        message = "only an op in library style can have a rule for DTensor, which finds it by its registered name"
        problems.at(path, message, "write: style = 'library'; or leave out sharding")
        return None
    if any(item.variadic for item in arguments.tensors):
        message = "an op with any number of tensors cannot have a rule for DTensor"
        problems.at(path, message, "leave out sharding")
        return None
    sides = text.split("->")
    groups = [side.split(",") for side in sides]
    if len(sides) != 2 or not all(map(_GROUP.fullmatch, itertools.chain(*groups))):
        problems.at(path, f"'{text}' is not an index notation", NOTATION)
        return None
    inputs, outputs = (tuple(tuple(_INDEX.findall(x)) for x in side) for side in groups)
    found = Sharding(text.strip(), problems.within(path), inputs, outputs)
    for message, hint in _problems_in(found, arguments):
        problems.at(path, message, hint)
    return found


def _problems_in(found: Sharding, arguments: Arguments) -> Iterator[tuple[str, str]]:
    """Yield a message and a hint for each contradiction between a sharding notation and the op's tensors.

    Such are a wrong number of groups, an index twice in one, an index of an output that no input has, a wrong number of dims.
    """
    tensors = arguments.tensors
    if len(found.inputs) != len(tensors):
        message = f"indices are given for {len(found.inputs)} of {len(tensors)} inputs"
        listed = ", ".join(item.name for item in tensors)
        yield message, f"write one group of indices for each of: {listed}"
        return
    # More are right: intermediate results of the forward may follow the outputs.
    if len(found.outputs) < len(arguments.outputs):
        listed = ", ".join(item.name for item in arguments.outputs)
        yield (
            f"indices are given for {len(found.outputs)} of {len(arguments.outputs)} outputs",
            f"write one group of indices for each of: {listed}",
        )
    for group in (*found.inputs, *found.outputs):
        letters = [index for index in group if index != WHOLE]
        if len(set(letters)) < len(letters):
            yield f"'{''.join(group)}' has an index twice", NOTATION
    known = {index for group in found.inputs for index in group} | {WHOLE}
    for index in {index for group in found.outputs for index in group} - known:
        yield f"index '{index}' is in no input", "write _ for a dim that is not split"
    # With `_` alone the notation says nothing.
    if known == {WHOLE}:
        yield "no dim is split", NOTATION
    for item, group in zip(tensors, found.inputs, strict=True):
        if item.dims is not None and not _fits(item.dims, group):
            shape = ", ".join(map(str, item.dims))
            yield (
                f"'{''.join(group)}' does not fit the dims of '{item.name}[{shape}]'",
                "write an index for each dim, and ... for leading dims",
            )


def _fits(dims: tuple[Dim, ...], group: Indices) -> bool:
    """Return whether a tensor of this shape can have these indices, one for each dim; `...` among them covers any number of dims, or none.

    Without `...` the shape must have a known rank: no leading dims. With it, leading dims in the shape count as none.
    """
    known_rank = leading(dims) is None
    if ANY_DIMS in group:
        sizes = len(dims) if known_rank else len(dims) - 1
        return sizes >= len(group) - 1  # one index for each dim besides `...`
    return len(dims) == len(group) and known_rank
