"""Runs of `scaffold sync` that meet, and runs that are killed: every file is whole, and the next run puts things right."""

import ast
import json
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.projects import SCALE, SHIFT, contents, edit, project
from tests.cli.running import COMMAND, environment, scaffold

ROUNDS = 3
TABLES = tuple(
    table.replace("[ops.", f"[ops.{letter}_")
    for letter in "abc"
    for table in (SCALE, SHIFT)
)


def start(root: Path, *options: str) -> "subprocess.Popen[str]":
    null = subprocess.DEVNULL
    return subprocess.Popen(
        [*COMMAND, "sync", *options],
        cwd=root,
        env=environment(),
        stdin=null,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def generated(root: Path) -> dict[str, bytes]:
    """The files of the ops, with their records."""
    return {
        path: data
        for path, data in contents(root).items()
        if path.startswith(("ops/", "tests/", ".scaffold/"))
    }


def whole(root: Path) -> bool:
    """Whether all files can be read as what they are."""
    for path, data in generated(root).items():
        if path.endswith(".py"):
            ast.parse(data)
        elif path.endswith(".json"):
            json.loads(data)
    return True


@pytest.mark.each_commit
def test_two_runs_at_once_end_in_the_state_of_one(tmp_path: Path) -> None:
    project(tmp_path, *TABLES)
    assert scaffold(tmp_path, "sync").code == 0
    for turn in range(ROUNDS):
        was, now = f"factor: float = {turn + 2}.0", f"factor: float = {turn + 3}.0"
        edit(tmp_path / "ops.toml", was, now)
        runs = [start(tmp_path), start(tmp_path)]
        said = [run.communicate(timeout=120)[1] for run in runs]
        assert [run.returncode for run in runs] == [0, 0], said
        assert whole(tmp_path)
        assert not [path for path in contents(tmp_path) if path.endswith(".tmp")]
        checked = scaffold(tmp_path, "check", "--strict")
        assert (checked.code, checked.out) == (0, "13 ok\n")
        assert now.encode() in generated(tmp_path)["ops/a_scale.py"]


def reference(root: Path, *changes: str) -> list[dict[str, bytes]]:
    """What the files are with each form of the manifest."""
    project(root, *TABLES)
    states = []
    for change in ("factor: float = 2.0", *changes):
        edit(root / "ops.toml", "factor: float = 2.0", change)
        assert scaffold(root, "sync").code == 0
        states.append(generated(root))
    return states


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=getattr(pytest.mark, mark))
        for seed, mark in enumerate(("each_commit", *["exhaustive"] * 9))
    ],
)
def test_a_run_that_is_killed_leaves_every_file_whole(
    tmp_path: Path, seed: int
) -> None:
    (tmp_path / "reference").mkdir()
    old, new = reference(tmp_path / "reference", "factor: float = 3.0")
    root = tmp_path / "project"
    root.mkdir()
    project(root, *TABLES)
    assert scaffold(root, "sync").code == 0
    edit(root / "ops.toml", "factor: float = 2.0", "factor: float = 3.0")
    delays = random.Random(seed)
    for _ in range(ROUNDS):
        run = start(root)
        journal = root / ".scaffold-journal.tmp"
        if delays.random() < 0.7:  # else at any time
            while run.poll() is None and not journal.exists():
                time.sleep(0.001)
            time.sleep(delays.random() * 0.02)
        else:
            time.sleep(delays.random())
        run.kill()
        run.communicate()
        found = generated(root)
        kept = {path: data for path, data in found.items() if "tmp" not in path}
        assert whole(root)
        for path, data in kept.items():
            assert data in (old[path], new[path]), path
        checked = scaffold(root, "check")
        begun = journal.exists() and journal.read_bytes().endswith(b"\n")
        # Done, but killed before it could take away what it had replaced.
        begun |= any(path.endswith(".old.tmp") for path in contents(root))
        assert ("interrupted" in checked.out) is begun
        assert checked.code == (0 if kept == new and not begun else 1)
    assert scaffold(root, "sync").code == 0
    assert scaffold(root, "check", "--strict").code == 0
    assert generated(root) == new
    assert not [path for path in contents(root) if path.endswith(".tmp")]
