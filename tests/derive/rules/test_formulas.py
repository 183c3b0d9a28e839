"""Formulas of the table on calls: matrices without an inverse, where a backward raises nowhere, and calls whose value is a formula."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaffold.spec import RuleFile
from tests.derive.against_autograd import POLICIES, check_forward, tensor
from tests.derive.building import (
    backward_of,
    load,
    op_text,
    reference,
    spec_of,
    text_of,
)

RANK_2 = torch.tensor([[1.0, 2.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]).double()
RANK_1 = torch.ones(3, 3, dtype=torch.double)
BATCH = torch.stack([RANK_2, 2 * torch.eye(3, dtype=torch.double)])
FORWARDS = ("torch.linalg.det(x)", "torch.logdet(x)", "torch.linalg.slogdet(x)[1]")


def gradient(call: object, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(call(x).sum(), x)  # type: ignore[operator]
    return found


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("x", [RANK_2, RANK_1, BATCH, torch.zeros_like(RANK_1)])
def test_a_singular_matrix_is_no_error(forward: str, policy: str, x: Tensor) -> None:
    op = load(op_text("x", forward=forward, save_policy=policy)).some_op
    ours, theirs = gradient(op, x), gradient(reference(["x"], forward), x)
    both = theirs.isfinite() & ours.isfinite()
    torch.testing.assert_close(ours[both], theirs[both])
    if "det(x)" in forward and "log" not in forward:
        assert both.all()
    if x is BATCH:  # what is infinite of one matrix is not of another
        assert both[1].all()


@pytest.mark.parametrize(
    "forward",
    [*FORWARDS, "torch.linalg.inv_ex(x)[0]", "torch.linalg.inv_ex(x).inverse"],
)
def test_other_matrices(forward: str) -> None:
    x = tensor(2, 3, 3)
    check_forward("x", forward.replace("(x)", "(x @ x.mT)"), [(x,), (x[0],)])


# Calls whose section says their value: inputs, forward, the backward.
BY_VALUE = {
    "x[N, K], y[N, M] ; torch.hstack((x, y))": """\
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output[:, : ctx.x_shape[-1]]
        if ctx.needs_input_grad[1]:
            grad_y = grad_output[:, ctx.x_shape[-1] :]
        return grad_x, grad_y""",
    "x[N], y[M, N] ; torch.vstack((x, y))": """\
        grad_x = grad_y = None
        if ctx.needs_input_grad[0]:
            grad_x = grad_output[:1].squeeze(0)
        if ctx.needs_input_grad[1]:
            grad_y = grad_output[1:]
        return grad_x, grad_y""",
    "x[D, N] ; torch.cov(x)": """\
        if grad_output.dtype.is_complex:
            raise TypeError("some_op: x must be real")
        (x,) = ctx.saved_tensors
        diff = x - x.mean(-1, keepdim=True)
        grad_squeeze_all = grad_output / max(x.shape[-1] - 1, 0)
        grad_product = grad_squeeze_all.reshape((x.shape[0], x.shape[0]))
        grad_diff = grad_product @ diff + grad_product.mT @ diff
        return grad_diff - grad_diff.mean(-1, keepdim=True)""",
}


@pytest.mark.parametrize(("op", "wanted"), BY_VALUE.items())
def test_a_call_with_a_value_reads_as_its_primitives_do(op: str, wanted: str) -> None:
    inputs, forward = op.split(" ; ")
    text = op_text(inputs, forward=forward)
    assert f"return {forward}" in text  # the forward keeps the call
    assert backward_of(text) == dedent(wanted)


STACKED = [(tensor(3, 2), tensor(3, 2)), (tensor(0, 2), tensor(0, 2))]
FEATURES = [(tensor(3, 4), tensor(3, 4).flip(0), tensor(3, 4).flip(1))]
LABELS = torch.tensor([1.0, -1.0, 1.0]).double()
BATCHED = [(tensor(3, 4), tensor(3, 4).flip(0), LABELS)]


@pytest.mark.parametrize(
    ("inputs", "forward", "calls"),
    [
        ("x, y", "torch.hstack((x, y))", [*STACKED, (tensor(), tensor(2))]),
        ("x, y", "torch.vstack((x, y))", [*STACKED, (tensor(2), tensor(3, 2))]),
        ("x, y", "torch.dstack((x, y))", [*STACKED, (tensor(2), tensor(2))]),
        ("x[N, K], y[N, K]", "torch.dstack((x, y * x))", STACKED),
        ("x[2, N, K]", "torch.hstack(x.unbind(0))", [(tensor(2, 3, 4),)]),
        ("a, p, n", "F.triplet_margin_loss(a, p, n, swap=True)", FEATURES),
        ("a, b, t[...; const]", "F.cosine_embedding_loss(a, b, t, 0.1)", BATCHED),
        (
            "a[N, D], b[N, D], t[N; const], reduction: str = 'mean'",
            "F.cosine_embedding_loss(a, b, t, reduction=reduction)",
            [(*BATCHED[0], reduction) for reduction in ("mean", "sum", "none")],
        ),
        (
            "x[D, N], c: int = 1",
            "torch.cov(x, correction=c)",
            [(tensor(3, 4), 0), (tensor(1, 4), 0)],
        ),
    ],
)
def test_calls_with_a_value(inputs: str, forward: str, calls: list[Any]) -> None:
    assert "torch.func.vjp" not in check_forward(inputs, forward, calls)


IMAGES = [(tensor(2, 3, 5, 4),), (tensor(1, 2, 5, 4).transpose(-1, -2),)]
SMALL = tensor(2, 3, 4, 3)
SKIP = [(SMALL, tensor(2, 3, 6, 5)), (SMALL.mT, tensor(2, 3, 2, 2))]
KERNEL = tensor(2, 3, 3, 2)
SHOWN_WITH = "x[B, C, H, W], y[B, C, P, Q]"


@pytest.mark.parametrize(
    ("inputs", "forward", "calls"),
    [
        ("x", "F.max_pool2d(x * x, 3, stride=2, padding=1)", [*IMAGES, (SMALL[0],)]),
        ("x[B, C, H, W]", "x - F.max_pool2d(-x, 3, 1, 1)", IMAGES),
        ("x", "y, at = F.max_pool2d(x, 2, return_indices=True)\nreturn y", IMAGES),
        ("x", "F.adaptive_max_pool2d(x, 1) + F.adaptive_avg_pool2d(x, 1)", IMAGES),
        ("x[B, C, H, W], n: int = 2", "F.adaptive_avg_pool2d(x, n)", [(SMALL, 2)]),
        ("x", "F.interpolate(x, scale_factor=1.7, mode='bilinear')", IMAGES),
        ("x[B, C, H, W]", "F.interpolate(x, scale_factor=3.0)", IMAGES),
        (SHOWN_WITH, "F.interpolate(x, y.shape[-2:]) * y", SKIP),
        (SHOWN_WITH, "F.interpolate(x, y.shape[2:], mode='bicubic') + y", SKIP),
        ("x, p: int = 1", "F.pad(x, (p, 0, 1, p), mode='reflect')", [(SMALL, 2)]),
        ("x, w, b?", "F.conv2d(x, w, b, padding=1)", [(SMALL, KERNEL, tensor(2))]),
        ("x, w", "F.conv2d(x, w)", [(SMALL[0], KERNEL), (SMALL, KERNEL)]),
        ("x[C, H, W], w[O, C, K, L]", "F.conv2d(x, w)", [(SMALL[0], KERNEL)]),
        (
            "x[B, C, H, W], w[O, C, K, L]",
            "F.conv2d(x, w, padding='same')",
            [(SMALL, KERNEL)],
        ),
        (
            "x, w, b",
            "F.conv_transpose2d(x, w, b, stride=2, output_padding=1)",
            [(SMALL.mT[:, :2], KERNEL, tensor(3)), (SMALL[0, :2], KERNEL, tensor(3))],
        ),
        ("x[..., D], w[D]", "F.rms_norm(x, x.shape[-1:], w)", [(SMALL, tensor(3))]),
    ],
)
def test_pools_and_resized_images(inputs: str, forward: str, calls: list[Any]) -> None:
    assert "torch.func.vjp" not in check_forward(inputs, forward, calls)


INDEX = torch.tensor([2, 0])
PLACED = [(tensor(3, 4), INDEX, tensor(2, 4)), (tensor(3, 4), INDEX, tensor(4))]
THREE = [(tensor(2, 3, 4), tensor(4, 3, 2))]
VECTORS = [(tensor(3), tensor(4)), (tensor(1), tensor(0))]
LEFT = [(tensor(3, 3) + 4 * torch.eye(3).double(), tensor(2, 3))]
FACTOR = torch.linalg.cholesky(
    torch.eye(3).double() * 4 + tensor(3, 3) @ tensor(3, 3).mT
)


@pytest.mark.parametrize(
    ("inputs", "forward", "calls"),
    [
        ("x, i[...; int], v", "x.index_put((i,), v)", PLACED),
        ("x, i[...; int], v", "y = x * x\ny.index_put_((i,), v)\nreturn y", PLACED),
        (
            "x, i[...; int], v",
            "torch.index_put(x, (i, i), v, accumulate=True)",
            [(tensor(3, 4), INDEX, tensor(2))],
        ),
        ("a[I, J, K], b[K, J, L]", "torch.tensordot(a, b, ([1, 2], [1, 0]))", THREE),
        ("a[I, J, K], b[K, L, M]", "torch.tensordot(a, b, dims=1)", THREE),
        ("x[N], y[M]", "a, b = torch.meshgrid(x, y)\nreturn a.exp() * b", VECTORS),
        ("x[N], y[M]", "torch.meshgrid(x, y, indexing='xy')[0]", VECTORS),
        (
            "x, d: int = -1",
            "torch.quantile(x, 0.3, d, keepdim=True)",
            [(tensor(4, 3), 0)],
        ),
        ("x, q: float = 0.5", "x.quantile(q)", [(tensor(4, 3), 0.3)]),
        (
            "a, b, c",
            "torch.linalg.multi_dot((a, b, c))",
            [(tensor(2, 3), tensor(3, 4), tensor(4, 2))],
        ),
        ("b, f", "torch.cholesky_solve(b, f)", [(tensor(3, 2), FACTOR)]),
        ("x", "torch.aminmax(x, dim=-1).max", [(tensor(4, 3),)]),
        ("x", "torch.linalg.svdvals(x).sum(-1)", [(tensor(4, 3),), (tensor(2, 2, 3),)]),
        ("a[N, N], b[M, N]", "torch.linalg.solve(a, b, left=False)", LEFT),
        (
            "x[N, N]",  # the rotation of a skew matrix, as Cayley has it
            (
                "s = x - x.T\ni = torch.eye(x.shape[0], dtype=x.dtype)\n"
                "return torch.linalg.solve(i + s, i - s, left=False)"
            ),
            [(tensor(3, 3),)],
        ),
        ("x[B, C, H, W]", "F.local_response_norm(x, 2)", IMAGES),
        ("x[B, C, H, W]", "F.layer_norm(x, x.size()[1:])", IMAGES),
        ("x", "F.layer_norm(x, x.shape[1:])", IMAGES),
    ],
)
def test_other_calls_with_a_value(inputs: str, forward: str, calls: list[Any]) -> None:
    assert "torch.func.vjp" not in check_forward(inputs, forward, calls)


FIELD = tensor(2, 4, 3, 2)
SPECTRA = "x[B, H, W, C]"


@pytest.mark.parametrize(
    ("inputs", "forward", "calls"),
    [
        (SPECTRA, "torch.fft.rfft2(x, dim=(1, 2), norm='ortho').abs()", [(FIELD,)]),
        (
            SPECTRA,
            "y = torch.fft.fft2(x, s=(3, -1))\nreturn torch.fft.irfft2(y, s=(-1, -1))",
            [(FIELD,)],
        ),
        (
            "x[N, M], n: int | None",
            "torch.fft.irfft(torch.fft.rfft(x), n)",
            [(tensor(3, 4), 5), (tensor(3, 4), None)],
        ),
        (
            "x[N, M], s: object",
            "torch.fft.irfft2(torch.fft.rfft2(x), s=s)",
            [(tensor(3, 4), (3, 5)), (tensor(3, 4), None)],
        ),
        (
            f"{SPECTRA}, n: int = 5",
            "torch.fft.irfft2(torch.fft.fft2(x, s=(n, 4), dim=(2, 1)), s=(n, 3), dim=(2, 1))",
            [(FIELD, 5), (FIELD, 2)],
        ),
        (
            SPECTRA,
            (
                "f = torch.fft.rfftn(x, dim=(-3, -2, -1))\n"
                "return torch.fft.irfftn(f * f, s=(x.size(1), x.size(2), x.size(3)))"
            ),
            [(FIELD,), (tensor(1, 3, 2, 4),)],
        ),
        (
            "x, k",
            (
                "s = x.shape[-2:]\nf = torch.fft.rfftn(x, s=s, dim=(-2, -1))\n"
                "return torch.fft.irfftn(f * torch.fft.rfftn(k, s=s, dim=(-2, -1)), s=s, dim=(-2, -1))"
            ),
            [(FIELD, tensor(2, 1)), (tensor(3, 4), tensor(2, 2))],
        ),
        (
            "x[N, M]",
            "torch.fft.ihfft2(torch.fft.hfft2(torch.complex(x, x * x)), dim=(1, 0)).real",
            [(tensor(3, 4),)],
        ),
    ],
)
def test_fourier_transforms(inputs: str, forward: str, calls: list[Any]) -> None:
    assert "torch.func.vjp" not in check_forward(inputs, forward, calls)


def test_how_long_a_fourier_transform_is_is_known() -> None:
    forward = (
        "n = x.shape[-1]\n"
        "return torch.fft.irfft(torch.fft.rfft(x, 2 * n) * torch.fft.rfft(k, 2 * n), 2 * n)"
    )
    text = op_text("x[B, N], k[N]", forward=forward)
    assert "sum_to_size" not in text and ".sum(0)" in text
    backward = text.partition("def backward")[2].partition("def some_op")[0]
    assert backward.count("torch.fft.rfft(") == 3 and "irfft" not in backward
    square = "torch.fft.irfft2(torch.fft.rfft2(x, dim=(0, 1)), s=(6, 6), dim=(0, 1))"
    assert "(0, 0, 0, 0" not in op_text(
        "x[6, 6, C]", forward=square
    )  # a pad of nothing


def test_an_image_that_is_resized_is_not_saved_for_its_shape() -> None:
    text = op_text("x[B, C, H, W]", forward="F.interpolate(x, scale_factor=2)")
    assert "save_for_backward" not in text
    assert "F.avg_pool2d(grad_output, 2, divisor_override=1)" in text


def test_the_value_of_a_team_s_function_is_differentiated() -> None:
    table = """
[smooth]
call = "smooth(x, gain=1.0)"
from = "team"
category = "elementwise"
value = '''
    inner = tanh(gain * x)
    inner * inner
    '''
differentiable = ["x"]
samples = ["x[3]"]
"""
    rules = (RuleFile("team.toml", table),)
    spec = spec_of("x", forward="smooth(x, 2.0)", import_=["team:smooth"], derive=True)
    text = text_of(replace(spec, rules=rules))
    assert "torch.tanh(2.0 * x)" in text


PAIR = [(tensor(3, 4).exp(), tensor(3, 4).sin() + 2)]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "loss",
    [
        "F.poisson_nll_loss(x, x, {})",
        "F.kl_div(x, x, {})",
        "F.kl_div(-x, x, {})",
        "F.binary_cross_entropy_with_logits(x, x, {})",
        "F.binary_cross_entropy_with_logits(x, x, pos_weight=x.detach(), {})",
        "F.gaussian_nll_loss(x, 2 * x, x, {})",
    ],
)
def test_one_tensor_in_two_places_of_a_loss(loss: str, reduction: str) -> None:
    forward = loss.format(f"reduction={reduction!r}")
    check_forward("x", forward, [(tensor(3, 4).exp(),)])


@pytest.mark.parametrize(
    "forward",
    [
        # The third parameter is `size_average`: these are means.
        "F.mse_loss(x, y, 'sum')",
        "F.kl_div(x, y, 'none')",
        "F.smooth_l1_loss(x, y, False)",
        "F.cosine_embedding_loss(x, y, y[:, 0].detach().sign(), -0.5, 'none')",
        "F.huber_loss(x, y, 'sum', 0.3)",
        "F.hinge_embedding_loss(x, y.detach(), 2.0)",  # of no -1 or 1
        "torch.atan2(other=x, input=y)",
        "torch.rsub(input=x, other=y * y)",
        "torch.special.gammainc(other=y, input=x.detach())",
        "torch.sort(x, stable=True, dim=1)[0] * y",
        "torch.sort(x, dim=0, descending=True, stable=True)[0] * y",
        "x.sort(1, True)[0] * y",
        "torch.float_power(x, 2) * y",
        "x.float_power(y)",
        "torch.float_power(2.5, y) * x",
    ],
)
def test_arguments_are_those_that_pytorch_takes_them_for(forward: str) -> None:
    check_forward("x, y", forward, PAIR)


def test_of_one_result_alone_a_part_of_no_cotangent_is_none() -> None:
    calls = [(tensor(2, 3, 3), tensor(2))]
    check_forward("x, y", "torch.linalg.slogdet(x)[0] * y", calls)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(
    ("result", "x"), [("{}", "x"), ("F.silu({})", "x"), ("F.silu({})", "x * x")]
)
def test_the_statistics_of_a_norm_are_computed_once(
    given: bool, result: str, x: str
) -> None:
    """Saved where it is known of which dtype the gradient must be; else in one call of the backward."""
    forward = result.format(f"F.layer_norm({x}, x.shape[-1:], weight)")
    text = op_text("x[..., D], weight[D]?", forward=forward)
    assert text.count(", mean, rstd = torch.native_layer_norm(") == 1
    assert ("ctx.mark_non_differentiable(mean, rstd)" in text) == (x == "x")
    assert ("_cast, x.shape[-1:], weight_cast, None, 1e-5" in text) != (x == "x")
    weight = tensor(4).requires_grad_() if given else None
    call, args = load(text).some_op, (tensor(3, 4).requires_grad_(), weight)
    plain = reference(["x", "weight"], forward)
    active = [arg for arg in args if arg is not None]
    ours = torch.autograd.grad(call(*args).exp().sum(), active)
    theirs = torch.autograd.grad(plain(*args).exp().sum(), active)
    torch.testing.assert_close(ours, theirs)
    # The statistics have no derivative in PyTorch, which says nothing of it.
    assert torch.autograd.gradgradcheck(call, active)


def test_the_third_derivative_of_a_layer_norm_is_right() -> None:
    """PyTorch's own is not, in silence: where that changes, `wrong_beyond` of its backward goes."""
    text = op_text("x[N, D]", forward="F.layer_norm(x, x.shape[-1:])")
    assert "# native_layer_norm_backward's second derivative is wrong" in text
    x, weight = tensor(2, 3).requires_grad_(), tensor(2, 3)

    def third(norm: Callable[[Tensor], Tensor]) -> Tensor:
        (first,) = torch.autograd.grad(
            (norm(x) * weight).square().sum(), x, create_graph=True
        )
        (second,) = torch.autograd.grad(first.square().sum(), x, create_graph=True)
        return torch.autograd.grad(second.square().sum(), x)[0]

    def written_out(x: Tensor) -> Tensor:
        diff = x - x.mean(-1, keepdim=True)
        return diff * torch.rsqrt(diff.square().mean(-1, keepdim=True) + 1e-5)

    wanted = third(written_out)
    torch.testing.assert_close(third(load(text).some_op), wanted)
    own = third(lambda x: F.layer_norm(x, x.shape[-1:]))
    assert not torch.allclose(own, wanted)


@pytest.mark.parametrize(
    "forward", ["F.group_norm(x, 2, w, w)", "F.instance_norm(x, weight=w, bias=w)"]
)
def test_a_norm_of_channels_has_a_backward_of_pytorch(forward: str) -> None:
    """The weight is an argument of one call, even if it is not contiguous."""
    text = op_text("x[N, C, L], w[C]", forward=forward)
    assert text.count(", mean, rstd = torch.native_group_norm(") == 1
    assert text.count("aten.native_group_norm_backward(") == 1
    comments = re.findall("# (.*) has no derivative", text)
    assert comments and not {"sum", "reshape_as"} & {*comments}
    x, w = tensor(2, 4, 3).mT.contiguous().mT, tensor(8)[::2]
    active = (x.requires_grad_(), w.requires_grad_())
    op, plain = load(text).some_op, reference(["x", "w"], forward)
    ours = torch.autograd.grad(op(x, w).exp().sum(), active)
    theirs = torch.autograd.grad(plain(x, w).exp().sum(), active)
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradgradcheck(op, active)


@pytest.mark.parametrize("bias", ["b[C]", "b[C]?"])
@pytest.mark.parametrize(
    "forward",
    [
        "F.layer_norm(x, (x.shape[-1],), w, b)",
        "F.group_norm(x, 2, w, b)",
        "F.instance_norm(x, weight=w, bias=b)",
    ],
)
def test_the_bias_of_a_norm_has_its_gradient_from_the_same_call(
    forward: str, bias: str
) -> None:
    """A sum of its own would be one more pass over the gradient that comes in."""
    text = op_text(f"x[N, C, D], w[C], {bias}", forward=forward, derive=True)
    assert text.count("grads[2]") == 1
    inputs = (tensor(3, 4, 4), tensor(4), tensor(4))
    check_forward("x[N, C, D], w[C], b[C]", forward, [inputs])


@pytest.mark.parametrize(
    "forward", ["F.group_norm(x, 2, None, b)", "F.instance_norm(x, bias=b)"]
)
def test_the_bias_of_a_norm_of_channels_has_a_gradient_without_a_weight(
    forward: str,
) -> None:
    """PyTorch's native_group_norm_backward raises then, as plain autograd of F.group_norm does."""
    text = op_text("x[N, C, L], b[C]", forward=forward)
    x, b = tensor(3, 4, 2).requires_grad_(), tensor(4).requires_grad_()
    load(text).some_op(x, b).sum().backward()
    assert b.grad is not None and b.grad.tolist() == [6] * 4


def test_a_gated_unit_has_one_call_in_its_backward() -> None:
    text = op_text("x[N, D]", forward="F.glu(x)")
    assert "return torch.ops.aten.glu_backward(grad_output, x, -1)" in text
    assert "glu, product" in op_text("x[N, K], w[K, D]", forward="F.glu(x @ w) ** 2")


@pytest.mark.parametrize("twice", [False, True])
def test_the_weight_of_channels_without_elements_has_the_gradient_zero(
    twice: bool,
) -> None:
    """PyTorch's native_group_norm_backward makes it NaN, as PyTorch does of F.group_norm itself."""
    forward = "F.instance_norm(x, weight=w)"
    op = load(op_text("x[N, C, L], w[C]", forward=forward)).some_op
    x, w = tensor(2, 4, 0), tensor(4).requires_grad_()
    (grad,) = torch.autograd.grad(op(x, w).sum(), w, create_graph=twice)
    assert grad.tolist() == [0] * 4


def test_a_single_gradient_is_a_tensor_though_a_call_takes_none() -> None:
    text = op_text("x", forward="F.instance_norm(x)")
    assert "def backward(ctx: Any, grad_output: Tensor) -> Tensor:" in text


@pytest.mark.parametrize("once", [False, True])
def test_the_backward_of_a_loss_of_logarithms_is_two_calls_of_pytorch(
    once: bool,
) -> None:
    forward, options = "F.nll_loss(x.log_softmax(-1), y)", {"derive": True}
    options |= {"once-differentiable": True} if once else {}
    text = op_text("x[N, C], y[N; index(C)]", forward=forward, **options)
    assert text.count("aten.nll_loss_backward(") == 1
    assert text.count("aten._log_softmax_backward_data(") == 1


@pytest.mark.parametrize("more", ["", ", label_smoothing=0.1"])
def test_a_cross_entropy_subtracts_at_the_labels_alone(more: str) -> None:
    text = op_text("x[N, C], y[N; index(C)]", forward=f"F.cross_entropy(x, y{more})")
    assert ".scatter_add_(1, " in text
    assert "zeros" not in text  # it took twice the time


def test_the_slope_of_a_smooth_loss_is_clamped() -> None:
    options = {"forward": "F.smooth_l1_loss(x, y, beta=2.0)"}
    text = op_text("x[N], y[N]", **options, save_policy="recompute")
    assert "torch.clamp((x - y) / 2.0, -1, 1)" in text
    # One pass for each gradient.
    assert op_text("x[N], y[N]", **options).count("aten.smooth_l1_loss_backward(") == 2


@pytest.mark.parametrize("loss", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize(
    "more", ["", ", reduction='sum'", ", weight=torch.ones(5).double()"]
)
def test_an_ignored_target_may_be_any_number(loss: str, more: str) -> None:
    """Such as 255 in segmentation, above the number of classes."""
    forward = f"F.{loss}(x, t, ignore_index=255{more})"
    x, target = tensor(4, 5), torch.tensor([0, 255, 4, 1])
    check_forward("x[N, C], t[N; int]", forward, [(x, target)])


NORMS = (
    "F.layer_norm(x, (x.shape[-1],), w, b)",
    "F.group_norm(x, 2, w, b)",
    "F.instance_norm(x, weight=w, bias=b)",
)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "more", ["{}", "F.silu({})", "{} * 2", "{} + torch.ones(4)", "{0} * {0}.exp()"]
)
@pytest.mark.parametrize("autocast", [False, True])
def test_a_norm_takes_parameters_of_higher_precision(
    norm: str, more: str, autocast: bool
) -> None:
    """As those of a model are under autocast, also where the norm is not the result."""
    forward = more.format(norm)
    op = load(op_text("x, w[D]?, b[D]?", forward=forward, derive=True)).some_op
    inputs = [
        torch.randn(shape, dtype=dtype, requires_grad=True)
        for shape, dtype in (((3, 4, 4), torch.bfloat16), (4, None), (4, None))
    ]
    with torch.autocast("cpu", torch.bfloat16, autocast):
        output = op(*inputs)
    grads = torch.autograd.grad(output.sum(), inputs)
    assert [x.dtype for x in grads] == [x.dtype for x in inputs]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("key", [{"style": "library"}, {"amp": "off"}])
def test_a_norm_takes_them_where_no_autocast_casts(
    norm: str, key: dict[str, str]
) -> None:
    """PyTorch's layer_norm_backward takes only one dtype."""
    op = load(op_text("x, w[D]?, b[D]?", forward=norm, derive=True, **key)).some_op
    x, w = torch.randn(3, 4, 4), torch.randn(4, requires_grad=True)
    grads = [
        torch.autograd.grad(op(value, w, None).square().sum(), (value, w))
        for value in (x.bfloat16().requires_grad_(), x.requires_grad_())
    ]
    for low, true in zip(*grads, strict=True):
        torch.testing.assert_close(low.float(), true, rtol=0.05, atol=0.2)


CHANNELS = ("F.group_norm(x, 2)", "F.instance_norm(x)")
WEIGHTED = ("F.group_norm(x, 2, w)", "F.instance_norm(x, weight=w)")


def errors(call: Any, inputs: list[Tensor], region: torch.dtype | None) -> list[float]:
    """Return the relative errors of the gradients of `call`, whose result may be of any dtype."""
    with torch.autocast("cpu", region, region is not None):
        output = call(*inputs)
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    weight = weight.to(output.dtype)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    found = torch.autograd.grad(output, inputs, weight)
    true = torch.autograd.grad(call(*exact), exact, weight.double())
    pairs = zip(found, true, strict=True)
    return [float((x - y).norm() / y.norm()) for x, y in pairs]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("forward", "in_region"),
    [
        *((norm, False) for norm in WEIGHTED),
        *((f"F.silu({norm})", False) for norm in WEIGHTED),
        *((f"{norm} {op} a", False) for norm in CHANNELS for op in "*+"),
        *((f"{norm} @ a", True) for norm in CHANNELS + WEIGHTED),
    ],
)
def test_the_gradients_of_a_norm_are_as_exact_as_those_of_autograd(
    forward: str, in_region: bool, dtype: torch.dtype
) -> None:
    """In low precision a mean near 10 loses the digits of the differences. `w` and `a` are in float32, as those of a model."""
    shapes = {"x": (4, 8, 8), "w": (8,), "a": (8, 8) if "@" in forward else (8,)}
    names = [name for name in shapes if re.search(rf"\b{name}\b", forward)]
    torch.manual_seed(0)
    inputs = [torch.randn(shapes[name]) for name in names]
    inputs[0] = (inputs[0] + 10).to(torch.float32 if in_region else dtype)
    inputs = [x.requires_grad_() for x in inputs]
    op = load(op_text(", ".join(names), forward=forward, derive=True)).some_op
    region = dtype if in_region else None
    ours = errors(op, inputs, region)
    plain = errors(reference(names, forward), inputs, region)
    rounding = torch.finfo(dtype).eps / 2
    for mine, theirs, name in zip(ours, plain, names, strict=True):
        assert mine <= 1.5 * theirs + rounding, name


def test_a_norm_takes_a_gradient_that_the_autocast_of_its_caller_lowers() -> None:
    forward, shapes = "F.group_norm(x, 2, w) @ a", ((2, 4, 3), (4,), (3, 5))
    op = load(op_text("x, w, a", forward=forward, derive=True, amp="float32")).some_op
    inputs = [torch.randn(shape, requires_grad=True) for shape in shapes]
    with torch.autocast("cpu", torch.bfloat16):
        grads = torch.autograd.grad(op(*inputs).sum(), inputs)
    assert [grad.dtype for grad in grads] == [torch.float32] * 3


@pytest.mark.parametrize("loss", ["smooth_l1_loss(x, y)", "huber_loss(x, y, delta=2)"])
def test_a_loss_compares_tensors_of_two_dtypes(loss: str) -> None:
    """PyTorch's huber_loss_backward takes only one. The loss of F.huber_loss has the dtype of `x`, and so its gradient."""
    op = load(op_text("x, y", forward=f"F.{loss}", derive=True)).some_op
    x, y = torch.randn(3, 4).bfloat16().requires_grad_(), tensor(4).detach()
    low = torch.autograd.grad(op(x, y.requires_grad_()), (x, y))
    x = x.detach().double().requires_grad_()
    true = torch.autograd.grad(op(x, y), (x, y))
    assert [grad.dtype for grad in low] == [torch.bfloat16, torch.double]
    torch.testing.assert_close(low[0].double(), true[0], rtol=0.01, atol=0)
    rounding = 0.01 if loss.startswith("huber") else 1e-7
    torch.testing.assert_close(low[1], true[1], rtol=rounding, atol=0)


@pytest.mark.parametrize(
    ("delta", "dtype", "scale"),
    [(100.0, torch.float16, 1024), (math.inf, torch.float32, 1)],
)
def test_a_huber_loss_does_not_overflow_by_its_delta(
    delta: float, dtype: torch.dtype, scale: float
) -> None:
    """Autograd multiplies the gradient by `delta` only where the difference is larger."""
    forward = "F.huber_loss(x, y, reduction='sum', delta=delta)"
    op = load(op_text("x, y, delta: float = 1.0", forward=forward, derive=True)).some_op
    x = torch.tensor([0.01, -0.02, 0.03], dtype=dtype, requires_grad=True)
    y, scaled = torch.zeros_like(x), torch.tensor(scale, dtype=dtype)
    (ours,) = torch.autograd.grad(op(x, y, delta), x, scaled)
    plain = F.huber_loss(x, y, reduction="sum", delta=delta)
    torch.testing.assert_close(ours, *torch.autograd.grad(plain, x, scaled))


@pytest.mark.parametrize("inputs", ["x, y", "x, y, beta: float = 0.0"])
def test_the_gradient_of_equal_numbers_is_zero_without_a_beta(inputs: str) -> None:
    beta = "beta" if "beta" in inputs else "0"
    forward = f"F.smooth_l1_loss(x, y, beta={beta}, reduction='none')"
    op = load(op_text(inputs, forward=forward, derive=True)).some_op
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(op(x, torch.tensor([0.0, 2.0, 4.0])).sum(), x)
    assert grad.tolist() == [1, 0, -1]
