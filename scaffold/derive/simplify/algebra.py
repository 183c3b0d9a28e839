"""Sums, products and quotients, as an author would write them.

In: the operands. Out: the op, or None where there is nothing to simplify. Invariant: same value in exact arithmetic and the
same shape; what a forward local holds is not taken apart, and no 0/0 appears or disappears.
"""

from collections.abc import Callable
from typing import Protocol

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Expression, Op, Program, is_number, number
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.simplify.products import Term, Terms, common
from scaffold.formula import Node


class Make(Protocol):
    """What makes ops."""

    program: Program

    def __call__(self, name: str, *args: Op) -> Op: ...
    def summed_to(self, op: Op, like: Op) -> Op: ...


class Algebra:
    """Rewrites of `+ - * /` and of what stands around them."""

    def __init__(
        self, program: Program, make: Make, opaque: Callable[[Op], bool]
    ) -> None:
        self.make, self.opaque = make, opaque
        self.atoms = set[Op]()  # gradients that several others read
        self.products = set[Op]()  # those of the forward
        self.terms = Terms(program, make, self.is_whole)
        self.deep_terms = Terms(program, make, self.is_forward)

    def is_forward(self, op: Op) -> bool:
        """Whether an op stays whole because the forward has it."""
        return op in self.products or self.opaque(op)

    def is_whole(self, op: Op) -> bool:
        """Whether an op is not taken apart at first."""
        return op in self.atoms or self.is_forward(op)

    def is_(self, op: Op, *rules: str) -> bool:
        """Whether an op is one of these, and may be taken apart."""
        return op.rule in rules and not self.opaque(op)

    # Products

    def mul(self, a: Op, b: Op) -> Op | None:
        if is_number(a, 0) or is_number(b, 0):
            return a if is_number(a, 0) else b
        if is_number(a, 1):
            return b
        if is_number(b, 1):
            return a
        if b.kind == "static" and a.kind != "static":
            a, b = b, a
            return self.make("mul", a, b)
        if is_number(a, -1):
            return self.make("neg", b)
        return self._signs_out("mul", a, b) or self._constants_out(a, b)

    def _signs_out(self, rule: str, a: Op, b: Op) -> Op | None:
        if is_minus(a) and b.is_tensor:
            return self.make("neg", self.make(rule, self.make("neg", a), b))
        if is_minus(b) and a.is_tensor and rule == "div":
            return self.make("neg", self.make(rule, a, self.make("neg", b)))
        if self.is_(a, "neg"):
            if number(b) is not None and rule == "mul":
                return self.make(rule, a.args[0], self.make("neg", b))
            return self.make("neg", self.make(rule, a.args[0], b))
        if self.is_(b, "neg"):
            if number(a) is not None:
                return self.make(rule, self.make("neg", a), b.args[0])
            return self.make("neg", self.make(rule, a, b.args[0]))
        return None

    def _constants_out(self, a: Op, b: Op) -> Op | None:
        """`2 * (3 * x)`, `x * (2 * y)`, `x * (1 / y)`."""
        if a.kind == "static":
            if self.is_(b, "mul") and b.args[0].kind == "static":
                both = self.make("mul", a, b.args[0])
                return self.make("mul", both, b.args[1])
            if self.is_(b, "div") and b.args[1].kind == "static":
                quotient = self.make("div", a, b.args[1])
                if number(a) is not None and number(quotient) is not None:
                    return self.make("mul", quotient, b.args[0])
                return self.make("div", self.make("mul", a, b.args[0]), b.args[1])
            return None
        for one, two, first in ((a, b, True), (b, a, False)):
            if self.is_(one, "mul") and one.args[0].kind == "static":
                pair = (one.args[1], two) if first else (two, one.args[1])
                return self.make("mul", one.args[0], self.make("mul", *pair))
            if self.is_(one, "div") and one.args[1].kind == "static":
                pair = (one.args[0], two) if first else (two, one.args[0])
                return self.make("div", self.make("mul", *pair), one.args[1])
        if self.is_(b, "div") and is_number(b.args[0], 1):
            return self.make("div", a, b.args[1])
        return None

    def div(self, a: Op, b: Op) -> Op | None:
        if is_number(b, 1) or is_number(a, 0):
            return a
        signs = self._signs_out("div", a, b)
        if signs is not None:
            return signs
        if self.is_(a, "mul") and a.args[0] is b and b.kind == "static":
            return a.args[1]
        if self.is_(a, "div") and a.args[1].kind == b.kind == "static":
            return self.make("div", a.args[0], self.make("mul", a.args[1], b))
        reduced = self._reduced(a, b) if b.kind == "static" else None
        if reduced is not None:
            return reduced
        if self.is_(a, "mul") and a.args[0].kind == "static" and b.kind == "static":
            fold = self.make("div", a.args[0], b)
            if number(fold) is not None:
                return self.make("mul", fold, a.args[1])
        if self.is_(a, "mul") and a.args[0].kind == "static" and b.kind != "static":
            return self.make("mul", a.args[0], self.make("div", a.args[1], b))
        if self.is_(b, "mul") and number(b.args[0]) is not None:
            part = self.make("div", a, b.args[1])
            return self.make("div", part, b.args[0])
        if b.kind != "static" and self.is_(a, "div") and a.args[1].kind == "static":
            return self.make("div", self.make("div", a.args[0], b), a.args[1])
        return None

    def cancelled(self, rule: str, a: Op, b: Op) -> Op | None:
        """`x / exp(y) * exp(y)` as `x`: an exponential is not zero."""
        if rule != "mul" or not (a.is_tensor and b.is_tensor):
            return None
        one, two = self.terms.of(a), self.terms.of(b)
        for below, above in ((one, two), (two, one)):
            for op in below.below:
                if op.rule == "exp" and op in above.tensors:
                    parts = [
                        self.terms.op(below.without(Term(1, (), (), (op,)))),
                        self.terms.op(above.without(Term(1, (), (op,)))),
                    ]
                    found = self.make("mul", *(parts if below is one else parts[::-1]))
                    whole = shapes.broadcast(a.shape, b.shape)
                    return found if found.shape == whole else None
        return None

    def _reduced(self, a: Op, b: Op) -> Op | None:
        """`2 * x / (2 * n)` as `x / n`, `1 / m * x / n` as `x / (m * n)`."""
        if self.is_(a, "mul"):
            match a.args[0].data:
                case Expression(Node("binary", "/", (Node("constant", "1"), below))):
                    divisor = self.make("mul", self.make.program.static(below), b)
                    return self.make("div", a.args[1], divisor)
        of_b = self.terms.of(b)
        divisors = [op for op in of_b.statics if number(op) is None]
        if not self.is_(a, "mul") or not divisors or of_b.number == 1:
            return None
        value = number(a.args[0])
        if value is None or value != of_b.number:
            return None
        rest = self.terms.op(of_b._replace(number=1))
        return self.make("div", a.args[1], rest)

    # Sums

    def neg(self, a: Op) -> Op | None:
        if self.is_(a, "neg"):
            return a.args[0]
        if self._has_number(a):
            return self.make("mul", self.make("neg", a.args[0]), a.args[1])
        if self.is_(a, "sub"):
            return self.make("sub", a.args[1], a.args[0])
        if self.is_(a, "summed_to") and self._has_number(a.args[0]):
            inner = self.make("neg", a.args[0])
            return self.make.summed_to(inner, a)
        return None

    def _has_number(self, op: Op) -> bool:
        return self.is_(op, "mul") and number(op.args[0]) is not None

    def add(self, a: Op, b: Op) -> Op | None:
        if is_number(a, 0) and b.kind != "bool":
            return b
        if is_number(b, 0) and a.kind != "bool":
            return a
        if self.is_(b, "neg"):
            return self.make("sub", a, b.args[0])
        if self.is_(a, "neg"):
            return self.make("sub", b, a.args[0])
        if (
            self.is_(b, "mul")
            and (value := number(b.args[0])) is not None
            and is_negative(value)
        ):
            return self.make("sub", a, self.make("neg", b))
        return self._factored("add", a, b)

    def sub(self, a: Op, b: Op) -> Op | None:
        if a is b and a.is_tensor:
            return self.one(0)
        if is_number(b, 0):
            return a
        if is_number(a, 0):
            return self.make("neg", b)
        if self.is_(b, "neg"):
            return self.make("add", a, b.args[0])
        if self.is_(a, "neg") and b.kind != "static":
            return self.make("neg", self.make("add", a.args[0], b))
        if (
            self.is_(b, "mul")
            and (value := number(b.args[0])) is not None
            and is_negative(value)
        ):
            return self.make("add", a, self.make("neg", b))
        return self._factored("sub", a, b)

    def factors(self, op: Op) -> list[Op]:
        """The factors of a product, from the left."""
        if self.is_(op, "mul"):
            return [*self.factors(op.args[0]), *self.factors(op.args[1])]
        return [op]

    def product(self, factors: list[Op]) -> Op | None:
        """The product of factors; None for no factor."""
        result: Op | None = None
        for factor in factors:
            result = factor if result is None else self.make("mul", result, factor)
        return result

    def _factored(self, rule: str, a: Op, b: Op) -> Op | None:
        """`g * x + g * y` as `g * (x + y)`, `x / n - y / n` as `(x - y) / n`."""
        if not (a.is_tensor and b.is_tensor):
            return None
        for terms in (self.terms, self.deep_terms):
            one, two = terms.of(a), terms.of(b)
            shared = common(one, two)
            if shared == Term() or not (any(shared[1:]) or one.number == two.number):
                continue
            if not any(shared[1:]):
                shared = Term(shared.number)
            rest = [terms.op(term.without(shared)) for term in (one, two)]
            if any(item.kind == "bool" for item in rest):
                continue  # PyTorch does not subtract masks, and adds them as `or`
            if any(_is_fraction(item) for item in rest):
                continue  # Python does not divide by a size of 0
            if any(map(of_default_dtype, rest)):
                continue  # a mask over its count is float32 without its cotangent
            inner = self.make(rule, *rest)
            found = self.times(terms, shared, inner)
            if found.shape == shapes.broadcast(a.shape, b.shape):
                return found
        return None

    def times(self, terms: Terms, outer: Term, inner: Op) -> Op:
        """A sum times its common factors; those that divide come last."""
        above = terms.op(outer._replace(below=(), static_below=()))
        made = inner if is_number(above, 1) else self.make("mul", above, inner)
        for divisor in outer.below:
            made = self.make("div", made, divisor)
        if outer.static_below:
            below = terms.op(Term(1, outer.static_below))
            made = self.make("div", made, below)
        return made

    def one(self, value: int) -> Op:
        raise NotImplementedError


def _is_fraction(op: Op) -> bool:
    """Whether a Python value is divided by another that is no number."""
    return op.rule == "static" and any(
        part.kind == "binary" and part.label == "/" and part.args[1].kind != "constant"
        for part in op.expression.walk()
    )


def is_minus(op: Op) -> bool:
    """Whether a Python value is written with a minus, but is no number."""
    if op.rule != "static":
        return False
    return op.expression.kind == "unary" and op.expression.label == "-"


def is_negative(value: complex) -> bool:
    """Whether a real number is below zero."""
    return not isinstance(value, complex) and value < 0
