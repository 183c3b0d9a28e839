"""`scaffold bench`: time and memory of an op, plain autograd, torch.compile and another operator.

Words: a *variant* is one way to compute the same: the op, plain autograd, torch.compile of it, another operator; a *round* measures
each variant once, in turn; the *spread* of times is their median and quartiles; a *setting* is a choice of sizes and dtype; `given`
are the options typed, by name, of which `values` describe the op and `settings` the run.

In: an op of the manifest, or the options of `new-op` about the maths; sizes, dtypes, a device. Out: a table on stdout, or one JSON
object; a picture.
Invariant: a difference within the spread of the rounds is called noise; an impossible measurement is reported with the reason.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from scaffold.cli.op_options import BENCH, DTYPES, NAME, make_command, split_settings
from scaffold.cli.options import FORMATS, check_choice
from scaffold.cli.output import line, show_notes, show_object
from scaffold.cli.terminal import bar
from scaffold.errors import Location, ScaffoldError
from scaffold.verify.bench import LIMIT, PARTS, ROUNDS

if TYPE_CHECKING:
    from scaffold.project.measuring import Table, Workload
    from scaffold.project.specification import Values
    from scaffold.verify.bench import Spread

HELP = """Measure an op beside plain autograd and torch.compile.

The variants take turns, each in a process of its own. A time is the median of all rounds; the brackets show the quartiles of forward
and backward together. Bytes are those of one call: `peak` is the most it holds beside its inputs, `saved` is kept for the backward,
inputs included. Without --sizes, the largest input has about half a million elements. --sizes and --dtype may be repeated.

Example: scaffold bench swish --inputs 'x' --forward 'x * torch.sigmoid(x)' --against 'F.silu(x)'

Example: scaffold bench rms_norm --sizes '...=512, D=1024' --sizes '...=8, D=64' --dtype float32 --dtype bfloat16
"""
DEFAULTS = {"device": "cpu", "threads": 1, "rounds": ROUNDS, "create-graph": False}
# Options whose value is at least 1, each with a value to suggest.
LEAST = {"threads": 1, "rounds": ROUNDS, "limit": LIMIT}
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
HEAD = ("", *PARTS, "over plain", "peak", "saved")


def _run(name: str, given: "Values") -> None:
    """Measure an op in all requested settings, and print the tables, as text or JSON, and draw them if --plot is given."""
    from scaffold.project.interpreter import need_interpreter
    from scaffold.project.measuring import workload
    from scaffold.project.specification import specified

    values, settings = split_settings(given)
    found = specified(name, values, settings, _problems(settings))
    against, compiled = settings.get("against"), settings.get("compile", True)
    work = workload(found, settings.get("sizes", ()), against, compiled)
    interpreter = need_interpreter(settings.get("python"), "scaffold bench")
    said = {key: settings.get(key, default) for key, default in DEFAULTS.items()}
    torch, tables = _measured(work, interpreter.path, settings, said)
    if settings.get("plot"):
        _draw(name, tables, Path(settings["plot"]))
    notes = (*interpreter.note("measured"), *work.notes, *_differing(tables))
    if settings.get("format") == "json":
        keys = {key.replace("-", "_"): value for key, value in said.items()}
        told = {"op": found.spec.name, "torch": torch, **keys}
        show_object({**told, "settings": [*map(_as_data, tables)], "notes": notes})
        return
    show_notes(notes)
    plural = "s" * (said["threads"] != 1)
    about = f"{said['device']}, {said['threads']} thread{plural}, torch {torch}"
    typer.echo(f"{found.spec.name} on {about}; medians of {said['rounds']} rounds")
    for one in tables:
        typer.echo("\n".join(("", *_lines(one))))


def _problems(settings: "Values") -> list[ScaffoldError]:
    """Return the problems of the options: unknown words, too small numbers, a picture not to be drawn."""
    found = check_choice("--format", settings.get("format", "text"), FORMATS)
    for dtype in settings.get("dtype", ()):
        found += check_choice("--dtype", dtype, DTYPES)
    for key, usual in LEAST.items():
        if (number := settings.get(key, usual)) < 1:
            place, hint = Location(f"--{key}"), f"write: --{key} {usual}"
            found.append(ScaffoldError(f"'{number}' is too small", place, hint))
    return found + (_cannot_draw(settings["plot"]) if "plot" in settings else [])


def _cannot_draw(plot: str) -> list[ScaffoldError]:
    """Return a problem if a picture cannot be drawn into the file `plot`; [] otherwise."""
    from scaffold.render.plots import lacks_matplotlib

    place = Location("--plot")
    if not plot.endswith(".svg"):
        hint = "write: --plot bench.svg"
        return [ScaffoldError(f"'{plot}' is not an SVG file", place, hint)]
    if lacks_matplotlib():
        hint = "pip install 'matplotlib>=3.8', beside scaffold"
        return [ScaffoldError("matplotlib is not installed", place, hint)]
    return []


def _measured(
    work: "Workload", python: str, settings: "Values", said: Mapping[str, Any]
) -> "tuple[str, list[Table]]":
    """Return the version of PyTorch, and a table for each choice of sizes and dtype.

    `python` is the interpreter with PyTorch; `said` are the options with their defaults.
    """
    from scaffold.project.measuring import measure
    from scaffold.verify.bench import Bench, Setting

    dtypes, rounds = settings.get("dtype", DTYPES[:1]), said["rounds"]
    names = [item.name for item in work.variants]
    steps = len(work.sizes) * len(dtypes) * len(names) * (1 + rounds)
    setting = Setting({}, device=said["device"], create_graph=said["create-graph"])
    options = (said["threads"], settings.get("limit", LIMIT), work.path)
    with Bench(names, python, *options) as bench, _progress(steps) as tell:
        tables = [*measure(work, bench, dtypes, setting, rounds, tell)]
    return bench.torch, tables


@contextmanager
def _progress(steps: int) -> "Iterator[Callable[[], None]]":
    """Show a progress line of `steps` measurements; the context yields a function to call after each."""
    done = count(1)
    with line(lambda now: bar(now, steps, f"measuring {now}/{steps}"), True) as update:
        yield lambda: update(next(done))


def _draw(name: str, tables: "Sequence[Table]", out: Path) -> None:
    """Write a picture of the times to a file, as bars for each variant."""
    from scaffold.project.writing import write
    from scaffold.render.plots import bars

    times = {
        table.title: {
            variant: (found.forward.median, *found.both)
            for variant, found in table.found.measured.items()
        }
        for table in tables
    }
    write({out.name: bars(name, times)}, out.parent, "overwrite")


def _differing(tables: "Sequence[Table]") -> "Iterator[str]":
    """Yield a note on each variant with other values or gradients than the op: its time is of other work."""
    for table in tables:
        for name, found in table.found.measured.items():
            if found.differs:
                what = "other values or gradients than the op"
                yield f"{name} gives {what}, with {table.title}"


def _as_data(table: "Table") -> dict[str, Any]:
    """Return the measurements of one setting as a JSON object."""
    variants: list[dict[str, Any]] = []
    for name, found in table.found.measured.items():
        times = {part: getattr(found, part)._asdict() for part in PARTS}
        ratio, noise = _over_plain(table, name) or (None, None)
        compared = {"over_plain": ratio, "noise": noise}
        variants.append({"name": name, **found._asdict(), **times, **compared})
    refused = table.found.refused
    return {
        "sizes": table.sizes,
        "dtype": table.dtype,
        "variants": variants,
        "refused": refused,
    }


def _over_plain(table: "Table", name: str) -> tuple[float, bool] | None:
    """Return a variant's time as a multiple of plain autograd's, and whether the difference may be noise.

    None for plain autograd itself, or if it could not be measured.
    """
    from scaffold.project.measuring import PLAIN

    measured = table.found.measured
    own, plain = measured[name], measured.get(PLAIN)
    return own.over(plain) if plain and own is not plain else None


def _lines(table: "Table") -> "Iterator[str]":
    """Yield the measurements of one setting as lines of a table, in the unit fitting the longest time."""
    from scaffold.project.explanation import columns

    measured, refused = table.found
    # The unit is that of the longest time, the same for all rows.
    most = max(found.both.high for found in measured.values())
    unit, word = next((one for one in UNITS if most >= one[0]), UNITS[-1])
    yield f"{table.title}, times in {word}"
    rows: list[tuple[str, ...]] = [HEAD]
    for name, found in measured.items():
        forward, backward, both = (_times(getattr(found, x), unit) for x in PARTS)
        # Plain autograd itself has no ratio to itself.
        ratio, noise = _over_plain(table, name) or (0, False)
        shown = f"{ratio:.2f}{' noise' * noise}" if ratio else ""
        sizes = map(_size, (found.peak_bytes, found.saved_bytes))
        spread = "{} ({}-{})".format(*both)
        rows.append((name, forward[0], backward[0], spread, shown, *sizes))
    yield from columns(rows)
    yield from (f"{name}: not measured, {why}" for name, why in refused.items())


def _times(spread: "Spread", unit: float) -> list[str]:
    """Return a spread (median, lower and upper quartile, in seconds) as texts in a unit, with three digits."""
    values = [one / unit for one in spread]
    return [f"{value:.{max(0, 3 - len(str(int(value))))}f}" for value in values]


def _size(count: int | None) -> str:
    """Return bytes as text, "4.5 MiB"; "?" if they are unknown."""
    if count is None:
        return "?"
    for size, word in ((2**20, "MiB"), (2**10, "KiB")):
        if count >= size:
            return f"{count / size:.4g} {word}"
    return f"{count} B"


bench = make_command(_run, HELP, NAME, BENCH)
