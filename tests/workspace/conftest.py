"""A tree to write in, and a disk that fails at one step."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaffold.workspace import disk

STEPS = (
    "create",
    "open_lock",
    "lock",
    "write",
    "chmod",
    "sync",
    "sync_all",
    "link",
    "close",
    "replace",
    "unlink",
    "mkdir",
    "rmdir",
)
Snapshot = dict[str, tuple[int, bytes]]


class Disk:
    """Counts the steps, and strikes at those that `strikes` chooses.

    `moment` says whether the step is not begun, half done (a write) or done by then.
    """

    def __init__(self) -> None:
        self.arm(lambda number: False, "before", lambda: None)

    def arm(
        self, strikes: Callable[[int], bool], moment: str, blow: Callable[[], None]
    ) -> None:
        self.count = 0
        self.names: list[str] = []
        self.strikes, self.moment, self.blow = strikes, moment, blow

    def fail(self, strikes: Callable[[int], bool], moment: str = "before") -> None:
        def blow() -> None:
            raise OSError(28, "No space left on device")

        self.arm(strikes, moment, blow)

    def kill(self, number: int, moment: str) -> None:
        self.arm(lambda step: step == number, moment, lambda: os._exit(9))

    def wrap(self, name: str) -> Callable[..., Any]:
        real = getattr(disk, name)

        def step(*args: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.names.append(name)
            if not self.strikes(number):
                return real(*args)
            if self.moment == "during" and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            if self.moment == "after" or name == "close":  # a failing close closes
                real(*args)
            self.blow()

        return step


def disk_with_steps(patch: pytest.MonkeyPatch) -> Disk:
    """The disk of this process, until the patch is undone."""
    made = Disk()
    for name in STEPS:
        patch.setattr(disk, name, made.wrap(name))
    return made


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return disk_with_steps(monkeypatch)


def take_snapshot(root: Path) -> Snapshot:
    """Every directory and file below, with its mode and content."""
    return {
        str(path.relative_to(root)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_bytes() if path.is_file() else b"directory",
        )
        for path in sorted(root.rglob("*"))
    }


@pytest.fixture
def snapshot() -> Callable[[Path], Snapshot]:
    return take_snapshot


def run_in_child(work: Callable[[], object]) -> int:
    """The exit status of a process of its own that does the work: 9 if it was killed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def in_child() -> Callable[[Callable[[], object]], int]:
    return run_in_child
