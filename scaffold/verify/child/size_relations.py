"""Size relations: derive one declared size from others if the forward refuses the tests' sizes.

In: the module of checks. Out: a condition as for `--require`, "G == 3 * H", or none. Invariant: the forward was run with sizes that satisfy
it, two different choices of all and one more for each size in the condition; and it refuses a size one larger, one smaller and twice as
large. The tests' sizes are consecutive, so much is true of them by chance, as `KW == C + 4` if the forward requires `KW <= W + 2`. Two
declared names are never assumed equal: whoever gave them two names may have forgotten a transpose.

Of 623 known ops with declared shapes, 20 are accepted only thanks to this: gates packed in one weight, grouped heads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import signature
from itertools import combinations, combinations_with_replacement, product
from operator import add, mul
from typing import Any, NamedTuple

import torch

OWN = frozenset({"count", "sample", "seed"})  # parameters of `make` other than sizes
Sizes = dict[str, int]


class _Expression(NamedTuple):
    """A simple expression of sizes, and the function to compute it."""

    text: str
    names: tuple[str, ...]
    function: Callable[..., int]

    def value(self, sizes: Sizes) -> int:
        return self.function(*map(sizes.__getitem__, self.names))


def size_relation(checks: Any) -> tuple[str, ...]:
    """Return the condition on one size under which the forward runs; none if there is none."""
    usual, other = _choices(checks)
    numbers = _numbers(checks, usual)
    for name in reversed(usual):
        names = [*numbers, *(one for one in usual if one != name)]
        for expression in _expressions(names, numbers | usual):
            changed = (one for one in expression.names if one in usual)
            several = (usual, other, *(usual | {one: other[one]} for one in changed))
            if all(
                _wants(checks, sizes, name, expression.value(numbers | sizes))
                for sizes in several
            ):
                text = expression.text
                return () if text in usual else (f"{name} == {text}",)
    return ()


def size_bound(checks: Any) -> str:
    """Return the condition by which one size is at most some others, as `K <= H and K <= W`; "" if none helps.

    The forward may take a little more, as a padded convolution does: it is advice, and never assumed.
    """
    usual, _ = _choices(checks)
    for name in reversed(usual):
        most = max(usual.values())
        ample = {one: size + most for one, size in usual.items() if one != name}
        wide = usual | ample
        bounds = [
            one for one in ample if not _takes(checks, wide | {one: 1, name: most})
        ]
        if bounds and _takes(checks, wide | {name: most}):
            least = min(usual[one] for one in bounds)
            if all(_takes(checks, usual | {name: size}) for size in (least, least - 1)):
                return " and ".join(f"{name} <= {one}" for one in bounds)
    return ""


def _wants(checks: Any, sizes: Sizes, name: str, size: int) -> bool:
    """Return whether the forward accepts exactly this size, no neighbour or double; 1 may broadcast."""
    refused = (one for one in (size + 1, size - 1, 2 * size) if one > 1)
    return _takes(checks, sizes | {name: size}) and not any(
        _takes(checks, sizes | {name: one}) for one in refused
    )


def _choices(checks: Any) -> tuple[Sizes, Sizes]:
    """Return the sizes of the tests, and other ones."""
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


def _numbers(checks: Any, usual: Sizes) -> Sizes:
    """Return the attributes with integer values above 1."""
    values = zip(checks.NAMES, checks.make(**usual), strict=False)
    return {one: value for one, value in values if type(value) is int and value > 1}


def _expressions(names: Sequence[str], sizes: Sizes) -> Iterator[_Expression]:
    """Yield simple expressions of the names."""
    for one in names:
        yield _Expression(one, (one,), int)
    for pair in combinations_with_replacement(names, 2):
        yield _Expression(" * ".join(pair), pair, mul)
    for one, factor in product(names, range(2, 9)):
        yield _Expression(f"{factor} * {one}", (one,), partial(mul, factor))
    for pair in combinations(names, 2):
        yield _Expression(" + ".join(pair), pair, add)
    for one, number in product(names, range(1, 5)):
        yield _Expression(f"{one} + {number}", (one,), partial(add, number))
        if sizes[one] > number + 1:  # a size of 1 broadcasts
            yield _Expression(f"{one} - {number}", (one,), partial(add, -number))
