"""A row program reads each input once and writes each result once."""

from itertools import pairwise

import pytest

from scaffold.errors import Location
from scaffold.kernels.triton import triton_kernels
from tests.kernels.ops import OPS


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
    assert text.count("tl.load(") == len(program.loads)
    pieces = sum(len(item.pieces) for item in program.results)
    assert text.count("tl.store(") == pieces
    read = [(load.source, load.part) for load in program.loads]
    assert all(one != two for one, two in pairwise(sorted(read, key=str)))
