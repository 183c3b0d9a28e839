"""For the sizes of tests: how far the forward's indices reach, `x[:, 3]`, `x[..., :2]`, `x.select(1, 4)`, `x.narrow(-1, 0, 3)`.

In: an `OpSpec`. Out: conditions on its dims, as those of `require`. Invariant: they choose the sizes of tests, and nothing else; only
a whole number in an index of an input is read.
"""

from collections.abc import Iterator

from scaffold.formula import Formula, Node
from scaffold.render.divided_sizes import number_of
from scaffold.spec import Dim, OpSpec, is_leading, leading

LARGE = 16  # a slice of more is content with less


def reaches(spec: OpSpec) -> tuple[Formula, ...]:
    """`T >= 4` for `x[:, 3]` of `x[B, T]`: the largest for each dim."""
    if spec.forward is None:
        return ()
    least: dict[str, int] = {}
    for dim, size in _reached(spec, spec.forward):
        least[dim] = max(size, least.get(dim, 0))
    graph, place = spec.forward.graph, spec.forward.location
    found = []
    for dim, size in least.items():
        parts = graph.name(dim), graph.constant(str(size))
        found.append(graph.node("compare", ">=", parts))
    return tuple(Formula((), node, "", place, (), graph) for node in found)


def _reached(spec: OpSpec, forward: Formula) -> Iterator[tuple[str, int]]:
    """Named dims, and how many elements of them an index counts on."""
    dims = {item.name: spec.dims(item.name) or () for item in spec.tensors}
    for node in forward.nodes():
        match node:
            case Node("subscript", _, (Node("name", name), index)):
                pairs = _indexed(dims.get(name, ()), index)
            case Node(
                "call",
                _,
                (Node("attribute", "select", (Node("name", name),)), at, index),
            ):
                pairs = _taken(dims.get(name, ()), at, _counted(index))
            case Node(
                "call",
                _,
                (Node("attribute", "narrow", (Node("name", name),)), at, first, length),
            ):
                ends = number_of(first), number_of(length)
                end = None if None in ends else sum(filter(None, ends))
                pairs = _taken(dims.get(name, ()), at, end)
            case _:
                continue
        yield from (
            (dim, size) for dim, size in pairs if isinstance(dim, str) and size > 1
        )


def _indexed(dims: tuple[Dim, ...], index: Node) -> Iterator[tuple[Dim, int]]:
    """Each dim of a tensor with what `x[index]` counts on."""
    parts = index.args if index.kind == "tuple" else (index,)
    ellipsis = next((at for at, part in enumerate(parts) if _is_rest(part)), None)
    before = parts if ellipsis is None else parts[:ellipsis]
    after = () if ellipsis is None else parts[ellipsis + 1 :]
    for named, listed in ((dims, before), (dims[::-1], after[::-1])):
        for dim, part in zip(named, filter(_is_of_a_dim, listed), strict=False):
            if is_leading(dim):
                break
            size = _counted(part)
            if size is not None:
                yield dim, size


def _taken(
    dims: tuple[Dim, ...], at: Node, size: int | None
) -> Iterator[tuple[Dim, int]]:
    position = number_of(at)
    if position is None or size is None or not -len(dims) <= position < len(dims):
        return
    if leading(dims[position:] if position < 0 else dims[: position + 1]) is None:
        yield dims[position], size


def _counted(part: Node) -> int | None:
    """The least size at which a part of an index takes all that it names; a slice leaves two, which do not broadcast."""
    if part.kind != "slice":
        value = number_of(part)
        return None if value is None else max(-value, value + 1)
    ends = [abs(value) for value in map(number_of, part.args[:2]) if value]
    return max((end + 2 for end in ends if end <= LARGE), default=None)


def _is_rest(part: Node) -> bool:
    return part.kind == "constant" and part.label == "..."


def _is_of_a_dim(part: Node) -> bool:
    """Whether it takes up a dim of the tensor, as all parts but `None` do."""
    return not (part.kind == "constant" and part.label == "None")
