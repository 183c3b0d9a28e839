"""What is counted of the source is what stands in it."""

import ast
from pathlib import Path

from benchmarks.structure import (
    PACKAGE,
    Module,
    functions,
    has_test,
    named,
    vocabulary,
)


def module(text: str) -> Module:
    return Module("scaffold.some", "scaffold", Path("some.py"), text, ast.parse(text))


def test_primitives_are_counted_where_python_names_them() -> None:
    text = '"""softmax"""\nA = ("tanh", "x", "tanhs")\nB = "exp log sqrt and"\nC = "exp it"'
    found = sorted(named(module(text), vocabulary()))
    assert found == ["exp", "log", "sqrt", "tanh"]


def test_the_lines_of_nested_functions_count_twice() -> None:
    text = "def f():\n    def g():\n        pass\n"
    assert list(functions(module(text))) == [3, 2]


def test_a_test_of_a_module_is_the_one_of_its_name_at_its_place() -> None:
    def placed(path: str) -> Module:
        return module("")._replace(path=PACKAGE / path)

    assert has_test(placed("errors.py"))
    assert has_test(placed("verify/pool.py"))
    assert not has_test(placed("lint/pool.py"))
    assert has_test(placed("lint/rules/af01.py"))
    assert not has_test(placed("lint/rules/af99.py"))
