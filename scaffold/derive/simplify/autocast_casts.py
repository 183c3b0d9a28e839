"""Add casts to a backward that runs under the autocast of its forward: a cotangent may have another dtype than its value there.

Autocast lets a matrix product return `bfloat16` for `float32` operands; a `scatter` of it into `float32` zeros would raise.

In: gradients. Out: the same, with casts of operands to one dtype for calls that require it and are not cast by autocast: `scatter`,
a product over leading dims, which is `torch.tensordot`. Invariant: with autocast off, no cast changes anything.

Words: a statistic is the mean or the deviation that a norm returns besides its value; `facts.autocast` says what autocast does with
a primitive: "lower" casts its operands to the low precision, "float32" to the full one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from scaffold.derive.graph.conditions import given
from scaffold.derive.graph.op import Named, Op, literal, tensors
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.simplify.rebuilding import Renewal, renewed

CAST_BY_PYTORCH = frozenset({"lower", "float32"})
WIDER = Named("promote_types")  # a cast to the wider of two dtypes


def with_casts(
    make: Maker,
    roots: Mapping[str, Op],
    held: Collection[Op],
    known: Collection[Op],
) -> dict[Op, Op]:
    """Return the replacements of ops below the gradients with operands cast to one dtype; ops in `held` have names and stay.

    Cotangents in `known` surely have the dtype of the inputs, as those of an op that a compiler traces; without `known` any of them
    may have another, that of its value under autocast.
    """

    def with_cast(op: Op, of: Renewal) -> Op:
        """Return the op over its replaced arguments, cast if it takes only equal dtypes; zeros get their dtype where it is cheap."""
        args = tuple(map(of, op.args))
        if op.facts.dtype == "uniform" and op.facts.autocast not in CAST_BY_PYTORCH:
            args = _in_one_dtype(make, op, args, known)
        if op.rule == "zeros":
            args = (_of_its_dtype(make, args[0]), *args[1:])
        return make.program.over(op, args)

    return renewed(roots.values(), held, with_cast)


def _in_one_dtype(
    make: Maker,
    op: Op,
    args: tuple[Op, ...],
    known: Collection[Op],
) -> tuple[Op, ...]:
    """Return the arguments cast to the dtype of a computed one, one in full precision if there is one.

    Inputs have the dtype the user gave them; computed values that of autocast. `known` is that of `with_casts`.
    """
    rule = make.applier.table.of_op(op.rule)
    # Not strict: an op of the engine has no rule, hence no parameters.
    named = zip(args, rule.parameters if rule else ())
    statistics = [*filter(_is_statistic, args)]
    fixed = [arg for arg, item in named if item.name in op.facts.indices] + statistics
    alike = [arg for arg in _alike(op, args) if arg not in fixed]
    computed = [arg for arg in alike if _may_be_of_another_dtype(arg, known)]
    # A first argument cast to the dtype of another was cast by the formula of the gradient; what autograd hands in has that dtype.
    first = args[0].args[0] if args[0].rule == "accumulated" else args[0]
    if not computed or first.rule == "cast" and first.args[1] in args:
        return args
    like = min(computed, key=_precision_of)
    if statistics:
        norm = make.precision.results.get(args[0])
        cast = _casts_with_statistics(make, args[0], norm, alike, statistics, like)
    else:
        cast = {arg: _cast(make, arg, like) for arg in alike}
    return tuple(cast.get(arg, arg) for arg in args)


def _casts_with_statistics(
    make: Maker,
    cotangent: Op,
    norm: Op | None,
    alike: Sequence[Op],
    statistics: Sequence[Op],
    like: Op,
) -> dict[Op, Op]:
    """Map the tensors of the backward of a norm to their casts: `alike` are the `cotangent`, the input, and a weight, if any.

    `norm` is the forward value of the cotangent, None if that is of no whole value; `like` has the dtype to cast to. The statistics
    are either kept as the forward computed them, or computed again of the tensors as they are cast.
    """
    if norm is not None and any(norm.args == item.args for item in statistics):
        # The cotangent of a norm has the dtype in which autocast computed that, so its statistics stay, and `x` is cast
        # as it was then. A weight is never cast to less: on a CPU it may be in float32 beside an `x` in half precision.
        (call,) = norm.args
        x, *_ = call.args
        return {
            arg: _cast(make, arg, like, None if arg is x else WIDER) for arg in alike
        }
    if all(arg.rule == "input" for arg in alike if arg is not cotangent):
        # Of inputs alone, which have the dtype of the saved statistics, the same for all of these.
        return {arg: _cast(make, arg, statistics[-1]) for arg in alike}
    if len(alike) > 2:
        cast = {arg: _cast(make, arg, like) for arg in alike}
    else:
        # Without a weight: an input cast to the lower dtype of a gradient would have other statistics.
        grad, x = alike
        wide = _cast(make, x, grad, WIDER)
        cast = {x: wide, grad: _cast(make, grad, wide)}
    return cast | {arg: _of_cast(make, arg, cast) for arg in statistics}


def _is_statistic(op: Op) -> bool:
    """Return whether a value is a statistic, as the mean of a norm: PyTorch's backward takes it only as it was computed."""
    made = op.rule == "item" and op.kind == "real" and not op.active
    return made and all(inner.rule != "cotangent" for inner in op.walk())


def _of_cast(make: Maker, statistic: Op, cast: Mapping[Op, Op]) -> Op:
    """Return a statistic computed again, by its norm of the tensors as they are cast; `cast` maps a tensor to its cast."""
    (call,) = statistic.args
    again = make.program.over(call, (cast.get(arg, arg) for arg in call.args))
    return make.program.over(statistic, (again,))


def _of_its_dtype(make: Maker, op: Op) -> Op:
    """Return the innermost operand certain to have the dtype of `op`: zeros are made like it, so nothing is computed for them alone."""
    given = [arg for arg in tensors(op.args) if _has_dtype_of(make, op, arg)]
    return _of_its_dtype(make, given[0]) if given else op


def _cast(make: Maker, arg: Op, like: Op, by: Named | None = None) -> Op:
    """Return a value cast to the dtype of `like`, or to the wider of both dtypes if `by` is `promote_types`; None stays None."""
    if _has_dtype_of(make, arg, like):
        return arg
    if arg.rule == "zeros":  # made in that dtype
        return make.zeros(like, arg.shape)
    # Inside its choice: `x.to(...) if flag else None`.
    if arg.rule == "cond" and literal(arg.args[1]) is None:
        return make.choose(arg.test, _cast(make, arg.args[0], like, by), arg.args[1])
    cast = make.program.op(
        "cast", (arg, like), by, kind=arg.kind, shape=arg.shape, active=arg.active
    )
    return make.choose(given(make.program, arg), cast, make.const(None))


def _alike(op: Op, args: Iterable[Op]) -> list[Op]:
    """Return the tensors of the op's kind (real, complex) among arguments, without indices and masks; of a group, of the first one's."""
    given = [*tensors(args)]
    kind = given[0].kind if op.kind == "group" and given else op.kind
    return [arg for arg in given if arg.kind == kind]


def _precision_of(op: Op) -> tuple[bool, bool, bool]:
    """Return a sort key by which the dtype to cast to is chosen: full precision first, low precision late, zeros last.

    In low precision each addend of a sum would be rounded; zeros may be made in any dtype.
    """
    autocast = op.facts.autocast
    return op.rule == "zeros", autocast == "lower", autocast != "float32"


def _may_be_of_another_dtype(op: Op, known: Collection[Op]) -> bool:
    """Return whether autocast may have given a value another dtype than that of the inputs it is computed from.

    A cotangent, too, may come from autocast, unless it is in `known` (`with_casts`).
    """
    # A view has the dtype of its first operand, a cast that of the second one.
    while op.rule == "cast" or op.facts.category == "view":
        op = op.args[1] if op.rule == "cast" else op.args[0]
    return any(
        inner.rule in ("cotangent", "vjp") or inner.facts.autocast
        for inner in op.walk()
        if inner not in known
    )


def _has_dtype_of(make: Maker, op: Op, like: Op) -> bool:
    """Return whether a value certainly has the dtype of `like`, a value it is computed from: then no cast is needed."""
    # Autograd hands in a cotangent in the dtype of its value.
    value = make.precision.results.get(op, op)
    if like in (op, value):
        return True
    op = value
    if op.rule == "cast":  # its second argument gives the dtype
        return _has_dtype_of(make, op.args[1], like)
    # `x.to(y.dtype)`
    if op.rule == "to" and op.args[1].rule == "dtype":
        return _has_dtype_of(make, op.args[1].args[0], like)
    # Of a division autocast casts only `1 / x`, with a number first.
    unchanged = op.facts.autocast == "number_first" and op.args[0].is_tensor
    # Of autograd's results no dtype is known.
    if op.facts.autocast and not unchanged or op.rule == "vjp":
        return False
    said = op.facts.dtype
    # The position of the argument that gives the dtype.
    if isinstance(said, int):
        return _has_dtype_of(make, op.args[said], like)
    # Any other fact, as a dtype of its own, says nothing of the arguments; without tensors there is nothing to compare.
    given = _alike(op, op.args) if said in ("promoted", "uniform") else []
    return bool(given) and all(_has_dtype_of(make, arg, like) for arg in given)
