"""Find the forward's dialect: its choice among equivalent PyTorch spellings, which the backward copies.

A user who writes `x.sum(dim=1)` and `x.transpose(-2, -1)` gets a backward with `dim=1` and `transpose(-2, -1)`, not with `-1` and
`.mT`.

In: the expressions of a forward, before the backward is written. Out: a `Dialect`, by which `printer` spells ops. Invariant: all
spellings have the same value; if the forward mixes several, the rule's own spelling is taken.

Words: a way is another spelling of a primitive, `x.transpose(-2, -1)` for `x.mT`; a law is an identity of the table by which two
calls are the same; a sum is fused if it is written as one call of `torch.addcmul`.
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

# Operations along a dim; those that move dims, as `x.unsqueeze(-1)`, are none.
ALONG = frozenset({"reduction", "same_shape", "structural"})
# A dim or several, written as numbers: `-1`, `(0, 1)`.
DIMS = re.compile(r"\(?-?\d+(, -?\d+)*\)?")
# An identity equating a call with another primitive; with `M` it holds for matrices. An
# identity of real tensors alone, `mH(r) -> mT(r)`, is no alternative spelling for
# complex ones. Groups: M or x, the dims passed, the primitive.
ANOTHER = re.compile(r"\w+\(([Mx])(?:, ([-\d, ]+))?\) -> (\w+)\(\1\)")


class Way(NamedTuple):
    """Another spelling of a primitive: the rule it calls, and the arguments after the tensor.

    For the primitive `mT`, `x.transpose(-2, -1)` is `Way("transpose", (-2, -1), of_matrix=False)`, `x.t()` is `Way("t", (),
    of_matrix=True)`: the latter works for matrices only.
    """

    rule: str
    values: tuple[object, ...]
    of_matrix: bool


class Dialect(NamedTuple):
    """The spellings used in a forward, for the backward to copy, and the sums written as `torch.addcmul`."""

    by_keyword: bool = False  # `x.sum(dim=-1)`
    from_start: bool = False  # `x.sum((2, 3))`
    ways: Mapping[str, Way] = {}  # rule -> `x.transpose(-2, -1)` of `x.mT`
    fused: Mapping[Op, tuple[Op, Op]] = {}  # a sum -> its product, its other term

    def counted(self, dims: object, rank: int | None) -> object:
        """Return dims as the forward counts them; the engine counts from the end: `-1` of 3 dims stays -1, or becomes 2.

        A tuple with the first dim reads better from the start in any dialect: `(0, 1)`, not `(-3, -2)`. Without a known `rank`
        nothing changes.
        """
        if rank is None:
            return dims
        if not isinstance(dims, tuple):
            return _from_start(dims, rank) if self.from_start else dims
        # `-rank` is the first dim, counted from the end.
        if self.from_start or -rank in dims:
            return tuple(_from_start(dim, rank) for dim in dims)
        return dims


def _from_start(dim: object, rank: int) -> object:
    """Count a dim from the start: 2 for -1 of 3 dims."""
    return dim + rank if isinstance(dim, int) and dim < 0 else dim


PLAIN = Dialect()


def dialect_of(table: Table, forward: Iterable[Node]) -> Dialect:
    """Return the spellings used in a forward: dims by keyword, counted from the start, `x.transpose(-2, -1)` for `x.mT`.

    `ways` maps a primitive (`mT`) to the call used in its place, unless the forward uses the primitive too (`used`). The table
    knows by identities (`transpose(x, -2, -1) -> mT(x)`) which calls are the same.
    """
    keyword_dims, positional_dims = list[str](), list[str]()
    ways, used = dict[str, Way](), set[str]()
    for node in dict.fromkeys(node for value in forward for node in value.walk()):
        # `x.mT` is an attribute itself, `x.t()` a call of one.
        callee = node.args[0] if node.kind == "call" else node
        if callee.kind != "attribute" or callee.label not in table:
            continue
        rule = table.rule(callee.label)
        used.add(rule.name)
        values = [emit(arg) for arg in node.args[1:]]
        # Keywords name the last arguments, so the two are paired from the end.
        given = dict(zip(reversed(node.keywords), reversed(values), strict=False))
        positional = values[: len(values) - len(given)]
        # `x.transpose(-2, -1)`: the law says that it is `mT`.
        for law in filter(None, map(ANOTHER.fullmatch, rule.simpler)):
            dims_of_law = law[2] or ""  # "" for `t(M) -> mT(M)`
            if dims_of_law == ", ".join(positional) and not given:
                numbers = tuple(map(literal_eval, positional))
                ways.setdefault(law[3], Way(rule.name, numbers, law[1] == "M"))
        if rule.category in ALONG and "dim" in given:
            keyword_dims.append(given["dim"])
        elif rule.category in ALONG and positional and DIMS.fullmatch(positional[-1]):
            positional_dims.append(positional[-1])
    dims = keyword_dims + positional_dims
    return Dialect(
        by_keyword=len(keyword_dims) > len(positional_dims),
        from_start=bool(dims) and not any("-" in item for item in dims),
        ways={name: way for name, way in ways.items() if name not in used},
    )


def fused_sums(gradients: Iterable[Op]) -> dict[Op, tuple[Op, Op]]:
    """Return the gradients to write as `torch.addcmul(a, b, c)`, each with its product `b * c` and its other term `a`.

    For `a + b * c` that is one pass over memory in place of two.
    """
    sums = (op for op in gradients if op.facts.operator == "+")
    pairs = ((op, op.args[at], op.args[1 - at]) for op in sums for at in (0, 1))
    return {op: (one, two) for op, one, two in pairs if _is_fused(op, one, two)}


def _is_fused(op: Op, product: Op, other: Op) -> bool:
    """Return whether `op`, the sum of `product` and `other`, is written as `torch.addcmul`: all terms are tensors of one shape.

    `other` is one value but no choice, or a multiple of one (`2 * x`): a longer one reads worse inside a call. A sum of scalars is
    no pass over memory to save.
    """
    if product.facts.operator != "*" or op.shape == SCALAR:
        return False
    operator, parts = other.facts.operator, (other, *product.args)
    # `2 * x`, or no operator at all: `x.exp()`.
    is_short = operator == "*" and other.args[0].kind == "static" or not operator
    same = all(part.kind == "real" and part.shape == op.shape for part in parts)
    is_one_value = is_short and other.rule not in CHOICES
    return is_one_value and same and not any(map(may_be_number, parts))
