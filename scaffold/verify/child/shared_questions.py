"""Shared questions: run the ones of `op_testing.py` on one subject without pytest.

`op_testing.py` is the file of questions that every generated test imports; a hand-written Function is asked the same ones
(`function_checks.Asking`). In: the text of the file, as rendered; a `Subject`. Out: an object whose methods are the questions.
Invariant: the questions are those of every generated op, but with contiguous grad_outputs: their memory order is a check of its own.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.fast_torch import seed_generator, seeded_grad
from scaffold.verify.child.hand_written import Subject
from scaffold.verify.child.modules import load

MODULE = "op_testing"
# Attributes of the class of tests read by questions.
ATTRIBUTES = (
    *("op", "function", "make", "reference", "differentiable", "ends"),
    *("random", "changed_in_place", "has_gradient"),
)


def questions_of(subject: Subject, text: str) -> Any:
    """Return an object with the questions of `op_testing.py` as methods, about the subject; raise ImportError without pytest."""
    module = _module(text)
    tests = vars(subject.checks.TESTS)  # its class of tests in the module of checks
    stated = {name: tests[name] for name in ATTRIBUTES if name in tests}
    return type("Asked", (module.OpTests,), stated)()


@cache
def _module(text: str) -> Any:
    module: Any = load(MODULE, text)
    module.gradients = _gradients
    return module


def _gradients(outputs: Sequence[Tensor], inputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return gradients as `op_testing.gradients` does, but with contiguous grad_outputs."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    seed_generator(1)
    weights = [torch.randn_like(x.detach().contiguous()) for x in outputs]
    found: tuple[Tensor, ...] = seeded_grad(
        outputs, needed, weights, materialize_grads=True
    )
    return found
