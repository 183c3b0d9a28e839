"""What the user wrote as a function that Python runs: it computes what the text computes, and names nothing that a formula may not."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from scaffold.errors import Location
from scaffold.formula import Formula, Graph, Scope, Text, function_in, parse
from tests.derive.building import load
from tests.formula.files import HEADER, in_python, run_in
from tests.formula.test_inline import READ, RUN, X, Y, titles

IMPORTS = "import math\nimport torch\nimport torch.nn.functional as F\n"


def of_text(text: str, names: str = "x y") -> Formula:
    scope = Scope(frozenset(names.split()), kept=True)
    return parse(Text(text, Location("--forward")), scope, Graph())


def of_file(source: str, names: str, **files: str) -> Formula:
    def read(path: str) -> str:
        try:
            return files[Path(path).stem]
        except KeyError:
            raise FileNotFoundError(path) from None

    found = function_in(source, "ops/one.py", "f", "forward", read=read)
    return parse(found.text, Scope(frozenset(names.split()), kept=True), Graph())


def lines(formula: Formula, names: str = "x y") -> str:
    return "\n".join(formula.own_text(names.split()))


def run(formula: Formula, **inputs: Any) -> Any:
    body = "\n".join(f"    {line}" for line in formula.own_text([*inputs]))
    module = load(f"{IMPORTS}\ndef own({', '.join(inputs)}):\n{body}\n")
    return module.own(**inputs)


def test_an_expression_is_returned() -> None:
    assert lines(of_text("x * torch.sin(y)")) == "return x * torch.sin(y)"


def test_nothing_is_rewritten() -> None:
    text = (
        "with torch.no_grad():\n    m = torch.zeros_like(x)\n    m.add_(y)\n"
        "s = (z := m.sin()) * 2\nfor i in range(2):\n    s += z\nreturn s"
    )
    assert lines(of_text(text)) == text


def test_a_nested_function_loses_what_python_would_run_of_its_head() -> None:
    text = "def g(t: float = 2.0) -> float:\n    u: float = t * 2\n    return u\nreturn g(x)"
    wanted = "def g(t=2.0):\n    u = t * 2\n    return u\nreturn g(x)"
    assert lines(of_text(text)) == wanted


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    "source", [one for one, _ in READ + RUN], ids=titles(READ + RUN)
)
def test_a_file_s_function_computes_what_the_file_computes(
    source: str, flag: bool
) -> None:
    words = re.findall(r"\w+", source.rpartition("def f(")[2].partition(")")[0])
    given = {"x": X, "y": Y, "flag": flag}
    inputs = {key: given[key] for key in given if key in words}
    formula = of_file(f"{HEADER}{source}", " ".join(inputs))
    body = "\n".join(f"    {line}" for line in formula.own_text([*inputs]))
    text = f"{HEADER}\ndef f({', '.join(inputs)}):\n{body}\n"
    wanted = in_python(source, "f", **inputs)
    for one, other in zip(wanted, run_in(text, "f", inputs), strict=True):
        assert torch.equal(torch.as_tensor(one), torch.as_tensor(other))


def test_names_of_a_file_are_what_they_are_there() -> None:
    source = (
        "import torch as T\nfrom torch.nn import functional as nnf\nSCALE = 2\nx = 7\n"
        "@T.jit.script\ndef helper(t: T.Tensor, scale: float = SCALE) -> T.Tensor:\n    return nnf.relu(t) * scale\n"
        "def unread(t):\n    return t\n"
        "def f(x, eps=1e-3):\n    '''Say so.'''\n    return helper(T.sin(x)) + eps\n"
    )
    formula = of_file(source, "x")
    assert "unread" not in lines(formula, "x")
    wanted = torch.relu(torch.sin(X)) * 2 + 1e-3
    torch.testing.assert_close(run(formula, x=X), wanted)


def test_functions_of_files_beside_it_come_with_it() -> None:
    source = "from .other import gate as g, HALF\ndef gate(t): return t * 3\ndef f(x): return g(x) + HALF * gate(x)\n"
    other = "import torch\nHALF = 0.5\nPOWER = 2\ndef inner(t): return t ** POWER\ndef gate(t): return inner(t) * 5\n"
    formula = of_file(source, "x", other=other, __init__="")
    torch.testing.assert_close(run(formula, x=X), X**2 * 5 + X * 1.5)


def test_the_forward_of_a_module_has_none() -> None:
    source = (
        "import torch\nfrom torch import nn\nclass Norm(nn.Module):\n"
        "    def __init__(self):\n        self.w = nn.Parameter(torch.ones(3))\n"
        "    def forward(self, x):\n        return x * self.w\n"
    )
    found = function_in(source, "ops.py", "Norm", "forward")
    formula = parse(found.text, Scope(frozenset({"x", "w"}), kept=True), Graph())
    assert formula.own_text(["x", "w"]) == ()


def test_a_local_may_be_called_as_what_python_has() -> None:
    text = "input = x * y\nreturn input.sin()"
    assert lines(of_text(text)) == text


@pytest.mark.parametrize(
    "default",
    [
        "__import__('os').getcwd()",
        "open('kept')",
        "torch.load('x')",
        "[].__class__",
        "[open for open in (1,)] and open('x')",
    ],
)
def test_what_no_formula_may_name_is_not_run_where_the_parser_left_it_out(
    default: str,
) -> None:
    source = f"def f(x):\n    def unread(t={default}): return t\n    return x * 2\n"
    try:
        formula = of_file(f"{HEADER}{source}", "x")
    except Exception:  # noqa: BLE001 (then there is nothing to run)
        return
    assert formula.own_text(["x"]) == ()
