"""README.md as data: its fenced blocks, the commands in them and what they print.

A comment in front of a block says what it is: `<!-- file: NAME -->` is saved under that name, `<!-- shown: NAME -->`
stands in that file word for word, `<!-- start: NAME -->` sets up and runs. In a console block a line after `$ ` is a
command, with the lines that a backslash continues; what follows is its output.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

FENCED = re.compile(
    r"^(?:<!-- (?P<role>\w+): (?P<name>\S+) -->\n)?"
    r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"^<!--.*-->$", re.MULTILINE)
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
    """A command that the reader types, and what the README says that it prints."""

    text: str
    output: str


def read_blocks(text: str) -> tuple[Block, ...]:
    """Every fenced block, in order."""
    return tuple(
        Block(
            found["role"] or "", found["name"] or "", found["language"], found["text"]
        )
        for found in FENCED.finditer(text)
    )


def read_steps(text: str) -> tuple[File | Command, ...]:
    """What a reader does from top to bottom: files and commands."""
    return tuple(_steps(read_blocks(text)))


def _steps(blocks: tuple[Block, ...]) -> Iterator[File | Command]:
    for block in blocks:
        if block.role == "file":
            yield File(block.name, block.text)
        elif block.language == "console":
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
