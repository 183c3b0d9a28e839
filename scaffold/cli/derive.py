"""`scaffold derive`: print the Function of an op, and with --explain its derivation.

In: the options of `new-op` about the maths, sizes for its dims. Out: text, or one JSON object.
Words: `given` are the options typed, by key, of which `values` describe the op and `settings` the run; a gradient is *missing* if the
user has to write it.

Invariant: no file is changed, and nothing is run.
"""

from typing import TYPE_CHECKING, Any

import typer

from scaffold.cli.op_options import DERIVE, NAME, make_command, split_settings
from scaffold.cli.options import FORMATS, check_choice
from scaffold.cli.output import show_notes, show_object
from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.derive import Derivation
    from scaffold.project.specification import Values
    from scaffold.spec import OpSpec


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
    from scaffold.project.rendering import function_shown, inferred_note, notes_of
    from scaffold.project.specification import specified

    found = specified(name, values, settings, _problems(settings))
    spec, derivation = found.spec, derive(found.spec)
    printed = {
        "function": function_shown(spec, derivation, found.places),
        "steps": _steps(spec, derivation, settings),
        "derived": sorted(derivation.derived),
        "missing": sorted(derivation.missing),
    }
    return printed, (*inferred_note(found), *notes_of(spec, derivation))


def _steps(spec: "OpSpec", derivation: "Derivation", settings: "Values") -> str:
    """Return the explanation of the derivation, with bytes for the sizes of --sizes; "" without --explain."""
    if not settings.get("explain"):
        return ""
    from scaffold.project.explanation import explained, read_sizes

    return explained(spec, derivation, read_sizes(settings.get("sizes", "")))


def _problems(settings: "Values") -> list[ScaffoldError]:
    """Return the problems of --format and --sizes."""
    found = check_choice("--format", settings.get("format", "text"), FORMATS)
    if settings.get("sizes"):
        from scaffold.project.explanation import read_sizes

        try:
            read_sizes(settings["sizes"])
        except ScaffoldError as error:
            found.append(error)
    return found


derive = make_command(_run, HELP, NAME, DERIVE)
