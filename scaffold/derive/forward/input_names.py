"""Restoring the user's `x = x.sigmoid()`, a local named like an input, in the forward.

In: the final forward, whose locals have names of their own (`new_x = x.sigmoid()`), and the contents of ctx. Out: the
same forward with `x = x.sigmoid()`. Invariant: same values; a name stays the input's for as long as the input is
read, also by the lines that fill ctx.

The locals got names of their own at first (`forward/body.py`), since it was not yet known how long the input is read.
Words: ctx is filled when forward puts on it the tensors and values for the backward. A name is late if it must keep
its meaning to the end, as ctx is filled there; the old name is the input's, the new one the local's; an input is
given up once no line reads it any more.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.derivation import Maths
from scaffold.derive.forward.live_forward import ReturningForward
from scaffold.derive.forward.ssa_names import names_inside
from scaffold.derive.saving import Context
from scaffold.formula import (
    BUILTINS,
    Assign,
    If,
    Lines,
    Statement,
    ValueKinds,
    assignments,
    read_names,
    renaming,
    rewritten,
    written,
)
from scaffold.spec import OpSpec


def with_input_names(
    spec: OpSpec, maths: Maths, forward: ReturningForward, context: Context
) -> ReturningForward:
    """Rename `new_x` to the user's `x` if nothing reads the input `x` after `new_x` is assigned.

    A combined forward fills ctx itself: before its first line if it rebinds an input's name and the contents are
    known there, else at its end, where ctx's names must still be the inputs' (`_read_late`).
    """
    if maths.forward is None or forward.forward is None:
        return forward
    graph, statements = maths.graph, forward.forward
    tensors = {item.name for item in spec.tensors if not item.variadic}
    late = {*spec.dirty, *_read_late(spec, forward, context)}
    # The return, as a last statement without a target.
    end = Assign(graph.node("absent"), graph.node("tuple", "", forward.results))
    late |= names_inside((*statements, end))
    kinds = kinds_of_inputs(spec)
    kinds.after(statements)
    change = {
        new: old
        for new, old in maths.forward.hiding.items()
        if old in tensors and late.isdisjoint({new, old})
        # Otherwise a type checker would see another type than the parameter's.
        if _are_tensors(kinds, statements, new)
        if is_given_up((*statements, end), old, new)
    }
    rename = renaming(graph, change)
    lines = _without_copies(rewritten(graph, statements, rename))
    # None: a branch would be left without a line.
    if not change or lines is None:
        return forward
    results, extra = (
        tuple(graph.rewrite(value, rename) for value in values)
        for values in (forward.results, forward.extra)
    )
    return ReturningForward(lines, results, extra)


def _read_late(
    spec: OpSpec, forward: ReturningForward, context: Context
) -> Iterator[str]:
    """Yield the names read by the lines that fill ctx after the forward's last line: an input's name must still be the input's.

    In other styles, which fill ctx elsewhere, these are the saved locals, as forward returns them. In a combined
    forward also: outputs on ctx or marked non-differentiable; everything saved, if not inputs alone are; and names in
    the expressions of values on ctx, if they have to wait for the end.
    """
    yield from (x.origin for x in context.saved if x.source == "intermediate")
    if spec.style != "combined":
        return
    named = {item.origin for item in context.saved if item.source == "output"}
    named |= {item.output for item in context.kept if item.output is not None}
    for output, value in zip(spec.outputs, forward.results, strict=True):
        if output.name in named or not output.differentiable:
            yield from value.names()
    late = any(item.source != "input" for item in context.saved)
    if late:
        yield from (item.origin for item in context.saved)
    inner = written(*(forward.forward or ()))
    for item in context.kept:
        # The names in its text, without attributes: `x` of `x.shape[0]`.
        names = {*re.findall(r"(?<![.\w])[^\W\d]\w*", item.expression)}
        if late or item.output is not None or not inner.isdisjoint(names):
            yield from names


def _are_tensors(kinds: ValueKinds, statements: Lines, name: str) -> bool:
    """Return whether every assignment to a name gives it a tensor, never a number; False with a builtin, as `max(x, 1)` may be either.

    A number under a tensor parameter's name would upset a type checker. `kinds` are those after the last line: in
    `2.0 if x is None else x.sum()` the name may be a number.
    """
    values = [item.value for item in assignments(statements) if name in written(item)]
    builtin = any(
        part.kind == "call"
        and part.args[0].kind == "name"
        and part.args[0].label in BUILTINS
        for value in values
        for part in value.walk()
    )
    return (
        not builtin
        and kinds.is_tensor(name)
        and all(kinds.of(value) in ("tensor", "group") for value in values)
    )


def is_given_up(statements: Lines, old: str, new: str) -> bool:
    """Return whether nothing reads or binds the old name once the new one is assigned, so it can have the old name.

    An else branch counts as after the body: in doubt the names stay apart.
    """
    begun = False
    for item in _flat(statements):
        if begun and (old in read_names(item) or old in written(item)):
            return False
        begun = begun or new in written(item)
    return begun


def _flat(statements: Lines) -> Iterator[Statement]:
    """Yield all statements in order, each `if` as its bare test followed by the statements of its branches.

    So "after a line" has one meaning for `is_given_up`.
    """
    for item in statements:
        if isinstance(item, If):
            yield replace(item, body=(), orelse=())
            yield from _flat((*item.body, *item.orelse))
        else:
            yield item


def _without_copies(statements: Lines) -> Lines | None:
    """Drop each `x = x` left over from renaming a branch's first line (`new_x = x`).

    Return None if an `if` body would be empty, a syntax error: then nothing is renamed.
    """
    done = list[Statement]()
    for item in statements:
        if isinstance(item, If):
            body, orelse = _without_copies(item.body), _without_copies(item.orelse)
            if not body or orelse is None:
                return None
            done.append(replace(item, body=body, orelse=orelse))
        # `x += x` is no copy.
        elif item.operator or item.target is not item.value:
            done.append(item)
    return tuple(done)
