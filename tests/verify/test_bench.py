"""Variants of an op in processes that take turns: what is measured, and what becomes of one that cannot be."""

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.bench import Bench, Measured, Results, Setting, Spread, Variant

OP = """
import torch

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.kept = (x, y)  # as an attribute, which no hook sees
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.kept
        return grad * y, grad * x

op = Product.apply
"""
CHECKS = """
import os, time
import torch
from verified_op import op

DIFFERENTIABLE = ("x", "y")
LOOSE = False

class TESTS:
    random = False

def make(*, n=4, needs=DIFFERENTIABLE):
    return tuple(torch.ones(n, 5, dtype=torch.double).requires_grad_(name in needs) for name in "xy")

def exponential(x, y):
    return x.exp() * y.exp()

def raising(x, y):
    raise ValueError("no such luck\\nand more")

def ending(x, y):
    os._exit(3)

def sleeping(x, y):
    time.sleep(60)

OPERATOR, PLAIN, NOTHING = op, torch.mul, None
"""


USUAL = Setting({})


def variant(calls: str, compiled: bool = False, more: str = "") -> Variant:
    return Variant(calls, calls, OP, CHECKS + more, compiled)


def measured(*variants: Variant, setting: Setting = USUAL) -> Results:
    with Bench([item.name for item in variants]) as bench:
        return bench.measure(variants, setting, 2)


def test_time_and_bytes_of_a_call() -> None:
    found = measured(
        variant("OPERATOR"), variant("exponential"), setting=Setting({"n": 8})
    )
    op, other = found.measured.values()
    one = 8 * 5 * 4  # bytes of a tensor
    alone = {"x": 2 * one, "y": 2 * one}
    assert (op.saved_bytes, op.saved_bytes_without) == (2 * one, alone)
    assert (other.saved_bytes, other.saved_bytes_without) == (2 * one, alone)
    # The output and the gradients.
    assert op.peak_bytes is not None and 3 * one <= op.peak_bytes < 6 * one
    for spread in (op.forward, op.backward, op.both):
        assert 0 < spread.low <= spread.median <= spread.high
    assert op.both.high > op.forward.low + op.backward.low * 0.9


def test_what_is_computed_is_compared_with_the_first() -> None:
    calls = ("OPERATOR", "PLAIN", "exponential")
    found = measured(*map(variant, calls)).measured
    assert [found[name].differs for name in calls] == [False, False, True]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_inputs_have_the_dtype_and_gradients_may_be_differentiated(dtype: str) -> None:
    width = {"bfloat16": 2, "float64": 8}[dtype]
    found = measured(variant("PLAIN"), setting=Setting({}, dtype, create_graph=True))
    assert found.measured["PLAIN"].saved_bytes == 2 * 20 * width


def test_what_cannot_be_measured_is_told_in_words() -> None:
    broken = "\n\ndef broken(function):\n    raise RuntimeError('no compiler\\nhere')\ntorch.compile = broken\n"
    found = measured(
        variant("raising"),
        variant("ending"),
        variant("NOTHING"),
        variant("PLAIN"),
        variant("OPERATOR", compiled=True, more=broken),
    )
    assert found.refused == {
        "raising": "ValueError: no such luck",
        "ending": "the process ended with exit code 3",
        "NOTHING": "NotImplementedError: autograd has no gradient of it",
        "OPERATOR": "RuntimeError: no compiler",
    }
    assert [*found.measured] == ["PLAIN"]


def test_a_process_that_takes_too_long_is_given_up_and_another_takes_its_place() -> (
    None
):
    with Bench(["one"], limit=0.5) as bench:
        late = variant("sleeping")._replace(name="one")
        found = bench.measure([late], USUAL, 1)
        assert found.refused == {"one": "still running after 0.5 seconds"}
        bench.limit = 60
        found = bench.measure([late._replace(calls="PLAIN")], USUAL, 1)
        assert [*found.measured] == ["one"]


def test_an_interpreter_that_cannot_import_torch_is_an_error() -> None:
    with (
        pytest.raises(ScaffoldError, match="cannot import torch: no answer"),
        Bench(["PLAIN"], python="/bin/false") as bench,
    ):
        bench.measure([variant("PLAIN")], USUAL)


def test_steps_are_told_as_they_are_done() -> None:
    told = []
    both = [variant("PLAIN"), variant("OPERATOR")]
    with Bench([item.name for item in both]) as bench:
        bench.measure(both, USUAL, 2, lambda: told.append(1))
    assert len(told) == 2 * (1 + 2)


def test_quartiles_that_overlap_are_noise() -> None:
    def taking(*seconds: float) -> Measured:
        spread = Spread(*seconds)
        return Measured(spread, spread, spread, None, 0, {}, False)

    assert taking(2, 1, 3).over(taking(4, 3, 5)) == (0.5, True)
    assert taking(2, 1, 2.9).over(taking(4, 3, 5)) == (0.5, False)
