"""Dead code elimination: removal of unused statements, and of statements that only check.

In: the statements of a body and the names read after it. Out: the same without dead lines, or without `assert`,
`raise` and the tests before them. Invariant: a statement with an effect beyond its names (a change in place, a random
number, a call of the user's code) is not dead; a forward that returns at all returns the same without its checks.

Words: a name is live at a line if a later line, or the code after the body, reads its value. A line is dead if no
name it assigns is live after it.
"""

from collections.abc import Callable
from dataclasses import replace

from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    changed_in_place,
    expressions,
    is_check,
    opposite_of,
    raises,
    read_names,
    surely_written,
    written,
)
from scaffold.formula.names import fresh

# --- Checks.


def without_checks(graph: Graph, statements: Lines) -> Lines:
    """Return the statements without checks: without `assert`, `raise` and the tests that lead to one.

    For a backward that repeats lines of the forward: the checks have passed there.
    """
    return tuple(line for item in statements for line in _without_checks(graph, item))


def _without_checks(graph: Graph, item: Statement) -> Lines:
    """Return the lines left of a statement without checks: none of an `assert`; of an `if` with a branch to raise, the other branch.

    A call that returns took the other branch. An `if` left with an else branch alone gets the opposite test.
    """
    if not isinstance(item, If):
        return () if is_check(item) else (item,)
    body, orelse = without_checks(graph, item.body), without_checks(graph, item.orelse)
    if raises(item.body):
        return orelse
    if raises(item.orelse):
        return body
    if body:
        return (replace(item, body=body, orelse=orelse),)
    if orelse:
        test = opposite_of(graph, item.test)
        return (replace(item, test=test, body=orelse, orelse=()),)
    return ()


# --- Dead lines.


def without_dead(
    graph: Graph,
    statements: Lines,
    live: frozenset[str],
    has_effect: Callable[[Node], bool] = lambda node: False,
) -> Lines:
    """Return the statements needed for the `live` names, read afterwards, and those with an effect.

    `y = x * 2`, `z = x + 1`, live `z` -> `z = x + 1`. `has_effect` judges an expression: a random draw, say, stays,
    or later draws would give other numbers. By default none has an effect, as in the lines of a gradient.
    """
    return _Pruner(graph, statements, has_effect).block(statements, live)


class _Pruner:
    """A walk from the last statement back to the first, with the names read later."""

    def __init__(
        self, graph: Graph, statements: Lines, has_effect: Callable[[Node], bool]
    ) -> None:
        """Take all statements of a body, for their names; `has_effect` judges an expression."""
        self.graph, self.has_effect = graph, has_effect
        self.taken = read_names(*statements) | written(*statements)

    def block(self, statements: Lines, live: frozenset[str]) -> Lines:
        """Return the statements of a block without dead ones, from the last up; `live` are the names read after it."""
        kept: list[Statement] = []
        for item in reversed(statements):
            pruned = self._statement(item, live)
            if pruned is not None:
                kept.append(pruned)
                live = (live - surely_written(pruned)) | read_names(pruned)
        return tuple(reversed(kept))

    def _statement(self, item: Statement, live: frozenset[str]) -> Statement | None:
        """Return a statement without dead parts, or None if all of it is dead; `live` are the names read after it.

        A change in place, `x += 1` or `x[0] = 1`, is never dead: another name may hold that memory. Nor is a line
        without a target, a bare call or an `assert`.
        """
        if isinstance(item, If):
            return self._choice(item, live)
        if item.operator or item.target.kind in ("absent", "subscript"):
            return item
        if not written(item) & live and not self._acts(item):
            return None
        return self._marked(item, live)

    def _choice(self, item: If, live: frozenset[str]) -> If | None:
        """Return an `if` without dead lines, by the names `live` after it; None if nothing is left of both branches.

        With an else branch alone, the test is turned around: `if not t: ...`.
        """
        body, orelse = self.block(item.body, live), self.block(item.orelse, live)
        if body:
            return replace(item, body=body, orelse=orelse)
        if orelse:
            test = opposite_of(self.graph, item.test)
            return replace(item, test=test, body=orelse, orelse=())
        return None

    def _acts(self, item: Assign) -> bool:
        """Return whether an assignment does more than to bind names: an effect, or a change in place. It stays then, read or not."""
        return any(
            self.has_effect(node) or any(changed_in_place(node))
            for node in expressions(item)
        )

    def _marked(self, item: Assign, live: frozenset[str]) -> Assign:
        """Return an assignment with an underscore before unused names: `a, _b = f(x)` if only `a` is live, as linters want it."""

        def marked(part: Node) -> Node:
            """Return a target with an underscore before an unused name."""
            if part.kind == "starred":
                return self.graph.node("starred", "", (marked(part.args[0]),))
            unused = part.kind == "name" and part.label not in live
            if not unused or part.label.startswith("_"):
                return part
            return self.graph.name(fresh(f"_{part.label}", self.taken))

        if item.target.kind != "tuple":
            target = marked(item.target)
            return item if target is item.target else replace(item, target=target)
        target = self.graph.node("tuple", "", tuple(map(marked, item.target.args)))
        return replace(item, target=target)
