"""Changes in place of what the forward made itself, assignments to its parts among them: derived, and never seen under another name."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, draft_of, load, spec_of
from tests.derive.checking import check_needs, is_once
from tests.sweeps import in_every_run, pairs_in_every_run

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


def by_turns(names: Iterable[str]) -> list[Any]:
    """Each under both policies at each commit, under one of them in every run."""
    both = [(name, policy) for name in names for policy in ("recompute", "balanced")]
    chosen = [pair for at, pair in enumerate(both) if at % 4 in (0, 3)]
    return pairs_in_every_run(both, chosen, pytest.mark.each_commit)


@pytest.mark.parametrize(("name", "policy"), by_turns(DERIVED))
def test_the_gradient_is_that_of_autograd(name: str, policy: str) -> None:
    forward = DERIVED[name]
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


INPUTS = "x[N, D], y[N, D], index[N; index(4)], p: float = 0.5"
ASSIGNED = {
    "a number at a mask": "h = x * y\nh[y > 0] = p\nreturn h * h",
    "at no mask of its shape": "h = x * y\nh[y[:, 0] > 0] = 2\nreturn h * x",
    "picks by the same mask": """
h = x.abs().clone()
small, large = h < p, h >= p
h[small] = p * torch.log(1 + x.abs()[small] / p)
h[large] = h[large] - y[large] * 2
return h.sum()
""",
    "picks of a smaller tensor": "h = x * y\nm = y > 0\nh[m] = y[m].exp() * x.sum()\nreturn h",
    "indices": "h = x.sin()\nh[torch.arange(3), index] = y[:, 0]\nreturn h * h * x",
    "a number at indices": "h = torch.zeros_like(x)\nh[torch.arange(3), index] = p\nreturn (x - h) * y",
    "a row": "h = x * y\nh[0] = y[1]\nreturn h * x",
    "a column, of which one is read": "h = x * y\nh[:, 1] = x[:, 2] + h[:, 0]\nreturn h * h",
    "a slice": "h = x.exp() * 1\nh[..., 1:] = h[..., 1:] - h[..., :-1]\nreturn h * y",
    "a slice in the middle": "h = x * y\nh[:, 1:3] = y.sum()\nreturn h * h",
    "a slice at the start": "h = x * y\nh[:-1] = 0\nreturn h * h",
    "a slice up to a size": "n = len(x)\nh = x * y\nh[1:n] = h[1:n] - h[0:-1]\nreturn h * y",
    "slices of sizes": "n = x.shape[1] - 1\nh = torch.zeros_like(x)\nh[:2, :n] = x[:2, 1:] * y[:2, :n]\nreturn h * y",
    "of a negative size": "n = 1 - x.shape[1]\nh = torch.zeros_like(x)\nh[:, 0:n] = y[:, 0:n]\nh[:, n:] = x[:, n:]\nreturn h * y",
    "complex ones": "k = torch.complex(x, y)\nh = torch.zeros_like(k)\nh[:, 1:] = k[:, :-1] * k[:, 1:]\nreturn h.real * h.imag * x",
    "between both ends": "h = x * y\nh[:, 1:-1] = y[:, 2:]\nh[-2:-1] = x[:1]\nreturn h * h",
    "of integers": "k = index.clone()\nk[k > 1] = 0\nk[:1] = 2\nreturn x * y[k]",
    "of masks": "m = y > 0\nm[:, 0] = True\nm[0] = y[1] < 0\nreturn torch.where(m, x * y, x)",
    "every second": "h = x * y\nh[:, ::2] = y[:, ::2].exp()\nreturn h * h",
    "two dims at once": "h = x * y\nh[0, 1:] = y[1, 1:] * 2\nreturn h * h",
    "an element": "h = torch.zeros_like(x)\nh[0, 1] = y.sum()\nh[..., -1, 0] = x[0, 0]\nreturn h * x",
    "two slices": "h = x * y\nh[:2, 1:] *= y[:2, 1:]\nreturn h * h",
    "a part by its method": "h = x * y\nh[:, 0].zero_()\nh[0, 1:].mul_(3)\nreturn h * h",
    "a slice times another": "h = x * y\nh[:, 1:] *= y[:, 1:]\nreturn h * h",
    "added to": "h = x * y\nh[:, 0] += y[:, 1] ** 2\nh[:, 1] *= 2\nreturn h * h",
    "in a branch": "h = x * y\nif p > 0:\n    h[:, 0] = 0\nreturn h * h",
    "twice": "h = x * y\nh[0] = 1\nh[:, 0] = h[:, 1]\nreturn h.exp()",
    "several at once": "h = x * y\nh[0], h[-1] = y[-1], y[0] * 2\nreturn h * x",
    "several at once, of a copy": "h = y.clone()\nh[0], h[-1] = y[-1], y[0] * 2\nreturn h * x",
    "beside a name": "h = x * y\nh[0], k = y[-1], y[0] * 2\nreturn h * k",
    "in a chain": "h = x * y\nh[0] = k = y[-1].exp()\nreturn h * k",
    "at an index that changes": "h = x * y\ni = 0\nh[i], i = y[1], 2\nreturn h * i",
    "beside an expression": "h = torch.zeros_like(x)\nh = h.scatter_(1, index[:, None], 1.0) + p\nreturn h * x * y",
    "in a loop": "h = x * y\nfor k in range(3):\n    h[0], h[1] = y[k % 3], h[2] * 2\nreturn h",
    "of a flat view": "h = x * y\nh.view(-1)[:: h.shape[1] + 1].fill_(-1)\nreturn h.sin() * y",
    "of a diagonal": "h = x @ x.t()\nh.diagonal().copy_(y[:, 0])\nh.t()[0].zero_()\nreturn h.sin()",
    "a whole number among integers": "k = index.clone()\nk[0] = 1.0\nreturn x * y * k[:, None]",
}
REFUSED = {
    "what changes places": "h = x * y\nh[0], h[-1] = h[-1], h[0]\nreturn h * y",
    "a fraction among integers": "k = index.clone()\nk[k > 1] = p\nreturn x * y[k]",
    "integers among masks": "m = y > 0\nm[:, 0] = index\nreturn x * y * m",
    "complex numbers among reals": "h = x * y\nh[0] = torch.complex(x[1], y[1])\nreturn h * y",
    "beside a star": "h = x * y\nh[0], *k = y * 2\nreturn h * k[1]",
    "what the gradient reads": "h = x.exp()\nh[0] = 0\nreturn h * y",
    "under another name": "h = x * y\nk = h\nh[0] = 0\nreturn h + k",
    "beside itself": "h = x * y\nh = h.add_(1) + h.sum()\nreturn h * h",
    "perhaps": "h = x * y\nk = F.relu(h, inplace=p > 0)\nreturn h + k",
}


def assigned(forward: str, policy: str) -> tuple[Any, str]:
    options: dict[str, Any] = {"forward": forward, "save_policy": policy}
    spec = spec_of(INPUTS, derive=True, **options)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    text = draft_of(spec, derivation)
    return load(text), text


def assigned_values() -> tuple[Tensor, Tensor, Tensor, float]:
    torch.manual_seed(3)
    x, y = torch.randn(2, 3, 4, dtype=torch.double)
    return x, y, torch.tensor([2, 0, 3]), 0.5


def check(forward: str, policy: str) -> str:
    module, text = assigned(forward, policy)
    plain = load(draft_of(spec_of(INPUTS, forward=forward, derive=False)))
    for needs in ((True, True), (True, False), (False, True)):
        once = is_once(text)
        forward_of = plain.SomeOpFunction.forward
        function, wrapper = module.SomeOpFunction, module.some_op
        whole = (*needs, False, False)
        check_needs(
            function, wrapper, forward_of, assigned_values(), whole, once, False
        )
    return text


@pytest.mark.parametrize(("name", "policy"), by_turns(ASSIGNED))
def test_the_gradient_of_assignments_is_that_of_autograd(
    name: str, policy: str
) -> None:
    assert "torch.func.vjp" not in check(ASSIGNED[name], policy)


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_left_to_autograd(name: str) -> None:
    _, text = assigned(REFUSED[name], "recompute")
    assert "torch.func.vjp" in text
    if name != "what the gradient reads":
        check(REFUSED[name], "recompute")


def test_picks_by_one_mask_become_a_choice() -> None:
    _, text = assigned(ASSIGNED["picks by the same mask"], "recompute")
    backward = text[text.index("def backward") :]
    assert "torch.where" in backward and "index_put" not in backward


def test_a_test_settles_another_one() -> None:
    forward = """
h = x * y
if mode == 'mean':
    h = h.mean()
if mode == 'sum':
    h = h.sum()
return h
"""
    spec = spec_of("x[N, D], y[N, D], mode: str = 'mean'", forward=forward, derive=True)
    text = draft_of(spec, derive(spec))
    backward = text[text.index("def backward") : text.index("def some_op")]
    assert ".sum()" not in backward and ".mean()" not in backward


@pytest.mark.parametrize(
    "forward",
    [
        "y[0], h = x[1], x[2]\nreturn h",
        "for k in range(7):\n    y[0], h = x[1], x[k % 3]\nreturn h",
    ],
)
def test_an_input_that_changes_beside_a_name_is_refused(forward: str) -> None:
    with pytest.raises(ScaffoldError, match="changes its input 'y' in place"):
        derive(spec_of(INPUTS, forward=forward))


VIEWS = (
    "h = x * 2\nh.t().add_(y)\nreturn h * h",
    "h = x * 2\nh.mT.mul_(y).add_(1)\nreturn h.exp()",
    "h = (x * 2).contiguous()\nh.view(-1).mul_(3)\nreturn h * x",
    "h = x * 2\nh.unsqueeze(0).transpose(1, 2).add_(y)\nreturn h * x",
    "h = x * 2\nh[1:].t().sub_(1)\nreturn h * h",
    "h = x * 2\nd = torch.diagonal(h).add_(-1).mul_(2).sum()\nreturn h * d",
    "h = x * 2\nh.diagonal(1).mul_(3)\nreturn h * h",
    "h = x * 2\ns = h[h > 0].mul_(3).sum()\nreturn h * s",
    "h = x * 2\nk = x * x\ns = h[h > 0].pow_(2).sum() + k.t().add_(y).sum()\nreturn h * k * s",
)


@pytest.mark.parametrize(
    "dims",
    in_every_run(
        ["x[N, D], y[D, N]", "x, y"], ["x[N, D], y[D, N]"], pytest.mark.each_commit
    ),
)
@pytest.mark.parametrize("forward", VIEWS)
def test_what_a_view_changes(forward: str, dims: str) -> None:
    inputs = dims if "y" in forward else dims.partition(", y")[0]
    calls = [
        (x, *([tensor(4, n)] * ("y" in forward)))
        for n in (3, 1)
        for x in (tensor(n, 4), tensor(4, n).mT)
    ]
    text = check_forward(inputs, forward, calls, derive=True)
    assert "autograd" not in backward_of(text) or dims == "x, y"


@pytest.mark.parametrize(
    "forward",
    [
        "h = x * 2\nv = h.t()\nv.add_(1)\nreturn h",  # a view with a name
        "h = x * 2\nh.reshape(-1).add_(1)\nreturn h",  # which may be a copy
        "h = x.exp()\nh.t().add_(1)\nreturn h",  # autograd needs what was there
    ],
)
def test_what_is_no_sure_change_of_a_view(forward: str) -> None:
    spec = spec_of("x[N, D]", forward=forward, derive=True)
    found = derive(spec)
    assert found.missing or "autograd" in " ".join(found.notes)


@pytest.mark.parametrize("tensor_of", ["x", "x.view(-1)"])
def test_an_input_that_a_flag_may_change_is_refused(tensor_of: str) -> None:
    forward = f"F.relu({tensor_of}, inplace=flag) * 3"
    with pytest.raises(ScaffoldError, match="changes its input 'x' in place"):
        derive(spec_of("x[N], flag: bool = False", forward=forward, derive=True))
