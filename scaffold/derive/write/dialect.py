"""The forward's dialect: its choice among equivalent PyTorch spellings, for the backward to follow.

In: the expressions of a forward; the gradients. Out: a `Dialect`. Invariant: all spellings have the same value; if the forward mixes
several, the rule's own spelling is taken.
"""

import re
from ast import literal_eval
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from scaffold.derive.graph.conditions import may_be_number
from scaffold.derive.graph.op import Op
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.rules.table import Table
from scaffold.derive.simplify.algebra import CHOICES
from scaffold.formula import Node, emit

# Operations along a dim, as opposed to moving dims: `x.sum(dim=-1)`, but
# `x.unsqueeze(-1)`.
ALONG = frozenset({"reduction", "same_shape", "structural"})
DIMS = re.compile(r"\(?-?\d+(, -?\d+)*\)?")
# An identity equating a call with another primitive; with `M` it holds for matrices. An
# identity of real tensors alone, `mH(r) -> mT(r)`, is no alternative spelling for
# complex ones.
ANOTHER = re.compile(r"\w+\(([Mx])(?:, ([-\d, ]+))?\) -> (\w+)\(\1\)")


class Way(NamedTuple):
    """An alternative spelling of a primitive: the rule it calls, and the arguments after the tensor."""

    rule: str
    values: tuple[object, ...]
    of_matrix: bool


class Dialect(NamedTuple):
    """The spellings used in a forward, and the sums written as `torch.addcmul`."""

    by_keyword: bool = False  # `x.sum(dim=-1)`
    from_start: bool = False  # `x.sum((2, 3))`
    ways: Mapping[str, Way] = {}  # rule -> `x.transpose(-2, -1)` of `x.mT`
    fused: Mapping[Op, tuple[Op, Op]] = {}  # a sum -> its product, its other term

    def counted(self, dims: object, rank: int | None) -> object:
        """Return the dims as the forward counts them; a tuple containing the first dim is counted from the start."""
        with_first = isinstance(dims, tuple) and rank is not None and -rank in dims
        if not (self.from_start or with_first) or rank is None:
            return dims
        if isinstance(dims, tuple):
            return tuple(_from_start(dim, rank) for dim in dims)
        return _from_start(dims, rank)


def _from_start(dim: object, rank: int) -> object:
    """Count a dim from the start."""
    return dim + rank if isinstance(dim, int) and dim < 0 else dim


PLAIN = Dialect()


def dialect_of(table: Table, forward: Iterable[Node]) -> Dialect:
    """Return the spellings used in a forward: dims by keyword, counted from the start, `x.transpose(-2, -1)` for `x.mT`.

    `ways` maps a primitive (`mT`) to the call used in its place, unless the forward uses the primitive too (`own`).
    """
    named, placed = list[str](), list[str]()
    ways, own = dict[str, Way](), set[str]()
    for node in dict.fromkeys(node for whole in forward for node in whole.walk()):
        callee = node.args[0] if node.kind == "call" else node
        if callee.kind != "attribute" or callee.label not in table:
            continue
        rule = table.rule(callee.label)
        own.add(rule.name)
        values = [emit(arg) for arg in node.args[1:]]
        given = dict(zip(reversed(node.keywords), reversed(values), strict=False))
        plain = values[: len(values) - len(given)]
        for said in filter(None, map(ANOTHER.fullmatch, rule.simpler)):
            if (said[2] or "") == ", ".join(plain) and not given:
                numbers = tuple(map(literal_eval, plain))
                ways.setdefault(said[3], Way(rule.name, numbers, said[1] == "M"))
        if rule.category in ALONG and "dim" in given:
            named.append(given["dim"])
        elif rule.category in ALONG and plain and DIMS.fullmatch(plain[-1]):
            placed.append(plain[-1])
    dims = named + placed
    return Dialect(
        by_keyword=len(named) > len(placed),
        from_start=bool(dims) and not any("-" in item for item in dims),
        ways={name: way for name, way in ways.items() if name not in own},
    )


def fused_sums(gradients: Iterable[Op]) -> dict[Op, tuple[Op, Op]]:
    """Return the gradients `a + b * c` to write as `torch.addcmul(a, b, c)`, a pass less, each with its product and its other term."""
    sums = (op for op in gradients if op.facts.operator == "+")
    pairs = ((op, op.args[at], op.args[1 - at]) for op in sums for at in (1, 0))
    return {op: (one, two) for op, one, two in pairs if _is_fused(op, one, two)}


def _is_fused(op: Op, product: Op, own: Op) -> bool:
    """Return whether all terms are tensors of one size, and `a` is one value or a multiple of one: a longer sum reads worse."""
    operator, parts = own.facts.operator, (own, *product.args)
    plain = operator == "*" and own.args[0].kind == "static" or not operator
    fits = plain and own.rule not in CHOICES and op.shape != SCALAR
    same = all(part.kind == "real" and part.shape == op.shape for part in parts)
    product_fits = same and product.facts.operator == "*"
    return fits and product_fits and not any(map(may_be_number, parts))
