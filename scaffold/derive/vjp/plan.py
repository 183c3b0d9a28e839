"""What of the forward is saved for the backward, and what is computed again.

In: the gradients, over values of the forward. Out: the values to save beside inputs and outputs. Invariant: what is not
saved can be computed from what is; values are saved only where that is noticeably faster than to compute them all again.

Each value of the forward that the backward reads must be at hand: saved, or computed from its arguments, which must then be
at hand. The cheapest choice is a minimum cut: cutting a value's own edge saves it, cutting the edge to the sink computes it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from scaffold.derive.vjp.costs import Costs
from scaffold.derive.vjp.cut import NEVER, Flow
from scaffold.derive.vjp.ir import Op
from scaffold.derive.vjp.pairs import tables_of_pairs

NOTICEABLE = 0.05  # the part of forward and backward that saving must spare
OUTGROWN = 16  # times the price: a table of pairs outgrows all that it is made of
SOURCE, SINK = "source", "sink"


def to_save(
    costs: Costs,
    results: Iterable[Op],
    roots: Iterable[Op],
    can_be_saved: Callable[[Op], bool],
) -> tuple[Op, ...]:
    """The values that are saved, in the order in which they are computed."""
    ends = tuple(results)
    forward = frozenset(op for result in ends for op in result.walk())
    backward = frozenset(op for root in roots for op in root.walk())
    read = sorted(_read(backward, forward), key=lambda op: op.serial)
    if all(op.rule == "input" for op in read):
        return ()
    choice = _Choice(costs, forward, frozenset(ends), read)
    none, _ = choice.best(lambda op: False)
    cost, saved = choice.best(can_be_saved)
    whole = sum(costs.compute(op) for op in forward | backward)
    return saved if none - cost >= NOTICEABLE * whole else ()


def _read(backward: Collection[Op], forward: Collection[Op]) -> Iterator[Op]:
    """The values of the forward that the backward starts from."""
    for op in backward:
        if op in forward or op.rule == "dtype":
            continue
        yield from (arg for arg in _tensors(op.args) if arg in forward)


def _tensors(ops: Iterable[Op]) -> Iterator[Op]:
    for op in ops:
        if op.rule == "list":
            yield from _tensors(op.args)
        elif op.is_tensor or op.kind == "group":
            yield op


class _Choice:
    """The ways to have all values that are read."""

    def __init__(
        self,
        costs: Costs,
        forward: frozenset[Op],
        ends: frozenset[Op],
        read: list[Op],
    ) -> None:
        self.costs, self.ends, self.read = costs, ends, read
        self.tables = tables_of_pairs(costs.table, forward, ends)
        self.ops = sorted(
            (op for op in forward if op.is_tensor or op.kind == "group"),
            key=lambda op: op.serial,
        )

    def best(self, can_be_saved: Callable[[Op], bool]) -> tuple[int, tuple[Op, ...]]:
        """The least cost, and what is saved for it beside inputs and outputs."""
        flow = Flow()
        for op in self.ops:
            self._add(flow, op, can_be_saved)
        for op in self.read:
            flow.edge(SOURCE, ("have", op.serial), NEVER)
        near = flow.source_side(SOURCE, SINK)
        cost, saved = 0, []
        for op in self.ops:
            have, make = (("have", op.serial) in near, ("make", op.serial) in near)
            if have and not make:
                cost += self._keep(op, can_be_saved)
                saved.append(op)
            elif make:
                cost += self._compute(op)
        apart = (op for op in saved if op.rule != "input" and op not in self.ends)
        return cost, tuple(apart)

    def _add(self, flow: Flow, op: Op, can_be_saved: Callable[[Op], bool]) -> None:
        have, make = ("have", op.serial), ("make", op.serial)
        flow.edge(have, make, self._keep(op, can_be_saved))
        flow.edge(make, SINK, self._compute(op))
        for arg in _tensors(op.args):
            flow.edge(make, ("have", arg.serial), NEVER)

    def _keep(self, op: Op, can_be_saved: Callable[[Op], bool]) -> int:
        leaf = op.rule == "input" or op in self.ends
        if op.is_tensor and (leaf or op.rule == "drawn" or can_be_saved(op)):
            price = self.costs.keep(op, leaf)
            return price * OUTGROWN if op in self.tables else price
        return NEVER

    def _compute(self, op: Op) -> int:
        """What cannot be computed again is cut off by its price."""
        return NEVER if op.rule in ("input", "drawn") else self.costs.compute(op)
