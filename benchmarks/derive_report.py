"""The figures of derived ops as a table, and what they miss.

In: a `Row` for each op. Out: lines. Invariant: a mean is geometric, over the ops in which a candidate takes part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.derive_native import Frozen, frozen_lines
from benchmarks.derive_ops import POLICIES

COMPILED, RIVAL = "compiled", "tangent-ad"
# geometric means over eager's: time, bytes
TARGETS = {"recompute": (1.15, 0.65), "balanced": (0.85, 0.66)}


class Row(NamedTuple):
    """One op, measured: each candidate's figures over eager's."""

    name: str
    milliseconds: float  # of eager
    kilobytes: float
    times: Mapping[str, float]
    saved: Mapping[str, float]
    frozen: tuple[Frozen, ...]
    refused: Mapping[str, str]  # why a candidate takes no part


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(math.log(max(value, 1e-3)) for value in values) / len(values))


def cell(figures: tuple[float, float | None] | None) -> str:
    """Time and bytes."""
    if figures is None:
        return f"{'n/a':>6s} {'':6s}"
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


def row_line(row: Row, names: Sequence[str]) -> str:
    """An op's line of the table."""
    first = f"{row.milliseconds:.2f} {row.kilobytes:9.0f}"
    return line(row.name, first, [cell(figures(row, name)) for name in names])


def mean_lines(rows: Sequence[Row], names: Sequence[str]) -> list[str]:
    """The geometric means, over eager's figures and over those of torch.compile."""
    means = [cell(averaged(rows, name)) for name in names]
    found = [line("geometric mean", "", means)]
    beside = [over_compiled(row) for row in rows if COMPILED in row.times]
    if beside:
        means = [cell(averaged(beside, name)) for name in names]
        found.append(line("over torch.compile", "", means))
    return found


def over_compiled(row: Row) -> Row:
    """A row with all figures over those of torch.compile."""
    time, size = row.times[COMPILED], row.saved[COMPILED]
    return row._replace(
        times={name: own / time for name, own in row.times.items()},
        saved={name: own / size for name, own in row.saved.items()},
    )


def frozen_table(rows: Sequence[Row]) -> list[str]:
    """The bytes over those of PyTorch's own op, where one input wants no gradient."""
    policies = " ".join(f"{policy:>9s}" for policy in POLICIES)
    head = f"{'':18s} {'frozen':10s} {'KiB':>9s} {policies}"
    return [
        "",
        "bytes over those of PyTorch's own op, one input frozen",
        head,
        *(item for row in rows for item in frozen_lines(row.name, row.frozen)),
    ]


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
    frozen = [(row.name, case) for row in rows for case in row.frozen]
    return found + [
        f"{policy} bytes of {name} without {case.name}: more than PyTorch's own op"
        for name, case in frozen
        for policy in case.missed
    ]


def _worst(rows: Sequence[Row], policy: str, what: str) -> str:
    pairs = [
        ((row.times if what == "time" else row.saved)[policy], row.name) for row in rows
    ]
    return ", ".join(f"{name} {own:.2f}" for own, name in sorted(pairs)[:-4:-1])


def notes(rows: Sequence[Row], with_rival: bool) -> list[str]:
    """Who takes no part, and why: the ops of each reason."""
    ops: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, reason in row.refused.items():
            ops.setdefault((name, reason), []).append(row.name)
    found = [
        f"n/a: {name}, {reason}: {', '.join(those)}"
        for (name, reason), those in ops.items()
    ]
    if not with_rival:
        found.append(f"n/a: {RIVAL} is not installed (pip install {RIVAL})")
    return found
