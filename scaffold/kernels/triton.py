"""The file of an op's Triton kernels: the kernels, their launches, and the inputs for them.

In: a `Pair`. Out: `TritonView`, whose lines the template of the file shows. Invariant: inputs that the kernels would compute wrongly are
refused with a reason.
"""

from collections.abc import Iterator
from typing import NamedTuple

from scaffold.derive import grad_name
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.errors import Location, ScaffoldError
from scaffold.kernels.expressions import Helper, Helpers
from scaffold.kernels.kernel_body import KernelBody
from scaffold.kernels.launch import Kernel, Launch, declared_shape, typed
from scaffold.kernels.names import Own
from scaffold.kernels.pair import Pair, kernel_pair
from scaffold.kernels.row_program import NUMBER
from scaffold.spec import OpSpec

# The dtypes that an input of a kind may have; others hold integers.
ALLOWED = {"float": "DTYPES", "bool": "(torch.bool,)"}


class TritonView(NamedTuple):
    """The template's data for the file."""

    op: str
    namespace: str
    numbers: int  # of a block, in each part of its rows; 0 of an op element by element
    forward: Kernel
    forward_arguments: tuple[str, ...]
    backward: Kernel | None
    formula: tuple[str, ...]  # of the forward, for the docstring
    gradient: tuple[str, ...]
    saved: str  # what the forward keeps for the backward
    inputs: str  # the tensors of the op, with types
    first: str  # the one that says how many rows there are
    columns: str  # of a block: the size of its row, or of each part
    # A tensor, those that it may have, and whether it may be None.
    dtypes: tuple[tuple[str, str, bool], ...]
    refused: tuple[tuple[str, str], ...]  # a test, and what is said where it holds
    float32: bool  # autocast computes them in float32
    dtype: tuple[str, ...]  # lines that give `dtype`, that of the outputs
    helpers: tuple[Helper, ...]
    own: Own


def triton_kernels(spec: OpSpec, place: Location) -> tuple[Pair, TritonView]:
    """Return the programs of an op and the template's data for the file of its kernels; ScaffoldError, at `place`, if there can be none."""
    try:
        pair = kernel_pair(spec)
        return pair, triton_view(spec, pair)
    except UnsupportedError as error:
        hint = "leave out 'kernels', or wrap your own kernel: --import"
        message = f"no kernel can be written for '{spec.name}': {error}"
        raise ScaffoldError(message, place, hint) from None


def triton_view(spec: OpSpec, pair: Pair) -> TritonView:
    """Return the template's data for the file of an op's kernels."""
    every = [item.name for item in spec.tensors]
    helpers, backward = Helpers(_all_names(pair) | {x.name for x in spec.inputs}), None
    forward = KernelBody(spec, pair.forward, "forward", every, pair, helpers)
    launch = Launch(spec, forward, pair)
    forward_kernel = launch.kernel()
    dtypes = {*map(pair.dtype_of, pair.dtypes)}
    given = (x for x in forward_kernel.arguments.split(", ") if x not in dtypes)
    if pair.backward is not None:
        grads = [grad_name(spec, item.name) for item in spec.outputs]
        saved = [load.source for load in pair.backward.loads]
        read = dict.fromkeys((*grads, *saved))
        body = KernelBody(spec, pair.backward, "backward", read, pair, helpers)
        backward = Launch(spec, body, pair).kernel()
    first, parts = launch.first, launch.parts
    return TritonView(
        op=spec.name,
        namespace=spec.namespace,
        numbers=1024 >> (pair.shapes.of - 1).bit_length() if pair.shapes.width else 0,
        forward=forward_kernel,
        forward_arguments=(*given,),
        backward=backward,
        formula=pair.formula,
        gradient=pair.gradient,
        saved=" and ".join(pair.statistics),
        inputs=", ".join(f"{name}: {typed(spec, name)}" for name in every),
        dtypes=tuple(
            (item.name, ALLOWED.get(item.dtype, "INDICES"), item.optional)
            for item in spec.tensors
        ),
        first=first,
        columns=f"{first}.shape[-1]" + f" // {parts}" * (parts > 1),
        refused=tuple(_refused(spec, pair, first)),
        float32=any(float32 for _, float32 in pair.dtypes.values()),
        dtype=tuple(_dtype(pair, first)),
        helpers=tuple(helpers.found),
        own=pair.own,
    )


def _all_names(pair: Pair) -> set[str]:
    """Return the names of all loads, lines and results, in both directions."""
    programs = filter(None, (pair.forward, pair.backward))
    every = (given for x in programs for given in (x.loads, x.lines, x.results))
    return {item.name for given in every for item in given}


def _refused(spec: OpSpec, pair: Pair, first: str) -> Iterator[tuple[str, str]]:
    """Yield each test for a call the kernels would compute wrongly, and the reason: `("w.shape != x.shape[-1:]", "w is broadcast")`.

    The wrapper then computes the op with PyTorch. Each shape is compared with that of `first`, the tensor to count rows by.
    """
    spaces, lead, of = pair.shapes.spaces, pair.shapes.lead, pair.shapes.of
    width = spaces[first].width
    if width and not str(lead[0]).startswith("*"):
        yield f"{first}.ndim != {len(lead) + 1}", f"{first} has other dims"
    elif width and len(lead) > 1:
        yield f"{first}.ndim < {len(lead)}", f"{first} has other dims"
    if of > 1:
        yield f"{first}.shape[-1] % {of}", f"a row of {first} has no {of} equal parts"
    for name, space in spaces.items():
        if name == first:
            continue
        shape, parted = f"{first}.shape", of > 1 and spaces[first].width != space.width
        if name in pair.shapes.repeats:
            parts = of if parted and space.is_row else 1
            dims = spec.dims(name) or ()
            shape = declared_shape(dims, first, [*map(str, lead)], parts)
        elif space == NUMBER:
            shape = "()" if spec.dims(name) == () else "(1,)"
            if not width and shape == "(1,)":
                yield f"{first}.ndim == 0", f"{first} has no dims"
        elif parted and space.is_row:
            shape = f"(*{first}.shape[:-1], {first}.shape[-1] // {of})"
        elif parted and space.has_columns:
            shape = f"({first}.shape[-1] // {of},)"
        elif not space.rows:
            shape = f"{first}.shape[-1:]" if space.has_columns else "(1,)"
        elif space.rows and not space.has_columns and width:
            shape = f"{first}.shape[:-1]"
            shape = f"(*{shape}, 1)" if space.width else shape
        there = f"{name} is not None and " if name in pair.absent else ""
        yield f"{there}{name}.shape != {shape}", f"{name} is broadcast"


def _dtype(pair: Pair, first: str) -> Iterator[str]:
    """Yield the lines to compute the outputs' dtypes, promoted from those of their inputs: `dtype = torch.promote_types(x.dtype, y.dtype)`.

    An optional input counts if it is given; under autocast an output of an op computed in float32 is at least float32.
    """
    for name, given in {pair.dtype_of(x): y for x, y in pair.dtypes.items()}.items():
        read, float32 = given
        every = read or [first]
        dtypes = [x if x.startswith("torch.") else f"{x}.dtype" for x in every]
        sure = [x for x in dtypes if x.removesuffix(".dtype") not in pair.absent]
        text = sure[0]
        for other in sure[1:]:
            text = f"torch.promote_types({text}, {other})"
        yield f"{name} = {text}"
        for other in read:
            if other in pair.absent:
                yield f"if {other} is not None:"
                yield f"    {name} = torch.promote_types({name}, {other}.dtype)"
        if float32:
            yield "# Autocast has these functions in float32."
            yield f"if torch.is_autocast_enabled({first}.device.type):"
            yield f"    {name} = torch.promote_types({name}, torch.float32)"
