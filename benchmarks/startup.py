"""What a run of the command costs, against what any tool on its libraries pays.

In: `python benchmarks/startup.py [--runs N]`, in an environment with scaffold's requirements.
Out: CPU time (user and system, of a process and its children) of each command and of its
floor, measured in alternation, and their ratio; of a verified op, which needs torch, the time by the clock. Exit 1 where a ratio misses its target.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
SCAFFOLD = "from scaffold.cli import main; main()"  # what the installed command does
LIBRARIES = "import jinja2, black"
FORMAT = """
import sys, typer, jinja2, black
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        black.format_str(file.read(), mode=black.Mode())
"""

SKELETON = ("new-op", "linear", "--inputs", "input,weight,bias?")
FORWARD = (*SKELETON, "--forward", "input @ weight.t() + bias")
FORMULAS = (
    *FORWARD,
    *("--grad", "input=grad_output @ weight"),
    *("--grad", "weight=grad_output.t() @ input"),
    *("--grad", "bias=grad_output.sum(0)"),
    "--no-verify",  # torch would be all that is measured
)
DERIVED = (*FORWARD, "--no-verify")
SHAPES = "input[N, in_features], weight[out_features, in_features], bias[out_features]?"
VERIFIED = ("new-op", "linear", "--inputs", SHAPES, *FORWARD[-2:], "--verify")
IMPORT_TORCH = "import torch"
PROOF = "new-op, verified: wall"  # a child imports torch while the op is being made
PROVEN_IN = 1.35  # times `import torch`, on an idle machine of two cores
COMMANDS = (
    ("skeleton", SKELETON, 1.1),
    ("formulas", FORMULAS, 1.1),
    ("derived", DERIVED, 1.25),
)


@dataclass
class Measurement:
    """A command, the floor it is held against, and the seconds that both took."""

    name: str
    command: tuple[str, ...]
    floor: tuple[str, ...]
    target: float
    wall: bool = False  # by the clock, where processes work side by side
    seconds: list[float] = field(default_factory=list)
    floor_seconds: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return median(self.seconds) / median(self.floor_seconds)

    @property
    def met(self) -> bool:
        return self.ratio <= self.target

    def report(self) -> str:
        times = (
            *(median(self.seconds), min(self.seconds)),
            *(median(self.floor_seconds), min(self.floor_seconds)),
        )
        least = min(self.seconds) / min(self.floor_seconds)
        return (
            f"{self.name:24}"
            + "".join(f"{1000 * time:9.1f}" for time in times)
            + f"{self.ratio:8.3f}{least:8.3f}{self.target:8.2f}"
            + ("" if self.met else "  missed")
        )


def python(program: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program, *arguments)


def seconds_of(command: tuple[str, ...], wall: bool = False) -> float:
    """The CPU time, or the time by the clock, of one run of the command in an empty directory."""
    with tempfile.TemporaryDirectory() as directory:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begin = time.perf_counter()
        run_in(Path(directory), command)
        end = time.perf_counter()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if wall:
        return end - begin
    user = after.ru_utime - before.ru_utime
    return user + after.ru_stime - before.ru_stime


def run_in(directory: Path, command: tuple[str, ...]) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)


def measurements(keep: Path) -> list[Measurement]:
    """What is measured; the files that the commands generate are kept for their floors."""
    found = [Measurement("--help", python(SCAFFOLD, "--help"), python(LIBRARIES), 0.3)]
    for name, arguments, target in COMMANDS:
        directory = keep / name
        directory.mkdir()
        command = python(SCAFFOLD, *arguments)
        run_in(directory, command)
        files = sorted(str(path) for path in directory.iterdir())
        floor = python(FORMAT, *files)
        found.append(Measurement(f"new-op, {name}", command, floor, target))
    if find_spec("torch") is not None:
        command, floor = python(SCAFFOLD, *VERIFIED), python(IMPORT_TORCH)
        found.append(Measurement(PROOF, command, floor, PROVEN_IN, wall=True))
    return found


def measure(found: list[Measurement], runs: int) -> None:
    """Fill in the times, command and floor in turn, after a run that is not kept."""
    for turn in range(runs + 1):
        for one in found:
            seconds = seconds_of(one.command, one.wall)
            floor = seconds_of(one.floor, one.wall)
            if turn:
                one.seconds.append(seconds)
                one.floor_seconds.append(floor)


def settle(environment: MutableMapping[str, str], cache: str) -> None:
    """As after an installation: modules are compiled once, ours as those of the floor."""
    environment["PYTHONPATH"] = str(ROOT)
    environment["PYTHONPYCACHEPREFIX"] = f"{cache}/bytecode"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=15)
    runs = max(1, parser.parse_args().runs)
    with tempfile.TemporaryDirectory() as keep:
        settle(os.environ, keep)
        found = measurements(Path(keep))
        measure(found, runs)
    print(
        f"milliseconds of CPU, or by the clock (wall), {runs} runs in turn; ratios of the medians and the least"
    )
    columns = ("median", "least", "floor", "least")
    ratios = ("ratio", "least", "target")
    print(" " * 24 + "".join(f"{name:>9}" for name in columns), end="")
    print("".join(f"{name:>8}" for name in ratios))
    for one in found:
        print(one.report())
    return 0 if all(one.met for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
