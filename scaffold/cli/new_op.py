"""`scaffold new-op`: one op, from its specification to its files."""

from typing import TYPE_CHECKING

from scaffold.cli.choices import FORMATS, ON_CONFLICT, check_choice
from scaffold.cli.interpreter import without_torch
from scaffold.cli.options import Values, command
from scaffold.errors import Location, ScaffoldError

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
    from scaffold.cli.report import show_notes

    for_programs = settings.get("format") == "json"
    try:
        generated = _proven(name, values, settings)
        show = _for_programs if for_programs else _for_people
        show(generated, settings)
    except ScaffoldError as error:
        show_notes(error.details)
        raise


def _proven(name: str, values: Values, settings: Values) -> "Generated":
    """What was generated, verified unless the user does without."""
    from scaffold.cli.generate import generate

    def again(conditions: tuple[str, ...]) -> "Generated":
        stated = {**values, "require": list(conditions)}
        return generate(name, stated, settings, [])

    generated = generate(name, values, settings, _problems(settings))
    begun = not generated.missing or bool(generated.derived)
    if settings.get("verify", begun):
        from scaffold.cli.proof import prove

        alone = "inputs" in values and "spec" not in settings
        return prove(generated, again if alone and not generated.spec.require else None)
    return generated


def _for_people(generated: "Generated", settings: Values) -> None:
    """Write and say so; with --dry-run, --diff or --stdout only say."""
    from scaffold.cli.report import show_notes, show_texts, tell

    show_notes(generated.notes)
    if settings.get("stdout"):
        show_texts(generated)
        return
    tell(_settle(generated, settings), with_diff=bool(settings.get("diff")))


def _for_programs(generated: "Generated", settings: Values) -> None:
    """The same, in one JSON object."""
    from scaffold.cli.failing import leave
    from scaffold.cli.report import exit_on_conflict, show_files, show_settled

    if settings.get("stdout"):
        show_files(generated)
        return
    settled = _settle(generated, settings)
    show_settled(generated, settled, with_diff=bool(settings.get("diff")))
    if settled.refusal:
        leave(settled.refusal)
    exit_on_conflict(settled.plan)


def _settle(generated: "Generated", settings: Values) -> "Settled":
    from scaffold.cli.settle import look, write

    looking = settings.get("dry-run") or settings.get("diff")
    policy = settings.get("on-conflict", "ask")
    if _joins(generated, settings):
        from scaffold.cli.adding import add_op

        proving = bool(settings.get("verify", True))
        return add_op(generated, policy, write=not looking, proving=proving)
    return (look if looking else write)(generated.files, generated.root, policy)


def _joins(generated: "Generated", settings: Values) -> bool:
    """Whether the op becomes part of the project: it goes where the configuration says."""
    elsewhere = "out-dir" in settings or "test-dir" in settings
    return generated.specified.configuration.project and not elsewhere


def _problems(settings: Values) -> list[ScaffoldError]:
    """What is wrong with the options that are about the run rather than the op."""
    found = []
    for key, choices in CHOICES.items():
        found += check_choice(f"--{key}", settings.get(key, choices[0]), choices)
    if settings.get("verify"):
        found += without_torch("--verify")
    for key in ("diff", "dry-run"):
        if settings.get("stdout") and settings.get(key):
            message = f"--{key} says what a run would do, --stdout prints the files"
            place = Location(f"--{key}")
            found.append(ScaffoldError(message, place, "keep one of them"))
    return found


new_op = command(_run, HELP)
