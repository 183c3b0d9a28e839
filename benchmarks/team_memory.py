"""The memory of a run and of the processes that it starts.

In: a command and a directory. Out: megabytes, at the moment at which all processes together held the most.
Invariant: what processes share is counted once, where the system tells (Linux); elsewhere the largest process counts.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path

EVERY = 0.05  # seconds
ROLLUP = "smaps_rollup"


def peak_megabytes(command: tuple[str, ...], directory: Path) -> float:
    """Run the command and watch it."""
    null = subprocess.DEVNULL
    most = 0
    with subprocess.Popen(
        command, cwd=directory, stdin=null, stdout=null, stderr=null
    ) as run:
        while run.poll() is None:
            most = max(most, sum(map(_kilobytes, _family(run.pid))))
            time.sleep(EVERY)
    if run.returncode:
        sys.exit(f"{command} failed")
    if not Path("/proc/self", ROLLUP).exists():
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    return most / 1024


def _family(process: int) -> list[int]:
    """A process and all below it."""
    found = [process]
    for one in found:
        for tasks in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue  # it has just ended
    return found


def _kilobytes(process: int) -> int:
    """What a process holds; its part of what it shares with others."""
    try:
        lines = Path(f"/proc/{process}", ROLLUP).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
