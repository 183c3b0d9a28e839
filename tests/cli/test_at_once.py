"""Runs at the same time in one directory: copies of this process, held up until both have planned."""

import multiprocessing
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from scaffold.cli import remove, rename
from scaffold.project import update
from scaffold.workspace import changes, in_turn, transaction
from scaffold.workspace.transaction import NAME, locked
from tests.cli.projects import CONFIGURATION, SCALE, SHIFT, contents, edit, project
from tests.cli.running import QUICK, Outcome, scaffold

FORK = multiprocessing.get_context("fork")  # nothing is imported once more


def together(root: Path, *commands: tuple[str, ...]) -> list[Outcome]:
    """Run the commands at the same moment."""
    return ended(*started(root, FORK.Barrier(len(commands)), *commands))


def started(root: Path, start: Any, *commands: tuple[str, ...]) -> tuple[Any, Any]:
    """The runs of the commands, each in a copy of this process, and where they put what they say."""
    results = FORK.SimpleQueue()

    def run(number: int) -> None:
        start.wait(60)
        results.put((number, scaffold(root, *commands[number])))

    runs = [FORK.Process(target=run, args=(n,)) for n in range(len(commands))]
    for one in runs:
        one.start()
    return runs, results


def ended(runs: Any, results: Any) -> list[Outcome]:
    """What each run said, in their order."""
    outcomes = dict(results.get() for _ in runs)
    for one in runs:
        one.join(60)
    return [outcome for _, outcome in sorted(outcomes.items())]


def at_once(root: Path, *commands: tuple[str, ...]) -> list[tuple[int, str]]:
    """Start the commands while the directory is locked, let go; exit codes and messages."""
    with locked(root):
        runs, results = started(root, FORK.Barrier(len(commands)), *commands)
        time.sleep(0.3)
        assert all(run.is_alive() for run in runs), "all wait"
        (root / NAME).unlink()
    outcomes = ended(runs, results)
    return [(run.code, run.err) for run in outcomes]


def test_two_runs_at_once_end_in_the_files_of_one(tmp_path: Path) -> None:
    for name in ("foo.py", "test_foo.py"):
        (tmp_path / name).write_text("old\n")
    pair = ("new-op", "foo", "--no-verify", "--on-conflict", "overwrite", "--inputs")
    results = at_once(tmp_path, (*pair, "x, left"), (*pair, "x, right"))
    assert [code for code, _ in results] == [0, 0], results
    texts = {name: data.decode() for name, data in contents(tmp_path).items()}
    assert list(texts) == ["foo.py", "test_foo.py"]
    (name,) = {word for word in ("left", "right") if word in texts["foo.py"]}
    assert name in texts["test_foo.py"]


def test_two_syncs_at_once_leave_a_project_that_is_in_order(tmp_path: Path) -> None:
    root = project(tmp_path, SCALE, SHIFT)
    results = at_once(root, ("sync", "--no-verify"), ("sync", "--no-verify"))
    assert [code for code, _ in results] == [0, 0], results
    assert scaffold(root, "check").code == 0
    assert not [name for name in contents(root) if name.endswith(".tmp")]


def listed(root: Path) -> set[str]:
    return set(tomllib.loads((root / "ops.toml").read_text()).get("ops", {}))


EXPORTING = CONFIGURATION + "exports = true\n"


def test_twenty_ops_at_once_are_twenty_tables(tmp_path: Path) -> None:
    """The manifest, and the file that exports the ops, are edited from what the run before has written."""
    project(tmp_path, "# ours\n", configuration=EXPORTING)
    names = [f"op{number}" for number in range(20)]
    made = together(tmp_path, *(("new-op", name, *QUICK) for name in names))
    assert [run.code for run in made] == [0] * 20, [run.err for run in made if run.code]
    assert listed(tmp_path) == set(names)
    assert (tmp_path / "ops.toml").read_text().startswith("# ours\n")
    exported = (tmp_path / "ops/__init__.py").read_text()
    assert all(f".{name} import" in exported for name in names)
    assert scaffold(tmp_path, "check").code == 0
    assert not [name for name in contents(tmp_path) if name.endswith(".tmp")]


@pytest.mark.each_commit
def test_ops_come_leave_and_are_renamed_at_once(tmp_path: Path) -> None:
    old = [f"old{number}" for number in range(4)]
    tables = [SCALE.replace("scale", name) for name in [*old, "gone0", "gone1"]]
    project(tmp_path, *tables, configuration=EXPORTING)
    assert scaffold(tmp_path, "sync").code == 0
    commands = [
        *(("rename", name, name.replace("old", "new")) for name in old),
        *(("remove", name) for name in ("gone0", "gone1")),
        *(("new-op", name, *QUICK) for name in ("one", "two")),
    ]
    made = together(tmp_path, *commands)
    assert [run.code for run in made] == [0] * 8, [run.err for run in made if run.code]
    assert listed(tmp_path) == {"new0", "new1", "new2", "new3", "one", "two"}
    assert scaffold(tmp_path, "check", "--strict").code == 0


def test_two_beginnings_at_once_are_one_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\n')
    made = together(tmp_path, *[("init", "--ci", "none")] * 4)
    assert [run.code for run in made] == [0] * 4, made
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.count("[tool.scaffold]") == 1
    assert text.startswith('[project]\nname = "mine"\n')


def test_blocks_that_are_ejected_at_once_are_all_there(tmp_path: Path) -> None:
    eject = ("templates", "eject", "op", "--template-dir", "house", "--block")
    blocks = ("wrapper", "backward", "module", "imports")
    assert scaffold(tmp_path, *eject, "forward").code == 0
    made = together(tmp_path, *((*eject, block) for block in blocks))
    assert [run.code for run in made] == [0] * 4, made
    text = (tmp_path / "house/op.py.jinja").read_text()
    assert all(f"block {block} " in text for block in ("forward", *blocks))


@pytest.mark.parametrize(
    "command",
    [("new-op", "mine", *QUICK), ("rename", "scale", "mine"), ("remove", "scale")],
)
@pytest.mark.each_commit
def test_an_edit_that_comes_in_between_is_kept(
    tmp_path: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody saves the manifest after it was read, and before anything is written."""
    project(tmp_path, SCALE, SHIFT)
    assert scaffold(tmp_path, "sync").code == 0
    saved: list[bool] = []

    def plan(*arguments: object, **options: object) -> object:
        if not saved:
            saved.append(True)
            edit(tmp_path / "ops.toml", "[ops.shift]", "# a note\n[ops.shift]")
        return changes.plan(*arguments, **options)  # type: ignore[arg-type]

    for module in (update, rename, remove):
        monkeypatch.setattr(module, "plan", plan)
    assert scaffold(tmp_path, *command).code == 0
    assert "# a note\n[ops.shift]" in (tmp_path / "ops.toml").read_text()
    assert ("mine" in listed(tmp_path)) == ("mine" in command)


def test_who_waits_for_long_for_a_turn_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "WAIT", 0.1)
    with in_turn(tmp_path), in_turn(tmp_path):
        pass
