"""The save plan: what is saved of the forward, what the backward computes again, and in which lines.

`min_cut` chooses what is saved under balanced, by the prices in `costs`.

In: the gradients as a graph. Out: a `SavePlan`. Invariant: whatever is saved, the gradients are the same.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from scaffold.derive.backward_program import needed_for
from scaffold.derive.derivation import Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.lower.forward_names import Places
from scaffold.derive.lower.statements import Lowered
from scaffold.derive.plan.costs import Costs, is_free, is_reduction, is_view
from scaffold.derive.plan.min_cut import to_save
from scaffold.derive.rules.table import Rule
from scaffold.formula import Assign, Statement
from scaffold.primitives.calls import may_be
from scaffold.spec import OpSpec

DEAR = 2  # passes from which on a value is not computed a second time
PLAIN = ("real", "complex")


class BackwardGraph(NamedTuple):
    """The gradients as a graph, with all that is known of the forward."""

    spec: OpSpec
    applier: Applier
    forward: Forward
    lowered: Lowered
    held: Mapping[Op, str]
    seeds: Mapping[Op, Op]  # the cotangent of each result -> that result
    roots: Mapping[str, Op]
    of: Mapping[Op, Op]
    via: Mapping[Op, tuple[Op, Op]]
    taken: Collection[str]
    indent: int = 0  # of the lines, where the backward runs under an autocast

    @property
    def saves(self) -> bool:
        """Whether values of the forward are saved."""
        return self.spec.forgoes_second


class SavePlan(NamedTuple):
    """Which values of the forward are saved, and which the backward computes in lines of its own.

    All others come again as statements of the forward.
    """

    saved: tuple[Op, ...]
    own: Mapping[Op, str]  # locals of the forward, computed in other lines than there
    once: bool  # a gradient is of a primitive that PyTorch differentiates once


def save_plan(backward: BackwardGraph) -> SavePlan:
    """What is saved of the forward, and which of its locals are computed another way than there."""
    saved = _saved(backward) if backward.saves else ()
    table = backward.applier.table
    below = {op for root in backward.roots.values() for op in root.walk()}
    rules = (table.of_op(op.rule) for op in below)
    once = any(rule is not None and _ends_at(rule) for rule in rules)
    return SavePlan(saved, _own(backward, saved), once)


def _ends_at(rule: Rule) -> bool:
    """Whether autograd does not differentiate a call in the backward: nor a function that only a rule of the user's has a gradient of."""
    word = rule.spelled.name.rpartition(".")[2]
    return rule.once or bool(rule.formulas) and may_be(word, "undifferentiated")


def _saved(backward: BackwardGraph) -> tuple[Op, ...]:
    """The values of the forward to save."""
    costs = Costs(backward.applier.table)
    named = {*backward.held, *backward.lowered.places}
    return to_save(
        costs,
        backward.lowered.results,
        backward.roots.values(),
        lambda op: op in named and not is_view(op),
    )


def _own(backward: BackwardGraph, saved: Collection[Op]) -> Mapping[Op, str]:
    """The locals of the forward that the backward computes in lines of its own."""
    spec, lowered = backward.spec, backward.lowered
    stated = spec.gradients or spec.backward
    if spec.foreign or stated or (spec.once_differentiable and not backward.saves):
        return {}
    there = {*saved, *lowered.results, *lowered.inputs.values()}
    return taken_apart(backward.roots.values(), backward.held, there)


def computed_twice(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    places: Places,
    statements: tuple[Statement, ...],
    there: Collection[str],
) -> tuple[Op, ...]:
    """The values without a name that would be computed twice: in a repeated statement of the forward, and in a gradient.

    `there` are the names that are at hand: what assigns them is not repeated.
    """
    ends = tuple(roots)
    read = {held[op] for op in down_to(ends, held) if op in held}
    repeated = needed_for(statements, read, there)
    lines = {
        at: item.value
        for at, item in enumerate(statements)
        if at in repeated and isinstance(item, Assign)
    }
    inside = {
        op
        for op, found in places.items()
        if op not in held and not is_free(op)
        if any(lines.get(at, node) is not node for at, node in found)
    }
    found = [op for op in down_to(ends, {*held, *inside}) if op in inside]
    return tuple(sorted(found, key=lambda op: op.serial))


# --- Rematerialization: locals of the forward that the backward computes in its own lines, since it reads what is inside them. Each can
# be computed again from inputs, results and other locals; one whose inside nobody else reads stays as the forward has it.


def taken_apart(
    roots: Iterable[Op],
    held: Mapping[Op, str],
    there: Collection[Op],
) -> dict[Op, str]:
    """The locals inside which the backward reads another value as well; what is `there` need not be computed."""
    ends = tuple(roots)
    found: dict[Op, str] = {}
    while True:
        stops = {op for op in held if op in there or op not in found}
        seen = {*down_to(ends, stops)}
        inner = {op for op in seen - stops if is_dear(op)}
        below = {*down_to(seen & stops - set(there), there)}
        more = {
            op: name
            for op, name in held.items()
            if op in below
            and op not in found
            and _holds(op, inner, there)
            and _is_plain(op, there)
        }
        if not more:
            return found
        found |= more


def _holds(op: Op, inner: Collection[Op], there: Collection[Op]) -> bool:
    return op not in there and any(
        part in inner and part is not op for part in down_to((op,), there)
    )


def is_dear(op: Op) -> bool:
    """Whether a value is better computed once."""
    if is_free(op) or op.kind not in PLAIN:
        return False
    return op.facts.is_dear or op.facts.passes >= DEAR or is_reduction(op)


def _is_plain(op: Op, there: Collection[Op]) -> bool:
    """Whether it is one tensor that every call computes, by primitives that have a rule."""
    return all(
        part in there
        or part.kind != "group"
        and part.rule not in ("call", "cond", "drawn", "item")
        for part in down_to((op,), there)
    )
