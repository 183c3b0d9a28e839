"""Liveness, order and sharing in the backward as one program."""

import pytest

from scaffold.derive.backward_program import lines_of, needed_for
from scaffold.derive.stated_gradients import join
from scaffold.derive.write.placement import joint_gradients, place
from scaffold.formula import Graph, Statement, emit_lines
from tests.formula.parsing import formula

NAMES = "x y w p grad_output"
GRADS = ["x", "y"]


def statements(source: str, graph: Graph | None = None) -> tuple[Statement, ...]:
    parsed = formula(
        source,
        names=NAMES,
        optional="",
        targets="grad_x grad_y",
        graph=graph,
    )
    return parsed.statements


@pytest.mark.parametrize(
    ("source", "needed"),
    [
        ("h = x\nk = y\ngrad_x = h", {0, 2}),
        ("h = x\nh = y\ngrad_x = h", {1, 2}),
        ("h = x\nh += y\ngrad_x = h", {0, 1, 2}),
        ("h = x * 1\nh[0] = y\ngrad_x = h", {0, 1, 2}),
        ("h = x * 1\nh.mul_(y)\ngrad_x = h", {0, 1, 2}),
        ("h = x\nif p:\n    h = y\ngrad_x = h", {0, 1, 2}),
        ("h = x\nif p:\n    h = y\nelse:\n    h = w\ngrad_x = h", {1, 2}),
        ("grad_y = x\ngrad_x = grad_y", {0, 1}),
        ("grad_x = x\ngrad_y = grad_x", {0}),
        ("a, b = x\ngrad_x = b", {0, 1}),
    ],
)
def test_what_a_gradient_needs(source: str, needed: set[int]) -> None:
    assert needed_for(statements(source), ["grad_x"]) == needed


def test_lines_tell_whom_they_serve() -> None:
    lines = lines_of(
        statements("h = x\nk = h\nunused = k\ngrad_x = h\ngrad_y = k"), GRADS
    )
    assert [(emit_lines([line.statement])[0], set(line.serves)) for line in lines] == [
        ("h = x", {"x", "y"}),
        ("k = h", {"y"}),
        ("grad_x = h", {"x"}),
        ("grad_y = k", {"y"}),
    ]


# -- placing ---------------------------------------------------------------------


def placed(source: str) -> list[tuple[str, set[str]]]:
    blocks = place(lines_of(statements(source), GRADS))
    return [
        ("; ".join(emit_lines(block.statements)), set(block.serves)) for block in blocks
    ]


def test_lines_of_the_same_service_gather() -> None:
    source = "h = x\na = h * 2\nb = h * 3\ngrad_x = a\ngrad_y = b"
    assert placed(source) == [
        ("h = x", {"x", "y"}),
        ("a = h * 2; grad_x = a", {"x"}),
        ("b = h * 3; grad_y = b", {"y"}),
    ]


@pytest.mark.parametrize(
    ("source", "blocks"),
    [
        # a line does not move before one that writes what it reads ...
        (
            "a = x\nc = a\ngrad_x = c\nb = y\na = a * 2\ngrad_y = a + b",
            ["a = x", "c = a; grad_x = c", "b = y; a = a * 2; grad_y = a + b"],
        ),
        # ... or that reads what it changes
        (
            "a = x * 1\ng = a.exp()\na.mul_(2)\ngrad_y = a\ngrad_x = g",
            None,
        ),
    ],
)
def test_order_is_kept_where_it_matters(source: str, blocks: list[str] | None) -> None:
    found = [code for code, _ in placed(source)]
    if blocks is not None:
        assert found == blocks
    flat = "; ".join(found).split("; ")
    if "a.mul_(2)" in flat:
        assert flat.index("g = a.exp()") < flat.index("a.mul_(2)")


def test_gradients_that_come_with_others() -> None:
    lines = lines_of(statements("grad_x, grad_y = p(x)"), GRADS)
    assert joint_gradients(lines) == {"x", "y"}
    lines = lines_of(statements("grad_x = x\ngrad_y = grad_x"), GRADS)
    assert joint_gradients(lines) == {"x"}
    lines = lines_of(statements("grad_x = x\ngrad_y = y"), GRADS)
    assert joint_gradients(lines) == set()


# -- joining ---------------------------------------------------------------------


def joined(outer: str = "", **formulas: str) -> str:
    graph = Graph()
    parsed = [
        (name, formula(source, names=f"{NAMES} s {outer}", optional="", graph=graph))
        for name, source in formulas.items()
    ]
    taken = frozenset(f"{NAMES} s grad_x grad_y {outer}".split())
    return "\n".join(emit_lines(join(graph, parsed, taken)))


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        # one line where both have it
        (
            "h = w * 2\nreturn h * y",
            "h = w * 2\nreturn h * x",
            "h = w * 2\ngrad_x = h * y\ngrad_y = h * x",
        ),
        # the same name for something else
        (
            "h = w\nreturn h",
            "h = p\nreturn h",
            "h = w\ngrad_x = h\ny_h = p\ngrad_y = y_h",
        ),
        # the same line, but of a name that changes later
        (
            "h = w\nh = h + 1\nreturn h",
            "h = w\nreturn h",
            "h = w\nh = h + 1\ngrad_x = h\ny_h = w\ngrad_y = y_h",
        ),
        ("h = w\nreturn h", "h = w\nh = h + 1\nreturn h", None),
        # the same line over a local that differs
        (
            "h = w\nk = h * 2\nreturn k",
            "h = p\nk = h * 2\nreturn k",
            "h = w\nk = h * 2\ngrad_x = k\ny_h = p\ny_k = y_h * 2\ngrad_y = y_k",
        ),
        # nothing is shared where something changes in place
        (
            "h = w * 2\nh += 1\nreturn h",
            "h = w * 2\nreturn h",
            "h = w * 2\nh += 1\ngrad_x = h\ny_h = w * 2\ngrad_y = y_h",
        ),
        # outer names: the value before is the outer one
        ("s = s * 2\nreturn s", "s", "x_s = s * 2\ngrad_x = x_s\ngrad_y = s"),
        (
            "grad_output = grad_output * 2\nreturn grad_output",
            "grad_output",
            "x_grad_output = grad_output * 2\ngrad_x = x_grad_output\ngrad_y = grad_output",
        ),
        # gradients of others, and its own
        (
            "grad_y = w\nreturn grad_y * 2",
            "x",
            "x_grad_y = w\ngrad_x = x_grad_y * 2\ngrad_y = x",
        ),
        ("grad_x = w\nreturn grad_x", "x", "grad_x = w\ngrad_y = x"),
        (
            "grad_x = w\nreturn grad_x * 2",
            "x",
            "x_grad_x = w\ngrad_x = x_grad_x * 2\ngrad_y = x",
        ),
        # a branch
        (
            "if p:\n    s = w\nreturn s",
            "s",
            "x_s = s\nif p:\n    x_s = w\ngrad_x = x_s\ngrad_y = s",
        ),
    ],
)
def test_formulas_as_one_program(x: str, y: str, expected: str | None) -> None:
    if expected is not None:
        assert joined(x=x, y=y) == expected
    else:
        assert "y_h" in joined(x=x, y=y)


def test_new_names_are_free_ones() -> None:
    assert (
        joined(outer="x_s", x="s = s * 2\nreturn s") == "x_s_2 = s * 2\ngrad_x = x_s_2"
    )
