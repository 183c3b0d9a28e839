"""Matrices without an inverse: a backward gives what autograd gives, and raises nowhere."""

import pytest
import torch
from torch import Tensor

from tests.derive.against_autograd import POLICIES, check_forward, tensor
from tests.derive.building import load, op_text, reference

RANK_2 = torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]).double()
RANK_1 = torch.ones(3, 3, dtype=torch.double)
BATCH = torch.stack([RANK_2, 2 * torch.eye(3, dtype=torch.double)])
FORWARDS = ("torch.linalg.det(x)", "torch.logdet(x)", "torch.linalg.slogdet(x)[1]")


def gradient(call: object, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(call(x).sum(), x)  # type: ignore[operator]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("x", [RANK_2, RANK_1, BATCH, torch.zeros_like(RANK_1)])
def test_a_singular_matrix_is_no_error(forward: str, policy: str, x: Tensor) -> None:
    op = load(op_text("x", forward=forward, save_policy=policy)).some_op
    ours, theirs = gradient(op, x), gradient(reference(["x"], forward), x)
    both = theirs.isfinite() & ours.isfinite()
    torch.testing.assert_close(ours[both], theirs[both])
    if "det(x)" in forward and "log" not in forward:
        assert both.all()
    if x is BATCH:  # what is infinite of one matrix is not of another
        assert both[1].all()


@pytest.mark.parametrize(
    "forward",
    [*FORWARDS, "torch.linalg.inv_ex(x)[0]", "torch.linalg.inv_ex(x).inverse"],
)
def test_other_matrices(forward: str) -> None:
    x = tensor(2, 3, 3)
    check_forward("x", forward.replace("(x)", "(x @ x.mT)"), [(x,), (x[0],)])
