"""What a forward spells out in several primitives and another one computes alone: `x * sigmoid(x)` is silu.

In: a forward op, and the compositions of the rule table. Out: the rule and its arguments. Invariant: the op has the rule's
value for all arguments; constants agree to the last digits, factors and terms may stand in any order.
"""

from collections.abc import Iterator
from typing import NamedTuple

from scaffold.derive.vjp.apply import Applier
from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.normal_form import Term, close, of_node, of_op
from scaffold.derive.vjp.rules import Rule

HEADS = frozenset({"add", "sub", "mul", "div", "neg", "log", "exp", "log1p"})
Bound = dict[str, Op]


class Composition(NamedTuple):
    """A rule, and what stands for each of its parameters."""

    rule: Rule
    args: Bound


class Composer:
    """Finds the rules that ops of one program compose."""

    def __init__(self, applier: Applier) -> None:
        self.applier = applier
        self.known: dict[Op, Composition | None] = {}
        self.patterns: list[tuple[Rule, Term]] | None = None

    def __call__(self, op: Op) -> Composition | None:
        """The rule that computes what an op does in several steps."""
        if op.rule not in HEADS or op.kind != "real":
            return None
        if op not in self.known:
            self.known[op] = self._found(of_op(op), op)
        return self.known[op]

    def _found(self, term: Term, op: Op) -> Composition | None:
        if self.patterns is None:
            self.patterns = [
                (rule, of_node(pattern, _names(rule)))
                for rule, pattern in self.applier.table.compositions()
            ]
        for rule, pattern in self.patterns:
            for bound in matches(pattern, term, {}):
                if _fits(op, bound):
                    return Composition(rule, self._with_defaults(rule, bound))
        return None

    def _with_defaults(self, rule: Rule, bound: Bound) -> Bound:
        """What stands for parameters; one that the formulas do not read may be missing."""
        defaults = {
            item.name: self.applier.default(item.default)
            for item in rule.parameters
            if item.default is not None
        }
        return defaults | bound


def _names(rule: Rule) -> frozenset[str]:
    return frozenset(item.name for item in rule.parameters)


def _fits(op: Op, args: Bound) -> bool:
    """Whether nothing is broadcast: the rule's tensors have the result's shape."""
    tensors = [item for item in args.values() if item.is_tensor]
    return bool(tensors) and all(
        item.shape == op.shape and item.kind == "real" for item in tensors
    )


def matches(pattern: Term, term: Term, bound: Bound) -> Iterator[Bound]:
    """The arguments for which a pattern is the term."""
    if pattern.kind == "parameter":
        known = bound.get(pattern.label)
        if term.op is not None and known in (None, term.op):
            yield {**bound, pattern.label: term.op}
    elif (
        pattern.kind != term.kind
        or pattern.label != term.label
        or not close(pattern.value, term.value)
    ):
        return
    elif pattern.kind == "call":
        yield from _in_order(pattern.args, term.args, bound)
    else:
        for half in _in_any_order(pattern.below, term.below, bound):
            yield from _in_any_order(pattern.args, term.args, half)


Terms = tuple[Term, ...]


def _in_order(patterns: Terms, terms: Terms, bound: Bound) -> Iterator[Bound]:
    if len(patterns) != len(terms):
        return
    if not patterns:
        yield bound
        return
    for found in matches(patterns[0], terms[0], bound):
        yield from _in_order(patterns[1:], terms[1:], found)


def _in_any_order(patterns: Terms, terms: Terms, bound: Bound) -> Iterator[Bound]:
    """What is most particular first: a parameter fits anything."""
    if len(patterns) != len(terms):
        return
    if not patterns:
        yield bound
        return
    ordered = sorted(patterns, key=lambda item: item.kind == "parameter")
    for position, term in enumerate(terms):
        rest = terms[:position] + terms[position + 1 :]
        for found in matches(ordered[0], term, bound):
            yield from _in_any_order(tuple(ordered[1:]), rest, found)
