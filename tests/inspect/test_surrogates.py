"""Whether a gradient is meant to be another one than the derivative."""

import pytest

from scaffold.inspect.surrogates import is_rough, says_so
from tests.inspect.test_trial_inputs import facts

CODE = """\
from torch.autograd import Function
import torch


class {name}(Function):
    @staticmethod
    def forward(ctx, x):
        return {value}

    @staticmethod
    def backward(ctx, g):
        return g
"""


@pytest.mark.parametrize(
    ("name", "value", "rough"),
    [
        ("Sign", "torch.sign(x)", True),
        ("Spike", "(x > 0).to(x.dtype)", True),
        ("Gate", "torch.where(x > 0, 1.0, 0.0)", True),
        ("Ones", "torch.where(x > 0, torch.ones_like(x), x.new_zeros(()))", True),
        ("Mask", "x * (x > 0)", True),
        ("Leaky", "torch.where(x > 0, x, 0.1 * x)", False),
        ("Either", "x * 2 if x.shape[0] > 3 else x * 3", False),
        ("Drop", "x * torch.rand_like(x)", True),
        ("Round", "x.round()", True),
        ("Reverse", "x.view_as(x)", True),  # hands its input on
        ("TwiceSTE", "x * 2", True),
        ("PseudoDerivative", "x * 2", True),
        ("PseudoHuber", "torch.sqrt(1 + x * x)", False),
        ("Twice_straight_through", "x * 2", True),
        ("Steps", "x * 2", False),
        ("OfIndex", "x * (index == 2)", False),
        ("Asked", "x * (x.requires_grad == True)", False),
        ("Twice", "x * 2", False),
        ("Like", "x * torch.zeros_like(x)", False),
    ],
)
def test_what_has_no_slope_or_says_so_is_rough(
    name: str, value: str, rough: bool
) -> None:
    assert is_rough(facts(CODE.format(name=name, value=value))) is rough


SCALED = "torch.round(x / x.abs().max()) * x.abs().max()"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("WeightQuantizer", SCALED, True),
        ("FakeQuant", "(x / x.abs().max()).floor() * x.abs().max()", True),
        ("Quantized", "torch.sign(x) * x.abs().mean()", True),
        ("Scaled", SCALED, False),
        ("Dequantize", SCALED, False),
        ("QuantizedTwice", "x * 2", False),
        ("QuantileMask", "x * (x > x.mean())", False),
    ],
)
def test_a_quantizer_that_rounds_says_so(name: str, value: str, said: bool) -> None:
    assert says_so(facts(CODE.format(name=name, value=value))) is said
