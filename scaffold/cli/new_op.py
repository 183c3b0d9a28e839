"""`scaffold new-op`: one op, from its specification to its files."""

import sys
from typing import TYPE_CHECKING

import typer

from scaffold.cli.choices import FORMATS, ON_CONFLICT
from scaffold.cli.interpreter import without_torch
from scaffold.cli.options import Values, command
from scaffold.errors import ConflictError, Location, ScaffoldError, did_you_mean

if TYPE_CHECKING:
    from scaffold.cli.generate import Generated
    from scaffold.cli.settle import Settled

HELP = """Write an op: its Function, wrapper, Module and tests.

Without --forward and --grad the bodies are left for you to write, and the tests say so.

Example: scaffold new-op linear --inputs 'input, weight, bias?'
"""
CHOICES = {
    "on-conflict": ON_CONFLICT,
    "format": FORMATS,
}


def _run(name: str, values: Values, settings: Values) -> None:
    from scaffold.cli.generate import generate
    from scaffold.cli.report import show_notes

    for_programs = settings.get("format") == "json"
    try:
        generated = _proven(
            generate(name, values, settings, _problems(settings)), settings
        )
        show = _for_programs if for_programs else _for_people
        show(generated, settings)
    except ScaffoldError as error:
        show_notes(error.details)
        raise


def _proven(generated: "Generated", settings: Values) -> "Generated":
    """What was generated, verified if that is wished, or if gradients were derived and nobody forbids it."""
    if not settings.get("verify", bool(generated.derived)):
        return generated
    from scaffold.cli.proof import prove

    notes = prove(generated)
    return generated._replace(notes=(*generated.notes, *notes))


def _for_people(generated: "Generated", settings: Values) -> None:
    """Write and say so; with --dry-run, --diff or --stdout only say."""
    from scaffold.cli.report import show_diff, show_notes, show_plan, show_texts

    show_notes(generated.notes)
    if settings.get("stdout"):
        show_texts(generated)
        return
    settled = _settle(generated, settings)
    show_notes(settled.notes)
    if settled.refusal:
        raise settled.refusal
    show = show_diff if settings.get("diff") else show_plan
    show(settled.plan)
    _exit_on_conflict(settled)


def _for_programs(generated: "Generated", settings: Values) -> None:
    """The same, in one JSON object."""
    from scaffold.cli.report import show_files, show_settled

    if settings.get("stdout"):
        show_files(generated)
        return
    settled = _settle(generated, settings)
    show_settled(generated, settled, with_diff=bool(settings.get("diff")))
    if settled.refusal:
        typer.echo(str(settled.refusal), err=True)
    _exit_on_conflict(settled)


def _settle(generated: "Generated", settings: Values) -> "Settled":
    from scaffold.cli.settle import look, write

    looking = settings.get("dry-run") or settings.get("diff")
    policy = settings.get("on-conflict", "ask")
    if _joins(generated, settings):
        from scaffold.cli.adding import add_op

        return add_op(generated.specified, policy, write=not looking).settled
    return (look if looking else write)(generated.files, generated.root, policy)


def _joins(generated: "Generated", settings: Values) -> bool:
    """Whether the op becomes part of the project: it goes where the configuration says."""
    elsewhere = "out-dir" in settings or "test-dir" in settings
    return generated.specified.configuration.project and not elsewhere


def _exit_on_conflict(settled: "Settled") -> None:
    if settled.plan.conflicts:
        sys.exit(ConflictError.exit_code)


def _problems(settings: Values) -> list[ScaffoldError]:
    """What is wrong with the options that are about the run rather than the op."""
    found = []
    for key, choices in CHOICES.items():
        value = settings.get(key, choices[0])
        if value not in choices:
            hint = did_you_mean(value, choices) or f"one of: {', '.join(choices)}"
            message = f"unknown value '{value}'"
            found.append(ScaffoldError(message, Location(f"--{key}"), hint))
    if settings.get("verify"):
        found += without_torch("--verify")
    for key in ("diff", "dry-run"):
        if settings.get("stdout") and settings.get(key):
            message = f"--{key} says what a run would do, --stdout prints the files"
            place = Location(f"--{key}")
            found.append(ScaffoldError(message, place, "keep one of them"))
    return found


new_op = command(_run, HELP)
