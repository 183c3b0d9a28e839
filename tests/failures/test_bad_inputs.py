"""What people type wrong: every answer names the place and the cause, and says what to type.

In: `bad_inputs.txt`, a command a line. Invariant: no traceback, nothing of this tool's insides, nothing written.
"""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.projects import SCALE, project
from tests.cli.running import Outcome, listing, scaffold
from tests.sweeps import in_every_run

TEXT = Path(__file__).with_name("bad_inputs.txt").read_text(encoding="utf-8")
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
FILES = {
    "forward.py": "def forward(x):\n    return x * 2\n\n\ndef two(x, y):\n    return x + y\n",
    "broken.py": "def forward(x:\n",
    "method.py": "def forward(self, x):\n    return x * self.weight\n",
    "documented.py": 'def forward(x):\n    """Double it."""\n',
    "tabs.py": "def forward(x):\n\ty = x * 2\n        return y\n",
    "nothing.py": "def forward(x):\n    x = x * 2\n",
    "empty.py": "",
}
PLACE = re.compile(
    r"(?P<place>.+?:\d+:\d+|--?[a-z-]+|scaffold[a-z -]*|[A-Z_]+|error): (?P<cause>.+)"
)
INSIDES = re.compile(
    r"Traceback|File \"|scaffold/(?!cli --)|<frozen|_[A-Z]\w+Error|NodeVisitor"
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where it is typed: nothing of it changes."""
    root = tmp_path / "here"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    (root / "data.bin").write_bytes(bytes(range(256)))
    (root / "project").mkdir()
    project(root / "project", SCALE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = listing(root)
    yield root
    assert listing(root) == before, "something was written"


def typed(line: str, directory: Path) -> Outcome:
    in_project = line.startswith("project: ")
    words = shlex.split(line.removeprefix("project: "))
    return scaffold(directory / "project" if in_project else directory, *words)


def complaints(outcome: Outcome) -> list[str]:
    """What is wrong with an answer."""
    found = [] if outcome.code in (1, 2) else [f"exit code {outcome.code}"]
    if INSIDES.search(outcome.err + outcome.out):
        found.append("tells of the tool's insides")
    lines = [line for line in outcome.err.splitlines() if not line.startswith("note: ")]
    if not any(PLACE.fullmatch(line) for line in lines):
        found.append("no place and cause")
    if not any(line.startswith("hint: ") for line in lines):
        found.append("nothing to type")
    return found


def test_they_are_many() -> None:
    assert len(set(LINES)) == len(LINES) >= 120


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "line", in_every_run(LINES, LINES[::2], pytest.mark.each_commit)
)
def test_an_answer_helps(line: str, directory: Path) -> None:
    outcome = typed(line, directory)
    if os.environ.get("SHOW"):
        print(f"$ {line}\n{outcome.out}{outcome.err}[{outcome.code}]")
    assert not complaints(outcome), outcome.err
