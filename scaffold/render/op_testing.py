"""The file that the generated tests of a project share: `op_testing.py`, the questions that every op is asked.

In: how the team wants its files to look. Out: its text. Invariant: it follows from the templates and the house alone, and imports
nothing of this package.
"""

from typing import NamedTuple

from scaffold.render.environment import with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.formatting import format_source
from scaffold.render.imports import import_block
from scaffold.render.templates import OP_TESTING
from scaffold.render.testcases import LIBRARY

KNOWN = tuple(item for item in LIBRARY if item.binding != "once_differentiable")


class OpTestingView(NamedTuple):
    """What the template shows."""

    licence_lines: tuple[str, ...]
    header: str
    imports: str


def op_testing_file(house: House = PLAIN, line_length: int = 88) -> str:
    """The text of the file that generated tests of a project import."""
    return format_source(op_testing_draft(house), line_length)


def op_testing_draft(house: House = PLAIN) -> str:
    """The same text before it is formatted."""
    view = OpTestingView(house.licence, house.header, "")
    single = house.single_line_imports
    return with_imports(
        OP_TESTING, view, lambda code: import_block(code, (), KNOWN, single), house
    )
