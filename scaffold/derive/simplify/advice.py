"""Advise a stable spelling for numerically delicate formulas in a forward, `log(1 + exp(x))`; nothing is rewritten.

`gradients` adds the lines to the notes that a user sees for an op.

In: the results of a lowered forward. Out: a line for each formula of the table found in it, in any spelling. Invariant: the forward
stays as it is; if two patterns match one value, the first of the table is reported.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from scaffold.derive.graph.op import Op, down_to
from scaffold.derive.graph.signs import is_nonnegative, is_nonpositive
from scaffold.derive.simplify.patterns import Matcher, Pattern, heads, pattern
from scaffold.primitives.unstable_formulas import ADVICE, Advice


def advice(results: Iterable[Op]) -> tuple[str, ...]:
    """Return a line for each delicate formula in a forward: its trouble, and a stable spelling. `results` are the forward's."""
    told: dict[str, None] = {}
    inside = set[Op]()  # ops of a formula already told of
    matches = Matcher()
    for op in _from_outside(results):
        if op in inside or not op.is_tensor:
            continue
        for item, form in _by_head().get(op.rule, ()):
            parts = _matched_ops(matches, item, form, op)
            if parts:
                told[f"{item.shown} {item.trouble}; stable is {item.stable}"] = None
                inside |= parts
                break
    return tuple(told)


def _from_outside(results: Iterable[Op]) -> list[Op]:
    """Return the ops of a forward, each before its operands: a formula is found before a smaller one in it."""
    found = {op.serial: op for result in results for op in result.walk()}
    return [found[serial] for serial in sorted(found, reverse=True)]


@cache
def _by_head() -> Mapping[str, Iterable[tuple[Advice, Pattern]]]:
    """Return the rows of the table with their patterns, by each primitive the outermost matching op may have."""
    found: dict[str, list[tuple[Advice, Pattern]]] = {}
    for item in ADVICE:
        for text in item.patterns:
            form = pattern(text, prefix=True)
            for head in heads(form):
                found.setdefault(head, []).append((item, form))
    return found


def _matched_ops(matches: Matcher, item: Advice, form: Pattern, op: Op) -> set[Op]:
    """Return the ops matched by the pattern `form` of a row, to be skipped by others; empty without a match, or where it does no harm."""
    harmless = HARMLESS.get(item.unless)  # None for a row without such a property
    for bound in matches(form, op, {}):
        if not (harmless and harmless(bound["x"])):
            outside = {*bound.values()}
            return {part for part in down_to([op], outside) if part not in outside}
    return set()


# Conditions under which a pattern does no harm


def _is_shifted(op: Op) -> bool:
    """Return whether an exponent is like `x - x.amax()`: its exponential cannot overflow."""
    subtracted = op.args[1].walk() if op.rule == "sub" else ()
    largest = any("largest" in item.facts.flags for item in subtracted)
    return largest or is_nonpositive(op)


HARMLESS: dict[str, Callable[[Op], bool]] = {
    "nonpositive": is_nonpositive,
    "shifted": _is_shifted,
    "nonnegative": is_nonnegative,
}
