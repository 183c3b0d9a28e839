"""Backwards that read as a person would write them: for each forward the text that is wanted, and its gradients against autograd's."""

import re

import pytest
import torch

from scaffold.render.formatting import format_source
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import (
    backward_of,
    load,
    op_text,
    reference,
    spec_of,
    text_of,
)


def backward(
    inputs: str, forward: str, *calls: tuple[object, ...], **options: object
) -> str:
    """The body of the backward; forward and gradients are those of autograd, under both policies."""
    return backward_of(check_forward(inputs, forward, calls, **options))


def formatted_backward(inputs: str, forward: str, *calls: tuple[object, ...]) -> str:
    """The same as the formatter leaves it: where it breaks lines, and how it quotes."""
    return backward_of(format_source(check_forward(inputs, forward, calls)))


def locals_of(text: str) -> set[str]:
    return set(re.findall(r"(?m)^ *(\w+)(?:: \w+)? = ", text))


def test_values_are_called_by_their_operands() -> None:
    text = backward(
        "x1[N, D], x2[N, D], cos[D], sin[D]",
        "return torch.tanh(x1 * cos) + torch.sin(x2 * sin)",
        (tensor(3, 4), tensor(2, 4)[:1].expand(3, 4), tensor(4), tensor(4) + 1),
        (tensor(0, 4), tensor(0, 4), tensor(4), tensor(4) + 1),
    )
    assert locals_of(text) & {"grad_x1_cos", "grad_x2_sin"}


def test_parts_are_called_by_their_place() -> None:
    text = backward(
        "p[N, 4]",
        "return torch.exp(p[:, 2] * torch.sin(p[:, 0])) + torch.exp(p[:, -1])",
        (tensor(3, 4),),
        (tensor(0, 4),),
        (tensor(4, 6).t()[:, :4],),
    )
    assert {"grad_p2", "grad_p0"} < locals_of(text)


def test_a_product_with_the_cotangent_is_called_by_its_factor() -> None:
    text = backward(
        "q[N, D], k[N, D], v[N, D]",
        "s = torch.tanh(q * k)\nreturn (s * v + torch.sin(q * v)).sum(-1)",
        (tensor(3, 4), tensor(3, 4) + 1, tensor(3, 4) - 1),
        (tensor(3, 0), tensor(3, 0), tensor(3, 0)),
    )
    assert not locals_of(text) & {"weighted_grad", "slope", "grad_slope", "rest"}


def test_a_long_sum_has_a_line_for_each_term() -> None:
    text = formatted_backward(
        "points[N, 4], theta[N]",
        "powers = torch.stack([theta, theta**3, theta**5, theta**7], dim=-1)\n"
        "return (points * powers).sum(-1)",
        (tensor(3, 4), tensor(3)),
        (tensor(0, 4), tensor(0)),
    )
    assert """
    grad_theta = (
        grad_powers[..., 0]
        + 7 * grad_powers[..., 3] * theta**6
        + 5 * grad_powers[..., 2] * theta**4
        + 3 * grad_powers[..., 1] * theta**2
    )
""" in text


def test_a_gradient_that_would_break_the_return_has_a_name() -> None:
    text = backward(
        "x[B, D], index[B, E; index(D)]",
        "return torch.exp(3 * x.gather(-1, index))",
        (tensor(3, 4), torch.randint(4, (3, 2))),
    )
    assert text.rstrip().endswith("return grad_x, None")


# --- Parts that make up a dim


def test_numbered_parts_are_one_stack() -> None:
    text = backward(
        "q[..., 4]",
        """
w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
return torch.stack((w * w + x * x, 2 * (x * y - w * z), 2 * (x * z + w * y)), -1)
""",
        (tensor(3, 4),),
        (tensor(4),),
        (tensor(0, 4),),
        (tensor(4, 3).t()[:2],),
    )
    assert text.endswith(
        "return torch.stack((grad_w, grad_x, grad_y, grad_z), -1)"
    ), text


@pytest.mark.parametrize(
    ("inputs", "forward", "wanted"),
    [
        ("p[N, 3]", "p[:, 2] * torch.sin(p[:, 0])", "torch.stack("),
        ("p[N, 5]", "p[:, :2].sum(1) * torch.sin(p[:, 2]) * p[:, 4]", "torch.cat("),
        ("p[N, 4]", "p[:, 1:3] * torch.sin(p[:, -1:])", "torch.cat("),
        ("p[N, 4]", "p[:, ::2] * torch.sin(p[:, 1::2])", "2).flatten(start_dim=1)"),
        ("p[..., 4, D]", "p[..., ::2, :] * torch.sin(p[..., 1::2, :])", "flatten("),
        ("p[N, 5]", "p[:, ::2].sum() * torch.sin(p[:, 1::2])", "slice_scatter"),
        ("p[N, 4]", "p[:, :3].sum(1) * torch.sin(p[:, 2])", "+"),
        ("p[N, 9]", "p[:, 0] * torch.sin(p[:, 5])", "select_scatter"),
        ("p[N, D]", "p[:, 0] * torch.sin(p[:, 1])", "select_scatter"),
        ("p[N, D]", "p[:, 0] * torch.sin(p[:, -1])", "+"),
        (
            "p[N, D]",
            "p[:, ::2].sum() * torch.sin(p[:, 1::2].sum(1))",
            "scatter(grad_p_via_part,",
        ),
        ("p[N, D]", "p[:, :2].sum() * torch.sin(p[:, 2:].sum(1))", "torch.cat("),
    ],
)
def test_parts_of_a_dim(inputs: str, forward: str, wanted: str) -> None:
    last = inputs[-2]
    calls: list[tuple[object, ...]] = []
    if "..." in inputs:
        calls = [(tensor(2, 4, 3),), (tensor(4, 3),)]
    else:
        for size in (2, 4, 5) if last == "D" else (int(last),):
            calls += [(tensor(3, size),), (tensor(0, size),), (tensor(size, 3).t(),)]
    text = backward(inputs, f"return {forward}", *calls)
    assert wanted in text, text


def test_a_chain_of_slices_is_one_cat() -> None:
    text = backward(
        "x[N, D], mod[N, E]",
        """
D = x.shape[-1]
a, b, c = mod[:, :D], mod[:, D:2 * D], mod[:, 2 * D:]
return x * torch.sin(a) * torch.cos(b) + c
""",
        (tensor(3, 4), tensor(3, 12)),
        (tensor(0, 4), tensor(0, 12)),
        (tensor(3, 1), tensor(3, 3)),
        (tensor(3, 0), tensor(3, 0)),
    )
    assert "torch.cat((grad_a, grad_b, " in text
    assert "scatter" not in text


def test_slices_that_may_overlap_stay_apart() -> None:
    text = backward(
        "x[N, D], a: int, b: int",
        "return x[:, :a].sum() * torch.sin(x[:, a:b]).sum(1) * x[:, b:].sum()",
        (tensor(3, 6), 2, 4),
        (tensor(3, 6), 4, 2),
        (tensor(3, 6), -2, 5),
    )
    assert "torch.cat" not in text


# --- Sizes that conditions tell


def test_a_modulation_of_three_times_the_size_is_not_summed_to_size() -> None:
    text = backward(
        "x[B, S, D], cond[B, C], weight[E, C], bias[E]",
        """
shift, scale, gate = F.linear(F.silu(cond), weight, bias).chunk(3, dim=-1)
h = F.layer_norm(x, x.shape[-1:])
return x + gate.unsqueeze(1) * (h * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1))
""",
        (tensor(2, 3, 4), tensor(2, 5), tensor(12, 5), tensor(12)),
        (tensor(2, 3, 2), tensor(2, 5), tensor(6, 5), tensor(6)),
        (tensor(0, 3, 2), tensor(0, 5), tensor(6, 5), tensor(6)),
        require=["E == 3 * D"],
    )
    assert "sum_to_size" not in text


def test_a_haar_transform_of_even_sizes_is_two_stacks() -> None:
    text = backward(
        "x[..., H, W]",
        """
a, b = x[..., 0::2, 0::2], x[..., 0::2, 1::2]
c, d = x[..., 1::2, 0::2], x[..., 1::2, 1::2]
return torch.stack((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), -3)
""",
        (tensor(2, 4, 6),),
        (tensor(2, 2),),
        (tensor(0, 4),),
        (tensor(2, 3, 4, 2),),
        require=["H % 2 == 0", "W % 2 == 0"],
    )
    assert "sum_to_size" not in text
    assert "scatter" not in text
    assert text.count("torch.stack(") == 3


ROTARY = """
half = x.shape[-1] // 2
x1, x2 = x[..., :half], x[..., half:]
return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
"""


@pytest.mark.parametrize(
    "forward", [ROTARY, "x1, x2 = x.chunk(2, -1)\n" + ROTARY.strip().splitlines()[-1]]
)
def test_a_rotation_of_two_halves_is_summed_over_heads_alone(forward: str) -> None:
    text = backward(
        "x[B, H, S, D], cos[S, E], sin[S, E]",
        forward,
        (tensor(2, 3, 4, 6), tensor(4, 3), tensor(4, 3) + 1),
        (tensor(2, 3, 4, 2), tensor(4, 1), tensor(4, 1) + 1),
        (tensor(0, 3, 4, 2), tensor(4, 1), tensor(4, 1) + 1),
        require=["D == 2 * E"],
    )
    assert "to_size" not in text
    assert "broadcast_shapes" not in text
    assert text.count(".sum(dim=(0, 1))") == 2


def test_the_halves_of_an_even_size_are_gated_plainly() -> None:
    text = backward(
        "x[*batch, D]",
        "a, b = x.chunk(2, dim=-1)\nreturn torch.sigmoid(a) * b",
        (tensor(3, 4),),
        (
            tensor(
                2,
            ),
        ),
        (tensor(2, 0, 6),),
        require=["D % 2 == 0"],
    )
    assert text.endswith("return torch.cat((grad_a, grad_output * sigmoid), -1)")
    assert "to_size" not in text


def test_both_parts_that_a_chunk_leaves_make_up_the_dim() -> None:
    text = backward(
        "x[*batch, S, D], cos[S, D], sin[S, D]",
        """
x1, x2 = x.chunk(2, dim=-1)
return x * cos + torch.cat((-x2, x1), dim=-1) * sin
""",
        (tensor(2, 3, 4), tensor(3, 4), tensor(3, 4) + 1),
        (tensor(3, 2), tensor(3, 2), tensor(3, 2) + 1),
        (tensor(2, 3, 5), tensor(3, 5), tensor(3, 5) + 1),
    )
    assert text.count("sum_to_size") == 2  # of cos and sin


# --- Nothing is computed for its shape alone


@pytest.mark.parametrize("inputs", ["w[..., S], rgb[..., S, 3]", "w, rgb"])
def test_a_product_is_not_built_for_its_shape(inputs: str) -> None:
    text = backward(
        inputs,
        "return (w.unsqueeze(-1) * rgb).sum(-2)",
        (tensor(2, 5), tensor(2, 5, 3)),
        (tensor(2, 5), tensor(5, 3)),
        (tensor(5), tensor(4, 5, 3)),
        (tensor(4, 1, 5), tensor(1, 2, 5, 3)),
        (tensor(2, 0), tensor(2, 0, 3)),
        (tensor(0, 5), tensor(0, 5, 3)),
        (tensor(5, 2).t(), tensor(3, 5, 2).permute(2, 1, 0)),
    )
    if "S" in inputs:
        assert "(grad_output.unsqueeze(-2) * rgb).sum(-1)" in text
    assert text.count("unsqueeze") <= 5


def test_one_size_that_is_broadcast_is_kept_apart() -> None:
    backward(
        "w, rgb",
        "return (w.unsqueeze(-1) * rgb).sum(-2)",
        (tensor(2, 5), tensor(2, 1, 3)),
        (tensor(2, 1), tensor(2, 5, 3)),
        (tensor(2, 1), tensor(2, 5, 1)),
    )


def test_the_largest_of_two_takes_three_lines() -> None:
    text = backward(
        "a, b",
        "return torch.min(a, b)",
        (tensor(3, 4), tensor(4)),
        (tensor(3, 4), tensor(3, 4)),
        (tensor(3, 1), tensor(1, 4)),
        (tensor(0, 4), tensor(4)),
    )
    assert text == ("""\
a, b = ctx.saved_tensors
grad_a = grad_b = None
selected_grad = torch.where(a == b, grad_output / 2, grad_output)
if ctx.needs_input_grad[0]:
    grad_a = torch.where(a > b, 0, selected_grad).sum_to_size(a.shape)
if ctx.needs_input_grad[1]:
    grad_b = torch.where(a < b, 0, selected_grad).sum_to_size(b.shape)
return grad_a, grad_b""")


@pytest.mark.parametrize(
    "norm",
    [
        "x.norm(dim=-1, keepdim=True)",
        "torch.linalg.vector_norm(x, dim=-1, keepdim=True)",
    ],
)
def test_what_is_divided_by_its_norm_is_guarded_nowhere(norm: str) -> None:
    text = backward("x[N, D]", f"return x / {norm}", (tensor(3, 4) + 1,))
    assert "(grad_output - output * inner) / " in text
    assert "where" not in text


def test_what_is_summed_and_squeezed_is_summed_plainly() -> None:
    text = backward(
        "x[N, C, L], theta[C]",
        "return torch.tanh(x - torch.sigmoid(theta)[None, :, None])",
        (tensor(3, 4, 2), tensor(4)),
        (tensor(0, 4, 2), tensor(4)),
    )
    assert "squeeze(" not in text.replace("unsqueeze(", "")


def test_a_branch_in_which_a_part_is_zero_allocates_nothing() -> None:
    text = backward(
        "logits[N, C], target[N, C; bool], gamma: float = 2.0",
        """
p = torch.sigmoid(logits)
p_t = torch.where(target, p, 1 - p)
return -(torch.log(p_t) * (1 - p_t) ** gamma).mean()
""",
        (tensor(3, 4), tensor(3, 4) > 0, 2.0),
        (tensor(3, 4), tensor(3, 4) > 0, 0.0),
        (tensor(3, 4), tensor(3, 4) > 0, 0.5),
        (tensor(3, 4), tensor(3, 4) > 0, 1),
    )
    assert "zeros" not in text


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "index",
    [":-1", "-1:", ":-2", "-2:", "1:-1", "-3:-1", "-3:2", "2:-2", "::2", ":-1:2"],
)
def test_a_slice_from_the_end_needs_nothing_private(index: str) -> None:
    calls = [(tensor(2, size),) for size in (0, 1, 2, 3, 5)]
    for inputs in ("x[N, D]", "x"):
        text = backward(inputs, f"return torch.sin(x[:, {index}])", *calls)
        assert "aten" not in text
    forward = f"return torch.sin(x[..., {index}])"
    backward("x[..., D]", forward, *calls, (tensor(3),), (tensor(0),))


@pytest.mark.parametrize(
    "index", ["1:-1", "1:-k", ":-(k + 1)", "-2:-k", "-k:", "k:-k", "k:-(k + 1)"]
)
def test_a_slice_from_the_end_can_be_vmapped(index: str) -> None:
    forward = f"return torch.sin(x[..., {index}])"
    module = load(op_text("x[..., D], k: int = 2", forward=forward))
    plain = reference(["x", "k"], forward)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.func.grad(lambda x: module.some_op(x, 2).sum())(x)
        return found

    x = tensor(3, 5)
    expected = torch.stack([gradient(row) for row in x])
    assert torch.allclose(torch.func.vmap(gradient)(x), expected)
    for k in range(-2, 8):
        x = tensor(3, 5).requires_grad_()
        ends = [op(x, k).square().sum() for op in (plain, module.some_op)]
        found = [torch.autograd.grad(end, x) for end in ends]
        torch.testing.assert_close(*found)


def test_a_cotangent_is_summed_where_a_shape_is_at_hand() -> None:
    text = backward(
        "x[B, H, S, D], cos[S, E], sin[S, E]",
        """
half = x.shape[-1] // 2
x1, x2 = x[..., :half], x[..., half:]
return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)
""",
        (tensor(2, 3, 4, 6), tensor(4, 3), tensor(4, 3) + 1),
        (tensor(2, 3, 4, 6), tensor(4, 1), tensor(4, 1) + 1),
        (tensor(2, 3, 4, 2), tensor(4, 5), tensor(4, 5) + 1),
        (tensor(2, 3, 4, 3), tensor(4, 2), tensor(4, 2) + 1),
        (tensor(0, 3, 4, 6), tensor(4, 3), tensor(4, 3) + 1),
    )
    assert text.count("sum_to_size") == 4
    assert "broadcast_shapes" not in text
    assert "grad_x = torch.cat((grad_x1, grad_x2), dim=-1)" in text


def test_a_haar_transform_sums_each_quarter_once() -> None:
    text = backward(
        "x[..., H, W]",
        """
a, b = x[..., 0::2, 0::2], x[..., 0::2, 1::2]
c, d = x[..., 1::2, 0::2], x[..., 1::2, 1::2]
return torch.stack((a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d), -3)
""",
        (tensor(2, 4, 6),),
        (tensor(2, 2),),
        (tensor(3, 2),),
        (tensor(3, 3),),
        (tensor(0, 4),),
    )
    assert text.count("sum_to_size") == 4
    assert "broadcast_shapes" not in text


def test_broadcast_values_between_keep_their_gradients() -> None:
    for inputs in ("a, b, c, d", "a[N, D], b[N, 1], c[M, 1, D], d[D]"):
        backward(
            inputs,
            "return torch.tanh((a * b).sin() + c * (a + d)) / (b + 3)",
            (tensor(3, 4), tensor(3, 1), tensor(2, 1, 4), tensor(4)),
            (tensor(3, 0), tensor(3, 1), tensor(2, 1, 0), tensor(0)),
        )
    backward(
        "a, b, c, d",
        "return torch.where(a * b > 0, a * b, c * b) + d",
        (tensor(4), tensor(3, 1), tensor(1), tensor(2, 3, 4)),
        (tensor(1), tensor(1), tensor(1), tensor(2, 3, 4)),
    )


def test_a_tensor_that_most_gradients_need_is_saved_plainly() -> None:
    text = op_text(
        "x[N, D], weight[D], bias[D]",
        forward="return F.layer_norm(x, (x.shape[-1],)) * weight + bias",
        save_policy="recompute",
    )
    assert "ctx.save_for_backward(x, " in text


def test_parts_of_one_shape_are_equal_shares() -> None:
    text = formatted_backward(
        "a, b",
        "return torch.cat((a * b, a + b, torch.atan2(a, b)), dim=-1)",
        (tensor(3, 4), tensor(4)),
        (tensor(3, 1), tensor(2, 1, 4) + 1),
        (tensor(3, 0), tensor(3, 1)),
        (tensor(4), tensor(1)),
    )
    assert "grad_output[..., : grad_output.shape[-1] // 3]" in text


def test_a_linear_with_an_optional_bias_is_computed_once() -> None:
    text = backward(
        "x[N, D], w[E, D], b[E]?",
        "y = F.linear(x, w, b)\nreturn y * torch.sigmoid(y)",
        (tensor(3, 4), tensor(2, 4), tensor(2)),
        (tensor(3, 4), tensor(2, 4), None),
        (tensor(0, 4), tensor(2, 4), tensor(2)),
    )
    assert text.count("F.linear") == 1


def test_a_power_that_is_a_number_leaves_no_tests() -> None:
    text = backward(
        "x[N, D]",
        "return torch.norm(x, p=0.5, dim=-1)",
        (tensor(3, 4),),
        (tensor(2, 1),),
    )
    assert "math" not in text
    assert " if " not in text


def test_what_is_sorted_is_sorted_once() -> None:
    text = backward(
        "x[N, D]",
        """
x_sorted = torch.sort(x, descending=True, dim=-1)[0]
tau = (x_sorted.cumsum(-1) - 1) / torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)
return torch.clamp(x - tau.amax(-1, keepdim=True), min=0)
""",
        (tensor(3, 4),),
        (tensor(2, 1),),
    )
    assert text.count("sort(") == 1


# --- What is multiplied and divided by the same


def test_a_step_size_that_is_multiplied_with_again_cancels() -> None:
    text = backward(
        "x[N, D], s[1]",
        """
q = (x / s).clamp(-2, 1)
q = (q.round() - q).detach() + q
return q * s
""",
        (tensor(3, 4), tensor(1).abs() + 0.3),
        (tensor(0, 4), tensor(1).abs() + 0.3),
        (tensor(4, 3).t(), tensor(1).abs() + 0.3),
    )
    assert "grad_x = torch.where(mask, grad_output, 0)" in text
    assert text.count("/") == 1  # `x / s`


def test_what_cancels_leaves_its_shape_only_where_that_is_whole() -> None:
    for inputs in ("x[N, D], s[D], w[N, 1]", "x, s, w"):
        backward(
            inputs,
            "return torch.relu(w * s / s) + x.sum() * s",
            (tensor(3, 4), tensor(4), tensor(3, 1)),
            (tensor(0, 4), tensor(4), tensor(0, 1)),
        )
        backward(
            inputs,
            "return (torch.relu(w / s) * s + x / s * w) * s",
            (tensor(3, 4), tensor(4), tensor(3, 1)),
            (tensor(3, 0), tensor(0), tensor(3, 1)),
        )


def test_smoothed_labels_share_one_number() -> None:
    calls = [
        (tensor(3, 4), torch.tensor([0, 3, 1]), eps) for eps in (0.1, 0.0, 1.0)
    ] + [(tensor(1, 1), torch.tensor([0]), 0.1)]
    text = backward(
        "logits[N, C], target[N; index(C)], eps: float = 0.1",
        """
logp = torch.log_softmax(logits, -1)
nll = -logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)
smooth = -logp.mean(-1)
return ((1 - eps) * nll + eps * smooth).mean()
""",
        *calls,
    )
    assert "scaled_grad = grad_output / target.numel()" in text
    assert "return scaled_grad * torch.softmax(logits, -1) - total_grad" in text


def test_a_line_with_several_ones_does_not_sum_to_one() -> None:
    backward(
        "x[N, C], k: int",
        """
chosen = torch.zeros_like(x).scatter(-1, x.topk(k, dim=-1).indices, 1)
p = torch.softmax(x, -1)
return (p * (0.1 + 0.5 * chosen)).log_softmax(-1).sum(-1) + (torch.log_softmax(x, -1) * (2 + chosen)).sum(-1)
""",
        (tensor(3, 4), 2),
        (tensor(3, 4), 1),
    )


def test_planes_are_summed_without_dims_that_come_and_go() -> None:
    text = backward(
        "y[N, C, H, W], w[C], b[C]",
        "y * torch.sin(w)[:, None, None] + b[:, None, None]",
        (tensor(2, 3, 4, 5), tensor(3), tensor(3)),
        (tensor(0, 3, 4, 5), tensor(3), tensor(3)),
        (tensor(2, 1, 1, 5), tensor(1), tensor(1)),
    )
    assert "squeeze(" not in text.replace("unsqueeze(", "")
    assert "grad_b = grad_output.sum((0, 2, 3))" in text


def test_the_gradient_of_interleaved_pairs_is_read_at_every_second_place() -> None:
    text = backward(
        "x[*b, S, D], cos[S, E], sin[S, E]",
        """
x1, x2 = x[..., ::2], x[..., 1::2]
return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), -1).flatten(-2)
""",
        (tensor(2, 3, 4), tensor(3, 2), tensor(3, 2) + 1),
        (tensor(3, 2), tensor(3, 1), tensor(3, 1) + 1),
        (tensor(2, 0, 4), tensor(0, 2), tensor(0, 2) + 1),
        require=["D == 2 * E"],
    )
    assert "grad_diff = grad_output[..., ::2]" in text
    assert "grad_total = grad_output[..., 1::2]" in text
    assert "reshape" not in text


def test_the_gradient_of_a_diagonal_is_a_diagonal() -> None:
    text = backward(
        "x[N, D], y[N, D]",
        "return -torch.log_softmax(x @ y.t(), -1).diagonal().mean()",
        (tensor(3, 4), tensor(3, 4) + 1),
        (tensor(1, 4), tensor(1, 4) + 1),
    )
    assert "torch.diag_embed(" in text
    text = backward(
        "x[B, N, N]",
        "return torch.log_softmax(x, 1).diagonal(dim1=1, dim2=2) * 2",
        (tensor(2, 3, 3),),
        (tensor(2, 0, 0),),
    )
    assert "torch.diag_embed(2 * grad_output)" in text
    squares = ((tensor(3, 3),), (tensor(0, 0),))
    assert "diag_embed(" in backward("x[N, N]", "torch.sin(torch.diag(x))", *squares)


@pytest.mark.parametrize(
    ("inputs", "offset", "shapes"),
    [("x[N, N]", 1, [(3, 3), (1, 1)]), ("x[N, M]", 0, [(3, 4), (4, 3), (3, 3)])],
)
def test_another_diagonal_is_put_into_zeros(
    inputs: str, offset: int, shapes: list[tuple[int, int]]
) -> None:
    forward = f"return torch.log_softmax(x, -1).diagonal({offset}) * 2"
    calls = [(tensor(*shape),) for shape in shapes]
    assert "diagonal_scatter" in backward(inputs, forward, *calls)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("inputs", ["x[B, S, D]", "x[..., S, D]", "x"])
@pytest.mark.parametrize(
    ("pairs", "calls"),
    [
        ("x[..., ::2], x[..., 1::2]", [(2, 3, 4), (2, 0, 4), (1, 2, 5), (1, 2, 3)]),
        (
            "x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2).unbind(-1)",
            [(2, 3, 4), (2, 0, 4)],
        ),
        ("x.unflatten(-1, (-1, 2)).unbind(-1)", [(2, 3, 4), (2, 0, 4)]),
    ],
)
def test_of_an_input_that_tells_shapes_alone_none_is_saved(
    inputs: str, pairs: str, calls: list[tuple[int, ...]]
) -> None:
    forward = f"""
at = torch.arange(x.shape[-2], device=x.device)
angle = torch.outer(at, 9.0 ** -torch.arange(0, x.shape[-1] // 2, device=x.device))
cos, sin = angle.cos().to(x), angle.sin().type_as(x)
x1, x2 = {pairs}
x1, x2 = x1[..., : x.shape[-1] // 2], x2[..., : x.shape[-1] // 2]
return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)
"""
    turned = tensor(2, 4, 3).transpose(1, 2)
    text = check_forward(
        inputs, forward, [(tensor(*shape),) for shape in calls] + [(turned,)]
    )
    assert "save_for_backward(x)" not in text
    assert "grad_output[..., ::2]" in text


@pytest.mark.parametrize(
    "forward",
    [
        "torch.tanh(x[:, 1:] - x[:, :-1])",
        "torch.tanh(x[:, 2:] * x[:, :-2])",
        "x[:, 1:-1] * torch.sin(x[:, 2:])",
        "torch.sin(x[:, 2:]) + x[:, :-2] * x[:, 1:-1]",
        "torch.cat((torch.sin(x[:, -1:]), x[:, :-1]), 1) * x",
    ],
)
def test_neighbours_are_as_many(forward: str) -> None:
    calls = [(tensor(3, size),) for size in (3, 4, 6)]
    text = backward("x[N, D]", f"return {forward}", *calls, (tensor(0, 4),))
    assert "to_size" not in text


def test_a_mean_of_the_rest_is_of_the_rest() -> None:
    for inputs in ("x[N, D]", "x[..., D]", "x"):
        backward(
            inputs,
            "return (x[..., 1:] - x[..., :-1]).abs().sum() + x[..., 3:-1].pow(2).sum() * x[..., :-4].sum()",
            *((tensor(2, size),) for size in (0, 1, 2, 3, 4, 6)),
        )


def test_scales_that_are_viewed_as_planes_are_summed_at_once() -> None:
    text = backward(
        "x[N, C, L], w[C], b[C]",
        "return x * torch.sin(x) * w.view(1, -1, 1) + b.view(1, -1, 1)",
        (tensor(2, 3, 4), tensor(3), tensor(3)),
        (tensor(0, 3, 4), tensor(3), tensor(3)),
        (tensor(2, 1, 1), tensor(1), tensor(1)),
    )
    assert "reshape" not in text
    assert "keepdim" not in text


# --- A tensor that is at hand tells its shape


def test_a_tensor_that_is_saved_plainly_tells_its_shape() -> None:
    text = op_text(
        "x, weight, gate, eps: float = 1e-6",
        forward="""
h = x * F.silu(gate)
h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)
return weight * h
""",
        save_policy="recompute",
    )
    assert "ctx.save_for_backward(x, weight, gate)" in text
    assert "ctx.weight_shape" not in text


def test_a_rotation_of_what_chunk_leaves_saves_no_input_for_its_shape() -> None:
    text = op_text(
        "x[*batch, S, D], cos[S, D; const], sin[S, D; const]",
        forward="""
x1, x2 = x.chunk(2, dim=-1)
return x * cos + torch.cat((-x2, x1), dim=-1) * sin
""",
    )
    assert "ctx.save_for_backward(cos, sin)" in text
    assert "grad_joined[..., : grad_output.shape[-1] // 2]" in text


def test_the_gradient_of_a_trace_is_a_diagonal() -> None:
    text = backward(
        "x[B, N, N]",
        "torch.einsum('...ii', x)",
        (tensor(2, 3, 3),),
        (tensor(0, 3, 3),),
        (tensor(2, 3, 3).mT,),
    )
    assert text.endswith("return torch.diag_embed(expanded_grad)")
    assert "expanded_grad = grad_output.unsqueeze(-1).expand(" in text


def test_cross_entropy_with_probabilities_is_softmax_less_the_target() -> None:
    text = backward(
        "logits[N, C], target[N, C]",
        "F.cross_entropy(logits, target)",
        (tensor(3, 4), tensor(3, 4).softmax(-1)),
        (tensor(4, 3).t(), tensor(3, 4)),
        (tensor(1, 1), tensor(1, 1)),
    )
    assert text == """\
logits, target = ctx.saved_tensors
grad_logits = grad_target = None
scaled_grad = grad_output / logits.shape[0]
if ctx.needs_input_grad[0]:
    total = target.sum(1, keepdim=True)
    grad_logits = scaled_grad * (torch.softmax(logits, 1) * total - target)
if ctx.needs_input_grad[1]:
    grad_target = -scaled_grad * torch.log_softmax(logits, 1)
return grad_logits, grad_target"""


def test_a_constant_of_many_digits_stays_as_it_is_known() -> None:
    text = backward(
        "x",
        "0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))",
        (tensor(3, 4),),
        (tensor(4, 3).t(),),
    )
    assert "0.7978845608 * " in text
    assert "(1 + 3 * 0.044715 * x**2)" in text


def test_a_number_of_the_forward_keeps_its_spelling() -> None:
    text = backward("x", "x / (10.0 * x.abs() + 1.0)", (tensor(3, 4),))
    assert "10.0 * " in text and "10 * " not in text


# --- What is wanted, and the tests that hold it

WANTED = {
    "sizes that conditions tell are used": (
        test_a_modulation_of_three_times_the_size_is_not_summed_to_size,
        test_a_haar_transform_of_even_sizes_is_two_stacks,
        test_a_rotation_of_two_halves_is_summed_over_heads_alone,
    ),
    "named leading dims are the same wherever they stand": (
        test_the_halves_of_an_even_size_are_gated_plainly,
        test_both_parts_that_a_chunk_leaves_make_up_the_dim,
    ),
    "parts of a dim are one cat or stack, by nothing private": (
        test_numbered_parts_are_one_stack,
        test_parts_of_a_dim,
        test_a_chain_of_slices_is_one_cat,
        test_a_slice_from_the_end_needs_nothing_private,
        test_neighbours_are_as_many,
    ),
    "nothing is built or saved for its shape, or computed twice": (
        test_a_product_is_not_built_for_its_shape,
        test_a_rotation_of_what_chunk_leaves_saves_no_input_for_its_shape,
        test_the_gradient_of_interleaved_pairs_is_read_at_every_second_place,
        test_of_an_input_that_tells_shapes_alone_none_is_saved,
        test_a_linear_with_an_optional_bias_is_computed_once,
    ),
    "constants fold, factors cancel": (
        test_a_power_that_is_a_number_leaves_no_tests,
        test_a_step_size_that_is_multiplied_with_again_cancels,
    ),
    "save lists are plain": (
        test_a_tensor_that_most_gradients_need_is_saved_plainly,
        test_a_tensor_that_is_saved_plainly_tells_its_shape,
    ),
    "names are of the field, and zero branches allocate nothing": (
        test_values_are_called_by_their_operands,
        test_parts_are_called_by_their_place,
        test_a_product_with_the_cotangent_is_called_by_its_factor,
        test_a_long_sum_has_a_line_for_each_term,
        test_a_gradient_that_would_break_the_return_has_a_name,
        test_a_branch_in_which_a_part_is_zero_allocates_nothing,
    ),
    "textbook forms": (
        test_what_is_divided_by_its_norm_is_guarded_nowhere,
        test_what_is_summed_and_squeezed_is_summed_plainly,
        test_smoothed_labels_share_one_number,
        test_what_is_sorted_is_sorted_once,
        test_the_largest_of_two_takes_three_lines,
    ),
}


# --- As an author writes it


def test_what_is_one_minus_a_gate_is_written_out_and_a_shared_chain_is_named() -> None:
    text = backward(
        "h[B, H], r[B, H], z[B, H]",
        "return z * h + (1 - z) * torch.tanh(r * h)",
        (tensor(2, 3), tensor(2, 3) + 1, tensor(2, 3) - 1),
        (tensor(0, 3), tensor(0, 3), tensor(0, 3)),
    )
    assert "grad_preactivation = grad_output * (1 - z) * (1 - tanh**2)" in text
    assert "grad_h = grad_preactivation * r + grad_output * z" in text
    assert "grad_r = grad_preactivation * h" in text
    assert "one_minus" not in text


def test_a_name_that_is_used_again_is_used_again_in_the_backward() -> None:
    text = formatted_backward(
        "q[B, T, D], k[B, T, D], v[B, T, D], mask[T, T; bool]",
        """
scores = q @ k.mT
scores = scores.masked_fill(mask, float("-inf"))
return torch.softmax(scores, -1) @ v
""",
        (
            tensor(2, 3, 4),
            tensor(2, 3, 4),
            tensor(2, 3, 4),
            torch.ones(3, 3).triu(1) > 0,
        ),
    )
    assert "first" not in text
    assert 'scores = scores.masked_fill(mask, float("-inf"))' in text
    assert "grad_scores = grad_scores.masked_fill_(mask, 0)" in text


def test_a_name_that_is_still_read_is_not_used_again() -> None:
    text = backward(
        "x[N], y[N]",
        "h = x * y\nh = h * torch.sin(h)\nreturn torch.exp(h) * y",
        (tensor(4), tensor(4)),
        (tensor(0), tensor(0)),
    )
    assert "first_h" in text


def test_what_most_of_many_gradients_need_stands_under_no_test() -> None:
    text = backward(
        "x[*batch, D], w_gate[H, D], w_up[H, D], w_down[D, H]",
        "return F.linear(F.silu(F.linear(x, w_gate)) * F.linear(x, w_up), w_down)",
        (tensor(2, 3), tensor(4, 3), tensor(4, 3), tensor(3, 4)),
        (tensor(3), tensor(4, 3), tensor(4, 3), tensor(3, 4)),
    )
    tests = re.findall("if (.*):", text)
    assert not any(test.count("[") > 2 or "any(" in test for test in tests)


def test_shapes_are_broadcast_by_a_plain_call() -> None:
    text = op_text("mu, v", forward="return (mu ** 2 - v.exp()).sum(-1).mean()")
    assert "shape = torch.broadcast_shapes(" in text
    assert "broadcast_shapes: Callable" not in text


def test_names_of_several_stretches_are_one_name_again() -> None:
    text = backward(
        "x[B, T, C], w[C, E], n: int",
        """
B, T, C = x.shape
q, k = (x @ w).split(C, dim=-1)
q = q.view(B, T, n, C // n).transpose(1, 2)
k = k.view(B, T, n, C // n).transpose(1, 2)
return torch.tanh(q @ k.transpose(-2, -1))
""",
        (tensor(2, 3, 4), tensor(4, 8), 2),
        (tensor(1, 2, 6), tensor(6, 12), 3),
        require=["E == 2 * C"],
    )
    assert "q, k = (x @ w).split(C, dim=-1)" in text
    assert not re.search(r"\bfirst_", text)
    assert "dims=([0, 1], [0, 1])" in text


def test_a_number_that_two_products_share_is_multiplied_once() -> None:
    text = backward("x", "x * F.relu6(x + 3) / 6", (tensor(3, 4),))
    assert text.count("grad_output / 6") == text.count("/ 6") == 1
    text = backward(
        "x[N], y[N], s: float = 0.5", "x * y * s", (tensor(3), tensor(3), 0.5)
    )
    assert text.count("s * grad_output") == 1
    # The same factor twice in one product is shared with nothing.
    backward("x, kind: str", "F.gelu(x, approximate=kind)", (tensor(3, 4), "none"))


def test_a_multiple_of_an_integer_is_not_shared() -> None:
    """100 times 3 is no number of int8, and 0.1 times True has the digits of float32."""
    integers = torch.tensor([[3, 2, 4], [1, 0, 2]], dtype=torch.int8)
    for n, number in ((integers, "100"), (integers > 1, "0.1")):
        kind = "bool" if n.dtype == torch.bool else "int"
        text = backward(
            f"x[B, N], y[B, N], n[B, N; {kind}]",
            f"torch.stack((x * n * {number}, y * n * {number})).sin()",
            (tensor(2, 3), tensor(2, 3), n),
        )
        assert f"= n * {number}" not in text
        assert f"= {number} * n" not in text


def test_the_size_of_a_group_is_counted_from_the_shape() -> None:
    """No tensor is computed again for its shape alone."""
    inputs, forward = "x[N, C, L], w[C]?", "F.group_norm(x, 2, w)"
    text = backward_of(op_text(inputs, forward=forward, derive=True))
    assert "part = grad_output.shape[2:]" in text
    assert text.count("math.prod(part)") == 2


def test_the_unit_vector_is_saved_only_where_it_is_read_again() -> None:
    text = backward("x[N, D]", "F.normalize(x, dim=-1)", (tensor(3, 4),))
    assert "output" not in text.replace("grad_output", "")
    options = {"derive": True, "save-policy": "balanced"}
    forward = "(F.normalize(x, dim=-1) * y).sum(-1)"
    assert "x / clamped" not in op_text("x[N, D], y[N, D]", forward=forward, **options)


def test_a_mean_divides_what_comes_in_once() -> None:
    text = backward(
        "logits[N, D], target[N, D], smooth: float = 1.0",
        """
probs = torch.sigmoid(logits)
inter = (probs * target).sum(-1)
union = probs.sum(-1) + target.sum(-1)
return (1 - (2 * inter + smooth) / (union + smooth)).mean()
""",
        (tensor(3, 4), tensor(3, 4).detach().abs(), 1.0),
        (tensor(1, 4), tensor(1, 4).detach().abs(), 0.5),
    )
    assert "scaled_grad = grad_output / inter.numel()" in text
    assert text.count("numel") == 1


def test_distances_may_be_divided_by_twice_a_variance() -> None:
    backward(
        "anchor[N, D], centers[C, D], sigma: float = 1.0",
        """
diff = anchor.unsqueeze(1) - centers.unsqueeze(0)
return torch.exp(-diff.pow(2).sum(-1) / (2 * sigma ** 2))
""",
        (tensor(3, 4), tensor(2, 4), 0.7),
        (tensor(0, 4), tensor(2, 4), 0.7),
    )


def test_a_target_that_counts_is_never_ignored() -> None:
    text = backward(
        "x[N, D], y[N, D], tau: float = 0.5",
        "return F.cross_entropy(x @ y.t() / tau, torch.arange(x.shape[0], device=x.device))",
        (tensor(3, 4), tensor(3, 4), 0.5),
        (tensor(1, 4), tensor(1, 4), 0.5),
    )
    assert "-100" not in text
    assert "where" not in text


def test_what_is_normalized_is_read_in_its_gradient() -> None:
    text = backward(
        "x[N, D]",
        "return F.normalize(x, dim=-1)",
        (tensor(3, 4),),
        (torch.cat((tensor(3, 4), torch.full((1, 4), 1e-14, dtype=torch.float64))),),
        (tensor(0, 4),),
    )
    assert "**3" not in text
    assert "grad_x = (grad_output - " in text or "(grad_output - " in text


def test_a_weight_that_is_scaled_to_its_length_is_guarded_nowhere() -> None:
    text = backward(
        "x[*batch, I], weight[O, I], magnitude[O]",
        """
norm = weight.norm(dim=1, keepdim=True)
return F.linear(x, magnitude.unsqueeze(1) * weight / norm)
""",
        (tensor(2, 4), tensor(3, 4), tensor(3)),
        (tensor(2, 5, 4), tensor(3, 4), tensor(3)),
    )
    assert "where" not in text


def test_labels_that_are_ignored_mask_one_number_of_a_line() -> None:
    text = backward(
        "logits[N, C], target[N; index(C)], tau: float = 0.5",
        "return F.cross_entropy(logits / tau, target)",
        (tensor(3, 4), torch.tensor([0, 3, 1]), 0.5),
        (tensor(3, 4), torch.tensor([0, -100, 1]), 0.5),
        (tensor(1, 4), torch.tensor([2]), 2.0),
    )
    assert "masked_grad = torch.where(mask.unsqueeze(1), scaled_grad, 0)" in text
    assert "grad_logits = masked_grad * (" in text


def test_signs_of_labels_are_twice_the_labels_less_one() -> None:
    text = backward(
        "x[N], t[N; int]",
        "p = torch.sigmoid(x)\nreturn -torch.log(p * t + (1 - p) * (1 - t))",
        (tensor(4), torch.tensor([0, 1, 1, 0])),
    )
    assert "(1 - 2 * t)" in text


def test_a_size_of_one_multiplies_nothing() -> None:
    text = backward(
        "logits[N, C], target[N; index(C)]",
        "return -torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).mean()",
        (tensor(3, 4), torch.tensor([0, 3, 1])),
        (tensor(1, 4), torch.tensor([2])),
    )
    assert "grad_output / logits.shape[0] * (probs - onehot)" in text


def test_lines_that_are_picked_by_an_index_in_range_are_added_up() -> None:
    text = backward(
        "x[N, D], weight[E], src[E; index(N)], dst[E; index(N)]",
        """
messages = x[src] * weight.unsqueeze(-1)
return torch.zeros_like(x).index_add(0, dst, messages)
""",
        (tensor(3, 4), tensor(2), torch.tensor([0, 2]), torch.tensor([1, 1])),
        (tensor(3, 4), tensor(0), torch.tensor([]).long(), torch.tensor([]).long()),
    )
    assert "index_add(" in text
    assert "index_put" not in text


def test_lines_that_any_index_picks_may_be_counted_from_the_end() -> None:
    text = backward(
        "x[N, D], src[E; int]",
        "return torch.sin(x[src])",
        (tensor(3, 4), torch.tensor([0, -1])),
    )
    assert "index_put" in text


def test_columns_that_any_index_picks_may_be_counted_from_the_end() -> None:
    text = backward(
        "x[N, D], src[E; int]",
        "return torch.sin(x[:, src])",
        (tensor(3, 4), torch.tensor([0, -1, 3])),
    )
    assert "src % x.shape[-1]" in text
    text = backward(
        "x[N, D], src[E; index(D)]",
        "return torch.sin(x[:, src])",
        (tensor(3, 4), torch.tensor([0, 3, 3])),
    )
    assert "%" not in text


# --- As the forward spells it


def test_dims_have_their_keyword_where_the_forward_gives_it() -> None:
    text = backward(
        "x[N, D], w[D]",
        """
p = torch.softmax(x * w, dim=-1)
return torch.stack((p, torch.sin(x) * p.sum(dim=-1, keepdim=True)), dim=0)
""",
        (tensor(3, 4), tensor(4)),
        (tensor(0, 4), tensor(4)),
    )
    assert ".sum(dim=-1, keepdim=True)" in text
    assert "dim=0)" in text  # over the lines, for w
    assert not re.search(r"sum\(-?\d", text)


def test_dims_are_counted_from_the_start_where_the_forward_counts_so() -> None:
    text = backward(
        "x[N, C, H, W], s[N, C, 1, 1]",
        "return x * s / (x * s).mean((2, 3), keepdim=True)",
        (tensor(2, 3, 4, 5), tensor(2, 3, 1, 1)),
        (tensor(2, 0, 4, 5), tensor(2, 0, 1, 1)),
    )
    assert "(2, 3), keepdim=True)" in text
    assert "-1" not in text and "-2" not in text


@pytest.mark.parametrize(
    ("turned", "wanted"),
    [
        ("k.transpose(-2, -1)", ".transpose(-2, -1)"),
        ("k.transpose(-1, -2)", ".transpose(-1, -2)"),
        ("k.t()", ".t()"),
        ("k.T", ".T"),
        ("k.mT", ".mT"),
        ("k.transpose(0, 1)", ".mT"),
    ],
)
def test_a_matrix_is_transposed_as_in_the_forward(turned: str, wanted: str) -> None:
    text = backward(
        "q[N, D], k[M, D]",
        f"return torch.tanh(q @ {turned})",
        (tensor(3, 4), tensor(2, 4)),
        (tensor(0, 4), tensor(2, 4)),
    )
    assert wanted in text
    assert wanted == ".mT" or ".mT" not in text


def test_what_is_spelled_for_matrices_is_not_for_batches() -> None:
    text = backward(
        "q[B, N, D], k[B, M, D], w[D, E]",
        "return torch.tanh(q @ k.transpose(1, 2)).sum() * (w.t() @ w)",
        (tensor(2, 3, 4), tensor(2, 5, 4), tensor(4, 2)),
    )
    assert re.search(r"\w\.mT @ ", text)


def test_a_way_to_transpose_real_matrices_is_none_for_complex_ones() -> None:
    text = backward(
        "x[N, D], z[N, D; complex]",
        "return (x.mH * z.transpose(-2, -1)).abs()",
        (tensor(3, 4), tensor(3, 4, dtype=torch.cdouble)),
    )
    assert ".mH\n" not in text  # but x.mH, which is computed again


def test_a_comment_stands_where_a_name_says_an_operator_alone() -> None:
    text = backward(
        "x[N, D], a[N, D], b[N, D], c[D]",
        """
scores = torch.sin(x) @ (a * torch.cos(b)).mT
return torch.exp(scores.sum(-1, keepdim=True) * torch.tanh(a @ c).unsqueeze(-1))
""",
        (tensor(3, 4), tensor(3, 4), tensor(3, 4), tensor(4)),
    )
    for name in re.findall(r"# w.r.t. .*\n *(\w+) =", text):
        assert name in {"grad_product", "grad_total", "grad_diff", "grad_ratio"}
    assert text.count("# w.r.t.") < 2


# --- Names that the user gives again


def test_an_input_whose_name_is_given_anew_gives_it_up() -> None:
    text = backward(
        "x[N, D], y[M, D], s[D]",
        """
x, y = x / s, y / s
diff = x.unsqueeze(1) - y.unsqueeze(0)
return torch.exp(-0.5 * diff.square().sum(dim=-1))
""",
        (tensor(3, 4), tensor(2, 4), tensor(4) + 1),
        (tensor(0, 4), tensor(2, 4), tensor(4) + 1),
    )
    assert "x, y = x / s, y / s" in text
    assert "new_" not in text


def test_an_input_that_is_read_later_keeps_its_name() -> None:
    text = backward(
        "x[N, D], w[D]",
        "h = torch.sin(x)\nx = torch.exp(x * w)\nreturn torch.tanh(h * x) * torch.cos(x)",
        (tensor(3, 4), tensor(4)),
        (tensor(0, 4), tensor(4)),
    )
    assert "new_x = torch.exp(x * w)" in text


def test_names_that_are_made_of_a_version_are_made_of_the_user_s() -> None:
    text = backward(
        "x[N, D], w[D], v[D]",
        "h = x * w\nh = torch.sin(h) * h + torch.cos(h * v)\nreturn torch.tanh(h) * w",
        (tensor(3, 4), tensor(4), tensor(4)),
        (tensor(0, 4), tensor(4), tensor(4)),
    )
    assert not re.search(r"_first_h\b", text.replace("grad_first_h", ""))


def test_a_mask_is_of_the_relu() -> None:
    text = backward(
        "anchor[N, D], positive[N, D], negative[N, D], margin=1.0",
        "d_pos = (anchor - positive).pow(2).sum(dim=1)\n"
        "d_neg = (anchor - negative).pow(2).sum(dim=1)\n"
        "return torch.relu(d_pos - d_neg + margin).mean()",
        (tensor(5, 4), tensor(5, 4) + 0.1, tensor(5, 4) - 0.2, 0.03),
        (tensor(4, 5).t(), tensor(1, 4).expand(5, 4), tensor(5, 4), 0.5),
    )
    assert "mask = torch.relu(d_pos - d_neg + ctx.margin) <= 0" in text


def test_a_relu_that_is_there_is_asked_for_its_mask() -> None:
    text = backward(
        "x[N, D], w1[H, D], w2[M, H]",
        "h = F.relu(x @ w1.t())\nreturn h @ w2.t()",
        (tensor(3, 4), tensor(5, 4), tensor(2, 5)),
        (tensor(0, 4), tensor(5, 4), tensor(2, 5)),
    )
    assert "torch.where(h <= 0, 0, grad_output @ w2)" in text


def test_a_squared_modulus_may_be_the_real_part_of_a_product() -> None:
    z, response = (
        torch.complex(tensor(*shape), tensor(*shape) - 0.3)
        for shape in ((3, 4), (2, 4))
    )
    backward(
        "z[B, F; complex], response[C, F; complex]",
        "mixed = z.unsqueeze(1) * response.conj()\n"
        "return (mixed * mixed.conj()).real.sum(dim=-1)",
        (z, response),
        (z[:0], response),
        (response.t()[:, :1].expand(4, 3).t(), response),
    )


def test_a_number_over_a_tensor_times_another_is_that_one_over_it() -> None:
    text = backward(
        "mu1[N, D], mu2[N, D], logvar[N, D]",
        "return ((mu1 - mu2) ** 2 / logvar.exp() + logvar).sum(-1).mean() / 2",
        (tensor(3, 4), tensor(3, 4) + 1, tensor(3, 4)),
        (tensor(4, 3).t(), tensor(1, 4).expand(3, 4), tensor(3, 4)),
    )
    assert "/ var * diff" in text


def test_one_number_is_multiplied_where_it_is_read() -> None:
    text = backward(
        "p[N, D], q[N, D]",
        "return 0.5 * (p.exp() / q.exp() - p + q).sum(-1).mean()",
        (tensor(3, 4), tensor(3, 4) + 1),
        (tensor(4, 3).t(), tensor(1, 4).expand(3, 4)),
    )
    assert text.count("0.5 * ") == 1 and text.count("_grad = ") == 1


def test_zeros_are_like_what_is_added_to_them() -> None:
    text = backward(
        "z[N, D], codebook[K, D], beta=0.25",
        "idx = (z.unsqueeze(1) - codebook).pow(2).sum(-1).argmin(1)\n"
        "zq = codebook[idx]\n"
        "return (zq.detach() - z).pow(2).mean() * beta + (zq - z.detach()).pow(2).mean()",
        (tensor(5, 3), tensor(4, 3) + 0.2, 0.25),
        (tensor(3, 5).t(), tensor(4, 3), 0.0),
    )
    assert "grad_diff = 2 * scaled_grad * (zq - z.detach())" in text
    assert "grad_diff.new_zeros(codebook.shape).index_add(" in text


def test_a_gradient_begins_with_its_first_term_where_both_are_too_long_for_a_line() -> (
    None
):
    text = backward(
        "x[B, T, D], query[D], temperature=1.0",
        "scores = (x @ query) / temperature\n"
        "weights = torch.softmax(scores, dim=-1)\n"
        "return (weights.unsqueeze(-1) * x).sum(dim=1)",
        (tensor(2, 3, 4), tensor(4), 0.7),
        (tensor(2, 0, 4), tensor(4), 1.0),
        (tensor(4, 3, 2).permute(2, 1, 0), tensor(8)[::2], 2.0),
    )
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("grad_x = grad_x + grad_scores.unsqueeze(-1) * query")
    assert lines[at - 1] == "grad_x = grad_output.unsqueeze(1) * weights.unsqueeze(-1)"


def test_a_gradient_that_is_written_over_keeps_its_name() -> None:
    text = backward_of(
        op_text(
            "x[*batch, D], weight[D], bias[D], eps=1e-5",
            forward="mean = x.mean(-1, keepdim=True)\n"
            "rstd = torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + eps)\n"
            "return (x - mean) * rstd * weight + bias",
            derive=True,
            once_differentiable=True,
        )
    )
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("grad_x = grad_x.sub_(mean_grad).mul_(rstd)")
    assert lines[at - 1].startswith("grad_x = torch.addcmul(grad_x_hat, ")


def test_a_power_of_zero_takes_no_branches() -> None:
    text = backward(
        "x[N, D], t[N, D], gamma: float = 2.0",
        "return (t * (x * x) ** gamma * F.softplus(-x)).sum()",
        (tensor(3, 4), tensor(3, 4) + 1, 2.0),
        (tensor(3, 4) * 0, tensor(3, 4) + 1, 0.0),
        (tensor(3, 4), tensor(3, 4) + 1, 1.0),
        (tensor(0, 4), tensor(0, 4), 0.0),
    )
    assert text.count("if ctx.gamma") == 1
    assert "zeros" not in text and "elif" not in text


def test_a_power_times_its_base_is_the_next_power() -> None:
    text = backward(
        "x[N, D], gamma: float = 2.0",
        "return -(torch.sigmoid(-x) ** gamma * F.logsigmoid(x)).mean()",
        (tensor(3, 4), 2.0),
        (tensor(3, 4) * 100, 0.0),
        (tensor(4, 3).t(), 1.0),
        (tensor(3, 4), 0.5),
        (tensor(3, 4), -1.5),
    )
    assert "gamma - 1" not in text and "if ctx.gamma" not in text


def test_projections_are_called_after_their_weights() -> None:
    text = backward(
        "x[N, D], w_gate[H, D], up_proj[H, D], wv[H, D]",
        "return F.linear(x, wv) * F.silu(F.linear(x, w_gate)) * F.linear(x, up_proj)",
        (tensor(3, 4), tensor(2, 4), tensor(2, 4) + 1, tensor(2, 4) - 1),
        (tensor(0, 4), tensor(2, 4), tensor(2, 4) + 1, tensor(2, 4) - 1),
    )
    assert {"gate", "v", "grad_gate", "grad_up", "grad_v"} <= locals_of(text)


def test_exponentials_of_logarithms_are_called_after_what_they_are() -> None:
    text = backward(
        "mu[N], logvar[N], logvar2[N], ref_logps[N], logps[N]",
        "return mu**2 * torch.exp(-logvar2) + torch.exp(logvar) * torch.exp(ref_logps - logps)",
        (tensor(4), tensor(4) + 1, tensor(4) - 1, tensor(4) / 2, tensor(4) / 3),
        (tensor(0),) * 5,
    )
    assert {"inv_var2", "var", "ratio"} <= locals_of(text)


def test_values_of_one_role_are_told_apart_by_what_only_one_is_computed_of() -> None:
    text = backward(
        "anchor[N, D], positive[N, D], negative[N, D]",
        "return (anchor - positive).pow(4).sum(-1) * (anchor - negative).pow(4).sum(-1)",
        (tensor(3, 4), tensor(3, 4) + 1, tensor(3, 4) - 1),
        (tensor(0, 4), tensor(0, 4), tensor(0, 4)),
    )
    assert {"diff_positive", "diff_negative"} <= locals_of(text)


def test_a_sum_over_all_but_the_channels_counts_from_the_start() -> None:
    text = backward(
        "x[B, C, H, W], weight[C]",
        "return torch.tanh(x) * weight.view(1, -1, 1, 1)",
        (tensor(2, 3, 4, 5), tensor(3)),
        (tensor(0, 3, 4, 5), tensor(3)),
    )
    assert ".sum((0, 2, 3))" in text


def test_zeros_are_made_of_the_gradient_that_comes_in() -> None:
    text = backward(
        "z[N, N], labels[N; index(N)]",
        "return (F.cross_entropy(z, labels) + F.cross_entropy(z.t(), labels)) / 2",
        (tensor(4, 4), torch.tensor([0, 3, 1, 1])),
    )
    assert "grad_output.new_zeros(z.shape)" in text and "grad_total" not in text


def test_a_tensor_that_is_saved_tells_the_shape_of_one_that_is_not() -> None:
    text = op_text(
        "a[N], b[N], beta: float = 0.1",
        forward="-F.logsigmoid(beta * (a - b)).mean()",
        derive=True,
        once_differentiable=True,
    )
    assert "product.numel()" in text and "_shape" not in text


def test_many_gradients_begin_on_lines_that_are_not_broken() -> None:
    names = [f"a_rather_long_name_{k}" for k in range(4)]
    text = op_text(", ".join(names), forward=" * ".join(names), derive=True)
    begun = re.findall(r"(?m)^ +(grad_.*) = None$", text)
    assert [name for line in begun for name in line.split(" = ")] == [
        f"grad_{name}" for name in names
    ]


def test_a_matrix_that_is_turned_by_its_sizes_is_not_summed_to_size() -> None:
    """The orthogonalisation of Muon: which way it goes is told by the sizes, and what is multiplied has the same shape either way."""
    text = backward(
        "G[M, N], steps: int",
        """
a, b, c = (3.4445, -4.7750, 2.0315)
X = G
if G.size(0) > G.size(1):
    X = X.mT
X = X / (X.norm() + 1)
for _ in range(steps):
    A = X @ X.mT
    B = b * A + c * A @ A
    X = a * X + B @ X
if G.size(0) > G.size(1):
    X = X.mT
X *= 2
return X
""",
        (tensor(4, 3), 3),
        (tensor(3, 4), 2),
        (tensor(3, 3), 0),
    )
    assert "sum_to_size" not in text and "expand" not in text


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_what_is_padded_at_the_ends_takes_no_square_matrix(mode: str) -> None:
    calls = (tensor(2, 3, 4),), (tensor(2, 5, 3).mT.contiguous().mT,)
    for pad in ("(2, 1)", "(0, 2)", "(1, 0)"):
        text = backward("x[N, C, T]", f"F.pad(x, {pad}, mode={mode!r}).sin()", *calls)
        assert "diag" not in text
    cut = backward("x[N, C, T]", f"F.pad(x, (2, -1), mode={mode!r}).sin()", *calls)
    assert "torch.diag" in cut
    numbers = [(x, k) for (x,) in calls for k in (2, 1, 0, -1)]
    backward("x[N, C, T], k: int = 2", f"F.pad(x, (k, 1), mode={mode!r})", *numbers)


def test_a_tensor_of_a_number_of_the_signature_has_no_dims() -> None:
    text = backward(
        "x[N, D], y[N, D], beta: float = 0.5",
        "b = torch.tensor(beta, dtype=x.dtype, device=x.device)\n"
        "return torch.logsumexp(torch.stack([x + b, y * b]), dim=0)",
        (tensor(3, 4), tensor(3, 4), 0.25),
        (tensor(0, 4), tensor(0, 4), 0.5),
    )
    assert "sum_to_size" not in text
    lists = backward(
        "x[N, D], betas: tuple[float, ...] = (0.5, 1.0)",
        "return torch.exp(x * torch.tensor(betas, dtype=x.dtype))",
        (tensor(3, 2), (0.25, 0.5)),
        (tensor(3, 1), (0.25, 0.5)),
    )
    assert "sum_to_size" in lists


def test_a_result_that_the_forward_discards_is_not_computed_again() -> None:
    calls = (tensor(3, 4), tensor(3)), (tensor(3, 4).flip(0), tensor(1)[:1].expand(3))
    both = "x[A, B], w[A]"
    text = backward(both, "top, _ = torch.max(x, -1)\nreturn top * w", *calls)
    assert "top, indices = torch.max(x, -1)" in text and text.count("max(") == 1
    one = backward(both, "top, _ = torch.topk(x, 2)\nreturn top.sum(-1) + w", *calls)
    assert "_top, indices = torch.topk(x, 2)" in one and one.count("topk(") == 1
    none = backward(
        both,
        "top, _ = torch.sort(x.detach())\nreturn top[:, 0] * w.sin() + x[:, 0]",
        *calls,
    )
    assert "indices" not in none
    kept = backward(
        both, "_, _ = x.min(-1)\ntop, _ = x.max(-1)\nreturn top * _ * w", *calls
    )
    assert "indices" not in kept


def test_a_second_derivative_behind_a_relu_is_finite_at_minus_infinity() -> None:
    """So a factor `relu(x)` does not become `x`, though the mask lets nothing else pass."""
    op = load(op_text("x", forward="torch.relu(x).square()", derive=True)).some_op
    x = torch.tensor([1.0, -torch.inf, -2.0], requires_grad=True)
    grad_output = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad(op(x), x, grad_output, create_graph=True)
    (found,) = torch.autograd.grad(grad.sum(), grad_output)
    assert found.tolist() == [2, 0, 0]


def test_a_finite_gradient_stays_finite_behind_a_relu() -> None:
    op = load(op_text("x", forward="torch.relu(x).square()", derive=True)).some_op
    x = torch.tensor([-1.0, 0.0], requires_grad=True)
    op(x).sum().sqrt().backward()
    assert x.grad is not None
    assert not x.grad.any()


@pytest.mark.parametrize(
    "forward", ["x * torch.sigmoid(1.702 * x)", "x * torch.tanh(F.softplus(x))"]
)
def test_the_sum_of_two_gradients_is_one_pass(forward: str) -> None:
    check_forward("x", forward, ((tensor(3, 4),), (tensor(0, 4),), (tensor(),)))
    text = op_text("x", forward=forward, derive=True)
    assert "return torch.addcmul(" in text
    op, plain = load(text).some_op, reference(["x"], forward)
    x = torch.linspace(-3, 3, 12).view(3, 4)
    for dtype in (torch.float16, torch.float32):
        own, right = (
            torch.func.vmap(torch.func.grad(lambda row, f=f: f(row).sum()))(x.to(dtype))
            for f in (op, plain)
        )
        torch.testing.assert_close(own, right)
    exact = x.double().requires_grad_()
    assert torch.autograd.gradgradcheck(op, (exact,), check_batched_grad=True)


def test_a_longer_sum_and_one_that_broadcasts_stay_sums() -> None:
    for inputs, forward in (
        ("x", "x * torch.sin(x) * torch.exp(x)"),
        ("x[N, D], b[D]", "x * torch.sigmoid(b * x)"),
    ):
        assert "addcmul" not in op_text(inputs, forward=forward, derive=True)


def test_a_slice_that_a_condition_bounds_has_its_length() -> None:
    """`T <= L`: no sum to the shape of a slice, for which the table would be saved."""
    text = backward(
        "x[B, T, D], table[L, D]",
        "x + table[:x.shape[1]]",
        (tensor(2, 3, 4), tensor(5, 4)),
        (tensor(2, 3, 4), tensor(3, 4)),
        (tensor(2, 0, 4), tensor(3, 4)),
        require=["T <= L"],
    )
    assert "sum_to_size" not in text and "saved_tensors" not in text


PARTIAL_ROTARY = """
rotary_dim = cos.shape[-1]
x_rot, x_pass = x[..., :rotary_dim], x[..., rotary_dim:]
x1, x2 = x_rot.chunk(2, dim=-1)
x_rot = x_rot * cos + torch.cat((-x2, x1), dim=-1) * sin
return torch.cat((x_rot, x_pass), dim=-1)
"""


def test_a_rotation_of_the_first_channels_computes_nothing_for_a_shape() -> None:
    text = backward(
        "x[B, H, S, D], cos[S, R], sin[S, R]",
        PARTIAL_ROTARY,
        (tensor(2, 2, 3, 6), tensor(3, 4), tensor(3, 4) + 1),
        (tensor(2, 2, 3, 4), tensor(3, 4), tensor(3, 4) + 1),
        (tensor(2, 2, 3, 3), tensor(3, 0), tensor(3, 0) + 1),
        require=["R % 2 == 0", "R <= D"],
    )
    assert "to_size" not in text and "x_rot.shape" not in text


def test_a_size_of_a_slice_is_read_from_the_slice() -> None:
    """The product is not computed again for its shape."""
    text = backward(
        "q[B, S, H, D], w[H, E, C], k: int = 1",
        "x = torch.einsum('bshd,hec->bshec', q, w[:, k:])\nreturn x.flatten(2)",
        (tensor(2, 3, 2, 4), tensor(2, 3, 2), 1),
        (tensor(2, 3, 2, 4), tensor(2, 3, 2), -2),
        (tensor(2, 0, 2, 4), tensor(2, 3, 2), 5),
    )
    assert "w[:, ctx.k:].shape[1]" in text and "hec->bshec" not in text


def test_scores_are_not_saved_for_their_dtype() -> None:
    inputs = "q[B, T, D], k[B, S, D], v[B, S, E]"
    forward = """
scores = q @ k.mT
probs = F.softmax(scores.double(), dim=-1).type_as(q)
return probs @ v
"""
    check_forward(
        inputs, forward, [(tensor(2, 3, 4), tensor(2, 5, 4), tensor(2, 5, 2))]
    )
    text = backward_of(text_of(spec_of(inputs, forward=forward)))
    assert text.startswith("q, k, v, probs_scores, probs = ctx.saved_tensors")
    assert text.count(".to(probs_scores.dtype)") == 1 and "ctx.q_dtype" in text


@pytest.mark.parametrize(
    "forward", ["F.cross_entropy(x, t).float()", "x.prod(-1).double()"]
)
def test_a_cast_back_is_no_less_precise_than_autocast(forward: str) -> None:
    """Autocast computes these in float32: a gradient of 65536 is no number of the float16 input."""
    inputs = "x[N, V], t[N; index(V)]" if "t)" in forward else "x[N, V]"
    text = backward_of(text_of(spec_of(inputs, forward=forward)))
    assert "x_dtype" not in text and "(x.dtype)" not in text


def test_a_softmax_of_a_product_has_a_backward_under_autocast() -> None:
    """Its gradient was cast to the dtype of an input, and its probabilities were bfloat16: PyTorch's backward raised."""
    forward = "torch.softmax(x @ v, -1).float()"
    op = load(text_of(spec_of("x[N, D], v[D, M]", forward=forward))).some_op
    x, v = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = op(x, v)
    assert all(
        x.isfinite().all() for x in torch.autograd.grad(found.square().sum(), (x, v))
    )


def test_a_resized_image_has_a_multiple_of_its_size() -> None:
    """It was resized again in the backward, for its shape."""
    text = backward(
        "x[B, C, H, W]",
        "F.interpolate(x, scale_factor=2, mode='nearest').mean((2, 3))",
        (tensor(2, 3, 4, 5),),
        (tensor(0, 3, 1, 5),),
    )
    assert "interpolate" not in text and "saved_tensors" not in text
