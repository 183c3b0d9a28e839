"""The Python interface: what a forward becomes, and that nothing heavy is imported before it is asked for."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import FunctionType

import pytest

import scaffold
from scaffold.errors import ScaffoldError

DIM = """\
forward:1:18: 'dim' is not a tensor: torch.softmax takes 'dim'
hint: write: inputs='x, dim: int'"""
MISSPELT = """\
save_polcy:1:1: unknown key 'save-polcy' in op 'derived'
hint: did you mean 'save-policy'?"""
ROOT = Path(__file__).parent.parent
RUN = """
import torch
import scaffold

swish = scaffold.derive("x * torch.sigmoid(x)", name="swish")
x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
assert torch.autograd.gradcheck(swish.function, (x,))
assert swish.function is swish.function
(here,) = torch.autograd.grad((x * torch.sigmoid(x)).sum(), x)
for function in FUNCTIONS:
    (there,) = torch.autograd.grad(function(x).sum(), x)
    torch.testing.assert_close(there, here)
assert swish.module.Swish()(x).shape == x.shape

double = scaffold.derive("x * 2", name="swish", once_differentiable=True)
assert double.module is not swish.module
torch.testing.assert_close(double.function(x), x * 2)
assert swish.test() == ()
try:
    scaffold.derive("x * 2", grad={"x": "grad_output"}).test()
except scaffold.ScaffoldError as error:
    assert "grad_x" in str(error), error
else:
    raise AssertionError("not tested")
print("fine")
"""


def python(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


COMPILED = "torch.compile(swish.function, fullgraph=True, backend='aot_eager')"


def test_the_function_runs_and_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, which has torch already."""
    monkeypatch.chdir(tmp_path)
    code = compile(RUN.replace("FUNCTIONS", "[swish.function]"), "run.py", "exec")
    FunctionType(code, {})()
    assert capsys.readouterr().out == "fine\n"
    assert not [*tmp_path.iterdir()]


@pytest.mark.each_commit
def test_the_compiled_function_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert python(RUN.replace("FUNCTIONS", f"[{COMPILED}]"), tmp_path) == "fine\n"
    assert not [*tmp_path.iterdir()]


def test_an_import_costs_nothing_and_a_derivation_needs_no_torch(
    tmp_path: Path,
) -> None:
    code = (
        "import sys, scaffold\n"
        "before = {name for name in sys.modules if name.startswith('scaffold')}\n"
        "made = scaffold.derive('x * 2')\n"
        "import scaffold.derive.pipeline\n"
        "from scaffold.derive import Derivation\n"
        "assert scaffold.derive('x * 2').source == made.source\n"
        "print(sorted(before), 'torch' in sys.modules, 'typer' in sys.modules)\n"
    )
    assert python(code, tmp_path) == "['scaffold', 'scaffold.version'] False False\n"


def test_what_was_derived_says_all_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = scaffold.derive(
        "x * torch.sigmoid(x * beta)", inputs="x[N], beta: float = 1.0"
    )
    assert made.name == "derived"
    assert made.inputs == "x[N], beta: float = 1.0"
    assert repr(made) == "<scaffold.Derived derived(x[N], beta: float = 1.0)>"
    assert "class DerivedFunction(Function):" in made.source
    assert "def test_" in made.test_source
    assert made.notes == ()
    assert "here            4 * (2*N)  = 256" in made.explain("N=32")
    assert "DerivedFunction</span>" in made._repr_html_()
    assert scaffold.derive("x * 2", test=False).test_source == ""


def test_a_notebook_shows_the_whole_function_and_the_notes_escaped() -> None:
    html = scaffold.derive(
        "torch.where(x < 0, x, 2 * x)", save_policy="recompute"
    )._repr_html_()
    text = unescape(re.sub(r"<[^>]*>", "", html))
    assert text.startswith("derived(x)inputs taken from the forward: xclass Derived")
    assert "return torch.where(x < 0, x, 2 * x)\n" in text
    assert "x < 0" not in html and "http" not in html
    assert html.count("<li>") == 1


def test_keys_are_those_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = scaffold.derive(
        "np_exp(x)",
        "x",
        name="MyExp",
        outputs="y",
        grad={"x": "grad_output * y"},
        imports=["my_kernels:np_exp"],
        doc="Exponential.",
    )
    assert made.name == "my_exp"
    assert "from my_kernels import np_exp" in made.source
    assert '"""Exponential.' in made.source


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"forward": "x @"},
            "forward:1:4: not valid Python: invalid syntax\nhint: fix this line: x @",
        ),
        (
            {"forward": "torch.softmax(x, dim)"},
            DIM,
        ),
        (
            {"forward": "x * 2", "save_polcy": "balanced"},
            MISSPELT,
        ),
    ],
)
def test_what_is_wrong_has_a_place_and_a_hint(
    arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(ScaffoldError) as caught:
        scaffold.derive(**arguments)  # type: ignore[arg-type]
    assert str(caught.value) == message
    assert caught.value._render_traceback_() == [f"ScaffoldError: {message}"]


def test_there_is_nothing_else() -> None:
    with pytest.raises(AttributeError, match="no attribute 'derived'"):
        scaffold.derived  # type: ignore[attr-defined]  # noqa: B018
    assert scaffold.ScaffoldError is ScaffoldError
    assert scaffold.Derived.__name__ == "Derived"
