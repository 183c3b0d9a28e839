"""The package as a whole: its modules stand in the order in which its docstring names them."""

import ast
import re
from pathlib import Path

import scaffold.formula

HERE = Path(scaffold.formula.__file__).parent


def modules() -> list[str]:
    """The modules in the order of the docstring."""
    table = re.findall(
        r"^    (\w+(?:, \w+)*) ", scaffold.formula.__doc__ or "", re.MULTILINE
    )
    return [name for row in table for name in row.split(", ")]


def test_the_docstring_names_every_module() -> None:
    found = {path.stem for path in HERE.glob("*.py")} - {"__init__"}
    assert sorted(modules()) == sorted(found)


def test_a_module_imports_only_from_those_above_it() -> None:
    order = modules()
    for at, name in enumerate(order):
        tree = ast.parse((HERE / f"{name}.py").read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                module = (node.module or "").removeprefix("scaffold.formula.")
                if module != node.module:
                    assert module in order[:at], f"{name} imports {module}"
