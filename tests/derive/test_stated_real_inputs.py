"""Complex inputs of an op with stated gradients: refused if the text multiplies by a value of theirs and conjugates none."""

from contextlib import nullcontext

import pytest
import torch

from tests.derive.building import load, op_text

PRODUCT = "x, y", "x * y"
SIGMOID = "x", "1 / (1 + torch.exp(-x))"


@pytest.mark.parametrize(
    ("inputs", "forward", "grad", "message"),
    [
        (*SIGMOID, {"x": "grad_output * output * (1 - output)"}, "x must be real"),
        (
            *PRODUCT,
            {"x": "grad_output * y", "y": "grad_output * x"},
            "x and y must be real",
        ),
        # Of values of the forward alone, only a function that makes real ones leaves the dtype of the gradient in doubt.
        (
            "x",
            "n = x.abs().sum()\nreturn x / n",
            {"x": "grad_output / n"},
            "x must be real",
        ),
        ("x", "x.exp_()", {"x": "grad_output * output"}, "x must be real"),
        # One of them conjugates, the other one should.
        (
            "x, y",
            "x * torch.exp(y)",
            {"x": "grad_output * torch.exp(y).conj()", "y": "grad_output * output"},
            "x and y must be real",
        ),
        ("x", "3 * x.conj()", {"x": "3 * grad_output"}, "x must be real"),
        # What the forward rejects is another value, or a branch avoids it.
        (
            "x[N], w[N]",
            "x * w[: x.shape[0] // 1]",
            {"x": "grad_output * w", "w": "grad_output * x"},
            "x and w must be real",
        ),
        (
            "x, b: bool = False",
            "torch.sign(x) * x if b else x * x",
            {"x": "2 * grad_output * x"},
            "x must be real",
        ),
    ],
)
def test_a_complex_input_is_refused(
    inputs: str, forward: str, grad: dict[str, str], message: str
) -> None:
    options = {"dirty": ["x"]} if "exp_" in forward else {}
    op = load(op_text(inputs, forward=forward, grad=grad, **options)).some_op
    for dtype in (torch.double, torch.cdouble):
        leaves = [torch.rand(3, dtype=dtype, requires_grad=True) for _ in grad]

        refused = pytest.raises(TypeError, match=message)
        # Where an input may be complex and the output real, forward's context refuses it.
        with refused if dtype.is_complex else nullcontext():
            # `* 1`: a leaf is not changed in place.
            total = op(*(leaf * 1 for leaf in leaves)).abs().sum()
            torch.autograd.grad(total, leaves)


@pytest.mark.parametrize(
    ("inputs", "forward", "grad"),
    [
        # It conjugates.
        (*PRODUCT, {"x": "grad_output * y.conj()", "y": "grad_output * x.conj()"}),
        ("x", "x.abs()", {"x": "grad_output * x.sgn()"}),
        ("x", "x.real", {"x": "torch.complex(grad_output, 0 * x.real)"}),
        # It reads no value of an input.
        ("x", "x.float()", {"x": "grad_output"}),
        ("x, scale: float", "x * scale", {"x": "grad_output * scale"}),
        (
            "x[N, D]",
            "x[:, 1:]",
            {"x": "F.pad(grad_output, (x.shape[1] - 1, 0))[:, 1:]"},
        ),
        # It reads no values but for a shape or a mask; some calls of aten conjugate.
        ("x", "x[:, 0]", {"x": "torch.cat((grad_output, x.new_zeros(x.shape)))"}),
        (
            "x",
            "torch.where(x == 1, x, 0)",
            {"x": "torch.where(x == 1, grad_output, 0)"},
        ),
        ("x", "x.tanh()", {"x": "torch.ops.aten.tanh_backward(grad_output, output)"}),
        # PyTorch refuses complex ones in the forward.
        ("x", "torch.round(x)", {"x": "grad_output * (x.abs() < 1)"}),
        ("x", "torch.relu(x)", {"x": "grad_output * (output > 0)"}),
        # They are declared complex.
        ("x[N; complex]", "x * x", {"x": "grad_output * 2 * x"}),
    ],
)
def test_other_texts_have_no_line(
    inputs: str, forward: str, grad: dict[str, str]
) -> None:
    text = op_text(inputs, forward=forward, grad=grad)
    assert "must be real" not in text


def test_nothing_is_said_where_a_function_is_not_pytorchs() -> None:
    text = op_text(
        "x",
        forward="forward(x)",
        grad={"x": "backward(grad_output, x)"},
        **{"import": ["kernels:forward, backward"]},
    )
    assert "must be real" not in text


def test_an_input_without_a_gradient_is_refused_by_itself() -> None:
    """Of a complex x beside a real scale the gradient is right."""
    text = op_text(
        "x[..., D], scale[D; const]",
        forward="x * scale",
        grad={"x": "grad_output * scale"},
    )
    op = load(text).some_op
    x = torch.randn(2, 3, dtype=torch.cdouble, requires_grad=True)
    scale = torch.rand(3, dtype=torch.double)
    found, right = (
        torch.autograd.grad(value.abs().sum(), x) for value in (op(x, scale), x * scale)
    )
    torch.testing.assert_close(found, right)
    with pytest.raises(TypeError, match="scale must be real"):
        op(x, scale + 1j)


def test_of_any_number_of_results_the_inputs_are_asked() -> None:
    text = op_text(
        "x",
        outputs="*parts",
        forward="x.square().chunk(2)",
        grad={"x": "2 * x * torch.cat(grad_parts)"},
        style="combined",
    )
    op = load(text).some_op
    x = torch.randn(4, requires_grad=True)
    found, right = (
        torch.autograd.grad(parts[0].sum(), x) for parts in (op(x), x.square().chunk(2))
    )
    torch.testing.assert_close(found, right)
    with pytest.raises(TypeError, match="x must be real"):
        op(x + 1j)


def test_of_stated_and_derived_gradients_both_are_asked() -> None:
    text = op_text(
        "x, w[N; const], b", forward="x * w + b", grad={"x": "grad_output * w"}
    )
    assert "must all be real" not in text
    op = load(text).some_op
    x, w, b = (torch.randn(3, dtype=torch.cdouble) for _ in range(3))
    with pytest.raises(TypeError, match="w must be real"):
        op(x.requires_grad_(), w, b).abs().sum().backward()
