"""Which sizes the forward takes, tried on it: where it refuses those of the tests.

In: the module of checks. Out: how sizes depend on each other, as conditions that `--require` takes: "G == 3 * H"; nothing where no few
sizes do. Invariant: the forward was called with what is proposed. It takes sizes that satisfy the conditions, two different choices of
them, and refuses one more of each. That two declared names are equal is no condition to assume: whoever gave them two names may
have forgotten a transpose.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import torch

from scaffold.verify.child.declared_shapes import leading_position

SIZES = range(2, 49)  # that are tried of one dim
FEW = range(2, 13)  # ... of two dims at once
PAIRS = 6  # of dims that are tried
FURTHER = 8  # sizes in a row that say that any larger one will do
OWN = frozenset({"count", "sample", "seed"})  # parameters of `make` that are no sizes
Sizes = dict[str, int]
Terms = Mapping[str, tuple[int, int]]  # names, with their values in either choice


def fitting(checks: Any) -> tuple[str, ...]:
    """Conditions on one dim, or else on two; what leaves most sizes open goes first."""
    usual, other = _choices(checks)
    for seek in (_bound, _equal):
        for name in reversed(usual):
            found = seek(checks, usual, other, name)
            if found:
                return found
    for names in [*combinations(reversed(usual), 2)][:PAIRS]:
        for sizes in product(FEW, repeat=2):
            fit = usual | dict(zip(names, sizes, strict=True))
            if _takes(checks, fit):
                found = _related(checks, fit, other, names)
                if found:
                    return found
    return ()


def equalities(checks: Any, conditions: Sequence[str]) -> list[str]:
    """The conditions that two dims are the same, which were declared by two names."""
    dims = {dim for shape in checks.INPUT_SHAPES.values() if shape for dim in shape}
    sides = {condition: condition.split(" == ") for condition in conditions}
    return [one for one, both in sides.items() if set(both) <= dims]


def transposed(checks: Any) -> str:
    """Which input, if its last two dims were exchanged, the forward would take as it is declared; "" for none."""
    found = []
    for position, name in enumerate(checks.NAMES):
        dims = checks.INPUT_SHAPES.get(name)
        if dims is None or len(dims) < 2 or leading_position(dims[-2:]) is not None:
            continue
        if all(_takes(checks, sizes, position) for sizes in _choices(checks)):
            method = "t()" if len(dims) == 2 else "mT"
            swapped = ", ".join(map(str, (*dims[:-2], dims[-1], dims[-2])))
            found.append(f"{name}.{method}, or a declared {name}[{swapped}], would fit")
    return "; ".join(found)


def _choices(checks: Any) -> tuple[Sizes, Sizes]:
    """The sizes of the tests, and others."""
    parameters = signature(checks.make).parameters.values()
    usual = {
        item.name: item.default
        for item in parameters
        if type(item.default) is int and item.name not in OWN
    }
    other = checks.FURTHER_CASES.get("larger-sizes", {})
    return usual, usual | {name: other[name] for name in usual if name in other}


def _takes(checks: Any, sizes: Sizes, transposed: int | None = None) -> bool:
    """Whether the forward takes inputs of these sizes, that at one position with its last two dims exchanged."""
    try:
        with torch.no_grad():
            inputs = list(checks.make(**sizes))
            if transposed is not None:
                inputs[transposed] = inputs[transposed].mT
            (checks.FORWARD or checks.OPERATOR)(*inputs)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False
    return True


def _fits(checks: Any, sizes: Sizes, name: str) -> list[int]:
    """What one dim may be, the others being as they are."""
    return [size for size in SIZES if _takes(checks, sizes | {name: size})]


def _bound(checks: Any, usual: Sizes, other: Sizes, name: str) -> tuple[str, ...]:
    """That a dim is large enough, or a multiple."""
    fits = _fits(checks, usual, name)
    least = fits[0] if fits else 0
    if fits[:FURTHER] == list(range(least, least + FURTHER)):
        then = next(iter(_fits(checks, other, name)), 0)
        terms = [
            *_terms(checks, usual, other, (name,)).items(),
            (str(least), (least,) * 2),
        ]
        bounds = [text for text, values in terms if values == (least, then)]
        return tuple(f"{name} >= {text}" for text in bounds[:1])
    if least and fits == [size for size in SIZES if size % least == 0]:
        return (f"{name} % {least} == 0",)
    return ()


def _equal(checks: Any, usual: Sizes, other: Sizes, name: str) -> tuple[str, ...]:
    """What a dim is of the others."""
    for size in _fits(checks, usual, name):
        found = _related(checks, usual | {name: size}, other, (name,))
        if found:
            return found
    return ()


def _terms(checks: Any, first: Sizes, second: Sizes, names: Sequence[str]) -> Terms:
    """The other dims and the whole numbers among the attributes, in both choices."""
    found = {
        name: (value, second[name])
        for name, value in first.items()
        if name not in names
    }
    for name, value in zip(checks.NAMES, checks.make(**first), strict=False):
        if type(value) is int and value > 1 and name not in names:
            found.setdefault(name, (value, value))
    return found


def _related(
    checks: Any, first: Sizes, second: Sizes, names: Sequence[str]
) -> tuple[str, ...]:
    """What dims are of the others, in both choices."""
    terms = _terms(checks, first, second, names)
    several = [
        [item for item in expressions(terms) if item[1] == first[name]]
        for name in names
    ]
    for chosen in product(*several):
        values = second | {
            name: value for name, (_, _, value) in zip(names, chosen, strict=True)
        }
        larger = [values | {name: values[name] + 1} for name in names]
        if _takes(checks, values) and not any(_takes(checks, one) for one in larger):
            pairs = zip(names, chosen, strict=True)
            return tuple(f"{name} == {text}" for name, (text, _, _) in pairs)
    return ()


def expressions(terms: Terms) -> Iterator[tuple[str, int, int]]:
    """Simple expressions of the names, each with its values."""
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
        yield f"{name} - {number}", one - number, two - number
