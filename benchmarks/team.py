"""What keeping a thousand ops in step costs, against the libraries that it stands on.

In: `python -m benchmarks.team [--ops N] [--rounds N] [--rivals PYTHON]`; PYTHON is an interpreter that has cookiecutter and copier.
Out: CPU time, children included, of `scaffold sync` over a manifest of N ops: into an empty directory, again, and with one op
changed; over that of black, or of importing jinja2 and black, on the same files. Of times the least of all rounds counts,
and everything takes turns. Exit 1 where a target is missed.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks.startup import FORMAT, IMPORT_TORCH, LIBRARIES, SCAFFOLD, python, settle
from benchmarks.team_memory import peak_megabytes
from benchmarks.team_ops import manifest
from benchmarks.team_rivals import measure_rivals

SYNC = python(SCAFFOLD, "sync", "--no-verify")  # torch would be all that is measured
CONFIGURATION = "[tool.scaffold]\nsource = 'ops'\ntests = 'tests'\n"
# Over black on the same files, of which there is little: a test is a fifth as long as where each held what all are asked, and a
# run costs 34 ms an op in place of 60, half of it black's.
COLD = {"explicit": 2.0, "derived": 2.3}
AGAIN = 1.5
MEGABYTES = 300
PROOF = 0.5  # of an op, in times of `import torch`, which a process does once
PROVEN = 40  # ops
RIVALLED = 100  # ops that others render too
CHANGED = ("exponent: float = 2.0", "exponent: float = 2.5")  # of the second op


class Spent(NamedTuple):
    """What a run took."""

    cpu: float
    wall: float


class Row(NamedTuple):
    """A line of the table: a figure, its floor, their ratio, and what it should be at most."""

    name: str
    own: float
    floor: float
    target: float
    unit: str = "s"

    @property
    def met(self) -> bool:
        return self.own <= self.target * self.floor

    def __str__(self) -> str:
        figures = f"{self.own:9.2f}{self.floor:9.2f}  {self.unit:3}"
        ratio = f"{self.own / self.floor:8.2f}{self.target:8.2f}"
        return f"{self.name:34}{figures}{ratio}{'' if self.met else '  missed'}"


def spent(command: tuple[str, ...], directory: Path, cores: int = 0) -> Spent:
    """Run a command; on so many cores, where that is said and the system lets us."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_bound(cores) if cores else None,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(
        resource.RUSAGE_CHILDREN
    )
    if done.returncode:
        sys.exit(done.stderr)
    user = after.ru_utime - before.ru_utime
    return Spent(user + after.ru_stime - before.ru_stime, wall)


def _bound(cores: int) -> Callable[[], None]:
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    return lambda: os.sched_setaffinity(0, chosen)


def least(runs: list[Spent]) -> Spent:
    return Spent(min(run.cpu for run in runs), min(run.wall for run in runs))


def fresh(directory: Path, text: str) -> Path:
    """An empty project with that manifest."""
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir()
    (directory / "pyproject.toml").write_text(CONFIGURATION)
    (directory / "ops.toml").write_text(text)
    return directory


def cold(keep: Path, ops: int, rounds: int) -> list[Row]:
    """The first run over a manifest, against black on what it writes."""
    rows = []
    for name, target in COLD.items():
        text = manifest(ops, derived=name == "derived")
        root = keep / name
        own, floor, alone = [], [], []
        for _ in range(rounds):
            alone.append(spent(SYNC, fresh(root, text), cores=1))
            own.append(spent(SYNC, fresh(root, text)))
            floor.append(spent(python(FORMAT, *written(root)), root))
        rows.append(
            Row(
                f"cold, {name}: CPU, over black",
                least(own).cpu,
                least(floor).cpu,
                target,
            )
        )
        one, all_ = least(alone).wall, least(own).wall
        cores = len(os.sched_getaffinity(0))
        if cores > 1:
            rows.append(
                Row(f"cold, {name}: wall, {cores} cores over 1", all_, one, 1.0)
            )
    return rows


def written(root: Path) -> list[str]:
    """The files of a project's ops."""
    return [
        str(path)
        for part in ("ops", "tests")
        for path in sorted((root / part).iterdir())
    ]


def warm(root: Path, rounds: int) -> list[Row]:
    """A second run, and one after a change of one op, against importing the two libraries."""
    again, floor = [], []
    before = stamps(root)
    for _ in range(max(5, rounds)):
        again.append(spent(SYNC, root))
        floor.append(spent(python(LIBRARIES), root))
    rows = [
        Row("again: CPU, over the imports", least(again).cpu, least(floor).cpu, AGAIN)
    ]
    rows.append(Row("again: files written", touched(root, before), 1, 0, ""))
    path = root / "ops.toml"
    text = path.read_text()
    path.write_text(text.replace(*CHANGED, 1))
    before = stamps(root)
    changed = spent(SYNC, root)
    rows.append(Row("one op changed: ops touched", touched(root, before), 1, 1, ""))
    rows.append(
        Row("one op changed: CPU, over the imports", changed.cpu, least(floor).cpu, 99)
    )
    return rows


def stamps(root: Path) -> dict[Path, tuple[int, int]]:
    """What tells whether a file was written."""
    paths = (path for path in root.rglob("*") if path.is_file())
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def touched(root: Path, before: dict[Path, tuple[int, int]]) -> int:
    """How many ops have a file that was written since."""
    changed = {
        path for path, stamp in stamps(root).items() if before.get(path) != stamp
    }
    names = {path.name.split(".")[0].removeprefix("test_") for path in changed}
    return len(names - {"ops"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rivals", default=sys.executable, metavar="PYTHON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        keep = Path(directory)
        settle(os.environ, directory)
        os.environ["XDG_CACHE_HOME"] = f"{directory}/cache"
        print(f"{options.ops} ops, the least of {options.rounds} rounds in turn")
        print(f"{'':34}{'own':>9}{'floor':>9}{'':5}{'ratio':>8}{'target':>8}")
        rows = []
        for row in figures(keep, options.ops, options.rounds):
            print(row, flush=True)
            rows.append(row)
        for line in compared(options.rivals, keep):
            print(line, flush=True)
    return 0 if all(row.met for row in rows) else 1


def figures(keep: Path, ops: int, rounds: int) -> Iterator[Row]:
    """The lines of the table, each as it is measured."""
    yield from cold(keep, ops, rounds)
    yield from warm(keep / "explicit", rounds)
    yield memory(keep, ops)
    yield from proofs(keep)


def proofs(keep: Path) -> Iterator[Row]:
    """What the proof of an op takes beside the rest of a run, where there is torch."""
    if find_spec("torch") is None:
        return
    text = manifest(PROVEN, derived=True)
    without = spent(SYNC, fresh(keep / "unproven", text)).wall
    own = spent(python(SCAFFOLD, "sync"), fresh(keep / "proven", text)).wall
    torch = spent(python(IMPORT_TORCH), keep).wall
    alone = (own - without - torch) / PROVEN
    yield Row("proof per op: wall, over import torch", alone, torch, PROOF)


def compared(interpreter: str, keep: Path) -> Iterator[str]:
    """What a hundred ops take us, and others that neither derive, format nor remember."""
    libraries = spent(python(LIBRARIES), keep).cpu
    own = spent(SYNC, fresh(keep / "hundred", manifest(RIVALLED, derived=False))).cpu
    yield f"scaffold, {RIVALLED} ops, over the imports: {own / libraries:.1f}, formatted"
    yield from measure_rivals(interpreter, keep, RIVALLED)


def memory(keep: Path, ops: int) -> Row:
    """The most that a run and its own processes hold at any time: none of them proves, and none has torch."""
    root = fresh(keep / "memory", manifest(ops, derived=True))
    return Row(
        "cold, derived: memory, no proofs",
        peak_megabytes(SYNC, root),
        1,
        MEGABYTES,
        "MB",
    )


if __name__ == "__main__":
    sys.exit(main())
