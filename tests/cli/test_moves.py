"""Ops that leave a project or go by another name: all of it moves, and nobody's work is lost."""

import json
from pathlib import Path

import pytest

from tests.cli.projects import SCALE, SHIFT, contents, interrupted, project
from tests.cli.running import Outcome, scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

COMMENTED = f"""# all of our ops

# how much
{SCALE}# and no more

# how far
{SHIFT}"""


@pytest.fixture
def synced(tmp_path: Path) -> Path:
    project(tmp_path, COMMENTED)
    assert scaffold(tmp_path, "sync").code == 0
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def clean(root: Path) -> None:
    outcome = scaffold(root, "check", "--strict")
    assert outcome.code == 0, outcome.out


def test_an_op_goes_with_all_that_is_its_own(synced: Path) -> None:
    outcome = scaffold(synced, "remove", "scale")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "update  ops.toml",
        "remove  ops/scale.py",
        "remove  tests/test_scale.py",
        "1 removed (2 files)",
    ]
    assert not [path for path in contents(synced) if "scale" in path]
    assert (
        synced / "ops.toml"
    ).read_text() == f"# all of our ops\n\n# how far\n{SHIFT}"
    clean(synced)


def test_the_last_op_takes_the_directories_along(synced: Path) -> None:
    assert scaffold(synced, "remove", "scale", "shift").code == 0
    assert set(contents(synced)) == {"pyproject.toml", "ops.toml"}
    assert not (synced / "ops").exists()


@pytest.mark.parametrize("name", ["ops/scale.py", "tests/test_scale.py"])
def test_what_was_edited_goes_by_force_alone(synced: Path, name: str) -> None:
    edit(synced / name, "scale", "stretch")
    before = contents(synced)
    outcome = scaffold(synced, "remove", "shift", "scale")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        f"{name}:1:1: was edited; nothing was removed\n"
        "hint: scaffold remove scale --force removes it all the same\n"
    )
    assert contents(synced) == before
    assert scaffold(synced, "remove", "shift", "scale", "--force").code == 0
    assert set(contents(synced)) == {"pyproject.toml", "ops.toml"}


def test_formatting_is_no_edit(synced: Path) -> None:
    edit(synced / "ops/scale.py", "return x * factor", "return (x * factor)")
    assert scaffold(synced, "remove", "scale").code == 0


def test_what_no_manifest_lists_any_more_goes_too(synced: Path) -> None:
    (synced / "ops.toml").write_text(SHIFT)
    assert scaffold(synced, "remove", "scale").code == 0
    assert not [path for path in contents(synced) if "scale" in path]
    clean(synced)


@pytest.mark.parametrize("record", [True, False])
def test_a_file_of_somebody_else_stays(tmp_path: Path, record: bool) -> None:
    project(tmp_path, SCALE)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/scale.py").write_text("mine = 1\n")
    if record:
        assert scaffold(tmp_path, "sync", "--on-conflict", "skip").code == 0
    before = contents(tmp_path)
    outcome = scaffold(tmp_path, "remove", "scale")
    if record:  # the record tells of the test file alone
        assert outcome.code == 0
        assert (tmp_path / "ops/scale.py").read_text() == "mine = 1\n"
    else:
        assert outcome.code == 1
        assert contents(tmp_path) == before


@pytest.mark.parametrize("flag", ["--dry-run", "--diff"])
@pytest.mark.parametrize("move", [("remove", "scale"), ("rename", "scale", "stretch")])
def test_a_look_writes_nothing(synced: Path, flag: str, move: tuple[str, ...]) -> None:
    before = contents(synced)
    looked = scaffold(synced, *move, flag)
    assert (looked.code, contents(synced)) == (0, before)
    done = scaffold(synced, *move)
    assert contents(synced) != before
    if flag == "--dry-run":
        assert looked == Outcome(0, done.out, "")


@pytest.mark.parametrize("move", [("remove", "scale"), ("rename", "scale", "stretch")])
def test_what_an_interrupted_run_began_is_undone_and_told(
    synced: Path, move: tuple[str, ...]
) -> None:
    whole = (synced / "ops/shift.py").read_bytes()
    interrupted(synced, "ops/shift.py", before=b"mine\n")
    outcome = scaffold(synced, *move)
    told = "note: undid what an interrupted run had begun: ops/shift.py\n"
    assert (outcome.code, outcome.err) == (0, told)
    assert (synced / "ops/shift.py").read_bytes() == b"mine\n" != whole


def test_programs_hear_of_a_removal(synced: Path) -> None:
    outcome = scaffold(synced, "remove", "scale", "--format", "json")
    told = json.loads(outcome.out)
    assert (told["written"], told["ops"]) == (True, {"scale": "remove"})
    assert [file["verb"] for file in told["files"]] == ["update", "remove", "remove"]
    failed = json.loads(scaffold(synced, "remove", "nope", "--format", "json").out)
    assert not failed["written"] and len(failed["problems"]) == 1


def test_a_new_name_reaches_everything(synced: Path) -> None:
    outcome = scaffold(synced, "rename", "scale", "stretch")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "update  ops.toml",
        "remove  ops/scale.py",
        "remove  tests/test_scale.py",
        "create  ops/stretch.py",
        "create  tests/test_stretch.py",
        "1 renamed (2 files)",
    ]
    held = contents(synced)
    assert not [
        path for path, data in held.items() if "scale" in path or b"cale" in data
    ]
    text = COMMENTED.replace("ops.scale", "ops.stretch")
    assert (synced / "ops.toml").read_text() == text
    clean(synced)


def test_what_was_edited_comes_along_with_the_names_in_it(synced: Path) -> None:
    edit(synced / "ops/scale.py", "return x * factor", "return factor * x")
    with (synced / "tests/test_scale.py").open("a") as file:
        file.write(
            "\n\ndef test_my_scale() -> None:\n"
            '    """To scale: see :func:`scale`."""\n'
            "    x = make()[0]\n"
            "    assert scale(x, factor=3.0) is not torch.scale  # scale\n"
            "    assert ScaleFunction and Scale and dict(scale=1)\n"
        )
    assert scaffold(synced, "rename", "scale", "stretch").code == 0
    assert "return factor * x" in (synced / "ops/stretch.py").read_text()
    assert (
        (synced / "tests/test_stretch.py")
        .read_text()
        .endswith(
            "\n\ndef test_my_stretch() -> None:\n"
            '    """To scale: see :func:`stretch`."""\n'
            "    x = make()[0]\n"
            "    assert stretch(x, factor=3.0) is not torch.scale  # scale\n"
            "    assert StretchFunction and Stretch and dict(scale=1)\n"
        )
    )
    told = scaffold(synced, "check")
    assert told.out.splitlines()[-1] == "2 ok, 2 edited, 1 unproven"


def test_what_is_out_of_date_is_brought_up_to_date(synced: Path) -> None:
    edit(synced / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    edit(synced / "ops/scale.py", "return x * factor", "return factor * x")
    assert scaffold(synced, "rename", "scale", "stretch").code == 0
    text = (synced / "ops/stretch.py").read_text()
    assert "def stretch(x: Tensor, factor: float = 3.0)" in text
    assert "return factor * x" in text


def test_edits_that_collide_are_marked(synced: Path) -> None:
    name = '"""The custom operator scale."""'
    edit(synced / "ops/scale.py", name, '"""Our own operator scale."""')
    outcome = scaffold(synced, "rename", "scale", "stretch")
    assert outcome.code == 1
    assert "conflict  ops/stretch.py" in outcome.out
    text = (synced / "ops/stretch.py").read_text()
    assert "Our own operator scale." in text and "<<<<<<<" in text
    assert "conflict-markers  ops/stretch.py" in scaffold(synced, "check").out
    again = scaffold(synced, "rename", "stretch", "scale")
    assert again.code == 1 and "holds conflict markers" in again.err


def test_a_class_name_that_is_stated_stays(synced: Path) -> None:
    edit(synced / "ops.toml", "[ops.scale]", "[ops.scale]\nclass-name = 'Times'")
    assert scaffold(synced, "sync").code == 0
    assert scaffold(synced, "rename", "scale", "stretch").code == 0
    text = (synced / "ops/stretch.py").read_text()
    assert "class TimesFunction" in text and "def stretch(" in text
    clean(synced)


def test_an_op_that_is_not_written_yet_is_renamed_in_the_manifest(
    tmp_path: Path,
) -> None:
    project(tmp_path, SCALE)
    assert scaffold(tmp_path, "rename", "scale", "stretch").code == 0
    assert set(contents(tmp_path)) == {"pyproject.toml", "ops.toml"}
    assert "[ops.stretch]" in (tmp_path / "ops.toml").read_text()


def test_other_uses_are_told_and_left(synced: Path) -> None:
    model = synced / "model.py"
    model.write_text("import torch\nfrom ops.scale import scale\n")
    outcome = scaffold(synced, "rename", "scale", "stretch")
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
    assert outcome.code == 2 and "is no package" in outcome.err


def test_list_says_how_ops_stand(synced: Path) -> None:
    edit(synced / "ops/scale.py", "x * factor", "factor * x")
    (synced / "tests/test_shift.py").unlink()
    new = "\n[ops.todo]\ninputs = 'x'\n\n[ops.later]\ninputs = 'x'\n"
    (synced / "ops.toml").write_text(COMMENTED + new)
    assert scaffold(synced, "upgrade", "todo").code == 0
    outcome = scaffold(synced, "list")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "scale  ops.toml:4   ops/scale.py (edited), tests/test_scale.py",
        "shift  ops.toml:11  ops/shift.py, tests/test_shift.py (missing)",
        "todo   ops.toml:17  ops/todo.py, tests/test_todo.py; skeleton",
        "later  ops.toml:20  not written yet: scaffold sync",
    ]
    (synced / "ops.toml").write_text(SHIFT)
    *_, gone = json.loads(scaffold(synced, "list", "--format", "json").out)["ops"]
    assert gone["op"] == "todo"
    assert gone["status"] == ["in no manifest any more: scaffold remove todo"]
