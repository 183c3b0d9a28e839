"""Uses and definitions: the names that statements read, for their data or their metadata, and the names they bind.

The passes of `derive` ask it what a value is needed for: a tensor read for its shape alone need not be saved for the backward,
and a line whose names nobody reads can go.

Words: a *facet* is one kind of metadata, `shape` or `dtype`; a *read* is one use of a name, for its data or for facets; a name is
*surely* written if it is assigned on every path; a read is *free* if nothing before it surely writes the name.

In: statements and expressions of a graph. Out: names. Invariant: a change in place counts as a definition, but no sure
one; a read of metadata (shape, dtype, device, presence) needs no data.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from scaffold.formula.aliasing import changed_in_place
from scaffold.formula.graph import (
    Assign,
    If,
    Lines,
    Node,
    Statement,
    assignments,
    bound,
    expressions,
)
from scaffold.formula.optionality import checked_for_none
from scaffold.primitives.calls import by_shape
from scaffold.primitives.python_values import METADATA, METADATA_METHODS

FORMS = frozenset({"attribute", "call", "compare"})  # nodes that read metadata


class Read(NamedTuple):
    """One read of a name: its facets (`shape`, `dtype`, `device`, `presence`), none for data."""

    name: str
    facets: tuple[str, ...] = ()
    element: bool = False  # of an element of a variadic input: `tensors[i].shape`


def nodes(*statements: Statement) -> Iterator[Node]:
    """Yield every node of every expression read by statements."""
    for expression in expressions(*statements):
        yield from expression.walk()


def written(*statements: Statement) -> frozenset[str]:
    """Return the names that some run of the statements may assign or change in place: in any branch."""
    if len(statements) == 1:  # the usual call
        return _written_by(statements[0])
    return frozenset().union(*map(_written_by, statements))


@lru_cache(maxsize=4096)  # the passes of a derivation call it for every statement
def _written_by(item: Statement) -> frozenset[str]:
    """Return the names that one statement assigns or changes in place, in its branches too."""
    if isinstance(item, If):
        return written(*item.body, *item.orelse)
    return bound(item.target).union(changed_in_place(item.value))


def names_bound_to(
    statements: Iterable[Statement],
    known: Iterable[str],
    holds: Callable[[Node, Collection[str]], bool],
) -> frozenset[str]:
    """Return the `known` names, and the names assigned a value for which `holds(value, names so far)` is true.

    So a property spreads from name to name, in one pass from the first assignment to the last.
    """
    found = set(known)
    for item in assignments(statements):
        if item.target.kind == "name" and holds(item.value, found):
            found |= bound(item.target)
    return frozenset(found)


def surely_written(*statements: Statement) -> frozenset[str]:
    """Return the names that statements assign whatever branch runs; a change in place, `x.mul_(y)`, assigns none.

    What a name held before is then no longer needed.
    """
    if len(statements) == 1:  # the usual call from liveness
        return _surely_written_by(statements[0])
    return frozenset().union(*map(_surely_written_by, statements))


@lru_cache(maxsize=4096)  # as above
def _surely_written_by(item: Statement) -> frozenset[str]:
    """Return the names a statement assigns on every path through it; a path into a raise does not count."""
    if isinstance(item, If):
        going_on = [part for part in (item.body, item.orelse) if not raises(part)]
        assigned = [surely_written(*part) for part in going_on]
        # Without a path that goes on, nothing after the `if` runs.
        return frozenset.intersection(*assigned) if assigned else frozenset()
    if item.operator or item.target.kind == "subscript":
        return frozenset()
    # `y = x.mul_(2)` assigns y, and only changes x.
    return written(item) - frozenset(changed_in_place(item.value))


def is_check(item: Statement) -> bool:
    """Return whether a statement is an `assert` or a `raise`."""
    return isinstance(item, Assign) and item.value.kind == "check"


def raises(statements: Iterable[Statement]) -> bool:
    """Return whether every path through the statements ends in a `raise`, so nothing after them runs."""
    for item in statements:
        if isinstance(item, If):
            if raises(item.body) and raises(item.orelse):
                return True
        elif item.value.kind == "check" and item.value.label == "raise":
            return True
    return False


def read_names(*statements: Statement) -> frozenset[str]:
    """Return the names read by statements, for their data or only their shape."""
    return frozenset().union(*map(_read_by, statements))


@lru_cache(maxsize=4096)  # liveness calls it for every statement and gradient
def _read_by(item: Statement) -> frozenset[str]:
    """Return the names that one statement reads, in its branches too."""
    return frozenset(read.name for node in expressions(item) for read in reads(node))


def data_read(*statements: Statement, elements: bool = False) -> frozenset[str]:
    """Return the names read for their elements, not only for a shape or a dtype.

    These must be there as tensors; of the others metadata is enough. With `elements` they include variadic inputs read as
    `tensors[i].shape`, since the tuple itself must be there for it.
    """
    return frozenset(
        read.name
        for node in expressions(*statements)
        for read in reads(node)
        if not read.facets or elements and read.element
    )


def free_names(statements: Lines) -> frozenset[str]:
    """Return the names read before the statements surely assign them: their values must come from outside."""
    return frozenset(read.name for read, _ in free_reads(statements))


def free_reads(statements: Lines) -> tuple[tuple[Read, int], ...]:
    """Return reads of names not surely assigned by an earlier statement, with the reading statement's position.

    These names need a value from outside. An assignment in one branch of an `if` alone is not sure.
    """
    assigned: frozenset[str] = frozenset()
    found = []
    for position, item in enumerate(statements):
        found += [(read, position) for read in _free(item, assigned)]
        assigned |= surely_written(item)
    return tuple(found)


def _free(statement: Statement, known: frozenset[str]) -> list[Read]:
    """Return the reads in a statement of names not `known`, and not surely assigned before them in the same branch.

    `known` are the names surely assigned above it.
    """
    read_here: Iterable[Node] = expressions(statement)
    branches: tuple[Lines, ...] = ()
    if isinstance(statement, If):
        read_here, branches = (statement.test,), (statement.body, statement.orelse)
    several = (read for node in read_here for read in reads(node))
    found = [read for read in several if read.name not in known]
    for branch in branches:
        inner = known
        for item in branch:
            found += _free(item, inner)
            inner |= surely_written(item)
    return found


@lru_cache(maxsize=8192)  # a cache, since the passes repeat this for each expression
def reads(node: Node) -> tuple[Read, ...]:
    """Return every read of a name in an expression: for `x * y.shape[0]` one of x for its data, one of y for its shape.

    A part that occurs twice is one node, and counts once.
    """
    found, seen, waiting = list[Read](), set[int](), [node]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        read = metadata_read(item)
        # Of its parts only those read for data are visited: the `x` of `x.shape` is none.
        if read is not None:
            found.append(read)
            waiting += _data_parts(item)
            continue
        if item.kind == "name":
            found.append(Read(item.label))
        waiting += item.args
    return tuple(found)


def metadata_read(node: Node) -> Read | None:
    """Return the metadata an expression reads, a `Read` of `x` with `shape` for `x.shape`; None for other expressions."""
    if node.kind not in FORMS:  # before patterns, since most nodes are none
        return None
    match node:
        case Node("attribute", label, (value,)) if label in METADATA:
            return _read_of(value, label)
        case Node("call", _, (Node("attribute", label, (value,)), *_)) if (
            label in METADATA_METHODS
        ):
            return _read_of(value, METADATA_METHODS[label])
        # `y.view_as(x)`, of whose x only the shape is read.
        case Node("call", _, (Node("attribute", label), value)) if by_shape(
            label, creates=False
        ):
            return _read_of(value, "shape")
        # `torch.zeros_like(x)`; given more, such as a dtype, it counts as a read of the data.
        case Node(
            "call", _, (Node("attribute", label, (Node("name", "torch"),)), value)
        ) if by_shape(label, creates=True):
            return _read_of(value, "shape", "dtype", "device")
        case Node("call", _, (Node("name", "len"), Node("name", name))):
            return Read(name, ("length",))
        case Node("compare") if (tested := checked_for_none(node)) is not None:
            return Read(tested[0], ("presence",))
    return None


def _read_of(value: Node, *facets: str) -> Read | None:
    """Return a read of these facets if the value is a name, or an element of one, `tensors[i]`; else None."""
    match value:
        case Node("name", name):
            return Read(name, facets)
        case Node("subscript", _, (Node("name", name), _)):
            return Read(name, facets, element=True)
    return None


def _data_parts(node: Node) -> tuple[Node, ...]:
    """Return the parts of a read of metadata that are read for their own data: the index `i` of `tensors[i].shape`.

    So are an argument, `d` of `x.size(d)`, and the receiver `y` of `y.view_as(x)`: only `x` is asked for its shape.
    """
    match node:
        case Node("attribute", _, (Node("subscript", _, (_, index)),)):
            return (index,)
        case Node(
            "call", _, (Node("attribute", label, (receiver,)), value)
        ) if by_shape(label, creates=False):
            # After the name in `tensors[i]` comes the index; a name alone has no args.
            return (receiver, *value.args[1:])
        case Node("call", _, (Node("attribute", label), value)) if by_shape(
            label, creates=True
        ):
            return value.args[1:]
        # `tensors[i].size(d)`
        case Node(
            "call",
            _,
            (Node("attribute", _, (Node("subscript", _, (_, index)),)), *rest),
        ):
            return (index, *rest)
        case Node("call", _, (Node("attribute"), *rest)):
            return tuple(rest)
    return ()
