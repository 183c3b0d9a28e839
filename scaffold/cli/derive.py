"""`scaffold derive`: print the Function of an op, and with --explain its derivation.

In: the options of `new-op` about the maths, sizes for its dims. Out: text, or one JSON object.
Words: `given` are the options typed, by key, of which `values` describe the op and `settings` the run; a gradient is *missing* if the
user has to write it.

Invariant: no file is changed, and nothing is run.
"""

from typing import TYPE_CHECKING, Any

import typer

from scaffold.cli.op_options import (
    DERIVE,
    NAME,
    make_command,
    split_settings,
    typed_sizes,
)
from scaffold.cli.options import FORMATS, check_choice
from scaffold.cli.output import show_notes, show_object

if TYPE_CHECKING:
    from scaffold.project.specification import Values

HELP = """Print the Function of an op, its backward derived.

--explain also shows the rules of differentiation in use, the values saved and why, and their bytes beside those of plain autograd.

Example: scaffold derive swish --inputs 'x' --forward 'x * torch.sigmoid(x)'

Example: scaffold derive gate --inputs 'x[N, D], y[N, D]' --forward 'x * torch.sigmoid(y)' --explain
"""


def _run(name: str, given: "Values") -> None:
    """Print the derived Function, with --explain its derivation above it; or JSON."""
    values, settings = split_settings(given)
    printed, notes = _printed(name, values, settings)
    if settings.get("format") == "json":
        show_object({**printed, "notes": notes})
        return
    show_notes(notes)
    typer.echo(
        "\n".join(filter(None, (printed["steps"], printed["function"]))), nl=False
    )


def _printed(
    name: str, values: "Values", settings: "Values"
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the data printed of an op, the entries of its JSON, and the notes: on inferred inputs, on anything left to autograd."""
    from scaffold.derive import derive
    from scaffold.project.explanation import explained
    from scaffold.project.rendering import function_shown, inferred_note, notes_of
    from scaffold.project.specification import specified

    problems = check_choice("--format", settings.get("format", "text"), FORMATS)
    sizes = typed_sizes(settings, problems)
    found = specified(name, values, settings, problems)
    spec, derivation = found.spec, derive(found.spec)
    printed = {
        "function": function_shown(spec, derivation, found.places),
        "steps": explained(spec, derivation, sizes) if settings.get("explain") else "",
        "derived": sorted(derivation.derived),
        "missing": sorted(derivation.missing),
    }
    return printed, (*inferred_note(found), *notes_of(spec, derivation))


derive = make_command(_run, HELP, NAME, DERIVE)
