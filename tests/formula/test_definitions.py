"""What a file defines, and its functions with their names told apart."""

import ast

import pytest

from scaffold.formula.definitions import (
    definitions_of,
    effective_decorator,
    is_constant,
    reachable,
    resolve,
)

FILE = """
import math
import torch.nn.functional as nnf
from kernels import run

SCALE = math.sqrt(2)
SIZES = [3, 4]
TABLE = [1]
TABLE.append(2)
TWICE = 1
TWICE = 2
square = lambda x: x * x

def inner(x, s=SCALE):
    return square(x) * s

def outer(x):
    y = inner(x)
    return nnf.relu(y) + SIZES[1] + run(y)
"""
FOUND = definitions_of(ast.parse(FILE))


def test_functions_constants_and_imports() -> None:
    assert set(FOUND.functions) == {"square", "inner", "outer"}
    assert set(FOUND.constants) == {"SCALE", "SIZES"}
    assert FOUND.imports["nnf"] == "torch.nn.functional"
    assert FOUND.others == {"TABLE", "TWICE"}, "changed, and bound twice"


def test_what_the_op_imports_stays_a_call() -> None:
    assert "inner" not in FOUND.without({"inner"}).functions


def test_what_stands_behind_a_name() -> None:
    assert reachable(["outer"], FOUND) >= {"inner", "square", "SCALE", "math", "run"}


def test_names_are_told_apart() -> None:
    found = resolve("outer", FOUND.functions["outer"], FOUND)
    assert [item.arg for item in found.arguments.args] == ["outer.x"]
    text = ast.unparse(ast.Module(found.body, []))
    assert (
        text == "outer.y = @inner(outer.x)\nreturn F.relu(outer.y) + 4 + run(outer.y)"
    )


def test_the_locals_of_the_function_that_is_read_keep_their_names() -> None:
    found = resolve("inner", FOUND.functions["inner"], FOUND, called=False)
    assert ast.unparse(found.body[0]) == "return @square(x) * s"
    assert ast.unparse(found.arguments.defaults[0]) == "math.sqrt(2)"


def test_a_local_is_not_called_as_what_generated_code_reads() -> None:
    text = "import torch\ndef f(x):\n    B, F = x.shape\n    return torch.nn.functional.relu(x) * F"
    known = definitions_of(ast.parse(text))
    found = resolve("f", known.functions["f"], known, called=False)
    body = ast.unparse(ast.Module(found.body, []))
    assert body == "B, new_F = x.shape\nreturn F.relu(x) * new_F"


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("math.pi / 2", True),
        ("torch.finfo(torch.float32).eps", True),
        ("(1, -2)", True),
        ("torch.ones(2)", False),
        ("x", False),
    ],
)
def test_constants(text: str, fixed: bool) -> None:
    known = {"math": "math", "torch": "torch"}
    assert is_constant(ast.parse(text, mode="eval").body, known) == fixed


def test_a_decorator_that_changes_nothing() -> None:
    plain, other = ast.parse(
        "@torch.jit.script\ndef f(x): return x\n@cached\ndef g(x): return x"
    ).body
    assert isinstance(plain, ast.FunctionDef) and isinstance(other, ast.FunctionDef)
    assert effective_decorator(plain, {"torch": "torch"}) is None
    assert effective_decorator(other, {}) is other.decorator_list[0]
