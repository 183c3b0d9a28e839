"""Forward accumulation: from the tangents of the inputs to those of the outputs.

In: the lowered forward and the tangent of each input. Out: an op for each result's tangent, with exactly its shape; None where it is zero.
Invariant: the tangent is the derivative along the tangents of the inputs; what no fact of the table gives is differentiated by autograd,
which is told.

Ops are visited in the order in which they were made, so that all arguments of an op come before it. What a primitive makes of tangents
follows from its section: a linear one is applied to them; of one that works element by element, whose Jacobian is diagonal, the formula of
the gradient holds for a tangent in the place of the cotangent; a reduction sums the products with the gradient of its result; for others the
table has a formula (`tangent`). A product is linear in each of its arguments by itself (`multilinear`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import NamedTuple

from scaffold.derive.graph.op import (
    OfShape,
    Op,
    Pullback,
    is_number,
    literal,
    tensors,
)
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.plan.save_plan import PLAIN
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.rules.several_results import item_at
from scaffold.derive.rules.table import Rule
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import Node

REAL, COMPLEX = PLAIN  # kinds of numbers that have a tangent
OF_PARTS = frozenset({"slice", "index"})  # the engine's own, linear in what they index
SPREADING = frozenset({"expanded", "reshaped", "unless_scalar", "same"})
Pairs = list[tuple[str, Op, Op]]  # a parameter, its argument and the tangent of that


class Accumulated(NamedTuple):
    """The tangents, and the forward op that each on the way belongs to."""

    results: tuple[Op | None, ...]
    of: Mapping[Op, Op]  # a tangent -> the forward op
    calls: tuple[Op, ...]  # those that autograd itself differentiates


class Forward:
    """One walk over the program."""

    def __init__(self, make: Maker, inputs: Mapping[Op, Op]) -> None:
        self.make, self.program = make, make.program
        self.table = make.applier.table
        self.tangents: dict[Op, Op] = dict(inputs)
        self.of: dict[Op, Op] = {}
        self.calls: list[Op] = []

    def run(self, results: tuple[Op, ...]) -> Accumulated:
        """Walk from the inputs to the results."""
        below = {op.serial: op for result in results for op in result.walk()}
        for _, op in sorted(below.items()):
            if op.active and op not in self.tangents and op.kind != "group":
                self._arrive(op)
        found = tuple(self.tangents.get(op) for op in results)
        return Accumulated(found, self.of, tuple(self.calls))

    def _arrive(self, op: Op) -> None:
        if op.rule in ("list", "starred") or not op.is_tensor:
            return
        tangent = self._of(op)
        if tangent is None or is_number(tangent, 0):
            return
        tangent = self._exactly(tangent, op)
        self.tangents[op] = tangent
        if tangent.rule not in ("cotangent", "const"):
            self.of.setdefault(tangent, op)

    def _exactly(self, tangent: Op, op: Op) -> Op:
        """A tangent in the shape of its value, which it may broadcast to."""
        if tangent.shape == op.shape or self.make.opaque(tangent):
            return tangent
        return self.make.expanded(tangent, op.shape)

    def _of(self, op: Op) -> Op | None:
        """The tangent of an op; None for zero."""
        if op.rule == "cond":
            zero = self.make.const(0)
            sides = [self.tangents.get(arg, zero) for arg in op.args]
            if all(is_number(side, 0) for side in sides):
                return None
            return self.make.choose(op.test, *sides)
        if op.rule in OF_PARTS:
            whole = self.tangents.get(op.args[0])
            return whole and self.program.over(op, (whole, *op.args[1:]))
        if op.rule == "item":
            return self._of_item(op)
        rule = self.table.of_op(op.rule)
        if rule is None:
            return self._of_call(op)
        if rule.category == "constant":
            return None
        return self._of_rule(op, rule)

    # What the table knows

    def _of_rule(self, op: Op, rule: Rule) -> Op | None:
        """By what the section of a primitive says."""
        pairs = list(self._active(rule, op))
        if not pairs:
            return None
        for attempt in (self._of_formulas, self._of_linear, self._of_jacobian):
            try:
                found = attempt(op, rule, pairs)
            except UnsupportedError:
                continue
            if found is not None:
                return found
        return self._of_call(op)

    def _active(self, rule: Rule, op: Op) -> Iterator[tuple[str, Op, Op]]:
        """The arguments that have a tangent, with the names of their parameters."""
        for item, arg in zip(rule.parameters, op.args, strict=True):
            tangent = self._tangent(arg)
            if tangent is not None and item.name not in rule.facts.nondiff:
                yield item.name, arg, tangent

    def _tangent(self, arg: Op) -> Op | None:
        """The tangent of an argument; of several tensors those of each, zeros for what has none."""
        if arg.rule != "list":
            return self.tangents.get(arg)
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
        """By the formulas that the section has for tangents."""
        if not all(name in rule.tangents for name, _, _ in pairs):
            return None

        def term(name: str, tangent: Op) -> Op:
            env = {"tangent": tangent, "result": op, **self._arguments(op, rule)}
            return self._value(rule, self.table.tangent(rule, name), env)

        return self._sum(op, pairs, term)

    def _of_linear(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """The primitive of the tangents: of all together, or of each beside the other arguments."""
        alone = rule.category != "elementwise" or len(rule.facts.differentiable) == 1
        if rule.facts.linear and (alone or not self._is_real(op)):
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
        """The tangent in the place of an argument; of several tensors that of one of them beside the others."""
        if arg.rule != "list":
            yield tangent
            return
        for at, item in enumerate(arg.args):
            if item in self.tangents:
                others = (*arg.args[:at], self.tangents[item], *arg.args[at + 1 :])
                yield self.program.op("list", others)

    def _applied(self, op: Op, rule: Rule, given: Mapping[str, Op]) -> Op:
        """A linear primitive of tangents; the other arguments that it is linear in have none, so that they are zeros."""
        make, zeros = self.make, dict[str, Op]()
        for item, arg in zip(rule.parameters, op.args, strict=True):
            if item.name in rule.facts.differentiable and item.name not in given:
                if arg.is_tensor:
                    zeros[item.name] = make.zeros(arg, arg.shape)
                elif arg.rule == "list" and arg.args:
                    raise UnsupportedError("a list without tangents")
                elif literal(arg) is not None:
                    zeros[item.name] = make.const(0)
        return self._with(op, rule, {**given, **zeros})

    def _with(self, op: Op, rule: Rule, given: Mapping[str, Op]) -> Op:
        """The primitive of other arguments, in the shape that it has."""
        pairs = zip(rule.parameters, op.args, strict=True)
        args = tuple(given.get(item.name, arg) for item, arg in pairs)
        return self.program.shaped(self.make(op.rule, *args), op.shape)

    def _of_jacobian(self, op: Op, rule: Rule, pairs: Pairs) -> Op | None:
        """By the formulas of gradients, where the Jacobian is diagonal, or has a row for each result."""
        if not all(name in rule.formulas for name, _, _ in pairs):
            return None
        env = {"result": op, **self._arguments(op, rule)}

        def pulled(name: str, cotangent: Op) -> Op:
            formula = self.table.gradients(rule, name)[0]
            return self._value(rule, formula, {**env, "grad": cotangent})

        each = rule.category == "loss" and literal(env.get("reduction", op)) == "none"
        if rule.category == "elementwise" or each:
            if self._is_real(op):
                return self._sum(op, pairs, pulled)
            if any(arg.kind != COMPLEX for arg in (op, *(arg for _, arg, _ in pairs))):
                return None
            conj = self.make.conj
            return self._sum(op, pairs, lambda name, t: conj(pulled(name, conj(t))))
        if not (self._is_real(op) and rule.facts.is_one_tensor):
            return None
        rest = self._reduced(rule, env)
        if rest is None:
            return None
        one = self.program.op(
            "ones", (), OfShape(op.shape), kind=op.kind, shape=op.shape
        )

        def summed(name: str, tangent: Op) -> Op:
            product = _Replaced(self.make, one, tangent)(pulled(name, one))
            return self.program.shaped(self.make.sum(product, *rest), op.shape)

        return self._sum(op, pairs, summed)

    def _reduced(self, rule: Rule, env: Mapping[str, Op]) -> tuple[Op, ...] | None:
        """What is said of the dims that a primitive reduces, where each element of the result is of its own part of the arguments."""
        if rule.category == "reduction":
            said = (env.get(name) for name in ("dim", "keepdim"))
            return tuple(item for item in said if item is not None)
        if rule.category != "loss":
            return None
        reduction = env.get("reduction")
        known = reduction is None or isinstance(literal(reduction), str)
        return () if known else None  # of each element it is elementwise, as above

    def _sum(self, op: Op, pairs: Pairs, term: Callable[[str, Op], Op]) -> Op:
        """What all arguments contribute together; one that may be absent only where it is there."""
        make, perhaps = self.make, []
        total: Op | None = None
        for name, arg, tangent in pairs:
            found = term(name, tangent)
            if self.program.may_be_absent(arg) and make.applier.takes_none(op, arg):
                perhaps.append((arg, found))
            else:
                total = found if total is None else make.add(total, found)
        for arg, found in perhaps:
            none, read = make.const(None), self.program.read(arg.name)
            there = self.program.python("compare", "is not", read, none)
            without = make.zeros(op, op.shape) if total is None else total
            both = found if total is None else make.add(total, found)
            total = make.choose(there, both, without)
        assert total is not None  # there is a tangent
        return total

    def _arguments(self, op: Op, rule: Rule) -> dict[str, Op]:
        names = (item.name for item in rule.parameters)
        found = dict(zip(names, op.args, strict=True))
        if len(rule.results) > 1:
            for at, name in enumerate(rule.results):
                found[name] = item_at(self.make, op, at)
        return found

    def _value(self, rule: Rule, formula: Node, env: Mapping[str, Op]) -> Op:
        home = self.table.home(rule)
        return FormulaEvaluator(self.make, env, home).value(formula)

    def _is_real(self, op: Op) -> bool:
        """Whether no complex number is in it: by these a gradient is multiplied conjugated, and a tangent as they are."""
        return all(item.kind != COMPLEX for item in (op, *tensors(op.args)))

    # Several results

    def _of_item(self, op: Op) -> Op | None:
        """One of several results."""
        group = op.args[0]
        rule = self.table.of_op(group.rule)
        if rule is None or op.kind != REAL:
            return self._of_call(op)
        pairs = list(self._active(rule, group))
        if not pairs:
            return None
        if rule.facts.linear:
            pushed = self._grouped(group, rule, {name: t for name, _, t in pairs})
            return self.program.over(op, (pushed,))
        if op.position == 0 and all(name in rule.tangents for name, _, _ in pairs):
            env = self._arguments(group, rule)
            return self._sum(
                op,
                pairs,
                lambda name, t: self._value(
                    rule, self.table.tangent(rule, name), {**env, "tangent": t}
                ),
            )
        return self._of_call(op)

    def _grouped(self, group: Op, rule: Rule, given: Mapping[str, Op]) -> Op:
        pairs = zip(rule.parameters, group.args, strict=True)
        args = [given.get(item.name, arg) for item, arg in pairs]
        return self.program.over(group, args)

    # What the table does not know

    def _of_call(self, op: Op) -> Op | None:
        """By autograd of the one call: its gradient is linear, and the gradient of that is the tangent."""
        source = op.args[0] if op.rule == "item" else op
        rule = self.table.of_op(source.rule)
        if rule is not None:  # what has no gradient has no tangent: PyTorch raises
            pairs = zip(rule.parameters, source.args, strict=True)
            known = [x for item, x in pairs if item.name not in rule.facts.nondiff]
        else:
            known = [*source.args]
        args = tuple(x for x in dict.fromkeys(tensors(known)) if x in self.tangents)
        if not args:
            return None
        if any(self.program.may_be_absent(arg) for arg in args if arg.rule == "input"):
            raise UnsupportedError(f"an input of {source.rule} may be absent")
        self.calls.append(source)
        pushed = tuple(self.tangents[arg] for arg in args)
        return self.program.op(
            "jvp",
            (*pushed, *source.args, *((op,) if op is not source else ())),
            Pullback(op, args),
            kind=op.kind,
            shape=op.shape,
        )


class _Replaced:
    """A gradient in which the tangent stands for the cotangent of a reduction: the terms of the sum that the tangent of the result is.

    The cotangent is spread over what was reduced; the tangent has that shape.
    """

    def __init__(self, make: Maker, cotangent: Op, tangent: Op) -> None:
        self.make, self.cotangent, self.tangent = make, cotangent, tangent

    def __call__(self, op: Op) -> Op:
        if op is self.cotangent:
            return self.tangent
        if not self._reads(op):
            return op
        if _spreads(op):
            return self._spread((op,), _narrow(op))
        return self._rebuilt(op, map(self, op.args))

    def _reads(self, op: Op) -> bool:
        return any(part is self.cotangent for part in op.walk())

    def _spread(self, views: tuple[Op, ...], inner: Op) -> Op:
        """What is spread by some views, the outermost first, of which the cotangent is a factor: each of the others is."""
        if inner is self.cotangent:
            return self.tangent
        if _spreads(inner):
            return self._spread((*views, inner), _narrow(inner))
        if inner.facts.category != "elementwise":
            raise UnsupportedError(f"{inner.rule} in a gradient")
        parts = (self._part(views, inner, arg) for arg in inner.args)
        return self._rebuilt(inner, parts)

    def _part(self, views: tuple[Op, ...], inner: Op, arg: Op) -> Op:
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
        """A part in the place of what a view spreads."""
        if view is narrow:
            return part
        first, *rest = view.args
        kept = (part if arg is narrow else arg for arg in rest)
        args = (self._viewed(first, narrow, part), *kept)
        return self.make.program.op(
            view.rule, args, view.data, kind=part.kind, shape=view.shape
        )

    def _rebuilt(self, op: Op, args: Iterable[Op]) -> Op:
        if op.rule == "cond":
            return self.make.choose(op.test, *args)
        if op.data is not None:
            raise UnsupportedError(f"{op.rule} in a gradient")
        return self.make(op.rule, *args)


def _spreads(op: Op) -> bool:
    """Whether it gives a reduced value the dims again that were reduced."""
    return op.rule in SPREADING or op.facts.is_view


def _narrow(view: Op) -> Op:
    """What a view spreads; one that leaves a scalar as it is has both: `x.unsqueeze(0) if x.ndim else x`."""
    return view.args[1] if view.rule == "unless_scalar" else view.args[0]
