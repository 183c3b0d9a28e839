"""Domains of inputs: values at which the forward is smooth, by the domains of the rules reading them.

In: a lowered forward. Out: a domain for each input that needs one. Invariant: a rule's demand on a value is passed on
to its inputs only if theirs imply it: `a * b` is positive if both are.

The generated test draws its inputs from these domains: gradcheck would fail at the pole of `log`. Words: a domain is
"positive", "unit" (between 0 and 1 or between -1 and 1), "nonzero", "distinct" (no two elements equal), "simplex"
(rows that sum to 1) or "spd" (a positive definite matrix). An op is one application of a primitive in the graph.
"""

from collections.abc import Iterable

from scaffold.derive.graph.op import Op, is_number, number, tensors
from scaffold.derive.rules.table import Table
from scaffold.spec import Domain

# Domains by priority: of several demands, the first counts.
ORDER: tuple[Domain, ...] = (
    "spd",
    "simplex",
    "unit",
    "positive",
    "distinct",
    "nonzero",
)
# A positive definite matrix is invertible, and so is its lower triangle.
WORDS = {"invertible": "spd", "lower": "spd"}
UNIT = frozenset({"(0.1, 0.9)", "(-0.9, 0.9)", "(-1, 1)", "(0, 1)"})
Asked = dict[str, set[Domain]]


def domains(table: Table, results: Iterable[Op]) -> tuple[tuple[str, Domain], ...]:
    """Return the domain of each input whose readers demand one (positive for `log`), by name; of several the first of `ORDER`."""
    asked: Asked = {}
    seen = set[tuple[Op, Domain]]()
    for op in {op: None for result in results for op in result.walk()}:
        rule = table.of_op(op.rule)
        if rule is None:
            continue
        for parameter, arg in zip(rule.parameters, op.args, strict=False):
            word = _word(rule.domain.get(parameter.name, "any"))
            # `x ** 2` has a derivative at 0, unlike other powers.
            if word and not _is_natural_power(op):
                for tensor in tensors((arg,)):
                    _ask(tensor, word, asked, seen)
    return tuple((name, min(words, key=ORDER.index)) for name, words in asked.items())


def _word(domain: str) -> Domain | None:
    """Return the word of `ORDER` for a rule's domain, as written in the table; None without one.

    `"(0, 1)"` -> "unit", `"any; not 0"` -> "nonzero": kinks, values at which it is not smooth, follow the semicolon.
    """
    within, *kinks = (part.strip() for part in domain.split(";"))
    if within in UNIT:
        return "unit"
    # Beside a narrower domain, that domain counts.
    if "not 0" in kinks and within == "any":
        return "nonzero"
    asked = WORDS.get(within, within)
    return next((word for word in ORDER if word == asked), None)


def _is_natural_power(op: Op) -> bool:
    """Return whether it is `x ** 2` or the like, smooth for any x."""
    exponent = number(op.args[1]) if op.rule == "pow_exponent" else None
    return isinstance(exponent, int) and exponent >= 0


def _ask(op: Op, word: Domain, asked: Asked, seen: set[tuple[Op, Domain]]) -> None:
    """Record the demand that a value lie in a domain (`word`), at the inputs it is computed from, as far as theirs imply it.

    `asked` has the result, `seen` the demands made before.
    """
    if (op, word) in seen:
        return
    seen.add((op, word))
    if op.rule == "input":
        asked.setdefault(op.name, set()).add(word)
        return
    for arg, inner in _follows(op, word):
        _ask(arg, inner, asked, seen)


def _follows(op: Op, word: Domain) -> list[tuple[Op, Domain]]:
    """Return the arguments with domains sufficient for the result to lie in a domain; none if unknown.

    `a * b` is positive if `a` and `b` are.
    """
    if word == "positive":
        return _positive(op)
    if word == "unit" and (_is_product(op) or _is_natural_power(op)):
        factors = tensors(op.args)
        return [(arg, word) for arg in factors] if _no_larger(op) else []
    # Not so "distinct", for `x.expand(3, 4)`, nor the words for the rows and columns of a matrix.
    rearranged = _moves(op) and op.args[0].is_tensor
    return [(op.args[0], word)] if rearranged and word in ("nonzero", "unit") else []


def _is_product(op: Op) -> bool:
    return op.facts.operator == "*"


def _no_larger(op: Op) -> bool:
    """Return whether a product, or a natural power, of values between 0 and 1 is one too: `x * x`, `0.5 * x`, `x ** 2`, but not `2 * x`."""
    if not _is_product(op):
        return True
    numbers = [number(arg) for arg in op.args if not arg.is_tensor]
    return all(isinstance(item, int | float) and 0 < item <= 1 for item in numbers)


def _moves(op: Op) -> bool:
    """Return whether an op's elements are some of its argument's, as of a view or a slice: they lie in its domain."""
    moves = "moves" in op.facts.flags
    # Not `view_as_real`, nor its inverse: the parts of complex numbers are other elements.
    return moves and (op.kind == "complex") == (op.args[0].kind == "complex")


def _positive(op: Op) -> list[tuple[Op, Domain]]:
    """Return the arguments to restrict, each with its domain, to make a value positive; none if it is, or if that is unknown.

    `1 - x` is positive for `x` in the unit interval, `x * x` anyway. The flag "positive" of a section: positive
    arguments give a positive result.
    """
    if op.rule == "sub" and is_number(op.args[0], 1):
        return [(op.args[1], "unit")]
    if _is_product(op) and op.args[0] is op.args[1]:
        return []
    stays_positive = "positive" in op.facts.flags
    if stays_positive and op.facts.category == "elementwise":
        numbers = [number(arg) for arg in op.args]
        # `-2 * x` is not positive for a positive `x`.
        if any(isinstance(item, int | float) and item < 0 for item in numbers):
            return []
        return [(arg, "positive") for arg in op.args if arg.is_tensor]
    # The first argument alone: not the index of `x.gather(0, index)`.
    if stays_positive or _moves(op):
        return [(arg, "positive") for arg in tensors(op.args[:1])]
    return []
