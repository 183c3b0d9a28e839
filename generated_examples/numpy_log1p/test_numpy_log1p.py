"""Tests of the custom operator numpy_log1p."""

import gc
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from numpy_log1p import NumpyLog1p, NumpyLog1pFunction, numpy_log1p

DIFFERENTIABLE = ("x",)
CASES: dict[str, dict[str, Any]] = {"base": {}}
EMPTY_CASES: dict[str, dict[str, Any]] = {"N=0": {"N": 0}, "D=0": {"D": 0}}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    N: int = 2,
    D: int = 3,
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(0)
    inputs = {
        "x": torch.rand(N, D, dtype=torch.double) + 0.5,
    }
    return tuple(
        layout(value).requires_grad_(name in needs) for name, value in inputs.items()
    )


def gradients(output: Tensor, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Backpropagate a grad_output that is not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    grad_output = permuted(torch.randn_like(output))
    return torch.autograd.grad(output, needed, grad_output, materialize_grads=True)


@pytest.fixture(params=[*CASES, *EMPTY_CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`; an empty tensor only where PyTorch allows it."""
    if request.param in CASES:
        return CASES[request.param]
    arguments = EMPTY_CASES[request.param]
    inputs = make(**arguments)
    try:
        output = numpy_log1p(*inputs)
        values = (output,)
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


def test_other_shapes_are_refused() -> None:
    """Backward is written for the declared shapes."""
    inputs = make()
    wrong = [*inputs]
    wrong[0] = inputs[0][None]
    with pytest.raises(ValueError, match="has shape"):
        numpy_log1p(*wrong)


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(numpy_log1p, inputs, check_grad_dtypes=True)
    assert gradgradcheck(numpy_log1p, inputs)


class Recorder(NumpyLog1pFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gradient = NumpyLog1pFunction.backward(ctx, *grad_outputs)
        Recorder.returned = (gradient,)
        return gradient


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
        output = numpy_log1p(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(1), ids=["x"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(numpy_log1p(*inputs), inputs)
    output = numpy_log1p(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def build() -> NumpyLog1p:
    return NumpyLog1p()


def test_module_calls_numpy_log1p() -> None:
    inputs = make()
    module = build()
    expected = numpy_log1p(inputs[0])
    assert_close(module(inputs[0]), expected)
