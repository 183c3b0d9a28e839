"""Straight-line statements in which every value has a name of its own.

In: statements that use names again (`h = x * 2`, `h = h + y`). Out: the same with `first_h` for what `h` was before its last
assignment; and of a backward, the same with `h` for both again, where the one is read no more when the other comes. Invariant: the
same values; what a name is at the end keeps that name.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from scaffold.derive.backward_program import read_names, surely_written
from scaffold.derive.derivation import LINE, METHOD, STEP, Block, Maths
from scaffold.derive.forward.body import grad_name
from scaffold.derive.name_collisions import apart
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Statement,
    emit,
    expressions,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.names import fresh, take
from scaffold.primitives.calls import facts_of_call
from scaffold.spec import OpSpec

WIDTH = (
    LINE - METHOD - 2 * STEP
)  # of a line below `with` and `if ctx.needs_input_grad[0]:`
SUMS = frozenset({"net_grad", "total_grad"})  # of terms, before others are added
DISCARDED = "_"
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def with_versions(
    graph: Graph, statements: Lines, names: Collection[str], taken: Collection[str]
) -> tuple[Lines, dict[str, str]]:
    """The statements with a name for every value, and what the user calls each that has a new one."""
    used = set(taken)
    statements, origin = _with_results_named(graph, statements, used)
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


def _with_results_named(
    graph: Graph, statements: Lines, used: set[str]
) -> tuple[Lines, dict[str, str]]:
    """The statements, and what is new in them: `values, indices = x.max(-1)` for `values, _`, since a gradient reads what the forward does not."""
    origin, lines = dict[str, str](), list[Statement]()
    discards = DISCARDED not in read_names(*statements)
    for item in statements:
        if discards and isinstance(item, Assign) and item.target.kind == "tuple":
            names = _names_of_results(item)
            parts = list(item.target.args)
            for at, name in names.items():
                new = take(used, name, sign="")
                origin[new], parts[at] = DISCARDED, graph.name(new)
            if names:
                item = replace(item, target=graph.node("tuple", "", tuple(parts)))
        lines.append(item)
    return tuple(lines), origin


def _names_of_results(item: Assign) -> dict[int, str]:
    """What the table calls the results that a statement discards, by their places."""
    parts = item.target.args
    discarded = [k for k, part in enumerate(parts) if part.label == DISCARDED]
    if not discarded or item.value.kind != "call":
        return {}
    callee = item.value.args[0]
    for facts in facts_of_call(callee.label):
        if len(facts.results) == len(parts):
            return {at: facts.results[at] for at in discarded}
    return {}


def as_they_were(
    graph: Graph, statements: Lines, origin: dict[str, str], kept: Collection[str]
) -> Lines:
    """Statements with the names that they had, but for those that are kept."""
    change = {new: old for new, old in origin.items() if new not in kept}
    return _renamed(graph, statements, change)


def with_names_again(
    spec: OpSpec, maths: Maths, blocks: tuple[Block, ...]
) -> tuple[Block, ...]:
    """The blocks with the user's name for what he has called the same, as far as that is clear."""
    lines = tuple(line for block in blocks for line in block.statements)
    own = [item.name for item in (*spec.inputs, *spec.outputs)]
    taken = {*own, *(f"grad_{name}" for name in own)}
    taken.update(grad_name(spec, item.name) for item in spec.outputs)
    given = frozenset(item.name for item in spec.inputs)
    hiding = maths.forward.hiding if maths.forward else {}
    versions = [(new, hiding.get(old, old)) for new, old in maths.versions]
    known = [*maths.versions, *hiding.items(), *versions, *_begun(blocks, taken)]
    origin = [(new, old) for new, old in known if old != DISCARDED]
    names = under_one_name(maths.graph, lines, origin, taken, given)
    names |= {f"_{new}": old for new, old in maths.versions if old == DISCARDED}
    names |= _with_words(lines, [*versions, *hiding.items()], names, taken)
    if not names:
        return blocks
    change = renaming(maths.graph, names)

    def renewed(line: Statement) -> Statement:
        (found,) = rewritten(maths.graph, (line,), change)
        comments = (
            re.sub(r"\w+", lambda word: names.get(word[0], word[0]), comment)
            for comment in found.comments
        )
        return replace(found, comments=tuple(comments))

    return tuple(
        Block(block.serves, tuple(map(renewed, block.statements))) for block in blocks
    )


def _begun(
    blocks: Iterable[Block], taken: Collection[str]
) -> Iterator[tuple[str, str]]:
    """What a gradient begins with, and that gradient: `grad_x_via_y`, for `grad_x = grad_x_via_y + ...` in one block, or where nothing is called `grad_x`."""
    several = [block.statements for block in blocks]
    statements = tuple(item for lines in several for item in lines)
    names = written(*statements)
    parts = [name for name in sorted(names) if "_via_" in name]
    ends = [name.partition("_via_")[0] for name in parts]
    added = _added(statements)
    for name, end in zip(parts, ends, strict=True):
        if ends.count(end) == 1 and end not in {*names, *taken} and name not in added:
            yield name, end
    for lines in several:
        lengths = {
            item.target.label: _length(item) for item in lines if _is_plain(item)
        }
        for item in filter(_is_plain, lines):
            end, first = item.target.label, _first_term(item.value).label
            more = len(end) - len(first)
            fits = max(lengths.get(first, WIDTH), lengths[end]) + more <= WIDTH
            begun = first.startswith(f"{end}_via_") and ends.count(end) == 1
            begun |= first in SUMS and end.startswith("grad_") and (more <= 0 or fits)
            if begun and first in lengths:
                yield first, end


def _is_plain(item: Statement) -> TypeGuard[Assign]:
    return isinstance(item, Assign) and item.target.kind == "name"


def _length(item: Assign) -> int:
    return len(f"{item.target.label} = {emit(item.value)}")


def _added(statements: Lines) -> set[str]:
    """The names that are terms of a sum, or are written over with one."""
    found = list[Node]()
    for part in (x for item in statements for y in expressions(item) for x in y.walk()):
        match part:
            case Node("binary", "+" | "-", both):
                found += both
            case Node(
                "call", _, (Node("attribute", label, (first,)), *rest)
            ) if "add" in label or label.endswith("_"):
                found += (first, *rest)
    return {term.label for term in found if term.kind == "name"}


def _first_term(value: Node) -> Node:
    """`a` of `a + b - c`, and of `a.index_add(0, i, b)` and `a.mul_(b)`."""
    while True:
        match value:
            case Node("binary", "+" | "-", (first, _)):
                value = first
            case Node(
                "call", _, (Node("attribute", label, (first,)), *_)
            ) if "add" in label or label.endswith("_"):
                value = first
            case _:
                return value


def under_one_name(
    graph: Graph,
    statements: Lines,
    origin: Iterable[tuple[str, str]],
    taken: Collection[str],
    given: Collection[str],
) -> dict[str, str]:
    """The names to be given up for the user's, in straight lines: `scores` for `first_scores`, which is read last where `scores` is assigned.

    A name that is taken is not given to what has none yet, unless it is of what is `given` before the first line; the gradient of that
    goes out under its own.
    """
    change, origin = dict[str, str](), [*origin]
    for new, old in origin:
        both = (new, old), (f"grad_{new}", f"grad_{old}")
        for one, two in both[:1] if old in given else both:
            lines, two = _renamed(graph, statements, change), change.get(two, two)
            if one not in change and _are_apart(
                lines, one, two, two not in taken, two in given
            ):
                same = {name for name, end in origin if end == one}
                if same & {*written(*statements)} <= change.keys():
                    # What has the one name by now gets the other with it, if that is all that is called so.
                    change |= {k: two for k, v in change.items() if v == one}
                change[one] = two
    return change


def _with_words(
    statements: Lines,
    origin: Collection[tuple[str, str]],
    change: Mapping[str, str],
    taken: Collection[str],
) -> dict[str, str]:
    """New names for those that are made of a version's: `grad_times_q` for `grad_times_first_q`."""
    names = written(*statements)
    inside = names_inside(statements)
    used = {*taken, *names, *change.values(), *read_names(*statements), *inside}
    kept = {*change, *(new for new, _ in origin), *inside}
    found = dict[str, str]()
    for name in sorted(names - kept):
        plain = name
        for new, old in origin:
            plain = re.sub(rf"(?<![^_]){new}(?![^_])", old, plain)
        if plain not in used:
            found[name] = plain
            used.add(plain)
    return found


def _are_apart(statements: Lines, one: str, two: str, free: bool, given: bool) -> bool:
    """Whether each time the one name is read last before the other is assigned."""
    stretches = _stretches(statements, one, False)
    others = _stretches(statements, two, given)
    if not stretches or others is None or not (others or free):
        return False
    if {one, two} & names_inside(statements):
        return False
    if any(_is_same(item, one, two) for item in statements):
        return False  # it would be `x = x`
    return all(
        start != begun and (end <= begun or last <= start)
        for start, end in stretches
        for begun, last in others
    )


def _is_same(item: Statement, one: str, two: str) -> bool:
    """Whether a line says that one name is what the other is."""
    if not isinstance(item, Assign) or item.operator or item.value.kind != "name":
        return False
    return {item.target.label, item.value.label} == {one, two}


def names_inside(statements: Lines) -> set[str]:
    """The names in functions that are written out: those of the one may be parameters of the other."""
    found = set[str]()
    nodes = {node for item in statements for node in expressions(item)}
    for part in (part for node in nodes for part in node.walk()):
        if part.kind == "lambda":
            found |= part.names()
    return found


def _stretches(
    statements: Lines, name: str, given: bool
) -> list[tuple[int, int]] | None:
    """From where to where each value of a name is there, by statements; None where that is not plain."""
    found: list[tuple[int, int]] = [(-1, -1)] if given else []
    for at, item in enumerate(statements):
        if name in read_names(item):
            if not found:
                return None
            found[-1] = (found[-1][0], at)
        if name in written(item):
            if not isinstance(item, Assign) or item.operator:
                return None
            if name not in item.target.names() and found:
                continue  # it is changed in place, and read
            if item.target.kind not in ("name", "tuple"):
                return None
            found.append((at, at))
    return found


def _renamed(graph: Graph, statements: Lines, names: Mapping[str, str]) -> Lines:
    return rewritten(graph, statements, renaming(graph, names)) if names else statements
