"""What derived backwards read like: rewrites, names, shapes; text in, text out.

That they are the right gradients is for `test_cases.py` and `test_random_programs.py`, which see the same rewrites.
"""

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from scaffold.derive import derive
from scaffold.formula import emit_lines
from tests.derive.building import load, spec_of, text_of
from tests.derive.cases import CASES, Case
from tests.derive.ops_of_others import OPS
from tests.sweeps import in_every_run

LAYER_NORM = """
xc = x - x.mean(-1, keepdim=True)
rstd = torch.rsqrt((xc * xc).mean(-1, keepdim=True) + eps)
xhat = xc * rstd
return xhat * 1
"""
SOFTMAX = """
e = torch.exp(x - x.detach().amax(-1, keepdim=True))
return e / e.sum(-1, keepdim=True)
"""


def backward(inputs: str, forward: str) -> list[str]:
    """The lines of the backward, before they are laid out."""
    derivation = derive(
        spec_of(inputs, forward=forward, derive=True, save_policy="recompute")
    )
    assert not derivation.notes
    return [
        line for block in derivation.blocks for line in emit_lines(block.statements)
    ]


@pytest.mark.parametrize(
    ("inputs", "forward", "lines"),
    [
        (  # factors of a forward local are met again, what is centred sums to zero
            "x[..., D], eps=1e-5",
            LAYER_NORM,
            [
                "inner = (grad_output * xhat).mean(-1, keepdim=True)",
                "mean_grad = grad_output.mean(-1, keepdim=True)",
                "grad_x = rstd * (grad_output - inner * xhat - mean_grad)",
            ],
        ),
        (  # the output that a quotient's gradient reads anyway
            "x[..., D]",
            SOFTMAX,
            [
                "inner = (grad_output * output).sum(-1, keepdim=True)",
                "grad_x = output * (grad_output - inner)",
            ],
        ),
        (  # common factors of choices, divisors and numbers
            "x, d=1.0",
            "torch.where(x.abs() < d, 0.5 * x * x, d * (x.abs() - 0.5 * d))",
            [
                "grad_x = grad_output * torch.where(torch.abs(x) < ctx.d, x, ctx.d * torch.sgn(x))",
            ],
        ),
        (
            "x[N, D]",
            "x.pow(2).sum(-1).mean() / 2",
            ["grad_x = grad_output / x.shape[0] * x"],
        ),
        (  # several sums to one shape are one, at the end
            "x, z[...; const]",
            "torch.sin(x * z) + x * z",
            [
                "grad_x = (grad_output * (1 + torch.cos(x * z)) * z).sum_to_size(x.shape)"
            ],
        ),
        (  # an exponential is not zero
            "v, x[...; const]",
            "x / torch.exp(v)",
            ["grad_v = -(grad_output * output).sum_to_size(ctx.v_shape)"],
        ),
        (  # new dims as an index
            "x[N, C, H, W; const], g[N, C]",
            "x * g[..., None, None]",
            ["grad_g = (grad_output * x).sum((-2, -1))"],
        ),
        (
            "x[N, C, H, W], g[N, C; const]",
            "x * g[..., None, None]",
            ["grad_x = grad_output * g[..., None, None]"],
        ),
        (  # bounds as the user wrote them
            "x[N], lo: float, hi: float, y[N; const]",
            "torch.clamp(y, lo, hi) * x",
            ["grad_x = grad_output * torch.clamp(y, ctx.lo, ctx.hi)"],
        ),
    ],
)
def test_a_rewrite(inputs: str, forward: str, lines: list[str]) -> None:
    found = backward(inputs, forward)
    assert found[-len(lines) :] == lines


def test_inputs_come_in_their_order() -> None:
    lines = backward("x[..., K], w[M, K], b[M]?", "F.linear(x, w, b)")
    targets = [re.match(r"\s*(grad_[xwb]) =", line) for line in lines]
    found = [match.group(1) for match in targets if match]
    assert found == ["grad_x", "grad_w", "grad_b"]


def test_nothing_is_computed_for_its_shape() -> None:
    lines = backward("mu, v", "(1 + v - mu ** 2 - v.exp()).sum(-1).mean()")
    assert "shape = torch.broadcast_shapes(ctx.mu_shape, ctx.v_shape)" in lines
    assert "scaled_grad = -2 * grad_output / shape[:-1].numel()" in lines
    assert ".sum(" not in "\n".join(lines)


def locals_of(text: str) -> list[str]:
    """What the backward assigns."""
    begin = text.index("    def backward(")
    body = text[begin : text.index("\n\ndef ", begin)]
    return re.findall(r"(?m)^ +(\w+)(?:: \w+)? = ", body)


def text_of_case(case: Case) -> str:
    return text_of(
        spec_of(case.inputs, forward=case.forward, outputs=case.outputs, derive=True)
    )


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "case",
    in_every_run([*CASES, *OPS], [*CASES[::4], *OPS[::18]]),
    ids=lambda case: case.name,
)
def test_names_say_a_role(case: Case) -> None:
    own = set(re.findall(r"\w+", case.inputs + case.forward))
    names = {name for name in locals_of(text_of_case(case)) if name not in own}
    assert not [name for name in names if re.search(r"_\d+$", name)]
    generic = "product|quotient|total|difference|summed|selected|value|tmp"
    assert not [
        name for name in names if re.fullmatch(rf"({generic})_(output|part)", name)
    ]


class Sums(TorchFunctionMode):
    """Counts the sums to the shape that a tensor has already."""

    def __init__(self) -> None:
        super().__init__()
        self.redundant = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func is Tensor.sum_to_size:
            self.redundant += tuple(args[0].shape) == tuple(args[1])
        return func(*args, **(kwargs or {}))


def is_declared(case: Case) -> bool:
    """Whether the shapes of all tensors are written out."""
    parts = re.findall(r"(\w+)(\[[^\]]*\])?(\?)?(:[^,]*)?", case.inputs)
    return "..." not in case.inputs and all(
        shape or kind or not name or "=" in case.inputs
        for name, shape, _, kind in parts
    )


DECLARED = [case for case in CASES if is_declared(case)]


@pytest.mark.parametrize(
    "case",
    in_every_run(DECLARED, DECLARED[::2], pytest.mark.each_commit),
    ids=lambda case: case.name,
)
def test_what_has_its_shape_is_not_summed_to_it(case: Case) -> None:
    text = text_of_case(case)
    module = load(text)
    torch.manual_seed(7)
    for inputs in case.samples():
        given = [
            (
                item.detach().requires_grad_()
                if isinstance(item, Tensor) and item.dtype.is_floating_point
                else item
            )
            for item in inputs
        ]
        result = module.some_op(*given)
        results = result if isinstance(result, tuple) else (result,)
        with Sums() as sums:
            sum(item.abs().sum() for item in results).backward()
        assert not sums.redundant


@pytest.mark.parametrize(
    ("inputs", "forward", "names"),
    [
        (  # what plays one role for two inputs has names that are alike
            "x[N, D], w[C, D], s=2.0",
            "return F.normalize(x, dim=-1) @ F.normalize(w, dim=-1).t() * s",
            {"norm", "clamped", "masked", "inner", "projected_grad"},
        ),
        (  # a divisor, its cotangent but for the sign, and a dot product
            "a[N, D], b[N, D], eps=1e-8",
            "return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + eps)",
            {"a_norm", "b_norm", "denom", "grad_dot", "neg_grad_denom", "scaled_grad"},
        ),
        (  # what is computed of the output's argument
            "x[N, I], w[H, I]",
            "return torch.tanh(x @ w.t() + 1)",
            {"grad_preactivation"},
        ),
        (  # on one side of a choice it is the cotangent of the same value
            "p[N], q[N], flat=False",
            (
                "h = p * q\ny = torch.sin(h) * torch.exp(h)\n"
                "if flat:\n    y = y.sum()\nreturn y"
            ),
            {"grad_h"},
        ),
        (  # roots that have names
            "x[..., D], weight[D], eps=1e-5",
            "return x / torch.sqrt(x.var(-1, keepdim=True) + eps) * weight",
            {"std", "x_hat", "grad_x_hat"},
        ),
        (
            "x[..., D], weight[D], eps=1e-5",
            (
                "var = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)\n"
                "return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(var + eps) * weight"
            ),
            {"rstd", "x_hat", "grad_x_hat"},
        ),
        ("p[N, 4]", "return torch.exp(1 - p) * (1 - p) ** 2", {"one_minus_p"}),
        (  # between two layers
            "x[*batch, D], w_gate[H, D], w_up[H, D], w_down[D, H]",
            (
                "gate = x @ w_gate.t()\nup = x @ w_up.t()\n"
                "return (gate * torch.sigmoid(gate) * up) @ w_down.t()"
            ),
            {"activated", "hidden_cast", "grad_hidden", "grad_gate", "grad_up"},
        ),
        (  # so many times what is divided by a number, or multiplied with one
            "x[B, T, D], query[D], t=1.0",
            (
                "scores = (x @ query) / t\nweights = torch.softmax(scores, dim=-1)\n"
                "return (weights.unsqueeze(-1) * x).sum(dim=1)"
            ),
            {"grad_scores"},
        ),
        (  # what is scaled after a norm, and what stands above a line
            "x[*batch, D], gate[*batch, D], weight[D], eps=1e-6",
            (
                "rstd = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)\n"
                "return x * rstd * weight * F.silu(gate)"
            ),
            {"grad_normed", "grad_x_hat"},
        ),
        ("q[N, D], k[D, M], z[N, 1]", "return q @ k / z", {"grad_num"}),
    ],
)
def test_values_are_called_by_their_roles(
    inputs: str, forward: str, names: set[str]
) -> None:
    assigned = {line.split(" = ")[0].strip() for line in backward(inputs, forward)}
    assert names <= assigned, assigned


def test_a_gradient_is_called_as_its_value_is() -> None:
    lines = backward(
        "x[*batch, D], w1[H, D], w3[H, D], w2[D, H]",
        "F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)",
    )
    assert {"projected_w1 = F.linear(x, w1)", "projected_w3 = F.linear(x, w3)"} <= {
        *lines
    }
    text = "\n".join(lines)
    assert "grad_w1 = torch.tensordot(grad_projected_w1, x" in text
    assert "grad_w3 = torch.tensordot(grad_projected_w3, x" in text
    assert "# w.r.t." not in text


@pytest.mark.parametrize(
    ("inputs", "forward", "name", "bad"),
    [
        (
            "x, w[O, I], a[R, I], b[O, R], scale: float = 2.0",
            "F.linear(x, w) + scale * F.linear(F.linear(x, a), b)",
            "grad_projected",
            "projected_projected",
        ),
        (
            "x[..., D], w[D]",
            "h = x.float()\nreturn (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-5)).type_as(x) * w",
            "h_hat",
            "_type_as",
        ),
    ],
    ids=["no word twice", "a cast as its argument"],
)
def test_a_returned_value_is_called_by_its_role(
    inputs: str, forward: str, name: str, bad: str
) -> None:
    text = text_of(spec_of(inputs, forward=forward))
    assert f"{name} = " in text
    assert bad not in text


def test_both_halves_of_a_gradient_have_names() -> None:
    lines = backward(
        "x[*batch, T, D], cos[T, H; const], sin[T, H; const]",
        "x1, x2 = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]\n"
        "return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)",
    )
    assert "\n".join(lines).count("grad_output[") == 2


@pytest.mark.parametrize(
    "inputs, forward, line",
    [
        ("x, y", "torch.sin(x * y) * torch.exp(x * y)", "x_y = x * y"),
        ("w, rgb", "torch.sin(w * rgb) * torch.exp(w * rgb)", "weighted_rgb = w * rgb"),
        ("x, mask", "torch.sin(x * mask) * torch.exp(x * mask)", "masked_x = x * mask"),
        ("iou, y", "torch.sin(1 + iou) * y", "one_plus_iou = 1 + iou"),
        ("log_p, y", "torch.exp(log_p) * y", "p = torch.exp(log_p)"),
        ("q_log_p, y", "torch.exp(q_log_p) * y", "q_p = torch.exp(q_log_p)"),
        (
            "neg_log_p, y",
            "torch.exp(neg_log_p) * y",
            "exp = torch.exp(neg_log_p)",
        ),
    ],
)
def test_a_product_and_a_sum_are_called_by_what_they_are_of(
    inputs: str, forward: str, line: str
) -> None:
    assert line in backward(inputs, forward)
