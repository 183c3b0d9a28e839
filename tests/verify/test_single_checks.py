"""Faults that one check of `verify FILE` alone can find: without the check the Function would be called right."""

import sys
from pathlib import Path
from typing import Any

from scaffold.project.function_verdicts import Question, Stated, judge
from scaffold.project.hand_written import find_functions

LIMIT = 120
TEXT = """
import torch
from torch.autograd import Function


class Compiled(Function):
    @staticmethod
    def forward(ctx, x):
        return x * (3 if torch.compiler.is_compiling() else 2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Shift(Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, grad):
        return grad, grad.mean(0) * len(grad)


class InDouble(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.double() * 2


class Sum(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(ctx.shape)


class Total(torch.nn.Module):
    def __init__(self, more=1.5):
        super().__init__()
        self.more = torch.nn.Parameter(torch.tensor(more), requires_grad=False)

    def forward(self, x):
        return x.sum() + self.more


total, same = Total(), Total(0.0)
"""
EMPTY = "grad_bias is not finite for empty inputs"
CAST = "grad_x: float64, but x is float32; autograd casts it silently"
# A Function, how it is called, the check that fails, and a note.
EXPECTED: list[tuple[str, dict[str, Any], str, str]] = [
    ("Compiled", {"compiled": True}, "torch.compile", ""),
    ("Shift", {"inputs": "x[N, D], bias[D]"}, "", EMPTY),
    ("InDouble", {}, "", CAST),
    ("Sum", {"reference": "Total"}, "outputs", ""),
    ("Sum", {"reference": "total"}, "outputs", ""),
    ("Sum", {"reference": "same"}, "", ""),
    ("Sum", {}, "", ""),
]


def test_each_fault_is_found_by_its_check(tmp_path: Path) -> None:
    """The class of a module, and an instance, are references as a function is."""
    path = tmp_path / "faults.py"
    path.write_text(TEXT)
    questions = []
    for name, options, _, _ in EXPECTED:
        stated = Stated(**options)
        if stated.reference:
            stated = stated._replace(reference=f"{path}:{stated.reference}")
        (meant,) = find_functions((f"{path}:{name}",)).meant
        questions += [Question(meant, one, stated) for one in meant.functions]
    verdicts = judge(questions, sys.executable, LIMIT, 1)
    found = []
    for (name, options, _, _), verdict in zip(EXPECTED, verdicts, strict=True):
        assert verdict.failure is None, name
        failed = [one.name for one in verdict.checks if one.status == "failed"]
        found.append((name, options, ", ".join(failed), "; ".join(verdict.notes)))
    assert found == EXPECTED
