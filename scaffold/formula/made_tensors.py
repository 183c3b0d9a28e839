"""Tensors made in an `__init__`: `torch.ones(n, n).tril().bool()` has sizes n and n, and booleans.

`module_forward` asks it to annotate the parameters and buffers of an `nn.Module` with their sizes, `Parameter[n, n]`, and the
buffers with their elements, as the op declares its inputs.

Words: a function *makes* a tensor of sizes it is told (`torch.ones`, `reshape`), or *keeps* the sizes or the elements of its
argument (the table of primitives says "kept" of elements); a *word* is the name of a function or method; the *known* locals
are those assigned once.

In: an expression, and the values of its locals. Out: its sizes, as expressions; the kind of its elements. Invariant:
nothing is guessed: without an entry in the table of primitives the answer is unknown.
"""

import ast
from collections.abc import Mapping
from typing import Literal

from scaffold.formula.definitions import dotted_name
from scaffold.primitives.calls import (
    has_shape,
    is_discrete,
    is_mask,
    kinds,
    mask_positions,
)

Locals = Mapping[str, ast.expr]  # the names assigned once, with their values
Elements = Literal["", "bool", "int"]  # "" for floats, or unknown
# Functions that make a tensor of given sizes, and the words of torch.nn.init for their values.
STARTED = {"ones": "ones", "zeros": "zeros", "rand": "uniform", "randn": "normal"}
UNSET = frozenset({"empty", "Tensor", "FloatTensor"})


def word_of(call: ast.Call) -> str:
    """Return the last name of the called function or method: `ones` for `torch.ones(n)`; "" if it has none."""
    match call.func:
        case ast.Attribute(_, word) | ast.Name(word):
            return word
    return ""


def sizes_of(tensor: ast.expr, known: Locals) -> list[ast.expr]:
    """Return the sizes a tensor is created with, as expressions: `[n, n]` for `torch.ones(n, n).tril()`; [] if unknown.

    `known` are the values of locals; a local is removed from them when its value is looked at, so that no circle is endless.
    """
    match tensor:
        case ast.Name(name) if name in known:
            return sizes_of(known[name], _without(known, name))
        # The usual product is by a number: `0.02 * torch.randn(n)`.
        case ast.BinOp(left, ast.Mult(), right):
            return sizes_of(left, known) or sizes_of(right, known)
        # `x > 0`: the other side is a number, so the sizes are those of x.
        case ast.Compare(left, _, [ast.Constant()]) | ast.UnaryOp(_, left):
            return sizes_of(left, known)
        case ast.Call(_, [ast.Tuple(sizes) | ast.List(sizes), *_]) | ast.Call(_, sizes):
            word = word_of(tensor)
        case _:
            return []
    if word in {*STARTED, *UNSET, "full"} or has_shape(word, "reshaped"):
        return sizes
    source, rest = _source(tensor)
    # With a tensor among the other arguments the result may be larger, by broadcasting.
    scalar = all(isinstance(x, ast.Constant | ast.UnaryOp) or _dtype(x) for x in rest)
    keeps = has_shape(word, "first") or has_shape(word, "broadcast")
    # `to` has a section for a dtype and one for a tensor, so no shape, and no kind of elements, is that of both.
    keeps = keeps or word == "to"
    return sizes_of(source, known) if source and scalar and keeps else []


def elements_of(tensor: ast.expr, known: Locals) -> Elements:
    """Return the kind of a tensor's elements: "bool", "int", or "" for floats or unknown: "bool" for `x > 0`.

    A number counts as a tensor of it. `known` are the values of locals.
    """
    match tensor:
        case ast.Constant(bool()):
            return "bool"
        case ast.Constant(int()):
            return "int"
        case ast.Name(name) if name in known:
            return elements_of(known[name], _without(known, name))
        case ast.Compare():
            return "bool"
        case (
            ast.UnaryOp(_, one)
            | ast.Subscript(one)
            | ast.BinOp(one, ast.BitAnd() | ast.BitOr())
        ):
            return elements_of(one, known)
        case ast.BinOp(one, ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv(), two):
            both = elements_of(one, known), elements_of(two, known)
            return "int" if both == ("int", "int") else ""
        case ast.List(items) | ast.Tuple(items):
            # `torch.tensor([1, 0.5])` has floats.
            found = {elements_of(item, known) for item in items}
            return found.pop() if len(found) == 1 else ""
        case ast.Call():
            return _of_call(tensor, known)
    return ""


def _of_call(call: ast.Call, known: Locals) -> Elements:
    """Return the kind of elements of a tensor made by a call: "int" for `torch.arange(n)`, "" if floats or unknown.

    A stated dtype decides first (`cast`), then the values of `full` and `arange`, then the operands whose elements it keeps, if they
    are of one kind.
    """
    word = word_of(call)
    source, rest = _source(call)
    stated = [item.value for item in call.keywords if item.arg == "dtype"]
    cast = [*stated, *(x for x in rest if _dtype(x))]
    if cast:
        return _of_word(_dtype(cast[0]))
    if word == "full":
        # `torch.full((n, n), True)`: after the sizes comes the value of all elements.
        return elements_of(rest[0], known) if rest else ""
    if has_shape(word, "range"):
        parts = [part for item in call.args for part in ast.walk(item)]
        return "" if any(map(_gives_floats, parts)) else "int"
    # "kept": the elements are of the argument's kind, `x.tril()`. A dtype in `x.to(...)` has been read above.
    if kinds(word) == {"kept"} or word == "to":
        # Of `x.tril(k)` only x counts, of `torch.where(mask, 0.0, bias)` all but the mask.
        several = (source, *rest) if has_shape(word, "broadcast") else (source,)
        masks = mask_positions(word)
        operands = [x for at, x in enumerate(several) if x and at not in masks]
        return elements_of(ast.List(operands, ast.Load()), known)
    return _of_word(word)  # `x.bool()`


def _gives_floats(node: ast.AST) -> bool:
    """Return whether a node is a float or the operator `/`: with it `torch.arange(n / 2)` has floats."""
    match node:
        case ast.Constant(float()) | ast.Div():
            return True
    return False


def _of_word(word: str) -> Elements:
    """Return the kind of elements a dtype, or a cast to it, says: "int" for `int64` and `long`."""
    word = word.removeprefix("u").rstrip("0123456789")  # `uint8` -> `int`
    return "bool" if is_mask(word) else "int" if is_discrete(word) else ""


def _dtype(node: ast.expr) -> str:
    """Return the name after `torch.`, `bool` for `torch.bool`, else "".

    An argument of this form is taken for a dtype; the call `torch.ones(n)` has a dotted name too, but is a tensor.
    """
    root, _, name = (dotted_name(node) or "").rpartition(".")
    return name if root == "torch" and isinstance(node, ast.Attribute) else ""


def _source(call: ast.Call) -> tuple[ast.expr | None, list[ast.expr]]:
    """Return the tensor a call works on, and its other arguments: `x` and `[0]` for `x.sum(0)` and `torch.sum(x, 0)`."""
    match call:
        case ast.Call(ast.Attribute(owner), rest) if dotted_name(owner) != "torch":
            return owner, rest
        case ast.Call(_, [first, *rest]):
            return first, rest
    return None, []


def _without(known: Locals, name: str) -> Locals:
    """Return the locals without one: `mask = mask.bool()` must not be looked up in itself for ever."""
    return {one: value for one, value in known.items() if one != name}
