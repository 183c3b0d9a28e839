"""Make ops of the backward, each simplified as it is made: `make.mul(g, make.const(1))` -> `g`.

`reverse` and the rules of the table make every op of the gradients by a `Maker`; so no unsimplified graph is ever built.

In: a rule's name and ops. Out: the simplest op of that value. Invariant: the value and the shape are those of the plain
application; a value with a name in the forward is read there rather than taken apart.

The other modules of this package register simplifications of each primitive: functions that return an op of the same value and
shape, or None. They are called in the order of their module, which `gradients` decides.

    @REWRITES.on("conj")
    def conj_of_a_real_value(make: Maker, a: Op) -> Op | None: ...

    @HOISTED.on_each("mul", "div")
    def out_of_a_mask(make: Maker, name: str, args: tuple[Op, ...]) -> Op | None: ...

Words: to take an op apart is to look at its arguments, as `x` in `-x`, and to make another op of these. An opaque op is read by its
name in the forward, never taken apart; a whole one is opaque, or a shared cotangent: one read by the gradients of several inputs,
which gets a name. A `static` op is a Python value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from scaffold.derive.graph import shapes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import choose
from scaffold.derive.graph.op import OfShape, Op, SummedTo, is_number, literal, tensors
from scaffold.derive.graph.operations import Algebra
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.graph.shapes import Shape
from scaffold.derive.graph.static_values import UnsupportedError, fold
from scaffold.derive.simplify.identities import Identities
from scaffold.derive.simplify.patterns import Matcher
from scaffold.derive.simplify.products import Product, Products

Simplification = Callable[..., Op | None]  # of a maker and the arguments
Simplifications = Mapping[str, tuple[Simplification, ...]]
Function = Callable[..., Any]


class Registry:
    """The simplifications of one module, by the primitive they simplify, in the order of their definition."""

    def __init__(self) -> None:
        self.of: dict[str, list[Simplification]] = {}

    def on(self, *names: str) -> Callable[[Function], Function]:
        """Return a decorator that registers a simplification of the primitives `names`: it is called with the maker and the arguments."""

        def register(function: Function) -> Function:
            for name in names:
                self.of.setdefault(name, []).append(function)
            return function

        return register

    def on_each(self, *names: str) -> Callable[[Function], Function]:
        """Return a decorator that registers a simplification of several primitives: it gets maker, primitive's name and arguments."""

        def register(function: Function) -> Function:
            for name in names:
                self.of.setdefault(name, []).append(_of_name(function, name))
            return function

        return register


def _of_name(function: Function, name: str) -> Simplification:
    """Return a simplification that passes the primitive's name and a tuple of arguments to a function registered by `on_each`."""
    return lambda make, *args: function(make, name, args)


def in_order(registries: Iterable[Registry]) -> Simplifications:
    """Return the simplifications of each primitive, from several registries; the first result of them is taken, so order matters."""
    found: dict[str, list[Simplification]] = {}
    for registry in registries:
        for name, functions in registry.of.items():
            found.setdefault(name, []).extend(functions)
    return {name: tuple(functions) for name, functions in found.items()}


class Maker(Algebra):
    """A maker of ops of the backward: `make("exp", x)`, or `make.exp(x)`, returns the simplest op of that value."""

    def __init__(
        self,
        applier: Applier,
        simplifications: Simplifications,
        opaque: Callable[[Op], bool],
        forward_products: Mapping[Op, Product[Op]],
        precision: Precision,
    ) -> None:
        """Make ops by an applier, simplified by `simplifications`; `opaque` says which ops have a name and stay whole.

        `forward_products` maps products of the forward, to be reused, to their factors; `precision` decides which dtypes are equal.
        """
        self.applier, self.program = applier, applier.program
        self.simplifications = simplifications
        self.opaque = opaque
        matcher = Matcher(self.may_be_read_through)
        self.identities = Identities(applier.table, matcher, self.program.real)
        self.forward_products = forward_products
        self.precision = precision
        self.results = tuple(precision.results.values())  # of the forward
        self.shared = set[Op]()  # cotangents read by several gradients
        self.made: dict[tuple[str, tuple[Op, ...]], Op] = {}  # for this `shared`
        # The factors of ops; `deep_products` also takes shared cotangents apart.
        self.products = Products(self.program, self, self.is_whole)
        self.deep_products = Products(self.program, self, self.is_forward)

    def __call__(self, name: str, *args: Op) -> Op:
        """Return the op of a primitive: by an identity of the table, else the first simplification with a result, else as it is."""
        found = self.made.get((name, args))
        if found is None:
            found = self.made[name, args] = self._simplest(name, args)
        return found

    def _simplest(self, name: str, args: tuple[Op, ...]) -> Op:
        """Return the simplest op of a primitive; Python values alone are computed, or written as an expression: `2 * n`.

        Raise `UnsupportedError` for Python values of a primitive of tensors alone.
        """
        # Python values alone, except in `where`: that is left to the passes below.
        if args and not any(tensors(args)) and name != "where":
            folded = fold(self.program, name, args)
            if folded is not None:
                return folded
            if self._keeps_zero(name, args[0]):
                return args[0]
            raise UnsupportedError(f"{name} of Python values")
        same = self.identities(self, name, args)
        if same is not None:
            return same
        for simpler in self.simplifications.get(name, ()):
            found = simpler(self, *args)
            if found is not None:
                return found
        return self.applier.named(name, *args)

    def _keeps_zero(self, name: str, first: Op) -> bool:
        """Return whether a linear primitive of one tensor is applied to the number 0, the gradient of an unused result: it gives 0.

        Without it, `torch.aminmax(x, dim=-1).max` would be left to autograd.
        """
        facts = self.program.facts(name) if is_number(first, 0) else None
        return facts is not None and facts.linear and len(facts.differentiable) == 1

    def take_for_real(self, ops: Iterable[Op]) -> None:
        """Note that values are used in a formula valid for real ones only: complex inputs are then refused."""
        self.program.real.update(tensors(ops))

    # Ops to be taken apart

    def share(self, cotangent: Op) -> None:
        """Note a cotangent read by several gradients: it stays whole from now on.

        Ops made before may have taken it apart, so they are forgotten.
        """
        if cotangent not in self.shared:
            self.shared.add(cotangent)
            self.products.forget(cotangent)
            self.made.clear()

    def is_forward(self, op: Op) -> bool:
        """Return whether an op stays whole because it is a value of the forward."""
        return op in self.forward_products or self.opaque(op)

    def is_whole(self, op: Op) -> bool:
        """Return whether an op is not taken apart: a value of the forward, or a cotangent read by several gradients.

        Some simplifications take the latter apart all the same, by `deep_products`: to factor a sum.
        """
        return op in self.shared or self.is_forward(op)

    def is_(self, op: Op, *rules: str) -> bool:
        """Return whether an op has one of these rules, and no name in the forward: then a simplification may take it apart."""
        return op.rule in rules and not self.opaque(op)

    def may_be_read_through(self, op: Op) -> bool:
        """Return whether an identity may take an op apart: one with a name only if it is a view, which computes nothing."""
        return op.facts.rearranges or not self.opaque(op)

    # Ops outside the table

    def const(self, value: object) -> Op:
        """Return a Python literal as an op."""
        return self.program.const(value)

    def choose(self, test: Op, body: Op, orelse: Op) -> Op:
        """Return one of two values, by a test fixed in each call."""
        return choose(self.program, test, body, orelse)

    def summed_to(self, op: Op, shape: Shape, like: Op | None) -> Op:
        """Return a value summed to the shape it was broadcast from; `like` is an input of that shape, if any, to read it from.

        A minus goes outside, to meet others.
        """
        if op.rule == "neg" and not self.opaque(op):
            return self.neg(self.summed_to(op.args[0], shape, like))
        data = SummedTo(shape, like)
        return self.program.op(
            "summed_to", (op,), data, kind=op.kind, shape=shape, active=op.active
        )

    def expanded(self, op: Op, shape: Shape) -> Op:
        """Return a value expanded to a shape; a minus goes outside, to meet others, and the number 0 stays, as it has any shape."""
        if op.shape == shape or is_number(op, 0):
            return op
        if op.rule == "expanded":
            op = op.args[0]
        if op.rule == "neg" and not self.opaque(op):
            return self.neg(self.expanded(op.args[0], shape))
        return self.program.op(
            "expanded",
            (op,),
            OfShape(shape),
            kind=op.kind,
            shape=shape,
            active=op.active,
        )

    def reshaped(self, op: Op, shape: Shape) -> Op:
        """Return a value reshaped to a shape with as many elements; reshapes before it, and dims kept by a reduction, are dropped.

        A minus goes outside, to meet others.
        """
        if op.shape == shape:
            return op
        while op.rule in ("reshaped", "unsqueeze") and not self.opaque(op):
            op = op.args[0]
        if op.shape == shape:
            return op
        # All elements are one scalar, in whatever order they stand.
        if op.rule == "expanded" and op.args[0].shape == shapes.SCALAR:
            return self.expanded(op.args[0], shape)
        if self._keeps_dims_of(op, shape):
            x, dims, _ = op.args
            return self(op.rule, x, dims, self.const(False))
        if op.rule == "neg" and not self.opaque(op):
            return self.neg(self.reshaped(op.args[0], shape))
        return self.program.op(
            "reshaped",
            (op,),
            OfShape(shape),
            kind=op.kind,
            shape=shape,
            active=op.active,
        )

    def _keeps_dims_of(self, op: Op, shape: Shape) -> bool:
        """Return whether an op is a reduction with `keepdim`, and `shape` is its shape without the reduced dims: then `keepdim` is dropped.

        So for the gradient of `w` in `w.view(1, -1, 1) * x`.
        """
        # Some have more arguments, as the order of a norm.
        if op.facts.category != "reduction" or self.is_whole(op) or len(op.args) != 3:
            return False
        x, dims, keepdim = op.args
        if literal(keepdim) is not True:
            return False
        return shapes.reduced(x.shape, dims_of(dims), False) == shape

    def zeros(self, like: Op, shape: Shape) -> Op:
        """Return zeros of a shape, with dtype and device of another tensor."""
        return self.program.op(
            "zeros", (like,), OfShape(shape), kind=like.kind, shape=shape
        )
