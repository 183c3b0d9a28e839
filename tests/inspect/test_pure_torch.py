"""Whether a Function is torch and Python alone, and so runs wherever torch does."""

import pytest

from scaffold.inspect.pure_torch import is_torch
from tests.inspect.test_trial_inputs import facts

CODE = """\
import mykernels
from torch.autograd import Function
import torch


def helper(x):
    return {helped}


class Some(Function):
    @staticmethod
    def forward(ctx, x):
        return {value}

    @staticmethod
    def backward(ctx, g):
        return g
"""


@pytest.mark.parametrize(
    ("value", "helped", "plain"),
    [
        ("x * 2", "x", True),
        ("torch.exp(x).sum(-1)", "x", True),
        ("sum(list(x))", "x", True),
        ("mykernels.fast(x)", "x", False),
        ("torch.ops.mine.fast(x)", "x", False),
        ("unknown(x)", "x", False),
        ("x * len(','.join(['a']).split())", "x", True),
        ("setattr(torch, 'a', x)", "x", False),
        ("open(x)", "x", False),
        ("helper(x)", "torch.sin(x)", True),
        ("helper(x)", "mykernels.fast(x)", False),
        ("x * 2", "mykernels.fast(x)", True),  # nobody calls it
    ],
)
def test_what_is_called_decides(value: str, helped: str, plain: bool) -> None:
    assert is_torch(facts(CODE.format(value=value, helped=helped))) is plain
