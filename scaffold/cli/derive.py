"""`scaffold derive`: the Function of an op on stdout, and with --explain how it came about.

In: the options of `new-op` that are about the maths, sizes for its dims. Out: text, or one JSON object.
Invariant: the disk is left as it is.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from scaffold.cli.op_options import DERIVE, NAME, make_command, split_settings
from scaffold.cli.options import FORMATS, check_choice
from scaffold.cli.output import TERMINAL, show_notes, show_object
from scaffold.errors import ScaffoldError

if TYPE_CHECKING:
    from scaffold.derive import Derivation
    from scaffold.project.interpreter import Proving
    from scaffold.project.places import Places
    from scaffold.project.specification import Values
    from scaffold.spec import OpSpec


HELP = """Print the Function of an op, its backward derived.

With --explain it is preceded by the rules that were used, what is saved and why, and the bytes of it beside those that plain
autograd keeps.

Example: scaffold derive swish --inputs 'x' --forward 'x * torch.sigmoid(x)'

Example: scaffold derive gate --inputs 'x[N, D], y[N, D]' --forward 'x * torch.sigmoid(y)' --explain
"""


def _run(name: str, given: "Values") -> None:
    values, settings = split_settings(given)
    try:
        printed, notes = _printed(name, values, settings)
    except ScaffoldError as error:
        show_notes(error.details)
        raise
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
    """What is said of the op, and the notes."""
    from scaffold.project.interpreter import proving
    from scaffold.render.opfile import function_text

    with proving(settings, TERMINAL) as process:
        problems = _problems(settings)
        if settings.get("verify") and not problems:
            problems = process.start()
        made = _made(name, values, settings, problems, process)
    spec, derivation = made.spec, made.derivation
    length = made.places.directories.line_length
    printed = {
        "function": function_text(spec, derivation, length, made.places.house),
        "steps": _steps(spec, derivation, settings),
        "derived": sorted(derivation.derived),
        "missing": sorted(derivation.missing),
    }
    return printed, made.notes


class _Made(NamedTuple):
    """An op, what was derived of it, and what to say of it."""

    spec: "OpSpec"
    places: "Places"
    derivation: "Derivation"
    notes: tuple[str, ...]


def _made(
    name: str,
    values: "Values",
    settings: "Values",
    problems: list[ScaffoldError],
    process: "Proving",
) -> _Made:
    """The op, proven if that is wished."""
    from scaffold.derive import derive
    from scaffold.project.rendering import generate, inferred_note, notes_of
    from scaffold.project.specification import specified

    if settings.get("verify"):
        from scaffold.project.proofs import fitting, prove

        generated = generate(name, values, settings, problems)
        again = fitting(generated, values, settings)
        proven = prove(generated, process, again, tested=False)
        places = proven.specified.places
        return _Made(proven.spec, places, proven.derivation, proven.notes)
    found = specified(name, values, settings, problems)
    derivation = derive(found.spec)
    notes = (*inferred_note(found), *notes_of(found.spec, derivation))
    return _Made(found.spec, found.places, derivation, notes)


def _steps(spec: "OpSpec", derivation: "Derivation", settings: "Values") -> str:
    if not settings.get("explain"):
        return ""
    from scaffold.project.explanation import explained, read_sizes

    return explained(spec, derivation, read_sizes(settings.get("sizes", "")))


def _problems(settings: "Values") -> list[ScaffoldError]:
    """What is wrong with the options that are about the run."""
    found = check_choice("--format", settings.get("format", "text"), FORMATS)
    if settings.get("sizes"):
        from scaffold.project.explanation import read_sizes

        try:
            read_sizes(settings["sizes"])
        except ScaffoldError as error:
            found.append(error)
    return found


derive = make_command(_run, HELP, NAME, DERIVE)
