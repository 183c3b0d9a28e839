"""Shapes of what is computed of windows that slide over the last dims: convolutions.

In: the arguments of a rule by parameter. Out: a shape, or None for one that is not known. Invariant: what is said holds in
every call that PyTorch accepts.
"""

from collections.abc import Mapping, Sequence

from scaffold.derive.vjp.ir import Op, Program, literal
from scaffold.derive.vjp.shapes import Dim, Shape

Args = Mapping[str, Op]


def convolved(program: Program, args: Args) -> Shape | None:
    """A batch, the channels of the weight, and sizes, which stay where the padding makes up for the kernel."""
    dims, weight = args["input"].shape.dims, args["weight"].shape
    if dims is None or args["input"].shape.rank is None:
        return None
    kernel: Sequence[Dim] = weight.dims or ()
    if weight.rank != len(dims):
        kernel = [f"?{args['weight'].serial}[{at}]" for at in range(len(dims))]
    slides = [args[name] for name in ("stride", "padding", "dilation")]
    sizes = (_left(dims[at], kernel[at], slides, at - 2) for at in range(2, len(dims)))
    return Shape((dims[0], kernel[0], *sizes))


def _left(size: Dim, kernel: Dim, slides: Sequence[Op], at: int) -> Dim:
    """How many windows there are along a dim."""
    stride, padding, dilation = (_number(item, at) for item in slides)
    if isinstance(kernel, int) and stride == 1 and padding is not None and dilation:
        more = 2 * padding - dilation * (kernel - 1)
        if isinstance(size, int):
            return size + more
        if not more:
            return size
    by = ":".join(str(item.serial) for item in slides)
    return f"?{size}[{kernel}|{by}|{at}]"


def _number(value: Op, at: int) -> int | None:
    """What a dim has of a number for each, or of one for all."""
    several = literal(value)
    if isinstance(several, tuple):
        several = several[at % len(several)] if several else None
    return several if type(several) is int else None


SHAPES = dict.fromkeys(("conv1d", "conv2d", "conv3d"), convolved)
