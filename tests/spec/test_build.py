"""A whole op: names that agree, problems together, nothing but errors for bad input."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import strategies as st

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.build import build
from scaffold.spec.keys import KEYS
from scaffold.spec.problems import KeyPath
from tests.properties.budgets import searched
from tests.spec.written import complaints, op


def test_both_spellings_of_the_name() -> None:
    assert (op("inputs = 'x'", name="RMSNorm").name, op("inputs = 'x'", name="rms_norm").class_name) == ("rms_norm", "RmsNorm")  # fmt: skip
    named = op("inputs = 'x'\nclass-name = 'RMSNorm'", name="rms_norm")
    assert (named.class_name, named.function_name) == ("RMSNorm", "RMSNormFunction")


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("lambda", "inputs = 'x'", ["1:6: 'lambda' cannot name an op: it is a keyword of Python\nhint: choose another name, such as 'lambda_'"]),
        ("select", "inputs = 'y'", ["1:6: 'select' cannot name an op outside a package: select.py would hide the standard library's module\nhint: choose another name, such as 'select_op'"]),
        ("tensor", "inputs = 'x'", ["1:6: the class 'Tensor' would hide a name of the generated code\nhint: choose another with class-name, such as 'TensorOp'"]),
        ("foo", "inputs = 'x'\nclass-name = 'a b'", ["3:15: 'a b' is not a valid name for a class\nhint: write it as in: --class-name RMSNorm"]),
        ("foo", "inputs = 'x'\nclass-name = 'foo'", ["3:15: the class and the function have the same name, 'foo'"]),
        ("foo", "inputs = 'x, Foo'", ["1:6: the class 'Foo' has the name of an input or of its type"]),
        ("foo", "inputs = 'x, a: m.FooFunction'", ["1:6: the class 'FooFunction' has the name of an input or of its type"]),
    ],
)  # fmt: skip
def test_names_that_do_not_go_together(name: str, text: str, found: list[str]) -> None:
    assert complaints(text, name=name) == found


def test_a_parameter_may_be_called_like_the_op() -> None:
    assert op("inputs = 'x, clamp: float'", name="clamp").name == "clamp"


def test_all_problems_of_an_op_come_together_in_order() -> None:
    text = """
inputs = 'x, weight'
stile = 'combined'
forward = 'x @ wieght'
grad = { x = 'q', y = '1' }
import = ['a b']
dirty = ['z']
init.weight = 'zeors'
"""
    places = [item.split(": ")[0] for item in complaints(text)]
    assert places == ["4:1", "5:16", "6:15", "6:19", "7:12", "8:11", "9:16"]


def test_an_op_in_order_searches_for_no_place() -> None:
    def search(path: KeyPath, *, key: bool = False) -> Location:
        raise AssertionError(f"searched for {path}")

    raw = {
        "inputs": "input, weight, mean[D], n: int = 1",
        "forward": "s = k(input) @ weight.t()\nreturn s * n",
        "grad": {"weight": "s"},
        "import": ["m:k"],
        "nondiff": ["mean"],
        "buffers": ["mean"],
        "update": {"mean": "mean * n"},
        "init": {"weight": "uniform(0, 1)"},
        "require": ["in_features > 1"],
    }
    assert build("foo", raw, search).gradients


def test_neither_torch_nor_a_toml_reader_is_imported() -> None:
    code = (
        "import sys\nfrom scaffold.spec.build import build\n"
        "build('foo', {'inputs': 'x', 'forward': 'x'}, print)\n"
        "assert not {'torch', 'tomllib', 'jinja2', 'black'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def locate(path: KeyPath, *, key: bool = False) -> Location:
    return Location("ops.toml/" + "/".join(path))


TEXTS = st.one_of(
    st.sampled_from(
        ["x", "x, w", "x, weight[A, B], bias?", "x[N], n: int = 1, *xs", "y", "x + n"]
        + ["x = 1", "a = x\nreturn a", "grad_x = x", "@f.py", "@f.py:f", "numpy as np"]
        + ["zeros", "uniform(1)", "f(Tensor(a!) x) -> Tensor", "N > 1", "combined"]
        + ["", "\0", "\n", "(", "'", "x\\", "lambda: x", "[x for x in y]", "\ud800"]
    ),
    st.text(max_size=12),
)
NAMES = st.sampled_from(["x", "w", "weight", "xs", "n", "q", "", "grad_x"])
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(),
    st.floats(),
    st.lists(st.one_of(NAMES, TEXTS), max_size=3),
    st.dictionaries(NAMES, st.one_of(TEXTS, st.floats()), max_size=3),
    st.none(),
)
FILES = st.sampled_from(
    [
        "",
        "x",
        "def f(x):\n    return x\n",
        "def forward(x): return x",
        "import os",
        "\0",
    ]
    + ["from a import b\ndef f(x):\n    y = b(x)\n    return y\n", "def f(:", "\ufeffx"]
)


@searched(
    100,
    st.one_of(st.sampled_from(["foo", "RMSNorm", "copy", "", "a-b"]), st.text()),
    st.dictionaries(st.sampled_from([*KEYS, "imputs", ""]), VALUES, max_size=8),
    st.one_of(st.just("x, w, weight?"), st.just("x[N], *xs, n: int = 1"), TEXTS),
    FILES,
)
def test_any_mapping_is_an_op_or_errors_with_places(
    name: str, raw: dict[str, Any], inputs: str, file: str
) -> None:
    try:
        build(name, {"inputs": inputs} | raw, locate, read=lambda path: file)
    except ScaffoldError as error:
        for problem in error.problems:
            assert type(problem.location) is Location
            assert problem.location.source.startswith(("ops.toml/", "f.py"))
            assert str(problem) and problem.exit_code == 2
