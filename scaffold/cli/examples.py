"""`scaffold examples`: complete commands to copy; each makes a proven op.

In: a word. Out: a list of all examples, or the matching commands, for a shell: files first, then the command.
Invariant: the output can be copied into an empty directory and run; a test runs every one.
"""

import sys
import tomllib
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from scaffold.cli.options import FORMAT, check_format
from scaffold.cli.output import show_object
from scaffold.cli.terminal import paint
from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.files import read_text

PLACE = Path(__file__).with_name("examples.toml")
END = "END"  # of a file in a shell's here-document


class Example(NamedTuple):
    """A command to make an op, the files it needs, and the words to find it by."""

    name: str
    about: str
    words: frozenset[str]
    command: str
    files: dict[str, str]

    @property
    def text(self) -> str:
        """Return the example as shell commands."""
        files = [
            f"cat > {name} <<'{END}'\n{text.lstrip()}{END}\n"
            for name, text in self.files.items()
        ]
        return f"# {self.name}: {self.about}\n{''.join(files)}{self.command.lstrip()}"


def read_examples() -> dict[str, Example]:
    """Return all examples, by their names."""
    tables = tomllib.loads(read_text(PLACE))
    return {name: _example(name, table) for name, table in tables.items()}


def _example(name: str, table: dict[str, str | dict[str, str]]) -> Example:
    """Return an example, given its table in the file; it is found by the words of its name, its description and its list of words."""
    about, words, command = (str(table[key]) for key in ("about", "words", "command"))
    said = f"{name} {name.replace('_', ' ')} {about} {words}".lower()
    files = table.get("file", {})
    assert isinstance(files, dict)
    found = frozenset(word.strip(",:;()'.") for word in said.split())
    return Example(name, about, found, command, files)


def find_examples(asked: list[str], known: dict[str, Example]) -> list[Example]:
    """Return the example of this name; else the ones with all these words, else with words beginning like them.

    `asked` are the words typed, `known` all examples; [] without a match.
    """
    words = [word.lower() for word in asked]
    if len(words) == 1 and words[0] in known:
        return [known[words[0]]]
    exact = [item for item in known.values() if item.words.issuperset(words)]
    return exact or [
        item
        for item in known.values()
        if all(any(one.startswith(word) for one in item.words) for word in words)
    ]


def _words() -> list[str]:
    """Return the words offered by a shell's completion."""
    return list(read_examples())


WORDS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[WORD]...",
        help="A topic: norm, loss, kernel, complex, ... (default: the list).",
        autocompletion=_words,
    ),
]


def examples(words: WORDS = None, format_: FORMAT = "text") -> None:
    """Print complete commands to copy: a norm, a loss, ...

    Without a word the examples are listed. The output for a word can be piped into a shell.

    Example: scaffold examples

    Example: scaffold examples contrastive

    Example: scaffold examples kernel | sh
    """
    check_format(format_)
    known = read_examples()
    words = [word for one in words or [] for word in one.split()]
    found = find_examples(words, known) if words else list(known.values())
    if not found:
        raise _unknown(words, known)
    if format_ == "json":
        show_object({"examples": [_as_data(item) for item in found]})
    elif words:
        typer.echo("\n".join(item.text for item in found), nl=False)
    else:
        _list(found)


def _unknown(words: list[str], known: dict[str, Example]) -> ScaffoldError:
    """Return the error for words no example has, with the most similar word of an example."""
    all_ = sorted({word for item in known.values() for word in item.words})
    close = did_you_mean(words[-1].lower(), all_)
    hint = f"{close} " if close else ""
    message = f"no example is about '{' '.join(words)}'"
    hint += "the list: scaffold examples"
    return ScaffoldError(message, Location("WORD"), hint)


def _list(found: list[Example]) -> None:
    """Print the name and description of each example."""
    width = max(len(item.name) for item in found)
    for item in found:
        name = paint(f"{item.name:{width}}", "option", sys.stdout)
        typer.echo(f"{name}  {item.about}")
    typer.echo("\nscaffold examples WORD prints the command: scaffold examples norm")


def _as_data(item: Example) -> dict[str, object]:
    """Return an example as a JSON object."""
    return {
        "name": item.name,
        "about": item.about,
        "files": {name: text.lstrip() for name, text in item.files.items()},
        "command": item.command.strip(),
    }
