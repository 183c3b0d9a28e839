"""Sums, products and quotients, as an author would write them.

In: the operands. Out: the op, or None where there is nothing to simplify. Invariant: same value in exact arithmetic and the
same shape; what a forward local holds is not taken apart, and no 0/0 appears or disappears.
"""

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Expression, Op, is_number, number
from scaffold.derive.graph.precision import of_default_dtype
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.products import Product
from scaffold.derive.simplify.registry import Registry
from scaffold.formula import Node

ALGEBRA = Registry()


# Products


@ALGEBRA.on("mul")
def mul(make: Maker, a: Op, b: Op) -> Op | None:
    if is_number(a, 0) or is_number(b, 0):
        return a if is_number(a, 0) else b
    if is_number(a, 1):
        return b
    if is_number(b, 1):
        return a
    if b.kind == "static" and a.kind != "static":
        a, b = b, a
        return make("mul", a, b)
    if is_number(a, -1):
        return make("neg", b)
    return _signs_out(make, "mul", a, b) or _constants_out(make, a, b)


def _signs_out(make: Maker, rule: str, a: Op, b: Op) -> Op | None:
    if is_minus(a) and b.is_tensor:
        return make("neg", make(rule, make("neg", a), b))
    if is_minus(b) and a.is_tensor and rule == "div":
        return make("neg", make(rule, a, make("neg", b)))
    if make.is_(a, "neg"):
        if number(b) is not None and rule == "mul":
            return make(rule, a.args[0], make("neg", b))
        return make("neg", make(rule, a.args[0], b))
    if make.is_(b, "neg"):
        if number(a) is not None:
            return make(rule, make("neg", a), b.args[0])
        return make("neg", make(rule, a, b.args[0]))
    return None


def _constants_out(make: Maker, a: Op, b: Op) -> Op | None:
    """`2 * (3 * x)`, `x * (2 * y)`, `x * (1 / y)`."""
    if a.kind == "static":
        if make.is_(b, "mul") and b.args[0].kind == "static":
            both = make("mul", a, b.args[0])
            return make("mul", both, b.args[1])
        if make.is_(b, "div") and b.args[1].kind == "static":
            quotient = make("div", a, b.args[1])
            if number(a) is not None and number(quotient) is not None:
                return make("mul", quotient, b.args[0])
            return make("div", make("mul", a, b.args[0]), b.args[1])
        return None
    for one, two, first in ((a, b, True), (b, a, False)):
        if make.is_(one, "mul") and one.args[0].kind == "static":
            pair = (one.args[1], two) if first else (two, one.args[1])
            return make("mul", one.args[0], make("mul", *pair))
        if make.is_(one, "div") and one.args[1].kind == "static":
            pair = (one.args[0], two) if first else (two, one.args[0])
            return make("div", make("mul", *pair), one.args[1])
    if make.is_(b, "div") and is_number(b.args[0], 1):
        return make("div", a, b.args[1])
    return None


@ALGEBRA.on("div")
def div(make: Maker, a: Op, b: Op) -> Op | None:
    if is_number(b, 1) or is_number(a, 0):
        return a
    signs = _signs_out(make, "div", a, b)
    if signs is not None:
        return signs
    if make.is_(a, "mul") and a.args[0] is b and b.kind == "static":
        return a.args[1]
    if make.is_(a, "div") and a.args[1].kind == b.kind == "static":
        return make("div", a.args[0], make("mul", a.args[1], b))
    reduced = _reduced(make, a, b) if b.kind == "static" else None
    if reduced is not None:
        return reduced
    if make.is_(a, "mul") and a.args[0].kind == "static" and b.kind == "static":
        fold = make("div", a.args[0], b)
        if number(fold) is not None:
            return make("mul", fold, a.args[1])
    if make.is_(a, "mul") and a.args[0].kind == "static" and b.kind != "static":
        return make("mul", a.args[0], make("div", a.args[1], b))
    if make.is_(b, "mul") and number(b.args[0]) is not None:
        part = make("div", a, b.args[1])
        return make("div", part, b.args[0])
    if b.kind != "static" and make.is_(a, "div") and a.args[1].kind == "static":
        return make("div", make("div", a.args[0], b), a.args[1])
    return None


@ALGEBRA.on("mul")
def cancelled(make: Maker, a: Op, b: Op) -> Op | None:
    """`x / exp(y) * exp(y)` as `x`: an exponential is not zero."""
    if not (a.is_tensor and b.is_tensor):
        return None
    one, two = make.products.of(a), make.products.of(b)
    for below, above in ((one, two), (two, one)):
        for op in below.below:
            if op.rule == "exp" and op in above.tensors:
                parts = [
                    make.products.op(below.without(Product(1, (), (), (op,)))),
                    make.products.op(above.without(Product(1, (), (op,)))),
                ]
                found = make("mul", *(parts if below is one else parts[::-1]))
                whole = shapes.broadcast(a.shape, b.shape)
                return found if found.shape == whole else None
    return None


def _reduced(make: Maker, a: Op, b: Op) -> Op | None:
    """`2 * x / (2 * n)` as `x / n`, `1 / m * x / n` as `x / (m * n)`."""
    if make.is_(a, "mul"):
        match a.args[0].data:
            case Expression(Node("binary", "/", (Node("constant", "1"), below))):
                divisor = make("mul", make.program.static(below), b)
                return make("div", a.args[1], divisor)
    of_b = make.products.of(b)
    divisors = [op for op in of_b.statics if number(op) is None]
    if not make.is_(a, "mul") or not divisors or of_b.number == 1:
        return None
    value = number(a.args[0])
    if value is None or value != of_b.number:
        return None
    rest = make.products.op(of_b._replace(number=1))
    return make("div", a.args[1], rest)


# Sums


@ALGEBRA.on("neg")
def neg(make: Maker, a: Op) -> Op | None:
    if make.is_(a, "neg"):
        return a.args[0]
    if _has_number(make, a):
        return make("mul", make("neg", a.args[0]), a.args[1])
    if make.is_(a, "sub"):
        return make("sub", a.args[1], a.args[0])
    if make.is_(a, "summed_to") and _has_number(make, a.args[0]):
        inner = make("neg", a.args[0])
        return make.summed_to(inner, a)
    return None


def _has_number(make: Maker, op: Op) -> bool:
    return make.is_(op, "mul") and number(op.args[0]) is not None


@ALGEBRA.on("add")
def add(make: Maker, a: Op, b: Op) -> Op | None:
    if is_number(a, 0) and b.kind != "bool":
        return b
    if is_number(b, 0) and a.kind != "bool":
        return a
    if make.is_(b, "neg"):
        return make("sub", a, b.args[0])
    if make.is_(a, "neg"):
        return make("sub", b, a.args[0])
    if (
        make.is_(b, "mul")
        and (value := number(b.args[0])) is not None
        and is_negative(value)
    ):
        return make("sub", a, make("neg", b))
    return _factored(make, "add", a, b)


@ALGEBRA.on("sub")
def sub(make: Maker, a: Op, b: Op) -> Op | None:
    if a is b and a.is_tensor:
        return make.const(0)
    if is_number(b, 0):
        return a
    if is_number(a, 0):
        return make("neg", b)
    if make.is_(b, "neg"):
        return make("add", a, b.args[0])
    if make.is_(a, "neg") and b.kind != "static":
        return make("neg", make("add", a.args[0], b))
    if (
        make.is_(b, "mul")
        and (value := number(b.args[0])) is not None
        and is_negative(value)
    ):
        return make("add", a, make("neg", b))
    return _factored(make, "sub", a, b)


def factors(make: Maker, op: Op) -> list[Op]:
    """The factors of a product, from the left."""
    if make.is_(op, "mul"):
        return [*factors(make, op.args[0]), *factors(make, op.args[1])]
    return [op]


def product(make: Maker, factors: list[Op]) -> Op | None:
    """The product of factors; None for no factor."""
    result: Op | None = None
    for factor in factors:
        result = factor if result is None else make("mul", result, factor)
    return result


def _factored(make: Maker, rule: str, a: Op, b: Op) -> Op | None:
    """`g * x + g * y` as `g * (x + y)`, `x / n - y / n` as `(x - y) / n`."""
    if not (a.is_tensor and b.is_tensor):
        return None
    for products in (make.products, make.deep_products):
        one, two = products.of(a), products.of(b)
        shared = one.common(two)
        if shared == Product() or not (shared.has_factors or one.number == two.number):
            continue
        if not shared.has_factors:
            shared = Product(shared.number)
        rest = [products.op(term.without(shared)) for term in (one, two)]
        if any(item.kind == "bool" for item in rest):
            continue  # PyTorch does not subtract masks, and adds them as `or`
        if any(_is_fraction(item) for item in rest):
            continue  # Python does not divide by a size of 0
        if any(map(of_default_dtype, rest)):
            continue  # a mask over its count is float32 without its cotangent
        inner = make(rule, *rest)
        found = products.op_times(shared, inner)
        if found.shape == shapes.broadcast(a.shape, b.shape):
            return found
    return None


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
