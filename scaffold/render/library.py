"""An op in library style: its registrations with PyTorch beside its forward and backward.

`--style library` asks for `torch.library.custom_op` instead of an `autograd.Function`, so that compilers and DTensor see the op as one call.
In: an `OpSpec` and its `Derivation`. Out: a `LibraryView`: lines for the template, not yet indented. Invariant: the schema has no
defaults, as PyTorch drops an argument equal to its default from a call; each output is a tensor of its own.

Words: a fake gives the shapes of the results without running the op. Sharding says for each index of the tensors' dims how they are split
among devices; a placement is one such way for one tensor: `Shard(dim)`, `Replicate()` (whole on each), `Partial()` (a sum of parts). An
*index* is a letter of the user's sharding rule, "n d, d -> n d"; WHOLE, `_`, is that of a dim never split, and stands for no split at
all; ANY_DIMS is that of the leading dims, `...`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.derive.derivation import BackwardKernel
from scaffold.derive.library import forward_leaves, shape_of
from scaffold.formula import emit, emit_lines
from scaffold.formula.names import take
from scaffold.render.imports import names_read
from scaffold.render.signature import registered_parameters, result_type
from scaffold.spec import Import, OpSpec, TensorInput
from scaffold.spec.op_spec import (
    ANY_DIMS,
    BACKWARD,
    FAKE,
    FORWARD,
    SETUP,
    SHARDING,
    VMAP,
    WHOLE,
    Indices,
    Sharding,
)

CONTIGUOUS = "# Contiguous, as the fake says: a kernel may return any layout."


class LibraryView(NamedTuple):
    """The template's data for a registered op."""

    fake_lines: tuple[str, ...]  # empty: the forward is its own fake
    vmap_type: str
    vmap_lines: tuple[str, ...]  # empty: PyTorch loops over the samples itself
    register_lines: tuple[str, ...]
    kernels: tuple["KernelView", ...]  # for a backward calling code outside PyTorch


class KernelView(NamedTuple):
    """A part of the backward that leaves PyTorch, registered as an op of its own, so a compiler need not look into it."""

    function: str  # its name
    fake: str  # the name of its fake
    parameters: str
    type: str  # of what it returns
    lines: tuple[str, ...]  # bodies
    fake_lines: tuple[str, ...]
    register_lines: tuple[str, ...]


def library_view(spec: OpSpec, derivation: Derivation, saves: bool) -> LibraryView:
    """Return the template's data for a registered op; `saves` is true if forward hands something to backward."""
    returned = [item.name for item in spec.outputs]
    returned += derivation.returned_locals
    count = len(returned)
    lines = _vmap_lines(spec, returned) if has_vmap_rule(spec, derivation) else []
    tensors = ", ".join(["Tensor"] * count)
    result = f"tuple[{tensors}]" if count > 1 else tensors
    dims = f"tuple[{', '.join(['int'] * count)}]" if count > 1 else "int"
    fake = _fake_lines(spec) if forward_leaves(spec, derivation) else []
    return LibraryView(
        fake_lines=tuple(fake),
        vmap_type=f"tuple[{result}, {dims}]",
        vmap_lines=tuple(lines),
        register_lines=(
            *_registered(spec, saves, bool(lines), bool(fake)),
            *_sharding(spec, SHARDING),
        ),
        kernels=tuple(map(_kernel_view, derivation.kernels)),
    )


def _registered(spec: OpSpec, saves: bool, maps: bool, fakes: bool) -> list[str]:
    """Return the calls registering the op with PyTorch; with `saves`, `maps` and `fakes` its functions for ctx, vmap and shapes."""
    op = spec.function_name
    name = f'"{spec.namespace}::{spec.name}"'
    setup = f", setup_context={SETUP}" if saves else ""
    lines = [
        f"{op} = torch.library.custom_op({name}, {FORWARD}, mutates_args=())",
        f"{op}.register_fake({FAKE if fakes else FORWARD})",
        f"{op}.register_autograd({BACKWARD}{setup})",
    ]
    return [*lines, f"{op}.register_vmap({VMAP})"] if maps else lines


def _kernel_view(kernel: BackwardKernel) -> KernelView:
    """Return the view of a registered backward op: its function, its fake, its lines."""
    spec = kernel.spec
    function, fake = f"_{spec.name}", f"_{spec.name}_fake"
    # `like`: the input of the gradient if it has that shape, else some floating-point tensor.
    made, floating = [], next(x.name for x in spec.tensors if x.differentiable)
    for output, shape in zip(spec.outputs, kernel.shapes, strict=True):
        origin = output.name.removeprefix("grad_")
        like = origin if shape == f"{origin}.shape" else floating
        made.append(f"{like}.new_empty({shape})")
    lines = emit_lines(kernel.statements)
    returned = ", ".join(map(emit, kernel.results))
    op = spec.function_name
    name = f'"{spec.namespace}::{spec.name}"'
    return KernelView(
        function=function,
        fake=fake,
        parameters=registered_parameters(spec.inputs),
        type=result_type(len(spec.outputs), False),
        lines=(*lines, CONTIGUOUS, f"return {returned}"),
        fake_lines=(f"return {', '.join(made)}",),
        register_lines=(
            f"{op} = torch.library.custom_op({name}, {function}, mutates_args=())",
            f"{op}.register_fake({fake})",
            *_sharding(spec, f"_{spec.name}{SHARDING}"),
        ),
    )


DTYPES = {"int": "torch.long", "index": "torch.long", "bool": "torch.bool"}


def _fake_lines(spec: OpSpec) -> list[str]:
    """Return the body of a fake from declared shapes, for a forward calling code outside PyTorch.

    `return x.new_empty((x.shape[0], 3))`: empty tensors like the first floating-point input, if there is one.
    """
    floating = [item for item in spec.tensors if item.differentiable]
    like = next(item.name for item in (*floating, *spec.tensors))
    made = []
    for output in spec.outputs:
        dtype = DTYPES.get(output.dtype)
        given = f", dtype={dtype}" if dtype else ""
        made.append(f"{like}.new_empty({shape_of(spec, output)}{given})")
    return [f"return {', '.join(made)}"]


# --- The rule of `torch.vmap`: one call for each sample.
#
# The samples of a batch may not be computable at once: an op with leading dims `...` may still take the mean over them. In a
# rule, `torch.vmap` of the forward is an internal error of PyTorch 2.13, and would drop a stated gradient.


def has_vmap_rule(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether a call per sample is a correct vmap rule: not with random numbers, drawn anew by each call."""
    return spec.transforms is not False and not derivation.random


def _vmap_lines(spec: OpSpec, returned: Sequence[str]) -> list[str]:
    """Return the body of a vmap rule calling the op for each sample and stacking the results, named `returned`."""
    lines, sample = [], "x if dim is None else x.select(dim, i)"
    if any(item.variadic for item in spec.tensors):  # a list; its dims are a list, too
        lines = [
            "def sample_of(x: Any, dim: Any, i: int) -> Any:",
            "    if isinstance(dim, list | tuple):",
            "        return [sample_of(*each, i) for each in zip(x, dim, strict=True)]",
            f"    return {sample}",
            "",
        ]
        sample = "sample_of(x, dim, i)"
    return [
        *lines,
        "samples = [",
        f"    [{sample} for x, dim in zip(inputs, in_dims, strict=True)]",
        "    for i in range(info.batch_size)",
        "]",
        *_stacked(spec, returned),
    ]


def _stacked(spec: OpSpec, returned: Sequence[str]) -> list[str]:
    """Return the end of a rule calling the op for each of `samples` and stacking the results."""
    call = f"{spec.function_name}(*sample)"
    if len(returned) == 1:
        return [f"return torch.stack([{call} for sample in samples]), 0"]
    # Names that the rule itself reads: an output may have one of them.
    taken = {spec.function_name, "info", "in_dims", "inputs", "samples", "torch"}
    names = [take(taken, name) for name in returned]
    stacked = ", ".join(f"torch.stack({name})" for name in names)
    dims = ", ".join(["0"] * len(names))
    return [
        f"{', '.join(names)} = zip(*({call} for sample in samples), strict=True)",
        f"return ({stacked}), ({dims})",
    ]


# --- The rule for DTensor: the placements of inputs and outputs allowed together along one dim of a device mesh.
#
# A mesh of several dims needs no rule of its own: PyTorch applies this one to each dim.

PLACEMENTS = tuple(
    Import("torch.distributed.tensor", name)
    for name in ("Partial", "Replicate", "Shard")
)
SHARDING_IMPORTS = (
    *PLACEMENTS,
    Import("torch.distributed.tensor.experimental", "register_sharding"),
)


def _sharding(spec: OpSpec, function: str) -> list[str]:
    """Return the sharding rule and its registration; nothing if none is stated."""
    if spec.sharding is None:
        return []
    body = [f"    {line}" for line in _sharding_lines(spec, spec.sharding)]
    # Inside of a function, as its `return` is no Python elsewhere.
    read = names_read("\n".join(["def rule():", *body]))
    named = (x.name if x.name in read else f"_{x.name}" for x in spec.inputs)
    op = f"torch.ops.{spec.namespace}.{spec.name}.default"
    return [
        *("", ""),
        f"def {function}({', '.join(f'{name}: Any' for name in named)}) -> list[Any]:",
        f'    """Where DTensor may split it: ``{spec.sharding.text}``."""',
        *body,
        *("", ""),
        f"register_sharding({op})({function})",  # as a decorator it is untyped
    ]


def _sharding_lines(spec: OpSpec, sharding: Sharding) -> list[str]:
    """Return the body of the sharding rule: a list of placements, first of the whole op, then split along each index in turn."""
    indices = dict.fromkeys(index for group in sharding.inputs for index in group)
    unsplit = _placed(spec, sharding, WHOLE)
    found = [unsplit]
    for index in indices:
        placed = _placed(spec, sharding, index)
        if index == ANY_DIMS:
            found.append(f"*({placed} for dim in range(leading))")
        # A dim of that index is never split.
        elif index != WHOLE:
            found.append(placed)
    lines = _leading_lines(spec, sharding, unsplit) if ANY_DIMS in indices else []
    return [*lines, "return [", *(f"    {item}," for item in found), "]"]


def _leading_lines(spec: OpSpec, sharding: Sharding, unsplit: str) -> list[str]:
    """Return lines counting the leading dims, `leading = x.ndim - 1`; if tensors have different ones, they broadcast, and nothing is split.

    `unsplit` is the placement returned then. `group` are a tensor's indices; all but `...` stand for one dim each. A required tensor is
    counted if there is one, since an optional one may be None.
    """
    pairs = zip(spec.tensors, sharding.inputs, strict=True)
    (first, group), *others = sorted(
        ((item, group) for item, group in pairs if ANY_DIMS in group),
        key=lambda pair: pair[0].optional,
    )
    rest = len(group) - 1
    lines = [f"leading = {first.name}.ndim{f' - {rest}' if rest else ''}"]
    shape = _leading_shape(first, group)
    tests = [
        (
            f"({item.name} is not None and {_leading_shape(item, other)} != {shape})"
            if item.optional
            else f"{_leading_shape(item, other)} != {shape}"
        )
        for item, other in others
    ]
    if tests:
        lines += [
            f"if {' or '.join(tests)}:  # they broadcast",
            f"    return [{unsplit}]",
        ]
    return lines


def _leading_shape(item: TensorInput, group: Indices) -> str:
    """Return the expression of a tensor's leading dims: its shape without the dims of the other indices."""
    rest = len(group) - 1
    return f"{item.name}.shape[:-{rest}]" if rest else f"{item.name}.shape"


def _placed(spec: OpSpec, sharding: Sharding, index: str) -> str:
    """Return the placements of outputs and inputs with the op split along an index, as `([outputs], [inputs])`.

    An output without the index is a sum over the devices (`Partial`); an input without it is whole on each.
    """
    absent = "Replicate()" if index == WHOLE else "Partial()"
    outputs = [_placement(group, index, absent) for group in sharding.outputs]
    # A group for each tensor; attributes have no indices.
    groups, inputs = iter(sharding.inputs), []
    for item in spec.inputs:
        value = "None"
        if isinstance(item, TensorInput):
            value = _placement(next(groups), index, "Replicate()")
            if item.optional:
                value = f"None if {item.name} is None else {value}"
        inputs.append(value)
    return f"([{', '.join(outputs)}], [{', '.join(inputs)}])"


def _placement(group: Indices, index: str, absent: str) -> str:
    """Return the placement of one tensor split along an index: `Shard(1)`; `absent` if the tensor has no such index."""
    if index == WHOLE or index not in group:
        return absent
    at = group.index(index)
    if index == ANY_DIMS:
        return "Shard(dim)"  # in a comprehension over the leading dims
    if ANY_DIMS not in group:
        return f"Shard({at})"
    # `...` is the first of the group, and stands for `leading` dims.
    return f"Shard(leading + {at - 1})" if at > 1 else "Shard(leading)"
