"""The import block of a generated file, in the order that ruff wants."""

import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.render.imports import import_block
from scaffold.spec import Import

ALIASED = (
    Import("make", "Recorder", "RecorderOp"),
    Import("make", "RecorderFunction"),
    Import("make", "make", "make_op"),
    Import("make", "ABC"),
)


def test_only_what_is_read_is_imported() -> None:
    assert import_block("torch.sin(math.pi)") == "import math\n\nimport torch"


def test_a_parameter_is_no_import() -> None:
    code = "def f(F: int, D: int):\n    torch.empty(F)\n    def g(x): F.relu(x)\n"
    assert import_block(code) == "import torch"
    other = f"{code}\ndef h(x): F.relu(x)"
    assert import_block(other) == "import torch\nimport torch.nn.functional as F"


def test_a_renamed_name_has_a_line_of_its_own() -> None:
    code = "RecorderOp, RecorderFunction, make_op, ABC"
    assert import_block(code, ALIASED, ()).splitlines() == [
        "from make import ABC, RecorderFunction",
        "from make import Recorder as RecorderOp",
        "from make import make as make_op",
    ]


@pytest.mark.parametrize(
    "read", ["RecorderOp, RecorderFunction, make_op", "make_op, ABC, torch, F"]
)
def test_the_order_is_that_of_ruff(tmp_path: Path, read: str) -> None:
    (tmp_path / "make.py").touch()
    known = (Import("torch"), Import("torch.nn.functional", None, "F"))
    text = f"{import_block(read, ALIASED, known)}\n\nprint({read})\n"
    (tmp_path / "used.py").write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "."]
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


def test_a_module_that_torch_does_not_export_is_imported_itself() -> None:
    code = "y = torch.nn.grad.conv1d_input(shape, w, grad)\n"
    assert import_block(code) == "import torch\nimport torch.nn.grad"
