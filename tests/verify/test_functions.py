"""Functions that were written by hand are judged: no correct one fails, and of a faulty one the fault is told.

What is told of the faulty ones stands in `functions/faulty.txt`; SCAFFOLD_REGENERATE=1 writes it anew.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffold.project.function_verdicts import Question, Stated, judge
from scaffold.project.hand_written import find_functions
from scaffold.verify import Verdict

HERE = Path(__file__).with_name("functions")
GOLDEN = HERE / "faulty.txt"
LIMIT = 60
# A default run asks of these alone.
FAULTY = ("RawMemory", "DetachedSecond")
CORRECT = ("RoundSTE", "NumpySort")
# Digits that another version of PyTorch may change.
UNSTABLE = re.compile(r"largest difference.*? instead of \S+|by \d+ %|factor [\d./]+")


def verdicts(names: tuple[str, ...] = ()) -> Iterator[tuple[str, Verdict]]:
    """Those of all Functions, or of some, the correct ones first; one process judges them."""
    questions = [
        Question(meant, function, Stated())
        for meant in find_functions((str(HERE),)).meant
        for function in meant.functions
        if function.name in names or not names
    ]
    found = judge(questions, sys.executable, LIMIT, 1)
    return zip([one.function.name for one in questions], found, strict=True)


def told(name: str, verdict: Verdict) -> str:
    """What failed, as the golden file has it."""
    failed = [one for one in verdict.checks if one.status == "failed"]
    lines = [f"  {x.name}: {UNSTABLE.sub('...', x.words)}: {x.line}" for x in failed]
    return "\n".join([name, *lines, ""])


def expected() -> dict[str, str]:
    """The paragraphs of the golden file by the names of the Functions."""
    paragraphs = GOLDEN.read_text().split("\n\n")
    return {text.partition("\n")[0]: text.strip() + "\n" for text in paragraphs}


def check(names: tuple[str, ...] = ()) -> None:
    """Hold what is told of some Functions, or of all, against the golden file."""
    known = expected()
    for name, verdict in verdicts(names):
        assert told(name, verdict) == known.get(name, f"{name}\n")
        assert verdict.failure is None


def test_faults_are_told_and_nothing_else() -> None:
    check((*CORRECT, *FAULTY))


@pytest.mark.exhaustive
def test_every_fault_is_told_and_nothing_else() -> None:
    if os.environ.get("SCAFFOLD_REGENERATE"):
        every = [told(name, verdict) for name, verdict in verdicts()]
        GOLDEN.write_text("\n".join(text for text in every if "\n  " in text))
    else:
        check()


def test_the_golden_file_has_every_faulty_function() -> None:
    (meant,) = find_functions((str(HERE / "faulty.py"),)).meant
    assert {function.name for function in meant.functions} == expected().keys()
