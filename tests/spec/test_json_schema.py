"""The JSON Schema and the loader: what one takes the other takes, in structure."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from jsonschema import Draft202012Validator as Validator  # type: ignore[import-untyped]

from scaffold.errors import Location
from scaffold.spec.build import build
from scaffold.spec.json_schema import ops_schema, schema_text
from scaffold.spec.keys import KEYS, TOLERANCES, check_keys
from scaffold.spec.problems import KeyPath, Problems
from scaffold.spec.toml import read_ops
from tests.cli.running import ROOT, scaffold
from tests.properties.budgets import searched
from tests.properties.specs import Raw, raws, toml

OPS = Validator(ops_schema())
EXAMPLES = sorted(ROOT.glob("generated_examples/*/*.toml"))

# What no editor shows the loader alone refuses.
SHOWN = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"])
TEXTS = st.one_of(
    st.text(SHOWN, max_size=8),
    st.sampled_from(["x", "combined", "balanced", "tab\tand\nline"]),
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
    st.dictionaries(
        st.text(SHOWN, max_size=4), st.one_of(TEXTS, st.integers()), max_size=3
    ),
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


@pytest.mark.parametrize(
    ("data", "valid"),
    [
        ({}, True),
        ({"ops": {}}, True),
        ({"ops": []}, False),
        ({"ops": {"foo": "x"}}, False),
        ({"op": {"foo": {"inputs": "x"}}}, False),
    ],
)
def test_the_file_around_the_ops(data: Any, valid: bool) -> None:
    assert OPS.is_valid(data) == valid


def test_a_schema_is_one() -> None:
    Validator.check_schema(ops_schema())


def test_the_command_prints_it(tmp_path: Path) -> None:
    outcome = scaffold(tmp_path, "schema")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == schema_text()
    assert json.loads(outcome.out) == ops_schema()


def test_the_committed_schema_is_the_printed_one() -> None:
    assert (ROOT / "docs" / "ops.schema.json").read_text() == schema_text()
