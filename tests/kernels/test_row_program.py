"""A row program reads each input once and writes each result once."""

from itertools import pairwise

import pytest

from scaffold.errors import Location
from scaffold.kernels.row_program import Gather, Name, RowProgram, parts
from scaffold.kernels.triton import triton_kernels
from tests.kernels.ops import OPS


def reads(program: RowProgram) -> int:
    """The least reads: of each input, and of each single number at an index."""
    results = [value for item in program.results for _, value in item.pieces]
    values = [*(line.value for line in program.lines), *results]
    every = [part for value in values for part in parts(value)]
    names = {item.text for item in every if isinstance(item, Name)}
    gathered = {item for item in every if isinstance(item, Gather)}
    return sum(load.name in names for load in program.loads) + len(gathered)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_each_row_is_read_and_written_once(name: str, direction: str) -> None:
    pair, view = triton_kernels(OPS[name].spec(name), Location(name))
    program = pair.forward if direction == "forward" else pair.backward
    kernel = view.forward if direction == "forward" else view.backward
    if program is None or kernel is None:
        assert name == "quantize"  # whose gradient is the one that comes in
        return
    text = "\n".join(kernel.lines)
    assert text.count("tl.load(") == reads(program)
    pieces = sum(len(item.pieces) for item in program.results)
    assert text.count("tl.store(") == pieces
    read = [(load.source, load.part) for load in program.loads]
    assert all(one != two for one, two in pairwise(sorted(read, key=str)))
