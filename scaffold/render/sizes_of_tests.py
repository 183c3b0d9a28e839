"""Sizes of the named dims in the generated test.

In: an `OpSpec`. Out: a size for each name, and whether other sizes would do as well.
Invariant: the sizes satisfy `require`; they are distinct where it lets them be, leave no remainder where the forward divides them, and
are as large as its indices count on.
"""

from collections.abc import Iterable, Iterator, Mapping

from scaffold.errors import ScaffoldError
from scaffold.formula import Formula, Node, emit, evaluated, truth
from scaffold.render.divided_sizes import divisions, with_several
from scaffold.render.indexed_sizes import reaches
from scaffold.render.testlimits import full_rank
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Dim, OpSpec, is_size_name

TAKING = frozenset({"kthvalue", "topk"})
CANDIDATES = (*range(2, 33), 64, 128, 1)


class UndecidedError(Exception):
    """A condition that reads something other than sizes."""


def dim_names(spec: OpSpec) -> tuple[str, ...]:
    """The named dims in order of first appearance over the inputs."""
    dims = (dim for item in spec.tensors for dim in input_dims(spec, item.name))
    return tuple(dict.fromkeys(filter(is_size_name, dims)))


def input_dims(spec: OpSpec, name: str) -> tuple[Dim, ...]:
    """The dims that an input is made from, the bound of its indices last."""
    bound = {item.name: item.bound for item in spec.tensors}[name]
    return (spec.dims(name) or ()) + (() if bound is None else (bound,))


def fixed_sizes(spec: OpSpec) -> dict[str, int]:
    """The values of integer attributes, which conditions may read, but for those that are free to be a size."""
    dims = dim_names(spec)
    values = {
        item.name: attribute_value(spec, item)
        for item in spec.attributes
        if item.default is not None or item.name not in dims
    }
    return {name: int(text) for name, text in values.items() if text.isdecimal()}


def choose_sizes(spec: OpSpec, first: int = 2) -> dict[str, int]:
    """A size for each named dim: from `first` upwards, distinct where `require` allows."""
    fixed = fixed_sizes(spec)
    first = max(first, *_counts(spec, fixed), full_rank(spec))
    names = [name for name in dim_names(spec) if name not in fixed]
    divided, reached = divisions(spec), reaches(spec)
    sizes = None
    for wanted in ((*with_several(divided), *reached), divided, ()):
        sizes = sizes or _bound(fixed, names, (*spec.require, *wanted), first)
    if sizes is None:
        conditions = ", ".join(
            emit(item.result) for item in spec.require if item.result
        )
        raise ScaffoldError(
            f"no sizes up to {max(CANDIDATES)} satisfy: {conditions}",
            spec.require[0].location,
            hint="give the test its inputs with samples: '@file.py:function'",
        )
    for name in names:
        free = (size for size in range(first, 128) if size not in sizes.values())
        sizes.setdefault(name, next(free))
    return {name: sizes[name] for name in dim_names(spec)}


def _counts(spec: OpSpec, fixed: Mapping[str, int]) -> Iterator[int]:
    """How many elements the forward takes of a dim, of which there must be as many: `x.topk(k)`."""
    if spec.forward is None:
        return
    for call in spec.forward.nodes():
        if call.kind == "call" and call.args[0].label in TAKING:
            labels = (arg.label for arg in call.args[1:])
            yield from (fixed[label] for label in labels if label in fixed)


def allows(spec: OpSpec, sizes: Mapping[str, int]) -> bool:
    """Whether these sizes satisfy every condition that they decide."""
    fixed = fixed_sizes(spec)
    return _satisfied((*spec.require, *divisions(spec)), fixed | dict(sizes))


def _bound(
    fixed: dict[str, int],
    names: list[str],
    conditions: tuple[Formula, ...],
    first: int,
) -> dict[str, int] | None:
    """Sizes for the names that conditions read, distinct if that can be; None where none will do."""
    read = frozenset[str]().union(
        *(item.result.names() for item in conditions if item.result)
    )
    bound = [name for name in names if name in read]
    found = _search(fixed, bound, conditions, fixed, first)
    return found or _search(fixed, bound, conditions, None, first)


def _search(
    sizes: dict[str, int],
    names: list[str],
    conditions: tuple[Formula, ...],
    shared: Mapping[str, int] | None,
    first: int,
) -> dict[str, int] | None:
    """The first sizes that satisfy the conditions; distinct from all but the `shared`, or any where that is None."""
    if not _satisfied(conditions, sizes):
        return None
    if not names:
        return sizes
    taken = sizes.keys() - shared.keys() if shared is not None else set()
    usual = [size for size in CANDIDATES if size >= first]
    unusual = [size for size in CANDIDATES if size < first and shared is None]
    for size in usual + unusual:
        if size in (sizes[name] for name in taken):
            continue
        chosen = sizes | {names[0]: size}
        found = _search(chosen, names[1:], conditions, shared, first)
        if found is not None:
            return found
    return None


def _satisfied(conditions: Iterable[Formula], sizes: Mapping[str, int]) -> bool:
    """Whether no condition is false or raises; one that these sizes do not decide is neither."""

    def size(node: Node) -> int:
        if node.kind != "name" or node.label not in sizes:
            raise UndecidedError(node.kind)
        return sizes[node.label]

    for test in (item.result for item in conditions if item.result is not None):
        try:
            if truth(evaluated(test, size)) is not True:
                return False
        except UndecidedError:
            continue
    return True
