"""`scaffold new-op`: one op, from its specification to its files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scaffold.cli.options import Values, command
from scaffold.errors import ConflictError, Location, ScaffoldError, did_you_mean

if TYPE_CHECKING:
    from scaffold.cli.places import Places
    from scaffold.derive import Derivation
    from scaffold.spec import Configuration, OpSpec
    from scaffold.spec.toml import Entry
    from scaffold.workspace import Change, Plan

HELP = """Write an op: its autograd.Function, wrapper, nn.Module and tests.

Without --forward and --grad the bodies are left for you to write, and the tests say so.

Example: scaffold new-op linear --inputs 'input, weight, bias?'
"""
POLICIES = ("ask", "abort", "skip", "overwrite")
FORMATS = ("text", "json")


def _run(name: str, values: Values, settings: Values) -> None:
    from scaffold.cli.places import places
    from scaffold.cli.report import show_json, show_notes, show_plan, show_texts
    from scaffold.derive import derive
    from scaffold.render import render
    from scaffold.render.compiled import CompiledTemplates
    from scaffold.render.environment import keep_compiled
    from scaffold.spec import load_configuration
    from scaffold.workspace import store

    _check_choice(settings, "on-conflict", POLICIES)
    _check_choice(settings, "format", FORMATS)
    configuration = load_configuration(Path.cwd())
    where = places(configuration, settings.get("out-dir"), settings.get("test-dir"))
    spec = _specification(name, values, settings, where, configuration)
    derivation = derive(spec)
    keep_compiled(CompiledTemplates(store))
    files = render(spec, derivation, where.directories)
    notes = _notes(spec, derivation)
    if settings.get("stdout"):
        show_notes(notes)
        show_texts(files)
        return
    plan = _write(files, where.root, settings)
    if settings.get("format") == "json":
        show_json(plan, notes, _missing(spec, derivation))
    else:
        show_notes(notes)
        if not settings.get("diff"):
            show_plan(plan)
    if plan.conflicts:
        sys.exit(ConflictError.exit_code)


def _check_choice(settings: Values, key: str, choices: tuple[str, ...]) -> None:
    value = settings.get(key, choices[0])
    if value not in choices:
        hint = did_you_mean(value, choices) or f"one of: {', '.join(choices)}"
        raise ScaffoldError(f"unknown value '{value}'", Location(f"--{key}"), hint)


def _specification(
    name: str,
    values: Values,
    settings: Values,
    where: "Places",
    configuration: "Configuration",
) -> "OpSpec":
    """The op from the options, or from a file whose keys the options override."""
    from scaffold.cli.raw import Merged, locate_in, raw_options
    from scaffold.spec import build

    raw, places = raw_options(values)
    locate = locate_in(places)
    packaged = where.directories.package is not None
    path = settings.get("spec")
    if path is None:
        return build(name, raw, locate, configuration, packaged=packaged)
    entry = _entry(path, name)
    base = Path(path).parent
    merged = Merged(entry, raw, locate)
    return build(
        entry.name,
        merged.raw,
        merged.locate,
        configuration,
        merged.reader(base),
        packaged,
    )


def _entry(path: str, name: str) -> "Entry":
    """The op of that name in a TOML file."""
    from scaffold.spec.toml import read_ops

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ScaffoldError(
            f"cannot read '{path}': {reason}", Location("--spec")
        ) from None
    entries = {entry.name: entry for entry in read_ops(text, path)}
    if name not in entries:
        hint = did_you_mean(name, entries) or f"its ops: {', '.join(entries)}"
        raise ScaffoldError(f"no op '{name}' in the file", Location(path), hint)
    return entries[name]


def _notes(spec: "OpSpec", derivation: "Derivation") -> tuple[str, ...]:
    """What was taken for granted, what was decided, what is left to write."""
    notes = []
    if spec.conventional:
        shapes = (
            f"{name}[{', '.join(map(str, dims))}]" for name, dims in spec.conventional
        )
        notes.append(f"conventional shapes: {', '.join(shapes)}")
    notes += derivation.notes
    missing = _missing(spec, derivation)
    if missing:
        notes.append(f"left for you to write: {', '.join(missing)}")
    return tuple(notes)


def _missing(spec: "OpSpec", derivation: "Derivation") -> tuple[str, ...]:
    forward = ("forward",) if derivation.forward is None else ()
    named = (
        item.name for item in spec.differentiable if item.name in derivation.missing
    )
    return (*forward, *(f"grad_{name}" for name in named))


def _write(files: dict[str, str], root: Path, settings: Values) -> "Plan":
    """Settle conflicts and write; a dry run and a difference only look."""
    from scaffold.workspace import apply, diff, plan, recover, resolve

    policy = settings.get("on-conflict", "ask")
    looks = settings.get("dry-run") or settings.get("diff")
    if not looks:
        recover(root)
    planned = plan(files, root)
    if settings.get("diff"):
        typer.echo(diff(planned), nl=False)
    if looks:
        settled = policy in ("skip", "overwrite")
        return resolve(planned, policy) if settled else planned
    resolved = resolve(planned, policy, _ask if sys.stdin.isatty() else None)
    apply(resolved)
    return resolved


def _ask(change: "Change") -> Any:
    """The dialogue on a terminal; its questions go to stderr."""
    from scaffold.workspace import converse

    def prompt(question: str) -> str:
        typer.echo(question, nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line

    return converse(change, prompt, lambda text: typer.echo(text, nl=False, err=True))


new_op = command(_run, HELP)
