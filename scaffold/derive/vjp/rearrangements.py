"""What transposes, squeezes and flips in the backward simplify to.

In: the arguments. Out: a simpler op, or None. Invariant: same value, same shape; what a forward local holds stays whole.
"""

from collections.abc import Callable

from scaffold.derive.vjp import shapes
from scaffold.derive.vjp.algebra import Algebra
from scaffold.derive.vjp.infer import dim_of, dims_of
from scaffold.derive.vjp.ir import Op, Program, literal
from scaffold.derive.vjp.precision import Precision
from scaffold.derive.vjp.shapes import Shape


class Rearrangements:
    """One method for each primitive that moves elements and computes nothing; and what all rewrites know."""

    program: Program
    algebra: Algebra
    opaque: Callable[[Op], bool]
    precision: Precision | None
    saves: bool  # values inside the forward may be saved
    count: Callable[[Op, Op], Op | None]

    def __call__(self, name: str, *args: Op) -> Op:
        raise NotImplementedError

    def rearrangements(self) -> dict[str, Callable[..., Op | None]]:
        """What simplifies a primitive, by its name."""
        return {
            "mT": self._mT,
            "t": self._t,
            "T": self._T,
            "mH": self._mH,
            "H": self._H,
            "transpose": self._transpose,
            "flip": self._flip,
            "squeeze": self._squeeze,
            "unsqueeze": self._unsqueeze,
        }

    def const(self, value: object) -> Op:
        """A Python literal."""
        return self.program.const(value)

    def expanded(self, op: Op, shape: Shape) -> Op:
        raise NotImplementedError

    def _mT(self, a: Op) -> Op | None:
        if a.rule in ("mT", "t") or a.rule == "T" and a.shape.rank == 2:
            return a.args[0]
        if a.rule == "transpose" and {literal(item) for item in a.args[1:]} == {-1, -2}:
            return a.args[0]
        if a.rule == "matmul" and not self.opaque(a):
            left, right = a.args
            if all(item.shape.least >= 2 for item in (left, right)):
                return self("matmul", self("mT", right), self("mT", left))
        return self._inside_mT(a)

    def _inside_mT(self, a: Op) -> Op | None:
        """Signs, constants and sums that a transpose does not touch."""
        if self.opaque(a):
            return None
        if a.rule == "neg":
            return self("neg", self("mT", a.args[0]))
        if a.rule == "mul" and a.args[0].kind == "static":
            return self("mul", a.args[0], self("mT", a.args[1]))
        if a.rule == "contracted":
            x, y, *dims = a.args
            shape = shapes.transposed(a.shape, -2, -1)
            return self.program.op(
                "contracted", (y, x, *dims), None, kind=a.kind, shape=shape
            )
        if a.rule == "summed_to" and isinstance(a.data, tuple) and a.data[1] is None:
            shape = shapes.transposed(a.data[0], -2, -1)
            inner = self("mT", a.args[0])
            return self.program.op(
                "summed_to", (inner,), (shape, None), kind=a.kind, shape=shape
            )
        return None

    def _t(self, a: Op) -> Op | None:
        return self("mT", a) if a.shape.rank == 2 else None

    def _T(self, a: Op) -> Op | None:
        return self("mT", a) if a.shape.rank == 2 else None

    def _mH(self, a: Op) -> Op | None:
        if a.kind != "complex":
            return self("mT", a)
        return a.args[0] if a.rule == "mH" else None

    def _H(self, a: Op) -> Op | None:
        return self("mH", a) if a.shape.rank == 2 else None

    def _transpose(self, a: Op, first: Op, second: Op) -> Op | None:
        if {literal(first), literal(second)} == {-1, -2}:
            return self("mT", a)
        same = a.rule == "transpose" and set(a.args[1:]) == {first, second}
        return a.args[0] if same else None

    def _squeeze(self, a: Op, dim: Op) -> Op | None:
        """`sum(keepdim=True)` squeezed is a sum without."""
        if a.rule in ("sum", "mean", "amax", "amin") and not self.opaque(a):
            x, dims, keepdim = a.args
            whole = dims_of(dims) == dims_of(dim)
            one = isinstance(literal(dims), int) and self._same_dim(a, dims, dim)
            if literal(keepdim) is True and (whole or one):
                return self(a.rule, x, dims, self.const(False))
        if self.algebra.is_(a, "unsqueeze") and self._same_dim(a, a.args[1], dim):
            return a.args[0]
        if a.rule == "sum" and not self.opaque(a) and len(dims_of(a.args[1]) or ()) > 1:
            return self._squeezed_sum(a, dim)
        if self.algebra.is_(a, "neg"):
            return self("neg", self("squeeze", a.args[0], dim))
        if self.algebra.is_(a, "mul") and a.args[0].kind == "static":
            return self("mul", a.args[0], self("squeeze", a.args[1], dim))
        return None

    def _same_dim(self, a: Op, one: Op, two: Op) -> bool:
        places = [shapes.position(a.shape, dim_of(dim)) for dim in (one, two)]
        return (
            dim_of(one) == dim_of(two) or None not in places and places[0] == places[1]
        )

    def _squeezed_sum(self, a: Op, dim: Op) -> Op | None:
        """`sum((-2, -1), keepdim=True)` squeezed at -2: a sum, unsqueezed at -1."""
        x, dims, keepdim = a.args
        plain = [at for at in dims_of(dims) or () if isinstance(at, int)]
        at = literal(dim)
        if literal(keepdim) is not True or at not in plain or max(plain) >= 0:
            return None
        found = self("sum", x, dims)
        rest = sorted((item for item in plain if item != at), reverse=True)
        for item in rest:
            gone = sum(1 for other in plain if other == at and other > item)
            found = self("unsqueeze", found, self.const(item + gone))
        return found

    def _unsqueeze(self, a: Op, dim: Op) -> Op | None:
        at = dim_of(dim)
        wide = shapes.unsqueezed(a.shape, at)
        if a.rule == "sum" and not self.opaque(a):
            x, dims, keepdim = a.args
            if literal(keepdim) is False and dims_of(dims) == (at,):
                return self("sum", x, dims, self.const(True))
        if self.algebra.is_(a, "squeeze") and a.args[0].shape == wide:
            return a.args[0]
        if a.rule == "expanded" and a.args[0].shape == shapes.SCALAR:
            return self.expanded(a.args[0], wide)
        if self.algebra.is_(a, "neg"):
            return self("neg", self("unsqueeze", a.args[0], dim))
        return None

    def _flip(self, a: Op, dims: Op) -> Op | None:
        return a.args[0] if a.rule == "flip" and a.args[1] is dims else None
