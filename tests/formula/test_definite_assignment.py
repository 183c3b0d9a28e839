"""Names that only some ways through a formula assign."""

import ast
from itertools import product

import pytest
from hypothesis import strategies as st

from scaffold.formula.definite_assignment import unassigned
from tests.properties.budgets import searched

MODES = ("mean", "none", "sum")


def found(source: str) -> list[str]:
    """What is complained of, with the line of the read."""
    names = {"a", "b", "n", "x", "torch"}
    problems = unassigned(ast.parse(source).body, names | {"mode"}, {"mode": MODES})
    return [
        f"{item.name.lineno}: {item.name.id} where {item.test} is {item.holds}"
        for item in problems
    ]


@pytest.mark.parametrize(
    "source",
    [
        "if a: y = 1\nelse: y = 2\nz = y",
        "if a: y = 1\nelif b: y = 2\nelse: raise ValueError(a)\nz = y",
        "if a:\n    if b: raise ValueError\n    y = 1\nelse: y = 2\nz = y",
        "if not a: raise ValueError\nif a: y = 1\nz = y",
        "assert mode != 'none'\nif mode == 'mean': y = 1\nelif mode == 'sum': y = 2\nz = y",
        "assert a and b\nif b: y = 1\nz = y",
        "if a: y = 1\nif not a: y = 2\nz = y",
        "if n > 1: y = 1\nz = y if n > 1 else 0",
        "if n > 1: y = 1\nif not n > 1: z = 0\nelse: z = y",
        "if n > 1: y = 1\nif n <= 1: z = 0\nelse: z = y",
        "if n < 1: y = 1\nelse: w = 1\nz = w if n >= 1 else y",
        "if x is not None: y = x\nif x is None: z = 0\nelse: z = y",
        "if a: y = 1\nelif b: y = 2\nelse: y = 3\nz = y",
        "if a and b: y = 1\nelse: y = 2\nz = y",
        "if a: y = 1\nif a and b: z = y",
        "if a or b: y = 1\nif a: z = y",
        "if a and b: y = 1\nif a:\n    if b: z = y",
        "if a: y = 1\nelse:\n    y = 2\n    z = y if a else y",
        "if a: y = 1\nif b: y = 2\nif a or b: z = y",
        "if a:\n    if b: y = 1\n    else: y = 2\nelse: y = 3\nz = y",
        "if a: y = 1\nz = a and y\nw = not a or y",
        "if mode == 'mean': y = 1\nelif mode == 'sum': y = 2\nelif mode == 'none': y = 3\nz = y",
        "if mode == 'mean': y = 1\nif mode != 'mean': y = 2\nz = y",
        "if mode == 'mean': y = 1\nelif mode == 'sum': y = 2\nif mode != 'none': z = y",
        "if mode == 'sum': y = 1\nif mode == 'mean': z = 0\nelif mode == 'sum': z = y\nelse: raise ValueError(mode)",
        "if a:\n    y = 1\n    z = y",
        "z = unknown",
    ],
)
def test_a_name_that_is_there_wherever_it_is_read(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("if n > 1: y = 1\nz = y", "2: y where n > 1 is False"),
        ("if a: z = 1\nelse: y = 1\nz = y", "3: y where a is True"),
        ("if not a: y = 1\nz = y", "2: y where a is True"),
        ("if n != 1: y = 1\nz = y", "2: y where n != 1 is False"),
        ("if n >= 1: y = 1\nif n > 0: z = y", "2: y where n >= 1 is False"),
        (
            "if b: z = 1\nif a: y = 1\nelif b: y = 2\nw = y",
            "4: y where b is False",
        ),
        ("if a: y = 1\ny += 1", "2: y where a is False"),
        ("if a: raise ValueError\nif b: y = 1\nz = y", "3: y where b is False"),
        (
            "if a: y = 1\nif b: raise ValueError\nw = y",
            "3: y where a is False",
        ),
        (
            "if mode == 'sum': y = 1\nelif a: y = 2\nif mode == 'sum': w = y\nz = y",
            "4: y where a is False",
        ),
        ("if a: y = 1\nelse: raise ValueError(y)", "2: y where a is False"),
        ("assert n > 1\nif a: y = 1\nassert y", "3: y where a is False"),
        ("if a: y = 1\ny[0] = 1", "2: y where a is False"),
        ("if a: y = 1\nelse: z = y", "2: y where a is False"),
        ("if a: y = 1\nelif b: y = 2\nz = y", "3: y where b is False"),
        ("if a:\n    if b: y = 1\nz = y", "3: y where b is False"),
        ("if a or b: y = 1\nif not a: z = y", "2: y where a or b is False"),
        ("if n > 1: y = 1\nn = 3\nif n > 1: z = y", "3: y where n > 1 is False"),
        (
            "if x.any(): y = 1\nx.zero_()\nif x.any(): z = y",
            "3: y where x.any() is False",
        ),
        (
            "if torch.rand(1) > 0: y = 1\nif torch.rand(1) > 0: z = y",
            "2: y where torch.rand(1) > 0 is False",
        ),
        (
            "if mode == 'mean': y = 1\nelif mode == 'sum': y = 2\nz = y",
            "3: y where mode == 'sum' is False",
        ),
    ],
)
def test_a_name_that_another_branch_assigns(source: str, problem: str) -> None:
    assert found(source) == [problem]


def test_each_name_is_told_of_once() -> None:
    assert found("if a: y = z = 1\nw = y + y + z") == [
        "2: y where a is False",
        "2: z where a is False",
    ]


TESTS = st.sampled_from(
    ["a", "not a", "b", "a and b", "a or not b", "n == 1", "n != 1", "mode == 'mean'"]
    + ["mode == 'sum'", "mode != 'none'"]
)
SIMPLE = st.sampled_from(
    [
        "y = 1",
        "z = y",
        "w = y if a else 0",
        "n = 2",
        "a = b",
        "assert a",
        "raise ValueError",
    ]
)


def _indented(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.split("\n"))


def _chosen(parts: tuple[str, str, str]) -> str:
    test, body, orelse = parts
    return f"if {test}:\n{_indented(body)}\nelse:\n{_indented(orelse)}"


BODIES = st.recursive(
    st.lists(SIMPLE, min_size=1, max_size=2).map("\n".join),
    lambda inner: st.lists(
        st.one_of(SIMPLE, st.tuples(TESTS, inner, inner).map(_chosen)),
        min_size=1,
        max_size=3,
    ).map("\n".join),
    max_leaves=8,
)


@searched(30, BODIES)
def test_what_it_lets_through_always_runs(body: str) -> None:
    source = f"if b: y = 1\n{body}"
    reported = found(source)
    for a, b, n, mode in product((True, False), (True, False), (1, 2), MODES):
        names: dict[str, object] = {"a": a, "b": b, "n": n, "mode": mode}
        try:
            exec(source, names)  # noqa: S102
        except (AssertionError, ValueError):
            pass
        except NameError as error:
            assert error.name == "y"
            assert reported
