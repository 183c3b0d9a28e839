"""Which files git could not bring back."""

import subprocess
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify import external_tools
from scaffold.verify.external_tools import format_with_ruff, uncommitted

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


def test_filters_are_not_started(repository: Path) -> None:
    mark = repository / "started"
    git(repository, "config", "filter.x.clean", f"touch '{mark}'; cat")
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "a.py").write_text("y\n")
    assert uncommitted(repository, PATHS) == ("a.py",)
    assert not mark.exists()
    git(repository, "ls-files", "--modified")
    assert mark.exists()


def test_line_ends_of_a_checkout_are_no_change(repository: Path) -> None:
    for path in PATHS[:2]:
        (repository / path).write_bytes(b"x\r\n")
    (repository / "c.py").write_bytes(b"y\r\n")
    assert uncommitted(repository, PATHS) == ("c.py",)


def test_a_repository_may_have_longer_hashes(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256")
    (tmp_path / "a.py").write_text("x\n")
    git(tmp_path, "add", ".")
    assert uncommitted(tmp_path, ("a.py",)) == ()
    (tmp_path / "a.py").write_text("y\n")
    assert uncommitted(tmp_path, ("a.py",)) == ("a.py",)


def test_what_git_ignores_it_cannot_bring_back(repository: Path) -> None:
    (repository / ".gitignore").write_text("own.py\n")
    (repository / "own.py").write_text("x\n")
    assert uncommitted(repository, (*PATHS, "own.py")) == ("own.py",)


LONG = "def f(first_parameter, second_parameter, third_parameter):\n    return 'x'\n"


def test_each_file_is_formatted(tmp_path: Path) -> None:
    files = {f"ops/f{number}.py": f"x  =  {number}\n" for number in range(9)}
    done = format_with_ruff(files, 88, tmp_path)
    assert done == {f"ops/f{number}.py": f"x = {number}\n" for number in range(9)}
    assert not list(tmp_path.iterdir())


def test_the_length_of_lines_is_that_of_the_project(tmp_path: Path) -> None:
    short, long = (
        format_with_ruff({"f.py": LONG}, length, tmp_path)["f.py"]
        for length in (40, 88)
    )
    assert short.count("\n") > long.count("\n") == 2


def test_the_configuration_of_the_project_holds(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.ruff.format]\nquote-style = 'single'\n"
    )
    assert "return 'x'" in format_with_ruff({"f.py": LONG}, 88, tmp_path)["f.py"]


def test_what_is_no_python_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match=r"ruff does not format 'a/f\.py': "):
        format_with_ruff({"a/f.py": "def (:\n"}, 88, tmp_path)


def test_a_missing_ruff_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_tools, "_executable", lambda: str(tmp_path / "ruff"))
    with pytest.raises(ScaffoldError, match="cannot run ruff") as raised:
        format_with_ruff({"f.py": LONG}, 88, tmp_path)
    assert raised.value.hint and "formatter = 'black'" in raised.value.hint
    assert raised.value.exit_code == 2


def test_a_repository_that_a_clone_holds_in_its_files_is_none(
    repository: Path,
) -> None:
    """A bare one can be committed, with a worktree and filters: commands that git would start."""
    mark = repository / "started"
    git(repository, "init", "-q", "--bare", "held")
    for path in (repository / "held").iterdir():
        path.rename(repository / path.name)
    git(repository, "config", "--file", "config", "core.bare", "false")
    git(repository, "config", "--file", "config", "core.worktree", ".")
    git(repository, "add", "-f", *PATHS)
    filtering = ("filter.x.clean", f"touch '{mark}'; cat")
    git(repository, "config", "--file", "config", *filtering)
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "a.py").write_text("y\n")
    git(repository, "ls-files", "--modified")
    assert mark.exists()
    mark.unlink()
    uncommitted(repository, PATHS)
    assert not mark.exists()
