"""The identities of the table: both sides have the same value, and one is met where it is spelled so."""

import re
from collections.abc import Iterator

import pytest
import torch

from scaffold.derive.graph.op import Named, Program, SizeOf
from scaffold.derive.graph.shapes import NamedSize
from scaffold.derive.rules.table import built_in
from scaffold.derive.simplify.identities import ARROW, DEMANDS, wrong_identity
from scaffold.derive.simplify.patterns import KINDS
from scaffold.errors import Location
from scaffold.formula import Graph, Scope, Text, parse
from scaffold.verify.child.rule_values import Interpreter, Values

TABLE = built_in()
LINES = [(name, line) for name in TABLE.names() for line in TABLE.rule(name).simpler]
PYTHON: Values = {"c": 2.5, "d": -0.5, "p": 1.5, "k": 3, "n": -2, "m": -1.5}
PYTHON |= {"i": 0, "j": -1}


def values(name: str, dtype: torch.dtype) -> Values:
    """A value for each name of an identity."""
    size = (3, 1) if "squeeze" in name else (3,) * (3 if name == "pad" else 2)
    drawn = {key: torch.rand(size, dtype=dtype) + 0.5 for key in "xyzvabABM"}
    drawn["r"] = drawn["x"].abs()
    if name == "select":
        drawn["y"] = drawn["y"][0]
    mask = torch.tensor([[True], [False], [True]])
    return {**drawn, **PYTHON, "mask": mask, "dim": -1, "dims": (0,)}


def sides(line: str, known: Values) -> Iterator[torch.Tensor]:
    for side in line.split(ARROW):
        scope = Scope(frozenset(known) | frozenset(TABLE.names()))
        node = parse(Text(side, Location("an identity")), scope, Graph()).result
        assert node is not None
        yield torch.as_tensor(Interpreter(TABLE, known)(node))


@pytest.mark.parametrize(("name", "line"), LINES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_both_sides_have_the_same_value(
    name: str, line: str, dtype: torch.dtype
) -> None:
    for rest in ("", ", -1, True", ", 0, False"):
        known = values(name, dtype)
        left, right = sides(line.replace(", *rest", rest), known)
        torch.testing.assert_close(left, right.to(left).expand_as(left))
        if "rest" not in line:
            break


@pytest.mark.parametrize(("name", "line"), LINES)
def test_it_stands_in_the_section_of_its_primitive(name: str, line: str) -> None:
    assert wrong_identity(line, name, TABLE) is None
    words = set(re.findall(r"\b[a-zA-Z]\b(?!\()", line))
    assert words <= {
        *"xyzrvabcdpknmijABM"
    }, "the header of the table says what letters mean"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("exp(log(x)) -> x", None),
        ("exp(log(x))", "is not an identity"),
        ("exp(log(x)) -> x if x else 1", "is not an identity"),
        ("x -> exp(log(x))", "is not an identity"),
        ("log(exp(x)) -> x", "has another primitive on its left side"),
        ("exp(log(x)) -> y", "has a name on its right side that is not on its left"),
        ("exp(ln(x)) -> x", "calls 'ln', which is not a primitive"),
    ],
)
def test_what_is_no_identity_is_told(line: str, wrong: str | None) -> None:
    assert wrong_identity(line, "exp", TABLE) == wrong


@pytest.mark.parametrize(
    ("letter", "taken"),
    [
        ("x", {"tensor", "complex", "mask"}),
        ("r", {"tensor", "mask"}),
        ("v", {"tensor", "complex"}),
        ("c", {"number", "attribute", "size"}),
        ("p", {"number", "attribute"}),
        ("k", {"number"}),
    ],
)
def test_a_letter_takes_what_it_stands_for(letter: str, taken: set[str]) -> None:
    program = Program(TABLE.graph, TABLE.facts)
    ops = {
        "tensor": program.op("input", data=Named("x"), kind="real"),
        "complex": program.op("input", data=Named("z"), kind="complex"),
        "mask": program.op("input", data=Named("mask"), kind="bool"),
        "number": program.const(2),
        "attribute": program.read("scale"),
        "size": program.op("size", (), SizeOf(NamedSize("N"))),
    }
    meets = KINDS[DEMANDS[letter]]
    assert {name for name, op in ops.items() if meets(op)} == taken
