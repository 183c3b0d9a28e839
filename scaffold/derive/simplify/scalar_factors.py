"""Products with what is one number, a tensor or not: all such factors are multiplied with each other first.

In: gradients. Out: the same, `grad_output / n * (x * y)` for `grad_output * (x * y) / n`. Invariant: equal but for rounding; a
value that several places read stays whole.
"""

from collections.abc import Callable, Iterable, Mapping

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.products import Product, Products


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
        """`x * (s * y) / t` as `s / t * (x * y)`; None where it has no scalar tensor, or one factor of one number."""

        def whole(item: Op) -> bool:
            if self.whole(item) or self.uses.get(item, 0) > 1 and item is not op:
                return True
            by_one_number = item.rule == "div" and _is_small(item.args[1])
            return item.rule != "mul" and not by_one_number

        product = Products(self.make.program, self.make, whole).of(op)
        if product.number != 1:  # else the repeated number is there as it is
            product = product._replace(tensors=self._before_repeated(product.tensors))
        small = [item for item in product.tensors if _is_small(item)]
        large = [item for item in product.tensors if not _is_small(item)]
        below = (*product.below, *product.static_below)
        numbers = len(product.statics) + (product.number != 1)
        if not large or not (small or product.below):
            return None
        if numbers + len(small) + len(below) < 2:
            return None
        scalar = self._scalar(product, small, below)
        rest = [self(item) for item in large]
        together = rest[0]
        for item in rest[1:]:
            together = self._times(together, item)
        found = self._times(scalar, together)
        if found.shape == op.shape:
            return found
        # The number was repeated for the shape: so is the new one.
        found = self._times(self.make.expanded(scalar, op.shape), together)
        return found if found.shape == op.shape else None

    def _before_repeated(self, tensors: Iterable[Op]) -> tuple[Op, ...]:
        """Factors, with one number in the place of a tensor that has it everywhere."""
        return tuple(
            (
                item.args[0]
                if item.rule == "expanded"
                and not self.whole(item)
                and _is_small(item.args[0])
                else item
            )
            for item in tensors
        )

    def _times(self, one: Op, two: Op) -> Op:
        return self.make.applier.named("mul", one, two)

    def _scalar(
        self, product: Product[Op], small: Iterable[Op], below: Iterable[Op]
    ) -> Op:
        """The part that is one number; Python's numbers first."""
        total = self.make.const(product.number)
        for item in (*product.statics, *small):
            total = self.make.mul(total, self(item))
        for item in below:
            total = self.make.div(total, self(item))
        return total


def _is_small(op: Op) -> bool:
    """Whether it is one number in every call."""
    return not op.is_tensor or (op.shape == SCALAR and op.kind == "real")
