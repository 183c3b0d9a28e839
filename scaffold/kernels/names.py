"""Names the file of the kernels gives to its own things, and others if the op has such a name.

In: the names of an op. Out: an `Own`. Invariant: a user's name is never shadowed, and stays as it is.
"""

from collections.abc import Collection
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
    start: str = "start"
    programs: str = "programs"
    dtype: str = "dtype"
    BLOCK: str = "BLOCK"
    ROWS: str = "ROWS"
    DTYPE: str = "DTYPE"
    tile: str = "tile"
    blocks: str = "blocks"
    precision: str = "precision"
    compute_dtype: str = "compute_dtype"
    tensor: str = "tensor"
    why: str = "why"


OTHERS = (
    "row_index columns in_row row_count count positions program_index first_row program_count"
    " output_dtype BLOCK_SIZE ROW_COUNT COMPUTE_DTYPE launch_blocks blocks_of precision_of"
    " kernel_dtype item reason"
)
OTHER = Own(*OTHERS.split())
# Of modules, builtins, functions and constants of the file, and of what Triton takes at a launch.
MADE = (
    "os tl torch triton warnings Tensor range float any as_rows programs_of takes why_not"
    " forward_kernel backward_kernel MOST_WARPS INTERPRETED DEVICES PRECISION"
    " DTYPES INDICES ELEMENTS MOST_COLUMNS num_warps num_stages num_ctas grid warmup"
)
FIXED = frozenset(MADE.split())
AFFIXES = ("_ptr", "_stride", "_dtype")  # of parameters named after an input
LOCAL = ("_rows", "_row")  # ... and of values, which can be others


def own_names(names: Collection[str]) -> Own:
    """Return the names of the file's own variables for an op with the given names: `rows`, or `row_count` if the op has an input `rows`."""
    # `x_dtype` may be a parameter of a launch (`Kernel.dtypes`).
    taken = {*names, *(f"{name}_dtype" for name in names)}
    return Own(*(take(taken, *pair) for pair in zip(Own(), OTHER, strict=True)))
