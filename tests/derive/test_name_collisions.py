"""Names that keep apart."""

import pytest

from scaffold.derive.forward.ssa_names import as_they_were, with_versions
from scaffold.derive.name_collisions import (
    apart_from,
    hidden_builtins,
    outer_renamed,
    rebound,
)
from scaffold.formula import Graph, Statement, emit_lines
from tests.formula.parsing import formula


def statements(source: str, graph: Graph) -> tuple[Statement, ...]:
    return formula(
        f"{source}\nreturn x", names="x y w p", optional="", graph=graph
    ).statements


def code(items: tuple[Statement, ...]) -> str:
    return "\n".join(emit_lines(items))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x\nk = h", "h = x\nk = h"),
        ("h = x\nx = x * 2\nk = x", "h = x\nnew = x * 2\nk = new"),
        ("x, h = y, x\nk = x", "new, h = y, x\nk = new"),
        ("x += y\nk = x", "new = x\nnew += y\nk = new"),
        ("if p:\n    x = x * 2\nk = x", "new = x\nif p:\n    new = new * 2\nk = new"),
        (
            "if p:\n    x = x * 2\nelse:\n    k = x\n    x = y\nk = x",
            "if p:\n    new = x * 2\nelse:\n    k = x\n    new = y\nk = new",
        ),
        ("h = x\nx[0] = y", "h = x\nnew = x\nnew[0] = y"),
    ],
)
def test_an_outer_name_keeps_its_value(source: str, expected: str) -> None:
    graph = Graph()
    assert code(rebound(graph, statements(source, graph), "x", "new")) == expected


@pytest.mark.parametrize(
    ("source", "read", "expected"),
    [
        ("if x:\n    x = x * 2\n    y = x", "y", "if x:\n    new = x * 2\n    y = new"),
        ("if x:\n    x = x * 2", "x", "if x:\n    new = x * 2\nelse:\n    new = x"),
        ("if p:\n    x = x * 2", "x", "new = x\nif p:\n    new = new * 2"),
        (
            "if x:\n    x = x * 2\nk = x",
            "k",
            "if x:\n    new = x * 2\nelse:\n    new = x\nk = new",
        ),
    ],
)
def test_what_one_branch_alone_uses_begins_there(
    source: str, read: str, expected: str
) -> None:
    graph = Graph()
    lines = rebound(graph, statements(source, graph), "x", "new", frozenset({read}))
    assert code(lines) == expected


def test_several_outer_names_at_once() -> None:
    graph = Graph()
    items, renamed = apart_from(
        graph, statements("x = y\ny = x\nh = x + y", graph), {"x", "y", "w"}, {"new_x"}
    )
    assert code(items) == "new_x_2 = y\nnew_y = new_x_2\nh = new_x_2 + new_y"
    assert renamed == {"x": "new_x_2", "y": "new_y"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x\nk = x", "h = new\nk = new"),
        ("h = x\nx = x + 1\nk = x", "h = new\nx = new + 1\nk = x"),
        (
            "if p:\n    h = x\n    x = y\nelse:\n    h = x\nk = x",
            "if p:\n    h = new\n    x = y\nelse:\n    h = new\nk = x",
        ),
    ],
)
def test_reads_of_an_outer_name(source: str, expected: str) -> None:
    graph = Graph()
    items = outer_renamed(graph, statements(source, graph), "x", "new")
    assert code(items) == expected


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("min = x", set()),
        ("max = x", {"max"}),  # which a backward may call
        ("max = max(x, y)", {"max"}),
        ("len = x", {"len"}),
        ("any = x", {"any"}),
        ("h = len(x)", set()),
    ],
)
def test_builtins_that_a_local_would_hide(source: str, names: set[str]) -> None:
    assert hidden_builtins(statements(source, Graph())) == names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x\nk = h", "h = x\nk = h"),
        (
            "h = x\nh = h + 1\nh = h * 2",
            "first_h = x\nsecond_h = first_h + 1\nh = second_h * 2",
        ),
        (
            "h = x\nh += 1\nk = h\nh = y",
            "first_h = x\nfirst_h += 1\nk = first_h\nh = y",
        ),
        (
            "h = x\nif p:\n    h = h + 1\nelse:\n    h = y\nk = h",
            "first_h = x\nif p:\n    h = first_h + 1\nelse:\n    h = y\nk = h",
        ),
        ("h = x\nif p:\n    h = y\nk = h", "h = x\nif p:\n    h = y\nk = h"),
        ("if p:\n    h = y\nh = x\nk = h", "if p:\n    first_h = y\nh = x\nk = h"),
    ],
)
def test_every_value_has_a_name(source: str, expected: str) -> None:
    graph = Graph()
    items, origin = with_versions(graph, statements(source, graph), {"h"}, {"x"})
    assert code(items) == expected
    assert set(origin.values()) <= {"h"}
    assert code(as_they_were(graph, items, origin, ())) == code(
        statements(source, graph)
    )


def test_a_version_that_is_kept_keeps_its_name() -> None:
    graph = Graph()
    items, origin = with_versions(
        graph, statements("h = x\nh = h + 1\nh = h * 2", graph), {"h"}, ()
    )
    assert code(as_they_were(graph, items, origin, {"first_h"})) == (
        "first_h = x\nh = first_h + 1\nh = h * 2"
    )
