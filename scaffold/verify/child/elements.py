"""A set of elements, described by a condition on an input or by an index.

In: a mask, and the inputs. Out: "where x < 0", "at index 1 of dim 0", or "" where nothing says exactly which.
Invariant: the condition holds of the masked elements and of no other one.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

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


def name_places(mask: Tensor, inputs: dict[str, Tensor]) -> str:
    """The first description that is exact."""
    if mask.all() or not mask.any():
        return ""
    return next(_descriptions(mask, inputs), "")


def _descriptions(mask: Tensor, inputs: dict[str, Tensor]) -> Iterator[str]:
    for name, value in inputs.items():
        if value.is_complex() or value.ndim == 0 or value.numel() == 0:
            continue
        for words, condition in CONDITIONS:
            held = condition(value)
            if fits(held, mask) and torch.equal(held.expand_as(mask), mask):
                yield words.format(name)
    for dim in range(mask.ndim):
        rows = mask.movedim(dim, 0).flatten(1) if mask.ndim > 1 else mask[:, None]
        whole = rows.all(1)
        if torch.equal(whole, rows.any(1)) and int(whole.sum()) == 1:
            yield f"at index {int(whole.int().argmax())} of dim {dim}"


def fits(value: Tensor, wide: Tensor) -> bool:
    """Whether a tensor expands to the shape of another."""
    sizes = zip(reversed(value.shape), reversed(wide.shape), strict=False)
    return value.ndim <= wide.ndim and all(a in (1, b) for a, b in sizes)
