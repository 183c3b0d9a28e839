"""Tests of the custom operator layer_norm."""

import copy
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from layer_norm import LayerNorm, LayerNormFunction, layer_norm

DIFFERENTIABLE = ("x", "weight", "bias")
NEEDS = [
    needs
    for count in range(1, 4)
    for needs in itertools.combinations(DIFFERENTIABLE, count)
]
CASES: dict[str, dict[str, Any]] = {
    "base": {},
    "without-weight": {"absent": ["weight"]},
    "without-bias": {"absent": ["bias"]},
    "without-weight-bias": {"absent": ["weight", "bias"]},
    "higher-rank": {"batch": (2, 4)},
    "no-batch": {"batch": ()},
}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "empty-batch": {"batch": (0,)},
    "features=0": {"features": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    batch: tuple[int, ...] = (2,),
    features: int = 3,
    absent: Collection[str] = (),
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    inputs: dict[str, Any] = {
        "x": torch.randn(*batch, features, dtype=torch.double),
        "weight": torch.randn(features, dtype=torch.double),
        "bias": torch.randn(features, dtype=torch.double),
        "eps": 1e-5,
    }
    inputs |= dict.fromkeys(absent)
    for name, value in inputs.items():
        if isinstance(value, Tensor):
            inputs[name] = layout(value).requires_grad_(name in needs)
    return tuple(inputs.values())


def reference(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """layer_norm in plain PyTorch."""
    centred = x - x.mean(-1, keepdim=True)
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    normalized = centred * rstd
    scaled = normalized * weight if weight is not None else normalized
    return scaled + bias if bias is not None else scaled


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
    assert_close(layer_norm(*inputs), reference(*inputs))


def test_other_shapes_are_refused() -> None:
    """Backward is written for the declared shapes."""
    inputs = make()
    broken = [
        (1, "weight", torch.cat([inputs[1]] * 2, dim=-1)),
        (2, "bias", torch.cat([inputs[2]] * 2, dim=-1)),
    ]
    for position, name, value in broken:
        wrong = [*inputs]
        wrong[position] = value
        with pytest.raises(ValueError, match=rf"^{name}\["):
            layer_norm(*wrong)


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(
        layer_norm, inputs, check_batched_grad=True, check_grad_dtypes=True
    )
    if case not in EMPTY_CASES.values():  # there a second derivative may be 0 / 0
        assert gradgradcheck(layer_norm, inputs)


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(layer_norm(*inputs), inputs), expected)


class Recorder(LayerNormFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = LayerNormFunction.backward(ctx, *grad_outputs)
        return Recorder.returned


@pytest.mark.parametrize("needs", NEEDS, ids="+".join)
def test_backward_contract(case: dict[str, Any], needs: tuple[str, ...]) -> None:
    """Exact shape and dtype where a gradient is needed, None elsewhere.

    Autograd sums a gradient that is too large, so gradcheck cannot see a missing sum.
    """
    inputs = make(**case, needs=needs)
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        return  # the input that is needed is absent
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
        output = layer_norm(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(3), ids=["x", "weight", "bias"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(layer_norm(*inputs), inputs)
    output = layer_norm(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return layer_norm(*inputs).square().sum()


def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0, 1, 2))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [
        torch.stack(values) if isinstance(values[0], Tensor) else values[0]
        for values in zip(*samples, strict=True)
    ]
    actual = torch.func.vmap(gradient, in_dims=(0, 0, 0, None))(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


def test_jacrev() -> None:
    inputs = make(needs=())
    actual = torch.func.jacrev(layer_norm, argnums=(0, 1, 2))
    expected = torch.func.jacrev(reference, argnums=(0, 1, 2), chunk_size=1)
    assert_close(actual(*inputs), expected(*inputs))


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(layer_norm, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), layer_norm(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build(*, weight: bool = True, bias: bool = True, device: str = "cpu") -> LayerNorm:
    return LayerNorm(
        features=3,
        eps=1e-5,
        weight=weight,
        bias=bias,
        device=device,
        dtype=torch.double,
    )


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_module_copies(weight: bool, bias: bool) -> None:
    module = build(weight=weight, bias=bias)
    loaded = build(weight=weight, bias=bias)
    loaded.load_state_dict(module.state_dict())
    pickled = pickle.loads(pickle.dumps(module))
    for copied in (loaded, copy.deepcopy(module), pickled):
        assert_close(copied.state_dict(), module.state_dict())
        assert copied.eps == module.eps


def test_module_on_meta() -> None:
    tensors = build(device="meta").state_dict().values()
    assert tensors and all(tensor.is_meta for tensor in tensors)


@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_module_calls_layer_norm(weight: bool, bias: bool) -> None:
    inputs = make()
    module = build(weight=weight, bias=bias)
    module.load_state_dict({"weight": inputs[1], "bias": inputs[2]}, strict=False)
    expected = layer_norm(inputs[0], module.weight, module.bias, inputs[3])
    assert_close(module(inputs[0]), expected)
