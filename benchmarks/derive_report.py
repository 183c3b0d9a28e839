"""The figures of derived ops as a table, and what they miss.

In: a `Row` for each op. Out: lines. Invariant: a mean is geometric, over the ops in which a candidate takes part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CELL, EMPTY = 23, "    -"
NORMS = ("rms_norm", "layer_norm")
ROUNDING = 1.01  # a number for each row is no more
# Geometric means over plain autograd's, and of any one op.
MEANS = {
    ("balanced", "time"): 0.95,
    ("balanced", "graph"): 1.10,
    ("balanced", "saved"): 0.70,
    ("recompute", "saved"): 0.66,
    ("once", "time"): 0.85,
}
WORST = {
    ("balanced", "time"): 1.20,
    ("balanced", "saved"): 1.00,
    ("balanced", "frozen"): 1.00,
}
OF_NORMS = 1.05  # frozen


class Figures(NamedTuple):
    """What a candidate takes and saves over plain autograd."""

    time: float
    graph: float | None = None  # time with create_graph=True
    saved: float | None = None
    frozen: float | None = None  # the most with one input frozen


class Row(NamedTuple):
    """One op, measured."""

    name: str
    milliseconds: float  # of plain autograd
    figures: Mapping[str, Figures]
    refused: Mapping[str, str]  # why a candidate takes no part


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))


def head(names: Sequence[str]) -> str:
    """The names of the columns."""
    return _line("", "plain, ms", [f"{name:{CELL}}" for name in names])


def row_line(row: Row, names: Sequence[str]) -> str:
    """An op's line of the table."""
    cells = [_cell(row.figures.get(name, ())) for name in names]
    return _line(row.name, f"{row.milliseconds:.2f}", cells)


def mean_line(rows: Sequence[Row], names: Sequence[str]) -> str:
    """The geometric means."""
    means = [
        _cell([average(rows, name, what) for what in Figures._fields]) for name in names
    ]
    return _line("geometric mean", "", means)


def average(rows: Sequence[Row], name: str, what: str) -> float | None:
    """The geometric mean of one figure of a candidate; None where no op has it."""
    values = [value for _, value in values_of(rows, name, what)]
    return mean(values) if values else None


def values_of(rows: Sequence[Row], name: str, what: str) -> list[tuple[str, float]]:
    """One figure of a candidate, by op."""
    found = [(row.name, getattr(row.figures.get(name), what, None)) for row in rows]
    return [(op, value) for op, value in found if value is not None]


def _line(name: str, first: str, cells: Sequence[str]) -> str:
    return f"{name:18} {first:>9} | " + " | ".join(cells)


def _cell(figures: Sequence[float | None]) -> str:
    shown = [EMPTY if value is None else f"{value:5.2f}" for value in figures]
    return f"{' '.join(shown):{CELL}}"


def missed(rows: Sequence[Row]) -> list[str]:
    """The targets that are missed, each with the ops that miss it most."""
    found = []
    for (name, what), most in MEANS.items():
        own = average(rows, name, what)
        if own is not None and own > most:
            worst = sorted(values_of(rows, name, what), key=lambda pair: -pair[1])[:3]
            listed = ", ".join(f"{op} {value:.2f}" for op, value in worst)
            found.append(f"{name} {what}: {own:.2f} > {most}, {listed}")
    for (name, what), most in WORST.items():
        for op, value in values_of(rows, name, what):
            bound = OF_NORMS if what == "frozen" and op in NORMS else most
            if value > bound * ROUNDING:
                found.append(f"{name} {what} of {op}: {value:.2f} > {bound}")
    return found


def notes(rows: Sequence[Row]) -> list[str]:
    """Who takes no part, and why: the ops of each reason."""
    ops: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row.refused.items():
            ops.setdefault((name, reason), []).append(row.name)
    return [
        f"n/a: {name}, {reason}: {', '.join(those)}"
        for (name, reason), those in ops.items()
    ]
