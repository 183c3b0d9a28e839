"""Find a source for each shape or size the backward reads: an incoming gradient, an input, or another value with this shape.

`grad_x = grad.expand(x.shape)` needs a tensor with the shape of `x` that is in memory anyway; `printer` asks here for each shape.

In: shapes. Out: expressions, `x.shape`, `(x.shape[0], 1)`. Invariant: only an optional input's own gradient reads its shape; no
whole tensor is kept alive for a size available from a cotangent or an input.

Words: `held` maps the forward's values with a name to it. `sure` tensors are present in every call: incoming gradients, and inputs
that are not optional. Leading dims are any number of dims, `*batch`; as a size they have no number. A shape's `lead` are those it
begins with, `trailing` the number of dims behind them. Its origin is the op it comes from: a broadcast, a reduction, a transpose.
"""

from collections.abc import Collection, Iterable
from typing import TypeGuard

from scaffold.derive.graph import sizes
from scaffold.derive.graph.op import Op, Program, ValueOf
from scaffold.derive.graph.shapes import (
    Broadcast,
    Dim,
    Dropped,
    Kept,
    NamedSize,
    Shape,
    UnnamedSize,
    is_lead,
    same_rank,
)
from scaffold.derive.graph.static_values import NO_SHAPE, UnsupportedError, number_node
from scaffold.formula import Graph, Node


class Holders:
    """The tensors available in the backward to read shapes from, best first."""

    def __init__(
        self,
        program: Program,
        first: Iterable[Op],
        optional: Iterable[Op],
        held: dict[Op, str],
        current: str | None = None,
        last: Collection[Op] = (),
    ) -> None:
        """Begin with the tensors that are surely present, `first`, the best ones in front; with `optional` inputs and values with a name.

        `current` is the input whose gradient is being written: if it is optional, it is present there. `last` are values that would
        be computed for their shape alone, so they are asked after all others.
        """
        self.program = program
        self.graph: Graph = program.graph
        self.sure, self.optional, self.held = tuple(first), tuple(optional), held
        self.current = current
        self.last = last

    def for_gradient_of(self, current: str | None) -> "Holders":
        """Return the holders for the gradient of that input: an optional one is present there."""
        return Holders(
            self.program, self.sure, self.optional, self.held, current, self.last
        )

    def shape(self, shape: Shape, like: Op | None = None) -> Node:
        """Return the expression of a shape: `x.shape`, or the sizes one by one; raise `UnknownShapeError` if no tensor has it.

        Values in `last` are used if no other has it.
        """
        try:
            return self.other_shape(shape, like)
        except UnsupportedError:
            # In the order of the forward, not of the set: the text is the same every time.
            for op in self.held:
                if op in self.last and op.shape == shape:
                    return self._attribute(self._name(op), "shape")
            raise

    def other_shape(self, shape: Shape, like: Op | None = None) -> Node:
        """Return an expression for a shape: of the input `like`, of any tensor not in `last`, or size by size.

        Raise `UnknownShapeError` if there is none.
        """
        if shape.dims == ():
            return self.graph.node("tuple")
        if like is not None and like.rule == "input":  # it has this shape
            return self._attribute(like.name, "shape")
        for op in self._holding():
            if op.shape == shape:
                return self._attribute(self._name(op), "shape")
        if shape.dims is None:
            return self._by_origin(shape)
        if shape.lead is None:  # a fixed number of dims
            try:
                sizes = tuple(self.size(dim) for dim in shape.dims)
            except UnsupportedError:
                raise UnknownShapeError(shape) from None
            return self.graph.node("tuple", "", sizes)
        found = self._by_prefix(shape)
        if found is None:
            raise UnknownShapeError(shape)
        return found

    def _broadcast(self, several: Iterable[Shape]) -> Node:
        """Return `torch.broadcast_shapes(x.shape, y.shape)` for a shape that comes from a broadcast of others."""
        parts = tuple(map(self.shape, several))
        function = self.graph.node(
            "attribute", "broadcast_shapes", (self.graph.name("torch"),)
        )
        return self.graph.node("call", "", (function, *parts))

    def _by_origin(self, shape: Shape) -> Node:
        """Return a shape of unknown rank by its origin, `torch.broadcast_shapes(x.shape, y.shape)[:-1]`; else raise `UnknownShapeError`.

        `Dropped` is the shape without the first or the last dim, `Kept` that with a 1 in its place.
        """
        match shape.origin:
            case Broadcast(parts):
                return self._broadcast(parts)
            case Dropped(base, (0 | -1 as dim,)) | Kept(base, (0 | -1 as dim,)):
                graph, absent = self.graph, self.graph.node("absent")
                one, minus_one = (number_node(self.program, k) for k in (1, -1))
                # Without the first dim `[1:]`, without the last one `[:-1]`.
                bounds = (one, absent) if dim == 0 else (absent, minus_one)
                index = graph.node("slice", "", (*bounds, absent))
                rest = graph.node("subscript", "", (self.shape(base), index))
                if isinstance(shape.origin, Dropped):
                    return rest
                if base.least:  # else perhaps a scalar, which keeps no dim
                    kept = graph.node("starred", "", (rest,))
                    both = (one, kept) if dim == 0 else (kept, one)
                    return graph.node("tuple", "", both)
        raise UnknownShapeError(shape)

    def _by_prefix(self, shape: Shape) -> Node | None:
        """Return a shape as the start of another one and known sizes: `(*x.shape[:-1], 1)`; None if no tensor has such a start."""
        assert shape.dims is not None
        for op in self._holding():
            # Only dims behind the leading ones can be counted from the end.
            for cut in range(1, op.shape.trailing + 1):
                same = (op.shape.dims or ())[:-cut]  # both must start with these
                if same != shape.dims[: len(same)] or not same:
                    continue
                first = self._beginning(op, cut)
                rest = [self._known_size(dim) for dim in shape.dims[len(same) :]]
                if not rest:
                    return first
                sizes = [size for size in rest if size is not None]
                if len(sizes) == len(rest):
                    starred = self.graph.node("starred", "", (first,))
                    return self.graph.node("tuple", "", (starred, *sizes))
        return None

    def _beginning(self, op: Op, cut: int) -> Node:
        """Return the shape of a value without its last `cut` dims: `x.shape[:-1]`."""
        graph, absent = self.graph, self.graph.node("absent")
        bounds = (absent, number_node(self.program, -cut), absent)
        shape = self._attribute(self._name(op), "shape")
        index = graph.node("slice", "", bounds)
        return graph.node("subscript", "", (shape, index))

    def _known_size(self, dim: Dim) -> Node | None:
        """Return a size read or computed from tensors surely present; None if that is impossible."""
        if isinstance(dim, int):
            return number_node(self.program, dim)
        if is_lead(dim):
            return None
        return self.read_size(dim, self.sure) or self._computed_size(dim)

    def _holding(self) -> Iterable[Op]:
        """Yield the tensors surely present, in order of preference: gradients and inputs, locals, the optional input of this gradient."""
        yield from self.sure
        for op in self.held:
            # Yielded before or after this loop, or only where no other tensor has the shape (`last`).
            elsewhere = op in self.sure or op in self.optional or op in self.last
            if not elsewhere and is_there(op):
                yield op
        yield from (op for op in self.optional if op.name == self.current)

    def _name(self, op: Op) -> str:
        """Return the name of a tensor: of an input or an incoming gradient, else of a forward value."""
        return op.name if op.rule in ("input", "cotangent") else self.held[op]

    def _attribute(self, name: str, label: str) -> Node:
        return self.graph.node("attribute", label, (self.graph.name(name),))

    def size(self, dim: Dim) -> Node:
        """Return a size's expression: `x.shape[-1]`; raise `UnsupportedError` if no tensor has it."""
        if isinstance(dim, int):
            return number_node(self.program, dim)
        if is_lead(dim):
            raise UnsupportedError(NO_SHAPE)
        if _is_attribute(dim):
            return dim.op.expression
        # A local of the forward comes last: it may have to be recomputed for this.
        found = self.read_size(dim, self.sure) or self._computed_size(dim)
        found = found or self.read_size(dim, self._holding())
        if found is None:
            raise UnsupportedError(NO_SHAPE)
        return found

    def read_size(self, dim: Dim, holding: Iterable[Op]) -> Node | None:
        """Return the size of a dim, read from the first of the tensors `holding` that has it, `x.shape[0]`; else None."""
        for op in holding:
            if op.shape.dims is not None and dim in op.shape.dims:
                return self._size_of(op, op.shape.dims.index(dim))
        return None

    def _size_of(self, op: Op, at: int) -> Node:
        """Return the size of the dim at position `at`: `x.shape[0]` for the first, else counted from the end, `x.shape[-1]`."""
        behind = len(op.shape.dims or ()) - at
        # Leading dims are any number: only from the other end is a dim counted.
        last = behind <= op.shape.trailing
        first = at == 0 and behind > 1 and op.shape.lead is None
        index = number_node(self.program, -behind if last and not first else at)
        shape = self._attribute(self._name(op), "shape")
        return self.graph.node("subscript", "", (shape, index))

    def _computed_size(self, dim: Dim) -> Node | None:
        """Return a size computed from sizes the backward can read, or None.

        It is a part of a size of a `sure` tensor, `x.shape[-1] // 2`, or a sum or quotient of known sizes: `x.shape[0] + 2` after
        padding.
        """
        for other in (other for op in self.sure for other in op.shape.dims or ()):
            count = None if is_lead(other) else sizes.divided(other, dim)
            if isinstance(count, int):
                return self._binary("//", self.size(other), self.size(count))
        if not isinstance(dim, UnnamedSize) or not sizes.is_made_of(dim, _is_known):
            return None
        try:
            if isinstance(dim, sizes.Quotient):
                return self._binary("//", self.size(dim.size), self.size(dim.by))
            return self._sum(sizes.terms_of(dim))
        except UnsupportedError:  # only an optional input has one of the sizes
            return None

    def _sum(self, terms: sizes.Terms) -> Node | None:
        """Return a sum of products of sizes, each with its count: `2 * x.shape[0] - 1`, the subtracted ones last; None if none is added."""
        if all(count < 0 for count in terms.values()):
            return None  # a negative Python value, as `-k`, is no size of a tensor
        found: Node | None = None
        for product, count in sorted(terms.items(), key=lambda item: item[1] < 0):
            # A count of 1 is left out, unless the term is that number alone.
            number = (abs(count),) if abs(count) > 1 or not product else ()
            term = self._multiplied((*number, *product))
            label = "-" if count < 0 else "+"
            found = term if found is None else self._binary(label, found, term)
        return found

    def _binary(self, label: str, one: Node, two: Node) -> Node:
        return self.graph.node("binary", label, (one, two))

    def of_tensor(self, shape: Shape, label: str) -> Node:
        """Return `x.ndim` or `x.numel()`, by the label, of a tensor with that shape; for `numel`, else the product of its sizes.

        Raise `UnknownShapeError` if neither is possible.
        """
        for op in self._holding():
            if op.shape == shape or label == "ndim" and same_rank(op.shape, shape):
                found = self._attribute(self._name(op), label)
                return (
                    self.graph.node("call", "", (found,)) if label == "numel" else found
                )
        if label != "numel":
            raise UnknownShapeError(shape)
        if shape.dims is not None and shape.lead is None:
            try:
                return self._multiplied(shape.dims)
            except UnsupportedError:  # a size known from the value alone
                raise UnknownShapeError(shape) from None
        found = self._by_origin(shape) if shape.dims is None else self.shape(shape)
        if found.kind == "tuple":  # only a `torch.Size` has the method `numel`
            raise UnknownShapeError(shape)
        numel = self.graph.node("attribute", "numel", (found,))
        return self.graph.node("call", "", (numel,))

    def _multiplied(self, dims: Iterable[Dim]) -> Node:
        """Return the product of sizes; a 1 is left out unless it is all."""
        several = tuple(dims)
        first, *others = map(self.size, [d for d in several if d != 1] or several[:1])
        for size in others:
            first = self._binary("*", first, size)
        return first


def _is_attribute(dim: Dim) -> TypeGuard[ValueOf]:
    """Return whether a size is an attribute of the op: `k` in `x.unfold(-1, k, 1)`."""
    return isinstance(dim, ValueOf) and dim.op.rule == "static"


def _is_known(dim: Dim) -> bool:
    return isinstance(dim, NamedSize | sizes.Quotient) or _is_attribute(dim)


def is_there(op: Op) -> bool:
    """Return whether a value is a tensor in every branch of its choices, never None or a number, so its shape can be read."""
    if op.rule == "cond":
        return all(map(is_there, op.args))
    return op.is_tensor


class UnknownShapeError(UnsupportedError):
    """No tensor available in the backward has the shape: `printer` then takes a forward value with it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(NO_SHAPE)
        self.shape = shape
