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
    'refused = (("x", lambda x: x[None]), ("w", lambda w: w[None]),)',
    "if one_dimension:\n    grad_of_the_product = grad_output_product.unsqueeze(-2) if input.ndim == 1 else grad_output",
    "def f():\n    return 2 * grad_of_the_output * first_value + grad_of_the_second_output * second_value",
]
# What the formatter would make of these blank lines costs it a second pass over the whole file.
BLANK_LINES = [
    "class C:\n    x: int\n\n\n    def f(self):\n        pass\n\n\n    def g(self):\n        pass",
    "import a\nfrom b import c\n\n\nX = 1\n\n\ndef f():\n    pass",
    "from b import (\n    c,\n    d,\n)\n\n\nX: int = 1\n\n\nY = 2",
    "import a\n\n\n\n@d\nclass C:\n    pass",
]
KEPT_BLANK_LINES = [
    "import a\n\n\ndef f():\n    pass",
    "import a\n\n\n# of f\ndef f():\n    pass",
    "X = 1\n\n\nY = 2",
    'import a\n\n"""A string."""\n\n\nX = 1',
    'X = """\n\n\n    its text\n"""',
    "X = '''\n\n\n    its text with \"\"\"\n\n\n    quotes\n'''",
]


@pytest.mark.parametrize("source", STABLE)
def test_folded_code_is_what_black_writes(source: str) -> None:
    folded = fold(source, 88)
    assert folded != source
    assert folded + "\n" == format_source(source)


@pytest.mark.parametrize("source", BLANK_LINES)
def test_blank_lines_are_as_many_as_black_leaves(source: str) -> None:
    folded = fold(source, 88)
    assert folded != source
    assert folded + "\n" == format_source(source)


@pytest.mark.parametrize("source", KEPT_BLANK_LINES)
def test_blank_lines_that_black_leaves_stay(source: str) -> None:
    assert fold(source, 88) == source


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        f"# {'a comment ' * 12}.",
        f'"""A docstring, {"word " * 20}"""',
        f"total = {' + '.join(['operand'] * 15)}",  # nothing between brackets
        f'message = "{"text " * 20}"',
        f"first, second = {'value' * 16}, other",
        f"x = yield {'value' * 17}",
        "return (grad_x,)",
        "first, *rest = (a, b,)[1:], c",
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


def test_several_targets_are_left_to_the_formatter() -> None:
    line = "        grad_x = grad_qkv_weight = grad_qkv_bias = grad_out_weight = grad_out_bias = None"
    assert fold(line, 88) == line
