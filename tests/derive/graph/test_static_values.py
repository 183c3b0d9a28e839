"""What is known of Python values: what a local is assigned, and what the signature says of attributes."""

from scaffold.derive.graph.op import Declared, Op, Program
from scaffold.derive.graph.static_values import is_int, is_sequence, may_be_none
from scaffold.derive.rules.table import built_in
from scaffold.formula import Graph, Node


def program(**said: str) -> Program:
    """A program whose signature says so."""
    names = {key: frozenset(value.split()) for key, value in said.items()}
    return Program(Graph(), built_in().facts, Declared(**names))


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
