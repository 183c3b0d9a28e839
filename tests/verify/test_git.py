"""Which files git could not bring back."""

import subprocess
from pathlib import Path

import pytest

from scaffold.verify.git import uncommitted

PATHS = ("a.py", "sub dir/b.py", "c.py")


def git(directory: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(
        ["git", *who, *arguments], cwd=directory, check=True, capture_output=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project in a directory of a repository, all of it committed."""
    root = tmp_path / "project"
    (root / "sub dir").mkdir(parents=True)
    for path in PATHS:
        (root / path).write_text("x\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return root


def test_what_is_committed_can_be_brought_back(repository: Path) -> None:
    assert uncommitted(repository, PATHS) == ()


def test_what_is_changed_or_new_cannot(repository: Path) -> None:
    (repository / "sub dir/b.py").write_text("y\n")
    (repository / "new.py").write_text("y\n")
    (repository / "other.py").write_text("y\n")
    assert uncommitted(repository, (*PATHS, "new.py")) == ("sub dir/b.py", "new.py")


def test_without_git_or_a_repository_nothing_is_said(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "a.py").write_text("y\n")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / ".git").rename(tmp_path / "git")
    assert uncommitted(repository, PATHS) == ()
    (tmp_path / "git").rename(tmp_path / ".git")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uncommitted(repository, PATHS) == ()


def test_what_the_repository_names_is_not_started(repository: Path) -> None:
    mark = repository / "started"
    git(repository, "config", "core.fsmonitor", f"touch '{mark}'; false")
    (repository / "a.py").write_text("y\n")
    assert uncommitted(repository, PATHS) == ("a.py",)
    assert not mark.exists()
