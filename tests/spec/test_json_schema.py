"""The JSON Schemas and the loaders: what one takes the other takes, in structure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.build import build
from scaffold.spec.config import read_configuration
from scaffold.spec.config_keys import KEYS as CONFIGURATION
from scaffold.spec.json_schema import configuration_schema, ops_schema, schema_text
from scaffold.spec.keys import DEFAULTS, KEYS, TOLERANCES, check_keys
from scaffold.spec.problems import KeyPath, Problems
from scaffold.spec.toml import read_ops, toml_text
from tests.cli.running import ROOT, scaffold
from tests.properties.budgets import searched
from tests.properties.specs import Raw, raws, toml

OPS = Validator(ops_schema())
TABLE = Validator(configuration_schema())
EXAMPLES = sorted(ROOT.glob("generated_examples/*/*.toml"))

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["x", "combined", "balanced", "a\x07", "\u2028", "tab\tand\nline"]),
    st.characters(categories=["Cc", "Zl", "Zp"]),
)
NUMBERS = st.one_of(
    st.integers(-3, 400), st.floats(-1, 1), st.sampled_from([0, 1e-6, 0.0])
)
TOLERANCE = st.dictionaries(
    st.sampled_from([*TOLERANCES, "esp"]), st.one_of(NUMBERS, st.booleans()), max_size=3
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    TEXTS,
    st.booleans(),
    NUMBERS,
    st.lists(st.one_of(TEXTS, st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=4), st.one_of(TEXTS, st.integers()), max_size=3),
    TOLERANCE,
)
OP_TABLES = st.one_of(
    st.dictionaries(st.sampled_from([*KEYS, "imputs"]), VALUES, max_size=4),
    st.fixed_dictionaries({"inputs": TEXTS, "tolerance": TOLERANCE}),
)


def locate(path: KeyPath, *, key: bool = False) -> Location:
    return Location("/".join(path))


def has_structure(raw: Raw) -> bool:
    """Whether the loader finds nothing amiss with keys, types and words."""
    problems = Problems(locate)
    sound = check_keys("foo", raw, problems)
    return not problems and bool({"inputs", "schema"} & sound.keys())


@searched(120, OP_TABLES)
def test_the_schema_refuses_what_the_loader_refuses_in_structure(raw: Raw) -> None:
    assert OPS.is_valid({"ops": {"foo": raw}}) == has_structure(raw)


@searched(30, raws())
def test_what_the_loader_accepts_validates(raw: Raw) -> None:
    (entry,) = read_ops(toml("made_op", raw), "ops.toml")
    build(entry.name, entry.raw, entry.locate)
    OPS.validate({"ops": {entry.name: entry.raw}})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_the_examples_validate(path: Path) -> None:
    entries = read_ops(path.read_text(), path.name)
    OPS.validate({"ops": {entry.name: entry.raw for entry in entries}})


@given(st.one_of(st.text(max_size=6), st.sampled_from(["größe", "RMSNorm", "_a", "ñ"])))
def test_a_name_that_the_loader_accepts_validates(name: str) -> None:
    try:
        build(name, {"inputs": "x"}, locate)
    except ScaffoldError:
        return
    assert OPS.is_valid({"ops": {name: {"inputs": "x"}}})


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        ({}, True),
        ({"ops": {}}, True),
        ({"ops": []}, False),
        ({"ops": {"foo": "x"}}, False),
        ({"ops": {"foo bar": {"inputs": "x"}}}, False),
        ({"ops": {"2d": {"inputs": "x"}}}, False),
        ({"ops": {"foo\n": {"inputs": "x"}}}, False),
        ({"op": {"foo": {"inputs": "x"}}}, False),
    ],
)
def test_the_file_around_the_ops(data: Any, valid: bool) -> None:
    assert OPS.is_valid(data) == valid


def accepted(table: dict[str, Any]) -> bool:
    lines = (f"{key} = {toml_text(value)}\n" for key, value in table.items())
    text = f"[tool.scaffold]\n{''.join(lines)}"
    try:
        read_configuration(text, "pyproject.toml", str(ROOT))
    except ScaffoldError:
        return False
    return True


# Words that reach further than the type of a value.
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "require": st.lists(st.sampled_from(["doc", "reason", "docs"]), max_size=2),
    "docstrings": st.sampled_from(["google", "numpy", "epydoc"]),
    "formatter": st.sampled_from(["ruff", "yapf"]),
    "line-length": st.sampled_from([39, 40, 120]),
    "defaults": st.dictionaries(
        st.sampled_from([*DEFAULTS, "style", "doc"]), VALUES, max_size=2
    ),
    "names": st.dictionaries(
        st.sampled_from(["file", "test", "function", "module", "tests"]),
        st.sampled_from(
            [
                *("{op}.py", "{op}_op.py", "test_{op}.py", "{op}_test.py", "x.py"),
                *("{op}/test_{op}.py", "../test_{op}.py", "{Op}Fn", "{Op}", "Op"),
                *("2{Op}", "{op}", "test_{op}", "a-{op}.py", "test_{op}_of.py"),
            ]
        ),
        max_size=2,
    ),
    "lint": st.one_of(
        VALUES, st.just({"select": ["AF01"], "per-file-ignores": {"a": ["AF02"]}})
    ),
}


def have_one_name(names: Any) -> bool:
    """Whether the two classes are called the same, which no schema can tell."""
    both = {"function": "{Op}Function", "module": "{Op}"} | dict(names)
    return bool(both["function"] == both["module"])


# What only the loader can know: directories, other files, interpreters, names of Python.
DEEPER = {
    "package",
    "namespace",
    "parameter-names",
    "conventions",
    "rules",
    "template-dirs",
} | {"python"}


@searched(150, st.data())
def test_the_configuration_and_its_schema_hold_together(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([*CONFIGURATION, "sources"]))
    value = data.draw(LIKELY.get(key, VALUES))
    valid, taken = TABLE.is_valid({key: value}), accepted({key: value})
    assert valid or not taken
    paths = {"source", "tests", "manifest"}  # an empty one, one that leads outside
    known = key not in DEEPER | paths and not isinstance(value, float)
    if known and not (key == "names" and have_one_name(value)):
        assert taken == valid


@pytest.mark.parametrize("check", [ops_schema, configuration_schema])
def test_a_schema_is_one(check: Callable[[], dict[str, Any]]) -> None:
    Validator.check_schema(check())


def test_every_default_validates() -> None:
    for key, row in CONFIGURATION.items():
        if row.default is not None:
            TABLE.validate({key: row.default})


def test_the_command_prints_it(tmp_path: Path) -> None:
    outcome = scaffold(tmp_path, "schema")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == schema_text()
    assert json.loads(outcome.out) == ops_schema()
    other = scaffold(tmp_path, "schema", "--configuration").out
    assert json.loads(other) == configuration_schema()


def test_the_committed_schema_is_the_printed_one() -> None:
    assert (ROOT / "docs" / "ops.schema.json").read_text() == schema_text()
