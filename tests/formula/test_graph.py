"""Nodes: shared, walked once, rewritten."""

import pytest

from scaffold.formula import (
    Assign,
    Graph,
    Node,
    arguments_of,
    emit,
    emit_lines,
    expressions,
    keywords,
    renaming,
    rewritten,
    unpacked,
)
from tests.formula.parsing import formula


def value(source: str) -> Node:
    result = formula(source, names="x y w p h f", optional="").result
    assert result is not None
    return result


def test_an_expression_that_was_made_before_is_the_same() -> None:
    graph = Graph()
    one = graph.node("binary", "+", (graph.name("x"), graph.constant("1")))
    assert graph.node("binary", "+", (graph.name("x"), graph.constant("1"))) is one
    assert graph.node("binary", "-", (graph.name("x"), graph.constant("1"))) is not one
    assert graph.name("1") is not graph.constant("1")


def test_a_walk_meets_a_shared_part_once() -> None:
    graph = Graph()
    node = graph.name("x")
    for _ in range(200):  # a tree of 2**200 leaves
        node = graph.node("binary", "+", (node, node))
    assert len(list(node.walk())) == 201
    assert node.names() == {"x"}
    doubled = graph.rewrite(node, renaming(graph, {"x": "y"}))
    assert doubled.names() == {"y"}


def test_a_walk_is_in_the_order_of_the_text() -> None:
    result = formula("x + y * w").result
    assert result is not None
    assert [node.label for node in result.walk()] == ["+", "x", "*", "y", "w"]


def test_rewriting_asks_parents_first_and_leaves_the_rest() -> None:
    graph = Graph()
    result = formula("x.exp() + y.exp()", graph=graph).result
    assert result is not None
    asked: list[str] = []

    def change(node: Node) -> Node | None:
        asked.append(emit(node))
        return graph.name("w") if emit(node) == "x.exp()" else None

    assert emit(graph.rewrite(result, change)) == "w + y.exp()"
    assert asked == ["x.exp() + y.exp()", "x.exp()", "y.exp()", "y.exp", "y"]
    assert graph.rewrite(result, lambda node: None) is result


def test_statements_are_rewritten_with_their_targets() -> None:
    graph = Graph()
    parsed = formula("if x:\n    x, k = y\n    k[x] += x\nreturn w", graph=graph)
    renamed = rewritten(graph, parsed.statements, renaming(graph, {"x": "z"}))
    lines = [emit(node) for item in renamed for node in expressions(item)]
    assert lines == ["z", "y", "k[z]", "z"]
    assert emit_lines(renamed)[1] == "    z, k = y"


def test_what_a_statement_reads() -> None:
    parsed = formula("h = x\nh[y] = w\nh -= p\nif p:\n    k = h\nreturn h")
    read = [[emit(node) for node in expressions(item)] for item in parsed.statements]
    assert read == [["x"], ["h[y]", "w"], ["h", "p"], ["p", "h"]]


def test_keywords_of_a_call() -> None:
    found = keywords(value("f(x, dim=y, **w)"))
    assert {name: node.label for name, node in found.items()} == {"dim": "y", "**": "w"}


def test_arguments_are_given_by_place_and_by_name() -> None:
    found = arguments_of(value("f(x, h=y)"), ("a", "h"))
    assert {key: node.label for key, node in found.items()} == {"a": "x", "h": "y"}


@pytest.mark.parametrize(
    ("source", "pairs"),
    [
        ("a, b = x, y", [("a", "x"), ("b", "y")]),
        ("a, b = f(x)", [("(a, b)", "f(x)")]),
        ("h = (x, y)", [("h", "(x, y)")]),
    ],
)
def test_pairs_of_an_assignment(source: str, pairs: list[tuple[str, str]]) -> None:
    parsed = formula(f"{source}\nreturn x", names="x y f", optional="")
    (item,) = parsed.statements
    assert isinstance(item, Assign)
    found = unpacked(item.target, item.value)
    assert [(emit(target), emit(value)) for target, value in found] == pairs


def test_lines_end_with_a_statement_for_its_effect_alone() -> None:
    *_, item, last = formula(
        "h = x + 1\nh.mul_(x)\nreturn h", names="x", optional=""
    ).lines()
    assert isinstance(item, Assign) and isinstance(last, Assign)
    assert item.target.kind == last.target.kind == "absent"
    assert emit(last.value) == "h"
