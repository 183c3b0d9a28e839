"""What the analysis asks of a word: what the lists of old had, and where they were wrong."""

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.facts import Facts
from scaffold.inspect.vocabulary import (
    changes,
    creates,
    is_of_any_shape,
    is_steady,
    is_tensor_call,
    is_view_attribute,
)
from scaffold.lint.rules import af07

HEAD = "import torch\nfrom torch.autograd import Function\n"


@pytest.mark.parametrize(
    "word", ["add_", "scatter_", "leaky_relu_", "bitwise_and_", "copy_", "uniform_"]
)
def test_what_changes_a_tensor(word: str) -> None:
    assert changes(word)


@pytest.mark.parametrize(
    "word", ["add", "requires_grad_", "linear_", "squeeze_", "share_memory_", "__add__"]
)
def test_what_changes_none(word: str) -> None:
    assert not changes(word), "no such method, or no element is another one"


@pytest.mark.parametrize("word", ["exp", "to", "requires_grad_", "mse_loss", "zeros"])
def test_what_returns_one_tensor(word: str) -> None:
    assert is_tensor_call(word)


@pytest.mark.parametrize("word", ["max", "sort", "chunk", "add_", "item", "numel"])
def test_what_may_return_something_else(word: str) -> None:
    assert not is_tensor_call(word)


def test_new_tensors_and_the_same_value_again() -> None:
    assert creates("new_zeros") and not creates("exp")
    assert is_steady("zeros") and not is_steady("empty") and not is_steady("dropout")


def test_views_and_attributes() -> None:
    assert is_view_attribute("mT") and is_view_attribute("data")
    assert not is_view_attribute("shape") and not is_view_attribute("real")


@pytest.mark.parametrize("word", ["exp", "softmax", "sum", "float", "flip", "gt"])
def test_what_takes_any_shape(word: str) -> None:
    assert is_of_any_shape(word)


@pytest.mark.parametrize("word", ["matmul", "layer_norm", "prelu", "gather", "zeros"])
def test_what_wants_shapes_that_fit(word: str) -> None:
    assert not is_of_any_shape(word), "prelu has a weight for each channel"


def found(made: str) -> bool:
    """Whether AF07 reports a Function that saves what `made` computes."""
    source = f"""{HEAD}
class Scale(Function):
    @staticmethod
    def forward(ctx, x):
        scale = {made}
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, g):
        (scale,) = ctx.saved_tensors
        return g * scale
"""
    module = inspect_text(source, "scale.py")
    (function,) = module.functions
    return bool(list(af07.find(Facts(function, module))))


def test_a_value_without_a_derivative_is_no_intermediate_that_is_missed() -> None:
    assert found("torch.rsqrt(x)") and found("torch.nn.functional.silu(x)")
    assert not found("torch.floor(x)") and not found("torch.isposinf(x)")
