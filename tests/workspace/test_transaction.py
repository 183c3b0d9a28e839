import os
import stat
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.workspace import (
    ChangedError,
    Plan,
    apply,
    disk,
    interrupted,
    plan,
    recover,
    resolve,
    transaction,
)
from scaffold.workspace.transaction import NAME, in_turn, locked, strays
from tests.sweeps import in_every_run

WRITTEN = {"a.py": "new a\n", "n/deep/b.py": "new b\n", "c.py": "new c\n", "n/d.py": ""}
REMOVED = ("gone.py", "old/deep/gone.py", "old/link.py")
FILES = {"gone.py": None, **WRITTEN, **dict.fromkeys(REMOVED[1:])}
Snapshot = dict[str, tuple[int, bytes]]
TakeSnapshot = Callable[[Path], Snapshot]
InChild = Callable[[Callable[[], object]], int]


def fresh(root: Path) -> Plan:
    """A tree with two files to overwrite and three to remove, and the plan that also makes two new ones."""
    (root / "old/deep").mkdir(parents=True)
    (root / "a.py").write_text("old a\n")
    (root / "a.py").chmod(0o640)
    (root / "c.py").write_bytes(b"old c\r\n" * 3)
    (root / "other.txt").write_text("not ours\n")
    for path in REMOVED[:2]:
        (root / path).write_text("old\n")
    (root / "old/link.py").symlink_to("../other.txt")
    return resolve(plan(FILES, root), "overwrite")


def test_all_files_are_written_and_nothing_else(
    tmp_path: Path, snapshot: TakeSnapshot
) -> None:
    made = fresh(tmp_path / "root")
    mask = os.umask(0o027)
    try:
        apply(made)
    finally:
        os.umask(mask)
    new, directory = 0o640, (0o750, b"directory")
    assert snapshot(tmp_path / "root") == {
        "a.py": (0o640, b"new a\n"),
        "c.py": (stat.S_IMODE(0o666 & ~mask), b"new c\r\n"),
        "n": directory,
        "n/d.py": (new, b""),
        "n/deep": directory,
        "n/deep/b.py": (new, b"new b\n"),
        "other.txt": (stat.S_IMODE(0o666 & ~mask), b"not ours\n"),
    }


def test_an_executable_file_stays_executable(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("old")
    (tmp_path / "f.py").chmod(0o755)
    apply(resolve(plan({"f.py": "new"}, tmp_path), "overwrite"))
    assert stat.S_IMODE((tmp_path / "f.py").stat().st_mode) == 0o755


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("old")
    (tmp_path / "f.py").symlink_to("real.py")
    apply(resolve(plan({"f.py": "new"}, tmp_path), "overwrite"))
    assert (tmp_path / "f.py").is_symlink()
    assert (tmp_path / "real.py").read_text() == "new"


def test_skipped_and_identical_files_are_not_touched(
    tmp_path: Path, failing: Any
) -> None:
    (tmp_path / "same.py").write_text("x")
    (tmp_path / "mine.py").write_text("mine")
    made = plan({"same.py": "x", "mine.py": "theirs"}, tmp_path)
    apply(resolve(made, "skip"))
    assert failing.names == []


def test_a_plan_with_conflicts_is_not_applied(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("old")
    with pytest.raises(ValueError, match="must be resolved"):
        apply(plan({"f.py": "new", "g.py": ""}, tmp_path))
    assert os.listdir(tmp_path) == ["f.py"]


@pytest.mark.parametrize("edit", ["edited", None])
def test_a_file_that_changes_meanwhile_is_kept(
    tmp_path: Path, snapshot: TakeSnapshot, edit: str | None
) -> None:
    made = fresh(tmp_path / "root")
    if edit is None:
        (tmp_path / "root/c.py").unlink()
    else:
        (tmp_path / "root/c.py").write_text(edit)
    before = snapshot(tmp_path / "root")
    with pytest.raises(ScaffoldError, match="'c.py' changed .*; nothing was written"):
        apply(made)
    assert snapshot(tmp_path / "root") == before


def test_a_file_that_changes_after_staging_is_kept(
    tmp_path: Path, failing: Any, snapshot: TakeSnapshot
) -> None:
    staged = count_steps(tmp_path, failing).index("replace") - 1
    made = fresh(tmp_path / "root")
    before = snapshot(tmp_path / "root")
    edit = partial((tmp_path / "root/c.py").write_bytes, b"edited")
    failing.arm(lambda step: step == staged, "after", edit)
    with pytest.raises(ScaffoldError, match="'c.py' changed .*; nothing was written"):
        apply(made)
    assert snapshot(tmp_path / "root") == {
        **before,
        "c.py": (before["c.py"][0], b"edited"),
    }


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    made = plan({"a.py": "a", "f.py": "theirs"}, tmp_path)
    (tmp_path / "f.py").write_text("mine")
    with pytest.raises(ScaffoldError, match="'f.py' changed"):
        apply(made)
    assert os.listdir(tmp_path) == ["f.py"]
    assert (tmp_path / "f.py").read_text() == "mine"


def count_steps(tmp_path: Path, failing: Any) -> list[str]:
    made = fresh(tmp_path / "counted")
    failing.fail(lambda number: False)
    apply(made)
    return list(failing.names)


def test_every_kind_of_step_is_counted(tmp_path: Path, failing: Any) -> None:
    names = count_steps(tmp_path, failing)
    assert names.count("replace") == len(FILES)
    assert (names.count("mkdir"), names.count("rmdir")) == (2, 2)
    first = names.index("replace")
    assert names[:first].count("sync") == 1 + names.count("create")
    assert {"open_lock", "lock", "write", "link", "close", "unlink"} <= set(names)


def test_many_files_are_waited_for_once(
    tmp_path: Path,
    failing: Any,
    snapshot: TakeSnapshot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All are on the disk before the first of them takes the place of another."""
    monkeypatch.setattr(transaction, "MANY", 2)
    names = count_steps(tmp_path, failing)
    wait = names.index("sync_all")
    assert names.count("sync") == names.count("sync_all") == 1
    assert "create" not in names[wait:] and "replace" not in names[:wait]
    made = fresh(tmp_path / "root")
    before = snapshot(tmp_path / "root")
    failing.fail(lambda step: step == wait)
    with pytest.raises(ScaffoldError, match="nothing was written"):
        apply(made)
    assert snapshot(tmp_path / "root") == before


def test_the_disk_is_changed_through_the_counted_steps_alone() -> None:
    """A function that changes the disk and that no failure is tried on would be missed."""
    reads = {"read", "read_all", "digest", "fingerprint", "mode", "writable", "held"}
    reads |= {"open_directory", "names"}
    functions = {
        name
        for name, value in vars(disk).items()
        if callable(value) and getattr(value, "__module__", "") == disk.__name__
    }
    from tests.workspace.conftest import STEPS

    assert functions == reads | set(STEPS)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_failure_at_any_step_leaves_the_tree_as_it_was(
    tmp_path: Path, failing: Any, snapshot: TakeSnapshot, moment: str
) -> None:
    names = count_steps(tmp_path, failing)
    done = snapshot(tmp_path / "counted")
    failures = 0
    for number, name in enumerate(names):
        root = tmp_path / str(number)
        made = fresh(root)
        before = snapshot(root)
        failing.fail(lambda step, number=number: step == number, moment)
        try:
            apply(made)
        except ScaffoldError as error:
            failures += 1
            assert str(error).endswith(
                "No space left on device; nothing was written"
            ), name
            assert error.exit_code == 2
            if name == "open_lock":  # an empty journal, where the file was made
                recover(root)
            assert snapshot(root) == before, (number, name)
        else:
            recover(root)
            assert snapshot(root) == done, (number, name)
    undone = names.index("unlink") - names.count("link")
    assert failures == undone - 1  # all but the lock and the tidying up


def test_an_interrupt_at_any_step_leaves_the_tree_as_it_was(
    tmp_path: Path, failing: Any, snapshot: TakeSnapshot
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    names = count_steps(tmp_path, failing)
    for number in range(names.index("write"), names.index("unlink")):
        root = tmp_path / str(number)
        made = fresh(root)
        before = snapshot(root)
        failing.arm(lambda step, number=number: step == number, "after", interrupt)
        with pytest.raises(KeyboardInterrupt):
            apply(made)
        assert snapshot(root) == before, (number, names[number])


def test_a_disk_that_stays_broken_is_said_and_recovered_from(
    tmp_path: Path, failing: Any, snapshot: TakeSnapshot
) -> None:
    names = count_steps(tmp_path, failing)
    first = names.index("replace")
    for number in range(first, names.index("unlink")):
        root = tmp_path / str(number)
        made = fresh(root)
        before = snapshot(root)
        failing.fail(lambda step, number=number: step >= number)
        with pytest.raises(ScaffoldError, match="putting things back failed"):
            apply(made)
        failing.fail(lambda step: False)
        replaced = list(FILES)[: number - first]
        assert sorted(recover(root)) == sorted(replaced)
        assert snapshot(root) == before, (number, names[number])


def is_whole(path: str, content: bytes) -> bool:
    kept = dict.fromkeys(("other.txt", "old/link.py"), b"not ours\n")
    old = {"a.py": b"old a\n", "c.py": b"old c\r\n" * 3, **kept}
    old |= dict.fromkeys(REMOVED[:2], b"old\n")
    new = WRITTEN[path].encode() if path in WRITTEN else None
    if path == "c.py":
        new = b"new c\r\n"
    return content in (old.get(path), new)


# Before a step is after the one before it.
@pytest.mark.parametrize(
    ("moment", "pace"),
    [
        pytest.param("before", 1, marks=pytest.mark.exhaustive),
        pytest.param("during", 1, marks=pytest.mark.each_commit),
        pytest.param("after", 1, marks=pytest.mark.exhaustive),
        ("after", 3),
    ],
)
def test_a_kill_at_any_step_leaves_whole_files_and_is_recovered_from(
    tmp_path: Path,
    failing: Any,
    snapshot: TakeSnapshot,
    in_child: InChild,
    moment: str,
    pace: int,
) -> None:
    names = count_steps(tmp_path, failing)
    done = snapshot(tmp_path / "counted")
    for number, name in [*enumerate(names)][::pace]:
        root = tmp_path / str(number)
        made = fresh(root)
        before = snapshot(root)
        failing.kill(number, moment)
        assert in_child(partial(apply, made)) == 9
        unfinished, left = interrupted(root), snapshot(root)
        for path, (_, content) in left.items():
            short = Path(path).name
            if short.startswith(".scaffold-") and short.endswith(".tmp"):
                continue
            assert content == b"directory" or is_whole(path, content), (name, path)
        failing.fail(lambda step: False)
        told = names.index("write") < number + (moment == "after")
        committed = number + (moment == "after") > names.index("unlink") - 1
        backups = (name for name in left if name.endswith(".old.tmp"))
        begun = tuple(FILES) if told else ()
        assert sorted(unfinished) == sorted(backups if committed else begun)
        recover(root)
        assert snapshot(root) == (done if committed else before), (number, name)
        assert interrupted(root) == ()


@pytest.mark.parametrize("pace", in_every_run([2, 48], [48]))
def test_a_recovery_that_is_killed_is_taken_up_by_the_next(
    tmp_path: Path, failing: Any, snapshot: TakeSnapshot, in_child: InChild, pace: int
) -> None:
    names = count_steps(tmp_path, failing)
    done = snapshot(tmp_path / "counted")
    kills = 0
    for number in range(names.index("replace"), len(names), pace):
        status, step = 9, 0
        while status == 9:
            root = tmp_path / f"{number}-{step}"
            made = fresh(root)
            before = snapshot(root)
            failing.kill(number, "before")
            assert in_child(partial(apply, made)) == 9
            failing.kill(step, "after")
            status = in_child(partial(recover, root))
            failing.fail(lambda step: False)
            recover(root)
            committed = number >= names.index("unlink")
            assert snapshot(root) == (done if committed else before), (number, step)
            step += 1
        kills += step - 1
    assert kills > 100 // pace


def test_the_next_run_must_recover_first(
    tmp_path: Path, failing: Any, in_child: InChild
) -> None:
    names = count_steps(tmp_path, failing)
    made = fresh(tmp_path / "root")
    failing.kill(names.index("replace") + 1, "before")
    in_child(lambda: apply(made))
    failing.fail(lambda step: False)
    with pytest.raises(ScaffoldError, match="an earlier run .* was interrupted"):
        apply(plan({"new.py": ""}, tmp_path / "root"))
    assert recover(tmp_path / "root") == ("gone.py",)
    apply(resolve(plan(FILES, tmp_path / "root"), "overwrite"))
    assert (tmp_path / "root/a.py").read_text() == "new a\n"


def test_a_run_that_is_under_way_is_not_interrupted(
    tmp_path: Path, failing: Any, in_child: InChild
) -> None:
    names = count_steps(tmp_path, failing)
    made = fresh(tmp_path / "root")
    failing.kill(names.index("replace") + 1, "before")
    in_child(partial(apply, made))
    failing.fail(lambda step: False)
    before = (tmp_path / "root" / NAME).read_bytes()
    assert interrupted(tmp_path / "root") == tuple(FILES)
    with locked(tmp_path / "root"):
        assert interrupted(tmp_path / "root") == ()
    assert (tmp_path / "root" / NAME).read_bytes() == before


def test_temporary_files_are_strays_where_no_journal_tells_of_them(
    tmp_path: Path,
) -> None:
    several = tuple(f"a/.scaffold-12ab-{number}.old.tmp" for number in range(8))
    for path in ("b/.scaffold-12ab-9.new.tmp", *reversed(several)):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "a/scaffold-12ab-1.old.tmp").touch()  # of somebody else
    found = (*several, "b/.scaffold-12ab-9.new.tmp")
    assert strays(tmp_path, ("b", "gone", "./a")) == found
    (tmp_path / NAME).touch()
    assert strays(tmp_path, ("b", "gone", "./a")) == ()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "WAIT", 0.1)


@pytest.mark.usefixtures("impatient")
def test_two_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    made = plan({"f.py": ""}, tmp_path)
    with locked(tmp_path):
        with pytest.raises(ScaffoldError, match="another run is writing"):
            apply(made)
        with pytest.raises(ScaffoldError, match="another run is writing"):
            recover(tmp_path)
    assert os.listdir(tmp_path) == [NAME]


def test_a_run_waits_for_another_to_end(tmp_path: Path) -> None:
    """One that ends takes its journal with it."""
    made = plan({"f.py": "x"}, tmp_path)
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                apply(made)
                status = 0
            finally:
                os._exit(status)
        time.sleep(0.2)
        assert not (tmp_path / "f.py").exists()
        (tmp_path / NAME).unlink()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(tmp_path) == ["f.py"]


def test_in_turn_the_others_wait(tmp_path: Path) -> None:
    """Until it is over, and after an error too."""

    def is_free() -> bool:
        descriptor = disk.open_directory(tmp_path)
        try:
            disk.lock(descriptor)
        except BlockingIOError:
            return False
        finally:
            disk.close(descriptor)
        return True

    with pytest.raises(KeyError), in_turn(tmp_path):
        assert not is_free()
        raise KeyError
    assert is_free()
    with in_turn(tmp_path / "gone"):
        assert is_free()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("before", [b"as read", None])
def test_what_was_read_must_still_be_so(tmp_path: Path, before: bytes | None) -> None:
    """A plan follows from files that it need not change itself."""
    planned = plan({"a.py": "a\n"}, tmp_path, reads={"ops.toml": before})
    (tmp_path / "ops.toml").write_bytes(b"another's")
    with pytest.raises(ChangedError, match="'ops.toml' changed while the run was"):
        apply(planned)
    assert [path.name for path in tmp_path.iterdir()] == ["ops.toml"]
    if before is not None:
        (tmp_path / "ops.toml").write_bytes(before)
        apply(planned)
        assert (tmp_path / "a.py").exists()


@pytest.mark.usefixtures("impatient")
def test_a_lock_on_a_journal_that_is_gone_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run ended, and took its journal, after we opened it."""
    real = disk.lock

    def lock(descriptor: int) -> None:
        (tmp_path / NAME).unlink()
        real(descriptor)

    monkeypatch.setattr(disk, "lock", lock)
    with pytest.raises(ScaffoldError, match="another run is writing"):
        apply(plan({"f.py": ""}, tmp_path))
    assert os.listdir(tmp_path) == []


def test_many_runs_at_once_leave_the_files_of_one(tmp_path: Path) -> None:
    """Each plans anew until nobody comes in between; none is refused."""

    def overwrite(number: int) -> None:
        files = {name: f"run {number}\n" * 500 for name in ("a.py", "b.py", "c/d.py")}
        for turn in range(20):
            texts = files if turn % 2 else {**files, "c/d.py": None}
            while True:
                try:
                    recover(tmp_path)
                    apply(resolve(plan(texts, tmp_path), "overwrite"))
                    break
                except ChangedError:
                    pass

    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                overwrite(number)
                status = 0
            except BaseException:  # noqa: BLE001 (a forked child tells nobody else)
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    texts = {path.name: path.read_text() for path in tmp_path.rglob("*.*")}
    assert set(texts) == {"a.py", "b.py", "d.py"}
    assert len(set(texts.values())) == 1
    assert texts["a.py"] in [f"run {number}\n" * 500 for number in range(4)]
