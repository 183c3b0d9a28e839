"""Express mutation by out-of-place primitives: `h[mask] = y`, `h.clamp_(min=0)`, `torch.zeros_like(x).index_add_(0, index, y)`.

`h[mask] = y` -> `h = torch.where(mask, y, h)`: then each name means one value at each line, as the graph needs it. `statements` and
`expressions` call this.

In: calls and statements as written; for `h[parts] = y` the tensor, the parts of its index and the assigned value. Out: the call, or
the op, that makes a new tensor of the same value; expressions that must not get a second name. Invariant: of the names of a changed
tensor, at most the one it is changed by is read afterwards (`statements.checked`); an inexpressible change is refused:
`UnsupportedError` is raised.

Words: a view shares the memory of its base, another view or the tensor with a name; a tensor's holders are the names that share its
memory. `_` at the end of a method's name says that it changes its tensor.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import OfShape, Op, Operator, literal
from scaffold.derive.graph.static_values import UnsupportedError, difference, size_at
from scaffold.derive.lower import indexing
from scaffold.derive.rules.formula_words import in_shape
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import (
    UNKNOWN,
    Assign,
    Graph,
    Node,
    Statement,
    Trace,
    assignments,
    bound,
    changes_memory,
    read_names,
    same_memory,
    sharing,
    written,
    written_to,
)

# --- In-place calls: finding them, and their out-of-place form.

ABSENT = Graph().node("absent")


def made_anew(graph: Graph, node: Node) -> Node | None:
    """Return the out-of-place form of an in-place call: `h.mul_(y)` -> `h.mul(y)`; None for a call with `out=`, which has none."""
    if "out" in node.keywords:
        return None
    callee, *args = node.args
    callee = graph.node("attribute", callee.label.removesuffix("_"), callee.args)
    if "inplace" in node.keywords:
        # Arguments by keyword are the last ones, in the order of `keywords`.
        at = node.keywords.index("inplace") - len(node.keywords)
        del args[at]
    names = tuple(name for name in node.keywords if name != "inplace")
    return graph.node("call", "", (callee, *args), names)


SETS = {"zero_": 0, "fill_": 1, "copy_": 1}  # method -> its number of arguments


def set_value(graph: Graph, change: Node) -> Node | None:
    """Return the value a call fills a tensor with: 0 for `h.zero_()`, `y` for `h.copy_(y)`; None for other changes."""
    callee, *args = change.args
    # SETS has the number of arguments: `h.copy_(y, True)` is not known.
    if callee.label not in SETS or len(args) != SETS[callee.label] or change.keywords:
        return None
    return args[0] if args else graph.constant("0")


def changes_of_a_name(item: Assign) -> frozenset[Node]:
    """Return a statement's in-place calls if they change just one named tensor: both calls of `h.mul_(y).add_(1)`.

    Empty if there are none, or if the statement changes anything else.
    """
    # The change is the whole value; only in `h = h.add_(y) / 2`, which assigns h anew, it may stand inside.
    inside = item.target is _sole_name(item.value)
    last = next(filter(_changes, item.value.walk())) if inside else item.value
    calls, changed = _chain(last)
    # The chain has all changes of the statement.
    changes = _changed_under_names(item.value)
    fits = changed.kind == "name" and len(changes) == len(calls)
    fits = fits and item.target.kind in ("name", "absent") and not item.operator
    return frozenset(calls) if fits else frozenset()


def _chain(last: Node) -> tuple[tuple[Node, ...], Node]:
    """Return the in-place calls of a chain by its last one, and the tensor they change: of `h.mul_(y).add_(1)` both, and `h`."""
    calls, changed = list[Node](), last
    while inner := next(written_to(changed), None):
        calls.append(changed)
        changed = inner
    return tuple(calls), changed


class ChangedView(NamedTuple):
    """A change through a view, `torch.diagonal(c).add_(1).pow_(2)`, or of a named tensor inside an expression: `c.pow_(2).sum()`."""

    calls: frozenset[Node]  # the in-place calls
    value: Node  # the outermost of them
    views: tuple[Node, ...]  # the view, its base, and so on to the name


def changes_of_views(item: Assign) -> tuple[ChangedView, ...]:
    """Return a statement's changes to views of named tensors; () if it changes anything else.

    Each name may be changed once, in every call, and not be read outside the changed view: the order would matter.
    """
    if not changes_memory(item.value) or changes_of_a_name(item):
        return ()
    found = tuple(map(_changed_view, _outermost_changes(item.value)))
    views = [change for change in found if change is not None]
    names = {change.views[-1] for change in views}
    has_plain_target = item.target.kind in ("name", "absent") and not item.operator
    # Each change is one of a view, of another name than the rest.
    fits = has_plain_target and len(views) == len(found) == len(names)
    # All changes are in these chains; none is in an argument, `h.add_(k.mul_(2))`.
    calls = sum(len(change.calls) for change in views)
    fits = fits and len(_changed_under_names(item.value)) == calls
    # Nothing but the view reads the name, before or after its change.
    is_read_once = all(
        _count(item.value, change.views[-1])
        == _count(change.views[0], change.views[-1])
        for change in views
    )
    return tuple(views) if fits and is_read_once and not _may_not_run(item) else ()


def _may_not_run(item: Assign) -> bool:
    """Return whether a change is evaluated only in some calls, so its value is not known: `h.exp_() if flag else 0`."""
    return any(
        node.kind in ("conditional", "boolean") and any(map(_changes, node.walk()))
        for node in item.value.walk()
    )


def _outermost_changes(value: Node) -> Iterator[Node]:
    """Yield the in-place calls of an expression, but not those inside their own operands: of `h.mul_(y).add_(1)` the `add_`."""
    if _changes(value):
        yield value
        return
    for inner in value.args:
        yield from _outermost_changes(inner)


def _changed_view(value: Node) -> ChangedView | None:
    """Return the change made by an in-place call or a chain of them; None unless it goes to a name through nested views."""
    calls, changed = _chain(value)
    views = tuple(same_memory(changed))
    return ChangedView(frozenset(calls), value, views) if _are_nested(views) else None


def _are_nested(views: Sequence[Node]) -> bool:
    """Return whether each expression is a view of the next one only, and the last is a name: `h.t()[0]`, `h.t()`, `h`."""
    return views[-1].kind == "name" and all(
        set(same_memory(inner)) == {*views[at:]} for at, inner in enumerate(views)
    )


def _changes(node: Node) -> bool:
    """Return whether a node is an in-place call."""
    return node.kind == "call" and any(written_to(node))


def _sole_name(value: Node) -> Node | None:
    """Return the name whose tensor an expression changes, if nothing else in it reads the name: `h` of `h.add_(y) / 2`; else None.

    Then `h = h.add_(y) / 2` is `h = h.add(y) / 2`.
    """
    if not changes_memory(value):
        return None
    change = next(filter(_changes, value.walk()), None)
    _, changed = (None, None) if change is None else _chain(change)
    if changed is None or changed.kind != "name" or _count(value, changed) != 1:
        return None
    return changed


def _count(value: Node, name: Node) -> int:
    """Count a name's occurrences in an expression."""
    # Equal nodes are one object, so each place where it stands is counted by `is`.
    return sum(_count(arg, name) for arg in value.args) + (value is name)


@lru_cache(maxsize=1024)  # called for every line of a forward on each lowering
def _changed_under_names(value: Node) -> tuple[Node, ...]:
    """Return the expressions changed in place named, or views of something named: not `torch.exp(x)` in `torch.exp(x).add_(1)`."""
    changed = (item for node in value.walk() for item in written_to(node))
    return tuple(item for item in changed if sharing(item))


def ended(results: Iterable[Node]) -> list[Assign]:
    """Return the results as last statements without a target: one of them may change a tensor, `return h.pow_(2).sum()`."""
    return [Assign(ABSENT, value) for value in results]


def unsteady(lines: Sequence[Statement], end: int) -> frozenset[str]:
    """Return the names the backward must not read: their memory changes from line `end` on, or has several names.

    Several names are allowed if only the changed one is read after the change: `y = h.view(-1)`, `y.exp_()`, and no more `h`.

    Values computed from several names count too, such as `z = h.sin()`, though nothing changes their own memory: lines to repeat
    in the backward are found by the names they write, and `y.exp_()` writes no `h`. A change under a sole name shows in it.
    """
    trace, last, mixed = Trace(lines), set[str](), set[str]()
    for change in trace.changes:
        names = trace.holders_ever(change)
        # A change in a result (from line `end` on): no later line gives the name its new value.
        if change.position >= end:
            last |= names
        if len(change.holders) > 1:
            mixed |= names
    for item in lines if mixed else ():
        if read_names(item) & mixed:
            mixed |= written(item)
    return frozenset(last | mixed)


def written_over(statements: Iterable[Statement], results: Iterable[Node]) -> set[Node]:
    """Return the expressions whose memory changes later.

    They get no name: it would mean the changed value.
    """
    statements, values = tuple(statements), list(results)
    trace = Trace((*statements, *ended(values)))
    names = frozenset().union(*map(trace.holders_ever, trace.changes))
    found = set[Node]()
    for item in assignments(statements):
        # `h += y` reads h, too.
        values += (item.value, item.target) if item.operator else (item.value,)
        # The value gets such a name, or is a view of what has one.
        if names & bound(item.target) or names & sharing(item.value):
            found.update(same_memory(item.value))
    # Nothing under a name changes: only expressions that change something themselves matter.
    if not names:
        values = list(filter(changes_memory, values))
    for node in (inner for value in values for inner in value.walk()):
        if node.kind != "name" and names & sharing(node):
            found.add(node)  # `h[1:]` in `h[1:] = h[1:] * y` is a view of `h`
        for changed in written_to(node):
            found.update(same_memory(changed))
    return found


# --- Assignments to a part of a tensor.

CHANGES = "it changes a tensor in place"


def put(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """Return `value` after `value[parts] = new`; raise `UnsupportedError` if there is no such primitive."""
    # `value[[0, 2]] = new`: a list picks several rows, and is no tensor for `index_put`.
    if not _keeps_kind(value, new) or any(part.rule == "list" for part in parts):
        raise UnsupportedError(CHANGES)
    if any(part.is_tensor for part in parts):
        done = _put_indexed(applier, value, parts, new)
    else:
        done = _put_sliced(applier, value, parts, new)
    return applier.program.shaped(done, value.shape)


def put_view(make: Maker, value: Op, view: Op, new: Op) -> Op:
    """Return `value` after an in-place change has set its `view` to `new`; raise `UnsupportedError` for a view without such a rule.

    The gradient of a view places its argument at the view's elements, among zeros; the other elements of `value` replace the zeros.
    """
    program, table = make.program, make.applier.table
    rule = table.of_op(view.rule)
    has_gradient = rule is not None and view.facts.is_view and "x" in rule.formulas
    if rule is None or not has_gradient or not _is_real(value):
        raise UnsupportedError(CHANGES)
    args = rule.by_parameter(view.args)
    if args.get("x") is not value:
        raise UnsupportedError(CHANGES)
    grad = program.shaped(_as(make.applier, new, view), view.shape)
    env = {**args, "grad": grad, "result": view}
    formula = table.gradients(rule, "x")[0]
    placed = FormulaEvaluator(make, env, table.home(rule)).value(formula)
    return program.shaped(_replace_zeros(make, placed, grad, value), value.shape)


def _replace_zeros(make: Maker, placed: Op, new: Op, value: Op) -> Op:
    """Return `placed` with the elements of `value` in the place of its zeros.

    `placed` has `new` at the elements of a view, and zeros elsewhere. Raise `UnsupportedError` if its form does not show the zeros.
    """
    if placed is new:
        return new
    first, *others = placed.args
    if placed.rule == "reshaped" and first is new:
        shape = make.program.op("shape", (), OfShape(value.shape))
        return in_shape(make, new, shape)
    # `new.t()`, of a view of all elements: no zeros.
    if placed.facts.is_view and first is new:
        return placed
    # `zeros.select_scatter(new, ...)` and the like: `value` in the place of the zeros.
    if first is make.zeros(new, value.shape) and others[:1] == [new]:
        return make(placed.rule, value, *others)
    raise UnsupportedError(CHANGES)


def _is_real(op: Op) -> bool:
    return op.kind == "real"


def _keeps_kind(value: Op, new: Op) -> bool:
    """Return whether PyTorch stores the new value unchanged: 0 in `labels[mask] = 0`, not 0.5, which it truncates."""
    if _is_real(value):
        return not new.is_tensor or _is_real(new)
    if new.is_tensor:
        return new.kind == value.kind in ("int", "bool", "complex")
    number = literal(new)
    if value.kind == "int" and isinstance(number, float):
        return number.is_integer()
    # Of a complex tensor `get` gives None, the type of no number: refused.
    return type(number) is {"int": int, "bool": bool}.get(value.kind)


def _put_indexed(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """Return `value` after `value[mask] = new` or `value[index] = new`: a `where` for a mask of its shape, else `index_put`.

    Raise `UnsupportedError` for an index with a slice or a number beside a tensor.
    """
    if not all(part.is_tensor and part.kind in ("int", "bool") for part in parts):
        raise UnsupportedError(CHANGES)
    is_mask = len(parts) == 1 and parts[0].kind == "bool"
    # A mask of fewer dims picks whole rows, but `where` would broadcast it along the last dims.
    if is_mask and parts[0].shape == value.shape:
        everywhere = _for_all_elements(applier, new, parts[0])
        if everywhere is not None:
            return applier.named("where", parts[0], everywhere, value)
    if not new.is_tensor:  # `index_put` takes no number: a tensor without dims
        new = applier.named("new_full", value, applier.program.op("list", ()), new)
    return applier.named("index_put", value, applier.program.op("list", parts), new)


def _for_all_elements(applier: Applier, new: Op, mask: Op) -> Op | None:
    """Return a value for all of `y` from one for `y[mask]`: `y[mask].exp() * 2` -> `y.exp() * 2`.

    `torch.where(mask, all, value)` then needs no index. None if it reads anything but numbers and `y[mask]`.
    """
    if not new.is_tensor:
        return new
    if new.rule == "index" and new.args[1:] == (mask,):
        # A mask of fewer dims does not broadcast to all of `y`.
        return new.args[0] if new.args[0].shape == mask.shape else None
    rule = applier.table.of_op(new.rule)
    # Any other op, as a sum, would see the elements outside the mask.
    if rule is None or rule.category != "elementwise":
        return None
    args = [_for_all_elements(applier, arg, mask) for arg in new.args]
    if any(arg is None for arg in args):
        return None
    return applier.named(new.rule, *(arg for arg in args if arg is not None))


def _changed_part(
    applier: Applier, value: Op, given: Sequence[tuple[int, Op]], new: Op
) -> Op:
    """Return the part of `value` in the first dim of `given`, after the assignment in the other dims: `h[:, 0]` for `h[:, 0, 1:] = y`."""
    (dim, part), *others = given
    if part.rule == "range":
        inner = indexing.sliced(applier, value, dim, part.args)
        return _put_at(applier, inner, others, new)
    inner = indexing.selected(applier, value, dim, part)
    # The selected dim is gone: those behind it, counted from the left, are one less.
    renumbered = [(at - 1 if 0 <= dim < at else at, item) for at, item in others]
    return _put_at(applier, inner, renumbered, new)


def _put_sliced(applier: Applier, value: Op, parts: Sequence[Op], new: Op) -> Op:
    """Return `value` after an assignment to slices or rows of it, `value[0, 1:] = new`."""
    given = [item for item in _with_dims(parts) if not indexing.is_whole(item[1])]
    return _put_at(applier, value, given, new)


def _put_at(
    applier: Applier, value: Op, given: Sequence[tuple[int, Op]], new: Op
) -> Op:
    """Return `value` after an assignment to a slice or a row; `given` has a dim and a part of the index for each, from the left."""
    program = applier.program
    if not given or any(indexing.is_new_dim(part) for _, part in given):
        raise UnsupportedError(CHANGES)
    (dim, part), *others = given
    if others:  # `h[:, 0, 1:] = y` changes a part of `h[:, 0]`, then puts it back
        new = _changed_part(applier, value, given, new)
    if part.rule != "range":
        row = indexing.selected(applier, value, dim, part)
        at = program.const(dim)
        return applier.named("select_scatter", value, _as(applier, new, row), at, part)
    start, end, step = part.args
    src = _as(applier, new, indexing.sliced(applier, value, dim, part.args))
    at, one = program.const(dim), program.const(1)
    # `h[:n] = y`: `cat` joins two pieces, so one bound must be an end of the tensor.
    has_end = literal(step) is None and None in (literal(start), literal(end))
    # PyTorch's slice_scatter has no derivative for complex numbers.
    if value.kind == "complex" and has_end:
        return _joined_at(applier, value, dim, part, src)
    if _is_counted(start) and _is_counted(end):  # a step is one or more
        by = one if literal(step) is None else step
        return applier.named("slice_scatter", value, src, at, start, end, by)
    if literal(step) is not None:
        raise UnsupportedError(CHANGES)
    has_bounds = literal(start) is not UNKNOWN and literal(end) is not None
    if has_bounds and end.data != Operator("unary", "-"):  # not `x[:-n]`
        bounds = (_from_start(applier, value, dim, item) for item in (start, end))
        return applier.named("slice_scatter", value, src, at, *bounds, one)
    if not has_end:
        raise UnsupportedError(CHANGES)
    return _joined_at(applier, value, dim, part, src)


def _joined_at(applier: Applier, value: Op, dim: int, part: Op, src: Op) -> Op:
    """Return `value` with `src` in the place of `part`, a slice from its start or up to its end: the two pieces joined by `cat`."""
    program, none = applier.program, applier.program.const(None)
    start, end, _ = part.args
    if literal(start) is None:
        pieces = [src, indexing.sliced(applier, value, dim, (end, none, none))]
    else:
        pieces = [indexing.sliced(applier, value, dim, (none, start, none)), src]
    return applier.named("cat", program.op("list", pieces), program.const(dim))


def _is_counted(bound: Op) -> bool:
    """Return whether a bound is None or a nonnegative number, as `slice_scatter` needs under `vmap`."""
    value = literal(bound)
    return value is None or isinstance(value, int) and value >= 0


def _from_start(applier: Applier, value: Op, dim: int, bound: Op) -> Op:
    """Return a negative bound as counted from the start, `size - 2` for -2: `slice_scatter` needs it under `vmap`.

    Any other bound is returned unchanged.
    """
    number = literal(bound)
    if not isinstance(number, int) or number >= 0:
        return bound
    size = size_at(applier.program, value.shape, dim)
    return difference(applier.program, size, applier.program.const(-number))


def _with_dims(parts: Sequence[Op]) -> list[tuple[int, Op]]:
    """Return each part of an index with its dim; dims behind an ellipsis are counted from the end: `x[0, ..., 1]` -> 0 and -1."""
    ellipsis = [at for at, part in enumerate(parts) if indexing.is_ellipsis(part)]
    split = ellipsis[0] if ellipsis else len(parts)
    behind = parts[split + 1 :]
    return [
        *enumerate(parts[:split]),
        *((at - len(behind), part) for at, part in enumerate(behind)),
    ]


def _as(applier: Applier, new: Op, like: Op) -> Op:
    """Return the assigned value as a tensor of the shape of `like`, the place it is assigned to."""
    if not new.is_tensor:
        return applier.named("full_like", like, new)
    return new if new.shape == like.shape else applier.named("expand_as", new, like)
