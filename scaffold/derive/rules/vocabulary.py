"""The words of rule formulas that are no primitives: they say what depends on shapes.

In: nothing. Out: for each word its parameters and what it means. Invariant: each has a reference in torch, in the tests of
the rule table, and an expansion in the engine that uses what it knows of the shapes.
"""

from typing import NamedTuple


class Builder(NamedTuple):
    """A word of formulas: its parameters in order, and whether it is a tensor or a Python value."""

    parameters: tuple[str, ...]
    tensor: bool
    meaning: str


def _tensor(parameters: str, meaning: str) -> Builder:
    return Builder(tuple(parameters.split()), True, meaning)


def _python(parameters: str, meaning: str) -> Builder:
    return Builder(tuple(parameters.split()), False, meaning)


BUILDERS: dict[str, Builder] = {
    "expand_back": _tensor("g x dim keepdim", "a reduction's g over x's shape"),
    "restore": _tensor("g x dim keepdim", "the same with dimensions of size 1"),
    "sum_to": _tensor("g x", "g summed to x's shape, which broadcasts to g's"),
    "fit_to": _tensor("g x", "the same where x may be longer too: g is spread"),
    "reshape_as": _tensor("g x", "g in x's shape"),
    "expand_as": _tensor("g x", "g broadcast to x's shape"),
    "zeros": _tensor("g x", "zeros of x's shape, of g's dtype and device"),
    "cast_as": _tensor("g x", "g in x's dtype"),
    "count": _python("x dim", "how many elements a reduction over dim takes: an int"),
    "shape": _python("x", "x.shape"),
    "size": _python("x dim", "x.shape[dim]"),
    "dtype": _python("x", "x.dtype"),
    "rank": _python("x", "x.ndim"),
    "sum_repeats": _tensor("g x repeats", "g of x.repeat(*repeats), summed to x"),
    "channels": _tensor("weight x", "weight[:, None, None] beside x[N, C, H, W]"),
    "trailing": _python("sizes", "the last len(sizes) dimensions: (-2, -1)"),
    "leading": _python("x", "all dimensions of x but its last: (0, 1)"),
    "moved": _tensor(
        "x dim by", "x moved by 1 or -1 along dim, a 1 where nothing came"
    ),
    "padding": _python("x dim before after", "the pad of F.pad in one dimension"),
    "negated": _python("numbers", "the negative of a number or of each in a tuple"),
    "inverse_permutation": _python("dims", "what undoes a permutation"),
}
