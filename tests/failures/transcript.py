"""Transcripts of failing commands, as text files.

In: a file of cases. Out: the cases, and the text of a file again with other results.
A case is a paragraph:

    > ops.toml                      a file, its lines after a bar
    | [ops.foo]
    $ mkdir taken                   a shell command that prepares the directory
    $ scaffold new-op foo --spec ops.toml --doc 'first line
    > second line'
    ops.toml:1:6: ...               what stands on stderr, byte for byte
    [2]                             the exit code

Lines that begin with # are comments. {root} stands for the directory that the case runs in; `test_failures.py` runs it, and puts that in.
"""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Case:
    """One failing command."""

    source: str  # the lines before the result, as they stand
    files: dict[str, str]
    setup: tuple[str, ...]
    arguments: tuple[str, ...]
    stderr: str
    code: int

    def __str__(self) -> str:
        return f"{self.source}{self.stderr}[{self.code}]\n"

    def with_result(self, stderr: str, code: int) -> "Case":
        return replace(self, stderr=stderr, code=code)


def read(text: str) -> list[Case]:
    """The cases of a file."""
    return [_case(part) for part in re.split(r"\n\n(?=[$>#])", text.strip())]


def write(cases: Iterable[Case]) -> str:
    """The file of some cases."""
    return "\n".join(map(str, cases))


def _case(text: str) -> Case:
    files: dict[str, str] = {}
    setup: list[str] = []
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if line.startswith("> "):
            files[line[2:]] = ""
        elif line.startswith("|"):
            files[next(reversed(files))] += f"{line[2:]}\n"
        elif line.startswith("$ scaffold"):
            return _finished(lines, number, files, setup)
        elif line.startswith("$ "):
            setup.append(line[2:])
        else:
            assert line.startswith("#"), f"no line of a case: {line!r}"
    raise AssertionError(f"no command in {text!r}")


def _finished(
    lines: list[str], start: int, files: dict[str, str], setup: list[str]
) -> Case:
    end = start + 1
    while lines[end:] and lines[end].startswith("> "):
        end += 1
    *stderr, last = lines[end:] or ["[0]"]
    assert last.startswith("[") and last.endswith("]"), f"no exit code: {last!r}"
    command = "\n".join(line[2:] for line in lines[start:end])
    return Case(
        "".join(f"{line}\n" for line in lines[:end]),
        files,
        tuple(setup),
        tuple(shlex.split(command)[1:]),
        "".join(f"{line}\n" for line in stderr),
        int(last[1:-1]),
    )
