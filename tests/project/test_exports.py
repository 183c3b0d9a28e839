"""What the `__init__.py` of the source directory exports."""

from pathlib import Path

import pytest

from tests.cli.projects import SCALE, SHIFT, clean, edit, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


EXPORTING = '[tool.scaffold]\nsource = "ops"\ntests = "tests"\nexports = true\n'
BOTH = """from .scale import Scale, ScaleFunction, scale
from .shift import Shift, ShiftFunction, shift

__all__ = ["Scale", "ScaleFunction", "Shift", "ShiftFunction", "scale", "shift"]
"""


@pytest.fixture
def exporting(tmp_path: Path) -> Path:
    project(tmp_path, SCALE, SHIFT, configuration=EXPORTING)
    assert scaffold(tmp_path, "sync").code == 0
    return tmp_path


def test_exports_follow_the_ops(exporting: Path) -> None:
    file = exporting / "ops/__init__.py"
    assert file.read_text() == BOTH
    clean(exporting)
    assert scaffold(exporting, "sync").out == "2 identical (4 files)\n"
    assert scaffold(exporting, "rename", "scale", "tilt").code == 0
    assert file.read_text() == (
        "from .shift import Shift, ShiftFunction, shift\n"
        "from .tilt import Tilt, TiltFunction, tilt\n\n"
        '__all__ = ["Shift", "ShiftFunction", "Tilt", "TiltFunction", "shift", "tilt"]\n'
    )
    clean(exporting)
    assert scaffold(exporting, "remove", "shift").code == 0
    assert file.read_text() == (
        "from .tilt import Tilt, TiltFunction, tilt\n\n"
        '__all__ = ["Tilt", "TiltFunction", "tilt"]\n'
    )
    new = ("new-op", "add", "--inputs", "x, y", "--forward", "x + y", "--no-verify")
    assert scaffold(exporting, *new).code == 0
    assert file.read_text().startswith("from .add import Add, AddFunction, add\n")
    clean(exporting)


def test_a_class_that_is_not_there_any_more_is_not_exported(exporting: Path) -> None:
    edit(exporting / "ops.toml", "[ops.scale]", "[ops.scale]\nmodule = false")
    edit(exporting / "ops.toml", "[ops.shift]", "[ops.shift]\nclass-name = 'Move'")
    assert scaffold(exporting, "sync").code == 0
    assert (exporting / "ops/__init__.py").read_text() == (
        "from .scale import ScaleFunction, scale\n"
        "from .shift import Move, MoveFunction, shift\n\n"
        '__all__ = ["Move", "MoveFunction", "ScaleFunction", "scale", "shift"]\n'
    )


def test_exports_that_are_missing_are_no_secret(exporting: Path) -> None:
    file = exporting / "ops/__init__.py"
    edit(file, "from .shift import Shift, ShiftFunction, shift\n", "")
    outcome = scaffold(exporting, "check")
    assert outcome.code == 1
    assert outcome.out.startswith("stale  ops/__init__.py: it does not export")
    file.unlink()
    assert scaffold(exporting, "check").out.startswith("missing  ops/__init__.py\n")
    assert scaffold(exporting, "sync").code == 0
    assert file.read_text() == BOTH


def test_exports_need_a_directory_of_their_own(tmp_path: Path) -> None:
    project(tmp_path, SCALE, configuration="[tool.scaffold]\nexports = true\n")
    outcome = scaffold(tmp_path, "sync")
    assert outcome.code == 2 and "is not a package" in outcome.err
