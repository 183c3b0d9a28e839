"""Products with what is one number, a tensor or not: all such factors are multiplied with each other first.

In: gradients. Out: the same, `grad_output / n * (x * y)` for `grad_output * (x * y) / n`. Invariant: equal but for rounding; a
value that several places read stays whole.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.simplify.constructors import Maker


class _Product(NamedTuple):
    """Factors above and below the line, in order."""

    above: list[Op]
    below: list[Op]


class Scalars:
    """Regroups the products of a backward."""

    def __init__(
        self, make: Maker, roots: Mapping[str, Op], whole: Callable[[Op], bool]
    ) -> None:
        self.make, self.whole = make, whole
        self.uses: dict[Op, int] = {}
        self.known: dict[Op, Op] = {}
        for op in {op for root in roots.values() for op in root.walk()}:
            for arg in op.args:
                self.uses[arg] = self.uses.get(arg, 0) + 1
        for root in roots.values():
            self.uses[root] = self.uses.get(root, 0) + 1

    def __call__(self, op: Op) -> Op:
        """The op with scalar factors first, and so below it."""
        if op not in self.known:
            self.known[op] = self._renewed(op)
        return self.known[op]

    def _renewed(self, op: Op) -> Op:
        if self.whole(op) or not op.args:
            return op
        if op.rule in ("mul", "div") and op.shape != SCALAR and op.kind == "real":
            found = self._regrouped(op)
            if found is not None:
                return found
        args = tuple(map(self, op.args))
        if args == op.args:
            return op
        program = self.make.program
        return program.shaped(program.over(op, args), op.shape)

    def _regrouped(self, op: Op) -> Op | None:
        product = _Product([], [])
        self._take_apart(op, product, first=True)
        small = [item for item in product.above if _is_small(item)]
        large = [item for item in product.above if not _is_small(item)]
        ones = [item for item in (*small, *product.below) if item.is_tensor]
        steps = len(small) + len(product.below)
        if not large or not ones or steps < 2:
            return None
        scalar = self._scalar(small, product.below)
        rest = [self(item) for item in large]
        together = rest[0]
        for item in rest[1:]:
            together = self._product(together, item)
        found = self._product(scalar, together)
        return found if found.shape == op.shape else None

    def _product(self, one: Op, two: Op) -> Op:
        return self.make.applier.named("mul", one, two)

    def _scalar(self, above: list[Op], below: list[Op]) -> Op:
        """The part that is one number; Python's numbers first."""
        total = self.make.const(1)
        for item in sorted(above, key=lambda op: op.is_tensor):
            total = self.make("mul", total, self(item))
        for item in below:
            total = self.make("div", total, self(item))
        return total

    def _take_apart(self, op: Op, product: _Product, first: bool = False) -> None:
        shared = self.whole(op) or (self.uses.get(op, 0) > 1 and not first)
        if not shared and op.rule == "mul":
            for item in op.args:
                self._take_apart(item, product)
        elif not shared and op.rule == "div" and _is_small(op.args[1]):
            self._take_apart(op.args[0], product)
            product.below.append(op.args[1])
        else:
            product.above.append(op)


def _is_small(op: Op) -> bool:
    """Whether it is one number in every call."""
    return not op.is_tensor or (op.shape == SCALAR and op.kind == "real")
