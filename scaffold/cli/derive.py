"""`scaffold derive`: the Function of an op on stdout, and with --explain how it came about.

In: the options of `new-op` that are about the maths, sizes for its dims. Out: text, or one JSON object.
Invariant: the disk is left as it is. Bytes are those of single precision, written out with the names of the dims where a size is not
given.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from scaffold.cli.op_options import DERIVE, NAME, make_command, split_settings
from scaffold.cli.options import FORMATS, check_choice
from scaffold.cli.output import TERMINAL, show_notes, show_object
from scaffold.errors import Location, ScaffoldError

if TYPE_CHECKING:
    from scaffold.derive import Derivation
    from scaffold.derive.explain import Explanation, Tensors
    from scaffold.project.interpreter import Proving
    from scaffold.project.places import Places
    from scaffold.project.specification import Values
    from scaffold.spec import OpSpec


HELP = """Print the Function of an op, its backward derived.

With --explain it is preceded by the steps: the forward as primitives, the rules that were used, what is saved and
why, and the bytes of it beside those that plain autograd keeps.

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
        from scaffold.project.proofs import prove

        proven = prove(generate(name, values, settings, problems), process)
        places = proven.specified.places
        return _Made(proven.spec, places, proven.derivation, proven.notes)
    found = specified(name, values, settings, problems)
    derivation = derive(found.spec)
    notes = (*inferred_note(found), *notes_of(found.spec, derivation))
    return _Made(found.spec, found.places, derivation, notes)


def _steps(spec: "OpSpec", derivation: "Derivation", settings: "Values") -> str:
    if not settings.get("explain"):
        return ""

    return explained(spec, derivation, read_sizes(settings.get("sizes", "")))


def _problems(settings: "Values") -> list[ScaffoldError]:
    """What is wrong with the options that are about the run."""
    found = check_choice("--format", settings.get("format", "text"), FORMATS)
    if settings.get("sizes"):

        try:
            read_sizes(settings["sizes"])
        except ScaffoldError as error:
            found.append(error)
    return found


derive = make_command(_run, HELP, NAME, DERIVE)


Sizes = Mapping[str, int]


def read_sizes(text: str) -> Sizes:
    """`N=32, D=512, ...=8, *batch=8` as numbers by name, those of leading dims as their product."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if not equals or not name or not re.fullmatch(r"[0-9]{1,12}", number):
            hint = "write: --sizes 'N=32, D=512, ...=8'"
            message = f"'{part.strip()}' is not name=number"
            raise ScaffoldError(message, Location("--sizes"), hint)
        sizes[name.removeprefix("*")] = int(number)
    return sizes


def explained(spec: "OpSpec", derivation: "Derivation", sizes: Sizes) -> str:
    """The sections of the explanation."""
    from scaffold.derive.explain import explain

    found = explain(spec, derivation) if spec.forward is not None else None
    if found is None:
        return "# the forward is not understood piece by piece\n"
    sections = [
        ("the forward as primitives; * carries a gradient", _graph(found)),
        ("rules", _rules(found)),
        ("kept for the backward", _kept(derivation, found)),
        ("bytes in single precision", _bytes(found, sizes)),
    ]
    shown = (
        "\n".join([f"# {title}", *lines, ""]) for title, lines in sections if lines
    )
    return "\n".join(shown)


def _graph(found: "Explanation") -> list[str]:
    rows = [
        ("*" if step.active else " ", step.name, f"= {step.code}", step.shape)
        for step in found.steps
    ]
    return _columns(rows)


def _rules(found: "Explanation") -> list[str]:
    return _columns(
        [
            (used.rule, f"grad.{used.argument}", f"= {used.formula}")
            for used in found.rules
        ]
    )


def _kept(derivation: "Derivation", found: "Explanation") -> list[str]:
    sizes = {item.name: tensor.size for item, tensor in found.saved}
    rows: list[tuple[str, str, str, str]] = [
        (
            item.name,
            item.source,
            f"for {', '.join(f'grad_{name}' for name in sorted(item.serves))}",
            sizes.get(item.name, "?"),
        )
        for item in derivation.saved
    ]
    rows += [
        (kept.name, "on ctx", "no tensor: " + (kept.expression), "")
        for kept in derivation.kept
    ]
    return _columns(rows) or ["nothing"]


def _bytes(found: "Explanation", sizes: Sizes) -> list[str]:
    from scaffold.derive.explain import total

    ours = [tensor for _, tensor in found.saved]
    rows = [("here", total(ours)), ("plain autograd", total(found.eager))]
    if sizes:
        pairs = zip(rows, (ours, found.eager), strict=True)
        rows = [(*row, _counted(tensors, sizes)) for row, tensors in pairs]  # type: ignore[misc]
    return _columns(rows)


def _counted(tensors: "Iterable[Tensors]", sizes: Sizes) -> str:
    """The number of bytes, if all sizes are known."""
    bytes_ = 0
    for tensor in tensors:
        elements = 1
        for factor in tensor.size.split("*"):
            size = int(factor) if factor.isdigit() else sizes.get(factor)
            if size is None:
                return f"= ? (no size for {factor})"
            elements *= size
        bytes_ += elements * tensor.item
    return f"= {bytes_:,}"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with the cells of each column under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
