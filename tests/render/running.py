"""Write generated files and run their tests, all in one process of its own."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

Outcomes = dict[str, Counter[str]]  # module -> outcome -> count


def run_suites(directory: Path, files: Mapping[str, str]) -> Outcomes:
    """The outcomes of the test files among `files`, by the name of the file without its suffix."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--tb=no",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--import-mode=prepend", "--rootdir=.", "--junitxml=report.xml", "."]
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"
    }
    subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, check=False
    )
    outcomes: Outcomes = {}
    for test in ElementTree.parse(directory / "report.xml").iter("testcase"):
        module = test.attrib["classname"].split(".")[-1] or test.attrib["name"]
        outcomes.setdefault(module, Counter())[_outcome(test)] += 1
    return outcomes


def _outcome(test: ElementTree.Element) -> str:
    """`passed`, `failure`, `error`, `skipped` or `xfail`."""
    found = next(
        (child for child in test if child.tag in ("failure", "error", "skipped")), None
    )
    if found is None:
        return "passed"
    return "xfail" if found.get("type") == "pytest.xfail" else found.tag
