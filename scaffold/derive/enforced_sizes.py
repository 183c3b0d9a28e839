"""Sizes and ranks enforced by PyTorch: the forward raises for inputs of others.

In: the forward of an op, with a distinct name for each input size. Out: `Enforced`. Invariant: only primitives that
run in every call count, so the facts hold whenever the forward returns.

So the shape checks (`shape_guards`) that forward begins with need not test them again: `x @ w` raises by itself.
Words: an op is one application of a primitive in the graph of the forward; the rank of a tensor is its number of
dims; a size is named if it is that of an input's dim. A rule's `operands` are texts of the operands it accepts, `x[M,
K], y[K, N]`, one for each form of the call.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from scaffold.derive.derivation import Forward
from scaffold.derive.forward.body import write_forward
from scaffold.derive.graph.application import Applier, infer
from scaffold.derive.graph.op import Op, Program
from scaffold.derive.graph.shapes import (
    Dropped,
    Input,
    Kept,
    NamedSize,
    Transposed,
    least_rank,
    unknown,
)
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.rules.table import Table, Wanted, operands
from scaffold.derive.rules.team_tables import table_of
from scaffold.spec import OpSpec

PRODUCT = "contraction"
ALIKE = frozenset({"elementwise", "same_shape"})


class Enforced(NamedTuple):
    """Pairs of surely equal sizes, inputs surely of their declared rank, and inputs with a least rank."""

    pairs: tuple[tuple[str, str], ...] = ()
    ranks: frozenset[str] = frozenset()
    least: tuple[tuple[str, int], ...] = ()  # input -> its least number of dims


def enforced(spec: OpSpec, forward: Forward | None) -> Enforced:
    """Return the sizes and ranks enforced by a forward's primitives; nothing if it is not understood."""
    known = _facts(spec, forward) if forward is not None else None
    return known[0] if known else Enforced()


def met_sizes(spec: OpSpec) -> tuple[tuple[str, str], ...]:
    """Return pairs of names of last sizes, equal unless a tensor is expanded; none if the forward is not understood.

    A guess of the shapes to propose for undeclared inputs: `x + y` suggests the same last size for both.
    """
    known = _facts(spec, None)
    if known is None:
        return ()
    facts, lowered = known
    return (*facts.pairs, *(pair for op in _ops_of(lowered) for pair in _met(op)))


def _facts(spec: OpSpec, forward: Forward | None) -> tuple[Enforced, Lowered] | None:
    """Return the facts about sizes and ranks a forward enforces, and its graph; None if it is not understood.

    A call with other sizes raises in PyTorch. Without a `forward` it is written here.
    """
    if spec.forward is None or spec.kept is not None:
        return None
    table = table_of(spec)
    try:
        program = Program(spec.forward.graph, table.facts, declared(spec))
        forward = forward or write_forward(spec, spec.forward)
        lowered = lower(spec, forward, Applier(program, table), frozenset())
        return _enforced(program, table, lowered), lowered
    except (UnsupportedError, RecursionError):
        return None


def _met(op: Op) -> Iterator[tuple[str, str]]:
    """Yield pairs of names of last sizes that meet in an elementwise operation, or in a norm and its weight.

    PyTorch would expand a 1 there, so this is only likely.
    """
    if op.facts.category not in ALIKE:
        return
    lasts = [arg.shape.dims[-1] for arg in op.args if arg.shape.dims]
    names = [size.name for size in lasts if isinstance(size, NamedSize)]
    yield from pairwise(names)


def _enforced(program: Program, table: Table, lowered: Lowered) -> Enforced:
    """Return equal sizes, fixed ranks and least ranks enforced by the ops of a forward that run in every call (`places`).

    The table says of a primitive which operands it accepts, `x[M, K], y[K, N]`: equal letters are equal sizes. An
    input's rank is fixed if an op accepts no other, or lower ones only with results that no gradient fits
    (`_only_in_products`).
    """
    ops = [
        op
        for op in _ops_of(lowered)
        if op in lowered.places and op.rule in table and table.rule(op.rule).operands
    ]
    pairs, ranks = list[tuple[str, str]](), set[str]()
    users = _users(lowered)
    for op in ops:
        rule = table.rule(op.rule)
        args = rule.by_parameter(op.args)
        # For each form of the call (a matrix or a vector) the accepted dims.
        forms = [operands(text) for text in rule.operands]
        pairs += _pairs(next((form for form in forms if _fits(form, args)), {}), args)
        for name in forms[0]:  # every form has the same operands
            arg = args[name]
            accepted = [form[name] for form in forms]
            if arg.rule != "input" or not _has_largest_rank(arg, accepted):
                continue
            # Only a smaller rank is accepted besides.
            if len(forms) == 1 or _only_in_products(table, arg, op, users):
                ranks.add(arg.name)
    least = dict[str, int]()
    for name, count in _least(program, table, lowered):
        least[name] = max(count, least.get(name, 0))
    return Enforced(tuple(pairs), frozenset(ranks), tuple(least.items()))


def _least(
    program: Program, table: Table, lowered: Lowered
) -> Iterator[tuple[str, int]]:
    """Yield inputs with the least rank at which exchanging or summing their dims does not raise: 2 for `x.transpose(0, 1)`.

    The shape of the op's result is inferred anew for an input of unknown shape (`open_`); its origin then names the
    dims. Ops outside `places` run in some calls only.
    """
    for op in _ops_of(lowered):
        if op.rule not in table or op not in lowered.places or not op.args:
            continue
        first = op.args[0]
        # Without leading dims its rank is known, or tested.
        if first.rule != "input" or first.shape.lead is None:
            continue
        rule = table.rule(op.rule)
        open_ = replace(first, shape=unknown(Input(first.name)))
        args = rule.by_parameter((open_, *op.args[1:]))
        shape = infer(program, rule, args).shape
        match shape.origin if shape else None:
            case (
                Transposed(_, dims)
                | Dropped(_, dims)
                | Kept(_, frozenset() | tuple() as dims)
            ):
                plain = (dim for dim in dims if isinstance(dim, int))
                yield first.name, max(map(least_rank, plain), default=0)


def _ops_of(lowered: Lowered) -> Iterable[Op]:
    """Return each op below the results once."""
    return dict.fromkeys(op for result in lowered.results for op in result.walk())


def _users(lowered: Lowered) -> dict[Op, list[Op]]:
    """Map each op below the results to the ops reading it: how all uses of an input are found."""
    found: dict[Op, list[Op]] = {}
    for op in _ops_of(lowered):
        for arg in op.args:
            found.setdefault(arg, []).append(op)
    return found


def _fits(wanted: Wanted, args: Mapping[str, Op]) -> bool:
    """Return whether operands surely have as many dims as one of the table's texts says.

    `wanted` has that text, `{"x": ("M", "K")}`; "..." stands for any number of dims, and is the first.
    """
    for name, sizes in wanted.items():
        shape = args[name].shape
        if sizes[0] == "...":
            # Leading dims may be none, but those behind `...` must all be there.
            if shape.trailing < len(sizes) - 1:
                return False
        elif shape.rank != len(sizes):
            return False
    return True


def _pairs(wanted: Wanted, args: Mapping[str, Op]) -> Iterator[tuple[str, str]]:
    """Yield pairs of size names with the same letter in the table's text of operands: PyTorch raises if they differ.

    `wanted` has the letters of each operand, read from the last dim on, as leading dims may be of any number. A
    number is no name, and enforces nothing here.
    """
    known: dict[str, object] = {}  # a letter -> the first size in its place
    for name, sizes in wanted.items():
        dims = args[name].shape.dims
        if dims is None:  # only its rank is known: a transpose of unknown sizes
            continue
        for back, size in enumerate(reversed(sizes), 1):
            if size == "..." or isinstance(dims[-back], int):
                continue
            dim = dims[-back]
            first = known.setdefault(size, dim)
            if isinstance(first, NamedSize) and isinstance(dim, NamedSize):
                yield first.name, dim.name


def _has_largest_rank(arg: Op, accepted: list[tuple[str, ...]]) -> bool:
    """Return whether an operand has the largest rank accepted; False if one of its `accepted` dims is "...": none is the largest.

    `accepted` has a tuple of dims for each form of the call.
    """
    if any(sizes[0] == "..." for sizes in accepted):
        return False
    return arg.shape.rank == max(map(len, accepted))


def _only_in_products(
    table: Table, arg: Op, op: Op, users: Mapping[Op, list[Op]]
) -> bool:
    """Return whether a matrix is used in products only: with a vector in its place these have one dim less, and no gradient fits.

    So its rank is enforced. `op` is one use of `arg`: a product, or the sole other op below products, as its
    transpose in `x @ w.mT`. `users` maps an op to the ops reading it.
    """

    def is_product(user: Op) -> bool:
        return user.rule in table and table.rule(user.rule).category == PRODUCT

    if is_product(op):
        return all(map(is_product, users[arg]))
    return users[arg] == [op] and all(map(is_product, users.get(op, ())))
