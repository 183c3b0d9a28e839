"""Straight-line statements, and what is said of those that no formula holds."""

import ast

import pytest

from scaffold.formula import assigned
from scaffold.formula.statements import words_on
from tests.formula.parsing import again, formula, problems, text_of


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("for i in x: pass", "a loop is not allowed in a formula"),
        ("import os", "an import is not allowed in a formula"),
        ("del x", "a del is not allowed in a formula"),
        ("return x", "a return must be the last statement"),
        ("print(x)", "a print is not allowed in a formula"),
        ("x.relu()", "the result of 'x.relu()' is not used"),
        ("x + y", "'x + y' does nothing"),
    ],
)
def test_each_is_called_what_python_calls_it(source: str, said: str) -> None:
    assert words_on(ast.parse(source).body[0])[0] == said


def test_a_long_statement_is_shown_shortened() -> None:
    said, _ = words_on(ast.parse(" + ".join(["something"] * 20)).body[0])
    assert "..." in said and len(said) < 70


def test_what_is_assigned() -> None:
    found = formula("a = x\nif p:\n    b = a\nelse:\n    b = y\nb.add_(a)\nreturn b")
    assert assigned(found) == {"a", "b"}


def test_the_statements_come_in_their_order() -> None:
    source = "a = x * 2\nb, c = a, y\nreturn b + c"
    assert text_of(formula(source)) == source


@pytest.mark.parametrize("typed", ["", ": Tensor"])
def test_a_gradient_reads_its_optional_input_with_a_type_or_without(typed: str) -> None:
    source = f"grad_bias{typed} = bias * 2"
    assert again(source, targets="grad_bias") == "grad_bias = bias * 2"


@pytest.mark.parametrize("typed", ["", ": list[Tensor]"])
def test_no_item_of_a_list_is_assigned_with_a_type_or_without(typed: str) -> None:
    found = problems(f"ys{typed} = [x, y]\nys[0] = w\nreturn torch.stack(ys)")
    assert len(found) == 1
    assert "an item of the list 'ys' is assigned" in found[0]
