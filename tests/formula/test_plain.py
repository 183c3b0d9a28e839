"""Statements that assign one target each."""

import ast

import pytest

from scaffold.formula.desugar import plain

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
