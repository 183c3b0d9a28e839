"""TOML: what a file holds, and where it holds it."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffold.errors import ScaffoldError
from scaffold.spec.toml import Places, parse_toml, read_ops
from tests.properties.budgets import searched

TEXT = '''\
# [ops.comment]
title.part = 'a' # inputs = 'no'
"quoted.key" = """
two "" lines
[ops.none]
"""
[ops.linear] # why
inputs = 'x, w'
grad.x = """g"""
dirty = [ # [ops.neither]
  'a', "b\\"",
  ['c'],
]
init = { weight = 'zeros', 'bias' = "ones" }
forward = \'\'\'
return x
\'\'\'
[[conv]]
x = 'N'
[[conv]]
x = 'M'
[conv.sub]
y = [1, { z = true }]
'''


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("title", "part"), "2:7", "2:15"),
        (("quoted.key",), "3:1", "4:1"),
        (("ops", "linear"), "7:6", "7:6"),
        (("ops", "linear", "inputs"), "8:1", "8:11"),
        (("ops", "linear", "grad", "x"), "9:6", "9:13"),
        (("ops", "linear", "dirty", "0"), "11:3", "11:4"),
        (("ops", "linear", "dirty", "1"), "11:8", "11:9"),
        (("ops", "linear", "dirty", "2", "0"), "12:4", "12:5"),
        (("ops", "linear", "init", "weight"), "14:10", "14:20"),
        (("ops", "linear", "init", "bias"), "14:28", "14:38"),
        (("ops", "linear", "forward"), "15:1", "16:1"),
        (("conv", "0", "x"), "19:1", "19:6"),
        (("conv", "1", "x"), "21:1", "21:6"),
        (("conv", "1", "sub", "y", "1", "z"), "23:11", "23:15"),
    ],
)
def test_a_key_and_its_value_are_found(
    path: tuple[str, ...], key: str, value: str
) -> None:
    places = Places(TEXT, "ops.toml")
    assert str(places(path, key=True)) == f"ops.toml:{key}"
    assert str(places(path)) == f"ops.toml:{value}"


def test_what_is_absent_has_the_place_of_the_table_around_it() -> None:
    places = Places(TEXT, "ops.toml").below(("ops", "linear"))
    assert str(places(("backward",))) == "ops.toml:7:6"
    assert str(places(("dirty", "7"))) == "ops.toml:10:1"
    assert str(Places("", "ops.toml")(("ops",))) == "ops.toml:1:1"


def test_ops_come_with_their_places() -> None:
    first, second = read_ops("[ops.a]\ninputs='x'\n[ops]\nb.inputs = 'y'", "ops.toml")
    assert (first.name, first.raw) == ("a", {"inputs": "x"})
    assert (second.name, second.raw) == ("b", {"inputs": "y"})
    assert str(second.locate(("inputs",))) == "ops.toml:4:13"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[ops.a]\n[opps.b]\n",
            "ops.toml:2:2: unknown table 'opps'\nhint: did you mean 'ops'?",
        ),
        ("[ops]\na = 1\n", "ops.toml:2:1: 'ops.a' must be a table\nhint: [ops.a]"),
        (
            "a = x * 2",
            "ops.toml:1:5: not valid TOML: invalid value\nhint: write: a = 'x * 2'",
        ),
        ("ops = 1", "ops.toml:1:1: 'ops' must be a table\nhint: [ops.NAME]"),
        ("a = ", "ops.toml:1:5: not valid TOML: invalid value"),
        ("a = 'x", 'ops.toml:1:7: not valid TOML: expected "\'"'),
        (
            f"b = 1\na = {'9' * 5000}",
            "ops.toml:2:5: not valid TOML: a number has thousands of digits",
        ),
    ],
)
def test_what_is_no_file_of_ops_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        read_ops(text, "ops.toml")
    assert str(caught.value) == message


@given(st.text("[]{}='\"\\\n#,. ab1_-", max_size=60))
def test_any_text_is_toml_or_an_error_with_a_place(text: str) -> None:
    try:
        parse_toml(text, "ops.toml")
    except ScaffoldError as error:
        assert error.location is not None
    assert Places(text, "ops.toml")(("a",)).line <= text.count("\n") + 1


SCALARS = st.one_of(
    st.integers(), st.booleans(), st.text("ab'\"\\\n#=[]{},.", max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text("ab.-", min_size=1, max_size=3), inner, max_size=3),
    ),
    max_leaves=6,
)


def written(value: Any) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[ {', '.join(written(item) for item in value)} ]"
    if isinstance(value, dict):
        items = (f"{written(key)} = {written(item)}" for key, item in value.items())
        return f"{{ {', '.join(items)} }}"
    if "'" not in value and "\n" not in value:
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        pairs = [(key, item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(str(k), item) for k, item in enumerate(value)]
    else:
        return [(path, value)]
    return [found for key, item in pairs for found in leaves(item, (*path, key))]


@searched(40, st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES))
def test_the_place_of_every_value_is_where_it_was_written(data: dict[str, Any]) -> None:
    text = "".join(f"{key} = {written(value)}\n" for key, value in data.items())
    assert tomllib.loads(text) == data
    lines = text.split("\n")
    for path, value in leaves(data):
        place = Places(text, "ops.toml")(path)
        here = lines[place.line - 1][place.column - 1 :]
        stands = written(value)
        assert here.startswith(stands[1:-1] if isinstance(value, str) else stands)


@pytest.mark.parametrize("text", ["", "#:schema ./scaffold.schema.json\n", "[ops]\n"])
def test_a_file_without_ops_is_one(text: str) -> None:
    assert read_ops(text, "ops.toml") == ()
