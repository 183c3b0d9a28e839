"""The derivation of an op explained as text: its rules, its saved tensors and their bytes.

`scaffold derive --explain` prints it, so that a user can see why a backward is as it is. In: an `OpSpec`, its
`Derivation`, sizes for its dims (`--sizes N=32`). Out: sections of text. Invariant: bytes are those of single precision, written
with the names of the dims (`4*N*D`) if a size is not given.
Words: a value is *kept* if it stays in memory until the backward: a tensor is *saved*, any other value is an attribute of ctx.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from scaffold.derive import Derivation
from scaffold.derive.explain import Explanation, Tensors, explain, total
from scaffold.errors import Location, ScaffoldError
from scaffold.spec import OpSpec

Sizes = Mapping[str, int]


def read_sizes(text: str) -> Sizes:
    """Return the number of elements along each dim of a text like `N=32, ...=8x64`: 32 for N, 512 for the leading dims `...`."""
    return {name: prod(sizes) for name, sizes in read_shapes(text).items()}


def read_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Return the sizes of each dim in a value of `--sizes`, `(8, 64)` for `...=8x64`; raise ScaffoldError for a malformed part."""
    sizes: dict[str, tuple[int, ...]] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        if (
            not equals
            or not name
            or not re.fullmatch(r"[0-9]{1,12}(x[0-9]{1,12})*", number)
        ):
            hint = "write: --sizes 'N=32, D=512, ...=8'"
            message = f"'{part.strip()}' is not name=number"
            raise ScaffoldError(message, Location("--sizes"), hint)
        # `*batch=8` and `batch=8` mean the same.
        sizes[name.removeprefix("*")] = tuple(map(int, number.split("x")))
    return sizes


def explained(spec: OpSpec, derivation: Derivation, sizes: Sizes) -> str:
    """Return the rules used for an op, its saved values and their bytes, as text in sections; `sizes` has the size of each known dim.

    For a forward that is missing, or kept as written for autograd to differentiate, one line that says so.
    """
    if spec.forward is None:
        return "# no forward is stated\n"
    found = explain(spec, derivation)
    if found is None:
        return "# the forward is not understood piece by piece\n"
    sections = [
        ("rules", _rules(found)),
        ("kept for the backward", _kept(derivation, found)),
        ("bytes in single precision", _bytes(found, sizes)),
    ]
    shown = (
        "\n".join([f"# {title}", *lines, ""]) for title, lines in sections if lines
    )
    return "\n".join(shown)


def _rules(found: Explanation) -> list[str]:
    """Return a line for each rule used: the primitive, the argument, the gradient's formula, `mul  grad.x  = grad * y`."""
    return columns(
        [
            (used.rule, f"grad.{used.argument}", f"= {used.formula}")
            for used in found.rules
        ]
    )


def _kept(derivation: Derivation, found: Explanation) -> list[str]:
    """Return a line for each value kept for the backward: its source, the gradients that read it, and its size; "nothing" if there is none.

    Saved tensors come first, then values on ctx that are no tensors.
    """
    sizes = {item.name: tensor.size for item, tensor in found.saved}
    rows: list[tuple[str, str, str, str]] = [
        (
            item.name,
            item.source,
            f"for {', '.join(f'grad_{name}' for name in sorted(item.serves))}",
            sizes.get(item.name, "?"),
        )
        for item in derivation.saved
    ]
    rows += [
        (kept.name, "on ctx", f"no tensor: {kept.expression}", "")
        for kept in derivation.kept
    ]
    return columns(rows) or ["nothing"]


def _bytes(found: Explanation, sizes: Sizes) -> list[str]:
    """Return two lines of bytes saved, by the op and by plain autograd of its forward: as a formula, and with sizes as a number too."""
    ours = [tensor for _, tensor in found.saved]
    rows = [("here", total(ours)), ("plain autograd", total(found.eager))]
    if sizes:
        pairs = zip(rows, (ours, found.eager), strict=True)
        rows = [(*row, counted(tensors, sizes)) for row, tensors in pairs]  # type: ignore[misc]
    return columns(rows)


def bytes_in(sizes: Sizes) -> Callable[[Sequence[Tensors]], str]:
    """Return a function that writes the bytes of tensors as text: `4*N*D`, and behind it `= 4,096` if sizes are given."""

    def written(tensors: Sequence[Tensors]) -> str:
        """Return the bytes of these tensors as text."""
        number = f" {counted(tensors, sizes)}" if sizes else ""
        return f"{total(tensors)}{number}"

    return written


def counted(tensors: Iterable[Tensors], sizes: Sizes) -> str:
    """Return the bytes of the tensors as text, "= 4,096"; "= ? (no size for D)" if `sizes` lacks a dim of them."""
    bytes_ = 0
    for tensor in tensors:
        elements = 1
        for factor in tensor.size.split("*"):
            size = int(factor) if factor.isdigit() else sizes.get(factor)
            if size is None:
                return f"= ? (no size for {factor})"
            elements *= size
        bytes_ += elements * tensor.item
    return f"= {bytes_:,}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of a table as lines of text, each cell padded to the widest of its column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
