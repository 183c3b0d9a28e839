"""Statements that assign one target each, and return once."""

import ast

import pytest

from scaffold.formula.desugar import plain, with_one_return

CASES = [
    ("v[0] = x", "v[0] = x"),
    ("a, b = x, y", "a, b = x, y"),
    ("v[0], v[-1] = x, y", "v_part, v_part_2 = x, y\nv[0] = v_part\nv[-1] = v_part_2"),
    ("v[0], w = x, y", "v_part, w = x, y\nv[0] = v_part"),
    ("v[0], *w = x", "v_part, *w = x\nv[0] = v_part"),
    ("*v[0], w = x", "*v_part, w = x\nv[0] = v_part"),
    ("(v[0], w), z = x", "(v_part, w), z = x\nv[0] = v_part"),
    ("[v[0], w] = x", "v_part, w = x\nv[0] = v_part"),
    # A name that is assigned beside a part is read by it before, or after.
    ("v[i], i = x, 1", "v_part, i_part = x, 1\nv[i] = v_part\ni = i_part"),
    ("i, v[i] = 1, x", "i_part, v_part = 1, x\ni = i_part\nv[i] = v_part"),
    ("a = b = x", "a = x\nb = a"),
    ("a = v[0] = x", "a = x\nv[0] = a"),
    ("v[0] = a = x", "value = x\nv[0] = value\na = value"),
    ("a, b = c = x", "value = x\na, b = value\nc = value"),
    ("v[0], v_part = x", "v_part_2, v_part = x\nv[0] = v_part_2"),
    ("if t:\n    v[0], w = x\n", "if t:\n    v_part, w = x\n    v[0] = v_part"),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_each_statement_assigns_one_target(text: str, wanted: str) -> None:
    found = plain(ast.parse(text).body)
    tree = ast.fix_missing_locations(ast.Module(found, []))
    assert ast.unparse(tree) == ast.unparse(ast.parse(wanted))


def test_what_is_given_stays_as_it_is() -> None:
    body = ast.parse("v[0], w = x, y").body
    before = ast.dump(body[0])
    plain(body)
    assert ast.dump(body[0]) == before


RETURNS = [
    (
        "if t:\n    return a\nreturn b",
        "if t:\n    result = a\nelse:\n    result = b\nreturn result",
    ),
    (
        "if t:\n    return a, b\nc = d\nreturn c, d",
        "if t:\n    result_0, result_1 = (a, b)\nelse:\n    c = d\n    "
        + "result_0, result_1 = (c, d)\nreturn (result_0, result_1)",
    ),
    # Nothing follows the last test: an unknown mode is an error.
    (
        "if mode == 'a':\n    return x",
        "if mode == 'a':\n    result = x\nelse:\n    raise ValueError(f'unknown mode: {mode}')\nreturn result",
    ),
    ("result = x\nif t:\n    return a\nreturn result", None),
]


@pytest.mark.parametrize(("text", "wanted"), RETURNS)
def test_one_return_stands_at_the_end(text: str, wanted: str | None) -> None:
    done = ast.unparse(ast.Module(with_one_return(ast.parse(text).body), []))
    if wanted is None:
        assert "result_value" in done, "the name is taken"
    else:
        assert done == ast.unparse(ast.parse(wanted))


@pytest.mark.parametrize(
    "text",
    [
        "if t:\n    return a\nb = c",  # not every way returns
        "if t:\n    return a, b\nreturn c",  # not as many
        "if t:\n    if u:\n        return a\n    v = b\nelse:\n    w = c\nreturn v",  # `return v` would stand twice
    ],
)
def test_what_would_repeat_a_statement_stays(text: str) -> None:
    body = ast.parse(text).body
    assert list(map(ast.dump, with_one_return(body))) == list(map(ast.dump, body))
