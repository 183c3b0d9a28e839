"""What a choice leaves without a gradient on one side is no number that a method is called on, and no shape to rely on."""

from itertools import product

import pytest
import torch

from scaffold.derive import derive
from tests.derive.building import load, reference, spec_of, text_of
from tests.derive.checking import check_op
from tests.derive.forward.test_verbatim_forward import r

PARTS = """
y = torch.max(x, dim=-1, keepdim=True)[0] if f else x.flatten(1).amax(-1)[:, None, None]
if g:
    top, _ = x.reshape(2, -1).max(dim=-1, keepdim=True)
    y = y + top.unsqueeze(-1)
return x * y
"""
HALVES = """
one, two = x.chunk(2, dim=-1)
y = one.exp() if f else one * two
return y + two.sin() if g else y
"""
SUMS = """
y = x.transpose(1, 2)
out = y.detach()
if f:
    out = out + y
if g:
    out = out - y.cumsum(0)
return out
"""
STRAIGHT = """
out = x.detach()
out = out + x if f else out
return out - x if g else out
"""
EXPANDED = """
windows = x.unfold(-1, 2, 1)
y = x[..., :1] - windows.mean(-1)
return y / windows.var(-1) if f else y
"""


@pytest.mark.parametrize("shapes", ["[A, B, C]", ""])
@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize("forward", [PARTS, HALVES, SUMS, STRAIGHT, EXPANDED])
def test_each_side_has_its_gradient(forward: str, policy: str, shapes: str) -> None:
    torch.manual_seed(0)
    inputs = f"x{shapes}, f: bool = True, g: bool = True"
    spec = spec_of(inputs, forward=forward, derive=True, save_policy=policy)
    derivation = derive(spec)
    function = load(text_of(spec, derivation)).SomeOpFunction
    once, expected = derivation.once_differentiable, reference(["x", "f", "g"], forward)
    for f, g in product((True, False), repeat=2):
        values = (r(2, 3, 4), f, g)
        if f or g or forward not in (SUMS, STRAIGHT):
            check_op(function, function.apply, expected, values, once=once)
        else:  # nothing depends on `x`
            x = values[0].requires_grad_()
            (grad_x,) = torch.autograd.grad(function.apply(x, f, g).sum(), x)
            assert grad_x.shape == x.shape and not grad_x.any()
