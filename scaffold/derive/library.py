"""Library-style ops: refusals, and the fake by which PyTorch gets output shapes without data.

In: an `OpSpec` and its `Derivation`. Out: the shapes as code, or an error with its place. Invariant: the fake of an
accepted op is its forward, or, if that leaves PyTorch, the declared shapes.

Words: library style registers the op with torch (`torch.library.custom_op`), so that a compiler takes it for one
call. Its fake is a function that it calls in its place, with tensors that have shapes and no data. An opaque op
leaves PyTorch: NumPy, or a kernel of the user's. Sharding gives DTensor, for each tensor, the dims that are split
among devices.
"""

from collections.abc import Iterable

from scaffold.derive.analysis.activity import leaves_torch
from scaffold.derive.derivation import Derivation
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Node, Statement, expressions
from scaffold.spec import Dim, OpSpec, Output, TensorInput, is_leading
from scaffold.spec.library import HINT
from scaffold.spec.op_spec import Sharding


def refuse_unregistrable(spec: OpSpec, derivation: Derivation) -> None:
    """Raise ScaffoldError if a registered op would be wrong, or fail at its first call; nothing for an op of another style."""
    if not spec.is_library:
        return
    formula = spec.kept or spec.forward
    place = formula.location if formula is not None else Location(spec.name)
    if derivation.opaque:
        _refuse_opaque(spec, derivation, place)
    # Only of a forward that is its own fake; the fake of an opaque one is its declared shapes.
    elif not derivation.compiles:
        message = "the forward depends on the values of a tensor: as a registered op it must also run on fake tensors, which have none"
        raise ScaffoldError(message, place, HINT)
    if spec.sharding is not None:
        _refuse_unsplittable(spec, spec.sharding, derivation)


def _refuse_unsplittable(
    spec: OpSpec, sharding: Sharding, derivation: Derivation
) -> None:
    """Raise if no DTensor rule can hold: with random numbers, or indices for more or fewer tensors than forward returns.

    Forward returns the outputs, and perhaps saved locals after them.
    """
    if derivation.random:
        message = "the forward draws random numbers: each device would draw others"
        raise ScaffoldError(message, sharding.place, "leave out sharding")
    returned = [item.name for item in spec.outputs]
    returned += derivation.returned_locals
    if len(sharding.outputs) != len(returned):
        message = f"indices are given for {len(sharding.outputs)} of {len(returned)} results of forward: {', '.join(returned)}"
        hint = "add indices for the saved tensors, or write: save-policy = 'recompute'"
        raise ScaffoldError(message, sharding.place, hint)


def _refuse_opaque(spec: OpSpec, derivation: Derivation, place: Location) -> None:
    """Raise if a registered op would call code outside PyTorch with results of unknown shape: a compiler asks for it without a call.

    That concerns saved locals (`extra`), outputs without declared dims, and the backward, unless its calls have
    become ops.
    """
    if derivation.extra:
        message = f"the forward calls code outside PyTorch, so the shape of '{derivation.intermediates[0]}', which is saved, is unknown"
        hint = "recompute it in the backward, or return it as an output with a declared shape"
        raise ScaffoldError(message, place, hint)
    lines = [*derivation.lines]
    lines += [line for item in derivation.elements for line in item.statements]
    if leaves(spec, lines, (item.value for item in derivation.elements)):
        message = "the backward calls code outside PyTorch that torch.compile cannot trace: it computes more than gradients, or tensors of unknown shape"
        hint = f"let each call return gradients of inputs that it takes, in a call of its own for an optional input; or {HINT}"
        raise ScaffoldError(message, place, hint)
    for item in spec.outputs:
        if shape_of(spec, item) is None:
            message = f"the forward calls code outside PyTorch, so the shape of '{item.name}' is unknown before it runs"
            hint = f"declare it, with dims of the inputs: outputs = '{item.name}[N, D]'"
            raise ScaffoldError(message, place, hint)


def leaves(
    spec: OpSpec, statements: Iterable[Statement], values: Iterable[Node]
) -> bool:
    """Return whether some lines of an op leave PyTorch; never for an op declared to work under `torch.func`.

    `values` are further expressions, as results.
    """
    if spec.transforms:
        return False
    several = (*expressions(*statements), *values)
    return any(leaves_torch(node, spec.foreign) for node in several)


def forward_leaves(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether the forward leaves PyTorch, so it cannot be its own fake."""
    lines = spec.kept.statements if spec.kept else derivation.forward or ()
    return leaves(spec, lines, derivation.results)


def shape_of(spec: OpSpec, output: Output) -> str | None:
    """Return the declared shape of an output as code over the inputs present in every call, for its fake.

    `x.shape`, or `(x.shape[0], w.shape[1])`; None if they do not tell it.
    """
    if output.dims is None:
        return None
    sure = sure_inputs(spec)
    for item in sure:
        if spec.dims(item.name) == output.dims:
            return f"{item.name}.shape"
    sizes = [_size(spec, sure, dim) for dim in output.dims]
    if any(size is None for size in sizes):
        return None
    listed = ", ".join(filter(None, sizes))
    return f"({listed},)" if len(sizes) == 1 else f"({listed})"


def sure_inputs(spec: OpSpec) -> list[TensorInput]:
    """Return the inputs that are always present and single tensors: code may read their shapes untested."""
    return [item for item in spec.tensors if not (item.optional or item.variadic)]


def _size(spec: OpSpec, tensors: Iterable[TensorInput], dim: Dim) -> str | None:
    """Return one size as code, or starred leading ones: `x.shape[0]`, `*x.shape[:-1]`; None if no tensor has that dim.

    Behind leading dims, of any number, a dim is counted from the end.
    """
    if isinstance(dim, int):
        return str(dim)
    for item in tensors:
        dims = spec.dims(item.name) or ()
        if dim not in dims:
            continue
        at = dims.index(dim)
        if is_leading(dim):
            last = len(dims) - 1 - at
            return f"*{item.name}.shape[:{-last}]" if last else f"*{item.name}.shape"
        counts_from_end = any(is_leading(other) for other in dims[:at])
        return f"{item.name}.shape[{at - len(dims) if counts_from_end else at}]"
    return None
