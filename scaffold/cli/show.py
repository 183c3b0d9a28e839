"""`scaffold show`: draw an op: forward, backward, saved values with bytes, and data flow.

In: an op of the manifest, or the options of `new-op` about the maths. Out: an SVG or Mermaid file, or the same on stdout; the
graph as one JSON object.
Words: a *diagram* is what the picture shows, boxes with code and the arrows between them, without places; `given` are the options
typed, of which `values` describe the op and `settings` the run.

Invariant: the picture loads nothing, nothing but its file is written, and an existing file is a conflict as for other commands.
"""

from typing import TYPE_CHECKING

from scaffold.cli.op_options import (
    NAME,
    PICTURES,
    SHOW,
    make_command,
    split_settings,
    typed_sizes,
)
from scaffold.cli.options import check_choice
from scaffold.cli.output import Showing, put, show_object
from scaffold.errors import ScaffoldError, raise_all
from scaffold.workspace import POLICIES

if TYPE_CHECKING:
    from scaffold.derive.diagram import Diagram
    from scaffold.project.specification import Values


HELP = """Draw an op: forward, backward, and what is saved in between.

Sizes are bytes of float32, written with the names of the dims. The picture is NAME.svg, which loads nothing and is
legible on light and on dark pages; --format mermaid gives text that Markdown pages show as a picture.

Example: scaffold show swish --forward 'x * torch.sigmoid(x)'

Example: scaffold show gate --inputs 'x[N, D], y[N, D]' --forward 'x * torch.sigmoid(y)' --format mermaid --stdout
"""
SUFFIXES = {"svg": "svg", "mermaid": "mmd"}


def _run(name: str, given: "Values") -> None:
    """Draw an op as SVG, Mermaid or JSON, to a file or stdout."""
    from pathlib import Path

    values, settings = split_settings(given)
    format_ = settings.get("format", "svg")
    policy = settings.get("on-conflict", "ask")
    raise_all(
        check_choice("--format", format_, PICTURES)
        + check_choice("--on-conflict", policy, POLICIES)
    )
    found, notes = _drawn(name, values, settings)
    if format_ == "json":
        show_object({**_as_data(found), "notes": notes})
        return
    from scaffold.render.pictures import as_mermaid, as_svg

    text = as_svg(found) if format_ == "svg" else as_mermaid(found)
    out = Path(settings.get("out") or f"{found.name}.{SUFFIXES[format_]}")
    showing = Showing(
        bool(settings.get("dry-run")), stdout=bool(settings.get("stdout"))
    )
    put({out.name: text}, out.parent, policy, showing, notes)


def _drawn(
    name: str, values: "Values", settings: "Values"
) -> "tuple[Diagram, tuple[str, ...]]":
    """Return the diagram of an op, with bytes of its saved values (for the sizes of --sizes), and notes; raise its errors together."""
    from scaffold.derive import derive
    from scaffold.derive.diagram import diagram
    from scaffold.project.explanation import bytes_in
    from scaffold.project.rendering import inferred_note, notes_of
    from scaffold.project.specification import specified

    problems: list[ScaffoldError] = []
    sizes = typed_sizes(settings, problems)
    found = specified(name, values, settings, problems)
    derivation = derive(found.spec)
    notes = (*inferred_note(found), *notes_of(found.spec, derivation))
    return diagram(found.spec, derivation, bytes_in(sizes)), notes


def _as_data(found: "Diagram") -> dict[str, object]:
    """Return a diagram as a JSON object; "kept" and "autograd" are the bytes saved by the op, and by plain autograd."""
    return {
        "name": found.name,
        "kept": found.here,
        "autograd": found.eager,
        "items": [
            {
                "part": item.part,
                "kind": item.kind,
                "code": list(item.lines),
                "detail": list(item.detail),
                "reads": list(item.reads),
            }
            for item in found.items
        ],
    }


show = make_command(_run, HELP, NAME, SHOW)
