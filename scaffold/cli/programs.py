"""What programs are told: one JSON object on stdout, the number of its form first.

In: what a command found. Out: JSON on stdout. Invariant: every object has a `version`; a problem looks the same in all of them.
"""

from collections.abc import Mapping
from typing import Any

import typer

from scaffold.errors import ScaffoldError

JSON_VERSION = 1


def show_object(content: Mapping[str, Any]) -> None:
    """Print the object, with the version of its form."""
    import json  # most runs speak to people

    typer.echo(json.dumps({"version": JSON_VERSION, **content}, indent=2))


def as_problem(problem: ScaffoldError) -> dict[str, Any]:
    """A problem as a JSON object."""
    place = problem.location
    return {
        "source": place.source if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }
