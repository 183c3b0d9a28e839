"""Operations made by the engine itself, as methods; formulas of the table name all others.

In: operands. Out: the op of the operation. Invariant: a method is the primitive of its name, made in the same way.

The base of `Maker`: `make.mul(x, y)` can be found and checked where `make("mul", x, y)` cannot.
"""

from abc import ABC, abstractmethod

from scaffold.derive.graph.op import Op


class Algebra(ABC):
    """Methods to make ops: `make.mul(x, y)` is `make("mul", x, y)`."""

    @abstractmethod
    def __call__(self, name: str, *args: Op) -> Op:
        """Return the op of a primitive by its name."""

    # Arithmetic

    def add(self, x: Op, y: Op) -> Op:
        return self("add", x, y)

    def sub(self, x: Op, y: Op) -> Op:
        return self("sub", x, y)

    def mul(self, x: Op, y: Op) -> Op:
        return self("mul", x, y)

    def div(self, x: Op, y: Op) -> Op:
        return self("div", x, y)

    def neg(self, x: Op) -> Op:
        return self("neg", x)

    def conj(self, x: Op) -> Op:
        return self("conj", x)

    def real(self, x: Op) -> Op:
        return self("real", x)

    def where(self, test: Op, x: Op, y: Op) -> Op:
        return self("where", test, x, y)

    def matmul(self, x: Op, y: Op) -> Op:
        return self("matmul", x, y)

    def mT(self, x: Op) -> Op:
        return self("mT", x)

    def mH(self, x: Op) -> Op:
        return self("mH", x)

    # Dims

    def sum(self, x: Op, *rest: Op) -> Op:
        return self("sum", x, *rest)

    def mean(self, x: Op, *rest: Op) -> Op:
        return self("mean", x, *rest)

    def squeeze(self, x: Op, dim: Op) -> Op:
        return self("squeeze", x, dim)

    def unsqueeze(self, x: Op, dim: Op) -> Op:
        return self("unsqueeze", x, dim)

    def movedim(self, x: Op, source: Op, destination: Op) -> Op:
        return self("movedim", x, source, destination)

    def flatten(self, x: Op, *dims: Op) -> Op:
        return self("flatten", x, *dims)

    # Parts

    def narrow(self, x: Op, dim: Op, start: Op, length: Op) -> Op:
        return self("narrow", x, dim, start, length)

    def cat(self, parts: Op, dim: Op) -> Op:
        return self("cat", parts, dim)

    def ones_like(self, x: Op) -> Op:
        return self("ones_like", x)

    def masked_fill(self, x: Op, mask: Op, value: Op) -> Op:
        return self("masked_fill", x, mask, value)

    def select_scatter(self, x: Op, *rest: Op) -> Op:
        return self("select_scatter", x, *rest)

    def slice_scatter(self, x: Op, *rest: Op) -> Op:
        return self("slice_scatter", x, *rest)

    def index_put(self, x: Op, *rest: Op) -> Op:
        return self("index_put", x, *rest)

    def index_add(self, x: Op, *rest: Op) -> Op:
        return self("index_add", x, *rest)
