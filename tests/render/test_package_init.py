"""Exports are added and taken away; whatever else stands in the file stays."""

import ast
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.render.package_init import Exported, with_exports

NAMES = {"linear": ("linear", "LinearFunction", "Linear"), "mish": ("mish", "Mish")}
MINE = '''"""Our ops."""

import os
from ._C import kernel, linear_kernel
from .helpers import help_me as helps  # ours

__all__ = ["helps", "kernel"]  # by hand

if os.name == "nt":
    raise ImportError("not here")
'''


def exported(**changes: Any) -> Exported:
    wanted = Exported(
        package="ops",
        names=NAMES,
        gone=lambda module, names: module == "old",
        obsolete={},
        line_length=88,
        single_lines=False,
    )
    return wanted._replace(**changes)


def written(text: str, **changes: Any) -> str:
    """The file with the exports; a second run finds nothing to do."""
    wanted = exported(**changes)
    once = with_exports(text, "ops/__init__.py", wanted)
    assert with_exports(once, "ops/__init__.py", wanted) == once
    ast.parse(once)
    return once


IMPORTS = """from .linear import Linear, LinearFunction, linear
from .mish import Mish, mish
"""
ALL = '__all__ = ["Linear", "LinearFunction", "Mish", "linear", "mish"]\n'


@pytest.mark.parametrize("text", ["", '"""Ops."""\n', '"""Ops."""', "X = 1\n"])
def test_a_file_without_imports_gets_them(text: str) -> None:
    found = written(text)
    assert IMPORTS in found and ALL in found
    for line in text.splitlines():
        assert line in found.splitlines()


def test_what_is_the_users_stays() -> None:
    found = written(MINE)
    lines = [line for line in MINE.splitlines() if "__all__" not in line]
    assert [line for line in found.splitlines() if line in lines] == lines
    assert IMPORTS in found
    said = "Linear", "LinearFunction", "Mish", "helps", "kernel", "linear", "mish"
    assert f"__all__ = [{', '.join(map(repr, said))}]  # by hand\n" == (
        next(line for line in found.splitlines(True) if "__all__" in line)
    ).replace('"', "'")


def test_an_op_that_is_gone_takes_its_names_along() -> None:
    old = (
        IMPORTS
        + "from .old import Old, old\n\n"
        + ALL.replace('"mish"', '"mish", "old"')
    )
    assert written(old) == f"{IMPORTS}\n{ALL}"


def test_a_name_that_is_gone_is_taken_from_its_import() -> None:
    text = f"{IMPORTS}\n{ALL}"
    names = {**NAMES, "mish": ("mish",)}
    found = written(text, names=names, obsolete={"mish": frozenset({"Mish"})})
    assert "from .mish import mish\n" in found and '"Mish"' not in found


def test_new_ones_go_where_their_names_are() -> None:
    names = {**NAMES, "add": ("add",), "mean": ("mean",), "max": ("max",), "z": ("z",)}
    found = written(f"import torch\n{IMPORTS}\n{ALL}", names=names)
    modules = [
        node.module
        for node in ast.parse(found).body
        if isinstance(node, ast.ImportFrom)
    ]
    assert modules == ["add", "linear", "max", "mean", "mish", "z"]


@pytest.mark.parametrize(
    "imports",
    [
        "from ops.linear import Linear, LinearFunction, linear\nfrom ops.mish import Mish, mish\n",
        "from .linear import linear\nfrom .linear import Linear, LinearFunction\nfrom .mish import *\n",
        "from .linear import (\n    Linear,\n    LinearFunction,\n    linear,\n)\nfrom .mish import mish, Mish\n",
    ],
)
def test_another_spelling_is_no_drift(imports: str) -> None:
    text = f"{imports}\n{ALL}"
    assert written(text) == text


def test_what_is_lacking_joins_the_import_that_is_there() -> None:
    found = written(
        f"from .linear import linear, mine\nfrom .mish import Mish, mish\n\n{ALL}"
    )
    assert found.startswith(
        "from .linear import Linear, LinearFunction, linear, mine\n"
    )


def test_an_all_that_is_computed_is_the_users() -> None:
    text = f"{IMPORTS}\n__all__ = [*helpers.__all__]\n"
    assert written(text) == text


def test_the_comments_of_a_long_list_stay() -> None:
    rows = ['"Linear",  # a layer', '"old",', "# the rest", '"zip"  # ours']
    text = "__all__ = [\n" + "".join(f"    {row}\n" for row in rows) + "]\n"
    old = "from .old import old\nzip = zip\n"
    assert written(f"{old}{text}").endswith(
        "__all__ = [\n"
        '    "Linear",  # a layer\n'
        '    "LinearFunction",\n'
        '    "Mish",\n'
        '    "linear",\n'
        '    "mish",\n'
        "    # the rest\n"
        '    "zip",  # ours\n'
        "]\n"
    )


def test_long_lines_are_broken() -> None:
    found = written("", line_length=30)
    assert "from .linear import (\n    Linear,\n" in found
    assert found.endswith('    "mish",\n]\n')


def test_a_team_may_want_one_name_a_line() -> None:
    found = written("", single_lines=True)
    assert "from .mish import Mish\nfrom .mish import mish\n" in found


def test_what_is_no_python_is_an_error() -> None:
    with pytest.raises(ScaffoldError, match="is not Python"):
        with_exports("import (", "ops/__init__.py", exported())
