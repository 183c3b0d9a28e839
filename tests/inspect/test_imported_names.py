"""What names stand for: imports wherever they stand, and nothing guessed."""

import ast

import pytest

from scaffold.inspect.imported_names import (
    Names,
    decorators,
    method_call,
    snake_case,
    torch_call,
)
from tests.formula.parsing import expression

TREE = ast.parse("""\
import torch
import torch.nn.functional as F
from torch.autograd import Function as Fn
from . import kernels
from .ops import *


def f():
    import math


@torch.jit.script
@wraps(f)
def g():
    pass
""")
NAMES = Names(TREE)


@pytest.mark.parametrize(
    ("text", "dotted"),
    [
        ("F.relu", "torch.nn.functional.relu"),
        ("Fn", "torch.autograd.Function"),
        ("kernels.cube", ".kernels.cube"),
        ("math.pi", "math.pi"),
        ("unknown.x", "unknown.x"),
        ("f().x", ""),
    ],
)
def test_the_dotted_name_of_an_expression(text: str, dotted: str) -> None:
    assert NAMES.resolve(expression(text)) == dotted


def test_star_imports_are_told_apart() -> None:
    assert NAMES.starred == [".ops"]


def test_decorators_called_or_not() -> None:
    node = TREE.body[-1]
    assert isinstance(node, ast.FunctionDef)
    assert list(decorators(node, NAMES)) == ["torch.jit.script", "wraps"]


def test_calls_of_torch_and_of_methods() -> None:
    assert torch_call(expression("F.relu(x)"), NAMES) == "relu"
    assert torch_call(expression("x.relu()"), NAMES) == ""
    assert method_call(expression("x.y.relu()"), NAMES) == "relu"
    assert method_call(expression("torch.relu(x)"), NAMES) == ""


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("GradReverse", "grad_reverse"),
        ("RMSNorm", "rms_norm"),
        ("_Conv2d", "conv2d"),
        ("x", "x"),
    ],
)
def test_names_in_the_style_of_functions(name: str, snake: str) -> None:
    assert snake_case(name) == snake
