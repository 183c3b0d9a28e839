"""Names the file of the kernels gives to its own things, and others if the op has such a name.

In: the names of an op. Out: an `Own`. Invariant: a user's name is never shadowed, and stays as it is.
"""

from collections.abc import Iterable
from typing import NamedTuple

from scaffold.formula.names import take


class Own(NamedTuple):
    """The changeable names of the file's own."""

    row: str = "row"
    cols: str = "cols"
    mask: str = "mask"
    rows: str = "rows"
    size: str = "size"
    offsets: str = "offsets"
    program: str = "program"
    programs: str = "programs"
    dtype: str = "dtype"
    BLOCK: str = "BLOCK"
    DTYPE: str = "DTYPE"
    blocks: str = "blocks"
    precision: str = "precision"
    tensors: str = "tensors"
    tensor: str = "tensor"
    why: str = "why"


OTHER = Own(
    row="row_index",
    cols="columns",
    mask="in_row",
    rows="row_count",
    size="count",
    offsets="positions",
    program="program_index",
    programs="program_count",
    dtype="output_dtype",
    BLOCK="BLOCK_SIZE",
    DTYPE="COMPUTE_DTYPE",
    blocks="launch_blocks",
    precision="compute_dtype",
    tensors="given",
    tensor="item",
    why="reason",
)
# Of modules, builtins, functions and constants of the file, and of what Triton takes at a launch.
FIXED = frozenset({"os", "tl", "torch", "triton", "warnings", "Tensor"})
FIXED |= {"range", "float", "any", "as_rows", "programs_of"}
FIXED |= {"takes", "why_not", "forward_kernel", "backward_kernel"}
FIXED |= {
    "MOST_WARPS",
    "warps_of",
    "INTERPRETED",
    "DEVICES",
    "PRECISION",
    "DTYPES",
    "INDICES",
}
FIXED |= {"ELEMENTS", "MOST_COLUMNS"}
FIXED |= {"num_warps", "num_stages", "num_ctas", "grid", "warmup"}
OWN = FIXED | {*Own()}
AFFIXES = ("_ptr", "_stride")  # of parameters named after an input
LOCAL = ("_rows", "_row")  # ... and of values, which can be others


def own_names(names: Iterable[str]) -> Own:
    """Return the names of the file's own, for an op with some names."""
    taken = {*names}
    return Own(*(take(taken, *pair) for pair in zip(Own(), OTHER, strict=True)))
