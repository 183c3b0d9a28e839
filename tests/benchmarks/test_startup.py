import subprocess
import sys

import pytest

from benchmarks.startup import COMMANDS, PROOF, ROOT, VERIFIED, Measurement
from benchmarks.team import SYNC


@pytest.mark.parametrize(("seconds", "met"), [(0.5, True), (0.51, False)])
def test_a_target_is_met_by_the_median(seconds: float, met: bool) -> None:
    times = [0.1, seconds, 9.0]
    one = Measurement("x", (), (), 0.5, seconds=times, floor_seconds=[1.0, 1.0, 1.0])
    assert one.met is met
    assert ("missed" in one.report()) is not met


def test_rows_of_a_run_are_without_its_proof() -> None:
    """It has a row of its own; a skeleton has nothing to prove."""
    for name, command, _ in COMMANDS[1:]:
        assert "--no-verify" in command, name
    assert "--no-verify" in SYNC
    assert "--verify" in VERIFIED


@pytest.mark.exhaustive
def test_every_target_is_measured() -> None:
    """One run is too few to say whether they are met."""
    program = ROOT / "benchmarks" / "startup.py"
    done = subprocess.run(
        [sys.executable, str(program), "--runs", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    rows = [line[:24].strip() for line in done.stdout.splitlines()[2:]]
    assert rows == ["--help", *(f"new-op, {name}" for name, _, _ in COMMANDS), PROOF]
