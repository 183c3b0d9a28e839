"""What Python makes of values that are known, and the branches that they settle."""

import ast

import pytest

from scaffold.errors import Location
from scaffold.formula import (
    NO_STRING,
    PRESENT,
    UNKNOWN,
    Graph,
    Node,
    Scope,
    Text,
    are_opposite,
    compared,
    computed,
    evaluated,
    of_math,
    opposite_of,
    parse,
)
from scaffold.formula.constant_folding import (
    ARITHMETIC,
    BINARY,
    COMPARE,
    COMPARISONS,
    folded,
    negated,
    truth_of,
)
from tests.formula.parsing import expression

KNOWN = {"n": 3, "mode": "sum", "none": None, "x": PRESENT}


def value(text: str) -> object:
    """What is known of an expression over `KNOWN`."""
    names = frozenset({*KNOWN, "other"})
    node = parse(Text(text, Location("a test")), Scope(names), Graph()).result
    assert node is not None
    return evaluated(node, read)


def read(node: Node) -> object:
    return (
        KNOWN.get(node.label, UNKNOWN) if node.kind == "name" else of_math(node, read)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("n == 3", "n > 2 and mode == 'sum'", "other > 2 or n > 2", "not n < 2"),
        *("x is not None", "none is None", "mode in ('mean', 'sum')", "1 < n <= 3"),
        *("n - 1 == 2", "-n < 0", "n < math.inf", "math.sqrt(n + 1) == 2.0"),
        *("(1 if n == 3 else other) == 1", "mode != 'mean'", "n // 2 == n % 2"),
    ],
)
def test_what_holds(text: str) -> None:
    assert value(text) is True


@pytest.mark.parametrize(
    "text",
    [
        *("other == 3", "x > 0", "not x", "x and n", "mode is 'sum'", "mode > 0"),
        *("other > 2 and n > 2", "n / (n - 3) > 0", "math.log(n - 3) > 0"),
        *("n in (1, other)", "1 if other else 2", "(n, other)", "10 ** 10 ** 10"),
    ],
)
def test_what_is_not_known(text: str) -> None:
    assert value(text) is UNKNOWN


def test_what_follows_a_decisive_test_is_not_computed() -> None:
    assert value("n == 3 or n / 0 > 1") is True
    assert value("n == 2 and other") is False


def test_a_comparison_of_different_types_is_not_known() -> None:
    assert compared(">", (3,), 0) is None
    assert compared("<", 2, 3) is True
    assert compared("==", NO_STRING, "same") is False
    assert compared("not in", NO_STRING, ("same", "valid")) is True
    assert compared("!=", NO_STRING, 2) is None


@pytest.mark.parametrize(
    ("label", "left", "right", "exact", "short"),
    [
        ("+", 2, 3, 5, 5),
        ("/", 6, 3, 2.0, 2),  # as a whole number
        ("/", 1, 3, 1 / 3, None),  # it takes more digits than an author would write
        ("*", 0.5, 3, 1.5, 1.5),
        ("*", 3, 0.044715, 0.134145, None),  # a constant that its reader knows
        ("*", 2, 1.5e-05, 3e-05, 3e-05),
        ("*", 0.25, 0.125, 0.03125, 0.03125),
        ("-", 2.123456, 1, 2.123456 - 1, 2.123456 - 1),
        ("/", 1, 0, None, None),
        ("**", 0, -1, None, None),
        ("@", 2, 3, None, None),
    ],
)
def test_numbers(
    label: str, left: float, right: float, exact: object, short: object
) -> None:
    assert computed(label, left, right) == exact
    found = computed(label, left, right, short=True)
    assert (found, type(found)) == (short, type(short))


def test_every_comparison_is_computed() -> None:
    assert {*COMPARE.values()} == {*COMPARISONS}
    assert {*BINARY.values()} >= {*ARITHMETIC}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("if True:\n    a = x\nelse:\n    a = y", "a = x"),
        ("if 2 > 3:\n    a = x\nelse:\n    a = y", "a = y"),
        ("if 'sum' in ('mean', 'sum'):\n    return x\nreturn y", "return x"),
        ("a = x if None is None else y", "a = x"),
        ("a = None or 1e-06", "a = 1e-06"),
        ("a = True and x", "a = x"),
        ("a = t and True and x", "a = t and x"),
        (
            "if t:\n    if False:\n        a = x\nelse:\n    a = y",
            "if not t:\n    a = y",
        ),
        ("if t == 1:\n    a = x", "if t == 1:\n    a = x"),
    ],
)
def test_what_is_left(text: str, wanted: str) -> None:
    assert ast.unparse(ast.Module(folded(ast.parse(text).body), [])) == wanted


def test_what_is_never_none() -> None:
    body = ast.parse("if x is None:\n    a = 0\nelse:\n    a = x").body
    assert ast.unparse(ast.Module(folded(body, frozenset({"x"})), [])) == "a = x"


@pytest.mark.parametrize("text", ["x", "x == 1", "1 == x", "'a' is 'a'", "x and True"])
def test_what_literals_do_not_tell(text: str) -> None:
    assert truth_of(expression(text)) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("not x", "x"), ("x is None", "x is not None"), ("x < y", "not x < y")],
)
def test_the_opposite(text: str, wanted: str) -> None:
    assert ast.unparse(negated(expression(text))) == wanted, "a NaN is not >= either"


@pytest.mark.parametrize(
    ("test", "opposite"),
    [("p == 2", "p != 2"), ("b is None", "b is not None"), ("s", "not s")],
)
def test_the_opposite_of_a_test(test: str, opposite: str) -> None:
    formula = parse(
        Text(f"({test}, {opposite})", Location("x")), Scope(frozenset("pbs")), Graph()
    )
    assert formula.result is not None
    one, other = formula.result.args
    assert opposite_of(formula.graph, one) is other
    assert opposite_of(formula.graph, other) is one
    assert are_opposite(one, other)
    assert not are_opposite(one, one)
