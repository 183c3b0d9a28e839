"""The functions of a user's file as formula text, and of files beside it."""

from collections.abc import Mapping

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import FunctionText, Graph, Scope, emit_lines, function_in, parse

FILE = '''\
"""What is here."""

import numpy as np
from torch import nn
from kernels import run as go, stop
import torch


def forward(x, w, *, eps):
    """The docstring."""
    # first
    y = np.exp(x)

    return go(y, w)  # last


def backward(x): return x * 2


def other(x):
        # deep
        return (x
            + 1)
'''


def found(
    name: str | None = None, role: str = "forward", source: str = FILE
) -> FunctionText:
    return function_in(source, "ops.py", name, role)


def test_a_function_is_its_body_without_the_docstring() -> None:
    function = found()
    assert function.text.value == "# first\ny = np.exp(x)\n\nreturn go(y, w)  # last"
    assert function.text.location == Location("ops.py", 11, 5)
    assert function.parameters == ("x", "w", "eps")
    assert function.source.startswith("def forward(x, w, *, eps):\n")


def test_only_the_imports_that_it_reads_come_with_it() -> None:
    assert found().imports == (("numpy", None, "np"), ("kernels", "run", "go"))
    assert found("other").imports == ()


def test_its_role_names_it_or_its_being_alone() -> None:
    assert found(role="backward").text.value == "return x * 2"
    assert found(source="def any_name(x):\n    return x\n").text.value == "return x"


def test_a_function_that_no_other_calls_is_the_one() -> None:
    source = "def half(x): return x / 2\ndef f(x): return half(x)\n"
    assert found(source=source).text.value == "return half(x)"


def test_what_the_called_functions_import_comes_with_it() -> None:
    source = (
        "from kernels import go, stop, Shape\nfrom torch import exp\nimport numpy as np\n"
        "from . import unread\nHALF = np.pi / 2\n"
        "def g(x: Shape): return go(exp(x)) * HALF + np.ones(3)\ndef f(x): return g(x)\n"
    )
    function = found("f", source=source)
    assert function.imports == (("kernels", "go", None), ("numpy", None, "np"))


def test_a_function_that_makes_samples_has_all_that_it_names() -> None:
    source = (
        "from torch import randn, Tensor as T\ndef make() -> T: return [randn(3)]\n"
    )
    function = found("make", "samples", source)
    assert function.imports == (("torch", "randn", None), ("torch", "Tensor", "T"))


@pytest.mark.parametrize(
    ("name", "line", "column", "place"),
    [
        ("forward", 3, 7, "ops.py:14:12"),
        ("backward", 0, 7, "ops.py:17:25"),
        ("other", 1, 7, "ops.py:22:16"),
        ("other", 2, 6, "ops.py:23:15"),
    ],
)
def test_places_are_those_of_the_file(
    name: str, line: int, column: int, place: str
) -> None:
    assert str(found(name).text.place(line, column)) == place


def test_an_error_in_it_is_at_its_place_in_the_file() -> None:
    source = "def f(x):\n    if x:\n        y = q\n    return y\n"
    with pytest.raises(ScaffoldError) as caught:
        parse(found(source=source).text, Scope(frozenset({"x"})), Graph())
    assert str(caught.value.location) == "ops.py:3:13"


def test_what_stands_further_left_than_the_statements_leaves_them_as_they_are() -> None:
    source = "def f(x):\n  # so\n    y = (\n  x\n    )\n    if y:\n        y = 1\n    return y"
    text = found(source=source).text
    assert text.value == "# so\ny = (\nx\n)\nif y:\n    y = 1\nreturn y"
    assert text.location == Location("ops.py", 2, 5)


def test_a_file_without_functions_is_one_body() -> None:
    function = found(source='"""Doc."""\nimport numpy as np\n\n# so\nnp.exp(x)\n')
    assert function.text.value == "# so\nnp.exp(x)"
    assert function.text.location == Location("ops.py", 4, 1)
    assert function.imports == (("numpy", None, "np"),)
    assert function.parameters == ()


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (
            "def f(x):\n  return (",
            None,
            "ops.py:2:10: not valid Python: '(' was never closed\nhint: fix this line: return (",
        ),
        (
            "import os\n",
            None,
            "ops.py:1:1: the file holds no formula\nhint: write a function into it: def forward(x): return x * 2",
        ),
        (
            "def f(x): '''only'''\n",
            None,
            "ops.py:1:1: function 'f' has no body\nhint: end it with: return ...",
        ),
        (
            "def f(**k): return k\n",
            None,
            (
                "ops.py:1:1: function 'f' takes '**k'\n"
                "hint: give each of its parameters a name"
            ),
        ),
        (
            "@d\ndef f(x): return 1\n",
            None,
            (
                "ops.py:1:2: a decorator may change what 'f' computes\n"
                "hint: take it off, or name a function without it"
            ),
        ),
        (
            "from . import k\ndef f(x): return k(x)\n",
            None,
            (
                "ops.py:1:1: a relative import does not work in the op's file\n"
                "hint: write the import with the full name of the package"
            ),
        ),
        (
            "def f(x): return 1\ndef g(x): return 1\n",
            None,
            "ops.py:1:1: the file holds several functions\nhint: name one of them: '@ops.py:f'",
        ),
        (
            "def f(self, x): return x\n",
            "f",
            (
                "ops.py:1:1: function 'f' is a method: it takes 'self'\n"
                "hint: write a function of the values it reads: def f(x)"
            ),
        ),
        (
            "class Norm:\n    def halved(self, x): return x\n",
            "halved",
            (
                "ops.py:2:5: 'halved' is a method of 'Norm'\n"
                "hint: write a function of the values it reads: def halved(x)"
            ),
        ),
        (
            "def gelu(x): return 1\n",
            "gelo",
            "ops.py:1:1: no function 'gelo' in the file\nhint: did you mean 'gelu'?",
        ),
        (
            "def f(x): return 1\n",
            "other",
            "ops.py:1:1: no function 'other' in the file\nhint: the file's functions: f",
        ),
    ],
)
def test_complaints_about_a_file(source: str, name: str | None, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        found(name, source=source)
    assert str(caught.value) == message


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_newlines_of_other_systems(newline: str) -> None:
    function = found(source=FILE.replace("\n", newline))
    same, other = function.text, found().text
    assert same._replace(origin=None) == other._replace(origin=None)
    assert same.origin and other.origin
    assert same.origin.source == other.origin.source


def test_lines_are_those_that_python_counts() -> None:
    source = "def f(x):\n    a = '\x0c\u2028'\n    return a + x\n"
    assert found(source=source).text.value == "a = '\x0c\u2028'\nreturn a + x"


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


def found_beside(
    source: str, path: str = "ops/op.py", files: Mapping[str, str] = FILES
) -> FunctionText:
    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return function_in(source, path, None, "forward", read=read)


def lines(source: str, path: str = "ops/op.py") -> str:
    scope = Scope(frozenset({"x", "y"}))
    formula = parse(found_beside(source, path).text, scope, Graph())
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
        ("from .helpers import f", "ops/op.py", "ops/op.py:1:1", "has no function or constant 'f'"),
        ("from ..ops import f", "ops/op.py", "ops/op.py:1:1", "leaves the package"),
        ("from ..helpers import f", "op.py", "op.py:1:1", "leaves the package"),
        ("from .circle import f", "ops/op.py", "ops/circle.py:1:1", "circular import of 'f'"),
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
        parse(
            found_beside(source, path, files).text,
            Scope(frozenset({"x", "y"})),
            Graph(),
        )
    (problem,) = caught.value.problems
    assert message in str(problem) and str(problem).startswith(place)
