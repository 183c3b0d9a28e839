"""What of a line that is too long gets a name.

In: an op whose expression is too long, and what prints it. Out: a part of it. Invariant: the part stands in the line and says
much, near to half of it.
"""

from collections.abc import Collection, Mapping

from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.printer import Printer
from scaffold.derive.vjp.rewrites import is_one_hot
from scaffold.derive.vjp.schedule import TRIVIAL, VIEWS
from scaffold.formula import emit

# What has no better name than how it is made.
ARITHMETIC = frozenset({"mul", "div", "add", "sub", "summed_to", "where"})


def part_to_name(
    printer: Printer,
    op: Op,
    width: int,
    of: Mapping[Op, Op],
    held: Collection[Op],
) -> Op | None:
    """The part of a line that is best given a name; `of` tells what cotangents are of, `held` values have names."""
    best, distance = None, 2 * width
    for part in _inline_parts(printer, op, of, held):
        size = len(emit(printer.expression(part)))
        away = abs(size - width // 2)
        if part.rule in ARITHMETIC and part not in of:
            away += width // 3
        if away < distance and size > 12:
            best, distance = part, away
    return best


def _inline_parts(
    printer: Printer, op: Op, of: Mapping[Op, Op], held: Collection[Op]
) -> list[Op]:
    """The ops that stand in the expression of another."""
    found, waiting = list[Op](), list(op.args)
    while waiting:
        part = waiting.pop()
        if part in printer.names or part.rule in ("input", "cotangent"):
            continue
        if printer.in_place is not None and is_one_hot(part):
            continue  # it may stand there as an index only
        role = of.get(part)
        plain = part.rule in ("zeros", "neg") and role not in held
        if part.rule not in TRIVIAL | VIEWS and not plain:
            found.append(part)
        if part.rule != "cond":
            waiting += part.args
    return found
