"""Sizes for measuring an op: the stated ones, and others giving its largest input up to half a million elements.

`scaffold bench` measures an op with them: the sizes of tests are too small. *Leading dims* are those of `...` (ANY_DIMS) or `*batch`.
In: an `OpSpec`, stated sizes by the name of the dim. Out: sizes by name, and the arguments of `make` in the op's checks.
Invariant: unstated sizes satisfy `require` if the sizes of the tests, all times the same number, do.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.render.testcases import leading_names, size_name, takes_shape
from scaffold.render.testsizes import allows, choose_sizes, fixed_sizes, input_dims
from scaffold.spec import ANY_DIMS, OpSpec

Sizes = Mapping[str, tuple[int, ...]]  # "D": (1024,), "...": (8, 64)
ELEMENTS = 1 << 19
LEADING, SHAPE = (2,), (2, 3)  # before they are enlarged


def large_sizes(spec: OpSpec, stated: Sizes) -> dict[str, tuple[int, ...]]:
    """Choose sizes for all dims not `stated`, as large as fit, several for leading dims; raise ScaffoldError for an unknown dim."""
    # The user's samples have the sizes they have.
    usual = {} if spec.samples is not None else _usual(spec)
    for name in stated:
        if name not in usual:
            known = did_you_mean(name, usual) or f"its dims: {', '.join(usual)}"
            hint = (
                known if usual else "leave it out: its inputs are those of its samples"
            )
            raise ScaffoldError(f"no dim '{name}'", Location("--sizes"), hint)
    # Sizes given by attributes cannot change either.
    free = usual.keys() - stated.keys() - fixed_sizes(spec).keys()
    chosen = {**usual, **stated}
    while free and _suits(spec, larger := _larger(chosen, free)):
        chosen = larger
    return chosen


def make_arguments(spec: OpSpec, sizes: Sizes) -> dict[str, Any]:
    """Return the arguments of `make` for tensors of these sizes."""
    several = _leading(spec)  # these take a tuple, all others a number
    return {
        several.get(name, size_name(name)): found if name in several else prod(found)
        for name, found in sizes.items()
    }


def _leading(spec: OpSpec) -> dict[str, str]:
    """Map each name of several dims, `batch` of `*batch`, to the parameter of `make` for it."""
    found = leading_names(spec).items()
    shared = {ANY_DIMS: "shape"} if takes_shape(spec) else {}
    return {dim.removeprefix("*"): name for dim, name in found} | shared


def _usual(spec: OpSpec) -> dict[str, tuple[int, ...]]:
    """Return the sizes of all dims in the tests, by name; several for leading dims."""
    named = {name: (size,) for name, size in choose_sizes(spec).items()}
    several = dict.fromkeys(_leading(spec), LEADING)
    return named | several | ({ANY_DIMS: SHAPE} if takes_shape(spec) else {})


def _larger(sizes: Sizes, free: set[str]) -> dict[str, tuple[int, ...]]:
    """Return the sizes with those of the free dims doubled."""
    return {
        name: tuple(2 * one for one in size) if name in free else size
        for name, size in sizes.items()
    }


def _suits(spec: OpSpec, sizes: Sizes) -> bool:
    """Return whether every input has at most ELEMENTS elements and `require` holds; `sizes` may have several sizes for leading dims."""
    known = {name: prod(size) for name, size in sizes.items()}
    for item in spec.tensors:
        # An undeclared shape is the one called `...` in `sizes`.
        dims = input_dims(spec, item.name) or (ANY_DIMS,)
        names = [str(dim).removeprefix("*") for dim in dims]
        if prod(known.get(name, 1) for name in names) > ELEMENTS:
            return False
    return allows(spec, known)
