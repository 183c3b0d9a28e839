"""Gradients that a formula states: of any number of inputs tensor by tensor, beside what a file imports."""

from scaffold.derive.backward_program import lines_of
from scaffold.derive.stated_gradients import element_lines
from scaffold.formula import emit, emit_lines
from scaffold.spec import OpSpec, TensorInput
from tests.derive.building import op_text
from tests.formula.parsing import formula

SPEC = OpSpec("op", "Op", (TensorInput("w"), TensorInput("tensors", variadic=True)))


def test_lines_that_read_the_index_stand_where_it_is() -> None:
    source = (
        "h = w * 2\nk = h * i\nm = k + 1\ngrad_w = h\ngrad_tensors = m * tensors[i]"
    )
    parsed = formula(
        source,
        names="w tensors i",
        optional="",
        targets="grad_w grad_tensors",
    )
    lines = lines_of(parsed.statements, ["w", "tensors"])
    (element,), rest = element_lines(SPEC, lines)
    assert element.name == "tensors"
    assert emit_lines(element.statements) == ["k = h * i", "m = k + 1"]
    assert emit(element.value) == "m * tensors[i]"
    assert emit_lines([line.statement for line in rest]) == ["h = w * 2", "grad_w = h"]


def test_a_gradient_hides_what_its_file_imports_by_that_name() -> None:
    """It was taken for another local: the gradient was derived, and not the one that is stated."""
    text = op_text(
        "x, y",
        forward="x * y",
        backward="grad_x, grad_y = pair(grad_output, y)",
        **{"import": ["kernels:pair", "kernels:grad_x"]},
    )
    assert " grad_x, grad_y = pair(grad_output, y)\n" in text


def test_a_gradient_that_is_stated_to_be_none_is_not_derived() -> None:
    text = op_text("x, y", forward="x * y", backward="return grad_output * y, None")
    assert "grad_output * y" in text and "grad_output * x" not in text
    more = op_text(
        "x, n: float", forward="x * n", backward="return grad_output * n, None"
    )
    assert "return grad_output * ctx.n, None" in more
