"""What is numerically delicate in a forward, and how it is spelled stably: said, never rewritten.

In: the results of a lowered forward. Out: a line for each formula of the table that is met, whatever its spelling.
Invariant: the forward stays as it is; of two patterns that meet in one value the first of the table is told.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from scaffold.derive.graph.op import Op, down_to, is_number, number
from scaffold.derive.simplify.patterns import Matcher, Pattern, heads, pattern
from scaffold.primitives.unstable_formulas import ADVICE, Advice


def advice(results: Iterable[Op]) -> tuple[str, ...]:
    """What to say of a forward."""
    told: dict[str, None] = {}
    inside = set[Op]()
    matches = Matcher()
    for op in _from_outside(results):
        if op in inside or not op.is_tensor:
            continue
        for item, form in _by_head().get(op.rule, ()):
            parts = _met(matches, item, form, op)
            if parts:
                told[f"{item.shown} {item.trouble}; stable is {item.stable}"] = None
                inside |= parts
                break
    return tuple(told)


def _from_outside(results: Iterable[Op]) -> list[Op]:
    """The ops of a forward, each before what it reads."""
    found = {op.serial: op for result in results for op in result.walk()}
    return [found[serial] for serial in sorted(found, reverse=True)]


@cache
def _by_head() -> Mapping[str, Iterable[tuple[Advice, Pattern]]]:
    """The rows of the table with each of their patterns that a value of a primitive may be, in order."""
    found: dict[str, list[tuple[Advice, Pattern]]] = {}
    for item in ADVICE:
        for text in item.patterns:
            form = pattern(text, prefix=True)
            for head in heads(form):
                found.setdefault(head, []).append((item, form))
    return found


def _met(matches: Matcher, item: Advice, form: Pattern, op: Op) -> set[Op]:
    """The ops of which a value is made, if it is the pattern: of those nothing else is said."""
    harmless = HARMLESS.get(item.unless)
    for bound in matches(form, op, {}):
        if not (harmless and harmless(bound["x"])):
            outside = {*bound.values()}
            return {part for part in down_to([op], outside) if part not in outside}
    return set()


# Where a pattern does no harm


def _is_shifted(op: Op) -> bool:
    """`x - x.amax()`: its exponential cannot overflow."""
    below = op.args[1].walk() if op.rule == "sub" else ()
    return any("largest" in item.facts.flags for item in below) or _is_nonpositive(op)


def _is_nonpositive(op: Op) -> bool:
    """`-x.abs()`, `-(x * x)`, `-x * x`."""
    if op.rule == "neg":
        return _is_nonnegative(op.args[0])
    if op.rule in ("mul", "div"):
        one, two = op.args
        turned = one.rule == "neg" and one.args[0] is two and op.rule == "mul"
        return (
            turned
            or (_is_nonpositive(one) and _is_nonnegative(two))
            or (_is_nonnegative(one) and _is_nonpositive(two))
        )
    return op.facts.sign == "nonpositive" or _number(op) <= 0


def _is_nonnegative(op: Op) -> bool:
    if op.facts.sign == "nonnegative":
        return True
    if op.rule == "pow_exponent":
        return any(is_number(op.args[1], even) for even in (2, 4, 6))
    if op.rule in ("mul", "div"):
        same = op.args[0] is op.args[1]
        return same or all(map(_is_nonnegative, op.args))
    if op.rule in ("sum", "mean"):
        return _is_nonnegative(op.args[0])
    return op.rule == "const" and _number(op) > 0


def _number(op: Op) -> float:
    """A constant; NaN, which equals nothing, for what is none."""
    value = number(op)
    return math.nan if value is None or isinstance(value, complex) else value


HARMLESS: dict[str, Callable[[Op], bool]] = {
    "nonpositive": _is_nonpositive,
    "shifted": _is_shifted,
    "nonnegative": _is_nonnegative,
}
