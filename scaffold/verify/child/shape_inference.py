"""Shapes that the forward takes, of inputs that nobody declared.

In: the module of checks. Out: what to write in --inputs, `a[N, D], b[D, K]`; "" where no few dims do.
Invariant: the forward was called with what is proposed, a different size for each name; two dims have one name only where
the forward refuses to change one of them alone.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

USUAL = 3  # the size of every dim at first
OTHERS = (4, 2)  # what a dim is changed to; a kernel's can only be smaller
RANKS = range(1, 5)
MOST = 3  # inputs whose ranks are tried together
NAMES = ("N", "D", "K", "M", "H", "W", "P", "Q", "R", "S", "U", "V")
Dim = tuple[int, int]  # the position of an input, and of a dim in it
Shapes = dict[int, list[int]]


def inferred(checks: Any) -> str:
    """The undeclared inputs with dims that the forward takes."""
    usual = list(checks.make())
    undeclared = [
        position
        for position, name in enumerate(checks.NAMES)
        if checks.INPUT_SHAPES.get(name, ()) is None
        and isinstance(usual[position], Tensor)
    ]
    if not 0 < len(undeclared) <= MOST:
        return ""
    ranks = sorted(product(RANKS, repeat=len(undeclared)), key=_unusual)
    for chosen in ranks:
        pairs = zip(undeclared, chosen, strict=True)
        shapes = {position: [USUAL] * rank for position, rank in pairs}
        if _takes(checks, usual, shapes):
            return _named(checks, usual, shapes)
    return ""


def _unusual(ranks: Sequence[int]) -> tuple[int, int]:
    """Matrices first."""
    return sum(abs(rank - 2) for rank in ranks), sum(ranks)


def _takes(checks: Any, usual: Sequence[Any], shapes: Shapes) -> bool:
    inputs = list(usual)
    for position, shape in shapes.items():
        inputs[position] = _values(usual[position], shape)
    try:
        with torch.no_grad():
            (checks.FORWARD or checks.OPERATOR)(*inputs)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False
    return True


def _values(usual: Tensor, shape: Sequence[int]) -> Tensor:
    """Values that suit many forwards: between 0 and 1; an index that every dim has."""
    if usual.is_floating_point() or usual.is_complex():
        return torch.rand(shape, dtype=usual.dtype)
    return torch.zeros(shape, dtype=usual.dtype)


def _changed(shapes: Shapes, dims: Sequence[Dim], size: int) -> Shapes:
    found = {position: list(shape) for position, shape in shapes.items()}
    for position, axis in dims:
        found[position][axis] = size
    return found


def _named(checks: Any, usual: Sequence[Any], shapes: Shapes) -> str:
    """The shapes, by one name for the dims that must agree."""
    groups: dict[Dim, tuple[tuple[Dim, ...], int]] = {}
    for together in _candidates(shapes):
        if any(dim in groups for dim in together):
            continue
        for size in OTHERS:
            if _takes(checks, usual, _changed(shapes, together, size)):
                groups |= dict.fromkeys(together, (together, size))
                break
    if len(groups) < sum(map(len, shapes.values())):
        return ""
    taken = {dim for dims in checks.INPUT_SHAPES.values() for dim in dims or ()}
    names = iter(n for n in NAMES if n not in taken and n not in checks.NAMES)
    kinds = list(dict.fromkeys(groups[dim] for dim in sorted(groups)))
    name_of = {group: name for (group, _), name in zip(kinds, names, strict=False)}
    larger, smaller = iter(range(USUAL + 1, 20)), iter((2, 1))
    for group, size in kinds:
        distinct = next(larger if size > USUAL else smaller, 0)
        shapes = _changed(shapes, group, distinct)
    if len(name_of) < len(kinds) or not _takes(checks, usual, shapes):
        return ""
    texts = []
    for position, shape in shapes.items():
        dims = [name_of[groups[position, axis][0]] for axis in range(len(shape))]
        texts.append(f"{checks.NAMES[position]}[{', '.join(dims)}]")
    return ", ".join(texts)


def _candidates(shapes: Shapes) -> Iterator[tuple[Dim, ...]]:
    """Each dim alone, then those of two and of three that may have to agree."""
    dims = [(at, axis) for at, shape in shapes.items() for axis in range(len(shape))]
    for count in (1, 2, 3):
        yield from combinations(dims, count)
