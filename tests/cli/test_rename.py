"""Ops that go by another name: all of it moves, and nobody's work is lost."""

from pathlib import Path

import pytest

from tests.cli.projects import COMMENTED, SCALE, clean, contents, edit, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")


def test_a_new_name_reaches_everything(commented: Path) -> None:
    outcome = scaffold(commented, "rename", "scale", "stretch")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "update  ops.toml",
        "remove  ops/scale.py",
        "remove  tests/test_scale.py",
        "create  ops/stretch.py",
        "create  tests/test_stretch.py",
        "1 renamed (2 files)",
    ]
    held = contents(commented)
    assert not [
        path for path, data in held.items() if "scale" in path or b"cale" in data
    ]
    text = COMMENTED.replace("ops.scale", "ops.stretch")
    assert (commented / "ops.toml").read_text() == text
    clean(commented)


def test_what_was_edited_comes_along_with_the_names_in_it(commented: Path) -> None:
    edit(commented / "ops/scale.py", "return x * factor", "return factor * x")
    with (commented / "tests/test_scale.py").open("a") as file:
        file.write(
            "\n\ndef test_my_scale() -> None:\n"
            '    """To scale: see :func:`scale`."""\n'
            "    x = make()[0]\n"
            "    assert scale(x, factor=3.0) is not torch.scale  # scale\n"
            "    assert ScaleFunction and Scale and dict(scale=1)\n"
        )
    assert scaffold(commented, "rename", "scale", "stretch").code == 0
    assert "return factor * x" in (commented / "ops/stretch.py").read_text()
    assert (
        (commented / "tests/test_stretch.py")
        .read_text()
        .endswith(
            "\n\ndef test_my_stretch() -> None:\n"
            '    """To scale: see :func:`stretch`."""\n'
            "    x = make()[0]\n"
            "    assert stretch(x, factor=3.0) is not torch.scale  # scale\n"
            "    assert StretchFunction and Stretch and dict(scale=1)\n"
        )
    )
    told = scaffold(commented, "check")
    assert told.out.splitlines()[-1] == "3 ok, 2 edited, 1 unproven"


def test_what_is_out_of_date_is_brought_up_to_date(commented: Path) -> None:
    edit(commented / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    edit(commented / "ops/scale.py", "return x * factor", "return factor * x")
    assert scaffold(commented, "rename", "scale", "stretch").code == 0
    text = (commented / "ops/stretch.py").read_text()
    assert "def stretch(x: Tensor, factor: float = 3.0)" in text
    assert "return factor * x" in text


def test_edits_that_collide_are_marked(commented: Path) -> None:
    name = '"""The custom operator scale."""'
    edit(commented / "ops/scale.py", name, '"""Our own operator scale."""')
    outcome = scaffold(commented, "rename", "scale", "stretch")
    assert outcome.code == 1
    assert "conflict  ops/stretch.py" in outcome.out
    text = (commented / "ops/stretch.py").read_text()
    assert "Our own operator scale." in text and "<<<<<<<" in text
    assert "conflict-markers  ops/stretch.py" in scaffold(commented, "check").out
    again = scaffold(commented, "rename", "stretch", "scale")
    assert again.code == 1 and "holds conflict markers" in again.err


def test_a_class_name_that_is_stated_stays(commented: Path) -> None:
    edit(commented / "ops.toml", "[ops.scale]", "[ops.scale]\nclass-name = 'Times'")
    assert scaffold(commented, "sync").code == 0
    assert scaffold(commented, "rename", "scale", "stretch").code == 0
    text = (commented / "ops/stretch.py").read_text()
    assert "class TimesFunction" in text and "def stretch(" in text
    clean(commented)


def test_an_op_that_is_not_written_yet_is_renamed_in_the_manifest(
    tmp_path: Path,
) -> None:
    project(tmp_path, SCALE)
    assert scaffold(tmp_path, "rename", "scale", "stretch").code == 0
    assert set(contents(tmp_path)) == {"pyproject.toml", "ops.toml"}
    assert "[ops.stretch]" in (tmp_path / "ops.toml").read_text()


def test_other_uses_are_told_and_left(commented: Path) -> None:
    model = commented / "model.py"
    model.write_text("import torch\nfrom ops.scale import scale\n")
    outcome = scaffold(commented, "rename", "scale", "stretch")
    assert outcome.err == "note: model.py:2: imports 'scale' still\n"
    assert "ops.scale" in model.read_text()


def test_the_names_of_files_and_classes_are_those_of_the_project(
    tmp_path: Path,
) -> None:
    names = "names = { file = '{op}_op.py', function = 'F{Op}', module = '{Op}Layer' }"
    project(tmp_path, SCALE, configuration=f"[tool.scaffold]\n{names}\n")
    assert scaffold(tmp_path, "sync").code == 0
    with (tmp_path / "test_scale.py").open("a") as file:
        file.write("\n\nprint(FScale, ScaleLayer, scale)\n")
    assert scaffold(tmp_path, "rename", "scale", "Stretch").code == 0
    text = (tmp_path / "test_stretch.py").read_text()
    assert text.endswith("\n\nprint(FStretch, StretchLayer, stretch)\n")
    assert "from stretch_op import " in text
