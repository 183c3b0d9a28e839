"""Reverse accumulation: from the cotangents of the outputs back to the gradients of the inputs.

In: the lowered forward and the cotangent of each result. Out: an op for each input's gradient, with exactly its shape
and kind. Invariant: all gradients reaching an op are added before they are passed on, and summed to the op's shape
once for each shape they come in.

Ops are visited in reverse order of creation, so all users of an op come before it. For each op, the waiting
cotangents are added up (`_gathered`) and turned into those of its arguments (`_contributions`): by the formulas of
its rule, or of a rule for a composition (`x * sigmoid(x)` is silu); by a function, if ranks or indices decide
(`CODED`); or by autograd of the one call, if there is no formula.

Words: an op is one application of a primitive in the graph; active: a gradient is wanted through it. `g` is the
cotangent of an op, the gradient of the loss with respect to its value. A contribution is one user's part of an
argument's cotangent; `Pairs` are arguments with theirs. A choice is `a if test else b` (op `cond`), as of optional
inputs; a group is an op with several results, each an `item` of it. A value `handed` is one that forward returns to
have it saved: autograd hands in a gradient for it, as for any output. A singular op can have an infinite gradient, as
a division; `env` maps the names in a formula of the table to ops.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from scaffold.derive.autograd_fallback import pulled_back
from scaffold.derive.graph import shapes
from scaffold.derive.graph.conditions import is_recorded, may_be_zero
from scaffold.derive.graph.op import (
    OfShape,
    Op,
    down_to,
    is_number,
    tensors,
)
from scaffold.derive.graph.precision import says_its_dtype, source_of
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.graph.shapes import (
    Broadcast,
    Dropped,
    Kept,
    OrScalar,
    Shape,
    broadcast,
)
from scaffold.derive.graph.signs import is_singular
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.autograd_saved import retained, values_read
from scaffold.derive.rules.coded_gradients import CODED
from scaffold.derive.rules.formula_words import cast_as, sum_to
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.rules.several_results import (
    are_all_taken,
    gradient_by_parts,
    gradients_of_parts,
    item_at,
    of_side,
)
from scaffold.derive.rules.table import Rule
from scaffold.derive.simplify.compositions import Composer
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.joined_terms import (
    as_one_choice,
    joined_parts,
    sure_of_one,
)
from scaffold.derive.simplify.rewrites import sums_to_zero
from scaffold.formula import Node

Pairs = list[tuple[Op, Op]]
NOTHING: Mapping[Op, Op] = {}


class HandedAloneError(Exception):
    """A saved value is reached by no gradient but the one autograd hands in."""

    def __init__(self, op: Op) -> None:
        self.op = op


class Reversed(NamedTuple):
    """The gradients, and the forward op of each cotangent on the way."""

    gradients: dict[str, Op]
    of: dict[Op, Op]  # a cotangent -> the forward op
    # one user's contribution to a cotangent -> the forward op, and that user
    via: dict[Op, tuple[Op, Op]]
    calls: tuple[Op, ...]  # ops differentiated by autograd itself


def exactly(make: Maker, gradient: Op, arg: Op) -> Op:
    """Declare a gradient to have its argument's shape, though its operands do not imply that: the rule says so.

    A minus stays outside, to meet others. An opaque one, with a name of its own, has the shape already.
    """
    if gradient.rule == "neg" and not make.opaque(gradient):
        return make.neg(exactly(make, gradient.args[0], arg))
    return (
        gradient if make.opaque(gradient) else make.program.shaped(gradient, arg.shape)
    )


def may_gain_a_dim(input_op: Op, results: Iterable[Op]) -> bool:
    """Return whether a result has one dim if an input has none, though their shapes are taken for the same.

    `x - x.mean(-1).unsqueeze(-1)`: a number has no last dim to reduce, and gains one. Its gradient has one dim too
    many.
    """
    return not input_op.shape.least and any(
        op.rule == "unsqueeze"
        and isinstance(op.args[0].shape.origin, Dropped)
        and isinstance(op.shape.origin, Kept)
        and op.shape.origin.base == input_op.shape
        for result in results
        for op in result.walk()
    )


def _is_zero(make: Maker, g: Op) -> bool:
    """Return whether a cotangent is a sum equal to zero in exact arithmetic, or a multiple of one, and so left out.

    Such a sum reaches the maximum subtracted by a softmax, and the mean of `x` through `(x - x.mean()) * (y -
    y.mean())`.
    """
    # Of a quotient, what is divided.
    if g.rule == "neg" or g.facts.operator == "/":
        return _is_zero(make, g.args[0])
    if g.facts.operator == "*":
        return any(_is_zero(make, arg) for arg in g.args)
    if not (g.facts.category == "reduction" and g.facts.linear):
        return False
    dims = dims_of(g.args[1])  # of its argument `dim`
    return dims is not None and sums_to_zero(make, g.args[0], dims)


class Reverse:
    """One walk back over the program."""

    def __init__(
        self,
        make: Maker,
        fuse: bool,
        handed: Mapping[Op, Op] = NOTHING,
        once: bool = False,
    ) -> None:
        """Begin a walk; with `fuse`, gradients may be one fused call of PyTorch (`F.silu`'s backward) instead of a formula.

        `handed` maps a value returned to be saved to its gradient; `once`: the backward itself need not be
        differentiable.
        """
        self.make, self.program = make, make.program
        self.fuse = fuse
        self.once = once  # whether calls differentiable only once are allowed
        # A saved value that forward returns -> its gradient, None unless the backward
        # is differentiated.
        self.handed = handed
        self.composed = Composer(make.applier)
        self.waiting: dict[Op, list[Op]] = {}  # cotangents received so far
        self.parts: dict[Op, dict[int, Op]] = {}  # ... and each of several results
        self.of: dict[Op, Op] = {}
        self.via: dict[Op, tuple[Op, Op]] = {}
        self.calls: list[Op] = []
        self.input_shapes = {op.shape for op in self.program.ops if op.rule == "input"}

    def run(self, seeds: Mapping[Op, list[Op]], inputs: Mapping[str, Op]) -> Reversed:
        """Walk back from the results' cotangents (`seeds`), and return the gradients of the active inputs, by name.

        An op is passed on once it is reached: by then all its users have sent their part.
        """
        for op, cotangents in seeds.items():
            if op.active:
                self.waiting.setdefault(op, []).extend(cotangents)
        # No result reads an op that was made after it.
        last = max((op.serial for op in seeds), default=-1)
        for op in reversed(self.program.ops[: last + 1]):
            is_reached = op in self.waiting or op in self.parts
            if op.rule != "input" and op.active and is_reached:
                # PyTorch takes complex values here too: the formula is for real ones. Of a
                # linear op it has no factor to be conjugated.
                if "takes_complex" in op.facts.flags and not op.facts.linear:
                    self.make.take_for_real(op.args)
                self._pass_on(op)
        gradients = {
            name: self._without_a_dim(self._of_input(op), op, seeds)
            for name, op in inputs.items()
            if op.active
        }
        return Reversed(gradients, self.of, self.via, tuple(self.calls))

    def _of_input(self, op: Op) -> Op:
        """Return an input's gradient: the sum of all cotangents reaching it, cast and in its shape; zeros if there are none."""
        found = self._gathered(op)
        found = found and self._cast_back(op, found)
        zeros = self.make.zeros(op, op.shape)
        return zeros if found is None else self._filled(found, zeros)

    def _without_a_dim(self, g: Op, op: Op, results: Iterable[Op]) -> Op:
        """Sum an input's gradient to its shape, if the forward adds a dim to an input without dims (`may_gain_a_dim`)."""
        if not may_gain_a_dim(op, results):
            return g
        return self.make.summed_to(g, op.shape, op)

    def _filled(self, g: Op, zeros: Op) -> Op:
        """Put zeros in place of the number 0 in a gradient, also in the branches of a choice: it must be a tensor of the shape.

        `g` is the gradient, `zeros` an op for zeros of its shape.
        """
        if g.rule != "cond" or not may_be_zero(g):
            return zeros if is_number(g, 0) else g
        return self.make.choose(g.test, *(self._filled(item, zeros) for item in g.args))

    def _gathered(self, op: Op) -> Op | None:
        """Return the sum of all cotangents waiting at an op, in the op's shape; None if there are none, or if the sum is zero.

        Those of one shape are added first, so that the sum over broadcast dims is taken once for each shape.
        """
        by_shape: dict[object, Op] = {}
        # Gradients of parts first: once two are added, they are no longer parts of a
        # dim.
        for item in joined_parts(self.make, self.waiting.get(op, ())):
            key = (item.shape, item.kind)
            earlier = by_shape.get(key)
            by_shape[key] = item if earlier is None else self.make.add(earlier, item)
        total: Op | None = None
        for item in by_shape.values():
            part = _fitted(self.make, item, op)
            if _is_zero(self.make, part):
                continue
            # Of one shape alone: two shapes must be summed here to be added.
            if len(by_shape) == 1 and self._may_be_summed_later(op, item, part):
                part = item
            # Summed, it is still one reader's part of the cotangent: for its name.
            if item in self.via and self.via[item][0] is op:
                self.via.setdefault(part, self.via[item])
            total = part if total is None else self.make.add(total, part)
        if total is None or is_number(total, 0):
            return None
        # Terms under one test are chosen together.
        one = as_one_choice(self.make, total)
        return sure_of_one(self.make, one)

    def _with_handed(self, op: Op, g: Op | None) -> Op:
        """Add the gradient handed in by autograd for a saved value, also returned by forward, to the value's cotangent.

        Raise `HandedAloneError` if nothing else reaches the value, or if a zero would pass through a singular step: 0
        times infinity is NaN.
        """
        if g is None or may_be_zero(g) and any(map(is_singular, op.walk())):
            raise HandedAloneError(op)
        pair = (self._filled(g, self.make.zeros(op, op.shape)), self.handed[op])
        return self.program.op(
            "accumulated", pair, None, kind=g.kind, shape=op.shape, active=True
        )

    def _may_be_summed_later(self, op: Op, g: Op, summed: Op) -> bool:
        """Return whether a cotangent may stay larger than its value, to be summed to the shapes of the arguments later.

        `summed` is the cotangent `g` summed to the shape of `op`. `g.sum_to_size((a * b).shape) * b` is `g * b`
        summed to the shape of `a`, for elementwise ops: one sum less. For a named value, summing first makes the
        products smaller.
        """
        # It has the shape already, was summed by dims, or lost its imaginary part: nothing is put off.
        if summed.rule != "summed_to" or summed is g or g.kind != op.kind:
            return False
        # The shape of an input is at hand to be summed to; that of `a * b` is not in general.
        if self.make.opaque(op) or op.shape in self.input_shapes:
            return False
        composed = self.composed(op)
        rule = composed.rule if composed else self.make.applier.table.of_op(op.rule)
        return rule is not None and rule.category == "elementwise"

    def _pass_on(self, op: Op) -> None:
        """Pass an op's cotangent on to its arguments: add up all its parts, and send each argument its own.

        An op with several results (a group) has one cotangent for each, collected in `parts`.
        """
        if op.kind == "group":
            self._arrive(op, self._of_parts(op, self.parts.get(op, {})))
            return
        g = self._gathered(op)
        if op in self.handed:
            g = self._with_handed(op, g)
        if g is None:
            return
        if op.facts.dtype == "uniform":
            g = self._cast_back(op, g)
        # An incoming gradient has its name, and a number needs none.
        if g.rule not in ("cotangent", "const"):
            self.of.setdefault(g, op)
            if len({arg for arg in op.args if arg.active}) > 1:
                # Expanded for one argument, it would be recomputed for the other.
                self.make.share(g)
        self._arrive(op, self._where_not_zero(op, g))

    def _cast_back(self, op: Op, g: Op) -> Op:
        """Cast a cotangent to the dtype of its op, if an explicit dtype in the forward has brought in another.

        Otherwise a product would raise, `x @ w + y.float()` in half precision, and an input would get a gradient of
        another dtype than its own. Inputs are assumed to agree.
        """
        sources = self.make.precision(g) - self.make.precision(op)
        brought_in = any(says_its_dtype(self.program, source) for source in sources)
        if g.kind != op.kind or not brought_in:
            return g
        return cast_as(self.make, g, source_of(op) or op)

    def _arrive(self, op: Op, pairs: Pairs) -> None:
        """Add contributions to those waiting at their ops, with the user (`op`) each comes from: names are made of it."""
        for arg, gradient in self._summed(pairs).items():
            self.waiting.setdefault(arg, []).append(gradient)
            self.via.setdefault(gradient, (arg, op))

    def _where_not_zero(self, op: Op, g: Op) -> Pairs:
        """Return the contributions to its arguments for a cotangent `g` of `op`, separately for each side of a choice with a 0.

        A side that is 0 contributes nothing, and so reads no optional input that is absent there.
        """
        # An item passes its cotangent on whole: `_of_parts` takes the sides for its group.
        if g.rule != "cond" or op.rule == "item" or not may_be_zero(g):
            return self._contributions(op, g)
        sides = (None if is_number(item, 0) else item for item in g.args)
        pairs = [self._where_not_zero(op, s) if s else None for s in sides]
        return self._chosen(g, pairs)

    def _chosen(self, g: Op, sides: Iterable[Pairs | None]) -> Pairs:
        """Choose between the contributions of both sides of the choice `g`, 0 if a side has none."""
        test, zero = g.test, self.make.const(0)
        parts = [self._summed(pairs or ()) for pairs in sides]
        return [
            (arg, self.make.choose(test, *(part.get(arg, zero) for part in parts)))
            for arg in dict.fromkeys([*parts[0], *parts[1]])
        ]

    def _summed(self, pairs: Iterable[tuple[Op, Op]]) -> dict[Op, Op]:
        """Return one gradient per op, the sum of its gradients in `pairs`; for inactive ops and a gradient of 0, none."""
        sums: dict[Op, Op] = {}
        for arg, gradient in pairs:
            if arg.active and not is_number(gradient, 0):
                earlier = sums.get(arg)
                if earlier is not None and earlier.shape != gradient.shape:
                    earlier = sum_to(self.make, earlier, arg)  # else one is broadcast
                    gradient = sum_to(self.make, gradient, arg)
                sums[arg] = (
                    gradient if earlier is None else self.make.add(earlier, gradient)
                )
        return sums

    def _contributions(self, op: Op, g: Op) -> Pairs:
        """Return the arguments of an op, each with its part of the cotangent `g`: by the first way that is open to its kind.

        An item contributes nothing yet: `g` waits in `parts` until its group is reached.
        """
        if op.rule == "item":
            self.parts.setdefault(op.args[0], {})[op.position] = g
            return []
        if op.rule == "cond":
            return self._of_choice(op, g)
        if op.rule == "call":
            return self._of_call(op, g)
        # Before the rule of the op alone: a composition has the shorter gradient.
        composition = self.composed(op)
        if composition and not self._passes_over(op, composition.args.values()):
            if not composition.rule.facts.complex:  # its formula is for real numbers
                self.make.take_for_real(composition.args.values())
            env = {"grad": g, "result": op, **composition.args}
            return self._of_formulas(op, composition.rule, env, composed=True)
        if op.rule in CODED:
            pairs = CODED[op.rule](self.make, op, g)
            return self._of_call(op, g) if pairs is None else pairs
        return self._of_rule(op, {"grad": g, "result": op})

    def _passes_over(self, op: Op, args: Iterable[Op]) -> bool:
        """Return whether a rule for a composition, `x * sigmoid(x)` for silu, would skip a saved value with a gradient handed in.

        `args` are the arguments of the composition: the values between them and `op` would get no cotangent.
        """
        skipped = {*down_to((op,), {*args})} - {op, *args}
        return not skipped.isdisjoint(self.handed)

    def _of_choice(self, op: Op, g: Op) -> Pairs:
        """Return the contributions of `a if test else b`: `g if test else 0` for `a`, `0 if test else g` for `b`."""
        body, orelse = op.args
        zero, test = self.make.const(0), op.test
        one, two = (self._same(g, item) for item in op.args)
        return [
            (body, self.make.choose(test, one, zero)),
            (orelse, self.make.choose(test, zero, two)),
        ]

    def _same(self, g: Op, op: Op) -> Op:
        """Return the cotangent of one branch of a choice, in the shape of its value: where it is chosen, the two shapes are one."""
        if g.shape == op.shape or not op.is_tensor:
            return g
        return self.program.op(
            "same", (g,), OfShape(op.shape), kind=g.kind, shape=op.shape
        )

    def _of_rule(self, op: Op, env: dict[str, Op]) -> Pairs:
        """Return an op's contributions by the formulas of its rule; `env` has the other names a formula reads: `grad`, `result`."""
        rule = self._rule(op)
        return self._of_formulas(op, rule, env | rule.by_parameter(op.args))

    def _rule(self, op: Op) -> Rule:
        """Return the rule of a primitive, its section in the table; it has one, as the engine's own ops are handled elsewhere."""
        rule = self.make.applier.table.of_op(op.rule)
        assert rule is not None, op.rule
        return rule

    def _of_formulas(
        self, op: Op, rule: Rule, env: dict[str, Op], *, composed: bool = False
    ) -> Pairs:
        """Return contributions by formulas, or all by autograd if a formula is missing or reads unknown facts.

        `env` maps the names in a formula to ops. A `composed` rule is for several ops of the forward at once. Where a
        fused call of PyTorch ends derivatives, the plain formula stands beside it, for a backward that is
        differentiated. Raise `UnsupportedError` for a group (no sole `grad`), which autograd of one call cannot
        serve.
        """
        pairs, home = [], self.make.applier.table.home(rule)
        for name in (item.name for item in rule.parameters if item.name in env):
            arg = env[name]
            # A list is active if one of its tensors is.
            active = any(item.active for item in tensors((arg,)))
            if name in rule.facts.nondiff or not active:
                continue
            if name not in rule.formulas:
                if "grad" not in env:
                    raise UnsupportedError(
                        f"{self._rule(op).name} has no gradient here"
                    )
                return self._of_call(op, env["grad"])
            if arg.rule == "list":
                raise UnsupportedError(f"the gradient of a list in {op.rule}")
            formula = self._formula(op, rule, name, composed)
            fused = self._fused(op, rule, name)
            try:
                evaluate = FormulaEvaluator(self.make, env, home).value
                gradient = evaluate(fused or formula)
                if fused is not None and self._ends_derivatives(gradient, env.values()):
                    gradient = self._beside_formula(evaluate(formula), gradient)
            except UnsupportedError:
                if "grad" not in env:
                    raise
                return self._of_call(op, env["grad"])
            if rule.category == "loss":
                gradient = self._expanded_loss(gradient, op)
            # Elementwise, an argument may be broadcast: its gradient is summed to its shape later.
            elif rule.category != "elementwise":
                gradient = exactly(self.make, gradient, arg)
            pairs.append((arg, gradient))
        return pairs

    def _expanded_loss(self, gradient: Op, op: Op) -> Op:
        """Expand a loss's gradient to the shape of its arguments; the gradient of a sum may be one value for all elements."""
        common = shapes.broadcast(*(arg.shape for arg in tensors(op.args)))
        if not gradient.is_tensor or shapes.fits(common, gradient.shape):
            return gradient
        return self.make.expanded(gradient, common)

    def _formula(self, op: Op, rule: Rule, name: str, composed: bool) -> Node:
        """Return the formula of an argument's gradient: the first one, for a composition the last, its own variant if there is one.

        `name` is the parameter; the table may give several formulas for it.
        """
        several = self.make.applier.table.gradients(rule, name)
        return several[-1] if composed else several[0]

    def _fused(self, op: Op, rule: Rule, name: str) -> Node | None:
        """Return the formula under `fused`, one call of PyTorch's; None without one, or if a value would be saved for it alone.

        The op's arguments are noted as real then. Values that other gradients of the op read are saved anyway, and so is a `log_softmax`,
        which its own gradient reads; the weight and the bias of a norm are small.
        """
        if not self.fuse or op.kind not in ("real", "group"):
            return None
        table = self.make.applier.table
        fused = table.fused(rule, name)
        if fused is None:
            return None
        named = {"result": op, **rule.by_parameter(op.args)}
        # The values saved for this call alone: none that forward returns, or that the gradient of its own op reads.
        alone = {
            read
            for read in values_read(fused) & named.keys()
            if named[read].is_tensor
            and named[read] not in self.handed
            and named[read] not in retained(table, named[read])
        }
        if rule.category == "same_shape":
            # Of a norm: weight and bias are small, the result and the input count.
            alone &= {"result", rule.parameters[0].name}
        for other in rule.formulas:
            if other in named and named[other].active:
                alone -= values_read(table.gradients(rule, other)[0])
        if alone:
            return None
        # The call is for real numbers, though the formula may hold for complex ones.
        if op.facts.complex or "takes_complex" in op.facts.flags:
            self.make.take_for_real(op.args)
        return fused

    def _beside_formula(self, formula: Op, fused: Op) -> Op:
        """Return a fused gradient, with the formula for a backward that is recorded; the formula alone if other arguments need it.

        So it is for `fused` of `call if weight is not None else formula`: three branches would be long.
        """
        if fused.rule == "cond" and formula in fused.args:
            return formula
        return self.make.choose(is_recorded(self.program), formula, fused)

    def _ends_derivatives(self, g: Op, given: Collection[Op]) -> bool:
        """Return whether a gradient comes from the `given` values by a call without a derivative in PyTorch: `silu_backward`.

        Such a gradient is used only while autograd does not record. Always False where a second derivative is given
        up.
        """
        if self.once or g in given:
            return False
        rule = self.make.applier.table.of_op(g.rule)
        ends = rule is not None and rule.ends_derivatives
        return ends or any(self._ends_derivatives(arg, given) for arg in g.args)

    def _of_parts(self, op: Op, arrived: dict[int, Op]) -> Pairs:
        """Return the contributions of an op with several results; `arrived` has their cotangents by position, a missing one is zero.

        Of a result `*parts` (any number of them, as of `split`), all cotangents are joined, or each is put back by
        itself.
        """
        # If one is a choice with a 0, each side contributes by itself.
        for g in arrived.values():
            if g.rule == "cond" and may_be_zero(g):
                sides = (of_side(arrived, g.test, side) for side in (0, 1))
                return self._chosen(
                    g, [self._of_parts(op, s) if s else None for s in sides]
                )
        rule = self._rule(op)
        if rule.results[0].startswith("*"):
            if not are_all_taken(self.make.applier, op, arrived):
                return [gradient_by_parts(self.make, op, arrived)]
            name = rule.results[0].removeprefix("*")
            env = {f"grad_{name}": gradients_of_parts(self.make, op, arrived)}
        else:
            env = {}
            for position, name in enumerate(rule.results):
                env[f"grad_{name}"] = arrived.get(position, self.make.const(0))
                env[name] = item_at(self.make, op, position)
        return self._of_rule(op, env)

    def _of_call(self, op: Op, g: Op) -> Pairs:
        """Return contributions by autograd of the one call, and record it for a note."""
        self.calls.append(op)
        return pulled_back(self.make.applier, op, g)


def _of_tensors(shape: Shape) -> Shape:
    """Return the shape of a value in calls with a tensor: `y if y is not None else 2.0` is a number in others."""
    match shape.origin:
        case OrScalar(base):
            return base
        case Broadcast(parts):
            return broadcast(*map(_of_tensors, parts))
    return shape


def _fitted(make: Maker, g: Op, op: Op) -> Op:
    """Sum a cotangent to the shape of the value it has reached.

    For a choice between a tensor and a number, use the tensor's shape: only a chosen tensor passes a cotangent on.
    """
    if not isinstance(op.shape.origin, OrScalar):
        return sum_to(make, g, op)
    if _of_tensors(g.shape) == op.shape.origin.base and g.kind == op.kind:
        return g
    # Computed from a choice, `(y if t else 2.0) * 3`, it has no branches itself.
    branches = op.args if op.rule == "cond" else ()
    return sum_to(make, g, next((item for item in branches if item.is_tensor), op))
