"""What the user wrote as a function that Python runs: it computes what the text computes, and names nothing that a formula may not."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Formula,
    Graph,
    Scope,
    Text,
    emit_lines,
    function_in,
    parse,
)
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
        "z = m.sin()\ns = z * 2\nfor i in range(2):\n    s += z\nreturn s"
    )
    assert lines(of_text(text)) == text


def test_a_declared_size_is_read_from_its_input() -> None:
    scope = Scope(frozenset({"x"}), kept=True, sizes={"D": "x.shape[-1]"})
    found = parse(Text("x = x.mT; x / D", Location("--forward")), scope, Graph())
    assert lines(found, "x") == "D = x.shape[-1]\nx = x.mT\nreturn x / D"


def test_an_import_of_a_known_name_runs_with_the_text() -> None:
    found = of_text("import math\nreturn x * math.pi")
    assert lines(found) == "import math\nreturn x * math.pi"
    assert run(found, x=2.0) == 2 * math.pi


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


def test_a_helper_without_gradients_is_a_block_without_them() -> None:
    source = (
        "import torch\n@torch.no_grad()\ndef scale(t):\n    s = t.abs().amax()\n    return s / 127, s\n"
        "def f(x):\n    q, s = scale(x)\n    return x / q * s\n"
    )
    formula = of_file(source, "x")
    assert "\n".join(emit_lines(formula.statements)) == (
        "s = x.abs().amax().detach()\nq = (s / 127).detach()"
    )
    wanted = [torch.full_like(X, 127.0)]  # of `x / q * s`, not of `127 * x / x.max()`
    x = X.clone().requires_grad_()
    assert_close(torch.autograd.grad(run(formula, x=x).sum(), x), wanted)


def test_functions_of_files_beside_it_come_with_it() -> None:
    source = "from .other import gate as g, HALF\ndef gate(t): return t * 3\ndef f(x): return g(x) + HALF * gate(x)\n"
    other = "import torch\nHALF = 0.5\nPOWER = 2\ndef inner(t): return t ** POWER\ndef gate(t): return inner(t) * 5\n"
    formula = of_file(source, "x", other=other, __init__="")
    torch.testing.assert_close(run(formula, x=X), X**2 * 5 + X * 1.5)


NORM = """import torch
from torch import nn
SCALE = 2
def twice(t): return t * SCALE
class Norm(nn.Module):
    def __init__(self, eps: float = 0.5):
        super().__init__()
        self.w, self.eps = nn.Parameter(torch.ones(3)), eps
    def scaled(self, x: torch.Tensor, by=3) -> torch.Tensor:
        return twice(x) * self.w * by
    def forward(self, x, *, power=2):
        w = self.w
        h = self.scaled(x) + self.eps
        return h ** power + self.w
"""


def of_module(source: str, names: str) -> Formula:
    found = function_in(source, "ops.py", "Norm", "forward")
    return parse(found.text, Scope(frozenset(names.split()), kept=True), Graph())


def test_the_methods_of_a_module_read_what_the_call_is_given() -> None:
    formula = of_module(NORM, "x w eps")
    text = lines(formula, "x w eps")
    assert "return twice(x) * self.w * by" in text and "nn.Module" not in text
    w = torch.tensor([1.0, 2.0, 3.0]).double()
    wanted = (X * 2 * w * 3 + 0.5) ** 2 + w
    torch.testing.assert_close(run(formula, x=X, w=w, eps=0.5), wanted)


def test_a_method_names_nothing_that_a_formula_may_not() -> None:
    unread = "def unread(t=open('kept')):\n            return t"
    source = NORM.replace("w = self.w", unread)
    assert of_module(source, "x w eps").own_text(["x", "w", "eps"]) == ()


@pytest.mark.parametrize(
    ("forward", "wanted"),
    [
        ("h = x * y\nh.sign()", "h = x * y\nreturn h.tanh()"),
        ("h = x * y\nif x.ndim:\n    return h\nreturn h.sign()", ""),
    ],
)
def test_lines_stand_in_place_of_the_return(forward: str, wanted: str) -> None:
    formula = of_text(forward)
    assert "\n".join(formula.own_text(["x", "y"], ["return h.tanh()"])) == wanted


def test_lines_stand_in_place_of_what_a_file_s_function_returns() -> None:
    formula = of_file(f"{HEADER}def f(x):\n    h = x * 2\n    return h.sign()\n", "x")
    body = "\n    ".join(formula.own_text(["x"], ["return h.tanh()"]))
    module = load(f"{IMPORTS}\ndef own(x):\n    {body}\n")
    torch.testing.assert_close(module.own(X), (X * 2).tanh())


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


def test_a_text_may_define_a_function_and_end_in_its_call() -> None:
    formula = of_text("def f(t):\n    return t * y\nf(x)")
    assert formula.result is not None
    torch.testing.assert_close(run(formula, x=X, y=Y), X * Y)


@pytest.mark.parametrize("above", ["", "    for i in range(2): x = x * x.sum()\n"])
def test_a_function_of_a_file_without_a_return_returns_nothing(above: str) -> None:
    with pytest.raises(ScaffoldError) as raised:
        of_file(f"def f(x):\n{above}    x.sin()\n", "x")
    assert raised.value.message == "the formula returns nothing"
    assert raised.value.hint == "end it with: return x.sin()"
