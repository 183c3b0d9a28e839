"""Custom operators, and the gradient that is registered for them."""

import ast

import pytest

from scaffold.inspect.custom_operators import find_operators
from scaffold.inspect.names import Names
from scaffold.inspect.scanning import scan

OPERATOR = """\
import torch
from torch.library import custom_op, register_autograd


@custom_op("team::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


def backward(ctx, grad):
    return 3 * grad


"""


def found(text: str) -> tuple[str, bool, str | None]:
    tree = ast.parse(text)
    (operator,) = find_operators(scan(tree), Names(tree))
    gradient = operator.backward.name if operator.backward else None
    return operator.name, operator.autograd is not None, gradient


@pytest.mark.parametrize(
    "registration",
    [
        "cube.register_autograd(backward)",
        'register_autograd("team::cube", backward)',
        'torch.library.register_autograd("team::cube", backward)',
    ],
)
def test_a_gradient_that_is_registered(registration: str) -> None:
    assert found(OPERATOR + registration) == ("cube", True, "backward")


@pytest.mark.parametrize(
    "registration",
    [
        "",
        "square.register_autograd(backward)",
        'register_autograd("team::square", backward)',
    ],
)
def test_what_is_registered_for_another_is_not_its(registration: str) -> None:
    assert found(OPERATOR + registration) == ("cube", False, None)


def test_any_other_decorator_makes_none() -> None:
    tree = ast.parse(OPERATOR.replace("@custom_op(", "@other("))
    assert find_operators(scan(tree), Names(tree)) == ()
