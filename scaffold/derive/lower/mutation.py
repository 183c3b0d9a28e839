"""Changes in place of what the forward itself made: `torch.zeros_like(x).index_add_(0, index, y)`, `h.clamp_(min=0)`.

In: calls and statements as they are written. Out: the call that makes a new tensor of the same value; what must not get a
second name. Invariant: a tensor that changes has one name, or none, before and after.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from scaffold.derive.aliasing import Trace
from scaffold.derive.metadata import reads
from scaffold.formula import (
    Assign,
    Graph,
    Node,
    Statement,
    assignments,
    bound,
    expressions,
    same_memory,
    sharing,
    written,
    written_to,
)

ABSENT = Graph().node("absent")


def made_anew(graph: Graph, node: Node) -> Node | None:
    """A call that changes its tensor, as the one that makes a new one of the same value."""
    if "out" in node.keywords:
        return None
    callee, *args = node.args
    callee = graph.node("attribute", callee.label.removesuffix("_"), callee.args)
    if "inplace" in node.keywords:
        at = node.keywords.index("inplace") - len(node.keywords)
        del args[at]
    names = tuple(name for name in node.keywords if name != "inplace")
    return graph.node("call", "", (callee, *args), names)


def changes_of_a_name(item: Assign) -> frozenset[Node]:
    """The calls by which a statement changes one name's tensor and nothing else: `h.mul_(y).add_(1)`."""
    node = item.value if item.target is _sole_name(item.value) else None
    node = next(filter(_changes, node.walk()), None) if node else item.value
    found = list[Node]()
    while node and (changed := next(written_to(node), None)):
        found.append(node)
        node = changed
    several = [*_changed_under_names(item.value)]
    fits = node is not None and node.kind == "name" and len(several) == len(found)
    fits = fits and item.target.kind in ("name", "absent") and not item.operator
    return frozenset(found) if fits else frozenset()


class ChangedView(NamedTuple):
    """What a statement changes through a view: `torch.diagonal(c).add_(1).pow_(2)`, or under its name: `c.pow_(2).sum()`."""

    calls: frozenset[Node]  # that change it
    value: Node  # the last of them
    views: tuple[Node, ...]  # the view, what it is a view of, and so on to the name


def changes_of_views(item: Assign) -> tuple[ChangedView, ...]:
    """The changes by which a statement changes views of tensors that have a name, each of another one, and nothing else."""
    if changes_of_a_name(item):
        return ()
    found = tuple(map(_changed_view, _outermost_changes(item.value)))
    views = [change for change in found if change is not None]
    calls = sum(len(change.calls) for change in views)
    several = [*_changed_under_names(item.value)]
    roots = {change.views[-1] for change in views}
    plain = item.target.kind in ("name", "absent") and not item.operator
    fits = plain and len(views) == len(found) == len(roots)
    read_before = all(  # nothing else reads the name, before or after its change
        _count(item.value, change.views[-1])
        == _count(change.views[0], change.views[-1])
        for change in views
    )
    known = fits and read_before and len(several) == calls and not _may_not_run(item)
    return tuple(views) if known else ()


def _may_not_run(item: Assign) -> bool:
    """Whether a change stands in a part that is not always computed: `h.exp_() if flag else 0`."""
    return any(
        node.kind in ("conditional", "boolean") and any(map(_changes, node.walk()))
        for node in item.value.walk()
    )


def _outermost_changes(value: Node) -> Iterator[Node]:
    if _changes(value):
        yield value
        return
    for inner in value.args:
        yield from _outermost_changes(inner)


def _changed_view(value: Node) -> ChangedView | None:
    """The change that a call in place, or a chain of them, makes to a view."""
    calls, node = list[Node](), value
    while changed := next(written_to(node), None):
        calls.append(node)
        node = changed
    views = tuple(same_memory(node))
    return ChangedView(frozenset(calls), value, views) if _are_nested(views) else None


def _are_nested(views: Sequence[Node]) -> bool:
    """Whether each is a view of the next one, and the last a name."""
    return views[-1].kind == "name" and all(
        set(same_memory(inner)) == {*views[at:]} for at, inner in enumerate(views)
    )


def _changes(node: Node) -> bool:
    return any(written_to(node))


def _sole_name(value: Node) -> Node | None:
    """The name whose tensor an expression changes, if it stands there once: of `h.add_(y) / 2` it is `h`."""
    inner = next(filter(_changes, value.walk()), None)
    while inner is not None and (changed := next(written_to(inner), None)):
        inner = changed
    if inner is None or inner.kind != "name" or _count(value, inner) != 1:
        return None
    return inner


def _count(value: Node, name: Node) -> int:
    """How often a name stands in an expression."""
    return sum(_count(arg, name) for arg in value.args) + (value is name)


def changes_names(item: Assign) -> bool:
    """Whether a statement changes the tensor of a name by a call."""
    return any(_changed_under_names(item.value))


@lru_cache(maxsize=1024)  # asked of every line of a forward each time it is lowered
def _changed_under_names(value: Node) -> tuple[Node, ...]:
    changed = (item for node in value.walk() for item in written_to(node))
    return tuple(item for item in changed if sharing(item))


def ended(results: Iterable[Node]) -> list[Assign]:
    """The results as the last statements, since one may change a tensor: `return h.pow_(2).sum()`."""
    return [Assign(ABSENT, value) for value in results]


def data_read(lines: Iterable[Statement]) -> frozenset[str]:
    """The names whose data is read, and not the shape alone."""
    return frozenset(
        read.name
        for item in lines
        for node in expressions(item)
        for read in reads(node)
        if not read.facets
    )


def unsteady(lines: Sequence[Statement], end: int) -> frozenset[str]:
    """The names that the backward must not read: of memory that changes from line `end` on, or under several names.

    Nor, of the latter, what is computed of it: the order of these lines does not show in the names that they read.
    """
    trace, last, mixed = Trace(lines, sharing), set[str](), set[str]()
    for change in trace.changes:
        names = trace.holders_ever(change)
        if change.position >= end:
            last |= names
        if len(change.holders) > 1:
            mixed |= names
    for item in lines if mixed else ():
        if _all_read(item) & mixed:
            mixed |= written(item)
    return frozenset(last | mixed)


def _all_read(item: Statement) -> frozenset[str]:
    """The names that a statement reads, be it for their shape alone."""
    return frozenset(read.name for node in expressions(item) for read in reads(node))


def written_over(statements: Iterable[Statement], results: Iterable[Node]) -> set[Node]:
    """The expressions whose memory changes later: a name for one would name what it was changed into."""
    statements, values = tuple(statements), list(results)
    trace = Trace((*statements, *ended(values)), sharing)
    names = frozenset().union(*map(trace.holders_ever, trace.changes))
    found = set[Node]()
    for item in assignments(statements):
        values += (item.value, item.target) if item.operator else (item.value,)
        if names & bound(item.target) or names & sharing(item.value):
            found.update(same_memory(item.value))
    for node in (inner for value in values for inner in value.walk()):
        if node.kind != "name" and names & sharing(node):
            found.add(node)  # `h[1:]` in `h[1:] = h[1:] * y` is a view of what changes
        for changed in written_to(node):
            found.update(same_memory(changed))
    return found
