"""`@` of tensors whose ranks nobody declared: right for vectors and batches, or an error; never another number."""

import re
from functools import cache
from typing import Any

import pytest
import torch

from scaffold.derive import derive
from tests.derive.building import load, spec_of, text_of

SHAPES = {
    "vector, batch": ((3,), (2, 3, 4)),
    "vector, square batch": ((3,), (3, 3, 3)),
    "batch, vector": ((2, 4, 3), (3,)),
    "square batch, vector": ((3, 3, 3), (3,)),
    "vector, matrix": ((3,), (3, 4)),
    "matrix, vector": ((4, 3), (3,)),
    "vectors": ((3,), (3,)),
    "matrices": ((2, 3), (3, 4)),
    "batches": ((5, 1, 2, 3), (6, 3, 4)),
}


@cache
def derived(forward: str) -> Any:
    spec = spec_of("x, y", forward=forward, derive=True)
    return load(text_of(spec, derive(spec))).some_op


@pytest.mark.parametrize("forward", ["x @ y", "torch.tanh((2 * x) @ y)", "x @ y.exp()"])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True)])
def test_the_gradient_is_right_or_refused(
    forward: str, shapes: str, needs: tuple[bool, bool]
) -> None:
    torch.manual_seed(0)
    x, y = (
        torch.randn(shape, dtype=torch.double).requires_grad_(need)
        for shape, need in zip(SHAPES[shapes], needs, strict=True)
    )
    wanted = [item for item in (x, y) if item.requires_grad]
    expected = eval(forward, {"torch": torch, "x": x, "y": y})
    cotangent = torch.randn_like(expected)
    right = torch.autograd.grad(expected, wanted, cotangent)
    try:
        found = torch.autograd.grad(derived(forward)(x, y), wanted, cotangent)
    except (RuntimeError, IndexError) as error:
        assert "vector" in shapes
        assert re.search(r"mT|size|out of range", str(error))
        return
    for one, two in zip(found, right, strict=True):
        torch.testing.assert_close(one, two)
