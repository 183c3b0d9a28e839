"""Tests of the custom operator linear_skeleton."""

import contextlib
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

from linear_skeleton import LinearSkeleton, LinearSkeletonFunction, linear_skeleton

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
    seed: int = 0,
) -> tuple[Any, ...]:
    """Make the inputs in call order; those in `needs` require grad."""
    torch.manual_seed(seed)
    inputs = {
        "input": torch.randn(N, in_features, dtype=torch.double),
        "weight": torch.randn(out_features, in_features, dtype=torch.double),
        "bias": torch.randn(out_features, dtype=torch.double),
    }
    return tuple(
        None if name in absent else layout(value).requires_grad_(name in needs)
        for name, value in inputs.items()
    )


def gradients(output: Tensor, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Backpropagate a grad_output that is not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    grad_output = permuted(torch.randn_like(output))
    return torch.autograd.grad(output, needed, grad_output, materialize_grads=True)


def unwritten(inputs: tuple[Any, ...]) -> str:
    """The message of the part that is not written, if there is one."""
    try:
        gradients(linear_skeleton(*inputs), inputs)
    except NotImplementedError as error:
        return str(error)
    return ""


@pytest.fixture
def written() -> None:
    """Expect failure while a part is not written; the test shows any other error."""
    with contextlib.suppress(Exception):
        for message in [unwritten(make(needs=[name])) for name in DIFFERENTIABLE]:
            if message.startswith("linear_skeleton: write "):
                pytest.xfail(message)


@pytest.fixture(params=[*CASES, *EMPTY_CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `make`; an empty tensor only where PyTorch allows it."""
    if request.param in CASES:
        return CASES[request.param]
    arguments = EMPTY_CASES[request.param]
    inputs = make(**arguments)
    try:
        output = linear_skeleton(*inputs)
        values = (output,)
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
        pytest.skip(f"PyTorch: {error}")
    if not all(value.isfinite().all() for value in values):
        pytest.skip("not finite")
    return arguments


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("layout", [torch.clone, permuted])
def test_gradcheck(case: dict[str, Any], layout: Callable[[Tensor], Tensor]) -> None:
    inputs = make(**case, layout=layout)
    assert gradcheck(linear_skeleton, inputs, check_grad_dtypes=True)
    assert gradgradcheck(linear_skeleton, inputs)


class Recorder(LinearSkeletonFunction):
    """Keeps what backward returned last."""

    returned: tuple[Tensor | None, ...] = ()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        Recorder.returned = LinearSkeletonFunction.backward(ctx, *grad_outputs)
        return Recorder.returned


@pytest.mark.usefixtures("written")
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


@pytest.mark.usefixtures("written")
def test_output_is_freed_without_gc() -> None:
    """An output on ctx would make a reference cycle."""
    gc.disable()
    try:
        output = linear_skeleton(*make())
        alive = weakref.ref(output)
        del output
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("changed", range(3), ids=["input", "weight", "bias"])
def test_input_changed_after_forward(changed: int) -> None:
    """Backward refuses or gives the old gradient; a tensor on ctx would do neither."""
    inputs = make()
    expected = gradients(linear_skeleton(*inputs), inputs)
    output = linear_skeleton(*inputs)
    with torch.no_grad():
        inputs[changed].zero_()
    try:
        actual = gradients(output, inputs)
    except RuntimeError as error:
        assert "inplace" in str(error)
    else:
        assert_close(actual, expected)


def loss(*inputs: Any) -> Tensor:
    return linear_skeleton(*inputs).square().sum()


@pytest.mark.usefixtures("written")
def test_vmap_of_grad() -> None:
    gradient = torch.func.grad(loss, argnums=(0, 1, 2))
    samples = [make(needs=(), seed=seed) for seed in range(3)]
    batch = [torch.stack(values) for values in zip(*samples, strict=True)]
    actual = torch.func.vmap(gradient)(*batch)
    expected = zip(*(gradient(*sample) for sample in samples), strict=True)
    assert_close(actual, tuple(torch.stack(values) for values in expected))


@pytest.mark.usefixtures("written")
def test_jacrev() -> None:
    def flat(*inputs: Any) -> Tensor:
        return linear_skeleton(*inputs).flatten()

    inputs = make()
    rows = [
        torch.autograd.grad(element, inputs, retain_graph=True)
        for element in flat(*inputs)
    ]
    actual = torch.func.jacrev(flat, argnums=(0, 1, 2))(*inputs)
    assert_close(
        actual, tuple(torch.stack(values) for values in zip(*rows, strict=True))
    )


@pytest.mark.usefixtures("written")
def test_compile() -> None:
    inputs = make()
    compiled = torch.compile(linear_skeleton, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(*inputs), linear_skeleton(*inputs)
    assert_close(actual, expected)
    assert_close(gradients(actual, inputs), gradients(expected, inputs))


def build(*, bias: bool = True, device: str = "cpu") -> LinearSkeleton:
    return LinearSkeleton(
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


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("bias", [True, False])
def test_module_calls_linear_skeleton(bias: bool) -> None:
    inputs = make()
    module = build(bias=bias)
    module.load_state_dict({"weight": inputs[1], "bias": inputs[2]}, strict=False)
    expected = linear_skeleton(inputs[0], module.weight, module.bias)
    assert_close(module(inputs[0]), expected)
