"""The figures of derived ops as a table, and what they miss.

In: a `Row` for each op. Out: lines. Invariant: a mean is geometric, over the ops in which a candidate takes part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# geometric means over eager's: time, bytes
TARGETS = {"recompute": (1.25, 0.65), "balanced": (1.00, 0.80)}


class Row(NamedTuple):
    """One op, measured: each candidate's figures over eager's."""

    name: str
    milliseconds: float  # of eager
    kilobytes: float
    times: Mapping[str, float]
    saved: Mapping[str, float]
    frozen: tuple[str, ...]  # where more is saved than the native op saves
    refused: str  # why tangent-ad takes no part


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))


def cell(figures: tuple[float, float | None] | None) -> str:
    """Time and bytes."""
    if figures is None:
        return f"{'-':>6s} {'':6s}"
    seconds, size = figures
    return f"{seconds:6.2f} {'' if size is None else format(size, '.2f'):>6s}"


def figures(row: Row, name: str) -> tuple[float, float | None] | None:
    """Time and bytes of a candidate over eager's."""
    if name not in row.times:
        return None
    return row.times[name], row.saved.get(name)


def averaged(rows: Sequence[Row], name: str) -> tuple[float, float | None] | None:
    """The geometric means of a candidate, over the ops in which it takes part."""
    times = [row.times[name] for row in rows if name in row.times]
    sizes = [row.saved[name] for row in rows if name in row.saved]
    return (mean(times), mean(sizes) if sizes else None) if times else None


def line(name: str, first: str, cells: Sequence[str]) -> str:
    """One line of the table."""
    return f"{name:18s} {first:>18s} | " + " | ".join(cells)


def missed(rows: Sequence[Row]) -> list[str]:
    """The targets that are missed."""
    found = []
    for policy, targets in TARGETS.items():
        means = averaged(rows, policy)
        assert means is not None
        for what, own, target in zip(("time", "bytes"), means, targets, strict=True):
            assert own is not None
            if own > target:
                found.append(
                    f"{policy} {what}: {own:.2f} > {target}, {_worst(rows, policy, what)}"
                )
    items = [f"{row.name}, {item} of native" for row in rows for item in row.frozen]
    return found + [item for item in items if "recompute" in item]


def _worst(rows: Sequence[Row], policy: str, what: str) -> str:
    pairs = [
        ((row.times if what == "time" else row.saved)[policy], row.name) for row in rows
    ]
    return ", ".join(f"{name} {own:.2f}" for own, name in sorted(pairs)[:-4:-1])


def notes(rows: Sequence[Row]) -> list[str]:
    """What is no miss, but should be known."""
    found = [f"{row.name}, {item} of native" for row in rows for item in row.frozen]
    found = [item for item in found if "balanced" in item]
    if any("tangent-ad" in row.times or row.refused for row in rows):
        found += [
            f"{row.name}: tangent-ad {row.refused}" for row in rows if row.refused
        ]
    return found
