"""The gradient formulas of an op as one program.

In: a formula for each input. Out: statements that assign `grad_<input>`. Invariant: each formula computes what it computes
alone; a line that two of them have in common stands once, if it is the same value in both.
"""

from collections.abc import Iterable

from scaffold.derive.memory import Trace
from scaffold.derive.names import apart, fresh
from scaffold.derive.program import read_names
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Statement,
    renaming,
    sharing,
    written,
)

Lines = tuple[Statement, ...]


def join(
    graph: Graph, formulas: Iterable[tuple[str, Formula]], outer: frozenset[str]
) -> Lines:
    """One program of all formulas; none of them assigns an outer name or a local of another."""
    program: list[Statement] = []
    used = set(outer)
    for name, formula in formulas:
        body = _with_result(graph, name, formula)
        shared = _shared(program, body)
        common = written(*shared)
        for local in sorted(written(*body) - common - {f"grad_{name}"}):
            if local in used:
                new = fresh(f"{name}_{local}", used | written(*body))
                body = apart(graph, body, local, new)
                used.add(new)
            used.add(local)
        program += [item for item in body if item not in shared]
    return tuple(program)


def _with_result(graph: Graph, name: str, formula: Formula) -> Lines:
    """The statements of a formula and the assignment of its gradient."""
    target = graph.name(f"grad_{name}")
    assert formula.result is not None
    if formula.result is target:
        return formula.statements
    statements, result = formula.statements, formula.result
    if target.label in written(*statements):  # a local of that name, but not the result
        new = f"{name}_{target.label}"
        statements = apart(graph, statements, target.label, new)
        result = graph.rewrite(result, renaming(graph, target.label, new))
    return (*statements, Assign(target, result, "", formula.comments))


def _shared(program: list[Statement], body: Lines) -> Lines:
    """The lines of a formula that the program has, with the same values of all that they read."""
    if Trace((*program, *body), sharing).changes:
        return ()  # a line may change what another one made
    shared: list[Statement] = []
    own, theirs = written(*body), written(*program)
    for item in body[:-1]:
        known = written(*shared)
        if isinstance(item, If) or item not in program:
            continue
        once = all(
            _count(name, program) == _count(name, body) == 1 for name in written(item)
        )
        if once and not read_names(item) & (own | theirs) - known:
            shared.append(item)
    return tuple(shared)


def _count(name: str, statements: Iterable[Statement]) -> int:
    return sum(name in written(item) for item in statements)
