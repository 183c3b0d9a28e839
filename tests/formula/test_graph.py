"""Nodes: shared, walked once, rewritten."""

from scaffold.formula import (
    Graph,
    Node,
    emit,
    emit_lines,
    expressions,
    renaming,
    rewritten,
)
from tests.formula.parsing import formula


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
