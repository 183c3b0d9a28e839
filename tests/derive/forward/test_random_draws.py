"""A forward that draws random numbers: what it drew is saved, and the gradient is autograd's on the same numbers."""

import re
from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.spec import OpSpec
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, draft_of, spec_of

ATTENTION = """
weights = (q @ k.mT).softmax(-1)
weights = F.dropout(weights, p=rate, training=training)
return weights @ v
"""
DROP_PATH = """
keep = 1 - rate
mask = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
if keep > 0.0:
    mask.div_(keep)
return x * mask
"""
CALLS: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "inside": (
        "x[B, D], w[D, M]",
        "return F.dropout(torch.relu(x @ w), 0.5) + torch.rand_like(x @ w) * x.sum()",
        [(tensor(3, 4), tensor(4, 2))],
    ),
    "attention": (
        "q[B, S, D], k[B, T, D], v[B, T, D], rate: float = 0.1, training: bool = True",
        ATTENTION,
        [
            (tensor(2, 3, 4), tensor(2, 5, 4), tensor(2, 5, 4), 0.4, training)
            for training in (True, False)
        ],
    ),
    "undeclared": (
        "x, w, rate: float = 0.5",
        "return F.dropout(x, rate) @ w",
        [
            (tensor(3, 4), tensor(4, 2), 0.5),
            (tensor(4, 3).T, tensor(4, 2), 1.0),
            (tensor(0, 4), tensor(4, 2), 0.5),
        ],
    ),
    "path": (
        "x[B, T, D], rate: float = 0.2",
        DROP_PATH,
        [(tensor(3, 2, 4), rate) for rate in (0.5, 1.0)],
    ),
    "chosen": (
        "x[B, D], training: bool = True",
        "x = F.dropout(x, 0.3) if training else x\nreturn x.exp()",
        [(tensor(3, 4), training) for training in (True, False)],
    ),
    "of values": (
        "x[B, D]",
        "p = torch.sigmoid(x)\nreturn p * torch.bernoulli(p) + x * torch.normal(p, 1.0)",
        [(tensor(3, 4),)],
    ),
    "twice the same": (
        "x[B, D]",
        "return F.dropout(x, 0.5) * F.dropout(x, 0.5) + torch.rand_like(x) * x - torch.rand_like(x) * x.exp()",
        [(tensor(3, 4),)],
    ),
    "channels": (
        "x[B, C, L]",
        "return F.dropout1d(x.exp(), 0.5).sum(-1)",
        [(tensor(3, 4, 2),)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_gradient_is_that_of_the_numbers_that_were_drawn(name: str) -> None:
    inputs, forward, calls = CALLS[name]
    check_forward(inputs, forward, calls, derive=True)
    assert not derive(spec_of(inputs, forward=forward, derive=True)).notes


def made(inputs: str, forward: str) -> tuple[OpSpec, str]:
    spec = spec_of(inputs, forward=forward, derive=True)
    return spec, draft_of(spec)


def test_dropout_is_a_product_with_a_mask_that_is_saved() -> None:
    _, text = made("x[B, D], rate: float = 0.5", "return F.dropout(x.exp(), rate)")
    assert "        mask = F.dropout(torch.ones_like(undropped), rate)\n" in text
    assert "        return undropped * mask, undropped, mask\n" in text
    assert "dropout" not in backward_of(text)


def test_a_draw_is_never_repeated() -> None:
    """The draw comes from ctx, and the mask is computed of it again."""
    _, text = made("x[B, T, D], rate: float = 0.2", DROP_PATH)
    assert "bernoulli" not in backward_of(text)


def test_what_is_drawn_in_one_way_is_not_drawn_in_the_other() -> None:
    inputs = "x[B, D], training: bool = True"
    _, text = made(inputs, "y = F.dropout(x, 0.3) if training else x\nreturn y.exp()")
    assert "        if training:\n            mask = F.dropout(" in text


@pytest.mark.parametrize(
    "forward",
    [
        "return x.exp() + (F.dropout(x, 0.5) if x.shape[0] > 2 else x)",
        "return F.alpha_dropout(x, 0.5)",
        "h = x * 2\nreturn h.mul_(3) * F.dropout(h, 0.5)",
    ],
)
def test_what_cannot_be_taken_out_is_not_derived(forward: str) -> None:
    derivation = derive(spec_of("x[B, D]", forward=forward, derive=True))
    assert derivation.missing == {"x"}


def test_of_attention_that_drops_weights_another_form_is_told() -> None:
    call = "F.scaled_dot_product_attention(q, k, v, dropout_p=p if training else 0.0)"
    inputs = "q[N, D], k[M, D], v[M, D], p: float = 0.1, training: bool = True"
    (note,) = derive(spec_of(inputs, forward=call, derive=True)).notes
    assert "leave dropout_p out, or write F.dropout(torch.softmax(" in str(note)
    d = "q.shape[-1]"
    written = f"F.dropout(torch.softmax(q @ k.mT / {d}**0.5, -1), p, training) @ v"
    assert not derive(spec_of(inputs, forward=written, derive=True)).missing


def test_numbers_are_drawn_in_the_order_of_the_forward() -> None:
    forward = "return F.dropout(x, 0.5) * torch.rand_like(x) + torch.randn_like(x) * x"
    _, text = made("x[B, D]", forward)
    drawn = re.findall(r" = (F.dropout|torch.rand_like|torch.randn_like)\(", text)
    assert drawn == ["F.dropout", "torch.rand_like", "torch.randn_like"]


def test_another_name_of_a_mask_sees_its_change() -> None:
    forward = """
mask = torch.rand_like(x)
same = mask
mask.mul_(2)
return x * same
"""
    derivation = derive(spec_of("x[B, D]", forward=forward, derive=True))
    assert derivation.missing == {"x"}
