"""Lines that are longer than an author would let them be.

In: an op, and how it is written. Out: the part of it that gets a name. Invariant: what has a name already gets no other.
"""

from collections.abc import Container, Iterator, Mapping

from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.printer import Printer
from scaffold.derive.vjp.rewrites import is_one_hot
from scaffold.derive.vjp.schedule import TRIVIAL, VIEWS
from scaffold.formula import emit

WIDTH = 88 - 12  # what is left of a line under `if ctx.needs_input_grad[0]:`
LEAST = 12  # characters that a name is worth

# What has no better name than how it is made.
ARITHMETIC = frozenset({"mul", "div", "add", "sub", "summed_to", "where"})


def telling_part(
    printer: Printer, op: Op, width: int, of: Mapping[Op, Op], held: Container[Op]
) -> Op | None:
    """A part of a line of that width that says much, near to half of it."""
    best, distance = None, 2 * width
    for part in _inline_parts(printer, op, of, held):
        size = len(emit(printer.expression(part)))
        away = abs(size - width // 2)
        if part.rule in ARITHMETIC and part not in of:
            away += width // 3
        if away < distance and size > LEAST:
            best, distance = part, away
    return best


def _inline_parts(
    printer: Printer, op: Op, of: Mapping[Op, Op], held: Container[Op]
) -> Iterator[Op]:
    """The ops that stand in the expression of another."""
    waiting = list(op.args)
    while waiting:
        part = waiting.pop()
        if part in printer.names or part.rule in ("input", "cotangent"):
            continue
        if printer.in_place is not None and is_one_hot(part):
            continue  # it may stand there as an index only
        plain = part.rule in ("zeros", "neg") and of.get(part) not in held
        if part.rule not in TRIVIAL | VIEWS and not plain:
            yield part
        if part.rule != "cond":
            waiting += part.args
