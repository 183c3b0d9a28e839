"""Names that statements read and bind."""

from scaffold.formula.graph import Lines
from scaffold.formula.uses import data_read, free_names, surely_written, written
from tests.formula.parsing import formula


def lines(source: str) -> Lines:
    return formula(f"{source}\nreturn x", names="x y w", optional="").statements


def test_a_change_in_place_binds_but_not_surely() -> None:
    assert written(*lines("x.exp_()")) == {"x"}
    assert surely_written(*lines("x.exp_()")) == frozenset()
    assert surely_written(*lines("a = y.exp()")) == {"a"}


def test_a_name_of_one_branch_is_not_surely_bound() -> None:
    either = lines("if y.ndim > 1:\n    a = x\n    b = x\nelse:\n    a = w")
    assert written(*either) == {"a", "b"} and surely_written(*either) == {"a"}


def test_a_read_of_a_shape_needs_no_data() -> None:
    assert data_read(*lines("a = w * y.shape[0]")) == {"w"}


def test_free_names_are_read_before_they_are_bound() -> None:
    assert free_names(lines("a = x * 2\nb = a + y")) == {"x", "y"}
