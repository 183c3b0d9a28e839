"""README.md and the pages of docs/ as data: their fenced blocks, the commands in them and what they print.

In: Markdown. Out: blocks, and the steps that a reader takes from the top of a page to its end. Invariant: a comment in front of
a block says what it is: `<!-- file: NAME -->` is saved under that name, `<!-- shown: NAME -->` stands in that file word for
word, `<!-- start: NAME -->` sets up and runs, `<!-- not run: REASON -->` is only read. `<!-- copied: NAME -->` stands alone: the
reader has copied that directory of docs/. In a console block a line after `$ ` is a
command, with the lines that a backslash continues; what follows is its output. A `pycon` block is a Python session.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").glob("*.md")))

FENCED = re.compile(
    r"^(?:<!-- (?P<role>file|shown|start|not run): (?P<name>[^\n]+) -->\n)?"
    r"```(?P<language>[\w{}-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COPIED = re.compile(r"^<!-- copied: (\w+) -->$", re.MULTILINE)
COMMAND = re.compile(
    r"^\$ (?P<command>(?:.*\\\n)*.*\n)(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; role and name are those of the comment before it."""

    role: str
    name: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """A file that the reader is told to write."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command that the reader types, and what the page says that it prints."""

    text: str
    output: str


@dataclass(frozen=True, slots=True)
class Session:
    """What the reader types into Python, and what it answers, as in a doctest."""

    text: str


Step = File | Command | Session


def read_page(name: str) -> str:
    """The text of a page, by its path in the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def read_blocks(text: str) -> tuple[Block, ...]:
    """Every fenced block, in order."""
    return tuple(
        Block(
            found["role"] or "", found["name"] or "", found["language"], found["text"]
        )
        for found in FENCED.finditer(text)
    )


def read_steps(text: str) -> tuple[Step, ...]:
    """What a reader does from top to bottom; sessions with nothing but prose between them are one."""
    steps: list[Step] = []
    for step in _steps(read_blocks(text)):
        if steps and isinstance(step, Session) and isinstance(steps[-1], Session):
            step = Session(steps.pop().text + step.text)
        steps.append(step)
    return tuple(steps)


def _steps(blocks: tuple[Block, ...]) -> Iterator[Step]:
    for block in blocks:
        if block.role == "file":
            yield File(block.name, block.text)
        elif block.language == "pycon" and not block.role:
            yield Session(block.text)
        elif block.language == "console" and not block.role:
            for found in COMMAND.finditer(block.text):
                yield Command(found["command"].rstrip("\n"), found["output"])


def read_code(text: str) -> tuple[str, ...]:
    """Every `code` of the prose and the tables."""
    prose = FENCED.sub("", text).replace(r"\|", "|")
    return tuple(re.findall(r"(?<!`)`([^`\n]+)`", prose))


def read_table(text: str, first: str) -> tuple[tuple[str, ...], ...]:
    """The rows of the table whose first column is called `first`."""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith(f"| {first} |"):
            break
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = re.split(r"(?<!\\)\|", line.strip("|"))
        rows.append(tuple(cell.strip() for cell in cells))
    return tuple(rows)
