"""Imports of a user's file, with and without the packages around it."""

import os
import sys
from pathlib import Path

import pytest

from scaffold.verify.child.file_import import NotLoadedError, import_file, notes_on


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no module and no path of a test behind."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})


def package(root: Path, init: str, text: str) -> str:
    (root / "heavy").mkdir()
    (root / "heavy" / "__init__.py").write_text(init)
    file = root / "heavy" / "ops.py"
    file.write_text(text)
    return os.fspath(file)


def test_a_package_that_cannot_be_imported_is_left_out(tmp_path: Path) -> None:
    file = package(tmp_path, "import no_such_module\n", "VALUE = 3\n")
    assert import_file("heavy.ops", file, os.fspath(tmp_path)).VALUE == 3
    (note,) = notes_on("heavy.ops")
    assert "imported without its package" in note and "no_such_module" in note


def test_a_package_that_can_be_imported_is_run(tmp_path: Path) -> None:
    file = package(tmp_path, "SCALE = 2\n", "from . import SCALE\n")
    assert import_file("heavy.ops", file, os.fspath(tmp_path)).SCALE == 2


def test_an_import_of_the_file_itself_is_an_error(tmp_path: Path) -> None:
    file = package(tmp_path, "", "import no_such_module\n")
    with pytest.raises(NotLoadedError, match=r"cannot be imported: .*no_such_module"):
        import_file("heavy.ops", file, os.fspath(tmp_path))


def test_files_of_one_name_in_two_directories_are_two_modules(tmp_path: Path) -> None:
    for number, directory in enumerate(("one", "two")):
        (tmp_path / directory).mkdir()
        file = tmp_path / directory / "layers.py"
        file.write_text(f"VALUE = {number}\n")
        root = os.fspath(file.parent)
        assert import_file("layers", os.fspath(file), root).VALUE == number
