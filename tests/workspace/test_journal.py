import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.workspace import apply, plan, recover, resolve
from scaffold.workspace.transaction import NAME
from tests.workspace.conftest import disk_with_steps, run_in_child

FILES = {"a.py": "new a\n", "b.py": "new b\n", "d/c.py": "new c\n"}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `interrupted` is a copy of."""
    root = tmp_path_factory.mktemp("killed")
    (root / "a.py").write_text("old a\n")
    made = resolve(plan(FILES, root), "overwrite")
    for number in range(100):
        with pytest.MonkeyPatch.context() as patch:
            disk_with_steps(patch).kill(number, "before")
            assert run_in_child(lambda: apply(made)) == 9
        if (root / "b.py").exists():
            break
        recover(root)
    assert (root / "a.py").read_text() == "new a\n"
    return root


@pytest.fixture
def interrupted(killed: Path, tmp_path: Path) -> Path:
    """A tree whose run was killed after two of three files were in place."""
    return Path(shutil.copytree(killed, tmp_path / "root"))


def test_nothing_to_recover(tmp_path: Path) -> None:
    assert recover(tmp_path) == ()
    assert os.listdir(tmp_path) == []


def test_half_a_run_is_undone(interrupted: Path) -> None:
    assert recover(interrupted) == ("a.py", "b.py")
    assert os.listdir(interrupted) == ["a.py"]
    assert (interrupted / "a.py").read_text() == "old a\n"
    assert recover(interrupted) == ()


def test_what_was_edited_since_is_kept(interrupted: Path) -> None:
    (interrupted / "b.py").write_text("edited\n")
    (interrupted / "d/mine.py").write_text("mine\n")
    assert recover(interrupted) == ("a.py",)
    assert (interrupted / "b.py").read_text() == "edited\n"
    assert (interrupted / "d/mine.py").read_text() == "mine\n"
    assert not list(interrupted.rglob(".scaffold-*"))


def test_what_has_no_backup_any_more_is_not_said_to_be_undone(
    interrupted: Path,
) -> None:
    (backup,) = interrupted.glob(".scaffold-*.old.tmp")
    backup.unlink()
    assert recover(interrupted) == ("b.py",)
    assert (interrupted / "a.py").read_text() == "new a\n"
    assert not list(interrupted.rglob(".scaffold-*"))


def change(root: Path, edit: Callable[[Any], object]) -> None:
    body = json.loads((root / NAME).read_text())
    edit(body)
    (root / NAME).write_text(json.dumps(body) + "\n")


EDITS: tuple[Callable[[Any], object], ...] = (
    lambda body: body["steps"][0].update(target="../victim.py"),
    lambda body: body["steps"][0].update(target="/victim.py"),
    lambda body: body["steps"][0].update(target="link.py"),
    lambda body: body["steps"][0].update(staged="victim.py"),
    lambda body: body["steps"][0].update(backup="../.scaffold-0-0.old.tmp"),
    lambda body: body["steps"][0].update(target=1),
    lambda body: body["steps"][0].pop("after"),
    lambda body: body.update(made=[".."]),
    lambda body: body.update(emptied=["link.py/.."]),
    lambda body: body["steps"][0].update(staged=None, target="../victim.py"),
    lambda body: body.pop("emptied"),
    lambda body: body.clear(),
)


def test_a_journal_of_another_hand_moves_nothing(interrupted: Path) -> None:
    (interrupted.parent / "victim.py").write_text("new a\n")
    (interrupted / "link.py").symlink_to("../victim.py")
    journal = (interrupted / NAME).read_text()
    before = sorted(os.listdir(interrupted))
    for edit in EDITS:
        (interrupted / NAME).write_text(journal)
        change(interrupted, edit)
        with pytest.raises(ScaffoldError, match="is not a journal of scaffold"):
            recover(interrupted)
        assert sorted(os.listdir(interrupted)) == before
        assert (interrupted.parent / "victim.py").read_text() == "new a\n"


@pytest.mark.parametrize("text", ["[]\n", "no json\n", "{}\n", '{"steps": 1}\n'])
def test_what_is_no_journal_is_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ScaffoldError, match="is not a journal of scaffold"):
        recover(tmp_path)
    assert (tmp_path / NAME).read_text() == text


def test_a_journal_cut_short_tells_of_nothing_done(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"steps": [{"target": "a.p')
    assert recover(tmp_path) == ()
    assert os.listdir(tmp_path) == []


def test_a_disk_that_refuses_is_an_error_with_a_place(interrupted: Path) -> None:
    (interrupted / "b.py").unlink()
    (interrupted / "b.py").mkdir()
    with pytest.raises(ScaffoldError, match="cannot recover from .*journal"):
        recover(interrupted)
