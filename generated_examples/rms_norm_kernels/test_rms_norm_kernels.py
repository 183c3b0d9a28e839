"""Tests of the custom operator rms_norm_kernels."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from rms_norm_kernels import RMSNormKernels, RMSNormKernelsFunction, rms_norm_kernels

DIFFERENTIABLE = ("x", "weight")
NEEDS = [("x",), ("weight",), ("x", "weight")]
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "higher-rank": {"batch": (2, 4)},
    "no-batch": {"batch": ()},
}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "empty-batch": {"batch": (0,)},
    "D=0": {"D": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    batch: tuple[int, ...] = (2,),
    D: int = 3,
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(0)
    inputs: dict[str, Any] = {
        "x": torch.randn(*batch, D, dtype=torch.double),
        "weight": torch.randn(D, dtype=torch.double),
        "eps": 1e-6,
    }
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            inputs[name] = layout(value).requires_grad_(name in needs)
    return tuple(inputs.values())


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
        output = rms_norm_kernels(*inputs)
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
    wrong[1] = torch.cat([inputs[1]] * 2, dim=-1)
    with pytest.raises(ValueError, match="has shape"):
        rms_norm_kernels(*wrong)


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(rms_norm_kernels, inputs, check_grad_dtypes=True)


def test_differentiable_once() -> None:
    inputs = make()
    output = rms_norm_kernels(*inputs)
    grad_output = torch.ones_like(output, requires_grad=True)
    gradient, *_ = torch.autograd.grad(
        output, inputs[0], grad_output, create_graph=True
    )
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


class Recorder(RMSNormKernelsFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = RMSNormKernelsFunction.backward(ctx, *grad_outputs)
        return Recorder.returned


@pytest.mark.parametrize("needs", NEEDS, ids="+".join)
def test_backward_contract(case: dict[str, Any], needs: tuple[str, ...]) -> None:
    """Exact shape and dtype where a gradient is needed, None elsewhere.

    Autograd sums a gradient that is too large, so gradcheck cannot see a missing sum.
    """
    inputs = make(**case, needs=needs)
    apply: Callable[..., Any] = Recorder.apply
    gradients(apply(*inputs)[0], inputs)
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
        output = rms_norm_kernels(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(2), ids=["x", "weight"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(rms_norm_kernels(*inputs), inputs)
    output = rms_norm_kernels(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def build(*, device: str = "cpu") -> RMSNormKernels:
    return RMSNormKernels(D=3, eps=1e-6, device=device, dtype=torch.double)


def test_module_copies() -> None:
    module = build()
    loaded = build()
    loaded.load_state_dict(module.state_dict())
    pickled = pickle.loads(pickle.dumps(module))
    for copied in (loaded, copy.deepcopy(module), pickled):
        assert_close(copied.state_dict(), module.state_dict())
        assert copied.eps == module.eps


def test_module_on_meta() -> None:
    tensors = build(device="meta").state_dict().values()
    assert tensors and all(tensor.is_meta for tensor in tensors)


def test_module_calls_rms_norm_kernels() -> None:
    inputs = make()
    module = build()
    module.load_state_dict({"weight": inputs[1]})
    expected = rms_norm_kernels(inputs[0], module.weight, inputs[2])
    assert_close(module(inputs[0]), expected)
