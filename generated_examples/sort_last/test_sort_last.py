"""Tests of the custom operator sort_last."""

import gc
import math
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from sort_last import SortLast, SortLastFunction, sort_last

DIFFERENTIABLE = ("x",)
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "higher-rank": {"batch": (2, 4)},
    "no-batch": {"batch": ()},
}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "empty-batch": {"batch": (0,)},
    "N=0": {"N": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def distinct(*sizes: int) -> Tensor:
    """Numbers in random order, no two of them closer than 0.5."""
    order = torch.randperm(math.prod(sizes)).reshape(sizes)
    return order + 0.5 * torch.rand(sizes, dtype=torch.double)


def make(
    *,
    batch: tuple[int, ...] = (2,),
    N: int = 3,
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    inputs = {
        "x": distinct(*batch, N),
    }
    return tuple(
        layout(value).requires_grad_(name in needs) for name, value in inputs.items()
    )


def reference(x: Tensor) -> tuple[Tensor, Tensor]:
    """sort_last in plain PyTorch."""
    values, indices = torch.sort(x, dim=-1)
    return values, indices


def gradients(
    outputs: tuple[Tensor, ...], inputs: tuple[Any, ...]
) -> tuple[Tensor, ...]:
    """Backpropagate grad_outputs that are not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    outputs = outputs[:1]
    grad_outputs = [permuted(torch.randn_like(output)) for output in outputs]
    return torch.autograd.grad(outputs, needed, grad_outputs, materialize_grads=True)


@pytest.fixture(params=[*CASES, *EMPTY_CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`; an empty tensor only where PyTorch allows it."""
    if request.param in CASES:
        return CASES[request.param]
    arguments = EMPTY_CASES[request.param]
    inputs = make(**arguments)
    try:
        outputs = reference(*inputs)
        values = (*outputs, *gradients(outputs, inputs))
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


def test_forward_matches_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    assert_close(sort_last(*inputs), reference(*inputs))


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(
        lambda *inputs: sort_last(*inputs)[:1],
        inputs,
        check_batched_grad=True,
        check_grad_dtypes=True,
    )
    assert gradgradcheck(lambda *inputs: sort_last(*inputs)[:1], inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(sort_last(*inputs), inputs), expected)


class Recorder(SortLastFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        gradient = SortLastFunction.backward(ctx, *grad_outputs)
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
        outputs = sort_last(*make())
        alive = [weakref.ref(output) for output in outputs]
        del outputs
        assert all(output() is None for output in alive)
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(1), ids=["x"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(sort_last(*inputs), inputs)
    outputs = sort_last(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(outputs, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


@pytest.mark.parametrize("changed", [1], ids=["indices"])
def test_output_changed_after_forward(changed: int) -> None:
    """The same of an output that has no gradient."""
    inputs = make()
    expected = gradients(sort_last(*inputs), inputs)
    outputs = sort_last(*inputs)
    with torch.no_grad():
        outputs[changed].zero_()
    try:
        actual = gradients(outputs, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return sort_last(*inputs)[0].square().sum()


def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0,))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [torch.stack(values) for values in zip(*samples, strict=True)]
    actual = torch.func.vmap(gradient)(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


def test_jacrev() -> None:
    inputs = make(needs=())
    actual = torch.func.jacrev(lambda *inputs: sort_last(*inputs)[:1], argnums=(0,))
    expected = torch.func.jacrev(
        lambda *inputs: reference(*inputs)[:1], argnums=(0,), chunk_size=1
    )
    assert_close(actual(*inputs), expected(*inputs))


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(sort_last, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), sort_last(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build() -> SortLast:
    return SortLast()


def test_module_calls_sort_last() -> None:
    inputs = make()
    module = build()
    expected = sort_last(inputs[0])
    assert_close(module(inputs[0]), expected)
