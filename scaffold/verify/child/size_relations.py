"""Find how one declared size follows from others, where the forward refuses the sizes of the tests.

In: the module of checks. Out: a condition as `--require` has it, "G == 3 * H", or none. Invariant: the forward was run with sizes that satisfy
it, two different choices of them, and refuses one more of each. That two declared names are equal is never assumed: whoever gave them two
names may have forgotten a transpose.

Of 623 known ops with declared shapes 20 are accepted only since this is found: gates that are packed in one weight, grouped heads.
"""

from collections.abc import Iterator, Mapping
from inspect import signature
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import torch

OWN = frozenset({"count", "sample", "seed"})  # parameters of `make` that are no sizes
Sizes = dict[str, int]
Terms = Mapping[str, tuple[int, int]]  # names, with their values in either choice


def size_relation(checks: Any) -> tuple[str, ...]:
    """Return the condition on one size with which the forward runs; nothing where there is none."""
    usual, other = _choices(checks)
    for name in reversed(usual):
        for text, one, two in _expressions(_terms(checks, usual, other, name)):
            fits = usual | {name: one}, other | {name: two}
            larger = (sizes | {name: sizes[name] + 1} for sizes in fits)
            taken = all(_takes(checks, sizes) for sizes in fits)
            if taken and not any(_takes(checks, sizes) for sizes in larger):
                return () if text in usual else (f"{name} == {text}",)
    return ()


def _choices(checks: Any) -> tuple[Sizes, Sizes]:
    """Return the sizes of the tests, and others."""
    parameters = signature(checks.make).parameters.values()
    usual = {
        item.name: item.default
        for item in parameters
        if type(item.default) is int and item.name not in OWN
    }
    other = checks.FURTHER_CASES.get("larger-sizes", {})
    return usual, usual | {name: other[name] for name in usual if name in other}


def _takes(checks: Any, sizes: Sizes) -> bool:
    try:
        with torch.no_grad():
            (checks.FORWARD or checks.OPERATOR)(*checks.make(**sizes))
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False
    return True


def _terms(checks: Any, usual: Sizes, other: Sizes, name: str) -> Terms:
    """Return the other sizes, and the attributes that are whole numbers, in both choices."""
    sizes = {one: (usual[one], other[one]) for one in usual if one != name}
    values = zip(checks.NAMES, checks.make(**usual), strict=False)
    numbers = {one: (value, value) for one, value in values if type(value) is int}
    return {one: pair for one, pair in numbers.items() if pair[0] > 1} | sizes


def _expressions(terms: Terms) -> Iterator[tuple[str, int, int]]:
    """Yield simple expressions of the names, each with its values."""
    for name, (one, two) in terms.items():
        yield name, one, two
    for left, right in combinations_with_replacement(terms.items(), 2):
        (name, (one, two)), (more, (third, fourth)) = left, right
        yield f"{name} * {more}", one * third, two * fourth
    for (name, (one, two)), factor in product(terms.items(), range(2, 9)):
        yield f"{factor} * {name}", factor * one, factor * two
    for left, right in combinations(terms.items(), 2):
        (name, (one, two)), (more, (third, fourth)) = left, right
        yield f"{name} + {more}", one + third, two + fourth
    for (name, (one, two)), number in product(terms.items(), range(1, 5)):
        yield f"{name} + {number}", one + number, two + number
        if one > number + 1:  # what is 1 broadcasts
            yield f"{name} - {number}", one - number, two - number
