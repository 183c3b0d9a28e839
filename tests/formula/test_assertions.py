"""What a formula refuses to run with."""

import ast

import pytest

from scaffold.formula import is_check, raises, refuses
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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if scale is not None:\n    x = x * scale + bias.exp()\nreturn x",
         "if scale is not None:\n    assert bias is not None\n    x = x * scale + bias.exp()\nreturn x"),
        ("if p:\n    x = bias.exp()\n    x = x @ bias\nreturn x",
         "if p:\n    assert bias is not None\n    x = bias.exp()\n    x = x @ bias\nreturn x"),
        ("return bias.exp() if scale is not None else x",
         "assert scale is None or bias is not None\nreturn bias.exp() if scale is not None else x"),
        ("return x if not p else bias.exp()",
         "assert not p or bias is not None\nreturn x if not p else bias.exp()"),
        ("y = x + (bias.exp() if scale is not None and p else 0)\nreturn y",
         "assert not (scale is not None and p) or bias is not None\ny = x + (bias.exp() if scale is not None and p else 0)\nreturn y"),
        ("if scale is not None and bias.dim() > 1:\n    x = x * scale\nreturn x",
         "assert scale is None or bias is not None\nif scale is not None and bias.dim() > 1:\n    x = x * scale\nreturn x"),
    ],
)  # fmt: skip
def test_an_optional_read_where_another_is_tested_comes_with_it(
    source: str, expected: str
) -> None:
    text = again(source, kept=True)
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(expected))


@pytest.mark.parametrize(
    "source",
    [
        "return bias.exp() if bias is not None or p else x",
        "if bias is None:\n    x = x @ bias\nreturn x",
        "y = x * 1 if p else x\nreturn y @ bias",
    ],
)
def test_one_that_is_always_read_or_tested_amiss_is_told(source: str) -> None:
    assert "'bias' may be None here" in "\n".join(problems(source, kept=True))


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("assert (scale is None) == (bias is None)\nreturn x", ["scale", "bias"]),
        ("if scale is not None:\n    assert bias is not None\nreturn x", ["bias"]),
        ("if scale is not None and bias is None:\n    raise ValueError(p)\nreturn x", ["bias"]),
        ("bias = x if bias is None else bias\nassert bias is not None\nreturn x", []),
        ("if p:\n    assert bias is not None\nreturn x", []),
        ("if scale is None:\n    raise ValueError(p)\nreturn x", ["scale", "scale bias"]),
        ("for y in x:\n    if scale is not None:\n        x = y @ x\n    break\nassert bias is not None\nreturn x", ["bias", "scale bias"]),
        ("for y in x:\n    if bias is None:\n        return x\n    break\nassert bias is not None\nreturn x", []),
    ],
)  # fmt: skip
def test_which_inputs_a_forward_refuses_to_miss(
    source: str, refused: list[str]
) -> None:
    found = formula(source, kept=True)
    groups = ("scale", "bias", "scale bias")
    given = {
        each: {name: name not in each for name in ("scale", "bias")} for each in groups
    }
    assert [each for each in groups if refuses(found, given[each])] == refused
