"""Arithmetic on sizes: one normal form for what is equal, and only that is said which holds for all sizes."""

import pytest

from scaffold.derive.graph import sizes
from scaffold.derive.graph.op import Program, ValueOf
from scaffold.derive.graph.shapes import Dim, NamedSize
from scaffold.formula import Graph

N, D, H = (NamedSize(name) for name in "NDH")
HALF = sizes.quotient(D, 2)


def test_what_is_equal_has_one_form() -> None:
    three = sizes.times(3, D)
    assert three == sizes.plus(D, sizes.plus(D, D)) == sizes.times(D, 3)
    assert sizes.times(N, D) == sizes.times(D, N)
    assert sizes.minus(three, sizes.times(2, D)) == D
    assert sizes.minus(D, D) == 0
    assert sizes.added((HALF, sizes.minus(D, HALF))) == D
    assert sizes.multiplied(()) == 1


def test_a_half_twice_is_not_the_whole() -> None:
    assert sizes.times(2, HALF) != D
    assert sizes.quotient(sizes.times(2, D), 2) == D
    assert sizes.quotient(7, 2) == 3


@pytest.mark.parametrize(
    ("size", "by", "wanted"),
    [
        (sizes.times(6, D), 3, sizes.times(2, D)),
        (sizes.times(6, D), D, 6),
        (sizes.multiplied((N, D, H)), D, sizes.times(N, H)),
        (D, 2, None),
        (sizes.plus(D, 1), D, None),
        (D, 0, None),
        (sizes.times(3, D), sizes.times(2, D), None),
    ],
)
def test_what_divides_leaves_nothing(size: Dim, by: Dim, wanted: Dim | None) -> None:
    assert sizes.divided(size, by) == wanted


@pytest.mark.parametrize(
    ("size", "sure"),
    [
        (D, True),
        (0, True),
        (-1, False),
        (sizes.plus(D, 3), True),
        (sizes.minus(D, 1), False),
        (sizes.minus(D, N), False),
        (sizes.minus(D, HALF), True),
        (sizes.minus(D, sizes.times(2, HALF)), True),
        (sizes.minus(D, sizes.times(3, HALF)), False),
        (sizes.minus(HALF, 1), False),
        (sizes.minus(sizes.times(3, D), D), True),
    ],
)
def test_what_is_never_negative(size: Dim, sure: bool) -> None:
    assert sizes.is_never_negative(size) is sure


def test_a_python_value_may_be_negative() -> None:
    program = Program(Graph(), lambda rule: None)
    assert not sizes.is_never_negative(ValueOf(program.read("n")))


def test_an_equation_tells_a_name() -> None:
    assert sizes.solved(N, sizes.times(3, D)) == (N, sizes.times(3, D))
    assert sizes.solved(sizes.times(3, D), N) == (N, sizes.times(3, D))
    assert sizes.solved(N, sizes.times(D, H)) == (N, sizes.times(D, H))
    assert sizes.solved(sizes.times(2, N), sizes.times(3, D)) is None
    assert sizes.solved(N, sizes.times(N, D)) is None
    assert sizes.solved(N, N) is None


def test_a_remainder_of_nothing_tells_a_share() -> None:
    name, whole = sizes.divisible(D, 4) or (None, 0)
    assert name == D
    assert sizes.divided(whole, 2) == sizes.times(2, sizes.Share(D, 4))
    assert sizes.said(whole) == "D"
    assert sizes.said(sizes.divided(whole, 4) or 0) == "D/4"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (sizes.times(3, D), "3*D"),
        (sizes.minus(D, HALF), "(D - (D//2))"),
        (sizes.plus(sizes.times(N, D), 1), "(D*N + 1)"),
    ],
)
def test_sizes_are_said(size: Dim, text: str) -> None:
    assert sizes.said(size) == text
