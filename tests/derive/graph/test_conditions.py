"""What one test says of another, and of a name."""

import ast

import pytest

from scaffold.derive.graph.conditions import (
    choose,
    given,
    implies,
    is_presence,
    may_be_number,
    told_by,
)
from scaffold.derive.graph.op import Declared, Named, Op, Program, literal
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.rules.table import built_in
from scaffold.formula import Graph, Node

GRAPH = Graph()
PROGRAM = Program(GRAPH, built_in().facts)
LABELS = {ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is", ast.IsNot: "is not"}


def condition(text: str) -> Node:
    """A test as a node."""
    return node(ast.parse(text, mode="eval").body)


def value(text: str) -> Op:
    """A test as an op."""
    return PROGRAM.static(condition(text))


def node(item: ast.expr) -> Node:
    match item:
        case ast.Name(name):
            return GRAPH.name(name)
        case ast.Constant(value):
            return GRAPH.constant(repr(value))
        case ast.UnaryOp(ast.Not(), inner):
            return GRAPH.node("unary", "not", (node(inner),))
        case ast.BoolOp(operator, values):
            label = "and" if isinstance(operator, ast.And) else "or"
            return GRAPH.node("boolean", label, tuple(map(node, values)))
        case ast.Compare(left, [operator], [right]):
            both = (node(left), node(right))
            return GRAPH.node("compare", LABELS[type(operator)], both)
    raise AssertionError(item)


@pytest.mark.parametrize(
    ("asked", "known", "held", "told"),
    [
        ("mode == 'sum'", "mode == 'sum'", False, False),
        ("mode == 'sum'", "mode == 'mean'", True, False),
        ("mode == 'sum'", "mode == 'mean'", False, None),
        ("mode == 'sum'", "mode != 'sum'", True, False),
        ("mode == 'sum'", "mode != 'mean'", False, False),
        ("p == 1", "p == 2", True, False),
        ("p == 1", "q == 2", True, None),
        ("b is not None", "b is None", False, True),
        ("b is not None", "not (b is not None)", True, False),
        ("b is not None", "b is not None and c is not None", True, True),
        ("b is not None", "b is not None and c is not None", False, None),
        ("b is not None", "b is not None or c is not None", False, False),
        ("b is not None", "b is not None or c is not None", True, None),
        ("kind != 'none'", "kind == 'none'", False, True),
        ("kind != 'none'", "kind == 'none'", True, False),
    ],
)
def test_what_a_test_says(
    asked: str, known: str, held: bool, told: bool | None
) -> None:
    assert told_by(value(asked), value(known), held) is told


@pytest.mark.parametrize(
    ("test", "branch", "there"),
    [
        ("b is not None", 0, True),
        ("b is not None", 1, False),
        ("b is None", 1, True),
        ("not (b is None)", 0, True),
        ("b is not None and s == 2", 0, True),
        ("b is not None or s == 2", 0, False),
        ("c is not None", 0, False),
    ],
)
def test_that_a_value_is_there(test: str, branch: int, there: bool) -> None:
    assert implies(value(test), branch, "b") is there


def test_a_choice_with_a_number_may_be_a_number() -> None:
    program = Program(Graph(), built_in().facts, Declared(optional=frozenset({"b"})))
    x = program.op("input", (), Named("x"), kind="real", shape=SCALAR)
    b = program.op("input", (), Named("b"), kind="real", shape=SCALAR)
    there, zero = given(program, b), program.const(0)
    choice = choose(program, there, x, zero)
    assert may_be_number(choice) and not may_be_number(x)
    assert may_be_number(program.op("mul", (choice, zero), kind="real", shape=SCALAR))
    assert not may_be_number(program.op("mul", (choice, x), kind="real", shape=SCALAR))


def test_a_python_value_that_may_be_none_is_tested_like_an_input() -> None:
    declared = Declared(optional=frozenset({"b"}), never_none=frozenset({"p"}))
    program = Program(Graph(), built_in().facts, declared)
    b = program.op("input", (), Named("b"), kind="real", shape=SCALAR)
    assert is_presence(given(program, b), "b")
    scale, p = (program.static(program.graph.name(name)) for name in ("scale", "p"))
    assert is_presence(given(program, scale), "scale")
    assert literal(given(program, p)) is True
    assert literal(given(program, program.const(None))) is False
