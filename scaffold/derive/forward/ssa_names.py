"""Straight-line statements in which every value has a name of its own.

In: statements that use names again (`h = x * 2`, `h = h + y`). Out: the same with `first_h` for what `h` was before its last
assignment. Invariant: the same values; what a name is at the end keeps that name.
"""

from collections.abc import Collection

from scaffold.derive.backward_program import surely_written
from scaffold.derive.name_collisions import apart, fresh
from scaffold.formula import Graph, Node, Statement, rewritten, written

Lines = tuple[Statement, ...]
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def with_versions(
    graph: Graph, statements: Lines, names: Collection[str], taken: Collection[str]
) -> tuple[Lines, dict[str, str]]:
    """The statements, and for each new name the one that it was."""
    used, origin = set(taken), dict[str, str]()
    for name in sorted(names):
        places = [
            k for k, item in enumerate(statements) if name in surely_written(item)
        ]
        before = places and name in written(*statements[: places[0]])
        if len(places) + bool(before) < 2:
            continue
        stretches = [name]  # the name in each stretch of statements
        for count, position in enumerate(places):
            stretches.append(f"{name} {count}")
            rest = apart(graph, statements[position:], stretches[-2], stretches[-1])
            statements = (*statements[:position], *rest)
        change = {stretches[-1]: name}
        earlier = stretches[:-1] if before else stretches[1:-1]
        for part, word in zip(
            earlier, (*ORDINALS, *["earlier"] * len(earlier)), strict=False
        ):
            change[part] = fresh(f"{word}_{name}", used)
            used.add(change[part])
            origin[change[part]] = name
        statements = _renamed(graph, statements, change)
    return statements, origin


def as_they_were(
    graph: Graph, statements: Lines, origin: dict[str, str], kept: Collection[str]
) -> Lines:
    """Statements with the names that they had, but for those that are kept."""
    change = {new: old for new, old in origin.items() if new not in kept}
    return _renamed(graph, statements, change)


def _renamed(graph: Graph, statements: Lines, names: dict[str, str]) -> Lines:
    def change(node: Node) -> Node | None:
        if node.kind == "name" and node.label in names:
            return graph.name(names[node.label])
        return None

    return rewritten(graph, statements, change)
