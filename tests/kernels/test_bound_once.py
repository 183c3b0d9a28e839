"""Names bound once: each value has a name of its own, and numbers have none."""

from scaffold.formula import emit, emit_lines
from scaffold.kernels.bound_once import bound_once
from tests.derive.building import spec_of


def lines_of(inputs: str, forward: str) -> list[str]:
    formula = bound_once(spec_of(inputs, "op", forward=forward)).forward
    assert formula is not None and formula.result is not None
    return [*emit_lines(formula.statements), emit(formula.result)]


def test_a_second_value_has_a_name_of_its_own() -> None:
    forward = "x = x + y\nx = x * x\nreturn x * y"
    assert lines_of("x, y", forward) == [
        "new_x = x + y",
        "new_x_2 = new_x * new_x",
        "new_x_2 * y",
    ]


def test_dtypes_and_numbers_stand_where_they_are_read() -> None:
    forward = (
        "dtype = x.dtype\nhalf = x.shape[-1] // 2\ntop = 2 ** bits - 1\nx = x / top\n"
        "return x.to(dtype) * half"
    )
    assert lines_of("x[N, D], bits: int = 8", forward) == [
        "new_x = x / (2**bits - 1)",
        "new_x.to(x.dtype) * (x.shape[-1] // 2)",
    ]


def test_a_formula_with_branches_stays() -> None:
    forward = "if flag:\n    x = x + y\nreturn x * y"
    spec = spec_of("x, y, flag: bool = True", "op", forward=forward)
    assert bound_once(spec) is spec
