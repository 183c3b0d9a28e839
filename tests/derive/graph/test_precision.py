"""The dtype of what a backward makes is that of its inputs, whatever PyTorch's default is."""

from itertools import combinations_with_replacement

import pytest

from tests.derive.against_autograd import check_forward, tensor
from tests.sweeps import pairs_in_every_run

# Reductions to one number, whose gradients are cotangents times masks over counts, or times numbers.
REDUCED = (
    "x.max()",
    "x.amin(-1).sum()",
    "x.mean()",
    "x.norm()",
    "torch.linalg.vector_norm(x, math.inf)",
    "F.hardtanh(x).mean()",
    "x.masked_fill(x > 0, 0.5).mean()",
    "torch.where(x > 0, 1.0, 0.5).sum() * x.sum()",
)


PAIRS = [*combinations_with_replacement(REDUCED, 2)]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(("one", "two"), pairs_in_every_run(PAIRS, PAIRS[::3]))
def test_a_sum_and_a_product_of_reductions(one: str, two: str) -> None:
    for label in "+*":
        check_forward("x", f"{one} {label} {two}", [(tensor(3, 4),)])


@pytest.mark.parametrize(
    "forward",
    [
        "y.type(x.type()) * x",
        "h = x * 2\nreturn y.type(h.type()) * h",
        "x.type('torch.DoubleTensor') * y",
        "x.type(torch.DoubleTensor) * y",
        "x.type(torch.float64) * y",
        "x * y.type('torch.LongTensor')",
        "x * torch.equal(x, y)",
        "x * torch.allclose(x, y)",
    ],
)
def test_types_by_name_and_other_python_values(forward: str) -> None:
    check_forward("x, y", forward, [(tensor(2, 3), tensor(3))])
