"""Changes in place of what the forward made itself: derived, and never seen under another name."""

from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_needs, is_once

SHAPED = "x[N, D], y[N, D], index[N; index(4)]"
ZEROS = "torch.zeros(4, x.shape[1], dtype=x.dtype)"
DERIVED = {
    "without a name": f"{ZEROS}.index_add_(0, index, x) * y.sum()",
    "and read at once": f"{ZEROS}.index_add_(0, index, x).tanh().mul(y.sum())",
    "in a statement": f"out = {ZEROS}\nout.index_add_(0, index, x)\nreturn out * out + y.sum()",
    "and assigned": f"out = {ZEROS}\nout = out.index_add_(0, index, x * y)\nreturn out.exp()",
    "by another name": f"out = {ZEROS}\nh = out.index_add_(0, index, x * y)\nreturn h.exp() * out",
    "several times": f"out = {ZEROS}\nout.index_add_(0, index, x).index_add_(0, index, y)\nout += 1\nreturn out * out",
    "by another op": "h = x - y\nh.clamp_(min=0).add_(1)\nreturn h * h * x",
    "by a keyword": "F.relu(x - y, inplace=True) * x",
    "by a keyword, with a name": "h = x - y\nh = F.relu(h, inplace=True)\nreturn h * x",
    "where the gradient reads none of it": "torch.sin(x).mul_(2).mul_(1 + y.detach())",
    "by a function": "torch.clamp_(x - y, min=0) * x",
    "not at all": "F.relu(x - y, inplace=False) * x",
    "equal zeros": f"a = {ZEROS}.index_add_(0, index, x)\nb = {ZEROS}.index_add_(0, index, y)\nreturn a * b.sin() + {ZEROS} * a",
    "equal zeros, one of them added to": "h = torch.zeros_like(x)\nh += y\nreturn h * torch.sin(x) * (torch.zeros_like(x) + x.exp())",
    "equal exponentials": "h = torch.exp(x).detach()\nh += y\nreturn h * torch.sin(x) * torch.exp(x).detach()",
    "of a view that has a name": "h = x * y\nd = h[:, 0]\nd.mul_(2).add_(y[:, 1])\nreturn d.sin()",
    "of a view, then summed": "h = x * y\nd = torch.diagonal(h)\nreturn d.add_(-1).pow_(2).sum()",
    "of a view of a view": "h = x.t() @ y\nn, m = h.shape\noff = h.flatten()[:-1].view(n - 1, n + 1)[:, 1:]\nreturn off.pow_(2).sum() / n",
    "of a view, and its tensor has been read": "h = x * y\nk = h * 3\nd = h[:, 1:]\nd.mul_(2)\nd += y[:, 1:]\nreturn k[:, 1:].sin() * d.sin()",
    "of a view, and of what is computed of it": "h = x * y\nd = h[0]\nk = d * 3\nd.mul_(k.detach())\nreturn k.cos() * d.sin() * h.shape[0]",
    "of a view, by an operator": "h = x * y\nd = h[:, 0]\nd *= y[:, 1]\nreturn d.sin() * d",
    "of a view, in a part": "h = x * y\nd = h[:, 1:]\nd[0] = y[0, 1:] ** 2\nreturn d.sin() * d",
    "of a tensor whose view is not read again": "h = x * y\nd = h[:, 0]\nk = d.sum()\nh.mul_(2)\nreturn h * h * k",
    "of a view whose sizes are read": "h = x * y\nk = h * 3\nd = h[:, 1:]\nd.mul_(2)\nn, m = d.shape\nreturn d.reshape(m, n).sin().t().reshape(n * m) * k[:, 1:].exp().reshape(n * m) * h.shape[0]",
    "of a view of zeros": f"h = {ZEROS}\nd = h[1:]\nd.index_add_(0, index, x * y)\nreturn d.exp() * d",
    "of a view, and its tensor is assigned anew": "h = x * y\nd = h[:, 0]\nd.mul_(2)\nh = y.sin()\nreturn d.exp()[:, None] * h * h",
    "inside a result": "h = x * y\nreturn h.pow_(2).sum() * x",
    "of a result": "h = x * y\nreturn h.mul_(y)",
    "of a view in a result": "h = x * y\nk = h - 3\nreturn h[:, 1:].pow_(2).sum() * k",
    "inside a line": "h = x * y\nk = h.pow_(2).sum() * x\nreturn k * h.sin()",
    "of a part of a copy or a view": "h = x * y\nk = h.flatten()[1:].pow_(2).sum() * x\nreturn k * k",
    "means": f"{ZEROS}.scatter_reduce_(0, index[:, None].expand_as(x), x, 'mean') * y.sum()",
}


def made(forward: str, policy: str) -> tuple[Any, str]:
    options: dict[str, Any] = {"forward": forward, "save_policy": policy}
    spec = spec_of(SHAPED, derive=True, **options)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    return load(draft_of(spec, derivation)), draft_of(spec, derivation)


def values() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    x, y = torch.randn(2, 3, 5, dtype=torch.double)
    return x, y, torch.tensor([2, 0, 2])


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize("forward", DERIVED.values(), ids=DERIVED)
def test_the_gradient_is_that_of_autograd(forward: str, policy: str) -> None:
    module, text = made(forward, policy)
    assert "torch.func.vjp" not in text
    plain = load(draft_of(spec_of(SHAPED, forward=forward, derive=False)))
    for needs in ((True, True, False), (True, False, False), (False, True, False)):
        check_needs(
            module.SomeOpFunction,
            module.some_op,
            plain.SomeOpFunction.forward,
            values(),
            needs,
            is_once(text),
            False,
        )


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("torch.exp(x).mul_(y)", "it changes in place what the gradient"),
        ("h = x * 2\nk = h[0]\nh.mul_(y)\nreturn k + h", "'h' changes in place"),
        ("h = x * 2\nreturn h.mul_(y) + h", "it changes a tensor in place"),
        ("h = x * 2\nd = h[0]\nd.mul_(2)\nreturn h * h", "'d' changes in place"),
        ("h = x * 2\nd = h[0]\nreturn d.mul_(2) * h", "changes"),
        ("h = x * 2\nd = h[0]\nd.mul_(h[1])\nreturn d", "'d' changes in place"),
        ("h = x * 2\na, b = h.chunk(2)\na.mul_(2)\nreturn a * b", "'a' changes"),
        ("h = x.exp()\nd = h[0]\nd.mul_(2)\nreturn d", "it changes in place what"),
        (
            "h = x * 2\nd = h.unfold(0, 2, 1)\nd.mul_(2)\nreturn d",
            "it changes a tensor",
        ),
        (
            "h = x * y\nk = h.pow_(2).sum() if x.ndim > 1 else 0\nreturn k * h",
            "it changes",
        ),
        (
            "h = x * y\nif x.shape[0] > 3:\n    d = h[0]\n    d.mul_(2)\n    h = h * 2\nreturn h",
            "'d' changes",
        ),
    ],
)
def test_other_changes_are_left_to_autograd(forward: str, reason: str) -> None:
    (note,) = derive(spec_of(SHAPED, forward=forward, derive=True)).notes
    assert reason in note


@pytest.mark.parametrize(
    ("forward", "mapped"),
    [
        (f"{ZEROS}.index_add_(0, index, x)", False),
        (f"out = {ZEROS}\nout += x.sum()\nreturn out", False),
        (f"out = {ZEROS}.t()\nout[0] = 1\nreturn out * x.sum()", False),
        ("torch.tensor([0.0, 0.0]).add_(x.sum())", False),
        (f"{ZEROS}.index_add(0, index, x)", True),
        ("torch.zeros_like(x).index_add_(0, index, x)", True),
    ],
)
def test_a_constant_that_is_filled_cannot_be_vmapped(
    forward: str, mapped: bool
) -> None:
    spec = spec_of("x[N, D], index[N; index(4)]", forward=forward, derive=True)
    assert derive(spec).transforms == mapped
