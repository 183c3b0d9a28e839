"""What may be None, and what a test for None tells of a name."""

import ast

import pytest

from scaffold.formula import Graph, checked_for_none, is_present
from scaffold.formula.optionality import guards, may_be_none, takes_none
from tests.formula.parsing import formula

VALUES = frozenset({"x", "abs"})


def welcome(text: str) -> set[int]:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return takes_none(call, VALUES)


@pytest.mark.parametrize(
    ("call", "positions"),
    [
        ("F.linear(x, w, b)", {2}),
        ("F.linear(x, w, bias=b)", {2}),
        ("F.linear(bias=b, input=x, weight=w)", {0}),
        ("torch.nn.functional.conv2d(x, w, b, 1)", {2}),
        ("F.layer_norm(x, w.shape, w, b, 1e-5)", {2, 3}),
        ("F.batch_norm(x, mean, var, w, b)", {1, 2, 3, 4}),
        ("torch.clamp(x, low, high)", {1, 2}),
        ("x.clamp(low, max=high)", {0, 1}),
        ("x.relu().clamp(low)", {0}),
        ("F.cross_entropy(x, y, weight=w, reduction=b)", {2}),
        ("my_kernel(x, b, scale=s)", {0, 1, 2}),
        ("kernels.forward(x, b)", {0, 1}),
    ],
)
def test_none_is_welcome(call: str, positions: set[int]) -> None:
    assert welcome(call) == positions


@pytest.mark.parametrize(
    "call",
    [
        *("torch.exp(b)", "F.relu(b)", "x.mul(b)", "abs(b)", "x.sin().add(b)"),
        *("torch.batch_norm(x, w, b)", "torch.foo.inear(x, w, b)", "linear_(x)(b)"),
    ],
)
def test_it_must_be_tested_first(call: str) -> None:
    assert not welcome(call)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("b is None", ("b", False)),
        ("b is not None", ("b", True)),
        ("b == None", None),
        ("b is x", None),
        ("x.real is None", None),
    ],
)
def test_a_test_for_none_is_the_same_as_syntax_and_as_a_node(
    source: str, told: tuple[str, bool] | None
) -> None:
    node = formula(source, names="x b", optional="").result
    assert node is not None
    syntax = ast.parse(source, mode="eval").body
    assert checked_for_none(node) == checked_for_none(syntax) == told


def test_a_written_test_is_read() -> None:
    assert checked_for_none(is_present(Graph(), "b")) == ("b", True)


@pytest.mark.parametrize(
    ("source", "there", "gone"),
    [
        ("b is not None", "b", ""),
        ("not b is not None", "", "b"),
        ("b is not None and c is not None and p", "bc", ""),
        ("b is None or c is None", "", "bc"),
        ("b is not None or p", "", ""),
        ("p > 0", "", ""),
    ],
)
def test_names_present_on_each_side_of_a_test(
    source: str, there: str, gone: str
) -> None:
    found = guards(ast.parse(source, mode="eval").body)
    assert found == (frozenset(there), frozenset(gone))


@pytest.mark.parametrize(
    ("source", "perhaps"),
    [
        ("None", True),
        ("x if p else None", True),
        ("x if None else p", False),
        ("p and None", True),
        ("x + p", False),
    ],
)
def test_an_expression_that_shows_it_may_be_none(source: str, perhaps: bool) -> None:
    node = formula(source, names="x p", optional="").result
    assert node is not None
    assert may_be_none(node) is perhaps
