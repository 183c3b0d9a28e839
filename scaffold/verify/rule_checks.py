"""Rule checks: check a table of rules in a separate process.

`scaffold rules check` runs each formula of a user's rule table on samples and compares its gradient with autograd's.
In: the tables, each with its path and text; the last is checked, those before it define words it may use. Out: a `Checked`.
Invariant: a failure of the process is an answer in words, never an exception of ours.
"""

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from scaffold.verify.processes import ChildProcess

RUNNER = "scaffold.verify.child.rule_runner"
LIMIT = 300.0  # seconds for all rules of a table


class Problem(NamedTuple):
    """A formula with a wrong gradient, or a rule with an error."""

    rule: str  # the name of its section
    formula: str
    sample: str  # the inputs of the run
    words: str  # the difference, or the error


class Checked(NamedTuple):
    """The outcome of checking rules."""

    runs: int  # of a formula on a sample
    problems: tuple[Problem, ...] = ()
    by_differences: int = 0  # runs compared with differences
    opaque: tuple[str, ...] = ()  # the rules of these runs: autograd has no gradient
    died: str = ""  # the output of the process if it gave no answer


def check_rules(
    tables: Sequence[tuple[str, str]],
    limit: float = LIMIT,
    python: str = sys.executable,
) -> Checked:
    """Check the rules of the last table, against autograd, in a new process; a failure of the process is in `died`."""
    with closing(ChildProcess(python, RUNNER)) as process:
        process.ask({"tables": list(tables)})
        answer = process.answer(limit)
    if answer is None and process.code is None:
        return Checked(0, died=f"still running after {limit:g} seconds")
    try:
        found = answer or {}
        problems = tuple(Problem(**item) for item in found["problems"])
        opaque = tuple(found["opaque"])
        return Checked(found["runs"], problems, found["by_differences"], opaque)
    except (TypeError, KeyError):  # there is no answer, or it is of another form
        said = process.said.splitlines()
        return Checked(0, died=said[-1] if said else "it ended without an answer")
