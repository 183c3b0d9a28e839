"""What is known of Python values: what a local is assigned, and what the signature says of attributes."""

import math

import pytest

from scaffold.derive.graph.op import Declared, Named, Op, Program, SizeOf, names_read
from scaffold.derive.graph.shapes import SCALAR, NamedSize
from scaffold.derive.graph.static_values import (
    fold,
    is_int,
    is_length,
    is_sequence,
    known_value,
    may_be_none,
    static_node,
)
from scaffold.derive.rules.table import built_in
from scaffold.errors import Location
from scaffold.formula import UNKNOWN, Graph, Node, Scope, Text, emit, parse


def program(**said: str) -> Program:
    """A program whose signature says so."""
    names = {key: frozenset(value.split()) for key, value in said.items()}
    return Program(Graph(), built_in().facts, Declared(**names))


def parsed(of: Program, text: str) -> Node:
    """The node of an expression over `a` and `b`."""
    found = parse(Text(text, Location("a test")), Scope(frozenset("ab")), of.graph)
    assert found.result is not None
    return found.result


def name(of: Program, label: str) -> Node:
    return of.graph.name(label)


def plus_one(of: Program, label: str) -> Op:
    parts = (name(of, label), of.graph.constant("1"))
    return of.static(of.graph.node("binary", "+", parts))


def test_a_local_is_what_it_is_assigned() -> None:
    one = program(ints="n", never_none="n", sequences="dims")
    more = one.local(name(one, "more"), plus_one(one, "n"))
    twice = one.local(name(one, "twice"), more)
    assert is_int(one, twice) and not may_be_none(one, twice)
    other = one.local(name(one, "other"), plus_one(one, "k"))
    assert not is_int(one, other)
    dims = one.local(name(one, "all_dims"), one.static(name(one, "dims")))
    assert is_sequence(one, dims) and may_be_none(one, dims)


def test_an_optional_input_may_be_none() -> None:
    one = program(optional="bias")
    for label, perhaps in (("bias", True), ("x", False)):
        tensor = one.op("input", (), Named(label), kind="real", shape=SCALAR)
        assert may_be_none(one, tensor) is perhaps


def test_nothing_is_told_of_a_name_that_is_computed_of_itself() -> None:
    one = program()
    again = one.local(name(one, "n"), plus_one(one, "n"))
    assert not is_int(one, again) and may_be_none(one, again)


def test_what_a_local_is_computed_of() -> None:
    one = program()
    size, two = one.static(name(one, "size")), one.const(2)
    half = one.static(
        one.graph.node("binary", "//", (size.expression, size.expression))
    )
    one.compute(half, "//", size, two)
    local = one.local(name(one, "half"), half)
    found = one.operation(local)
    assert found is not None and found.args == (size, two)
    assert one.operation(size) is None


def test_what_a_value_is_computed_of_is_met_by_a_walk() -> None:
    one = program()
    size = one.op("size", (), SizeOf(NamedSize("N")))
    value = fold(one, "mul", (size, plus_one(one, "k")))
    assert value is not None
    assert size in value.walk() and names_read(value) == {"k"}
    assert is_length(value) and not is_length(plus_one(one, "k"))


@pytest.mark.parametrize(
    ("rule", "args", "written"),
    [
        ("mul", ("-a", "-b"), "a * b"),
        ("mul", ("a", "-2"), "-2 * a"),
        ("mul", ("3", "2 / a"), "6 / a"),
        ("mul", ("math.sqrt(a)", "math.sqrt(a)"), "a"),
        ("mul", ("math.sqrt(a)", "math.sqrt(b)"), "math.sqrt(b * a)"),
        ("add", ("a", "a"), "2 * a"),
        ("div", ("1", "3"), "1 / 3"),
        ("neg", ("-a",), "a"),
        ("log", ("a + 1",), "math.log(a + 1)"),
    ],
)
def test_arithmetic_is_written_as_an_author_would(
    rule: str, args: tuple[str, ...], written: str
) -> None:
    one = program()
    made = fold(one, rule, tuple(one.static(parsed(one, text)) for text in args))
    assert made is not None
    assert emit(static_node(one, made)) == written


@pytest.mark.parametrize(
    ("text", "value"),
    [("math.inf", math.inf), ("2 * 3", 6), ("a + 1", UNKNOWN), ("1e-06", 1e-6)],
)
def test_what_literals_alone_say(text: str, value: object) -> None:
    one = program()
    assert known_value(one.static(parsed(one, text))) == value


def test_a_literal_stays_as_it_is_spelled() -> None:
    one = program()
    assert emit(static_node(one, one.static(parsed(one, "a * 1e-06")))) == "a * 1e-06"


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("a.shape[-1] // 2", {"a"}),
        ("a.size(0) + b", {"a", "b"}),
        ("a[0][1:]", {"a"}),
        ("math.sqrt(a.shape[0])", {"math", "a"}),
        ("tuple(a)[-2:]", {"tuple", "a"}),
    ],
)
def test_a_leaf_is_a_name(text: str, leaves: set[str]) -> None:
    of = program()
    op = of.static(parsed(of, text))
    found = [item.expression for item in op.walk() if item.rule == "static"]
    assert {node.label for node in found if node.kind == "name"} == leaves
    assert all(node.kind in ("name", "absent") for node in found)
    assert emit(static_node(of, op)) == text


@pytest.mark.parametrize(
    ("text", "one", "several"),
    [
        ("a.shape[0]", True, False),
        ("a.ndim", True, False),
        ("a.numel()", True, False),
        ("a.shape[0] // 2", True, False),
        ("a.shape[0] * 2.0", False, False),
        ("1 if a else 2.0", False, False),
        ("tuple(a)", False, True),
        ("tuple(a)[1:]", False, True),
        ("a.shape[1:]", False, True),
        ("a[0]", False, False),
    ],
)
def test_one_int_or_several(text: str, one: bool, several: bool) -> None:
    of = program()
    op = of.static(parsed(of, text))
    assert is_int(of, op) is one
    assert is_sequence(of, op) is several
