"""Declared shapes: compare a call's shapes and kinds of numbers with the declaration.

A wrong declaration makes wrong generated tests, so a proof reports it before any gradient is judged.
In: the module of checks (`checks`, with INPUT_SHAPES: the declared dims by input; OUTPUTS: name, dims and kind of each), the values of a
call. Out: the declared and the actual shape in words; "" if they agree.
Words: the *dims* of `x[*batch, N, 3]` are ("*batch", "N", 3), its *leading* dims those that `...` or `*batch` stands for, none or more;
*sizes* are what the names have been bound to so far in a call.
Invariant: a name has one size in a call, or as leading dims the same sizes, in all its tensors; `...` of an output broadcasts
with the leading dims of the inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

Dims = tuple[str | int, ...]
Sizes = dict[str, int | tuple[int, ...]]  # a name's size, or sizes of leading dims
KINDS = {
    "int": "integers",
    "index": "integers",
    "bool": "bools",
    "complex": "complex numbers",
    "float": "floating-point numbers",
}
# How to declare each kind for an output.
TRAITS = {
    "integers": "[...; int]",
    "bools": "[...; bool]",
    "complex numbers": "[...; complex]",
    "floating-point numbers": "",
}


class Contrary(NamedTuple):
    """A contradiction between declaration and value, and how to declare it."""

    words: str
    hint: str = ""


def undeclared_input(checks: Any, inputs: Sequence[Any], names: Sequence[str]) -> str:
    """Describe the first input of a user's sample whose shape contradicts its declaration; "" if all agree."""
    sizes: Sizes = {}
    for name, value in zip(names, inputs, strict=True):
        dims = _declared(checks, name)
        if isinstance(value, Tensor) and dims is not None:
            # `_bind` binds names of a shape that does not fit, too: the message does without these.
            before = dict(sizes)
            if not _bind(dims, tuple(value.shape), sizes):
                shape = _shown(tuple(value.shape), before)
                return f"{name}{_text(dims)} is {shape} in the samples"
    return ""


def undeclared_output(
    checks: Any, names: Sequence[str], inputs: Sequence[Any], outputs: Sequence[Tensor]
) -> Contrary | None:
    """Return the first contradiction between the declared and the returned outputs, in number, kind of numbers, or shape; None if none."""
    # OUTPUTS is empty if the op may have any number of them.
    if checks.OUTPUTS and len(outputs) != len(checks.OUTPUTS):
        counts = f"{_counted(checks.OUTPUTS)} declared, but the forward returns"
        kinds = (_kind(output) for output in outputs)
        each = zip("abcdefghijklmnopqrstuvwxyz", kinds, strict=False)  # invented names
        named = ", ".join(f"{name}{TRAITS.get(kind, '')}" for name, kind in each)
        return Contrary(f"{counts} {len(outputs)}", f"--outputs '{named}'")
    sizes: Sizes = {}
    leading: list[tuple[int, ...]] = []
    # The sizes of `...` are known if every tensor has a declared shape.
    all_declared = True
    for name, value in zip(names, inputs, strict=True):
        dims = _declared(checks, name)
        if isinstance(value, Tensor):
            all_declared = all_declared and dims is not None
            if dims is not None and _bind(dims, tuple(value.shape), sizes):
                leading += _leading_sizes(dims, tuple(value.shape))
    # Not strict: without OUTPUTS there is nothing to compare.
    for (name, dims, kind), output in zip(checks.OUTPUTS, outputs, strict=False):
        shape, before, returned = tuple(output.shape), dict(sizes), _kind(output)
        # A complex result of complex inputs needs no trait.
        if returned != KINDS[kind] and not (kind == "float" and output.is_complex()):
            words = f"{name} is declared as {KINDS[kind]}"
            if kind == "float":
                words = f"{name} has no trait, so it counts as {KINDS[kind]}"
            said = f"{words}, but the forward returns {returned}"
            # Floats have no trait to propose.
            hint = _outputs_as_returned(checks, outputs) if TRAITS[returned] else ""
            return Contrary(said, hint)
        if dims is None:
            continue
        # Of undeclared inputs the leading dims are not known: an output may have any.
        fits = _fits(dims, shape, leading) if all_declared and leading else True
        if not (_bind(dims, shape, sizes) and fits):
            found = f"the forward returns {name}{_shown(shape, before)}"
            return Contrary(f"{name}{_text(dims)} is declared, but {found}")
    return None


def _outputs_as_returned(checks: Any, outputs: Sequence[Tensor]) -> str:
    """Return an `--outputs` option to declare all outputs with the kinds returned: `--outputs 'y[N], index[N; int]'`."""
    entries = list[str]()
    for (name, dims, _), output in zip(checks.OUTPUTS, outputs, strict=True):
        shape, trait = "" if dims is None else _text(dims), TRAITS[_kind(output)]
        # "[...; int]" with the declared dims in place of "...": "[N; int]".
        said = trait.replace("[...", shape[:-1]) if shape else trait
        entries.append(f"{name}{said or shape}")
    return f"--outputs '{', '.join(entries)}'"


def _counted(names: Sequence[str]) -> str:
    return "1 output is" if len(names) == 1 else f"{len(names)} outputs are"


def _declared(checks: Any, name: str) -> Dims | None:
    """Return the declared dims of an input, None if undeclared; `tensors[0]` has those of the variadic input `*tensors`."""
    shapes: Mapping[str, Dims | None] = checks.INPUT_SHAPES
    variadic = f"*{name.partition('[')[0]}"
    return shapes.get(name, shapes.get(variadic))


def _bind(dims: Dims, shape: tuple[int, ...], sizes: Sizes) -> bool:
    """Bind the dims to a shape: return whether it matches them, and add names that are new to `sizes`: `(N, 3)` and (2, 3) -> N = 2."""
    if leading_position(dims) is None:
        has_rank = len(shape) == len(dims)
    else:  # leading dims may be none at all
        has_rank = len(shape) >= len(dims) - 1
    return has_rank and all(
        size == (dim if isinstance(dim, int) else sizes.setdefault(dim, size))
        for dim, size in _pairs(dims, shape)
    )


def leading_position(dims: Dims) -> int | None:
    """Return the position of `...` or `*batch`, which stands for any number of dims."""
    found = (at for at, dim in enumerate(dims) if str(dim)[0] in ".*")
    return next(found, None)


def _pairs(
    dims: Dims, shape: tuple[int, ...]
) -> Iterator[tuple[str | int, int | tuple[int, ...]]]:
    """Yield each dim with its size: `(*batch, D)` and shape (2, 3, 4) -> ("*batch", (2, 3)), ("D", 4).

    `...` is skipped, as it may stand for other sizes in another tensor.
    """
    first = leading_position(dims)
    if first is None:
        yield from zip(dims, shape, strict=True)
        return
    if dims[first] != "...":
        yield dims[first], _leading_sizes(dims, shape)[0]
    after = len(dims) - first - 1  # the number of dims after it
    yield from zip(dims[:first], shape[:first], strict=True)
    if after:
        yield from zip(dims[-after:], shape[-after:], strict=True)


def _leading_sizes(dims: Dims, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the sizes taken by `...` or `*batch`, in a list of one: `(..., D)` and shape (2, 3, 4) -> `[(2, 3)]`; [] without one."""
    first = leading_position(dims)
    if first is None:
        return []
    after = len(dims) - first - 1
    return [shape[first : len(shape) - after]]


def _fits(dims: Dims, shape: tuple[int, ...], leading: list[tuple[int, ...]]) -> bool:
    """Return whether an output's `...` or `*batch` broadcasts to `leading`, those of the inputs, without enlarging them."""
    own = _leading_sizes(dims, shape)
    if not own:
        return True
    try:
        common = _broadcast(*leading)
        return _broadcast(own[0], common) == common
    except RuntimeError:
        return False


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    found: torch.Size = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    return tuple(found)


def _kind(value: Tensor) -> str:
    """Return the kind of a tensor's numbers in words: "integers", "bools", ..."""
    if value.dtype == torch.bool:
        return KINDS["bool"]
    if value.is_complex():
        return KINDS["complex"]
    return KINDS["float" if value.is_floating_point() else "int"]


def _text(dims: Dims) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _shown(shape: tuple[int, ...], sizes: Sizes) -> str:
    """Write a shape with names for its sizes, `[N, D]`; with numbers if two names share a size, or a size has no name."""
    # A name of leading dims, `*batch`, stands for no single size.
    sizes = {name: size for name, size in sizes.items() if isinstance(size, int)}
    named = {size: name for name, size in sizes.items()}
    clear = len(named) == len(sizes) and all(size in named for size in shape)
    return _text(tuple(named[size] for size in shape)) if clear else _text(shape)
