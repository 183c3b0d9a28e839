"""Assignments to a part of a tensor, `h[mask] = y`, as primitives that make the whole of it anew.

In: the tensor, the parts of its index and what is put there. Out: an op. Invariant: the value of the tensor after the assignment;
what cannot be said so is refused.
"""

from collections.abc import Sequence

from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import OfShape, Op, literal
from scaffold.derive.graph.static_values import UnsupportedError, difference, size_at
from scaffold.derive.lower import indexing
from scaffold.derive.rules.formula_words import in_shape
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.simplify.constructors import Maker

CHANGES = "it changes a tensor in place"


def put(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """What `value` is after `value[parts] = new`."""
    if not _keeps_kind(value, new):
        raise UnsupportedError(CHANGES)
    if any(part.is_tensor for part in parts):
        done = _picked(applier, value, parts, new)
    else:
        done = _sliced(applier, value, parts, new)
    return applier.program.shaped(done, value.shape)


def put_view(make: Maker, value: Op, view: Op, new: Op) -> Op:
    """What `value` is after a change in place has made `new` of a view of it.

    The gradient of a view puts what it is given where the view has its elements: among zeros, in the place of which the
    other elements of `value` stand.
    """
    program, table = make.program, make.applier.table
    rule = table.of_op(view.rule)
    known = rule is not None and view.facts.is_view and "x" in rule.formulas
    if rule is None or not known or not _is_real(value):
        raise UnsupportedError(CHANGES)
    names = (item.name for item in rule.parameters)
    args = dict(zip(names, view.args, strict=True))
    if args.get("x") is not value:
        raise UnsupportedError(CHANGES)
    grad = program.shaped(_as(make.applier, new, view), view.shape)
    env = {**args, "grad": grad, "result": view}
    formula = table.gradients(rule, "x")[0]
    placed = FormulaEvaluator(make, env, table.home(rule)).value(formula)
    return program.shaped(_among(make, placed, grad, value), value.shape)


def _among(make: Maker, placed: Op, new: Op, value: Op) -> Op:
    """A value that only moves the elements of `new`, with those of `value` around them."""
    if placed is new:
        return new
    first, *others = placed.args
    if placed.rule == "reshaped" and first is new:
        shape = make.program.op("shape", (), OfShape(value.shape))
        return in_shape(make, new, shape)
    if placed.facts.is_view and first is new:
        return placed
    if first is make.zeros(new, value.shape) and others[:1] == [new]:
        return make(placed.rule, value, *others)
    raise UnsupportedError(CHANGES)


def _is_real(op: Op) -> bool:
    return op.kind == "real"


def _keeps_kind(value: Op, new: Op) -> bool:
    """Whether what is put is surely no wider than the tensor: `labels[labels < 0] = 0`, but no 0.5 among integers, which becomes 0."""
    if _is_real(value):
        return not new.is_tensor or _is_real(new)
    if new.is_tensor:
        return new.kind == value.kind in ("int", "bool")
    number = literal(new)
    return type(number) is {"int": int, "bool": bool}.get(value.kind)


def _picked(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """At a mask, or at indices."""
    if not all(part.is_tensor and part.kind in ("int", "bool") for part in parts):
        raise UnsupportedError(CHANGES)
    whole = len(parts) == 1 and parts[0].kind == "bool"
    if whole and parts[0].shape == value.shape:
        everywhere = _unpicked(applier, new, parts[0])
        if everywhere is not None:
            return applier.named("where", parts[0], everywhere, value)
    if not new.is_tensor:
        new = applier.named("new_full", value, applier.program.op("list", ()), new)
    return applier.named("index_put", value, applier.program.op("list", parts), new)


def _unpicked(applier: Applier, new: Op, mask: Op) -> Op | None:
    """Of `y[mask].exp() * 2` the value for all of `y`; None where something else than such parts is in it."""
    if not new.is_tensor:
        return new
    if new.rule == "index" and new.args[1:] == (mask,):
        return new.args[0] if new.args[0].shape == mask.shape else None
    rule = applier.table.of_op(new.rule)
    if rule is None or rule.category != "elementwise":
        return None
    args = [_unpicked(applier, arg, mask) for arg in new.args]
    if any(arg is None for arg in args):
        return None
    return applier.named(new.rule, *(arg for arg in args if arg is not None))


def _is_new_dim(part: Op) -> bool:
    return part.rule == "const" and part.value is None


def _within(
    applier: Applier, value: Op, given: Sequence[tuple[int, Op]], new: Op
) -> Op:
    """What `value` is in the first of some dims, after the assignment to all of them."""
    (dim, part), *others = given
    if part.rule == "range":
        inner = indexing.sliced(applier, value, dim, part.args)
        return _put_at(applier, inner, others, new)
    inner = indexing.selected(applier, value, dim, part)
    left = [(at - 1 if 0 <= dim < at else at, item) for at, item in others]
    return _put_at(applier, inner, left, new)


def _sliced(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """In slices, or in rows."""
    given = [item for item in _dims(parts) if not indexing.is_whole(item[1])]
    return _put_at(applier, value, given, new)


def _put_at(
    applier: Applier, value: Op, given: Sequence[tuple[int, Op]], new: Op
) -> Op:
    """In a slice or a row of each dim that is given, from the left."""
    program, none = applier.program, applier.program.const(None)
    if not given or any(_is_new_dim(part) for _, part in given):
        raise UnsupportedError(CHANGES)
    (dim, part), *others = given
    if others:  # `h[:, 0, 1:] = y` changes a part of `h[:, 0]`, and that is put back
        new = _within(applier, value, given, new)
    if part.rule != "range":
        row = indexing.selected(applier, value, dim, part)
        at = program.const(dim)
        return applier.named("select_scatter", value, _as(applier, new, row), at, part)
    start, end, step = part.args
    src = _as(applier, new, indexing.sliced(applier, value, dim, part.args))
    if all(_is_counted(item) for item in part.args):
        by = program.const(1) if literal(step) is None else step
        at = program.const(dim)
        return applier.named("slice_scatter", value, src, at, start, end, by)
    if literal(step) is not None:
        raise UnsupportedError(CHANGES)
    if literal(start) is not None and literal(end) is not None:
        at = program.const(dim)
        bounds = (_counted(applier, value, dim, item) for item in (start, end))
        return applier.named("slice_scatter", value, src, at, *bounds, program.const(1))
    if literal(start) is None:
        rest = indexing.sliced(applier, value, dim, (end, none, none))
        pieces = [src, rest]
    else:
        rest = indexing.sliced(applier, value, dim, (none, start, none))
        pieces = [rest, src]
    return applier.named("cat", program.op("list", pieces), program.const(dim))


def _is_counted(bound: Op) -> bool:
    """Whether a bound is none, or counted from the start, as `slice_scatter` wants it."""
    value = literal(bound)
    return value is None or isinstance(value, int) and value >= 0


def _counted(applier: Applier, value: Op, dim: int, bound: Op) -> Op:
    """A bound counted from the start: under `vmap` `slice_scatter` takes no other."""
    number = literal(bound)
    if not isinstance(number, int):
        raise UnsupportedError(CHANGES)
    if number >= 0:
        return bound
    size = size_at(applier.program, value.shape, dim)
    return difference(applier.program, size, applier.program.const(-number))


def _dims(parts: Sequence[Op]) -> list[tuple[int, Op]]:
    """Each part with its dim, behind an ellipsis counted from the end."""
    ellipsis = [at for at, part in enumerate(parts) if indexing.is_ellipsis(part)]
    split = ellipsis[0] if ellipsis else len(parts)
    behind = parts[split + 1 :]
    return [
        *enumerate(parts[:split]),
        *((at - len(behind), part) for at, part in enumerate(behind)),
    ]


def _as(applier: Applier, new: Op, like: Op) -> Op:
    """What is put, in the shape of the place."""
    if not new.is_tensor:
        return applier.named("full_like", like, new)
    return new if new.shape == like.shape else applier.named("expand_as", new, like)
