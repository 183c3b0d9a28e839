"""The file of an op's kernels, `NAME_triton.py`.

`templates/kernel.py.jinja` writes it. In: an `OpSpec` with kernels, or their data (`TritonView`). Out: its text before it is formatted.
Invariant: the same bytes every time.
"""

from typing import TYPE_CHECKING, NamedTuple

from scaffold.render.environment import with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.formatting import format_source
from scaffold.render.fused import fused, module_of
from scaffold.render.imports import import_block
from scaffold.render.templates import KERNEL
from scaffold.spec import Import, OpSpec
from scaffold.spec.other_tools import LINE_LENGTH

if TYPE_CHECKING:  # most ops have no kernels
    from scaffold.kernels.launch import Kernel
    from scaffold.kernels.triton import TritonView

WIDTH = LINE_LENGTH - 4  # of code in the docstring
KNOWN = (
    Import("os"),
    Import("warnings"),
    Import("functools", "partial"),
    Import("typing", "Any"),
    Import("torch"),
    Import("triton"),
    Import("triton.language", None, "tl"),
    Import("torch", "Tensor"),
)


class KernelView(NamedTuple):
    """The data of the template; `triton` has the text of the kernels themselves."""

    licence_lines: tuple[str, ...]
    header: str
    imports: str
    each: str  # the unit of the computation: "of each row" or "element by element"
    triton: "TritonView"
    formula: tuple[str, ...]  # of the forward, for the docstring
    gradient: tuple[str, ...]
    kernels: "tuple[Kernel, ...]"
    partial: bool  # a kernel returns partial sums, one for each of its programs
    indexed: bool  # an input holds integers
    forward_signature: str
    autocast: str  # a further test of calls that the formula is for


def kernel_modules(spec: OpSpec) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of the kernel modules, for the op's proof."""
    found = fused(spec)
    return ((module_of(spec), kernel_draft(found.triton)),) if found else ()


def kernel_draft(triton: "TritonView", house: House = PLAIN) -> str:
    """Return the text of the file before formatting; `house` is a team's style, its templates among it."""
    kernels = tuple(filter(None, (triton.forward, triton.backward)))
    view = KernelView(
        licence_lines=house.licence,
        header=house.header,
        imports="",
        each="of each row" if triton.numbers else "element by element",
        triton=triton,
        formula=_broken(triton.pair.formula),
        gradient=_broken(triton.pair.gradient),
        kernels=kernels,
        partial=any(x.width and x.body.summed for x in kernels),
        indexed=any(allowed == "INDICES" for _, allowed, _ in triton.dtypes),
        autocast=_autocast(triton) if triton.float32 else "",
        # Without the parameters from the dtype on: `forward` finds the dtype itself.
        forward_signature=triton.forward.signature.partition(
            f", {triton.dtype[0].partition(' = ')[0]}: torch.dtype"
        )[0],
    )
    single = house.single_line_imports
    return with_imports(
        KERNEL, view, lambda code: import_block(code, known=KNOWN, single=single), house
    )


def _broken(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return statements for the docstring, broken at brackets if one is too long."""
    if all(len(line) <= WIDTH for line in lines):
        return lines
    return tuple(format_source("\n".join(lines), WIDTH).splitlines())


def _autocast(triton: "TritonView") -> str:
    """Return the test for autocast on a CPU."""
    device = f'{triton.first}.device.type == "cpu"'
    return f'{device} and torch.is_autocast_enabled("cpu")'
