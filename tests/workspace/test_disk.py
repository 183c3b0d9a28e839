"""Single steps on the disk."""

import os
from pathlib import Path

import pytest

from scaffold.workspace import disk


def test_a_file_that_is_not_there_has_no_content_and_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert disk.read(path) is None and disk.digest(path) is None
    path.write_bytes(b"a")
    assert disk.read(path) == b"a"
    assert disk.digest(path) == disk.fingerprint(b"a") != disk.fingerprint(b"b")
    disk.unlink(path)
    disk.unlink(path)
    assert not path.exists()


def test_a_new_file_is_new_and_written_whole(tmp_path: Path) -> None:
    path, data = tmp_path / "a", b"x" * 3_000_000
    descriptor = disk.create(path)
    disk.write(descriptor, data)
    disk.chmod(descriptor, 0o640)
    disk.close(descriptor)
    assert path.read_bytes() == data and disk.mode(path) == 0o640
    with pytest.raises(FileExistsError):
        disk.create(path)


def test_what_is_marked_as_read_only_is_not_writable_even_for_root(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    path.touch()
    assert disk.writable(path)
    path.chmod(0o444)
    assert not disk.writable(path)


def test_what_another_run_removes_in_between_may_be_written_and_has_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    assert disk.writable(path) and disk.names(path) == []
    path.touch()

    def access(path: Path, mode: int) -> bool:
        path.unlink()
        return False

    monkeypatch.setattr(os, "access", access)
    assert disk.writable(path)


def test_a_lock_is_held_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    descriptor = disk.open_lock(path)
    assert not disk.held(path)
    disk.lock(descriptor)
    assert disk.held(path)
    other = disk.open_lock(path)
    with pytest.raises(BlockingIOError):
        disk.lock(other)
    disk.close(descriptor)
    disk.lock(other)
    os.close(other)
    assert not disk.held(path)


def test_a_link_is_a_second_name_of_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    disk.link(tmp_path / "link", tmp_path / "second")
    assert os.readlink(tmp_path / "second") == "nowhere"
