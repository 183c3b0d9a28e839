"""The gradient of any number of inputs, tensor by tensor."""

from scaffold.derive.backward_program import lines_of
from scaffold.derive.stated_gradients import element_lines
from scaffold.formula import emit, emit_lines
from scaffold.spec import OpSpec, TensorInput
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
