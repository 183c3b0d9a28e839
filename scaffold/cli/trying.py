"""What is wrong with the templates of the user's.

In: `Templates`. Out: the problems, in the order of their places. Invariant: each problem is told once, whichever op shows it.
"""

from scaffold.cli.generate import start_rendering
from scaffold.cli.specimens import specimens
from scaffold.derive import derive
from scaffold.errors import ConflictError, Location, ScaffoldError
from scaffold.render.blocks import outline, unshown
from scaffold.render.files import drafts
from scaffold.render.house import House
from scaffold.render.layout import Directories
from scaffold.render.templates import Templates


def problems_of(templates: Templates) -> list[ScaffoldError]:
    """Syntax, blocks that override nothing, and what does not render to Python."""
    start_rendering()
    found = _of_syntax(templates)
    if not any(problem.exit_code == ScaffoldError.exit_code for problem in found):
        found += _of_rendering(templates)
    told: dict[tuple[Location | None, str], ScaffoldError] = {}
    for problem in found:  # what follows a comma is of one op
        told.setdefault((problem.location, problem.message.split(",")[0]), problem)
    return sorted(told.values(), key=lambda item: item.location or Location(""))


def _of_syntax(templates: Templates) -> list[ScaffoldError]:
    found: list[ScaffoldError] = []
    for layer, sources in enumerate(templates.layers):
        for source in sources:
            try:
                shape = outline(source, templates)
                for place, message, hint in unshown(shape, layer, templates):
                    found.append(ConflictError(message, place, hint))
            except ScaffoldError as error:
                found.append(error)
    return found


def _of_rendering(templates: Templates) -> list[ScaffoldError]:
    found: list[ScaffoldError] = []
    houses = (
        House(templates),
        House(templates, ("# A licence",), "# A header", "numpy", True),
    )
    for number, spec in enumerate(specimens()):
        try:
            drafts(spec, derive(spec), Directories(), houses[number % 2])
        except ScaffoldError as error:
            found += error.problems
    return found
