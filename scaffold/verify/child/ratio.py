"""A constant factor between two tensors, in words.

In: two tensors of one shape. Out: "sign", "factor 2", "factor 1/3", or "" where no factor explains the difference.
Invariant: of a single element, which any factor explains, only a simple one is believed.
"""

from collections.abc import Callable
from fractions import Fraction

from torch import Tensor

SIMPLE = 64  # the largest numerator and denominator of a factor that is written as a fraction


def name_ratio(
    actual: Tensor, expected: Tensor, close: Callable[[Tensor, Tensor], bool]
) -> str:
    """The factor by which the actual value is too large."""
    place = int(expected.abs().argmax()) if expected.numel() else 0
    largest = expected.flatten()[place].item() if expected.numel() else 0.0
    if not largest:
        return ""
    ratio = actual.flatten()[place].item() / largest
    if not ratio or not close(actual, expected * ratio):
        return ""
    if isinstance(ratio, complex) and abs(ratio.imag) < 1e-9 * abs(ratio):
        ratio = ratio.real
    if isinstance(ratio, complex):
        telling = int((expected != 0).sum()) > 1
        return f"factor {ratio:.4g}" if telling else ""
    return _named(ratio, telling=int((expected != 0).sum()) > 1)


def _named(ratio: float, telling: bool) -> str:
    near = Fraction(ratio).limit_denominator(SIMPLE)
    simple = abs(near.numerator) <= SIMPLE and abs(near - ratio) < 1e-6 * abs(ratio)
    if simple and near == -1:
        return "sign"
    if simple and (telling or 1 in (abs(near.numerator), near.denominator)):
        return f"factor {near}"
    return f"factor {ratio:.4g}" if telling else ""
