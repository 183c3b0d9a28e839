"""Tests of the custom operator rotary."""

import gc
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from rotary import RotaryFunction, rotary

DIFFERENTIABLE = ("x",)
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "higher-rank": {"batch": (2, 5)},
    "no-batch": {"batch": ()},
}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "empty-batch": {"batch": (0,)},
    "positions=0": {"positions": 0},
    "D=0": {"D": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    batch: tuple[int, ...] = (2,),
    positions: int = 3,
    D: int = 4,
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    inputs = {
        "x": torch.randn(*batch, positions, D, dtype=torch.double),
        "cos": torch.randn(positions, D, dtype=torch.double),
        "sin": torch.randn(positions, D, dtype=torch.double),
    }
    return tuple(
        layout(value).requires_grad_(name in needs) for name, value in inputs.items()
    )


def reference(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """rotary in plain PyTorch."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    rotated = torch.cat([-second, first], dim=-1)
    return x * cos + rotated * sin


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
        output = reference(*inputs)
        values = (output, *gradients(output, inputs))
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


def test_forward_matches_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    assert_close(rotary(*inputs), reference(*inputs))


def test_other_shapes_are_refused() -> None:
    """Backward is written for the declared shapes."""
    inputs = make()
    broken = [
        (1, "cos", torch.cat([inputs[1]] * 2, dim=-1)),
        (2, "sin", torch.cat([inputs[2]] * 2, dim=-1)),
        (0, ".*", torch.cat([inputs[0], inputs[0].narrow(-1, 0, 1)], dim=-1)),
    ]
    for position, name, value in broken:
        wrong = [*inputs]
        wrong[position] = value
        with pytest.raises(ValueError, match=rf"^{name}\["):
            rotary(*wrong)


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(rotary, inputs, check_grad_dtypes=True)
    assert gradgradcheck(rotary, inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(rotary(*inputs), inputs), expected)


class Recorder(RotaryFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = RotaryFunction.backward(ctx, *grad_outputs)
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
        output = rotary(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(3), ids=["x", "cos", "sin"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(rotary(*inputs), inputs)
    output = rotary(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return rotary(*inputs).square().sum()


def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0,))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [torch.stack(values) for values in zip(*samples, strict=True)]
    actual = torch.func.vmap(gradient)(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


def test_jacrev() -> None:
    inputs = make(needs=())
    actual = torch.func.jacrev(rotary, argnums=(0,))
    expected = torch.func.jacrev(reference, argnums=(0,), chunk_size=1)
    assert_close(actual(*inputs), expected(*inputs))


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(rotary, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), rotary(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))
