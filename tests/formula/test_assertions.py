"""What a formula refuses to run with."""

import ast

import pytest

from scaffold.formula import is_check, raises
from tests.formula.parsing import again, formula, problems


@pytest.mark.parametrize(
    "source",
    [
        "assert x.dim() == 2\nreturn x",
        "assert x.dim() == 2, f'{x.shape} has {x.dim():d} dims'\nreturn x",
        "if p > 1:\n    raise ValueError(f'p is {p}')\nreturn x",
        "if p > 1:\n    raise ValueError\nreturn x",
        "assert bias is None or bias.dim() == 1, bias\nreturn x",
        "assert p, type(x).__name__\nreturn x",
    ],
)
def test_checks_come_back_as_they_were(source: str) -> None:
    assert ast.dump(ast.parse(again(source, kept=True))) == ast.dump(ast.parse(source))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise KeyError(p)\nreturn x", "this cannot be raised"),
        ("y = f'{x}'\nreturn y", "an f-string is not allowed in a formula"),
        ("y = repr(x)\nreturn y", "unknown name 'repr'"),
    ],
)
def test_what_is_no_check(source: str, message: str) -> None:
    assert message in "\n".join(problems(source, kept=True))


def test_a_check_assigns_nothing_and_a_raise_ends_a_run() -> None:
    found = formula("assert p\nif p > 1:\n    raise ValueError(p)\nreturn x", kept=True)
    first, choice = found.statements
    assert is_check(first) and not is_check(choice)
    assert not raises([first]) and not raises([choice])
    always = formula("raise ValueError(p)\nreturn x", kept=True)
    assert raises(always.statements)
