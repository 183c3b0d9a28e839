"""Conventional shapes: what tensors of well-known names look like where the user declared nothing.

In: the op's inputs and the configured conventions. Out: shapes for test inputs and for the sizes of the module.
Invariant: a declared shape is never touched; derivation does not read these.
"""

from collections.abc import Sequence

from scaffold.spec.config_values import Convention
from scaffold.spec.model import Dim, Input, TensorInput

Shapes = tuple[tuple[str, tuple[Dim, ...]], ...]


def conventional_shapes(
    inputs: Sequence[Input], conventions: Sequence[Convention]
) -> Shapes:
    """Shapes by the first convention that fits, none where no one does."""
    for convention in conventions:
        found = _shapes(inputs, convention)
        if found:
            return found
    return ()


def _shapes(inputs: Sequence[Input], convention: Convention) -> Shapes:
    """The convention's shapes if its first tensor occurs, another with it, and none declares a shape.

    The first is the one that tells: `input, weight` is a linear map, but `x, weight` may as well be a norm.
    """
    shapes = dict(convention)
    here = [item for item in inputs if item.name in shapes]
    tensors = [item for item in here if isinstance(item, TensorInput)]
    open_ = all(item.dims is None and not item.variadic for item in tensors)
    if len(tensors) < max(2, len(here)) or not open_:
        return ()
    dims = {dim for item in tensors for dim in shapes[item.name]}
    told = next(iter(shapes)) in {item.name for item in tensors}
    if not told or dims & {item.name for item in inputs}:
        return ()
    return tuple((item.name, shapes[item.name]) for item in tensors)
