"""The cell magic: its line, and all of it in a real kernel."""

from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.notebook import read_line, register


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("", {}),
        ("swish", {"name": "swish"}),
        (
            "--inputs 'x[..., D], w[D]' RMSNorm --save-policy=balanced",
            {"inputs": "x[..., D], w[D]", "name": "RMSNorm", "save_policy": "balanced"},
        ),
        (
            "f --once-differentiable --no-module --surrogate",
            {
                "name": "f",
                "once_differentiable": True,
                "module": False,
                "surrogate": True,
            },
        ),
        (
            "--grad 'x=grad_output * y' --grad w=grad_output --import k:f --nondiff a,b",
            {
                "grad": {"x": "grad_output * y", "w": "grad_output"},
                "imports": ["k:f"],
                "nondiff": ["a", "b"],
            },
        ),
    ],
)
def test_the_line_is_that_of_a_command(line: str, arguments: dict[str, Any]) -> None:
    assert read_line(line) == arguments


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a b", "'b' is not an option"),
        ("--input x", "no such option: --input\nhint: did you mean '--inputs'?"),
        ("--forward x", "no such option: --forward"),
        ("--inputs", "--inputs takes a value\nhint: write: --inputs '...'"),
        ("--inputs 'x", "the line cannot be read: No closing quotation"),
    ],
)
def test_what_is_wrong_with_it_is_told(line: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        read_line(line)
    assert str(caught.value).startswith(f"%%scaffold: {message}")


class Shell:
    """What IPython is asked for."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Any] = {}

    def register_magic_function(
        self, func: Any, magic_kind: str, magic_name: str
    ) -> None:
        self.magics[f"{magic_kind} {magic_name}"] = func


def test_a_cell_becomes_an_op_of_its_name() -> None:
    shell = Shell()
    register(shell)
    made = shell.magics["cell scaffold"]("swish", "x * torch.sigmoid(x)\n")
    assert shell.user_ns == {"swish": made}
    assert made.name == "swish"


CELLS = [
    "%load_ext scaffold",
    "%%scaffold swish\nx * torch.sigmoid(x)",
    "import torch\nfloat(swish.function(torch.zeros(())))",
    "K = 3\n\ndef scaled(x, w):\n    return x * w * K",
    "import scaffold\nscaffold.derive(scaled)",
    "%%scaffold\ntorch.softmax(x, dim)",
    "%%scaffold\ndef cube(x):\n    return x ** 3",
]


def test_a_real_kernel_runs_it(tmp_path: Path) -> None:
    """One kernel, which imports torch once: a few seconds."""
    nbclient = pytest.importorskip(
        "nbclient", reason="there is no nbclient: pip install '.[notebook]'"
    )
    pytest.importorskip(
        "ipykernel", reason="there is no ipykernel: pip install '.[notebook]'"
    )
    nbformat = pytest.importorskip("nbformat")
    v4 = nbformat.v4
    book = v4.new_notebook(cells=[v4.new_code_cell(text) for text in CELLS])
    nbclient.NotebookClient(
        book,
        allow_errors=True,
        timeout=120,
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    shown = [cell.outputs for cell in book.cells]
    assert shown[0] == []
    (made,) = shown[1]
    assert made.data["text/plain"] == "<scaffold.Derived swish(x)>"
    assert "SwishFunction</span>" in made.data["text/html"]
    assert shown[2][0].data["text/plain"] == "0.0"
    assert shown[4][0].data["text/plain"] == "<scaffold.Derived scaled(x, w)>"
    (error,) = shown[5]
    message = "'dim' is not a tensor: torch.softmax takes 'dim'"
    hint = "hint: write: inputs='x, dim: int'"
    assert error.traceback == [f"ScaffoldError: forward:1:18: {message}\n{hint}"]
    assert shown[6][0].data["text/plain"] == "<scaffold.Derived cube(x)>"
