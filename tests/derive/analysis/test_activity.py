"""What carries a gradient, what is random, what leaves torch."""

import pytest

from scaffold.derive.analysis.activity import (
    calls_unknown,
    carries_gradient,
    is_random,
    leaves_torch,
)
from scaffold.formula import Node
from tests.formula.parsing import formula


def node(source: str) -> Node:
    names, numpy = "x y w p f np k", {"np": "numpy"}
    result = formula(source, names=names, optional="", imports=numpy).result
    assert result is not None
    return result


@pytest.mark.parametrize(
    "source",
    [
        "x",
        "x + y",
        "y @ x.t()",
        "x.expand_as(y)",
        "torch.where(y > 0, x, y)",
        "f(x)",
        "x[0]",
        "y if p else x",
        "(y, x)",
        "x.round().exp() + x",
    ],
)
def test_what_carries_a_gradient_of_x(source: str) -> None:
    assert carries_gradient(node(source), frozenset({"x"}))


@pytest.mark.parametrize(
    "source",
    [
        "y",
        "x > 0",
        "x.shape[0] * y",
        "x.size(0)",
        "len(x)",
        "x is None",
        "torch.zeros_like(x)",
        "torch.rand_like(x) > p",
        "x.sign() * y",
        "x.detach()",
        "x.argmax(-1)",
        "int(x)",
        "y.new_zeros(x.shape)",
    ],
)
def test_what_does_not(source: str) -> None:
    assert not carries_gradient(node(source), frozenset({"x"}))


def test_a_function_of_the_users_may_be_called_like_one_of_torch() -> None:
    sign = formula("sign(x)", names="sign x", optional="").result
    assert sign is not None
    assert carries_gradient(sign, frozenset({"x"}))


@pytest.mark.parametrize(
    ("source", "random"),
    [
        ("torch.rand(3) + x", True),
        ("x.bernoulli_()", True),
        ("F.dropout(x, p)", True),
        ("F.scaled_dot_product_attention(x, x, x, dropout_p=p)", True),
        ("F.scaled_dot_product_attention(x, x, x)", False),
        ("np.random.standard_normal(3)", True),
        ("torch.randn", False),
        ("x.exp()", False),
    ],
)
def test_what_draws_random_numbers(source: str, random: bool) -> None:
    assert is_random(node(source)) is random


@pytest.mark.parametrize(
    ("source", "leaves"),
    [
        ("x.numpy()", True),
        ("torch.from_numpy(y)", True),
        ("x.sum().item()", True),
        ("np.exp(x)", True),
        ("torch.as_tensor(y)", False),
        ("torch.as_tensor(x.numpy())", True),
        ("torch.as_tensor(x.tolist())", True),
        ("torch.gt(x, torch.as_tensor(0.5, dtype=x.dtype))", False),
        ("k(x)", False),
        ("x.exp()", False),
    ],
)
def test_what_leaves_torch(source: str, leaves: bool) -> None:
    assert leaves_torch(node(source), frozenset({"np"})) is leaves


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("f(x)", True),
        ("f.apply(x)", True),
        ("x + f.a.b(x)", True),
        ("k(f)", False),
        ("x.f()", False),
        ("f.shape", False),
    ],
)
def test_calls_of_an_object(source: str, calls: bool) -> None:
    assert calls_unknown(node(source), frozenset({"f"})) is calls
