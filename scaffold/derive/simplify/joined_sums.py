"""Sums of the backward that are one step: of choices by one test, of slices of one tensor, of what goes to places of it.

In: the terms. Out: the sum as one op. Invariant: same value, same shape; what a forward local holds stays whole.
"""

from collections.abc import Iterable, Iterator

from scaffold.derive.graph.conditions import choose, may_be_zero
from scaffold.derive.graph.op import Op, is_number, literal
from scaffold.derive.simplify.constructors import Maker, Registry

JOINED = Registry()
SCATTERS = frozenset({"index_add", "index_put", "scatter_add"})


@JOINED.on("add")
def scattered_onto(make: Maker, a: Op, b: Op) -> Op | None:
    """What goes to its places in a tensor of zeros, onto what it is added to: `a.index_add(0, index, g)`."""
    moved = a.rule == b.rule == "movedim" and a.args[1:] == b.args[1:]
    if moved and a.args[0].shape == b.args[0].shape:
        total = make.add(a.args[0], b.args[0])
        return make.program.shaped(make.movedim(total, *a.args[1:]), a.shape)
    for into, op in ((a, b), (b, a)):
        fits = op.rule in SCATTERS and op.args[0].rule == "zeros"
        fits = fits and (into.kind, into.shape) == (op.kind, op.shape)
        if not fits or into.rule == "cond" or may_be_zero(into) or make.opaque(op):
            continue
        if op.rule == "index_put" and literal(op.args[3]) is not True:
            continue
        if make.precision(into) == make.precision(op):
            added = make(op.rule, into, *op.args[1:])
            return make.program.shaped(added, op.shape)
    return None


def as_one_choice(make: Maker, total: Op) -> Op:
    """`g + (a if test else 0)` as `g + a if test else g`: a sum in which choices by one test come to 0."""
    terms = list(_terms(make, total, False))
    tests = {op.test for op, _ in terms if _comes_to_zero(make, op)}
    alike = all(op.shape == total.shape and op.kind == total.kind for op, _ in terms)
    if len(terms) < 2 or len(tests) != 1 or not alike:
        return total
    (test,) = tests
    branches = [_branch_sum(make, terms, test, at) for at in (0, 1)]
    if any(op is None or op.shape != total.shape for op in branches):
        return total
    body, orelse = branches
    assert body is not None and orelse is not None
    return choose(make.program, test, body, orelse)


def sure_of_one(make: Maker, total: Op) -> Op:
    """`(a if s else 0) + (b if t else 0)` as a choice between sums: each is a tensor or the number 0, and is seen to be."""
    terms = list(_terms(make, total, False))
    if len(terms) < 2 or not all(may_be_zero(op) for op, _ in terms):
        return total
    test = next(op.test for op, _ in terms if op.rule == "cond")
    sums = (_branch_sum(make, terms, test, at) for at in (0, 1))
    zero = make.program.const(0)
    return choose(
        make.program,
        test,
        *(zero if op is None else sure_of_one(make, op) for op in sums),
    )


def _terms(make: Maker, op: Op, minus: bool) -> Iterator[tuple[Op, bool]]:
    """The terms of a sum, each with whether it is subtracted."""
    if op.rule in ("add", "sub") and not make.opaque(op):
        one, two = op.args
        yield from _terms(make, one, minus)
        yield from _terms(make, two, minus != (op.rule == "sub"))
    elif op.rule == "neg" and not make.opaque(op):
        yield from _terms(make, op.args[0], not minus)
    else:
        yield op, minus


def _comes_to_zero(make: Maker, op: Op) -> bool:
    return op.rule == "cond" and may_be_zero(op) and not make.opaque(op)


def _branch_sum(
    make: Maker, terms: Iterable[tuple[Op, bool]], test: Op, at: int
) -> Op | None:
    total: Op | None = None
    for op, minus in terms:
        zero = _comes_to_zero(make, op) and op.test is test
        term = op.args[at] if zero else op
        if is_number(term, 0):
            continue
        if total is None:
            total = make.neg(term) if minus else term
        else:
            total = make("sub" if minus else "add", total, term)
    return total
