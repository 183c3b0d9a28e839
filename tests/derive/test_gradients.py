"""What derived backwards read like: text in, text out."""

import pytest

from scaffold.derive import Derivation, derive
from scaffold.formula import emit_lines
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, op_text, spec_of, text_of
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED


def backward(inputs: str, forward: str) -> list[str]:
    """The lines of the backward, before they are laid out."""
    derivation = derive(
        spec_of(inputs, forward=forward, derive=True, save_policy="recompute")
    )
    assert not derivation.notes
    return lines_of(derivation)


def lines_of(derivation: Derivation) -> list[str]:
    return [
        line for block in derivation.blocks for line in emit_lines(block.statements)
    ]


@pytest.mark.parametrize(
    ("inputs", "forward", "lines"),
    [
        ("x", "-x", ["grad_x = -grad_output"]),
        ("x", "x * 1", ["grad_x = grad_output"]),
        ("x", "2 * x * 3", ["grad_x = 6 * grad_output"]),
        ("x", "(x / 2) / 4", ["grad_x = grad_output / 8"]),
        ("x", "x - (-x)", ["grad_x = 2 * grad_output"]),
        ("x", "x ** 2", ["grad_x = 2 * grad_output * x"]),
        ("x", "x * x", ["grad_x = 2 * grad_output * x"]),
        (
            "x",
            "x ** (1 / 2)",
            ["grad_x = 1 / 2 * grad_output * x ** (1 / 2 - 1)"],
        ),
        ("x", "1 - x", ["grad_x = -grad_output"]),
        ("x, a: float", "a * x", ["grad_x = ctx.a * grad_output"]),
        (
            "x, a: float",
            "a * torch.sin(x / a)",
            ["grad_x = grad_output * torch.cos(x / ctx.a)"],
        ),
        (
            "x, a: float",
            "F.logsigmoid(-a * x)",
            ["grad_x = -ctx.a * grad_output * torch.sigmoid(ctx.a * x)"],
        ),
        ("x", "torch.exp(x)", ["grad_x = grad_output * output"]),
        ("x", "torch.sigmoid(x)", ["grad_x = grad_output * output * (1 - output)"]),
        (
            "x",
            "x * torch.sigmoid(x)",
            [
                "sigmoid = torch.sigmoid(x)",
                "grad_x = grad_output * sigmoid * (1 + x * (1 - sigmoid))",
            ],
        ),
        (
            "x[N, C]",
            "x.sum(-1)",
            ["grad_x = grad_output.unsqueeze(-1).expand(ctx.x_shape)"],
        ),
        (
            "x[N, C]",
            "x.mean(0, keepdim=True) + x",
            ["grad_x = grad_output + grad_output.mean(0, keepdim=True)"],
        ),
        (
            "x[..., C]",
            "x - x.mean(-1, keepdim=True)",
            ["grad_x = grad_output - grad_output.mean(-1, keepdim=True)"],
        ),
        ("x[N, C], b[C; const]", "x + b", ["grad_x = grad_output"]),
        ("x[N, C; const], b[C]", "x + b", ["grad_b = grad_output.sum(0)"]),
        (
            "x[N, C; const], b[N, 1]",
            "x + b",
            ["grad_b = grad_output.sum(-1, keepdim=True)"],
        ),
        (
            "x[N, C, L; const], b[C]",
            "x + b[:, None]",
            ["grad_b = grad_output.sum((0, 2))"],
        ),
        ("x[N, K], w[K, M; const]", "x @ w", ["grad_x = grad_output @ w.mT"]),
        ("x[N, K], w[M, K; const]", "x @ w.t()", ["grad_x = grad_output @ w"]),
        ("x[N, K; const], w[M, K]", "x @ w.t()", ["grad_w = grad_output.t() @ x"]),
        (
            "x",
            "torch.where(x > 0, 3 * x, 0.0)",
            ["grad_x = torch.where(x > 0, 3 * grad_output, 0)"],
        ),
        ("x[N, C]", "x.transpose(0, 1)", ["grad_x = grad_output.transpose(0, 1)"]),
        ("x[N, C]", "x.unsqueeze(0).squeeze(0)", ["grad_x = grad_output"]),
        (
            "z[...; complex]",
            "z * z.conj()",
            ["grad_z = grad_output * z + (grad_output * z.conj()).conj()"],
        ),
    ],
)
def test_a_small_backward(inputs: str, forward: str, lines: list[str]) -> None:
    assert backward(inputs, forward) == lines


def test_cross_entropy_is_probs_with_one_taken_off_at_the_target() -> None:
    forward = "-torch.log_softmax(z, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1).mean()"
    lines = backward("z[N, C], y[N; index(C)]", forward)
    assert lines == [
        "onehot = torch.zeros_like(z).scatter(-1, y.unsqueeze(-1), 1)",
        "grad_z = grad_output / y.numel() * (torch.softmax(z, -1) - onehot)",
    ]


def test_a_number_is_multiplied_with_one_number_before_that_is_repeated() -> None:
    lines = backward("mu, logvar", "(logvar - 3 * mu ** 2).sum(-1).mean()")
    assert lines[1] == "scaled_grad = -6 * grad_output / shape[:-1].numel()"
    assert "grad_mu = (scaled_grad.expand(shape) * mu).sum_to_size(mu.shape)" in lines


def test_what_autograd_hands_in_is_not_divided_as_the_gradient_of_the_output_is() -> (
    None
):
    """By the count of a mean: the second derivative would lack it. For `grad_output` it is done early, once for all terms."""
    forward = """
mean = x.mean(1, keepdim=True)
scale = torch.exp(mean)
return (scale * x * mean).mean(1).sum()
"""
    calls = [(tensor(2, 3),), (tensor(1, 4),)]
    check_forward("x[N, D]", forward, calls)
    assert "extra_grad_scale" in op_text("x[N, D]", forward=forward)


NAMED = """
log_probs = torch.log_softmax(z, dim=-1)
picked = log_probs.gather(-1, y.unsqueeze(-1)).squeeze(-1)
"""


def test_probabilities_are_computed_at_once_where_logarithms_serve_nothing_else() -> (
    None
):
    inputs = "z[N, C], y[N; index(C)]"
    lines = backward(inputs, f"{NAMED}return -picked.mean()")
    assert lines == [
        "onehot = torch.zeros_like(z).scatter(-1, y.unsqueeze(-1), 1)",
        "grad_z = grad_output / y.numel() * (torch.softmax(z, dim=-1) - onehot)",
    ]
    both = "\n".join(backward(inputs, f"{NAMED}return (picked ** 3).mean()"))
    assert "torch.exp(log_probs)" in both and "softmax(z, -1)" not in both


FOCAL = """
margin = torch.where(target, logits, -logits)
weight = torch.sigmoid(-margin) ** gamma
return -(weight * F.logsigmoid(margin)).mean()
"""
GATED = "g = a * torch.sigmoid(beta * a)\nreturn g * x"


@pytest.mark.parametrize(
    ("inputs", "forward", "once", "then"),
    [
        (
            "logits[N], target[N; bool], gamma: float",
            FOCAL,
            "torch.sigmoid(",
            "weight = sigmoid**ctx.gamma",
        ),
        ("x[N], a[N], beta: float", GATED, "torch.sigmoid(", "g = a * sigmoid"),
        (
            "x[N]",
            "h = torch.exp(torch.erf(x))\nk = h * x\nreturn torch.sin(k) * torch.erf(x)",
            "torch.erf(",
            "h = torch.exp(erf)",
        ),
    ],
    ids=["focal", "gated", "through another local"],
)
def test_what_is_inside_a_local_is_computed_once(
    inputs: str, forward: str, once: str, then: str
) -> None:
    lines = [line for line in backward(inputs, forward) if not line.startswith("#")]
    assert "\n".join(lines).count(once) == 1
    assert then in lines


def test_a_local_of_which_only_the_value_is_read_comes_as_it_was_written() -> None:
    lines = backward("x[N], a[N]", "g = torch.sigmoid(a * 2)\nreturn g * x")
    assert lines[0] == "g = torch.sigmoid(a * 2)"


def test_halves_are_put_together_again() -> None:
    forward = "d = x.shape[-1] // 2\na = x[..., :d]\nb = x[..., d:]\nreturn torch.cat([-b, a], -1)"
    lines = backward("x[..., D]", forward)
    assert "slice_scatter" not in "\n".join(lines)
    assert "saved_tensors" not in text_of(
        spec_of("x[..., D]", forward=forward, derive=True)
    )


def test_a_choice_stands_in_the_backward_as_in_the_forward() -> None:
    lines = backward(
        "x, reduction: str = 'mean'",
        "x.mean() if reduction == 'mean' else x.sum() if reduction == 'sum' else x * 1",
    )
    assert lines == [
        "if ctx.reduction == 'mean':",
        "    grad_x = (grad_output / ctx.x_shape.numel()).expand(ctx.x_shape)",
        "elif ctx.reduction == 'sum':",
        "    grad_x = grad_output.expand(ctx.x_shape)",
        "else:",
        "    grad_x = grad_output",
    ]


def test_choices_in_choices_are_one_chain() -> None:
    forward = """
z = x / 2
if p == 2:
    y = 0.5 * z
elif p == 0:
    y = torch.log1p(0.5 * z * z)
else:
    y = torch.sqrt(torch.sin(z) * torch.cos(z) * torch.exp(z / abs(p - 2)) + 1) ** p
return torch.tanh(y)
"""
    lines = backward("x, p: float = 2.0", forward)
    assert not any("chosen" in line for line in lines)
    assert [line for line in lines if line[0] != " " and line[-1] == ":"] == [
        "if ctx.p == 2:",
        "elif ctx.p == 0:",
        "else:",
    ]


def test_branches_of_branches_are_one_chain_of_tests() -> None:
    forward = """
z = x * x
if p == 2:
    y = z
elif p == 0:
    y = torch.log1p(z)
else:
    y = (z / abs(p - 2) + 1) ** (p / 2)
return y
"""
    text = "\n".join(backward("x, p: float = 2.0", forward))
    assert "zeros" not in text
    assert "elif ctx.p == 0:" in text


@pytest.mark.parametrize("word", ["softmax", "tanh"])
def test_what_an_optional_is_inside_of_is_computed_once(word: str) -> None:
    dim = ", -1" * (word == "softmax")
    lines = backward("x[N, D], b[D]?", f"torch.{word}(x + b{dim}) * x")
    assert lines[0].endswith(f"torch.{word}(x + b if b is not None else x{dim})")
    assert sum("torch." in line for line in lines if line[0] != "#") == 1


def backward_of_case(name: str) -> list[str]:
    """The lines for an op of others."""
    case = next(item for item in (*OPS, *PUBLISHED) if item.name == name)
    spec = spec_of(
        case.inputs,
        forward=case.forward,
        outputs=case.outputs,
        derive=True,
        save_policy="recompute",
    )
    return lines_of(derive(spec))


def test_what_two_gradients_read_in_one_branch_is_computed_there_alone() -> None:
    lines = backward_of_case("bilinear_glu_gates")
    at = len(lines) - lines[::-1].index("elif ctx.kind == 'geglu':") - 1
    assert "torch.erf(" in lines[at + 1] and "torch.exp(" in lines[at + 2]
    assert "\n".join(lines).count("torch.erf(") == 1
    assert lines[-2:] == [
        "grad_b = grad_preactivation.sum_to_size(b.shape)",
        "grad_c = grad_value.sum_to_size(c.shape)",
    ]
    assert not any(line.startswith("if not") for line in lines)


def test_what_two_branches_need_is_one_if() -> None:
    lines = backward_of_case("arcface_easy_margin")
    at = lines.index("    mask_cosine = cosine > 0")
    assert (lines[at - 1], lines[at + 2]) == ("if ctx.easy_margin:", "else:")
    assert not any(line.startswith("if not") for line in lines)


@pytest.mark.parametrize("name", ["clip_loss", "volume_rendering", "barlow"])
def test_a_local_that_is_there_is_not_computed_apart(name: str) -> None:
    """Another line of the forward reads it, or its shape is asked."""
    lines = [line for line in backward_of_case(name) if line[0] not in " #"]
    assigned = [line for line in lines if " = " in line]
    assert len(assigned) == len(set(assigned))  # a name may come again, but not a value
    assert "\n".join(lines).count("image.norm(") <= 2


def test_a_choice_among_the_terms_of_a_sum_is_a_choice_of_sums() -> None:
    forward = """
if training:
    mean = x.mean(0)
else:
    mean = running_mean
return torch.sin(x - mean)
"""
    inputs = "x[N, C], running_mean[C; const], training: bool"
    lines = backward(inputs, forward)
    assert lines[5:] == [
        "grad_diff = grad_output * torch.cos(x - mean)",
        "if ctx.training:",
        "    grad_x = grad_diff - grad_diff.mean(0, keepdim=True)",
        "else:",
        "    grad_x = grad_diff",
    ]


def test_an_optional_that_is_absent_is_not_touched() -> None:
    spec = spec_of(
        "x, w?", forward="torch.exp(x * w) if w is not None else x * 2", derive=True
    )
    assert "if w is not None:" in text_of(spec)


@pytest.mark.parametrize(
    ("inputs", "forward", "note"),
    [
        ("x", "torch.nextafter(x, x) * x", "torch.nextafter has no rule"),
        ("x, y", "x * y if x.sum() > 0 else x", "depends on the data"),
    ],
)
def test_what_cannot_be_derived_is_said(inputs: str, forward: str, note: str) -> None:
    derivation = derive(spec_of(inputs, forward=forward, derive=True))
    assert any(note in item for item in derivation.notes)


@pytest.mark.parametrize("forward", ["x.unbind(0)", "a = x * 2\na, x.sin()"])
def test_any_number_of_outputs_has_no_derived_gradient_rather_than_none(
    forward: str,
) -> None:
    spec = spec_of("x[N, D]", forward=forward, outputs="*ys", derive=True)
    derivation = derive(spec)
    assert derivation.missing == {"x"}
    assert "it returns any number of tensors" in str(derivation.notes)


@pytest.mark.parametrize(
    ("forward", "several"),
    [
        ("torch.special.airy_ai(x) * x", ("airy_ai",)),
        (
            "torch.special.airy_ai(x.exp()) * torch.special.airy_ai(y) + x",
            ("airy_ai",),
        ),
        ("x[x > torch.special.airy_ai(x)].sum()", ()),  # a mask has none in any case
        ("torch.special.airy_ai(x) * x if x.sum() > 0 else x", ("airy_ai",)),
        ("x * torch.special.airy_ai(y)", ()),
    ],
)
def test_what_autograd_takes_for_a_constant_is_said(
    forward: str, several: tuple[str, ...]
) -> None:
    spec = spec_of("x[N], y[N; const]", forward=forward, derive=True)
    notes = [item for item in derive(spec).notes if "for a constant" in item]
    assert [item.partition("gradient of ")[2].partition(",")[0] for item in notes] == [
        f"torch.special.{name}" for name in several
    ]
    assert "lambda x: torch.special" not in text_of(spec)


@pytest.mark.parametrize(
    ("inputs", "forward", "called", "condition"),
    [
        ("x[N, D], p: float", "F.normalize(x, p)", "F.normalize", "p == 2"),
        ("x[N, C, L], k: int", "F.avg_pool1d(x, k)", "F.avg_pool1d", "kernel_size > 0"),
    ],
)
def test_the_condition_that_only_the_call_decides_is_said(
    inputs: str, forward: str, called: str, condition: str
) -> None:
    notes = derive(spec_of(inputs, forward=forward, derive=True)).notes
    (note,) = (item.replace("'", '"') for item in notes)
    assert f"{called} has the rule " in note
    assert f" only where {condition}, which is not known before the call" in note


@pytest.mark.parametrize(
    "forward",
    ["torch.norm(x, math.inf, 1)", "x.norm(1 + 1, 1)", "torch.special.logit(x, eps)"],
)
def test_a_condition_that_is_decided_without_a_literal(forward: str) -> None:
    spec = spec_of("x[N, D], eps: float", forward=forward, derive=True)
    assert not derive(spec).notes
    assert "vjp" not in text_of(spec)


def test_a_random_mask_is_saved() -> None:
    forward = "mask = torch.rand_like(x) > p\nreturn x * mask / (1 - p)"
    derivation = derive(spec_of("x, p: float = 0.5", forward=forward, derive=True))
    assert [item.name for item in derivation.saved] == ["mask"]
    assert not derivation.once_differentiable


def test_an_explicit_formula_wins() -> None:
    spec = spec_of("x, w", forward="x * w", derive=True, grad={"x": "7 * grad_output"})
    text = text_of(spec)
    assert "7 * grad_output" in text and "grad_w = (grad_output * x)" in text


def test_rules_are_taken_only_under_their_tests() -> None:
    exact = "\n".join(backward("x", "F.gelu(x)"))
    curve = "\n".join(backward("x", "F.gelu(x, approximate='tanh')"))
    assert "erf" in exact and "tanh" not in exact
    assert "tanh" in curve and "erf" not in curve


def test_what_is_only_for_formulas_has_no_rule_in_a_forward() -> None:
    for inputs, forward in (
        ("x[N], y[N], z[N]", "torch.ops.aten.cumprod_backward(x, y, 0, z)"),
        ("x[N], y[N]", "torch.ops.aten.sigmoid_backward(x, y)"),
    ):
        spec = spec_of(inputs, forward=forward, derive=True)
        assert "torch.func.vjp" in text_of(spec)


def test_a_transpose_of_a_transpose_is_none() -> None:
    text = op_text("x[N, D], w[K, D]", forward="x @ w.T + (x @ w.t()).exp()")
    assert ".T.mT" not in text and ".t().mT" not in text and ".mT.mT" not in text


ATTENTION = """\
q, k, v, output = ctx.saved_tensors
grad_q = grad_k = grad_v = None
probs = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
    inner = (grad_output * output).sum(-1, keepdim=True)
    grad_scores = probs * (grad_output @ v.mT - inner)
if ctx.needs_input_grad[0]:
    grad_q = q.shape[-1] ** -0.5 * (grad_scores @ k)
if ctx.needs_input_grad[1]:
    grad_k = q.shape[-1] ** -0.5 * (grad_scores.mT @ q)
if ctx.needs_input_grad[2]:
    grad_v = probs.mT @ grad_output
return grad_q, grad_k, grad_v"""


def test_nothing_is_summed_over_leading_dims_of_one_name() -> None:
    forward = "torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v"
    named = op_text(
        "q[*batch, S, D], k[*batch, T, D], v[*batch, T, E]",
        forward=forward,
        amp="off",
        save_policy="recompute",
    )
    assert backward_of(named) == ATTENTION
    broadcast = op_text("q[..., S, D], k[..., T, D], v[..., T, E]", forward=forward)
    assert backward_of(broadcast).count("sum_to_size") == 4


def test_leading_dims_of_two_names_may_broadcast() -> None:
    text = op_text("x[*a, D], y[*b, D]", forward="x * y")
    assert backward_of(text).count("sum_to_size") == 2
    assert "raise ValueError" not in text


@pytest.mark.parametrize(
    "alpha", ["torch.as_tensor(a)", "torch.as_tensor(a, dtype=x.dtype).to(x.device)"]
)
def test_a_tensor_of_an_attribute_is_a_number(alpha: str) -> None:
    forward = f"alpha = {alpha}\nreturn (alpha * (1 - x).square() * y).mean()"
    calls = [(tensor(3, 2), tensor(2), value) for value in (0.25, -2.0)]
    text = check_forward("x, y, a: float = 0.25", forward, calls)
    assert "autograd" not in text.replace("torch.autograd import", "")


def test_a_product_of_an_earlier_backward_is_not_taken_for_the_forward_s() -> None:
    """A saved value is found with a first backward; the square of `rstd` overflows in float16 where a row is zero."""
    forward = (
        "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)\n"
        "return x * rstd * weight"
    )
    text = op_text("x[..., D], weight[D], eps: float = 1e-6", forward=forward)
    assert "extra_grad_rstd" in text
    assert "grad_x = rstd * (grad_x_hat - " in text and "rstd**2" not in text


def test_a_line_says_why_it_casts_or_guards_an_exponent() -> None:
    linear = op_text("x[..., K], w[M, K]", forward="x @ w.t()")
    assert linear.count("# autocast may leave these in different dtypes") == 1
    power = op_text("x[N; positive], gamma: float", forward="(x**gamma).sum()")
    assert "# if gamma is 0 the gradient is 0, not 0 * inf" in power


def test_a_value_is_negated_before_it_is_repeated() -> None:
    text = op_text("x[N, D]", forward="-x.amax(-1).sum()")
    assert "grad_largest = (-grad_output).expand_as(largest)" in text


def test_what_an_aten_call_takes_is_named() -> None:
    text = op_text("x", forward="x * torch.tanh(F.softplus(x))")
    assert "grad_softplus, x, beta=1, threshold=20" in text


def test_slices_are_joined_in_one_line() -> None:
    text = op_text(
        "x[..., T, D], cosine[T, D; const], sine[T, D; const]",
        forward="""
half = x.shape[-1] // 2
rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
return x * cosine + rotated * sine
""",
        require=["D % 2 == 0"],
    )
    assert "(grad_rotated[..., half:], -grad_rotated[..., :half])" in text
