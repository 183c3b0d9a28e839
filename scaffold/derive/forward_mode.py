"""Forward mode: the tangent of every value of the forward, and an op's jvp made of them.

In: an `OpSpec`, its maths, and the ctx of its backward; for the walk, the lowered forward and each input's tangent.
Out: a `Jvp`, and the contents of ctx for both; for the walk, an op for each result's tangent, of exactly its shape,
or None for zero. Invariant: the jvp is the derivative along the inputs' tangents; a primitive without facts in the
table is differentiated by autograd, and listed in `calls`. Values saved for the jvp are saved for the backward as
well, and the reverse, since PyTorch's vmap keeps one record of the two.

Ops are visited in the order of their creation, so all arguments of an op come before it. A primitive's section
determines its tangent: a linear primitive is applied to the tangents; for an elementwise one, with a diagonal
Jacobian, the formula of the gradient holds with a tangent in place of the cotangent; a reduction sums the products
with the gradient of its result; for others the table has a formula (`tangent`). A product is linear in each of its
arguments by itself (`multilinear`).

Words: an op is one application of a primitive in the graph; a group is one with several results, each an `item` of
it. The tangent of a value is its derivative along the inputs' tangents; the cotangent is the gradient of the loss by
it. `jvp` is the static method by which a Function gives its outputs' tangents. A value is active if it depends on an
input with a gradient. `env` maps the names in a formula of the table to ops. Statements are written with the names of
gradients (`grad_y`) by the writer of backwards, and renamed in the end (`tangent_y`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.backward_program import Line
from scaffold.derive.derivation import ZEROS_LIKE, Derivation, Jvp, Maths
from scaffold.derive.forward.body import grad_name
from scaffold.derive.gradients import (
    held_by_name,
    maker_of,
    reason_of,
)
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import given
from scaffold.derive.graph.op import (
    Named,
    OfShape,
    Op,
    Program,
    Pullback,
    is_number,
    literal,
    tensors,
)
from scaffold.derive.graph.static_values import UnsupportedError, may_be_none
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.plan.costs import PLAIN
from scaffold.derive.plan.recomputation import plan_reuse
from scaffold.derive.plan.save_plan import BackwardGraph
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.rules.several_results import item_at
from scaffold.derive.rules.table import Rule
from scaffold.derive.rules.team_tables import table_of
from scaffold.derive.saving import ContextNames, Origins, transfer
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.stated_gradients import outer_names
from scaffold.derive.write.statements import gradient_statements
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    UNKNOWN,
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    checked_for_none,
    read_names,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.names import fresh, take
from scaffold.spec import OpSpec

REAL, COMPLEX = PLAIN  # kinds of numbers with a tangent
OF_PARTS = frozenset({"slice", "index"})  # the engine's own, linear in the tensor
RESTORING = frozenset({"expanded", "reshaped", "unless_scalar", "same"})
Pairs = list[tuple[str, Op, Op]]  # a parameter, its argument and its tangent


class Accumulated(NamedTuple):
    """The tangents, and the forward op of each one on the way."""

    results: tuple[Op | None, ...]
    of: Mapping[Op, Op]  # a tangent -> the forward op
    calls: tuple[Op, ...]  # ops differentiated by autograd itself


class TangentWalk:
    """One walk over the program, from the inputs to the results; `tangents` maps each op passed to its tangent.

    `of` maps a tangent to the forward's op, which its name is made of; `calls` are the ops that autograd
    differentiates.
    """

    def __init__(self, make: Maker, inputs: Mapping[Op, Op]) -> None:
        """Begin with the tangents of the inputs; `make` makes simplified ops, in the forward's program."""
        self.make, self.program = make, make.program
        self.table = make.applier.table
        self.tangents: dict[Op, Op] = dict(inputs)
        self.of: dict[Op, Op] = {}
        self.calls: list[Op] = []

    def run(self, results: tuple[Op, ...]) -> Accumulated:
        """Walk from the inputs to the results, and return the results' tangents, None for zero."""
        below = {op.serial: op for result in results for op in result.walk()}
        for _, op in sorted(below.items()):
            # Of several results each has its tangent (`item`), the group has none.
            if op.active and op not in self.tangents and op.kind != "group":
                self._arrive(op)
        found = tuple(self.tangents.get(op) for op in results)
        return Accumulated(found, self.of, tuple(self.calls))

    def _arrive(self, op: Op) -> None:
        """Record the tangent of an op, expanded to its shape, and the op of the tangent (`of`), for its name.

        Record nothing for a list, for a Python value, or for a zero tangent: no tangent means zero.
        """
        if op.rule in ("list", "starred") or not op.is_tensor:
            return
        tangent = self._of(op)
        if tangent is None or is_number(tangent, 0):
            return
        tangent = self._exactly(tangent, op)
        self.tangents[op] = tangent
        # The tangent of an input has its name, and a number needs none.
        if tangent.rule not in ("cotangent", "const"):
            self.of.setdefault(tangent, op)

    def _exactly(self, tangent: Op, op: Op) -> Op:
        """Expand a tangent to the shape of its value: the tangent of `x + y` may have the shape of `x` alone.

        One with a name of its own (opaque) has the shape already.
        """
        if tangent.shape == op.shape or self.make.opaque(tangent):
            return tangent
        return self.make.expanded(tangent, op.shape)

    def _of(self, op: Op) -> Op | None:
        """Return the tangent of an op, by the kind of op; None for zero.

        The engine's own ops (a choice, a slice, one of several results) have no section in the table: they are
        handled here.
        """
        if op.rule == "cond":
            zero = self.make.const(0)
            sides = [self.tangents.get(arg, zero) for arg in op.args]
            if all(is_number(side, 0) for side in sides):
                return None
            return self.make.choose(op.test, *sides)
        if op.rule in OF_PARTS:
            sliced = self.tangents.get(op.args[0])
            return sliced and self.program.over(op, (sliced, *op.args[1:]))
        if op.rule == "item":
            return self._of_item(op)
        rule = self.table.of_op(op.rule)
        if rule is None:
            return self._of_call(op)
        if rule.category == "constant":
            return None
        return self._of_rule(op, rule)

    # Primitives in the table

    def _of_rule(self, op: Op, rule: Rule) -> Op | None:
        """Return the tangent of a primitive with a section in the table, or None for zero.

        Four ways are tried: its formulas for tangents, its linearity, its formulas for gradients with tangents in them,
        then summed; at last autograd of the one call.
        """
        pairs = list(self._active(rule, op))
        if not pairs:
            return None
        by_gradients = (self._of_diagonal, self._of_reduction)
        for attempt in (self._of_formulas, self._of_linear, *by_gradients):
            try:
                found = attempt(op, rule, pairs)
            except UnsupportedError:
                continue
            if found is not None:
                return found
        return self._of_call(op)

    def _active(self, rule: Rule, op: Op) -> Iterator[tuple[str, Op, Op]]:
        """Yield the parameter, the argument and the tangent of each argument with a tangent, if the primitive is differentiated by it."""
        for item, arg in zip(rule.parameters, op.args, strict=True):
            tangent = self._tangent(arg)
            if tangent is not None and item.name not in rule.facts.nondiff:
                yield item.name, arg, tangent

    def _tangent(self, arg: Op) -> Op | None:
        """Return the tangent of an argument, or None; for a list, the list of its tensors' tangents, with zeros for those without.

        Raise `UnsupportedError` for a list with parts other than tensors.
        """
        if arg.rule != "list":
            return self.tangents.get(arg)
        # A list of constants has no tangent.
        if not any(item in self.tangents for item in arg.args):
            return None
        if not all(item.is_tensor for item in arg.args):
            raise UnsupportedError("parts of a list")
        parts = (
            self.tangents.get(item) or self.make.zeros(item, item.shape)
            for item in arg.args
        )
        return self.program.op("list", tuple(parts))

    def _of_formulas(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """Return the sum of the section's formulas for tangents, one for each argument; None if an argument has no such formula.

        `pairs` has each active parameter of the rule with its argument and tangent.
        """
        if not all(name in rule.tangents for name, _, _ in pairs):
            return None
        known = {"result": op, **self._arguments(_call_of(op), rule)}

        def term(name: str, tangent: Op) -> Op:
            env = {**known, "tangent": tangent}
            return self._value(rule, self.table.tangent(rule, name), env)

        return self._sum(op, pairs, term)

    def _of_linear(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """Apply a linear primitive to all tangents, or a multilinear one to each beside the other arguments; else return None.

        `x.sum(0)` -> `tangent_x.sum(0)`; `a @ b` -> `tangent_a @ b + a @ tangent_b`. An elementwise one of several
        real arguments, as `x + y`, is left to the formulas for gradients: they add no zeros for a `y` without a tangent.
        """
        several = rule.category == "elementwise" and len(rule.facts.differentiable) > 1
        if rule.facts.linear and not (several and self._is_real(op)):
            return self._applied(op, rule, {name: t for name, _, t in pairs})
        if "multilinear" in rule.facts.flags:
            terms = [
                self._with(op, rule, {name: t})
                for name, arg, tangent in pairs
                for t in self._one_by_one(arg, tangent)
            ]
            return reduce(self.make.add, terms)
        return None

    def _one_by_one(self, arg: Op, tangent: Op) -> Iterator[Op]:
        """Yield the tangent to put in an argument's place; for a list, the list with one tensor after the other replaced by its own.

        The product of a list of matrices has one term for each.
        """
        if arg.rule != "list":
            yield tangent
            return
        for at, item in enumerate(arg.args):
            if item in self.tangents:
                others = (*arg.args[:at], self.tangents[item], *arg.args[at + 1 :])
                yield self.program.op("list", others)

    def _applied(self, op: Op, rule: Rule, given: Mapping[str, Op]) -> Op:
        """Apply a linear primitive to tangents, `given` by parameter; other differentiable arguments are replaced by zeros.

        `torch.cat([x, y])` -> `torch.cat([tangent_x, zeros])`; `x + 1` -> `tangent_x + 0`.
        """
        make, zeros = self.make, dict[str, Op]()
        for item, arg in zip(rule.parameters, op.args, strict=True):
            if item.name in rule.facts.differentiable and item.name not in given:
                if arg.is_tensor:
                    zeros[item.name] = make.zeros(arg, arg.shape)
                elif arg.rule == "list" and arg.args:
                    raise UnsupportedError("a list without tangents")
                # None stays: it has no term in the result.
                elif literal(arg) is not None:
                    zeros[item.name] = make.const(0)
        return self._with(op, rule, {**given, **zeros})

    def _with(self, op: Op, rule: Rule, given: Mapping[str, Op]) -> Op:
        """Apply the primitive of an op again, with the arguments of some parameters (`given`) replaced; the result has the op's shape."""
        again = self.make(op.rule, *_arguments_with(op, rule, given))
        return self.program.shaped(again, op.shape)

    def _of_diagonal(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """Apply the formulas of gradients to tangents, if the Jacobian is diagonal: of elementwise ops; else return None.

        `grad * cos(x)` is also the tangent of `sin(x)` if `grad` is the tangent of `x` (conjugated, for complex numbers).
        """
        unreduced = rule.category == "loss" and self._reduction(op, rule) == "none"
        if rule.category != "elementwise" and not unreduced:
            return None
        if self._is_real(op):
            return self._sum(op, pairs, lambda name, t: self._pulled(op, rule, name, t))
        # Not of `z.abs()`: its tangent is real, the product in the formula is not.
        if any(arg.kind != COMPLEX for arg in (op, *(arg for _, arg, _ in pairs))):
            return None
        conj = self.make.conj
        return self._sum(
            op, pairs, lambda name, t: conj(self._pulled(op, rule, name, conj(t)))
        )

    def _of_reduction(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """Sum the products of tangents and gradients over the reduced dims of a sum, a mean or a loss; return None for other ops.

        An element of the gradient is a factor times the cotangent of the one result it went into. With the tangent in the cotangent's
        place it is that element's share of the result's tangent.
        """
        rest = self._reduced(op, rule)
        if rest is None or not (self._is_real(op) and rule.facts.is_one_tensor):
            return None
        # As the cotangent, to get the bare gradient of the result.
        one = self.program.op(
            "ones", (), OfShape(op.shape), kind=op.kind, shape=op.shape
        )

        def summed(name: str, tangent: Op) -> Op:
            gradient = self._pulled(op, rule, name, one)
            product = _Replaced(self.make, one, tangent)(gradient)
            return self.program.shaped(self.make.sum(product, *rest), op.shape)

        return self._sum(op, pairs, summed)

    def _pulled(self, op: Op, rule: Rule, name: str, cotangent: Op) -> Op:
        """Return the gradient of a parameter by the rule's formula; raise `UnsupportedError` without one."""
        if name not in rule.formulas:
            raise UnsupportedError(f"{name} of {rule.name} has no formula")
        env = {"result": op, **self._arguments(op, rule), "grad": cotangent}
        return self._value(rule, self.table.gradients(rule, name)[0], env)

    def _reduced(self, op: Op, rule: Rule) -> tuple[Op, ...] | None:
        """Return the `dim` and `keepdim` of a reduction, () for a loss reduced to a number; None if the op does not reduce.

        The tangent is summed over just these dims.
        """
        if rule.category == "reduction":
            args = self._arguments(op, rule)
            return tuple(args[name] for name in ("dim", "keepdim") if name in args)
        reduction = self._reduction(op, rule)
        to_number = reduction not in ("none", UNKNOWN)
        return () if rule.category == "loss" and to_number else None

    def _reduction(self, op: Op, rule: Rule) -> object:
        """Return the `reduction` of a loss; None without such an argument, `UNKNOWN` if only the call tells it."""
        given = self._arguments(op, rule).get("reduction")
        return given and literal(given)

    def _sum(self, op: Op, pairs: Pairs, term: Callable[[str, Op], Op]) -> Op:
        """Add up the contributions of all arguments, `term(name, tangent)` each; an optional input contributes only if present.

        `pairs` has the parameter, argument and tangent of each; the contributions of optional inputs come last, each
        under a test.
        """
        make, optional = self.make, []
        total: Op | None = None
        for name, arg, tangent in pairs:
            found = term(name, tangent)
            if may_be_none(self.program, arg) and make.applier.takes_none(op, arg):
                optional.append((arg, found))
            else:
                total = found if total is None else make.add(total, found)
        for arg, found in optional:
            without = make.zeros(op, op.shape) if total is None else total
            both = found if total is None else make.add(total, found)
            total = make.choose(given(self.program, arg), both, without)
        assert total is not None  # there is at least one tangent
        return total

    def _arguments(self, op: Op, rule: Rule) -> dict[str, Op]:
        """Return the values formulas may read: the arguments by parameter, and each of several results by its name, `values`."""
        found = rule.by_parameter(op.args)
        if len(rule.results) > 1:
            for at, name in enumerate(rule.results):
                found[name] = item_at(self.make, op, at)
        return found

    def _value(self, rule: Rule, formula: Node, env: Mapping[str, Op]) -> Op:
        """Return the op for a formula of a section; `env` maps the names in it to ops. `home` is where the rule's own imports are known."""
        home = self.table.home(rule)
        return FormulaEvaluator(self.make, env, home).value(formula)

    def _is_real(self, op: Op) -> bool:
        """Return whether no complex number is involved: gradients multiply by conjugates, tangents do not."""
        return all(item.kind != COMPLEX for item in (op, *tensors(op.args)))

    # Several results

    def _of_item(self, op: Op) -> Op | None:
        """Return the tangent of one of several results, of `values` in `values, indices = x.max(-1)`; None for zero.

        Only formulas for the first result are in the table; for the others autograd differentiates the call.
        """
        group = op.args[0]
        rule = self.table.of_op(group.rule)
        # The formulas for a first result are for real numbers.
        if rule is None or op.kind != REAL:
            return self._of_call(op)
        pairs = list(self._active(rule, group))
        if not pairs:
            return None
        if rule.facts.linear:
            args = _arguments_with(group, rule, {name: t for name, _, t in pairs})
            return self.program.over(op, (self.program.over(group, args),))
        found = self._of_formulas(op, rule, pairs) if op.position == 0 else None
        return found or self._of_call(op)

    # Primitives not in the table

    def _of_call(self, op: Op) -> Op | None:
        """Return a tangent by autograd of the one call, as the gradient of its gradient, a linear function.

        Raise `UnsupportedError` if one of its inputs may be absent. For an item of a group, the group's call is
        differentiated.
        """
        source = _call_of(op)
        rule = self.table.of_op(source.rule)
        # An argument without a gradient has no tangent: PyTorch raises.
        if rule is not None:
            pairs = zip(rule.parameters, source.args, strict=True)
            known = [x for item, x in pairs if item.name not in rule.facts.nondiff]
        else:
            known = [*source.args]
        args = tuple(x for x in dict.fromkeys(tensors(known)) if x in self.tangents)
        if not args:
            return None
        if any(may_be_none(self.program, arg) for arg in args):
            raise UnsupportedError(f"an input of {source.rule} may be absent")
        self.calls.append(source)
        tangents = tuple(self.tangents[arg] for arg in args)
        # All that its statements read: the tangents, the call's arguments, the item.
        return self.program.op(
            "jvp",
            (*tangents, *source.args, *((op,) if op is not source else ())),
            Pullback(op, args),
            kind=op.kind,
            shape=op.shape,
        )


def _arguments_with(op: Op, rule: Rule, given: Mapping[str, Op]) -> list[Op]:
    """Return the arguments of an op, `given` ones in place of its own."""
    pairs = zip(rule.parameters, op.args, strict=True)
    return [given.get(item.name, arg) for item, arg in pairs]


def _call_of(op: Op) -> Op:
    """Return the call with several results behind an `item`; any other op is its own call."""
    return op.args[0] if op.rule == "item" else op


class _Replaced:
    """A reduction's gradient with the tangent in place of the cotangent: the terms whose sum is the result's tangent.

    The gradient of `x.sum(-1)` is `g.unsqueeze(-1)`, spread over the reduced dims; the tangent of x already has that
    shape.
    """

    def __init__(self, make: Maker, cotangent: Op, tangent: Op) -> None:
        self.make, self.cotangent, self.tangent = make, cotangent, tangent

    def __call__(self, op: Op) -> Op:
        """Return an op of the gradient with the tangent in place of the cotangent.

        An op that does not read the cotangent stays as it is.
        """
        if op is self.cotangent:
            return self.tangent
        if not self._reads(op):
            return op
        if _spreads(op):
            return self._spread((op,), _narrow(op))
        return self._rebuilt(op, map(self, op.args))

    def _reads(self, op: Op) -> bool:
        """Return whether the cotangent is anywhere in the expression of an op."""
        return any(part is self.cotangent for part in op.walk())

    def _spread(self, views: tuple[Op, ...], inner: Op) -> Op:
        """Replace the cotangent, a factor below some views, by the tangent, and spread the other factors likewise.

        `views` are the views around `inner`, outermost first; they give it the shape of the gradient. `(grad /
        norm).unsqueeze(-1)` -> `tangent / norm.unsqueeze(-1)`: the tangent has the full shape already.
        """
        if inner is self.cotangent:
            return self.tangent
        if _spreads(inner):
            return self._spread((*views, inner), _narrow(inner))
        if inner.facts.category != "elementwise":
            raise UnsupportedError(f"{inner.rule} in a gradient")
        parts = (self._part(views, inner, arg) for arg in inner.args)
        return self._rebuilt(inner, parts)

    def _part(self, views: tuple[Op, ...], inner: Op, arg: Op) -> Op:
        """Return the factor `arg` of `inner` in the product with the tangent: a number as it is, another tensor below the views.

        The factor with the cotangent in it gets the tangent. Raise `UnsupportedError` if a factor is broadcast.
        """
        if self._reads(arg):
            return self._spread(views, arg)
        if not arg.is_tensor:
            return arg
        if arg.shape != inner.shape:
            raise UnsupportedError(f"{inner.rule} of two shapes in a gradient")
        for view in reversed(views):
            arg = self._viewed(view, _narrow(view), arg)
        return arg

    def _viewed(self, view: Op, narrow: Op, part: Op) -> Op:
        """Rebuild a view with `part` in place of `narrow`, the value it spreads."""
        if view is narrow:
            return part
        first, *rest = view.args
        kept = (part if arg is narrow else arg for arg in rest)
        args = (self._viewed(first, narrow, part), *kept)
        return self.make.program.op(
            view.rule, args, view.data, kind=part.kind, shape=view.shape
        )

    def _rebuilt(self, op: Op, args: Iterable[Op]) -> Op:
        """Return an op of the same primitive with other arguments; raise `UnsupportedError` for one of the engine with facts of its own."""
        if op.rule == "cond":
            return self.make.choose(op.test, *args)
        if op.data is not None:
            raise UnsupportedError(f"{op.rule} in a gradient")
        return self.make(op.rule, *args)


def _spreads(op: Op) -> bool:
    """Return whether an op gives a reduced value its dims back: `g.unsqueeze(-1)`, `g.expand(x.shape)`."""
    return op.rule in RESTORING or op.facts.is_view


def _narrow(view: Op) -> Op:
    """Return the value spread by a view; `x.unsqueeze(0) if x.ndim else x` has it as second argument."""
    return view.args[1] if view.rule == "unless_scalar" else view.args[0]


# --- The jvp of an op.


HINT = "leave out forward-ad, or write the forward with primitives of the table"


def with_jvp(spec: OpSpec, maths: Maths, found: Derivation) -> Derivation:
    """Return the op with the jvp derived from its forward, and ctx for both; raise ScaffoldError if none can be derived.

    Without a forward the jvp is left for the user to write (`missing`). `found` is the finished backward.
    """
    parameters = _parameters(spec, maths)
    if maths.forward is None:
        return replace(found, jvp=Jvp(parameters, (), (), missing=True))
    try:
        statements, with_tangent, repeated = _statements(spec, maths, found, parameters)
    except (UnsupportedError, RecursionError) as error:
        message = f"no jvp can be derived: {reason_of(error)}"
        raise ScaffoldError(message, maths.place, HINT) from None
    maths = maths._replace(
        program=statements,
        kept=frozenset(found.intermediates),
        planned=True,  # nothing more is saved for the jvp
        again=repeated,
    )
    return _handed(spec, maths, found, parameters, with_tangent)


def _parameters(spec: OpSpec, maths: Maths) -> tuple[str, ...]:
    """Return a free name for the tangent of each input: `tangent_x`."""
    taken = set(outer_names(spec, maths.forward) | written(*maths.program))
    return tuple(take(taken, f"tangent_{item.name}") for item in spec.inputs)


def _pairs(spec: OpSpec, parameters: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Return each input's name with the name of its tangent."""
    return zip((item.name for item in spec.inputs), parameters, strict=True)


def _statements(
    spec: OpSpec, maths: Maths, derivation: Derivation, parameters: tuple[str, ...]
) -> tuple[Lines, frozenset[str], Lines | None]:
    """Return the jvp's statements, the outputs with a tangent, and the forward to repeat lines from (None: the op's own).

    The statements assign `grad_<output>`: the writer of gradients names its results so, and `_tangent_names` renames
    them. They save nothing: the jvp computes again whatever the backward has not saved.
    """
    assert maths.forward is not None
    variadic = any(item.variadic for item in spec.differentiable)
    if variadic or any(item.variadic for item in spec.outputs):
        raise UnsupportedError("it takes or returns any number of tensors")
    # With this policy the plan saves nothing.
    spec = replace(spec, save_policy="recompute", once_differentiable=None)
    wanted = tuple(item.name for item in spec.differentiable)
    taken = outer_names(spec, maths.forward) | {*parameters}
    table = table_of(spec)
    program = Program(maths.graph, table.facts, declared(spec))
    applier = Applier(program, table)
    lowered = lower(spec, maths.forward, applier, frozenset(wanted))
    seeds = _seeds(program, lowered, wanted, dict(_pairs(spec, parameters)))
    held = held_by_name(spec, lowered)
    make = maker_of(applier, lowered, held, seeds)
    ends = _ends(spec, derivation, lowered, held)
    found = TangentWalk(make, {op: seed for seed, op in seeds.items()}).run(
        tuple(ends.values())
    )
    roots = _roots(make, ends, found)
    # `{}`: no partial gradients (`via`) are there to be named.
    backward = BackwardGraph(
        spec, applier, maths.forward, lowered, held, seeds, roots, found.of, {}, taken
    )
    derived = gradient_statements(backward, "setup-context")
    memory = {f"grad_{name}": op.facts.memory for name, op in ends.items()}
    statements = tuple(
        _with_view(maths.graph, item, parameters, memory) for item in derived.statements
    )
    return statements, frozenset(roots), derived.again


def _with_view(
    graph: Graph,
    item: Statement,
    parameters: Iterable[str],
    memory: Mapping[str, str],
) -> Statement:
    """Return the view `tangent_x[...]` of an input's tangent for an output sharing that input's memory, as PyTorch wants.

    Another statement is returned unchanged. `parameters` are the inputs' tangents; `memory` has a fact for each
    output: "fresh" memory is never an input's, "same" always.
    """
    if not isinstance(item, Assign):
        return item
    # A line of no output is left alone, too.
    fact = memory.get(item.target.label, "fresh")
    is_input = item.value.kind == "name" and item.value.label in parameters
    if fact == "same" or (is_input and fact != "fresh"):
        view = graph.node("subscript", "", (item.value, graph.constant("...")))
        return replace(item, value=view)
    return item


def _ends(
    spec: OpSpec, derivation: Derivation, lowered: Lowered, held: Mapping[Op, str]
) -> dict[str, Op]:
    """Map the forward's returned values with a tangent, by the stem `output` of `grad_output`, to their ops.

    Saved locals that are returned need one too: without it forward mode would take them for constants of the
    backward, as for a Hessian. Raise `UnsupportedError` if one has no op of its own.
    """
    pairs = zip(spec.outputs, lowered.results, strict=True)
    ends = {_stem(spec, item.name): op for item, op in pairs if item.differentiable}
    named = {name: op for op, name in held.items()}
    for name in derivation.returned_locals:
        if name not in named:
            raise UnsupportedError(f"'{name}' is saved for the backward")
        ends[name] = named[name]
    # Integers and masks have no tangent.
    return {name: op for name, op in ends.items() if op.kind in PLAIN}


def _stem(spec: OpSpec, output: str) -> str:
    """Return the name of an output's gradient without `grad_`: `output` for `grad_output`."""
    return grad_name(spec, output).removeprefix("grad_")


def _seeds(
    program: Program,
    lowered: Lowered,
    wanted: Iterable[str],
    tangents: Mapping[str, str],
) -> dict[Op, Op]:
    """Map the op of each wanted input's tangent to the input's op: here the walk begins.

    The op is named by `tangents`. It has the rule "cotangent", of any derivative that comes from outside.
    """
    found = {}
    for name in wanted:
        item = lowered.inputs[name]
        tangent = program.op(
            "cotangent", (), Named(tangents[name]), kind=item.kind, shape=item.shape
        )
        found[tangent] = item
    return found


def _roots(make: Maker, ends: Mapping[str, Op], found: Accumulated) -> dict[str, Op]:
    """Return the tangent of each value returned by forward, by its stem (`y` of `grad_y`); zeros if no tangent reaches it."""
    tangents = zip(ends.items(), found.results, strict=True)
    return {
        name: tangent or make.zeros(op, op.shape) for (name, op), tangent in tangents
    }


def _handed(
    spec: OpSpec,
    maths: Maths,
    found: Derivation,
    parameters: tuple[str, ...],
    known: frozenset[str],
) -> Derivation:
    """Rewrite the jvp's statements to read ctx, and add their values to ctx; `known` are the outputs with a tangent.

    `found` is the op with its backward, whose values on ctx stay; `parameters` are the names of the inputs' tangents.
    """
    graph, every = maths.graph, frozenset(item.name for item in spec.differentiable)
    # In this style no shape of a local is kept on ctx: it is computed again.
    reuse = plan_reuse(replace(spec, style="setup-context"), maths)
    program = (*reuse.plan.repeated, *maths.program)
    ends = frozenset(f"grad_{name}" for name in known)
    program = without_dead(graph, program, ends)
    program = _by_presence(spec, graph, program, dict(_pairs(spec, parameters)))
    # Then PyTorch hands over None for a tangent, too, in place of zeros.
    if found.incoming.may_be_none:
        program = (*_filled(spec, maths, program, parameters), *program)
    origins = Origins(dict(maths.origins), reuse.plan.saved)
    lines = tuple(Line(item, every) for item in program)
    names = ContextNames(spec)
    handed = transfer(
        spec, graph, lines, origins, names, maths.place, gradients_come_in=False
    )
    already_saved = {item.name for item in found.saved}
    extra = (item for item in handed.saved if item.name not in already_saved)
    kept = {item.name: item for item in (*found.kept, *handed.kept)}
    returned = [_stem(spec, output.name) for output in spec.outputs]
    returned += found.returned_locals
    lines_over_ctx = tuple(line.statement for line in handed.lines)
    new_names = _tangent_names(spec, maths, lines_over_ctx, parameters)
    results = tuple(
        graph.name(new_names[f"grad_{name}"]) if name in known else None
        for name in returned
    )
    statements = rewritten(graph, lines_over_ctx, renaming(graph, new_names))
    return replace(
        found,
        saved=(*found.saved, *extra),
        kept=tuple(kept.values()),
        jvp=Jvp(parameters, tuple(map(_said_of_value, statements)), results),
    )


def _filled(
    spec: OpSpec, maths: Maths, statements: Lines, parameters: Iterable[str]
) -> Iterator[Statement]:
    """Yield for each tangent read by statements `if tangent_x is None: tangent_x = torch.zeros_like(x)`.

    Not for that of a sole input: without any tangent there is no call of jvp. Raise ScaffoldError if an input is optional: if its
    tangent is None, it may be there all the same.
    """
    graph = maths.graph
    if any(item.optional for item in spec.differentiable):
        message = "no jvp can be derived: an output's gradient may be None, and so may the tangent of an optional input that is there"
        raise ScaffoldError(message, maths.place, HINT)
    inputs = {item.name for item in spec.differentiable}
    if len(inputs) == 1:
        return
    read = read_names(*statements)
    for name, tangent in _pairs(spec, parameters):
        if tangent in read and name in inputs:
            target, none = graph.name(tangent), graph.constant("None")
            maker = graph.node("attribute", ZEROS_LIKE, (graph.name("torch"),))
            zeros = graph.node("call", "", (maker, graph.name(name)))
            absent = graph.node("compare", "is", (target, none))
            yield If(absent, (Assign(target, zeros),))


def _by_presence(
    spec: OpSpec,
    graph: Graph,
    statements: Lines,
    tangents: Mapping[str, str],
) -> Lines:
    """Test the tangents of optional inputs for None, rather than the inputs: the tangent of a present input may be None.

    `if bias is not None` -> `if tangent_bias is not None`.
    """
    optional = {item.name for item in spec.differentiable if item.optional}

    def change(node: Node) -> Node | None:
        """Return a test of the tangent for a test of an optional input, with the same `is` or `is not`; None for other nodes."""
        name, _ = checked_for_none(node) or ("", False)
        if name not in optional:
            return None
        args = (graph.name(tangents[name]), *node.args[1:])
        return graph.node("compare", node.label, args)

    return rewritten(graph, statements, change)


def _as_tangent(name: str) -> str:
    """Replace `grad` by `tangent` in a name: `grad_x` -> `tangent_x`, `masked_grad` -> `masked_tangent`; `gradient` stays."""
    # As a word of the name: at the start or behind `_`, and before `_`, the end or a number.
    return re.sub(r"(?<![^_])grad(?=[0-9]*(_|$))", "tangent", name)


def _tangent_names(
    spec: OpSpec, maths: Maths, statements: Lines, parameters: Iterable[str]
) -> dict[str, str]:
    """Map each assigned name to its name in the jvp, `grad_y` to `tangent_y`; all stay distinct, even from the forward's locals.

    `parameters` are the names of the inputs' tangents.
    """
    names = sorted(written(*statements))
    taken = outer_names(spec, maths.forward) | {*parameters, *names}
    found: dict[str, str] = {}
    for name in names:
        new = _as_tangent(name)
        found[name] = name if new == name else fresh(new, taken)
        taken |= {found[name]}
    return found


def _said_of_value(item: Statement) -> Statement:
    """Write "of" for "w.r.t." in comments: `w.r.t. x * y` explains a gradient, and a tangent is of a value."""
    if isinstance(item, If):
        body, orelse = (
            tuple(map(_said_of_value, part)) for part in (item.body, item.orelse)
        )
        return replace(item, body=body, orelse=orelse)
    comments = tuple(text.replace("w.r.t. ", "of ", 1) for text in item.comments)
    return replace(item, comments=comments)
