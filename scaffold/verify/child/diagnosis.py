"""Diagnosis: the error of a gradient in words; for a surrogate, its difference from the derivative.

A proof that only said "wrong" would help nobody: these phrases name the likely slip. In: the gradient that backward returned, the
expected one, and the `Scene`: inputs, outputs, the other gradients.
Out: a phrase such as "transposed", "factor 2" or "where x < 0", or None for a right gradient; for a surrogate notes, one for each
gradient: whether it is the derivative; these are no failures.
Invariant: a phrase is exact: mending the gradient as it says gives the expected one. If no phrase is exact, only the largest difference
is reported. Any factor explains a single element, so there only a simple factor is believed. The condition that describes a set of
elements holds for those and for no other one, and there are too many of them for chance.
Words: `actual` is judged by `expected`, and has to be `like` a value in shape and dtype; a *draw* is a call with inputs of another seed; a
match is *telling* if chance would hardly give it; *others* are the gradients of the other inputs. Of `checks`, OPERATOR is the op, FORWARD
the same in plain PyTorch; None if that is not known, for a surrogate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from inspect import signature
from itertools import combinations, permutations
from math import comb, isfinite
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.cases import (
    Case,
    dtype_name,
    list_cases,
    make_inputs,
    needs_gradient,
    value_names,
)
from scaffold.verify.child.derivatives import gradients_of

CONDITIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("where {} > 0", lambda x: x > 0),
    ("where {} < 0", lambda x: x < 0),
    ("where {} == 0", lambda x: x == 0),
    ("where |{}| > 1", lambda x: x.abs() > 1),
    ("where |{}| < 1", lambda x: x.abs() < 1),
    ("where {} > 1", lambda x: x > 1),
    ("where {} < 1", lambda x: x < 1),
    ("where {} < -1", lambda x: x < -1),
    ("where {} > -1", lambda x: x > -1),
    ("where |{}| > 0.5", lambda x: x.abs() > 0.5),
    ("where |{}| < 0.5", lambda x: x.abs() < 0.5),
    ("where {} is the largest of its row", lambda x: x == x.amax(-1, keepdim=True)),
)


Values = dict[str, Tensor]  # inputs and outputs by name
TELLING = 200  # so many sets of as many elements make a match more than chance


def name_places(mask: Tensor, values: Values) -> str:
    """Describe the elements of a mask by a condition exact for them, `where x < 0`, or by an index; "" if there is none."""
    if mask.all() or not mask.any():
        return ""
    return name_condition((mask, values)) or next(_indices(mask), "")


def name_condition(*draws: tuple[Tensor, Values]) -> str:
    """Return the first condition, `where x < 0`, exact in each draw; "" if there is none.

    A draw is a mask of the wrong elements, and the inputs and outputs of that call by name. Among few elements a condition is exact by
    chance: six elements have the signs of `grad_output` once in 64 times.
    """
    for name, value in draws[0][1].items():
        # Conditions compare numbers, so not complex ones; of no dims or elements they say nothing of places.
        if value.is_complex() or value.ndim == 0 or value.numel() == 0:
            continue
        for words, condition in CONDITIONS:
            pairs = [(condition(values[name]), mask) for mask, values in draws]
            if all(fits(x, m) and x.expand_as(m).equal(m) for x, m in pairs):
                elements = torch.cat([x.flatten() for x, _ in pairs])
                # By chance it would be one of all masks with as many True elements.
                if comb(elements.numel(), int(elements.sum())) >= TELLING:
                    return words.format(name)
    return ""


def _indices(mask: Tensor) -> Iterator[str]:
    """Yield `at index 2 of dim 0`, if the mask is exactly all elements of this index."""
    for dim in range(mask.ndim):
        # `flatten(1)` needs two dims.
        rows = mask.movedim(dim, 0).flatten(1) if mask.ndim > 1 else mask[:, None]
        full = rows.all(1)
        # Each index is wrong in all its elements or in none, and a single one is wrong.
        if torch.equal(full, rows.any(1)) and int(full.sum()) == 1:
            yield f"at index {int(full.int().argmax())} of dim {dim}"


def fits(value: Tensor, wide: Tensor) -> bool:
    """Return whether a tensor expands to the shape of `wide` by broadcasting."""
    # From the last dim on, as PyTorch broadcasts: the first ones may be missing.
    sizes = zip(reversed(value.shape), reversed(wide.shape), strict=False)
    return value.ndim <= wide.ndim and all(a in (1, b) for a, b in sizes)


SIMPLE = 64  # the largest numerator and denominator of a factor written as a fraction


def name_ratio(
    actual: Tensor, expected: Tensor, close: Callable[[Tensor, Tensor], bool]
) -> str:
    """Return the one factor between all actual and expected elements, `factor 2`; "" if there is none.

    It is read off the largest expected element; `close` decides whether it explains all the others.
    """
    if not expected.any():
        return ""
    place = int(expected.abs().argmax())
    ratio = actual.flatten()[place].item() / expected.flatten()[place].item()
    # 0 is no factor: `_phrases` says "always 0" of that.
    if not isfinite(abs(ratio)) or not ratio or not close(actual, expected * ratio):
        return ""
    telling = int((expected != 0).sum()) > 1  # one number has a ratio by chance
    if isinstance(ratio, complex) and abs(ratio.imag) < 1e-9 * abs(ratio):
        ratio = ratio.real
    if isinstance(ratio, complex):
        return f"factor {ratio:.4g}" if telling else ""
    return _factor_in_words(ratio, telling)


def _factor_in_words(ratio: float, telling: bool) -> str:
    """Return `wrong sign`, `factor 2/3` or `factor 0.1234`; "" if it may be chance.

    It may be if only one element was compared (`telling` is false), as some number always explains that: there only 2, 1/3 and such count.
    """
    near = Fraction(ratio).limit_denominator(SIMPLE)
    simple = abs(near.numerator) <= SIMPLE and abs(near - ratio) < 1e-6 * abs(ratio)
    if simple and near == -1:
        return "wrong sign"
    if simple and (telling or 1 in (abs(near.numerator), near.denominator)):
        return f"factor {near}"
    return f"factor {ratio:.4g}" if telling else ""


SHOWN = 6  # elements shown of a value
PERMUTED = 4  # up to this many dims every order is tried


@dataclass(frozen=True)
class Scene:
    """The context of a comparison: all that the words for an error may refer to."""

    name: str  # of the judged value: "grad_weight"
    value: Tensor | None = None  # the input of the judged gradient
    factors: Values = field(default_factory=dict)  # inputs and outputs, by name
    others: dict[str, Tensor] = field(default_factory=dict)  # the other gradients
    tolerance: dict[str, float] = field(default_factory=dict)

    def close(self, actual: Tensor, expected: Tensor) -> bool:
        """Return whether shape and values agree, as in `torch.testing.assert_close`."""
        if actual.shape != expected.shape:
            return False
        limits = {"rtol": 1e-7, "atol": 1e-7} | self.tolerance
        return torch.allclose(
            actual.to(expected.dtype), expected, equal_nan=True, **limits
        )


def diagnose(actual: Any, expected: Tensor | None, scene: Scene) -> str | None:
    """Return the phrase for a wrong gradient or output, None for a right one; without an expected value, judge shape and dtype.

    A gradient has to be like its input, `scene.value`; an output, for which that is None, like the expected one.
    """
    like = expected if scene.value is None else scene.value
    assert like is not None
    if actual is None:
        return "None, but needed"
    if not isinstance(actual, Tensor):
        return f"a {type(actual).__name__} instead of a tensor"
    actual = actual.detach()
    if actual.shape != like.shape:
        return _shape(actual, like, expected, scene)
    if actual.dtype != like.dtype:
        return f"dtype {dtype_name(actual.dtype)} instead of {dtype_name(like.dtype)}"
    if expected is None or scene.close(actual, expected):
        return None
    return next(_phrases(actual, expected, scene))  # its last phrase always fits


def _phrases(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield phrases for a wrong value of the right shape, the most telling first."""
    if not actual.isfinite().all() and expected.isfinite().all():
        kind = "nan" if actual.isnan().any() else "inf"
        where = name_places(~actual.isfinite(), scene.factors)
        yield f"not finite: {kind}" + (f" {where}" if where else "")
    if not actual.any():
        yield "always 0"
    yield from _orders(actual, expected, scene)
    yield from _swapped(actual, scene)
    ratio = name_ratio(actual, expected, scene.close)
    if ratio:
        yield ratio
    if expected.is_complex() and scene.close(actual.conj(), expected):
        yield "conjugated"
    yield from _factors(actual, expected, scene)
    yield from _averaged(actual, expected, scene)
    yield from _sums_too_many(actual, expected, scene)
    yield from _somewhere(actual, expected, scene)
    yield _largest(actual, expected)


def _shape(actual: Tensor, like: Tensor, expected: Tensor | None, scene: Scene) -> str:
    """Describe a wrong shape, and its likely cause if the expected value is known: `not reshaped: shape (6,) instead of (2, 3)`.

    `like` has the right shape.
    """
    shapes = f"shape {tuple(actual.shape)} instead of {tuple(like.shape)}"
    if expected is None:
        return shapes
    for phrase in _reshaped(actual, expected, scene):  # the first, if any
        return f"{phrase}: {shapes}"
    return shapes


def _reshaped(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase for each operation that turns a value of the wrong shape into the expected one."""
    yield from _orders(actual, expected, scene)
    yield from _swapped(actual, scene)
    for dims in _subsets(actual.ndim):
        if actual.numel() == 0:  # sums of nothing would agree with zeros
            break
        for keepdim in (False, True):
            if scene.close(actual.sum(dims, keepdim=keepdim), expected):
                yield f"missing sum over {_named(dims)}"
            if scene.close(actual.mean(dims, keepdim=keepdim), expected):
                yield f"missing mean over {_named(dims)}"
    for dims in _subsets(expected.ndim):
        for keepdim in (False, True):
            if scene.close(expected.sum(dims, keepdim=keepdim), actual):
                yield f"summed over {_named(dims)}, which the input has"
    if fits(actual, expected) and scene.close(actual.expand_as(expected), expected):
        yield "not expanded"
    same = actual.numel() == expected.numel()
    if same and scene.close(actual.reshape(expected.shape), expected):
        yield "not reshaped"


def _orders(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase for each permutation of the dims that gives the expected values: "transposed"."""
    if not 2 <= actual.ndim <= PERMUTED:
        return
    # The first permutation changes nothing.
    for order in list(permutations(range(actual.ndim)))[1:]:
        if scene.close(actual.permute(order), expected):
            swapped = [k for k, axis in enumerate(order) if k != axis]
            if actual.ndim == 2:
                yield "transposed"
            elif len(swapped) == 2:
                yield f"transposed: dims {swapped[0]} and {swapped[1]} are swapped"
            else:
                yield f"transposed: permute{order} is missing"


def _swapped(actual: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase for each other input with this very gradient: `swapped with grad_weight`."""
    for name, other in scene.others.items():
        # Zeros equal any other gradient of zeros: that is no swap.
        if other.any() and scene.close(actual, other):
            yield f"swapped with {name}"


def _factors(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase for each input or output missing from a product, or once too often in it."""
    if expected.numel() < 2:
        return  # too few elements to tell
    for name, value in scene.factors.items():
        for spelled, factor in ((name, value), (f"{name}.mT", _turned(value))):
            if factor is None or not fits(factor, expected):
                continue
            if scene.close(actual * factor, expected):
                yield f"missing factor {spelled}"
            if scene.close(expected * factor, actual):
                yield f"factor {spelled} too many"
            if scene.close(-actual * factor, expected):
                yield f"missing factor -{spelled}"


def _turned(value: Tensor) -> Tensor | None:
    return value.mT if value.ndim > 1 else None


def _averaged(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase if each element is the mean of the expected values over some dims."""
    for dims in _subsets(expected.ndim):
        if expected.numel() > 1:
            mean = expected.mean(dims, keepdim=True).expand_as(expected)
            if scene.close(actual, mean):
                yield f"averaged over {_named(dims)}"


def _sums_too_many(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase if each element is the sum of the expected values over some dims."""
    for dims in _subsets(expected.ndim):
        total = expected.sum(dims, keepdim=True).expand_as(expected)
        if scene.close(actual, total):
            yield f"summed over {_named(dims)} and expanded again"


def _somewhere(actual: Tensor, expected: Tensor, scene: Scene) -> Iterator[str]:
    """Yield a phrase for an error in only some elements, if a condition or an index selects them: `wrong only where x < 0: 0 there`."""
    limits = {"rtol": 1e-7, "atol": 1e-7} | scene.tolerance
    wrong = ~torch.isclose(actual, expected, equal_nan=True, **limits)
    where = name_places(wrong, scene.factors)
    if where:
        only = actual[wrong], expected[wrong]
        # `name_ratio` has no factor for 0, so it is said here.
        how = "0" if not only[0].any() else name_ratio(*only, scene.close)
        yield f"wrong only {where}" + (f": {how} there" if how else "")


def _largest(actual: Tensor, expected: Tensor) -> str:
    """Describe the largest difference, and its place: `largest difference 0.5 at (0, 1): 1.5 instead of 1`."""
    difference = (actual - expected).abs().nan_to_num(nan=torch.inf)
    flat = int(difference.argmax())
    index = []  # `flat` as an index for each dim, the last one first
    for size in reversed(difference.shape):
        flat, rest = divmod(flat, size)
        index.append(rest)
    place = tuple(reversed(index))
    got, wanted = actual[place].item(), expected[place].item()
    where = f" at {place}" if place else ""
    largest = difference[place].item()
    return f"largest difference {largest:.3g}{where}: {got:.4g} instead of {wanted:.4g}"


def show(value: Any) -> str:
    """Show a value in a few words: its shape, dtype and first elements."""
    if not isinstance(value, Tensor):
        return repr(value)
    flat = value.detach().flatten()[:SHOWN].tolist()
    listed = ", ".join(f"{item:.4g}" for item in flat)
    more = ", ..." if value.numel() > SHOWN else ""
    return f"{tuple(value.shape)} {dtype_name(value.dtype)} [{listed}{more}]"


def _subsets(ndim: int) -> list[tuple[int, ...]]:
    """Return the sets of dims, small ones first; of more than PERMUTED dims only single ones, as the sets would be too many."""
    if ndim > PERMUTED:
        return [(dim,) for dim in range(ndim)]
    counts = range(1, ndim + 1)
    return [dims for count in counts for dims in combinations(range(ndim), count)]


def _named(dims: tuple[int, ...]) -> str:
    words = ", ".join(map(str, dims))
    return f"dim {words}" if len(dims) == 1 else f"dims {words}"


def notes_on(checks: Any) -> list[str]:
    """Return a note for each gradient of a surrogate: in which elements it is not the forward's derivative; [] if the forward is not known.

    The user reads there whether the surrogate differs as intended: `surrogate: grad_x differs from the derivative where |x| > 1`. A note is
    about the first case with a difference.
    """
    if checks.FORWARD is None:
        return []
    found = dict[str, str]()
    for case in list_cases(checks):
        of_case = "" if case.name == "base" else f", in the case {case.name}"
        # Samples of the user's own are the same for each seed.
        count = 1 if "sample" in signature(checks.make).parameters else DRAWS
        draws = [_differences(checks, case, seed) for seed in range(count)]
        # No name, if the call of the first draw raised: this case tells nothing.
        for name in draws[0]:
            where = _places([one[name] for one in draws if name in one])
            # "", not a difference, is overwritten by a later case; the first difference stays.
            if not found.get(name):
                found[name] = where and f"differs from the derivative {where}{of_case}"
        if all(found.values()):
            break
    same = "equals the derivative on the inputs tried"
    return [f"surrogate: {name} {words or same}" for name, words in found.items()]


DRAWS = 8  # of inputs, for the places where a surrogate differs


def _differences(
    checks: Any, case: Case, seed: int
) -> dict[str, tuple[Tensor, Values]]:
    """Return, for each gradient, the mask of its elements unlike the forward's derivative, and the inputs by name; {} if a call raises.

    From these `name_condition` says where a gradient is wrong: where x < 0, say; draws by other seeds confirm it.
    """
    seeded = case._replace(arguments=case.arguments | {"seed": seed})
    inputs = make_inputs(checks, seeded, torch.clone)
    try:
        actual = checks.gradients(checks.OPERATOR(*inputs), inputs)
        derivative = gradients_of(checks, checks.FORWARD(*inputs), inputs)
    except Exception:  # noqa: BLE001 (the gradients have been judged already)
        return {}
    pairs = [*zip(value_names(checks, len(inputs)), inputs, strict=True)]
    values = {name: x.detach() for name, x in pairs if isinstance(x, Tensor)}
    wanted = [f"grad_{name}" for name, x in pairs if needs_gradient(x)]
    near = partial(torch.isclose, rtol=1e-7, atol=1e-7, equal_nan=True)
    differs = (~near(one, two) for one, two in zip(actual, derivative, strict=True))
    return {name: (wrong, values) for name, wrong in zip(wanted, differs, strict=True)}


def _places(draws: Sequence[tuple[Tensor, Values]]) -> str:
    """Describe the elements of a gradient unlike the derivative: by a condition exact in all draws, or by their number in the first.

    A draw is the mask of these elements, and the inputs by name; "" if the first mask is empty.
    """
    wrong, _ = draws[0]
    count = int(wrong.sum())
    if count in (0, wrong.numel()):
        return "everywhere" if count else ""
    return name_condition(*draws) or f"in {count} of {wrong.numel()} places"
