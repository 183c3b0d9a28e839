"""Tests of the custom operator apply_pointwise."""

import gc
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from apply_pointwise import ApplyPointwise, ApplyPointwiseFunction, apply_pointwise


def sample_inputs() -> (
    list[tuple[Tensor, Callable[..., Tensor], Callable[..., Tensor]]]
):
    """Inputs with functions whose derivatives are known."""
    x = torch.randn(3, 4, dtype=torch.double)
    return [(x, torch.sin, torch.cos), (x, torch.exp, torch.exp)]


DIFFERENTIABLE = ("x",)
CASES: dict[str, dict[str, Any]] = {
    f"sample-{index}": {"sample": index} for index in range(len(list(sample_inputs())))
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def in_double(value: Any) -> Any:
    """Detach a tensor, and bring a floating one to double precision."""
    if not isinstance(value, Tensor):
        return value
    if value.is_complex():
        return value.detach().to(torch.cdouble)
    return value.detach().double() if value.is_floating_point() else value


def make(
    *,
    sample: int = 0,
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    values = [in_double(value) for value in list(sample_inputs())[sample]]
    inputs = dict(zip(["x", "function", "derivative"], values, strict=True))
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            inputs[name] = layout(value).requires_grad_(name in needs)
    return tuple(inputs.values())


def reference(x: Tensor, function: Any, derivative: Any) -> Tensor:
    """apply_pointwise in plain PyTorch."""
    output: Tensor = function(x)
    return output


def gradients(output: Tensor, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Backpropagate a grad_output that is not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    grad_output = permuted(torch.randn_like(output))
    return torch.autograd.grad(output, needed, grad_output, materialize_grads=True)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`."""
    return CASES[request.param]


def test_forward_matches_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    assert_close(apply_pointwise(*inputs), reference(*inputs))


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(
        apply_pointwise, inputs, check_batched_grad=True, check_grad_dtypes=True
    )
    assert gradgradcheck(apply_pointwise, inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(apply_pointwise(*inputs), inputs), expected)


class Recorder(ApplyPointwiseFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = ApplyPointwiseFunction.backward(ctx, *grad_outputs)
        return Recorder.returned


def test_backward_contract(case: dict[str, Any]) -> None:
    """Exact shape and dtype where a gradient is needed, None elsewhere.

    Autograd sums a gradient that is too large, so gradcheck cannot see a missing sum.
    """
    inputs = make(**case)
    apply: Callable[..., Any] = Recorder.apply
    gradients(apply(*inputs), inputs)
    for value, gradient in zip(inputs, Recorder.returned, strict=True):
        if isinstance(value, Tensor) and value.requires_grad:
            assert gradient is not None
            assert (gradient.shape, gradient.dtype) == (value.shape, value.dtype)
        else:
            assert gradient is None


def test_output_is_freed_without_gc() -> None:
    """An output on ctx would make a reference cycle."""
    gc.disable()
    try:
        output = apply_pointwise(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(1), ids=["x"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(apply_pointwise(*inputs), inputs)
    output = apply_pointwise(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return apply_pointwise(*inputs).square().sum()


def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0,))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [
        torch.stack(values) if isinstance(values[0], Tensor) else values[0]
        for values in zip(*samples, strict=True)
    ]
    actual = torch.func.vmap(
        gradient,
        in_dims=tuple(0 if isinstance(x, Tensor) else None for x in samples[0]),
    )(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


def test_jacrev() -> None:
    inputs = make(needs=())
    actual = torch.func.jacrev(apply_pointwise, argnums=(0,))
    expected = torch.func.jacrev(reference, argnums=(0,), chunk_size=1)
    assert_close(actual(*inputs), expected(*inputs))


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(apply_pointwise, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), apply_pointwise(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build() -> ApplyPointwise:
    inputs = make()
    return ApplyPointwise(function=inputs[1], derivative=inputs[2])


def test_module_calls_apply_pointwise() -> None:
    inputs = make()
    module = build()
    expected = apply_pointwise(inputs[0], inputs[1], inputs[2])
    assert_close(module(inputs[0]), expected)
