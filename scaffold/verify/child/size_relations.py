"""Size relations: derive one declared size from others if the forward refuses the tests' sizes.

A forward may refuse declared sizes since one follows from another: a gate's weight `w[G, D]` with G = 3 * H. The proof asks here for that
condition, adds it to the op and proves it again (`checking._search_shapes`).
In: the module of checks (`checks`). Out: a condition as for `--require`, "G == 3 * H", or none. Invariant: the forward was run with sizes
that satisfy it, two different choices of all and one more for each size in the condition; and it refuses a size one larger, one smaller
and twice as large. The tests' sizes are consecutive, so much is true of them by chance, as `KW == C + 4` if the forward requires `KW <= W
+ 2`. Two declared names are never assumed equal: whoever gave them two names may have forgotten a transpose. `size_conditions` reads
several conditions at once from many choices of sizes.

Words: of `checks`, OPERATOR is the op, FORWARD the same in plain PyTorch, or None; *usual* are the sizes of the tests; *numbers* are
integer attributes, such as `heads`; the forward *takes* sizes if it accepts inputs of them, and *wants* a size if it takes no other one.

Of 623 known ops with declared shapes, 20 are accepted only thanks to this: gates packed in one weight, grouped heads.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import signature
from itertools import combinations, combinations_with_replacement, product
from operator import add, eq, ge, gt, le, mul
from random import Random
from time import process_time
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

OWN = frozenset({"count", "sample", "seed"})  # parameters of `make` other than sizes
Sizes = dict[str, int]  # by the name of a dim


class _Expression(NamedTuple):
    """A simple expression of sizes, and the function to compute it."""

    text: str  # "3 * H"
    names: tuple[str, ...]  # ("H",)
    function: Callable[..., int]  # of the sizes of these names

    def value(self, sizes: Sizes) -> int:
        return self.function(*map(sizes.__getitem__, self.names))


def size_relation(checks: Any) -> tuple[str, ...]:
    """Return the condition, `("G == 3 * H",)`, on one size to make the forward run; () if there is none."""
    usual, other = _choices(checks)
    numbers = _numbers(checks, usual)  # attributes may be part of a condition
    # The last one first: of `G == H + 1` and `H == G - 1`, both true, the later declared size is computed.
    for name in reversed(usual):
        names = [*numbers, *(one for one in usual if one != name)]
        for expression in _expressions(names, numbers | usual):
            # All of the usual sizes, all others, and each size in the expression changed alone.
            changed = (one for one in expression.names if one in usual)
            several = (usual, other, *(usual | {one: other[one]} for one in changed))
            if all(
                _wants(checks, sizes, name, expression.value(numbers | sizes))
                for sizes in several
            ):
                text = expression.text
                # `D == H` would equate two declared names: see the module's docstring.
                return () if text in usual else (f"{name} == {text}",)
    return ()


def stated(name: str, relation: str, other: str) -> str:
    """Return a condition on a size as `--require` reads it: `D % 2 == 0`."""
    return f"{name} {relation} {other}" + " == 0" * (relation == "%")


class _Condition(NamedTuple):
    """A condition on one size: its relation to a number or to an expression of other sizes."""

    name: str
    relation: str
    other: _Expression

    @property
    def text(self) -> str:
        return stated(self.name, self.relation, self.other.text)

    def holds(self, sizes: Sizes) -> bool:
        return RELATIONS[self.relation](sizes[self.name], self.other.value(sizes))


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "%": lambda one, other: one % other == 0,
    "==": eq,
    "<=": le,
    ">=": ge,
    ">": gt,
}
LEAST = 30  # accepted choices from which conditions are read
CHOICES = 1000  # of sizes, at most
SECONDS = 3.0  # of CPU time
TRIED = frozenset((2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16))  # a size of 1 broadcasts
LARGEST = 64


def size_conditions(checks: Any) -> list[str]:
    """Return conditions that tell the accepted sizes, as `C % 8 == 0` and `K <= H`; [] if none are found.

    They hold for every choice of sizes accepted by the forward, and together for none that it refused. The caller shows them as advice; only
    factors, `D % 2 == 0`, are added to the op. A greedy cover: the next condition is the one that excludes the most refused choices left.
    """
    usual, _ = _choices(checks)
    numbers = _numbers(checks, usual)
    accepted, refused = (
        [numbers | sizes for sizes in several]
        for several in _tried(checks, usual, [*numbers.values()])
    )
    # Of few accepted choices too much is true by chance.
    if len(accepted) < LEAST:
        return []
    listed = _conditions(usual, numbers)
    possible = [one for one in listed if all(map(one.holds, accepted))]
    found = list[_Condition]()
    while refused and possible:  # the condition that excludes the most comes next
        left = [[*filter(one.holds, refused)] for one in possible]
        fewest = min(left, key=len)
        # No condition left excludes any of them: what was found would not tell all.
        if len(fewest) == len(refused):
            return []
        found.append(possible[left.index(fewest)])
        refused = fewest
    # Two declared names are never assumed equal.
    equal = any(one.relation == "==" and one.other.text in usual for one in found)
    # A choice that none of the conditions excludes was refused for another reason.
    return [] if refused or equal else sorted(one.text for one in found)


def _tried(
    checks: Any, usual: Sizes, numbers: Sequence[int]
) -> tuple[list[Sizes], list[Sizes]]:
    """Draw choices of sizes at random; return the choices accepted by the forward, and the refused ones.

    `usual` has the sizes of the tests, `numbers` the integer attributes. As it may refuse most, every other choice differs in one size
    from an accepted one. Integers in its code are among the sizes tried.
    """
    code = getattr(checks.FORWARD or checks.OPERATOR, "__code__", None)
    said = [one for one in code.co_consts if type(one) is int] if code else []
    # Two multiples of each, as one alone would not tell `C % 8 == 0` from `C == 8`.
    multiples = {by * one for by in (1, 2) for one in (*numbers, *said)}
    tried = sorted(TRIED.union(one for one in multiples if 1 < one <= LARGEST))
    random, until = Random(0), process_time() + SECONDS
    accepted, refused = list[Sizes](), list[Sizes]()
    for count in range(CHOICES):
        sizes = {name: random.choice(tried) for name in usual}
        if count % 2 and accepted:
            name = random.choice([*usual])
            sizes = random.choice(accepted) | {name: sizes[name]}
        (accepted if _takes(checks, sizes) else refused).append(sizes)
        if process_time() > until:
            break
    return accepted, refused


def _conditions(names: Sizes, numbers: Sizes) -> Iterator[_Condition]:
    """Yield possible conditions on each size: a factor, equality to an expression of other sizes, lower and upper bounds.

    Of conditions that exclude equally many choices, `size_conditions` takes the first yielded here.
    """
    # Attributes by name, and numbers by their text.
    known = numbers | {str(one): one for one in range(2, LARGEST + 1)}
    fixed = [_Expression(text, (), partial(int, one)) for text, one in known.items()]
    for name in names:
        others = [*numbers, *(one for one in names if one != name)]
        yield from (_Condition(name, "%", one) for one in fixed)
        for one in _expressions(others, numbers | names):
            yield _Condition(name, "==", one)
            if one.text in others:  # a single name: `Hq % Hk == 0`
                yield _Condition(name, "%", one)
            # A name, more or less a number: `K <= W + 2`.
            if len(one.names) == 1 and "*" not in one.text:
                yield _Condition(name, "<=", one)
        yield from (_Condition(name, ">=", one) for one in fixed)
        for one in _dilated(others, numbers):
            yield _Condition(name, ">", one)


def _dilated(names: Sequence[str], numbers: Sizes) -> Iterator[_Expression]:
    """Yield the extents of a dilated kernel, which an input must exceed: `2 * (K - 1)`, less the padding `2 * (K - 1) - 4`."""
    # Both sides are padded alike, so the padding is even. A dilation of 1 is `K <= W + 2` in `_conditions`.
    for padding, name in product(range(0, 9, 2), names):
        end = f" - {padding}" if padding else ""
        for factor in (one for one in numbers if one != name):
            reach = partial(_reach, padding)
            yield _Expression(f"{factor} * ({name} - 1){end}", (factor, name), reach)
        for number in range(2, 9):
            reach = partial(_reach, padding, number)
            yield _Expression(f"{number} * ({name} - 1){end}", (name,), reach)


def _reach(padding: int, dilation: int, kernel: int) -> int:
    return dilation * (kernel - 1) - padding


def _wants(checks: Any, sizes: Sizes, name: str, size: int) -> bool:
    """Return whether the forward accepts only this size of the dim `name`: no neighbour, as a bound would allow, nor the double, as a factor would.

    A size of 1 is not tried: it broadcasts.
    """
    refused = (one for one in (size + 1, size - 1, 2 * size) if one > 1)
    return _takes(checks, sizes | {name: size}) and not any(
        _takes(checks, sizes | {name: one}) for one in refused
    )


def _choices(checks: Any) -> tuple[Sizes, Sizes]:
    """Return the sizes of the tests by name, and a second choice, all of them larger if the proof has one."""
    parameters = signature(checks.make).parameters.values()
    usual = {
        item.name: item.default
        for item in parameters
        if type(item.default) is int and item.name not in OWN
    }
    other = checks.FURTHER_CASES.get("larger-sizes", {})
    return usual, usual | {name: other[name] for name in usual if name in other}


class EqualParts(TorchFunctionMode):
    """A mode to refuse chunks of unequal sizes: the 2 and 1 elements of 3 fit by broadcasting alone."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a PyTorch function; raise RuntimeError if it is `chunk`, and its parts differ in size."""
        result = func(*args, **(kwargs or {}))
        parts = result if getattr(func, "__name__", "") == "chunk" else ()
        if len({part.shape for part in parts}) > 1:
            raise RuntimeError("the chunks have unequal sizes")
        return result


def _takes(checks: Any, sizes: Sizes) -> bool:
    """Return whether the forward accepts inputs of these sizes."""
    try:
        with torch.no_grad(), EqualParts():
            (checks.FORWARD or checks.OPERATOR)(*checks.make(**sizes))
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False
    return True


def _numbers(checks: Any, usual: Sizes) -> Sizes:
    """Return the attributes with integer values above 1: a factor of 1 says nothing."""
    # Not strict: the last input may be variadic, `*tensors`, with any number of values.
    values = zip(checks.NAMES, checks.make(**usual), strict=False)
    return {one: value for one, value in values if type(value) is int and value > 1}


def _expressions(names: Sequence[str], sizes: Sizes) -> Iterator[_Expression]:
    """Yield simple expressions of the names, one of which may give another size the forward asks for: `D == 2 * H`.

    They are `H`, `H * W`, `2 * H`, `H + W`, `H + 1`, and `H - 1` if that stays above 1.
    """
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
