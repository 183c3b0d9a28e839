"""Long lines: broken as the formatter breaks them, and never changed in meaning."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffold.render.formatting import fold, format_source

STABLE = [
    "def f(first: Tensor, second: Tensor, third: Tensor, fourth: Tensor | None = None) -> Tensor:\n    pass",
    "def f(self, first: int, second: int, *, device: torch.device | str | None = None) -> None:\n    pass",
    "weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))",
    "from somewhere.far_away import FirstName, SecondName, ThirdName, FourthName, FifthName, SixthName",
    "values = tuple(layout(value).requires_grad_(name in needs) for name, value in every_input.items())",
    "def f():\n    return first_value if ctx.needs[0] else None, second_value if ctx.needs[1] else None, None",
    'call("a string, with (brackets", first_argument_of_it, second_argument_of_it, third_argument_of_it)',
    "ctx.save_for_backward(input if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None)",
]


@pytest.mark.parametrize("source", STABLE)
def test_folded_code_is_what_black_writes(source: str) -> None:
    folded = fold(source, 88)
    assert folded != source
    assert folded + "\n" == format_source(source)


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        f"# {'a comment ' * 12}.",
        f'"""A docstring, {"word " * 20}"""',
        f"total = {' + '.join(['operand'] * 15)}",  # nothing between brackets
        f'message = "{"text " * 20}"',
    ],
)
def test_what_has_no_brackets_stays(source: str) -> None:
    assert fold(source, 88) == source


NAMES = st.sampled_from(
    ["alpha", "beta_value", "gamma_of_the_third", '"a, (b"', "[1, 2]"]
)
CALLS = st.recursive(
    NAMES,
    lambda inner: st.lists(inner, min_size=1, max_size=6).map(
        lambda items: f"function({', '.join(items)})"
    ),
    max_leaves=20,
)


@given(CALLS, st.sampled_from([40, 88]))
def test_folding_keeps_the_meaning(source: str, length: int) -> None:
    for statement in (f"x = {source}", f"def f():\n    return {source}, {source}"):
        assert ast.dump(ast.parse(fold(statement, length))) == ast.dump(
            ast.parse(statement)
        )
