"""Writing expressions and statements: reading them again gives the same."""

import ast

import black
import pytest
from hypothesis import strategies as st

from scaffold.formula import Graph, emit, emit_lines, renaming
from tests.formula.parsing import again, formula
from tests.properties.budgets import searched

NAMES = "x y w p f"
LITERALS = ("0", "1", "2.5", "1e-6", "1j", "'a'", "True", "None", "...", ".5", "0x1f")
BINARY = ("+", "-", "*", "/", "@", "//", "%", "**", "&", "|", "^", "<<", ">>")
COMPARE = ("<", "<=", ">", ">=", "==", "!=", "is", "is not", "in", "not in")


def expressions() -> st.SearchStrategy[str]:
    """Python expressions of the kinds that a formula may hold, in parentheses wherever they may stand."""
    leaves = st.sampled_from((*NAMES.split(), *LITERALS))
    return st.recursive(leaves, _larger, max_leaves=12)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(inner, min_size=1, max_size=3)
    part = st.one_of(inner, st.just(""))
    return st.one_of(
        st.tuples(inner, st.sampled_from(BINARY), inner).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        st.tuples(st.sampled_from(("-", "+", "~", "not ")), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
        st.tuples(
            inner, st.sampled_from(COMPARE), inner, st.sampled_from(COMPARE), inner
        ).map(lambda t: f"({t[0]}) {t[1]} ({t[2]}) {t[3]} ({t[4]})"),
        st.tuples(
            st.sampled_from((" and ", " or ")), st.lists(inner, min_size=2, max_size=3)
        ).map(lambda t: t[0].join(f"({item})" for item in t[1])),
        st.tuples(inner, inner, inner).map(
            lambda t: f"({t[0]}) if ({t[1]}) else ({t[2]})"
        ),
        st.tuples(inner.filter(_is_no_literal), several, inner).map(
            lambda t: f"({t[0]})({', '.join(f'({item})' for item in t[1])}, dim=({t[2]}))"
        ),
        st.tuples(inner, inner).map(lambda t: f"f(*({t[0]}), **({t[1]}))"),
        inner.map(lambda item: f"({item}).shape"),
        st.tuples(inner, part, part, part).map(
            lambda t: f"({t[0]})[{_parenthesised(t[1])}:{_parenthesised(t[2])}:{_parenthesised(t[3])}]"
        ),
        st.tuples(inner, several).map(
            lambda t: f"({t[0]})[{', '.join(f'({item})' for item in t[1])},]"
        ),
        several.map(lambda items: f"({', '.join(f'({item})' for item in items)},)"),
        several.map(lambda items: f"[{', '.join(f'({item})' for item in items)}]"),
        several.map(lambda items: f"[*({items[0]}), ({items[-1]})]"),
    )


def _is_no_literal(text: str) -> bool:
    """Whether it may be called: a number is refused."""
    return text not in LITERALS


def _parenthesised(text: str) -> str:
    return f"({text})" if text else ""


@searched(100, many=20_000, source=expressions())
def test_what_is_written_is_what_was_read(source: str) -> None:
    check(source)


def check(source: str) -> None:
    graph = Graph()
    parsed = formula(source, names=NAMES, optional="", graph=graph)
    assert parsed.result is not None
    written = emit(parsed.result)
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(f"({source})"))
    assert (
        formula(written, names=NAMES, optional="", graph=graph).result is parsed.result
    )


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("((x) + (y)) * (w)", "(x + y) * w"),
        ("(x * y) + w", "x * y + w"),
        ("x - (y + w)", "x - (y + w)"),
        ("(x ** y) ** w", "(x**y) ** w"),
        ("x ** (y ** w)", "x**y**w"),
        ("(-x) ** 2", "(-x) ** 2"),
        ("-(x ** 2)", "-x**2"),
        ("(not x) == y", "(not x) == y"),
        ("(x if y else w) + p", "(x if y else w) + p"),
        ("x if y else (w if p else x)", "x if y else w if p else x"),
        ("x[(1, 2)]", "x[1, 2]"),
        ("f((x, y))", "f((x, y))"),
        ("(x,)", "(x,)"),
        ("f(*(x or y))", "f(*(x or y))"),
    ],
)
def test_no_more_parentheses_than_needed(source: str, written: str) -> None:
    parsed = formula(source, names=NAMES, optional="")
    assert parsed.result is not None
    assert emit(parsed.result) == written


@pytest.mark.parametrize(
    "source",
    [
        "if x:\n    h = y\nelse:\n    if w:\n        h = x\n    else:\n        h = w\nreturn h",
        "if x:\n    h = y\nelse:\n    # why\n    if w:\n        h = x\n    k = w\nreturn y",
        "a, b = x, y\nreturn a",
        "h = (x, *y)\nreturn h",
        "h = x * 1\nh[..., 0] += y\nreturn h",
    ],
)
def test_statements_come_back(source: str) -> None:
    once = again(source, names=NAMES, optional="")
    assert again(once, names=NAMES, optional="") == once
    assert ast.dump(ast.parse(once)) == ast.dump(ast.parse(source))


def test_an_empty_comment_line_stays_one() -> None:
    parsed = formula("# a\n#\n# b\nh = x\nreturn h")
    assert emit_lines(parsed.statements) == ["# a", "#", "# b", "h = x"]


OPERANDS = (
    "x",
    "2",
    "2.5",
    "-x",
    "-2",
    "x.y",
    "-x.y",
    "x[0]",
    "f(x)",
    "x + y",
    "x.y()",
    "x ** f(y)",
)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("exponent", OPERANDS)
@pytest.mark.parametrize("base", OPERANDS)
def test_a_power_is_spaced_as_black_has_it(base: str, exponent: str) -> None:
    parsed = formula(f"({base}) ** ({exponent})", names=NAMES, optional="")
    assert parsed.result is not None
    written = emit(parsed.result)
    assert black.format_str(written, mode=black.Mode()) == written + "\n"


def test_a_parameter_is_called_what_the_value_reads() -> None:
    graph = Graph()
    x, y = graph.name("x"), graph.name("y")
    node = graph.node("lambda", "", (x, graph.node("binary", "*", (x, y))))
    assert emit(graph.rewrite(node, renaming(graph, {"x": "h"}))) == "lambda h: h * y"
    with pytest.raises(AssertionError, match="not read"):
        emit(graph.node("lambda", "", (x, y)))
