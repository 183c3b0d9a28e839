"""Modules of PyTorch as the reader of a module's forward has them: they are what PyTorch's are."""

import ast
from typing import Any

import pytest
import torch
from torch import nn

from scaffold.formula.layers import LAYERS, member_class
from tests.derive.building import load

IMPORTS = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("Linear", (4, 5), {}),
        ("Linear", (4, 5), {"bias": False}),
        ("LayerNorm", (4,), {}),
        ("LayerNorm", (4,), {"eps": 0.1, "bias": False}),
        ("LayerNorm", ((3, 4),), {}),
        ("RMSNorm", (4,), {}),
        ("RMSNorm", (4,), {"eps": 0.1}),
    ],
)
def test_they_have_the_parameters_and_results_of_pytorch(
    name: str, arguments: tuple[Any, ...], words: dict[str, Any]
) -> None:
    # The start of a bias is a word of this tool's own.
    text = LAYERS.replace("nn.init.fan_in_uniform_", "str")
    module = load(f"import math\n{IMPORTS}{text}")
    ours, theirs = (getattr(place, name)(*arguments, **words) for place in (module, nn))
    assert {name: item.shape for name, item in ours.named_parameters()} == {
        name: item.shape for name, item in theirs.named_parameters()
    }
    with torch.no_grad():
        for item in theirs.parameters():
            item.uniform_()
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(X), theirs(X))


FILE = """
class Scale(nn.Module):
    def __init__(self, dim, start=1.0, *, shift=False):
        super().__init__()
        self.w = nn.Parameter(torch.full((dim,), start))
        if shift:
            self.b = nn.Parameter(torch.zeros(dim))
        else:
            self.b = None

    def forward(self, x):
        return x * self.w


class Sequential(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x + self.own
"""


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("Scale(n)", "self.w = nn.Parameter(torch.full((n,), 1.0))"),
        ("Scale(2 * n, 0.1)", "self.w = nn.Parameter(torch.full((2 * n,), 0.1))"),
        ("Scale(n, shift=True)", "self.b = nn.Parameter(torch.zeros(n))"),
        ("Scale(n)", "self.b = None"),
        ("nn.Linear(n, 3, False)", "self.bias = None"),
        ("nn.Sequential(Scale(n), nn.ReLU())", "self.1 = nn.ReLU()"),
        ("nn.Sequential(Scale(n), nn.ReLU())", "return self.1(self.0(input))"),
        ("torch.nn.Sequential()", "return input"),
        ("Sequential(n)", "return x + self.own"),
    ],
)
def test_a_call_stands_in_the_constructor(call: str, line: str) -> None:
    found = made(call)
    assert found is not None
    assert line in ast.unparse(found)
    assert "def __init__(self, n):" in ast.unparse(found)


@pytest.mark.parametrize(
    "call",
    [
        "Scale()",
        "Scale(n, 1.0, True)",
        "Scale(*n)",
        "Scale(n, other=1)",
        "Other(n)",
        "nn.Conv1d(n, n, 3)",
        "nn.LayerNorm(n, elementwise_affine=False)",
        "nn.Linear(n, n, device='cpu')",
        "other.Linear(n, n)",
        "nn.Sequential(*layers)",
    ],
)
def test_what_a_call_does_not_tell_is_not_known(call: str) -> None:
    assert made(call) is None


def made(call: str) -> ast.ClassDef | None:
    (around,) = ast.parse("def __init__(self, n): pass").body
    node = ast.parse(call, mode="eval").body
    assert isinstance(around, ast.FunctionDef) and isinstance(node, ast.Call)
    return member_class(node, ast.parse(FILE), around)
