"""Check a table of rules in a process of its own.

In: the tables, each with its path and text, of which the last is checked. Out: a `Checked`.
Invariant: whatever that process does is an answer in words, never an exception of ours.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scaffold.verify.process import ONE_THREAD, TIME_LIMIT

RUNNER = Path(__file__).parent / "child" / "rule_runner.py"


class Problem(NamedTuple):
    """A formula that does not give what autograd gives, or a rule that cannot be run."""

    rule: str
    formula: str
    sample: str
    words: str


class Checked(NamedTuple):
    """What became of the rules."""

    runs: int  # of a formula on a sample
    problems: tuple[Problem, ...] = ()
    died: str = ""  # what the process said if it gave no answer


def check_rules(
    tables: Sequence[tuple[str, str]], limit: float = TIME_LIMIT
) -> Checked:
    """Check the rules of the last table against autograd."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(RUNNER)],
            input=json.dumps({"tables": list(tables)}).encode(),
            env=os.environ | ONE_THREAD,
            capture_output=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Checked(0, died=f"still running after {limit:g} seconds")
    try:
        found = json.loads(done.stdout)
        problems = tuple(Problem(**item) for item in found["problems"])
        return Checked(found["runs"], problems)
    except (ValueError, TypeError, KeyError):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return Checked(0, died=said[-1] if said else "it ended without an answer")
