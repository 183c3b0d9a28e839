"""Tests of the custom operator focal."""

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from focal import FocalLoss, FocalLossFunction, focal

DIFFERENTIABLE = ("logits",)
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "higher-rank": {"batch": (2, 4)},
    "no-batch": {"batch": ()},
}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "closed-target": {"closed": ["target"]},
    "empty-batch": {"batch": (0,)},
    "N=0": {"N": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def mask(*sizes: int) -> Tensor:
    """A mask that has both values along every dim of two or more."""
    place = torch.zeros(sizes, dtype=torch.long)
    for dim, size in enumerate(sizes, start=1):
        place += torch.randperm(size).reshape(size, *[1] * (len(sizes) - dim))
    return place % 2 == 0


def make(
    *,
    batch: tuple[int, ...] = (2,),
    N: int = 3,
    closed: Collection[str] = (),
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    inputs: dict[str, Any] = {
        "logits": torch.randn(*batch, N, dtype=torch.double),
        "target": mask(*batch, N) & ("target" not in closed),
        "gamma": 2.0,
    }
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            inputs[name] = layout(value).requires_grad_(name in needs)
    return tuple(inputs.values())


def reference(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
    """focal in plain PyTorch."""
    margin = torch.where(target, logits, -logits)
    weight = torch.sigmoid(-margin) ** gamma
    output: Tensor = -(weight * F.logsigmoid(margin)).mean()
    return output


def gradients(output: Tensor, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Backpropagate a grad_output that is not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    grad_output = permuted(torch.randn_like(output))
    return torch.autograd.grad(output, needed, grad_output, materialize_grads=True)


@pytest.fixture(params=[*CASES, *EMPTY_CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`; an empty tensor or mask only where PyTorch allows it."""
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
    assert_close(focal(*inputs), reference(*inputs))


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(focal, inputs, check_batched_grad=True, check_grad_dtypes=True)
    assert gradgradcheck(focal, inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(focal(*inputs), inputs), expected)


class Recorder(FocalLossFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = FocalLossFunction.backward(ctx, *grad_outputs)
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
        output = focal(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(2), ids=["logits", "target"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(focal(*inputs), inputs)
    output = focal(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return focal(*inputs).square().sum()


def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0,))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [
        torch.stack(values) if isinstance(values[0], Tensor) else values[0]
        for values in zip(*samples, strict=True)
    ]
    actual = torch.func.vmap(gradient, in_dims=(0, 0, None))(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


def test_jacrev() -> None:
    inputs = make(needs=())
    actual = torch.func.jacrev(focal, argnums=(0,))
    expected = torch.func.jacrev(reference, argnums=(0,), chunk_size=1)
    assert_close(actual(*inputs), expected(*inputs))


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(focal, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), focal(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build() -> FocalLoss:
    return FocalLoss(gamma=2.0)


def test_module_copies() -> None:
    module = build()
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert copied.gamma == module.gamma


def test_module_calls_focal() -> None:
    inputs = make()
    module = build()
    expected = focal(inputs[0], inputs[1], inputs[2])
    assert_close(module(inputs[0], inputs[1]), expected)
