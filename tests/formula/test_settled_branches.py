"""Choices that constants settle."""

import ast

import pytest

from scaffold.formula.settled_branches import folded, negated, truth_of


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("if True:\n    a = x\nelse:\n    a = y", "a = x"),
        ("if 2 > 3:\n    a = x\nelse:\n    a = y", "a = y"),
        ("if 'sum' in ('mean', 'sum'):\n    return x\nreturn y", "return x"),
        ("a = x if None is None else y", "a = x"),
        ("a = None or 1e-06", "a = 1e-06"),
        ("a = True and x", "a = x"),
        ("a = t and True and x", "a = t and x"),
        (
            "if t:\n    if False:\n        a = x\nelse:\n    a = y",
            "if not t:\n    a = y",
        ),
        ("if t == 1:\n    a = x", "if t == 1:\n    a = x"),
    ],
)
def test_what_is_left(text: str, wanted: str) -> None:
    assert ast.unparse(ast.Module(folded(ast.parse(text).body), [])) == wanted


def test_what_is_never_none() -> None:
    body = ast.parse("if x is None:\n    a = 0\nelse:\n    a = x").body
    assert ast.unparse(ast.Module(folded(body, frozenset({"x"})), [])) == "a = x"


@pytest.mark.parametrize("text", ["x", "x == 1", "1 == x", "'a' is 'a'", "x and True"])
def test_what_literals_do_not_tell(text: str) -> None:
    assert truth_of(expression(text)) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("not x", "x"), ("x is None", "x is not None"), ("x < y", "not x < y")],
)
def test_the_opposite(text: str, wanted: str) -> None:
    assert ast.unparse(negated(expression(text))) == wanted, "a NaN is not >= either"
