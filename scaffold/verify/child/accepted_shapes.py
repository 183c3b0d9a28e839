"""Which sizes and shapes the forward takes, tried on it: where it refuses those of the tests, and of inputs that nobody declared.

In: the module of checks. Out: how sizes depend on each other, as conditions that `--require` takes: "G == 3 * H"; what to write in --inputs:
`a[N, D], b[D, K]`; nothing where no few sizes or dims do. Invariant: the forward was called with what is proposed. It takes sizes that
satisfy the conditions, two different choices of them, and refuses one more of each; two dims have one name only where it refuses to
change one of them alone. That two declared names are equal is no condition to assume: whoever gave them two names may have
forgotten a transpose.
"""

from collections.abc import Iterator, Mapping, Sequence
from inspect import signature
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import torch
from torch import Tensor

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
        [item for item in _expressions(terms) if item[1] == first[name]]
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


def _expressions(terms: Terms) -> Iterator[tuple[str, int, int]]:
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
        if _takes_shapes(checks, usual, shapes):
            return _named(checks, usual, shapes)
    return ""


def _unusual(ranks: Sequence[int]) -> tuple[int, int]:
    """Matrices first."""
    return sum(abs(rank - 2) for rank in ranks), sum(ranks)


def _takes_shapes(checks: Any, usual: Sequence[Any], shapes: Shapes) -> bool:
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
            if _takes_shapes(checks, usual, _changed(shapes, together, size)):
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
    if len(name_of) < len(kinds) or not _takes_shapes(checks, usual, shapes):
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
