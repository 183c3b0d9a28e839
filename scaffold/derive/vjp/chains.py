"""Products and new dims as one writes them: `2 * g * x`, `x[..., None, None]`.

In: ops of which no name holds the inner ones. Out: expressions. Invariant: the same factors in the same order, at no greater
cost; the same dims.
"""

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.ir import Op, literal
from scaffold.derive.vjp.static_printer import StaticPrinter
from scaffold.formula import Node

SIGNS = {"mul": "*", "div": "/"}


class ChainPrinter(StaticPrinter):
    """Writes chains without the parentheses that the order of their making asks for."""

    def _mul(self, op: Op) -> Node:
        return self._times(*op.args)

    def _times(self, a: Op, b: Op) -> Node:
        """`a * (b * c)` as `a * b * c`, where that broadcasts nothing earlier."""
        if b not in self.names and b.rule in SIGNS and self._as_cheap(a, b):
            first, last = b.args
            return self._joined(SIGNS[b.rule], self._times(a, first), self.node(last))
        return self._joined("*", self.node(a), self.node(b))

    def _joined(self, label: str, left: Node, right: Node) -> Node:
        return self.graph.node("binary", label, (left, right))

    def _as_cheap(self, a: Op, b: Op) -> bool:
        if a.kind == "static":
            return b.kind != "static"
        first = b.args[0]
        return first.is_tensor and shapes.fits(
            shapes.broadcast(a.shape, first.shape), b.shape
        )

    def _unsqueeze(self, op: Op) -> Node:
        """Several new dims as an index."""
        dims, inner = [literal(op.args[1])], op.args[0]
        while inner.rule == "unsqueeze" and inner not in self.names:
            dims.insert(0, literal(inner.args[1]))
            inner = inner.args[0]
        index = index_of(dims) if len(dims) > 1 else None
        if index is None:
            return self.method(
                self.node(op.args[0]), "unsqueeze", self.node(op.args[1])
            )
        graph, absent = self.graph, self.graph.node("absent")
        words = {
            ":": graph.node("slice", "", (absent,) * 3),
            "...": graph.constant("..."),
            "None": graph.constant("None"),
        }
        parts = graph.node("tuple", "", tuple(words[part] for part in index))
        return graph.node("subscript", "", (self.node(inner), parts))


def index_of(dims: list[object]) -> list[str] | None:
    """The index that makes the new dims one after the other; None where they count from both ends."""
    plain = [dim for dim in dims if isinstance(dim, int)]
    if len(plain) < len(dims) or min(plain) < 0 <= max(plain):
        return None
    parts: list[str] = (
        []
    )  # the dims that are written out, those nearest to the end counted from first
    for dim in plain:
        at = -dim - 1 if dim < 0 else dim
        parts += [":"] * (at - len(parts))
        parts.insert(at, "None")
    return ["...", *reversed(parts)] if plain[0] < 0 else parts
