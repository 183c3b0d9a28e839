"""Casts in the backward of a region: where autocast would leave operands of several dtypes to what takes one."""

import pytest
import torch
from torch import Tensor

from tests.derive.building import backward_of, draft_of, load, op_text, spec_of

POOLED = "x[B, N, D], w[D, H], a[H]"
POOL = "(torch.tanh(x @ w) * torch.softmax(x @ w @ a, -1).unsqueeze(-1)).sum(-2)"
PICKED = "h[N, D], weight[V, D], target[N; index(V)]"
PICK = "torch.logsumexp(h @ weight.t(), -1) - (h * weight[target]).sum(-1)"


def run(text: str, *inputs: Tensor) -> list[Tensor]:
    op = load(text).some_op
    with torch.autocast("cpu"):
        output = op(*inputs)
    return [
        *torch.autograd.grad(
            output.double().square().sum(), [x for x in inputs if x.requires_grad]
        )
    ]


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_a_product_over_leading_dims_takes_one_dtype(policy: str) -> None:
    text = op_text(POOLED, forward=POOL, save_policy=policy)
    assert ".dtype)" in backward_of(text)
    torch.manual_seed(0)
    x, w, a = (torch.randn(s, requires_grad=True) for s in ((2, 3, 4), (4, 5), (5,)))
    found = run(text, x, w, a)
    assert [item.dtype for item in found] == [torch.float32] * 3


def test_what_is_put_at_an_index_takes_one_dtype() -> None:
    spec = spec_of(PICKED, forward=PICK)
    h, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    run(draft_of(spec), h, weight.requires_grad_(), torch.tensor([0, 2, 4]))


@pytest.mark.parametrize("index", ["torch.tensor([0, 0])", "torch.tensor(at)"])
def test_positions_are_not_cast(index: str) -> None:
    forward = f"h = x.index_select(0, {index})\nif h.ndim == 1:\n    h = torch.tensordot(h, h, dims=1)\nreturn torch.frac(h)"
    text = op_text("x, at: tuple[int, ...] = (0, 0)", forward=forward)
    assert "index_add" in backward_of(text)
    x = torch.rand(3, 4, requires_grad=True)
    (wanted,) = torch.autograd.grad(x[[0, 0]].frac().square().sum(), x)
    torch.testing.assert_close(run(text, x), [wanted], check_dtype=False)


def test_a_gradient_made_of_what_autograd_hands_in_has_the_dtype_of_its_value() -> None:
    """Of a loss that is no less precise than the saved value, and of that value, no cast is needed."""
    spec = spec_of(
        "logits[N, C], target[N; index(C)]",
        forward="log_probs = torch.log_softmax(logits, -1)\nreturn -log_probs.gather(1, target[:, None]).mean()",
    )
    assert ".to(" not in backward_of(draft_of(spec))
    logits = torch.randn(3, 4, requires_grad=True)
    (found,) = run(draft_of(spec), logits, torch.tensor([0, 2, 3]))
    assert found.dtype == torch.float32
    # A product is in half precision where the probabilities are in full.
    text = op_text(
        "q[N, D], k[M, D], v[M, E]", forward="torch.softmax(q @ k.mT, -1) @ v"
    )
    assert ".to(probs.dtype)" in text or ".to(softmax.dtype)" in text
    run(text, *(torch.randn(3, 4, requires_grad=True) for _ in range(3)))


def test_without_a_region_there_is_no_cast() -> None:
    for amp in ("off", "float32"):
        text = op_text(POOLED, forward=POOL, amp=amp)
        assert ".dtype)" not in backward_of(text)


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_what_is_put_keeps_its_precision(policy: str) -> None:
    forward = "torch.exp(x @ w).sum(-1) + torch.exp(x[order]).sum(-1)"
    text = op_text(
        "x[N, D], w[D, H], order[N; index(N)]", forward=forward, save_policy=policy
    )
    assert "index_add" in backward_of(text)
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, requires_grad=True), torch.zeros(4, 2)
    order = torch.tensor([2, 0, 1])
    op = load(text).some_op
    with torch.autocast("cpu"):
        output = op(x, w, order)
    (found,) = torch.autograd.grad(output.double().sum(), [x])
    torch.testing.assert_close(found, x.detach().exp())
