"""NumPy's maths of plain numbers becomes Python's; all else stays NumPy's."""

import ast

import pytest

from scaffold.formula.numpy_numbers import with_math

HEAD = "import numpy as np\n"


def written(body: str, head: str = HEAD) -> str:
    """The last statement of a file's last function, or of the file."""
    last = with_math(ast.parse(head + body)).body[-1]
    if isinstance(last, ast.FunctionDef):
        last = last.body[-1]
    return ast.unparse(last).removeprefix("return ")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("SMALL = np.log(1e-45)", "SMALL = math.log(1e-45)"),
        ("def f(x): return x / np.sqrt(x.shape[-1])", "x / math.sqrt(x.shape[-1])"),
        ("def f(x): return x * np.sqrt(2 / np.pi)", "x * math.sqrt(2 / math.pi)"),
        ("def f(x): return np.e ** (x / 2)", "math.e ** (x / 2)"),
        ("def f(x, s: float): return x * np.exp(-s)", "x * math.exp(-s)"),
        ("def f(x): return x * np.arctan2(1, len(x))", "x * math.atan2(1, len(x))"),
        ("def f(x): return x / np.prod(x.shape[1:])", "x / math.prod(x.shape[1:])"),
        ("def f(x): return x / np.prod(x.size())", "x / math.prod(x.size())"),
        (
            "def f(x):\n b, d = x.size()\n n = b * d\n return x / np.sqrt(n)",
            "x / math.sqrt(n)",
        ),
        (
            "def f(x):\n def g(y): return y + np.inf\n return g(x) * np.pi",
            "g(x) * math.pi",
        ),
    ],
)
def test_numbers(body: str, expected: str) -> None:
    assert written(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "def f(x): return np.sqrt(x)",
        "def f(x): return np.sqrt(x.shape)",
        "def f(x): return x * np.exp(x.mean())",
        "def f(x, s): return x * np.exp(s)",
        "def f(x):\n n = x.shape[0]\n n = n * x\n return np.sqrt(n)",
        "def f(x):\n n = 2\n for n in x: pass\n return np.sqrt(n)",
        "def f(x, n: int):\n def g(n): return np.sqrt(n)\n return np.log(g)",
        "def f(x): return np.random.rand(3) + np.float32(2)",
        "def f(x): return np.prod(x)",
        "def f(x): return np.sqrt(4, dtype=float)",
    ],
)
def test_what_may_be_an_array(body: str) -> None:
    last = ast.parse(body).body[-1]
    assert isinstance(last, ast.FunctionDef)
    assert written(body) == ast.unparse(last.body[-1]).removeprefix("return ")
    nested = with_math(ast.parse(HEAD + body))
    assert "math" not in ast.unparse(nested)


def test_other_names_stay() -> None:
    assert written("X = np.pi", "import cupy as np\n") == "X = np.pi"
    assert written("X = np.pi", "import numpy as np\nmath = 3\n") == "X = np.pi"
