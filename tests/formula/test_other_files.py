"""What a formula takes from files beside its own means there what it means in them."""

from collections.abc import Mapping

import pytest

from scaffold.errors import ScaffoldError
from scaffold.formula import FunctionText, Graph, Scope, emit_lines, function_in, parse

HELPERS = '''\
"""Helpers."""
import torch.nn.functional as nnf
from .constants import EPS, scaled as rescale

HALF = 0.5


def _gate(x):
    return nnf.sigmoid(HALF * x)


def gate(x, y, eps=EPS):
    g = _gate(x)
    return rescale(g * y, eps)
'''
CONSTANTS = "import math\nEPS = 1e-5\ndef scaled(v, eps): return v * math.sqrt(eps)\n"
FILES = {
    "ops/__init__.py": "from .helpers import gate\n",
    "ops/helpers.py": HELPERS,
    "ops/constants.py": CONSTANTS,
    "ops/inner/__init__.py": "",
    "ops/circle.py": "from .round import f\n",
    "ops/round.py": "from .circle import f\n",
    "ops/broken.py": "x = = 2\n",
    "ops/again.py": "def f(x): return g(x)\ndef g(x): return f(x)\n",
    "ops/other.py": "from kernels import run\ndef f(x):\n    y = x * 2\n    return run(y)\n",
}


def found(
    source: str, path: str = "ops/op.py", files: Mapping[str, str] = FILES
) -> FunctionText:
    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return function_in(source, path, None, "forward", read=read)


def lines(source: str, path: str = "ops/op.py") -> str:
    scope = Scope(frozenset({"x", "y"}))
    formula = parse(found(source, path).text, scope, Graph())
    assert formula.result is not None
    from scaffold.formula import emit

    return "\n".join([*emit_lines(formula.statements), emit(formula.result)])


GATE = "g = F.sigmoid(0.5 * x)\ng * y * math.sqrt(1e-5)"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from .helpers import gate\n", "ops/op.py"),
        ("from .helpers import gate as gate\nHALF = 7\nEPS = 8\n", "ops/op.py"),
        ("from . import gate\n", "ops/op.py"),
        ("from ..helpers import gate\n", "ops/inner/op.py"),
        ("from .. import gate\n", "ops/inner/op.py"),
    ],
)
def test_a_function_of_another_file_is_put_in_place(source: str, path: str) -> None:
    source += "def forward(x, y): return gate(x, y)\n"
    assert lines(source, path) == GATE


def test_a_name_is_that_of_its_own_file() -> None:
    source = "from .constants import EPS as HALF\nfrom .helpers import gate\n"
    source += "def _gate(x): return x\ndef forward(x, y):\n    return gate(_gate(x), y) + HALF\n"
    assert lines(source) == "g = F.sigmoid(0.5 * x)\ng * y * math.sqrt(1e-5) + 1e-5"


def test_what_the_function_does_not_read_is_not_looked_for() -> None:
    source = "from .missing import f\ndef forward(x, y): return x + y\n"
    assert lines(source) == "x + y"


def test_a_name_that_the_file_defines_again_is_its_own() -> None:
    source = "from .helpers import gate\ndef gate(x, y): return x\n"
    assert lines(source + "def forward(x, y): return gate(x, y)\n") == "x"


@pytest.mark.parametrize(
    ("imported", "path", "place", "message"),
    [
        ("from .missing import f", "ops/op.py", "ops/op.py:1:1", "no file 'ops/missing.py'"),
        ("from .helpers import f", "ops/op.py", "ops/op.py:1:1", "has no function 'f'"),
        ("from ..ops import f", "ops/op.py", "ops/op.py:1:1", "leaves the package"),
        ("from ..helpers import f", "op.py", "op.py:1:1", "leaves the package"),
        ("from .circle import f", "ops/op.py", "ops/circle.py:1:1", "imported in a circle"),
        ("from .broken import f", "ops/op.py", "ops/broken.py:1:5", "not valid Python"),
        ("from .again import f", "ops/op.py", "ops/again.py:1:18", "'g' calls itself"),
        ("from .other import f", "ops/op.py", "ops/other.py:4:12", "unknown name 'run'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_at_its_place(
    imported: str, path: str, place: str, message: str
) -> None:
    files = {key: text for key, text in FILES.items() if key != "__init__.py"}
    if "..ops" in imported:
        files = {key: text for key, text in files.items() if key != "ops/__init__.py"}
    source = f"{imported}\ndef forward(x, y): return f(x)\n"
    with pytest.raises(ScaffoldError) as caught:
        parse(found(source, path, files).text, Scope(frozenset({"x", "y"})), Graph())
    (problem,) = caught.value.problems
    assert message in str(problem) and str(problem).startswith(place)
