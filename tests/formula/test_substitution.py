"""Names replaced, and what has to be asked before."""

import ast

import pytest

from scaffold.formula.substitution import (
    is_pure,
    is_simple,
    renamed,
    substituted,
    versioned,
    with_sizes,
)
from scaffold.formula.text import Scope
from tests.formula.parsing import expression


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def unparsed(item: ast.stmt) -> str:
    return ast.unparse(ast.fix_missing_locations(item))


def test_a_value_takes_the_place_of_its_name() -> None:
    (item,) = body("a = x + f(x)")
    assert ast.unparse(substituted(item, {"x": expression("y * 2")})) == (
        "a = y * 2 + f(y * 2)"
    )


def test_a_name_is_renamed_where_it_is_read_and_assigned() -> None:
    (item,) = body("x = x + y")
    assert ast.unparse(renamed(item, {"x": "z"})) == "z = z + y"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = x.float()\na = x", "z = v.float()\na = z"),
        ("a = x\nx = x + 1\nb = x", "a = v\nz = v + 1\nb = z"),
        ("a = x", "a = v"),
        (
            "if t:\n    x = x + 1\na = x",
            "if t:\n    z = v + 1\nelse:\n    z = v\na = z",
        ),
        ("x[0] = 1", "v[0] = 1"),
        ("x += 1", None),
    ],
)
def test_a_parameter_that_is_assigned_has_another_name_from_there_on(
    text: str, wanted: str | None
) -> None:
    found = versioned(body(text), "x", expression("v"), "z")
    assert (found and "\n".join(map(unparsed, found))) == wanted


@pytest.mark.parametrize("text", ["x", "1", "-1", "torch.float32", "(1, x)"])
def test_what_may_stand_anywhere(text: str) -> None:
    assert is_simple(expression(text))


@pytest.mark.parametrize("text", ["x + y", "x.shape", "f(x)", "(1, f(x))"])
def test_what_may_not(text: str) -> None:
    assert not is_simple(expression(text))


@pytest.mark.parametrize(
    "text", ["x.add_(1)", "torch.exp(x, out=y)", "x[0] = 1", "x += 1", "torch.rand(3)"]
)
def test_what_depends_on_when_it_runs(text: str) -> None:
    assert not is_pure(body(text))


def test_what_does_not() -> None:
    assert is_pure(body("a = x.add(1) + y.__len__()"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x * D ** 0.5", "x * x.shape[-1] ** 0.5"),
        (
            "y = x.view(N, D)\ny / D",
            "y = x.view(x.shape[0], x.shape[-1])\ny / x.shape[-1]",
        ),
        # x has other sizes below its assignment
        ("x = x.mT\nx / D", "D = x.shape[-1]\nx = x.mT\nx / D"),
        # the text's own names, and those of PyTorch
        ("N = 3\nx * N", "N = 3\nx * N"),
        ("f = lambda D: D * 2\nf(x)", "f = lambda D: D * 2\nf(x)"),
        ("def D(x):\n    return x\nD(x)", "def D(x):\n    return x\nD(x)"),
        ("F.relu(x) * eps", "F.relu(x) * eps"),
    ],
)
def test_a_declared_size_is_read_from_its_input(text: str, wanted: str) -> None:
    sizes = {
        "N": "x.shape[0]",
        "D": "x.shape[-1]",
        "F": "x.shape[1]",
        "eps": "w.shape[0]",
    }
    found = with_sizes(body(text), Scope(frozenset({"x", "eps"}), sizes=sizes))
    assert "\n".join(map(unparsed, found)) == wanted


def test_a_size_is_placed_at_its_name() -> None:
    found = with_sizes(body("x * D"), Scope(frozenset("x"), sizes={"D": "x.shape[1]"}))
    constant = next(x for x in ast.walk(found[0]) if isinstance(x, ast.Constant))
    assert (constant.col_offset, constant.end_lineno) == (4, constant.lineno + 1)
