"""Statistics of each row, saved by the forward for the backward: its mean, the logarithm of its sum of exponentials.

In: the programs of an op. Out: the forward with these numbers among its results, and the backward that reads them. Invariant: a number is
saved if both compute it of inputs alone, in the precision of the kernels; no row is saved.
"""

from collections.abc import Iterator

from scaffold.kernels.row_program import (
    Load,
    Name,
    Reduce,
    Result,
    RowProgram,
    Space,
    Value,
    names_in,
    parts,
    pruned,
)


def with_statistics(
    forward: RowProgram, backward: RowProgram
) -> tuple[RowProgram, RowProgram]:
    """Return the programs with their common statistics saved."""
    common = dict(_common(forward, backward))
    loads = [Load(name, name, value.space, "real") for name, value in common.items()]
    rest = [line for line in backward.lines if line.name not in common]
    backward = pruned(
        backward._replace(loads=(*backward.loads, *loads), lines=(*rest,))
    )
    saved = (
        Result(x.name, ((None, Name(x.name, x.space)),), Space(rows=True), saved=True)
        for x in backward.loads
        if x.name in common
    )
    return pruned(forward._replace(results=(*forward.results, *saved))), backward


def _common(forward: RowProgram, backward: RowProgram) -> Iterator[tuple[str, Value]]:
    """Yield the numbers of each row that both programs compute by a reduction."""
    theirs = {line.name: line.value for line in backward.lines}
    results = {value for item in forward.results for _, value in item.pieces}
    same = {load.name for load in forward.loads if load in backward.loads}
    reduced = set[str]()
    for name, value in forward.lines:
        read, space = names_in(value), value.space
        if theirs.get(name) != value or not read <= same:
            continue
        same.add(name)
        if read & reduced or any(isinstance(item, Reduce) for item in parts(value)):
            reduced.add(name)
            number = space.rows and not space.has_columns and value.kind == "real"
            if number and Name(name, space) not in results:
                yield name, value
