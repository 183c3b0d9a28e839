"""The second derivatives of ops whose backward is a Function of its own are those of autograd."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from scaffold.spec import OpSpec
from tests.derive.building import draft_of, load, op_text, reference, spec_of
from tests.derive.cases import CASES, p, r
from tests.derive.checking import check_needs, subsets

ASKED: dict[str, Any] = {"save_policy": "balanced", "double_backward": True}
RMS_NORM = """
rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
out = x * rstd
return out * weight if weight is not None else out
"""
LAYER_NORM = """
mean = x.mean(-1, keepdim=True)
rstd = torch.rsqrt(((x - mean) ** 2).mean(-1, keepdim=True) + 1e-5)
return (x - mean) * rstd * weight + bias
"""
WAYS: dict[str, tuple[str, str, list[tuple[Any, ...]]]] = {
    "fused": ("x", "x * torch.sigmoid(x)", [(r(3, 4),), (r(0),), (r(4, 3).mT,)]),
    "broadcast": (
        "x, y",
        "x * torch.sigmoid(x) * y",
        [(r(3, 4), r(4)), (r(3, 1), r(4)), (r(0, 4), r(4))],
    ),
    "a saved intermediate": (
        "x[..., D], weight[D]?, eps: float = 1e-6",
        RMS_NORM,
        [(r(3, 4), r(4), 1e-6), (r(2, 3, 4), None, 1e-6), (r(0, 4), r(4), 1e-6)],
    ),
    "an input of which the shape is read": (
        "x[..., D], weight[D], bias[D]",
        LAYER_NORM,
        [
            (r(3, 4), r(4), r(4)),
            (r(2, 5, 4).transpose(0, 1), r(4), r(4)),
            (r(4), r(4), r(4)),
        ],
    ),
    "an output is read": (
        "x[N, D], w[D]",
        "torch.softmax(x * torch.sigmoid(x) * w, -1)",
        [(r(3, 4), r(4))],
    ),
    "several outputs": (
        "x[N, D], y[N, D]",
        "u = torch.sqrt(x * x + y * y)\nreturn torch.log(u) * y, u * torch.tanh(y)",
        [(p(3, 4), r(3, 4))],
    ),
    "a gradient that is what comes in": (
        "x[N], y[N]",
        "x + y * torch.sigmoid(y)",
        [(r(3), r(3))],
    ),
    "no gradient for a mask": (
        "x[N], mask[N; bool], y[N; const]",
        "torch.where(mask, x * torch.sigmoid(x), x * y)",
        [(r(4), torch.tensor([True, False, True, False]), r(4))],
    ),
    "two gradients that are one tensor": (
        "x[N], y[N], z[N]",
        "u = x + y\nreturn u * torch.sigmoid(u) * z",
        [(r(3), r(3), r(3))],
    ),
    "shapes that broadcast": (
        "x, p, eps: float = 1e-6",
        "x.clamp(min=eps).pow(p).mean(-1).pow(1.0 / p)",
        [(p(3, 4), p(1), 1e-6), (p(2, 3, 4), p(), 1e-6)],
    ),
    "leading dims": (
        "x[..., K], w[N, K], v[N, K]",
        "F.silu(x @ w.t()) * (x @ v.t())",
        [
            (r(3, 4), r(5, 4), r(5, 4)),
            (r(2, 3, 4), r(5, 4), r(5, 4)),
            (r(4), r(5, 4), r(5, 4)),
            (r(0, 4), r(5, 4), r(5, 4)),
        ],
    ),
    "a choice": (
        "x[N], y[N], gate: str = 'silu'",
        "h = x * torch.sigmoid(x) if gate == 'silu' else torch.tanh(x)\nreturn h * h * y",
        [(r(3), r(3), "silu"), (r(3), r(3), "tanh")],
    ),
}


def raw(way: str, **keys: Any) -> dict[str, Any]:
    inputs, forward, _ = WAYS[way]
    several = {"outputs": "first, second"} if way == "several outputs" else {}
    # In a region no backward is one call of ATen's.
    table = {"inputs": inputs, "forward": forward, "amp": "off"}
    return {**table, **several, **ASKED, **keys}


def check(spec: OpSpec, forward: str, calls: list[tuple[Any, ...]]) -> None:
    """Compare gradients and their gradients with those of autograd, for whichever inputs need them."""
    found = derive(spec)
    assert found.double_backward is not None
    assert not found.once_differentiable
    module = load(draft_of(spec, found))
    plain = reference([item.name for item in spec.inputs], forward)
    wanted = {item.name for item in spec.differentiable}
    for inputs in calls:
        for needs in subsets(inputs, 64):
            names = [
                item.name for item, need in zip(spec.inputs, needs, strict=True) if need
            ]
            if wanted.issuperset(names):
                check_needs(
                    module.SomeOpFunction,
                    module.some_op,
                    plain,
                    inputs,
                    needs,
                    False,
                    False,
                )


@pytest.mark.one_of(2)
@pytest.mark.parametrize("style", [None, "combined"])
@pytest.mark.parametrize("way", WAYS)
def test_second_derivatives_are_those_of_autograd(way: str, style: str | None) -> None:
    _, forward, calls = WAYS[way]
    spec = spec_of(**raw(way, **({"style": style} if style else {})))
    check(spec, forward, calls)


def test_the_gradient_of_a_weight_over_leading_dims_has_a_derivative() -> None:
    """`torch.tensordot` over all dims but the last, which the first derivative has."""
    text = op_text(**raw("leading dims"))
    assert "= x @ grad_grad_w.mT + grad_grad_x @ w.t()" in text
    assert "vjp" not in text


def test_a_branch_alone_reads_what_it_assigns() -> None:
    """The gradient of `damped` is a sum of choices below another choice."""
    case = next(case for case in CASES if case.name == "local_of_one_branch")
    spec = spec_of(case.inputs, forward=case.forward, style="combined", **ASKED)
    check(spec, case.forward, case.samples())


@pytest.mark.parametrize("way", ["fused", "a saved intermediate", "broadcast"])
def test_gradients_of_gradients_under_transforms(way: str) -> None:
    _, forward, (first, *_) = WAYS[way]
    spec = spec_of(**raw(way))
    op = load(draft_of(spec)).some_op
    plain = reference([item.name for item in spec.inputs], forward)

    def twice(call: Any) -> Any:
        def one(*given: Any) -> Any:
            return call(*given, *first[len(tensors) :]).sin().sum()

        def two(*given: Any) -> Any:
            return grad(one)(*given).cos().sum()

        where = tuple(range(len(tensors)))
        dims = (0, *(None for _ in tensors[1:]))
        return vmap(grad(two, argnums=where), in_dims=dims)(*tensors)

    tensors = [item for item in first if isinstance(item, Tensor)]
    for found, expected in zip(twice(op), twice(plain), strict=True):
        torch.testing.assert_close(found, expected)


def test_third_derivatives_are_those_of_autograd() -> None:
    op = load(draft_of(spec_of(**raw("fused")))).some_op
    x = r(4)

    def third(call: Any) -> Any:
        def nested(x: Tensor) -> Any:
            return grad(lambda x: grad(lambda x: call(x).sum())(x).sum())(x).sum()

        return grad(nested)(x)

    torch.testing.assert_close(third(op), third(lambda x: x * torch.sigmoid(x)))


@pytest.mark.each_commit
def test_the_first_derivative_compiles() -> None:
    op = load(draft_of(spec_of(**raw("a saved intermediate")))).some_op
    compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
    for frozen in (False, True):
        x, weight = r(3, 4).requires_grad_(), r(4).requires_grad_(not frozen)
        inputs = (x,) if frozen else (x, weight)
        found, expected = (
            torch.autograd.grad(call(x, weight, 1e-6).sin().sum(), inputs)
            for call in (compiled, op)
        )
        for one, two in zip(found, expected, strict=True):
            torch.testing.assert_close(one, two)


SWISH = '''
class SomeOpFunction(Function):
    """Forward and backward of :func:`some_op`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        (x,) = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return SomeOpBackwardFunction.apply(grad_output, x)


class SomeOpBackwardFunction(Function):
    """The backward of :func:`some_op`, which can be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad_output: Tensor, x: Tensor) -> Tensor:
        grad_x = torch.ops.aten.silu_backward(grad_output, x)
        return grad_x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grad_output, x = inputs
        ctx.save_for_backward(x, grad_output if ctx.needs_input_grad[1] else None)

    @staticmethod
    def backward(ctx: Any, grad_grad_x: Tensor) -> tuple[Tensor | None, ...]:
        x, grad_output = ctx.saved_tensors
        grad_grad_output = grad_x = None
        sigmoid = torch.sigmoid(x)
        # w.r.t. grad_output * sigmoid
        grad_product = grad_grad_x * (1 + x * (1 - sigmoid))
        if ctx.needs_input_grad[1]:
            # w.r.t. 1 + x * (1 - sigmoid)
            grad_total = grad_grad_x * grad_output * sigmoid
            grad_sigmoid = grad_product * grad_output - grad_total * x
            grad_x = (1 - sigmoid) * (grad_total + grad_sigmoid * sigmoid)
        if ctx.needs_input_grad[0]:
            grad_grad_output = grad_product * sigmoid
        return grad_grad_output, grad_x
'''


def test_the_backward_is_a_function_of_its_own() -> None:
    assert SWISH.strip() in op_text(**raw("fused"))


def test_an_intermediate_spares_time_and_is_no_input_of_the_second_derivative() -> None:
    text = op_text(**raw("a saved intermediate"))
    assert "ctx.save_for_backward(x, weight, rstd)" in text
    second = text.partition("class SomeOpBackwardFunction")[2]
    assert "ctx.save_for_backward(x, weight, grad_output)" in second
    assert "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)" in second


def test_a_backward_that_can_be_differentiated_stays() -> None:
    spec = spec_of("x", forward="torch.exp(x)", **ASKED)
    found = derive(spec)
    assert found.double_backward is None
    assert "double-backward changes nothing" in found.notes[0]
    without = spec_of("x", forward="torch.exp(x)", save_policy="balanced")
    assert draft_of(spec, found) == draft_of(without)


def test_a_second_derivative_is_forbidden_or_derived() -> None:
    with pytest.raises(ScaffoldError, match="leave one of them out"):
        spec_of("x", forward="torch.exp(x)", once_differentiable=True, **ASKED)


@pytest.mark.parametrize(
    ("forward", "call"),
    [
        ("F.pdist(x)", "torch.ops.aten._pdist_backward"),
        ("torch.special.bessel_j0(x)", "torch.special.bessel_j1"),
    ],
)
def test_what_pytorch_does_not_differentiate_is_named(forward: str, call: str) -> None:
    found = derive(spec_of("x[N, D]", forward=forward, **ASKED))
    assert found.double_backward is None
    (note,) = (note for note in found.notes if "no double backward" in note)
    assert note.endswith(f": PyTorch does not differentiate {call}")


def test_a_backward_of_a_kernel_has_none() -> None:
    found = derive(
        spec_of(
            "x",
            forward="kernels.fwd(x)",
            grad={"x": "kernels.bwd(grad_output, x)"},
            **{**ASKED, "import": ["kernels"]},
        )
    )
    assert found.double_backward is None
    said = "'kernels' is code whose derivative PyTorch does not know"
    assert any(note.endswith(f"no double backward: {said}") for note in found.notes)
