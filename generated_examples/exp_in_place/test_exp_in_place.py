"""Tests of the custom operator exp_in_place."""

import gc
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from exp_in_place import ExpInPlace, ExpInPlaceFunction, exp_in_place

DIFFERENTIABLE = ("x",)
CASES: dict[str, dict[str, Any]] = {"base": {}}
EMPTY_CASES: dict[str, dict[str, Any]] = {"empty": {"shape": (0, 3)}}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    shape: tuple[int, ...] = (2, 3),
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(0)
    inputs = {
        "x": torch.randn(shape, dtype=torch.double),
    }
    return tuple(
        layout(value).requires_grad_(name in needs) for name, value in inputs.items()
    )


def on_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give `function` a copy of what it changes in place."""
    return lambda x: function(x.clone())


def reference(x: Tensor) -> Tensor:
    """exp_in_place in plain PyTorch."""
    x.exp_()
    return x


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
        output = on_copy(reference)(*inputs)
        values = (output, *gradients(output, inputs))
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


def test_forward_matches_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    assert_close(on_copy(exp_in_place)(*inputs), on_copy(reference)(*inputs))


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(
        on_copy(exp_in_place), inputs, check_batched_grad=True, check_grad_dtypes=True
    )
    assert gradgradcheck(on_copy(exp_in_place), inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(on_copy(reference)(*inputs), inputs)
    assert_close(gradients(on_copy(exp_in_place)(*inputs), inputs), expected)


class Recorder(ExpInPlaceFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gradient = ExpInPlaceFunction.backward(ctx, *grad_outputs)
        Recorder.returned = (gradient,)
        return gradient


def test_backward_contract(case: dict[str, Any]) -> None:
    """Exact shape and dtype where a gradient is needed, None elsewhere.

    Autograd sums a gradient that is too large, so gradcheck cannot see a missing sum.
    """
    inputs = make(**case)
    apply: Callable[..., Any] = on_copy(Recorder.apply)
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
        output = on_copy(exp_in_place)(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


def test_changes_its_input_in_place() -> None:
    inputs = make(needs=())
    exp_in_place(*inputs)
    assert inputs[0]._version > 0
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        exp_in_place(*make())  # as mark_dirty tells autograd


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(on_copy(exp_in_place), fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), on_copy(exp_in_place)(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build() -> ExpInPlace:
    return ExpInPlace()


def test_module_calls_exp_in_place() -> None:
    inputs = make()
    module = build()
    expected = exp_in_place(inputs[0].clone())
    assert_close(module(inputs[0].clone()), expected)
