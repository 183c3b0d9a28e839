"""What is counted of the source is what stands in it."""

import ast
from pathlib import Path

from benchmarks.structure import Module, functions, named, vocabulary


def module(text: str) -> Module:
    return Module("scaffold.some", "scaffold", Path("some.py"), text, ast.parse(text))


def test_primitives_are_counted_where_python_names_them() -> None:
    text = '"""softmax"""\nA = ("tanh", "x", "tanhs")\nB = "exp log sqrt and"\nC = "exp it"'
    found = sorted(named(module(text), vocabulary()))
    assert found == ["exp", "log", "sqrt", "tanh"]


def test_the_lines_of_nested_functions_count_twice() -> None:
    text = "def f():\n    def g():\n        pass\n"
    assert list(functions(module(text))) == [3, 2]
