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
    """Return both programs with the numbers of each row they have in common, like `rstd`, stored by the forward and loaded by the backward.

    Lines either program no longer needs are removed.
    """
    common = dict(_common(forward, backward))
    loads = [Load(x, x, y.space, "real", saved=y) for x, y in common.items()]
    rest = tuple(line for line in backward.lines if line.name not in common)
    backward = pruned(backward._replace(loads=(*backward.loads, *loads), lines=rest))
    saved = (
        Result(x.name, ((None, Name(x.name, x.space)),), Space(rows=True), saved=True)
        for x in backward.loads
        if x.name in common
    )
    return pruned(forward._replace(results=(*forward.results, *saved))), backward


def _common(forward: RowProgram, backward: RowProgram) -> Iterator[tuple[str, Value]]:
    """Yield the name and the value of each line both programs compute alike, from the same inputs, if it is one number of each row.

    It must come from a reduction, for else it is cheaper to compute again; a number among the op's outputs is not saved twice.
    """
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
