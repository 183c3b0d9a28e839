"""Python's own functions of tensors: the gradient is that of what Python does."""

import pytest
import torch

from scaffold.derive import derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_op, is_once

DIRECT = (
    *("sum(x)", "sum(x) * y", "sum([x, y, 2 * x])", "sum((x[0], y[1]))"),
    *("sum(x.unbind(1))", "sum(x.unbind(-1)) * y[:, 0]", "abs(x)", "pow(x, 2)"),
)
LEFT = (
    "sum(x, y)",
    "max(x.sum(), y.sum())",
    "min(x.mean(), y.mean())",
    "max(x[0, 0], 0)",
)


@pytest.mark.parametrize("forward", DIRECT + LEFT)
def test_the_gradient_is_that_of_autograd(forward: str) -> None:
    torch.manual_seed(2)
    spec = spec_of("x[N, D], y[N, D]", forward=forward, derive=True)
    text = draft_of(spec, derive(spec))
    assert ("torch.func.vjp" in text) == (forward in LEFT)
    module = load(text)
    plain = load(draft_of(spec_of("x[N, D], y[N, D]", forward=forward))).SomeOpFunction
    values = [torch.randn(3, 4, dtype=torch.double) for _ in range(2)]
    check_op(module.SomeOpFunction, module.some_op, plain.forward, values)


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize("signature", ["x[N, 1], y[D]", "x, y"])
@pytest.mark.parametrize(
    "forward",
    [
        "torch.stack(torch.broadcast_tensors(x * y, x.exp()), -1)",
        "a, b = torch.broadcast_tensors(x, y)\nreturn torch.exp(a) * b",
        "torch.broadcast_tensors(x, y, x * x)[0] * y",
    ],
)
def test_tensors_that_are_broadcast_together(
    forward: str, signature: str, policy: str
) -> None:
    torch.manual_seed(2)
    spec = spec_of(signature, forward=forward, derive=True, save_policy=policy)
    text = draft_of(spec, derive(spec))
    assert "torch.func.vjp" not in text
    module = load(text)
    plain = load(draft_of(spec_of(signature, forward=forward))).SomeOpFunction
    values = [torch.randn(3, 1, dtype=torch.double), torch.randn(4, dtype=torch.double)]
    once = is_once(text)
    wrapper = module.some_op
    check_op(module.SomeOpFunction, wrapper, plain.forward, values, once=once)
