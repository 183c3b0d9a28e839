"""Runs at the same time in one directory: processes of their own, held up until both have planned."""

import subprocess
import time
from pathlib import Path

from scaffold.workspace.locks import NAME, locked
from tests.cli.projects import SCALE, SHIFT, contents, project
from tests.cli.running import COMMAND, environment, scaffold


def at_once(root: Path, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Start the commands while the directory is locked, let go; exit codes and messages."""
    with locked(root):
        started = [
            subprocess.Popen(
                [*COMMAND, *arguments],
                cwd=root,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for arguments in commands
        ]
        time.sleep(3)
        assert [run.poll() for run in started] == [None] * len(started), "all wait"
        (root / NAME).unlink()
    messages = [run.communicate(timeout=60)[1] for run in started]
    return [(run.returncode, said) for run, said in zip(started, messages, strict=True)]


def test_two_runs_at_once_end_in_the_files_of_one(tmp_path: Path) -> None:
    for name in ("foo.py", "test_foo.py"):
        (tmp_path / name).write_text("old\n")
    pair = ("new-op", "foo", "--on-conflict", "overwrite", "--inputs")
    results = at_once(tmp_path, (*pair, "x, left"), (*pair, "x, right"))
    assert [code for code, _ in results] == [0, 0], results
    texts = {name: data.decode() for name, data in contents(tmp_path).items()}
    assert list(texts) == ["foo.py", "test_foo.py"]
    (name,) = {word for word in ("left", "right") if word in texts["foo.py"]}
    assert name in texts["test_foo.py"]


def test_two_syncs_at_once_leave_a_project_that_is_in_order(tmp_path: Path) -> None:
    root = project(tmp_path, SCALE, SHIFT)
    results = at_once(root, ("sync",), ("sync",))
    assert [code for code, _ in results] == [0, 0], results
    assert scaffold(root, "check").code == 0
    assert not [name for name in contents(root) if name.endswith(".tmp")]
