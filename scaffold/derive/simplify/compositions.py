"""Find compositions of primitives equal to a single one: `x * sigmoid(x)` is silu, `exp(log_softmax(x))` is softmax.

The single one has a shorter gradient, as its rule in the table says. `reverse` asks for it at each op of the forward; `gradients`
asks for the two passes at the end, over finished gradients.

In: an op of the forward, and the compositions of the rule table; the gradients. Out: the rule and its arguments; the gradients with
`softmax(x)`. Invariant: the op has the rule's value for all arguments; constants agree to the last digits, factors and terms may
stand in any order. In a backward, logarithms already available, or needed by another value, are read.

Words: `bound` maps the names in a composition to the ops they stand for. An op has a flag `distribution` in the table if its values
sum to 1.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.graph.shape_rules import dims_of
from scaffold.derive.rules.formula_words import restore
from scaffold.derive.rules.table import Rule, Table
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.patterns import Bound, Matcher, Pattern, heads, pattern
from scaffold.derive.simplify.rebuilding import Renewal, rebuilt, renewed
from scaffold.derive.simplify.rewrites import same_dims

RuleName = tuple[Table, str]  # a table, and the name of a rule in it


class Composition(NamedTuple):
    """A rule, and the op for each of its parameters."""

    rule: Rule
    args: Bound


class Composer:
    """A finder of the rule for an op of one program that composes several primitives."""

    def __init__(self, applier: Applier) -> None:
        """Search among the compositions of the applier's table."""
        self.applier = applier
        self.matches = Matcher()
        self.known: dict[Op, Composition | None] = {}

    def __call__(self, op: Op) -> Composition | None:
        """Return the rule of a value computed in several steps, `x * sigmoid(x)`, with its arguments; None if the table has none."""
        if op.kind != "real":
            return None
        if op not in self.known:
            self.known[op] = self._found(op)
        return self.known[op]

    def _found(self, op: Op) -> Composition | None:
        """Return the first composition of the table that matches an op, with its arguments: silu for `x * sigmoid(x)`; None without one."""
        for rule_of, item in _by_head(self.applier.table).get(op.rule, ()):
            for bound in self.matches(item, op, {}):
                if _fits(op, bound):
                    table, name = rule_of
                    rule = table.rule(name)
                    return Composition(rule, self._with_defaults(rule, bound))
        return None

    def _with_defaults(self, rule: Rule, bound: Bound) -> Bound:
        """Return the arguments with defaults for those missing; a parameter the rule's formulas do not read has none."""
        defaults = {
            item.name: self.applier.default(item.default)
            for item in rule.parameters
            if item.default is not None
        }
        return defaults | bound


@lru_cache(maxsize=8)
def _by_head(table: Table) -> Mapping[str, Iterable[tuple[RuleName, Pattern]]]:
    """Return the table's compositions with their rules, by each primitive the outermost matching op may have."""
    found: dict[str, list[tuple[RuleName, Pattern]]] = {}
    for home, name, text in table.composed():
        item = pattern(text, op_of=home.op_of)
        for head in heads(item):
            found.setdefault(head, []).append(((home, name), item))
    return found


def _fits(op: Op, args: Bound) -> bool:
    """Return whether nothing is broadcast among the arguments, as the rule assumes: all tensors have the shape of the result."""
    tensors = [item for item in args.values() if item.is_tensor]
    return bool(tensors) and all(
        item.shape == op.shape and item.kind == "real" for item in tensors
    )


# --- Passes over gradients: use a softmax that is there; compute a softmax, not the exponential of logarithms.


def with_one_softmax(
    make: Maker, roots: Mapping[str, Op], held: Collection[Op]
) -> dict[Op, Op]:
    """Return replacements of `exp(x - logsumexp(x))` by a `softmax(x)` the gradients have too: in a loss with a z-loss.

    Ops in `held` have names and stay. All sums above such an op are made again, as their terms may join now.
    """
    seen = down_to(roots.values(), held)
    # The argument of a softmax -> the softmax.
    known = {op.args[0]: op for op in seen if "distribution" in op.facts.flags}

    def one_softmax(op: Op, of: Renewal) -> Op:
        """Return the softmax of the gradients for an exponential equal to it, and sums of replaced terms simplified again."""
        if _is_probability(op):
            x, restored = op.args[0].args  # of `exp(x - restored)`
            if (softmax := known.get(x)) and _is_along(make, restored, softmax):
                return softmax
        args = tuple(map(of, op.args))
        # A sum of replaced terms, whose common softmax may be factored out now.
        joins = op.facts.operator == "+" and args != op.args
        return make.add(*args) if joins else rebuilt(make, op, of)

    return renewed(roots.values(), held, one_softmax) if known else {}


def _is_probability(op: Op) -> bool:
    """Return whether an op is the exponential of a difference, as `exp(x - logsumexp(x))`, and so perhaps a softmax."""
    if op.facts.argument != "exponent" or len(op.args) != 1:
        return False
    (exponent,) = op.args
    return exponent.facts.operator == "-" and len(exponent.args) == 2


def _is_along(make: Maker, restored: Op, softmax: Op) -> bool:
    """Return whether `restored` is the logsumexp of a softmax's argument, over the softmax's dim, with this dim of size 1."""
    lse = next((op for op in restored.walk() if op.rule == "logsumexp"), None)
    x, dim = softmax.args
    if lse is None or lse.args[0] is not x:
        return False
    same = same_dims(x.shape, dims_of(lse.args[1]), dims_of(dim))
    return same and restore(make, lse, x, *lse.args[1:]) is restored


def with_probabilities(
    make: Maker, roots: Mapping[str, Op], held: Collection[Op], there: Collection[Op]
) -> dict[Op, Op]:
    """Return replacements of `exp(log_softmax(x))` by `softmax(x)`, if the logarithms have no other use.

    Ops in `held` have names; ops in `there` are available to the backward anyway. In 11 of 661 known ops, each a loss over classes.
    """
    seen = {*down_to(roots.values(), held)}
    users: dict[Op, set[str]] = {}
    for op in seen - {*held}:
        for arg in op.args:
            users.setdefault(arg, set()).add(op.rule)
    # Logarithms that a named value needs are computed anyway.
    others = {op for op in seen if op in held and not _is_logarithm(op)}
    needed = {*down_to(others, there)}
    logs = {
        op
        for op in seen - {*there} - needed
        if _is_logarithm(op) and users.get(op) == {"exp"}
    }
    exponentials = {op for op in seen if op.rule == "exp" and op.args[0] in logs}

    def softmax_again(op: Op, of: Renewal) -> Op:
        """Return a softmax of the logits for the exponential of their log_softmax."""
        if op in exponentials:
            return make.applier.named("softmax", *op.args[0].args)
        return rebuilt(make, op, of)

    kept = {*held} - exponentials  # an exponential with a name is replaced, too
    return renewed(roots.values(), kept, softmax_again) if logs else {}


def _is_logarithm(op: Op) -> bool:
    """Return whether an op is a log_softmax."""
    return "log_distribution" in op.facts.flags
