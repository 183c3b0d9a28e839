"""What stands several times in a backward gets a name, where that changes no value and costs nothing."""

import pytest

from scaffold.derive.analysis.activity import is_random
from scaffold.derive.write.common_subexpressions import Backward, named_once
from scaffold.formula import (
    Formula,
    ValueKinds,
    emit_lines,
)
from tests.derive.building import backward_of, op_text
from tests.formula.parsing import formula


def read(source: str) -> Formula:
    targets = "grad_x grad_y"
    return formula(source, names="x y p grad_output", optional="", targets=targets)


def named(source: str, optional: str = "", taken: str = "x y p") -> list[str]:
    """The lines after."""
    parsed = read(source)
    known = Backward(
        parsed.graph,
        ValueKinds(["p"]),
        frozenset(taken.split()),
        is_random,
        ("x", "y"),
        frozenset(optional.split()),
    )
    return emit_lines(named_once(known, parsed.statements))


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (
            "grad_x = grad_output * torch.exp(x)\ngrad_y = y / torch.exp(x)",
            ["exp = torch.exp(x)", "grad_x = grad_output * exp", "grad_y = y / exp"],
        ),
        (  # the whole first, and what is left of its parts
            "grad_x = y.sin().exp() + y.sin().exp()\ngrad_y = y.sin() - x",
            ["sin = y.sin()", "exp = sin.exp()", "grad_x = exp + exp"]
            + ["grad_y = sin - x"],
        ),
        (  # a local that is just this
            "grad_x = grad_output * torch.exp(x)\nh = torch.exp(x)\ngrad_y = y / h",
            ["h = torch.exp(x)", "grad_x = grad_output * h", "grad_y = y / h"],
        ),
        (  # two operations; of one, three times
            "grad_x = 1 + x * y\ngrad_y = (1 + x * y) * y",
            ["total = 1 + x * y", "grad_x = total", "grad_y = total * y"],
        ),
        (
            "grad_x = (x - y) * (x - y)\ngrad_y = (x - y) * y",
            ["diff = x - y", "grad_x = diff * diff"] + ["grad_y = diff * y"],
        ),
        (  # of what is cut out, and of matrices
            "grad_x = x[:-1] @ y\ngrad_y = (x[:-1] @ y).exp()",
            ["product = x[:-1] @ y", "grad_x = product", "grad_y = product.exp()"],
        ),
        (  # in a branch, and where it is computed anyway
            "if p:\n    h = torch.exp(x)\nelse:\n    h = x\ngrad_x = h * torch.exp(x)",
            ["exp = torch.exp(x)", "if p:", "    h = exp", "else:", "    h = x"]
            + ["grad_x = h * exp"],
        ),
        (  # in one branch
            "grad_x = x\nif p:\n    grad_x = torch.exp(x) + y / torch.exp(x)",
            ["grad_x = x", "if p:", "    exp = torch.exp(x)"]
            + ["    grad_x = exp + y / exp"],
        ),
    ],
)
def test_it_stands_once(source: str, lines: list[str]) -> None:
    assert named(source) == lines


@pytest.mark.parametrize(
    "source",
    [
        "grad_x = x.unsqueeze(0) * y\ngrad_y = x.unsqueeze(0) + y",  # a view
        "grad_x = x.size(0) * y\ngrad_y = x.size(0) + y",
        "grad_x = y * (x - y)\ngrad_y = x - y",  # one cheap step, twice
        "grad_x = torch.rand_like(x) * x\ngrad_y = torch.rand_like(x) + y",
        "grad_x = torch.exp(x).mul_(y)\ngrad_y = torch.exp(x)",
        "grad_x = torch.exp(x).view(-1).mul_(y)\ngrad_y = torch.exp(x)",
        "h = torch.exp(x)\nh.mul_(y)\ngrad_x = h * torch.exp(x)",
        "h = x * 1\na = torch.exp(h)\nh.mul_(y)\ngrad_x = a + torch.exp(h)",
        "h = x * 1\nv = h.view(-1)\na = torch.exp(h)\nv.mul_(y)\ngrad_x = a + torch.exp(h)",
        "h = x * 1\na = torch.exp(h)\nh = y * 1\ngrad_x = a + torch.exp(h)",
        "h = 1 - x\ngrad_x = h * y\nh = y\nh = 1 - x\ngrad_y = h * x",
        "h = torch.rand_like(x)\ngrad_x = h * y\nh = torch.rand_like(x)\ngrad_y = h * x",
        "h = 1 - x\nh.mul_(y)\ngrad_x = h * y\nh = 1 - x\ngrad_y = h * x",
        "if p:\n    grad_x = torch.exp(x)\nelse:\n    grad_x = -torch.exp(x)",
        "grad_x = torch.exp(x) if p else y\ngrad_y = torch.exp(x) if p else x",
    ],
)
def test_it_stays(source: str) -> None:
    assert named(source) == emit_lines(read(source).statements)


def test_what_may_be_absent_is_not_computed_for_others() -> None:
    source = (
        "grad_y = torch.exp(y)\nif p:\n    grad_x = torch.exp(y)\nelse:\n    grad_x = x"
    )
    assert named(source)[0] == "exp = torch.exp(y)"
    assert named(source, optional="y")[0] == "grad_y = torch.exp(y)"


def test_a_name_that_is_taken_is_not_given() -> None:
    source = "grad_x = grad_output * torch.exp(x)\ngrad_y = y / torch.exp(x)"
    assert named(source, taken="x y exp")[0] == "exp_x = torch.exp(x)"


def test_what_a_lambda_computes_is_its_own() -> None:
    """Its parameter has the name of the input."""
    forward = "y = torch.linalg.pinv(x, rtol=0.1)\nreturn y * y"
    text = backward_of(op_text("x[N, D]", forward=forward, derive=True))
    assert "lambda x: torch.linalg.pinv(x, rtol=0.1)" in text
    assert text.count("torch.linalg.pinv(") == 1  # its value is saved
