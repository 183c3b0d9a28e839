"""A proof asks of more than the tests' values: second derivatives, other types, values and layouts, other gradients of outputs."""

from typing import Any

import pytest

from tests.verify.ops import texts, verdict

PRODUCT = {"inputs": "x[N], y[N]", "forward": "x * y"}


def failure(grad: dict[str, str], **raw: Any) -> str:
    found = verdict(grad=grad, **{**PRODUCT, **raw}).failure
    return f"{found.subject}: {found.words}" if found else ""


def test_a_second_derivative_that_is_wrong_for_one_number_of_dims_is_refused() -> None:
    cube: dict[str, Any] = {"inputs": "x", "forward": "x**3"}
    assert failure({"x": "grad_output * 3 * x**2"}, **cube) == ""
    said = failure(
        {"x": "grad_output * 3 * (x.detach() if x.ndim == 3 else x)**2"}, **cube
    )
    assert said == "grad_x: right, but its own derivative is not"


@pytest.mark.parametrize(
    "grad_x", ["grad_output * y.detach()", "grad_output.detach() * y"]
)
def test_a_gradient_whose_own_derivative_is_wrong_is_refused(grad_x: str) -> None:
    grad = {"x": grad_x, "y": "grad_output * x"}
    assert failure(grad) == "grad_x: right, but its own derivative is not"
    assert failure(grad, **{"once-differentiable": True}) == ""


def test_a_gradient_that_is_wrong_in_float32_is_refused() -> None:
    grad_x = "grad_output * y * (1 if x.dtype == torch.float64 else 1.01)"
    said = failure({"x": grad_x, "y": "grad_output * x"})
    assert said.startswith("grad_x: wrong in float32: off by ")


def test_a_gradient_that_autocast_makes_raise_is_refused() -> None:
    linear = {"inputs": "x[N, D], w[D, H]", "forward": "x @ w"}
    grad = {
        "x": "torch.tensordot(grad_output, w, dims=([1], [1]))",
        "w": "x.t() @ grad_output",
    }
    said = failure(grad, **linear)
    assert said.startswith("grad_x: under autocast: raised RuntimeError: both")
    assert failure(grad, **linear, amp="off") == ""


def test_another_number_than_the_default_is_tried() -> None:
    raw = {"inputs": "x[N], p: float = 2.0", "forward": "x * p"}
    assert failure({"x": "grad_output * 2"}, **raw) == "grad_x: factor 2"
    assert failure({"x": "grad_output * p"}, **raw) == ""
    raw = {"inputs": "x[N], k: int = 1", "forward": "x * k"}
    assert failure({"x": "grad_output"}, **raw) == "grad_x: factor 1/2"


def test_a_string_that_the_forward_compares_is_tried() -> None:
    raw: dict[str, Any] = {
        "inputs": "x[N], reduction: str = 'sum'",
        "forward": "x.mean() if reduction == 'mean' else x.sum()",
    }
    said = failure({"x": "grad_output.expand(x.shape)"}, **raw)
    assert said == "grad_x: factor 2"


def test_a_string_that_is_none_of_those_that_are_compared_is_tried() -> None:
    raw: dict[str, Any] = {
        "inputs": "x[N], reduction: str = 'mean'",
        "forward": "x if reduction == 'none' else x.mean() if reduction == 'mean' else x.sum()",
    }
    grad = (
        "grad_output * torch.ones_like(x) / (1 if reduction == 'none' else x.numel())"
    )
    assert failure({"x": grad}, **raw) == "grad_x: factor 1/2"


def test_a_shape_that_holds_for_the_default_alone_may_be_declared() -> None:
    found = verdict(
        frozenset("x"),
        inputs="x[N, D], dim: int = -1",
        forward="x.sum(dim)",
        outputs="s[N]",
        derive=True,
    )
    assert found.failure is None


def test_what_the_forward_refuses_is_told_of_before_a_case_that_it_takes_by_accident() -> (
    None
):
    found = verdict(
        frozenset("xy"),
        inputs="x[N, D], y[N]",
        forward="torch.cat([x, y], 1)",
        derive=True,
    ).failure
    assert found is not None
    assert (found.subject, found.case) == ("forward", "base")


def test_a_gradient_that_is_wrong_of_large_values_alone_is_refused() -> None:
    raw = {"inputs": "x[N, D]", "forward": "torch.exp(x / 8)"}
    right = "grad_output * torch.exp(x / 8) / 8"
    assert failure({"x": right}, **raw) == ""
    said = failure({"x": f"{right} * (x > -6)"}, **raw)
    assert said == "grad_x: wrong where values are 8 times those of the tests"


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("x.dtype == torch.float16", "in float16: off by "),
        ("x.dtype == torch.bfloat16", "in bfloat16: off by "),
        ("x == 0", "where all values of x are about 0"),
        ("x > 30", "where all values of x are about 1000"),
        ("(x > 500) & (x < 600)", "where all values of x are about 600"),
        ("bool(x.numel() > 1 and (x > 0).all())", "where all values of x are about 1"),
        ("grad_output.abs() > 100", "where grad_output is 1e+06 times as large"),
        (
            "0 in grad_output.stride()",
            "where grad_output is an expanded 1, as .sum() makes it",
        ),
        ("0 in x.stride()", "where the inputs are expanded"),
        ("x.storage_offset() > 0", "where the inputs are parts of longer tensors"),
    ],
)
def test_a_gradient_that_is_wrong_in_a_corner_is_refused(
    condition: str, said: str
) -> None:
    raw = {"inputs": "x[N, D]", "forward": "x * x + x"}
    right = "grad_output * (2 * x + 1)"
    found = failure({"x": f"{right} * (1 + 1.0 * torch.as_tensor({condition}))"}, **raw)
    assert found.startswith(f"grad_x: wrong {said}")


def test_a_gradient_that_is_wrong_where_one_output_alone_is_used_is_refused() -> None:
    raw = {"inputs": "x[N]", "outputs": "a, b", "forward": "return x * 2, x * 3"}
    right = "grad_a * 2 + grad_b * 3"
    assert failure({"x": right}, **raw) == ""
    wrong = f"{right} + float(not grad_a.any()) * grad_b"
    assert failure({"x": wrong}, **raw) == "grad_x: wrong if only output 1 is used"


def test_a_gradient_that_is_wrong_of_an_infinite_mask_is_refused() -> None:
    raw = {"inputs": "x[N, D], m[N, D; const]", "forward": "torch.softmax(x + m, -1)"}
    right = "output * (grad_output - (grad_output * output).sum(-1, keepdim=True))"
    assert failure({"x": right}, **raw) == ""
    said = failure({"x": f"{right} + 0 * m"}, **raw)
    assert said == "grad_x: not finite where some values of m are -inf"


def test_a_gradient_of_a_sum_without_what_is_no_number_has_none_there() -> None:
    raw = {"inputs": "x[N]", "forward": "torch.nansum(x)"}
    assert failure({"x": "grad_output * ~x.isnan()"}, **raw) == ""
    said = failure({"x": "grad_output.expand(x.shape)"}, **raw)
    assert said == "grad_x: wrong where one value of x is nan"


def test_a_gradient_that_is_not_finite_beside_an_infinite_input_is_told() -> None:
    raw: dict[str, Any] = {"inputs": "x[N]", "forward": "torch.atan(x)"}
    assert verdict(grad={"x": "grad_output / (1 + x * x)"}, **raw).notes == ()
    found = verdict(grad={"x": "grad_output / (1 + x * x) + 0 * x"}, **raw)
    assert found.failure is None
    words = "not finite where one value of x is inf; autograd's is"
    assert found.notes == (f"grad_x is {words}",)
    wrong = "grad_output / (1 + x * x) * (1 + 1.0 * x.isneginf().any())"
    assert failure({"x": wrong}, **raw) == "grad_x: wrong where one value of x is -inf"


@pytest.mark.parametrize(
    ("raw", "grad", "wrong", "said"),
    [
        (
            {"inputs": "x[N, D], i[K; index(N)]", "forward": "x[i]"},
            "torch.zeros_like(x).index_put((i,), grad_output, accumulate=True)",
            "torch.zeros_like(x).index_add(0, i.clamp(min=0), grad_output)",
            "wrong where every i is -1",
        ),
        (
            {"inputs": "x[N, D], i[K; index(N)]", "forward": "x[i]"},
            "torch.zeros_like(x).index_add(0, i, grad_output)",  # which takes none below 0
            "torch.zeros_like(x).index_copy(0, i, grad_output)",
            "wrong only at index 0 of dim 0",
        ),
        (
            {"inputs": "x[N, D], m[N, D; bool]", "forward": "x * m"},
            "grad_output * m",
            "grad_output * m * (1 + (m.shape == (2, 3)) * (m.any(1).sum() == 1))",
            "wrong where one row of m is False",
        ),
        (
            {"inputs": "x[N; complex]", "forward": "x * 2j"},
            "grad_output * -2j",
            "grad_output * -2j * (1 + x.is_conj())",
            "wrong where the inputs are lazily conjugated",
        ),
        (
            {"inputs": "x[N], y[N]", "forward": "x * y"},
            "grad_output * y",
            "(grad_output.float() * y.float()).to(x.dtype)",
            "less precise than its input: computed in float32",
        ),
        (
            {"inputs": "x[N], k: float = 2.0", "forward": "x * k"},
            "grad_output * k",
            "grad_output * (k if k > 1 or k <= 0 else k * k)",
            "factor 1/4",
        ),
        (
            {"inputs": "x", "forward": "x * x"},
            "grad_output * 2 * x",
            "grad_output * 2 * x * (1 + (x.ndim > 4))",
            "factor 2",
        ),
        (
            {"inputs": "x[N], k[N; int]", "forward": "x * k"},
            "grad_output * k",
            "grad_output * k.abs()",
            "wrong where every k is -1",
        ),
        (
            {"inputs": "x[N; complex]", "forward": "x * x"},
            "grad_output * 2 * x.conj()",
            "grad_output * 2 * (x.conj() + (x.imag == 0))",
            "wrong where all values of x are about 0",
        ),
        (
            {"inputs": "x[N], k: int = 2", "forward": "x * k"},
            "grad_output * k",
            "grad_output * min(k, 6)",
            "factor 6/7",
        ),
        (
            {
                "inputs": "x[N], a: bool = False, b: bool = False, c: bool = False",
                "forward": "x * (2 if a else 1) * (3 if b else 1) * (4 if c else 1)",
            },
            "grad_output * (2 if a else 1) * (3 if b else 1) * (4 if c else 1)",
            "grad_output * (2 if a else 1) * (3 if b else 1) * (4 if c else 1 + (a and b))",
            "factor 2",
        ),
        (
            {
                "inputs": "x[N], how: Literal['a', 'b'] = 'a', b: bool = False",
                "forward": "x * (2 if how == 'a' else 1) * (3 if b else 1)",
            },
            "grad_output * (2 if how == 'a' else 1) * (3 if b else 1)",
            "grad_output * (2 if how == 'a' else 1) * (3 if b and how == 'a' else 1)",
            "factor 1/3",
        ),
        (
            {"inputs": "x[N; positive]", "forward": "torch.log(x)"},
            "grad_output / x",
            "grad_output / x.clamp(min=1e-3)",
            "wrong where all values of x are about 0.0001",
        ),
    ],
)
def test_a_gradient_that_is_wrong_of_rare_inputs_is_refused(
    raw: dict[str, Any], grad: str, wrong: str, said: str
) -> None:
    more = {"y": "grad_output * x"} if "y[N]" in raw["inputs"] else {}
    assert verdict(grad={"x": grad, **more}, **raw).failure is None
    assert failure({"x": wrong, **more}, **raw) == f"grad_x: {said}"


def test_a_gradient_that_is_nothing_but_rounding_is_none_of_few_digits() -> None:
    """Of two rows, each is a constant once it is normalized."""
    raw = {"inputs": "x[2, D]", "forward": "(x - x.mean(0)) / x.std(0)"}
    grad = (
        "c, s = x - x.mean(0), x.std(0)\n"
        "h = c / s\n"
        "(grad_output - grad_output.mean(0) - h * (grad_output * h).sum(0)) / s"
    )
    assert failure({"x": grad}, **raw) == ""


def test_a_gradient_that_counts_on_equal_shapes_is_told() -> None:
    loss: dict[str, Any] = {"inputs": "x, y", "forward": "((x - y) ** 2).mean()"}
    grad = "2 * grad_output * (x - y) / x.numel()"
    found = verdict(grad={"x": grad, "y": f"-{grad}"}, **loss)
    assert found.failure is None
    (note,) = found.notes
    words = "wrong where x has a first dim of 1, which broadcasts: declare the shapes"
    assert note == f"grad_x is {words}"
    declared = {**loss, "inputs": "x[N], y[N]"}
    assert verdict(grad={"x": grad, "y": f"-{grad}"}, **declared).notes == ()


def test_a_gradient_of_many_tensors_is_asked_of_each() -> None:
    raw: dict[str, Any] = {"inputs": "*tensors[N]", "forward": "sum(tensors)"}
    assert failure({"tensors": "grad_output"}, **raw) == ""
    said = failure({"tensors": "grad_output * (1 if i < 4 else 2)"}, **raw)
    assert said == "grad_tensors[4]: factor 2"


def test_of_many_optional_inputs_some_are_absent_together() -> None:
    names = "abcdef"
    forward = "\n".join(f"if {x} is not None:\n    h = h * {x}" for x in names)
    raw = {
        "inputs": "x[N], " + ", ".join(f"{name}[N; const]?" for name in names),
        "forward": f"h = x * 2\n{forward}\nreturn h",
    }
    right = " * ".join(f"({x} if {x} is not None else 1)" for x in names)
    wrong = f"grad_output * 2 * {right} * (3 if c is None and e is None else 1)"
    assert failure({"x": f"grad_output * 2 * {right}"}, **raw) == ""
    assert failure({"x": wrong}, **raw) == "grad_x: factor 3"


def test_another_slope_at_a_kink_is_told() -> None:
    raw: dict[str, Any] = {"inputs": "x[N]", "forward": "torch.relu(x)"}
    assert verdict(grad={"x": "grad_output * (x > 0)"}, **raw).notes == ()
    found = verdict(grad={"x": "grad_output * (x >= 0)"}, **raw)
    assert found.failure is None
    (note,) = found.notes
    assert note.startswith(
        "grad_x is different from autograd's where all values of x are about 0"
    )


@pytest.mark.parametrize(
    ("inputs", "forward", "grad"),
    [
        # Equal elements of a row, which only moves of another sign each tell apart.
        (
            "x[N, D]",
            "x.std(-1)",
            (
                "grad_output.unsqueeze(-1) * (x - x.mean(-1, keepdim=True)) "
                "/ ((x.shape[-1] - 1) * output.unsqueeze(-1))"
            ),
        ),
        # A row without an element that is not masked: its softmax is no number.
        (
            "x[N, D], m[N, D; bool]",
            "torch.softmax(x.masked_fill(m, float('-inf')), -1)",
            "output * (grad_output - (grad_output * output).sum(-1, keepdim=True))",
        ),
        # Expanded rows are equal, and a matrix of them has no inverse.
        ("x[N, N; spd]", "torch.logdet(x)", "grad_output * torch.linalg.inv(x).mT"),
        (
            "x[N, D; distinct]",
            "x.amax(0)",
            "grad_output * (x == output)",
        ),
    ],
)
def test_a_gradient_is_right_where_its_forward_is_no_number_or_has_a_kink(
    inputs: str, forward: str, grad: str
) -> None:
    assert failure({"x": grad}, inputs=inputs, forward=forward) == ""


def test_values_are_no_larger_than_a_domain_has_them() -> None:
    raw = {"inputs": "p[N, D; unit]", "forward": "torch.asin(p)"}
    assert failure({"p": "grad_output / torch.sqrt(1 - p * p)"}, **raw) == ""


def test_an_output_that_is_a_constant_of_the_call_is_no_difference() -> None:
    """Autograd gives it no gradient, a Function does: the derivatives of the others are compared all the same."""
    raw: dict[str, Any] = {"inputs": "x[N], b[N]?", "outputs": "a, c", "derive": True}
    forward = "return x * x, (b * 2 if b is not None else torch.zeros_like(x))"
    assert verdict(forward=forward, **raw).failure is None


@pytest.mark.parametrize(
    ("condition", "case"),
    [
        ("x.shape[0] == x.shape[1]", "N=3, D=3"),
        ("x.numel() > 1000", "N=45, D=45"),
        ("x.shape[0] > 100", "N=101"),
        ("p and b is None", "p=True, without b"),
        ("p and q", "p=True, q=True"),
        ("x.shape == (1, 1)", "N=1, D=1"),
    ],
)
def test_a_gradient_that_is_wrong_in_one_call_is_refused(
    condition: str, case: str
) -> None:
    inputs = "x[N, D], b[N; const]?, p: bool = False, q: bool = False"
    right = "grad_output * (2 if p else 3) * (5 if q else 7) * (1 if b is None else 2)"
    raw: Any = {"inputs": inputs, "forward": right.replace("grad_output", "x")}
    found = verdict(grad={"x": f"{right} * (2 if {condition} else 1)"}, **raw).failure
    assert found is not None
    assert (found.subject, found.case) == ("grad_x", case)


@pytest.mark.parametrize(
    ("part", "case"),
    [
        ("x.detach() if x.shape[0] == 1 else x", "N=1"),
        ("x.detach() if x.dtype == torch.float32 else x", "base"),
        ("torch.where(x > 6, x.detach(), x)", "base"),
        ("x if x.is_contiguous() else x.detach()", "base"),
        ("x.detach() if p else x", "p=True"),
    ],
)
def test_a_second_derivative_that_is_wrong_in_one_call_is_refused(
    part: str, case: str
) -> None:
    raw: dict[str, Any] = {"inputs": "x[N, D], p: bool = False", "forward": "x * x"}
    found = verdict(grad={"x": f"grad_output * 2 * ({part})"}, **raw).failure
    assert found is not None
    assert found.words == "right, but its own derivative is not"
    assert found.case == case


@pytest.mark.parametrize(
    ("grad", "said"),
    [
        ("", ""),
        (".clamp(-40, 40)", "wrong where grad_output is 1e+06 times as large"),
        (
            " * (2 if grad_output.stride(0) == 0 else 1)",
            "wrong where grad_output is an expanded 1, as .sum() makes it",
        ),
        (" + (grad_output == 0)", "wrong where grad_output is 0 times as large"),
        (" * (1 + (x.abs() > 9))", "wrong where values are 8 times"),
        (" * (1 + (x.dtype == torch.float32))", "wrong in float32"),
        (" * (2 if x.shape[0] > 100 else 1)", "factor 2"),
    ],
)
def test_what_autograd_does_not_see_is_asked_by_differences(
    grad: str, said: str
) -> None:
    """Of NumPy, or a kernel, nothing else says what its gradient is."""
    values = "x.detach().numpy()"
    raw: dict[str, Any] = {
        "inputs": "x[N]",
        "forward": f"torch.from_numpy(np.where({values} > 0, {values} * 2, {values}))",
        "import_": ["numpy as np"],
    }
    right = "grad_output * torch.where(x > 0, 2.0, 1.0)"
    found = failure({"x": f"({right}){grad}"}, **raw)
    assert found.startswith(f"grad_x: {said}") if said else found == ""


def test_a_surrogate_is_asked_more_of_the_function_whose_derivative_it_takes() -> None:
    raw = {"inputs": "x[N]", "forward": "torch.sign(x)", "surrogate": "x.clamp(-5, 5)"}
    assert failure({"x": "grad_output * (x.abs() <= 5)"}, **raw) == ""
    said = failure({"x": "grad_output"}, **raw)
    assert said == "grad_x: wrong where values are 8 times those of the tests"


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_a_gradient_that_is_wrong_of_another_rank_than_the_tests_is_refused(
    rank: int,
) -> None:
    wrong = f"grad_output * 2 * x * (2 if x.ndim == {rank} else 1)"
    assert failure({"x": wrong}, inputs="x", forward="x * x") == "grad_x: factor 2"


def test_a_matrix_whose_dims_are_one_size_is_no_larger_than_others() -> None:
    raw: Any = {
        "inputs": "x[N, N]",
        "forward": "x * x",
        "grad": {"x": "grad_output * 2 * x"},
    }
    checks = texts(**raw).checks
    assert '"N=45"' in checks
    assert '"N=2048"' not in checks


def test_a_gradient_beyond_float16_in_another_order_is_no_fault() -> None:
    """The sum without the scale is larger than the one with it."""
    found = verdict(
        inputs="x[N, H, W, D], gamma[1, 1, 1, D], scale[1]",
        forward="gamma * (x * torch.norm(x, p=2, dim=(1, 2), keepdim=True)) * scale + x",
        derive=True,
    )
    assert found.failure is not None
    assert "outputs up to 7e+05 leave no digits" in found.failure.words  # of a test


# --- Types


@pytest.mark.parametrize(
    ("grad", "said"),
    [
        (" * torch.ones(x.shape[-1])", "float32, but its input is "),
        (
            ".float() * 1 if x.dtype != torch.double else grad_output",
            "float32, but its input is ",
        ),
        (" * torch.ones(x.shape[-1], dtype=x.dtype)", ""),
    ],
)
def test_backward_itself_returns_the_type_of_the_inputs(grad: str, said: str) -> None:
    """In double precision all of them do."""
    raw = {"inputs": "x[N]", "forward": "x + 1"}
    found = failure({"x": f"grad_output{grad}"}, **raw)
    assert found.startswith(f"grad_x: {said}") if said else found == ""


def test_a_backward_that_raises_in_bfloat16_alone_is_told() -> None:
    """A complex number is wider: PyTorch casts its gradient back, a product of matrices does not take both."""
    forward = "S = torch.exp(1j * (x @ w))\nreturn torch.view_as_real(S)"
    raw: dict[str, Any] = {"inputs": "x[N, D], w[D, E]", "save_policy": "recompute"}
    found = verdict(**raw, forward=forward, derive=True)
    assert found.failure is None
    (note,) = [one for one in found.notes if "bfloat16" in one]
    said = "grad_x is missing in bfloat16, where plain PyTorch has it: raised Runtime"
    assert note.startswith(said)


# --- What autograd itself has wrong, or nobody asks for


def test_a_second_derivative_that_pytorch_has_wrong_is_asked_by_differences() -> None:
    backward = """
rs = torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
xh = (x - x.mean(-1, keepdim=True)) * rs
grad_x = rs * (grad_output - grad_output.mean(-1, keepdim=True) - xh * (grad_output * xh).mean(-1, keepdim=True))
grad_b = grad_output.sum_to_size(b.shape)
"""
    raw: dict[str, Any] = {
        "inputs": "x[N, D], b[D]",
        "forward": "F.layer_norm(x, (x.shape[-1],), None, b)",
    }
    assert verdict(backward=backward, **raw).failure is None
    detached = backward.replace("= rs * (", "= rs.detach() * (")
    found = verdict(backward=detached, **raw).failure
    assert found is not None
    assert found.words == "right, but its own derivative is not"


def test_the_rounding_of_a_second_derivative_is_no_mistake() -> None:
    raw: dict[str, Any] = {
        "inputs": "x[B, C, T], a[C, 1]",
        "forward": "x + torch.sin(a * x) ** 2 / a",
    }
    inner = "x * torch.sin(2 * a * x) / a - torch.sin(a * x) ** 2 / a ** 2"
    grad_x = "grad_output * (1 + torch.sin(2 * a * x))"
    grad_a = "(grad_output * ({})).sum((0, 2))[:, None]"
    assert failure({"x": grad_x, "a": grad_a.format(inner)}, **raw) == ""
    doubled = inner.replace("x * torch", "2 * x * torch")
    assert failure({"x": grad_x, "a": grad_a.format(doubled)}, **raw) != ""


QUANTIZED: dict[str, Any] = {
    "inputs": "x[N, D], s[1], qn: float = 128.0, qp: float = 127.0",
    "forward": "torch.clamp(x / s, -qn, qp) * s",
}
GRAD_S = "torch.where(x / s <= -qn, -qn, torch.where(x / s >= qp, {}, 0.0))"


@pytest.mark.parametrize(("above", "right"), [("qp", True), ("qn", False)])
def test_a_lower_limit_above_the_upper_one_is_told(above: str, right: bool) -> None:
    grad = {
        "x": "grad_output * ((x / s >= -qn) & (x / s <= qp))",
        "s": f"(grad_output * {GRAD_S.format(above)}.to(s.dtype)).sum().reshape(1)",
    }
    found = verdict(grad=grad, **QUANTIZED)
    assert (found.failure is None) is right
    assert any("qn=-128.0" in note for note in found.notes)


def test_a_gradient_that_is_wrong_below_0_is_no_matter_of_limits() -> None:
    raw = {"inputs": "x[N], k: float = 2.0", "forward": "x * max(k, 0.0)"}
    assert failure({"x": "grad_output * max(k, 0.0)"}, **raw) == ""
    assert failure({"x": "grad_output * k"}, **raw).startswith("grad_x: ")


# Of which few digits are left: the divisor nearly cancels, and what is subtracted of large values in float32.
SCALED: dict[str, Any] = {
    "inputs": "x[N, I], weight[O, I], u[O], v[I], k: float = 2.0",
    "forward": """
sigma = torch.dot(u, torch.mv(weight, v))
return F.linear(x, weight / sigma) * k
""",
    "backward": """
sigma = torch.dot(u, torch.mv(weight, v))
g = k * grad_output
grad_scaled = g.t() @ x
grad_sigma = -(grad_scaled * weight / sigma**2).sum()
grad_x = g @ (weight / sigma)
grad_weight = grad_scaled / sigma + grad_sigma * torch.outer(u, v)
grad_u = grad_sigma * torch.mv(weight, v)
grad_v = grad_sigma * torch.mv(weight.t(), u)
""",
}
ATTENTION: dict[str, Any] = {
    "inputs": "q[B, H, N, D], k[B, H, M, D], v[B, H, M, E], s: float = 0.2",
    "forward": """
scores = q @ k.mT * s
return torch.softmax(scores, -1, dtype=torch.float32).to(q.dtype) @ v
""",
    "backward": """
probs = torch.softmax(q @ k.mT * s, -1, dtype=torch.float32)
grad_probs = (grad_output @ v.mT).float()
inner = (grad_output * (probs.to(q.dtype) @ v)).sum(-1, keepdim=True).float()
g = s * (probs * (grad_probs - inner)).to(q.dtype)
grad_q = g @ k
grad_k = g.mT @ q
grad_v = probs.to(q.dtype).mT @ grad_output
""",
}
PLANTED = {
    "SCALED": (
        ("grad_weight = ", "grad_weight = 2 * "),
        ("grad_scaled / sigma + ", ""),
        ("g.t() @ x", "(x.t() @ g).reshape(weight.shape)"),
        ("g = k *", "g = abs(k) *"),
        ("sigma**2).sum()", "sigma**2)[0].sum()"),
    ),
    "ATTENTION": (
        ("probs * (grad", "2 * probs * (grad"),
        ("(grad_probs - inner)", "grad_probs"),
        ("g.mT @ q", "(q.mT @ g).mT.flip(0)"),
        ("g = s *", "g = abs(s) *"),
        ("g = s *", "g = s * (1 + 1.0 * (k > 500).all()) *"),
        (".sum(-1, keepdim=True)", "[..., :1]"),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_gradient_of_few_digits_is_right(name: str) -> None:
    assert verdict(**globals()[name]).failure is None


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [(name, *change) for name, changes in PLANTED.items() for change in changes],
)
def test_a_wrong_gradient_of_few_digits_is_refused(
    name: str, right: str, wrong: str
) -> None:
    raw = globals()[name]
    changed = raw["backward"].replace(right, wrong)
    assert changed != raw["backward"]
    assert verdict(**{**raw, "backward": changed}).failure is not None


def test_a_forward_that_raises_under_autocast_is_not_asked_there() -> None:
    found = verdict(
        frozenset("xw"),
        inputs="x[N, D], w[D, K]",
        forward="assert x.dtype == w.dtype\nreturn torch.exp(x @ w)",
        derive=True,
        amp="region",
    )
    assert found.failure is None
    assert not [one for one in found.notes if "autocast" in one]


def test_a_step_of_a_loop_makes_the_casts_of_autocast() -> None:
    """A product over leading dims takes one dtype; there is a region since the softmax is in full precision."""
    forward = """
loss = 0.0
for i in range(n):
    loss = loss + torch.softmax(x[i][:, :-1] @ w.t(), -1).sum((0, 1))
return loss
"""
    inputs = "x[M, B, T, D], w[V, D], n: int = 2"
    found = verdict(
        frozenset(["x", "w"]),
        inputs=inputs,
        require=["M >= n"],
        forward=forward.strip(),
        derive=True,
    )
    assert found.failure is None
