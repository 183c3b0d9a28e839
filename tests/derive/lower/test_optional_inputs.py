"""Optional inputs as people test them: each there and not there, beside autograd."""

from typing import Any

import pytest
import torch

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of

x, y, z, w = tensor(3, 4), tensor(4, 3).mT, tensor(3, 4) * 0.5, tensor(4)

# What is declared, the forward, and calls.
FORMS: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "divergence": (
        "x[B, D], y[B, D], z[B, D]?, v[B, D]?",
        """
if z is None:
    out = -0.5 * (1 + y - x.pow(2) - y.exp())
else:
    out = 0.5 * (v - y - 1 + (y.exp() + (x - z).pow(2)) / v.exp())
return out.mean()
""",
        [(x, y, z, y * 2), (x, y, None, None), (x, y, None, z)],
    ),
    "a choice of three": (
        "x[B, D], a[D]?, b[D]?",
        "return x.sin() if a is None else x * a.exp() + (x * b.cos()).sum() * b.exp()",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
    "read under both tests": (
        "x[B, D], a[D]?, b[D]?",
        """
if b is not None:
    x = x * b.exp()
if a is not None:
    x = x + a * b.exp() * (b.exp() * x).sum()
return x.tanh()
""",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
    "either way": (
        "x[B, D], a[D]?, b[D]?",
        """
if a is None:
    h = x.exp() * x
    h = h * x.exp()
else:
    h = x * b.exp() + x.exp() * a
return h * (1 if a is None else b.exp())
""",
        [(x, w, w + 1), (x, None, w), (x, None, None)],
    ),
    "a number arithmetic goes on with": (
        "x[B, D], a[B, 1]?",
        """
sigma = 1.0 if a is None else a
return (x + sigma * x.sin()) / (sigma ** 2 + 1) ** 0.5 - (-sigma)
""",
        [(x, z[:, :1]), (x, None)],
    ),
    "parts, or None twice": (
        "x[B, D], c[B, E]?",
        """
scale, shift = (None, None) if c is None else c.chunk(2, dim=1)
h = x.tanh()
if scale is not None:
    h = h * (1 + scale) + shift
return h
""",
        [(x, torch.cat((z, y), 1)), (x, None)],
    ),
    "biases in one tensor": (
        "x[B, D], v[D, D], u[D, D], b[2, D]?",
        """
b1, b2 = b.unbind(0) if b is not None else (None, None)
return F.linear(F.gelu(F.linear(x, v, b1)), u, b2)
""",
        [(x, tensor(4, 4), tensor(4, 4) + 1, tensor(2, 4)), (x, tensor(4, 4), tensor(4, 4), None)],
    ),
    "in a loop": (
        "x[B, D], a[D]?, b[D]?",
        """
for each, weight in ((a, 0.5), (b, 2.0)):
    if each is not None:
        x = x * each.exp() * weight
return x
""",
        [(x, w, w + 1), (x, None, w), (x, w, None), (x, None, None)],
    ),
    "gaussian upsampling": (
        "hs[B, T, D], ds[B, T], h_masks[B, T; bool]?, d_masks[B, F; bool]?, delta: float = 0.1",
        """
B = ds.size(0)
T_feats = int(d_masks.size(1)) if d_masks is not None else 7
t = torch.arange(0, T_feats).unsqueeze(0).repeat(B, 1).to(hs)
if h_masks is not None:
    t = t * d_masks.to(hs)
c = ds.cumsum(dim=-1) - ds / 2
energy = -1 * delta * (t.unsqueeze(-1) - c.unsqueeze(1)) ** 2
if h_masks is not None:
    energy = energy.masked_fill(~(h_masks.unsqueeze(1).repeat(1, T_feats, 1)), -float("inf"))
p_attn = torch.softmax(energy, dim=2)
return torch.matmul(p_attn, hs)
""",
        [
            (tensor(3, 4, 2), y.abs(), z > -1, tensor(3, 6) > 0, 0.1),
            (tensor(3, 4, 2), y.abs(), None, tensor(3, 6) > 0, 0.1),
            (tensor(3, 4, 2), y.abs(), None, None, 0.1),
        ],
    ),
    "with either of two": (
        "x[B, D], a[D]?, b[D]?, c[D]?",
        """
if a is not None:
    x = x * b.exp() + a
if c is not None:
    x = x + b.exp() * c
return x.tanh()
""",
        [(x, w - 1, w, w + 1), (x, None, w, w + 1), (x, w, w + 1, None), (x, None, w, None), (x, None, None, None)],
    ),
    "a 0 that is a number": (
        "v[D], a[B, D]?",
        "g = 1.0 if a is None else a\nm = 2 * (g - 1)\nreturn (v + m).sin() * (v + (0 if a is None else a)).exp()",
        [(w, z), (w, None)],
    ),
    "a local that may be None": (
        "x[B, D], v[D]?, a[B, D]?",
        """
h = F.silu(x if v is None else x * v)
scale = None if a is None else a.sin()
if scale is not None:
    h = h * (1 + scale)
return h
""",
        [(x, w, z), (x, None, z), (x, w, None), (x, None, None)],
    ),
    "parts, or None twice, below a sum": (
        "x[B, D], v[D]?, c[B, E]?",
        """
h = F.silu(x if v is None else x * v)
scale, shift = (None, None) if c is None else c.chunk(2, dim=1)
if not (scale is None or shift is None):
    h = h * (1 + scale) + shift
return h
""",
        [(x, w, torch.cat((z, y), 1)), (x, None, torch.cat((z, y), 1)), (x, w, None), (x, None, None)],
    ),
    "two that come together, which locals alone say": (
        "x[B, D], a[2, D]?, b[2, D]?",
        """
s, t = (None, None) if a is None else a.unbind()
u, v = (None, None) if b is None else b.unbind()
if s is not None:
    x = x * s + u
return x * x if t is None else x * t * v
""",
        [(x, z[:2], y[:2]), (x, None, y[:2]), (x, None, None)],
    ),
    "the test of both has a name": (
        "x[B, D], a[2, D]?, b[2, D]?",
        """
s = None if a is None else a.sum(0)
u = None if b is None else b.sum(0)
both = s is not None and u is not None
y = x * s + u if both else x.sin()
return y * (s * u).exp() if both else y * y
""",
        [(x, z[:2], y[:2]), (x, None, y[:2]), (x, z[:2], None), (x, None, None)],
    ),
    "passed on to what takes None": (
        "x[B, 4], a[2, 4]?, b[4]?",
        """
s = a[0] if a is not None else None
t = None
if b is not None:
    t = b.exp()
y = F.layer_norm(x, (4,), s, s)
if a is not None:
    a = a * 2
return F.linear(y, y.mT @ y, b) + F.rms_norm(x, (4,), t).sum() + F.group_norm(x, 2, s, s).sum()
""",
        [(x, z[:2], y[0]), (x, None, y[0]), (x, z[:2], None), (x, None, None)],
    ),
    "an attention's mask": (
        "q[B, D], k[M, D], mask[B, M]?",
        """
bias = None if mask is None else mask.sin() * 2
return F.scaled_dot_product_attention(q, k, k, attn_mask=bias)
""",
        [(x, z, z @ z.mT), (x, z, None)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_derived(name: str) -> None:
    inputs, forward, calls = FORMS[name]
    spec = spec_of(inputs, forward=forward)
    assert not derive(spec).notes
    check_forward(inputs, forward, calls)


@pytest.mark.parametrize("made", ["sum({}) * 2", "torch.cat({}, -1).sin()"])
def test_those_that_are_there_are_left_to_autograd(made: str) -> None:
    forward = "terms = [each for each in (x, y, a) if each is not None]\nreturn "
    forward += made.format("terms")
    calls = [(x, y, z), (x, y, None)]
    text = check_forward("x[B, D], y[B, D], a[B, D]?", forward, calls)
    assert "torch.func.vjp" in text


def test_where_one_of_two_is_missing_the_forward_raises() -> None:
    inputs, forward, _ = FORMS["divergence"]
    spec = spec_of(inputs, forward=forward)
    module = load(draft_of(spec, derive(spec)))
    with pytest.raises(AssertionError):
        module.some_op(x, y, z, None)
    torch.testing.assert_close(
        module.some_op(x, y, None, z), module.some_op(x, y, None, None)
    )


def test_a_name_that_gets_another_value_is_not_the_input_s() -> None:
    forward = "s = a\nif s is None:\n    s = x.sin()\ns = s * s\nreturn x * s if a is None else x + s * a"
    with pytest.raises(ScaffoldError, match="'a' may be None here"):
        derive(spec_of("x[B, D], a[B, D]?", forward=forward))


@pytest.mark.parametrize(
    "forward",
    [
        "y = a if a is not None else b\nif y is not None:\n    x = x * y\nreturn x",
        "y, k = (b, 2) if a is None else (a, 3)\nif y is not None:\n    x = x * y\nreturn x * k",
        "y = x\nif a is not None:\n    y = b\nreturn x if y is None else x * y",
    ],
)
def test_what_is_not_computed_with_may_be_none(forward: str) -> None:
    """It comes with no other: the forward asserted that it is there."""
    with pytest.raises(ScaffoldError, match="'b' may be None here"):
        derive(spec_of("x[B, D], a[D]?, b[D]?", forward=forward))


def test_a_local_that_may_be_none_in_a_loop_is_left_to_autograd() -> None:
    forward = """
scale = None if a is None else a.sin()
v = x[0]
for t in range(x.shape[0]):
    v = (v * x[t]).sin() if scale is None else (v * x[t]).sin() * scale
return v
"""
    text = check_forward("x[T, D], a[D]?", forward.strip(), [(x, w), (x, None)])
    assert "torch.func.vjp" in text
