"""Sums and products with one-hot tensors, without the tensor of zeros: `probs - onehot` is a scatter into `probs`.

In: gradients. Out: the same without a tensor for the zeros where there is a shorter way. Invariant: same value, same shape.
"""

from collections.abc import Collection, Mapping

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import Op, is_number
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.graph.shapes import Shape
from scaffold.derive.simplify.constructors import Maker, Registry
from scaffold.derive.simplify.products import Product, taken_apart
from scaffold.derive.simplify.rebuilding import (
    TURNED,
    Renewal,
    Users,
    rebuilt,
    renewed,
    users_of,
)

ONE_HOTS = Registry()


@ONE_HOTS.on("scatter")
def _of_what_comes_in(make: Maker, a: Op, dim: Op, index: Op, value: Op) -> Op | None:
    """A one-hot in zeros like the gradient that comes in, in place of one that is computed of it."""
    if not (make.is_(a, "zeros") and is_number(value, 1)):
        return None
    (like,) = a.args
    coming = make.precision.of_gradients(like)
    seed = next(iter(coming), like)
    alike = make.precision(seed) == make.precision(like) and seed.kind == like.kind
    if seed is like or len(coming) > 1 or not alike:
        return None
    return make("scatter", make.zeros(seed, a.shape), dim, index, value)


@ONE_HOTS.on("div")
def _divided_apart(make: Maker, a: Op, b: Op) -> Op | None:
    """`g * onehot / y` as `g / y.gather(...) * onehot`: what `y` is elsewhere, zero maybe, is not divided by."""
    if not (make.is_(a, "mul") and b.is_tensor and b.shape == a.shape):
        return None
    source, onehot = a.args
    if not is_one_hot(onehot):
        return None
    return make.mul(make.div(source, _at(make, b, onehot)), onehot)


def _at(make: Maker, value: Op, onehot: Op) -> Op:
    """What a value is where a one-hot is 1."""
    _, dim, index, _ = onehot.args
    return make("gather", value, dim, index)


def is_one_hot(op: Op) -> bool:
    """Whether it is zeros with a 1 in each line."""
    ones = op.rule == "scatter" and is_number(op.args[3], 1)
    return ones and op.args[0].rule == "zeros"


def without_zeros(
    make: Maker, roots: Mapping[str, Op], held: Collection[Op]
) -> dict[Op, Op]:
    """What each op below the gradients becomes where the one place of a one-hot is written, and not all of its zeros added.

    `probs - onehot` is `probs.scatter(-1, index, probs.gather(-1, index) - 1)`, if nothing else reads the one-hot.
    """
    if not any(is_one_hot(op) for root in roots.values() for op in root.walk()):
        return {}
    users = users_of(roots.values())

    def in_place(op: Op, of: Renewal) -> Op:
        return rebuilt(make, _in_its_place(make, op, users) or op, of)

    return renewed(roots.values(), held, in_place)


def _in_its_place(make: Maker, op: Op, users: Users) -> Op | None:
    """`x - onehot` and `x + onehot`, a multiple of it too, without the zeros."""
    if op.rule not in TURNED:
        return None
    own, other = op.args
    term = taken_apart(other, lambda part: len(users.get(part, ())) > 1)
    onehot = next(filter(is_one_hot, term.tensors), None)
    if onehot is None or len(users[onehot]) > 1:
        return None  # what another value reads is there anyway
    if not _is_like(make, own, onehot, op):
        return None
    factor = make.products.op(term.without(Product(1, (), (onehot,))))
    return _scattered(make, op.rule, own, onehot, factor)


def _is_like(make: Maker, own: Op, onehot: Op, total: Op) -> bool:
    """Whether a value has shape and precision of its sum with a one-hot."""
    same = own.shape == onehot.shape and own.kind == onehot.kind == total.kind
    return same and make.precision(own) >= make.precision(total)


def _scattered(make: Maker, rule: str, own: Op, onehot: Op, factor: Op) -> Op | None:
    """A value plus or minus a factor at one place of each line."""
    _, dim, index, _ = onehot.args
    if factor.is_tensor and not factor.shape == index.shape == _line(own, dim):
        return None  # not one number for each line
    value = make(rule, _at(make, own, onehot), factor)
    return make.applier.named(onehot.rule, own, dim, index, value)


def _line(op: Op, dim: Op) -> Shape:
    return shapes.reduced(op.shape, dims_of(dim), True)
