"""The sections of a docstring that list values, in the convention of a team.

In: the names of values and what is said of each. Out: lines. Invariant: the three conventions say the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scaffold.render.paragraphs import INDENT, wrapped
from scaffold.spec.config_keys import Docstrings


class Described(NamedTuple):
    """A value: its name, and what is said of it; of what a call returns what follows the name."""

    name: str
    words: str


def section_lines(
    arguments: Sequence[Described],
    returned: Sequence[Described],
    convention: Docstrings,
) -> list[str]:
    """The arguments of a call and what it returns; a section without values is left out."""
    sections = {"google": _google, "numpy": _numpy, "sphinx": _sphinx}
    return sections[convention](arguments, returned)


def _google(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    lines = ["", "Args:"] if arguments else []
    for name, words in arguments:
        lines += wrapped(f"{name}: {words}", INDENT, 2 * INDENT)
    if returned:
        lines += ["", "Returns:", *wrapped(_listed(returned), INDENT)]
    return lines


def _numpy(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    lines: list[str] = []
    sentences = [Described(name, f"Tensor{words}.") for name, words in returned]
    for title, values in (("Parameters", arguments), ("Returns", sentences)):
        lines += ["", title, "-" * len(title)] if values else []
        for name, words in values:
            lines += [name, *wrapped(words, INDENT)]
    return lines


def _sphinx(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    lines = [""] if arguments or returned else []
    for name, words in arguments:
        lines += wrapped(f":param {name}: {words}", "", INDENT)
    if returned:
        lines += wrapped(f":returns: {_listed(returned)}", "", INDENT)
    return lines


def _listed(returned: Sequence[Described]) -> str:
    """What a call returns, in one sentence."""
    return ", ".join(f"``{name}``{words}" for name, words in returned) + "."
