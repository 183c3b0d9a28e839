"""Name collisions: renaming, so code the user wrote in two places fits into one body.

In: statements and a name. Out: the same statements under another name. Invariant: every read means the same value as
before. The places where code meets choose the names: `forward/body.py` for locals of the forward,
`stated_gradients.py` for those of stated gradients. An outer name is one that means a value outside these statements:
an input, an import.
"""

import builtins
import keyword
from collections.abc import Collection, Iterable
from dataclasses import replace

from scaffold.formula import (
    BUILTINS,
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    expressions,
    read_names,
    renaming,
    rewritten,
    surely_written,
    written,
)
from scaffold.formula.names import fresh

RESERVED = frozenset({*dir(builtins), *keyword.kwlist})
# Builtins called by generated code: no local of a formula may hide them.
CALLED = frozenset({"any", "all", "enumerate", "len", "max", "tuple", "zip"})


def rebound(
    graph: Graph,
    statements: Lines,
    name: str,
    new: str,
    read_after: frozenset[str] | None = None,
) -> Lines:
    """Write `new` for a name from its first assignment on, so the name keeps its outer value.

    `y = x + 1`, `x = x * y` -> `y = x + 1`, `new_x = x * y`. Where that assignment may not happen (in one branch, to
    some elements), `new = name` stands before it; in a branch alone, if no other code reads the name: `read_after`
    has the names read after the statements, None if unknown.
    """
    first = next(
        (k for k, item in enumerate(statements) if name in written(item)), None
    )
    if first is None:
        return statements
    change = renaming(graph, {name: new})
    before, head, rest = statements[:first], statements[first], statements[first + 1 :]
    after = rewritten(graph, rest, change)
    if _rebinds(head, name):
        assert isinstance(head, Assign)
        begun = replace(head, target=graph.rewrite(head.target, change))
        return (*before, begun, *after)
    # Nothing but the branches reads or assigns it: each may have a value of its own.
    used = read_names(*rest) | written(*rest)
    is_dead = read_after is not None and name not in read_after | used
    start = Assign(graph.name(new), graph.name(name))  # it may stay, or be read first
    # Its test is to read the outer value: only the branches get the new name.
    tested = isinstance(head, If) and name in head.test.names()
    if isinstance(head, If) and (is_dead or tested or name in surely_written(head)):
        # Unless it is dead, lines behind the `if` may read it: unknown in a branch.
        inner = read_after if is_dead else None
        body, orelse = (
            (
                rebound(graph, branch, name, new, inner)
                if is_dead or name in surely_written(*branch)
                else (start, *rewritten(graph, branch, change))
            )
            for branch in (head.body, head.orelse)
        )
        return (*before, replace(head, body=body, orelse=orelse), *after)
    return (*before, start, *rewritten(graph, (head,), change), *after)


def renamed_local(graph: Graph, statements: Lines, name: str, new: str) -> Lines:
    """Rename a local in statements, wherever it is read or assigned."""
    return rewritten(graph, statements, renaming(graph, {name: new}))


def apart_from(
    graph: Graph,
    statements: Lines,
    outer: Iterable[str],
    taken: Collection[str],
    read_after: frozenset[str] | None = None,
) -> tuple[Lines, dict[str, str]]:
    """Rename names of `outer` assigned in statements to `new_x`; return also a map from each to its new name.

    So an input, say, keeps its value for other code. A new name is none of `taken`; `read_after` are the names the
    results read (None: unknown).
    """
    used, renamed = set(taken), dict[str, str]()
    for name in sorted(set(outer)):
        if any(name in written(item) for item in statements):
            renamed[name] = fresh(f"new_{name}", used)
            used.add(renamed[name])
            statements = rebound(graph, statements, name, renamed[name], read_after)
    return statements, renamed


def hidden_builtins(statements: Iterable[Statement], *results: Node) -> frozenset[str]:
    """Return the builtins a statement assigns (`max = ...`) and a call needs, in the statements or in the code around them.

    Such a local has to be renamed. `results` are further expressions with such calls.
    """
    items = tuple(statements)
    called = {
        inner.args[0].label
        for node in (*results, *expressions(*items))
        for inner in node.walk()
        if inner.kind == "call" and inner.args[0].kind == "name"
    }
    names = written(*items)
    return names & ((BUILTINS & called) | CALLED)


def outer_renamed(graph: Graph, statements: Lines, name: str, new: str) -> Lines:
    """Rename reads of an outer name, up to its first assignment, to `new`.

    From there on it is a local, another value. In an `if`, each branch has a first assignment of its own.
    """
    change = renaming(graph, {name: new})
    done: list[Statement] = []
    for position, item in enumerate(statements):
        if name not in written(item):
            done += rewritten(graph, (item,), change)
            continue
        if isinstance(item, If):
            body = outer_renamed(graph, item.body, name, new)
            orelse = outer_renamed(graph, item.orelse, name, new)
            done.append(
                If(graph.rewrite(item.test, change), body, orelse, item.comments)
            )
        else:
            done.append(replace(item, value=graph.rewrite(item.value, change)))
        return (*done, *statements[position + 1 :])
    return tuple(done)


def _rebinds(item: Statement, name: str) -> bool:
    """Return whether a statement binds the name to another value, rather than changing its tensor: `x = ...`, not `x += ...`."""
    if isinstance(item, If) or item.operator or item.target.kind == "subscript":
        return False
    # `x, y[0] = f(z)` changes the tensor `y`.
    return name in item.target.names() and all(
        inner.kind != "subscript" for inner in item.target.walk()
    )
