"""Write generated files and run their tests, all in one process of its own."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tests.executed.suites import Suites

Outcomes = dict[str, Counter[str]]  # module -> outcome -> count


def run_files(
    suites: Suites, directory: Path, files: Mapping[str, str], *options: str
) -> Outcomes:
    """The outcomes of the test files among `files`, by the name of the file without its suffix."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    outcomes: Outcomes = {}
    for test, outcome in suites.run(directory, "--tb=no", *options).outcomes.items():
        module = test.partition("::")[0].split(".")[-1]
        outcomes.setdefault(module, Counter())[outcome] += 1
    return outcomes
