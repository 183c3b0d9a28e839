"""The table of `stats`: each Function once, and what a test names."""

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.statistics import count, describe, is_test, words_of

HEAD = "import torch\nfrom torch.autograd import Function\n\n\n"
SAVING = HEAD + """\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            return 2 * x * g


def square(x):
    return Square.apply(x)
"""
FORWARD = HEAD + """\
class Sign(Function):
    @staticmethod
    def forward(x):
        return x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass
"""


def table(**texts: str) -> dict[str, int]:
    files = [
        describe(inspect_text(text, f"{name}.py", frozenset()))
        for name, text in texts.items()
    ]
    return {key: number for key, number in count(files).items() if number}


def test_traits_add_up_over_files() -> None:
    assert table(square=SAVING, sign=FORWARD) == {
        "functions": 2,
        "combined": 1,
        "needs_input_grad": 1,
        "setup_context": 1,
        "forward_only": 1,
    }


def test_a_test_may_name_the_wrapper() -> None:
    assert "tested" not in table(square=SAVING, other="square = 1\n")
    assert table(square=SAVING, test_it="from a import square\n")["tested"] == 1


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("tests/helpers.py", True),
        ("a/test_b.py", True),
        ("b_test.py", True),
        ("testing/b.py", False),
    ],
)
def test_what_is_a_test(path: str, found: bool) -> None:
    assert is_test(path) is found
    assert bool(words_of("square(x)", path)) is found
