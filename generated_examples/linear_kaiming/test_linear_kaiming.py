"""Tests of the custom operator linear_kaiming."""

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
from torch.autograd import gradcheck
from torch.testing import assert_close

from linear_kaiming import LinearKaiming, LinearKaimingFunction, linear_kaiming

DIFFERENTIABLE = ("input", "weight", "bias")
NEEDS = [
    needs
    for count in range(1, 4)
    for needs in itertools.combinations(DIFFERENTIABLE, count)
]
CASES: dict[str, dict[str, Any]] = {"base": {}, "without-bias": {"absent": ["bias"]}}
EMPTY_CASES: dict[str, dict[str, Any]] = {
    "N=0": {"N": 0},
    "in_features=0": {"in_features": 0},
    "out_features=0": {"out_features": 0},
}


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def make(
    *,
    N: int = 2,
    in_features: int = 3,
    out_features: int = 4,
    absent: Collection[str] = (),
    needs: Collection[str] = DIFFERENTIABLE,
    layout: Callable[[Tensor], Tensor] = torch.clone,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(0)
    inputs = {
        "input": torch.randn(N, in_features, dtype=torch.double),
        "weight": torch.randn(out_features, in_features, dtype=torch.double),
        "bias": torch.randn(out_features, dtype=torch.double),
    }
    return tuple(
        None if name in absent else layout(value).requires_grad_(name in needs)
        for name, value in inputs.items()
    )


def reference(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """linear_kaiming in plain PyTorch."""
    output = input @ weight.t()
    if bias is not None:
        output = output + bias
    return output


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
    assert_close(linear_kaiming(*inputs), reference(*inputs))


def test_other_shapes_are_refused() -> None:
    """Backward is written for the declared shapes."""
    inputs = make()
    broken = [
        (0, "input", inputs[0][None]),
        (2, "bias", torch.cat([inputs[2]] * 2, dim=-1)),
    ]
    for position, name, value in broken:
        wrong = [*inputs]
        wrong[position] = value
        with pytest.raises(ValueError, match=rf"^{name}\["):
            linear_kaiming(*wrong)


@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(
        linear_kaiming, inputs, check_batched_grad=True, check_grad_dtypes=True
    )


def test_gradients_match_reference(case: dict[str, Any]) -> None:
    inputs = make(**case)
    expected = gradients(reference(*inputs), inputs)
    assert_close(gradients(linear_kaiming(*inputs), inputs), expected)


def test_differentiable_once() -> None:
    inputs = make()
    output = linear_kaiming(*inputs)
    grad_output = torch.ones_like(output, requires_grad=True)
    gradient, *_ = torch.autograd.grad(
        output, inputs[0], grad_output, create_graph=True
    )
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()


class Recorder(LinearKaimingFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = LinearKaimingFunction.backward(ctx, *grad_outputs)
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
        output = linear_kaiming(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("changed", range(3), ids=["input", "weight", "bias"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(linear_kaiming(*inputs), inputs)
    output = linear_kaiming(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(linear_kaiming, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), linear_kaiming(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build(*, bias: bool = True, device: str = "cpu") -> LinearKaiming:
    return LinearKaiming(
        in_features=3, out_features=4, bias=bias, device=device, dtype=torch.double
    )


@pytest.mark.parametrize("bias", [True, False])
def test_module_copies(bias: bool) -> None:
    module = build(bias=bias)
    loaded = build(bias=bias)
    loaded.load_state_dict(module.state_dict())
    pickled = pickle.loads(pickle.dumps(module))
    for copied in (loaded, copy.deepcopy(module), pickled):
        assert_close(copied.state_dict(), module.state_dict())


def test_module_on_meta() -> None:
    tensors = build(device="meta").state_dict().values()
    assert tensors and all(tensor.is_meta for tensor in tensors)


@pytest.mark.parametrize("bias", [True, False])
def test_module_calls_linear_kaiming(bias: bool) -> None:
    inputs = make()
    module = build(bias=bias)
    module.load_state_dict({"weight": inputs[1], "bias": inputs[2]}, strict=False)
    expected = linear_kaiming(inputs[0], module.weight, module.bias)
    assert_close(module(inputs[0]), expected)
