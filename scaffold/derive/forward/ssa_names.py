"""Single-assignment names: straight-line statements in which every value has a name of its own.

In: statements that reuse names (`h = x * 2`, `h = h + y`). Out: the same with `first_h` for the value of `h` before
its last assignment; for a backward, the same with `h` for both again, if their live ranges do not overlap. Invariant:
the same values; the last value of a name keeps that name.

Why: a gradient may read the first value of a local assigned twice, so the derivation wants a name for each; at the
end the generated code gets the user's names back where that is safe. Words: a version is one of the values of a name
that is assigned several times; `origin` maps a new name to the user's; `taken` names are in use elsewhere. A name
`given` has a value before the first line. A name is kept if it is not to be changed back; a gradient `begun` by a
term is a sum with that term as its first. The live range of a value leads from the line that assigns it to the last
one that reads it. `grad_x_via_y` is the part of `grad_x` that comes through y.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeGuard

from scaffold.derive.derivation import LINE, METHOD, STEP, Block, Maths
from scaffold.derive.forward.body import grad_name, gradient_of_part
from scaffold.derive.name_collisions import rebound
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Statement,
    emit,
    nodes,
    read_names,
    renaming,
    rewritten,
    surely_written,
    written,
)
from scaffold.formula.names import fresh, take
from scaffold.primitives.calls import facts_of_call
from scaffold.spec import OpSpec

WIDTH = (
    LINE - METHOD - 2 * STEP
)  # width of a line below `with` and `if ctx.needs_input_grad[0]:`
SUMS = frozenset({"remaining_grad", "total_grad"})  # partial sums, to be added to
DISCARDED = "_"
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh")


def with_versions(
    graph: Graph, statements: Lines, names: Collection[str], taken: Collection[str]
) -> tuple[Lines, dict[str, str]]:
    """Give every value its own name; return the statements, and the user's name for each new one.

    `h = x * 2`, `h = h + y` -> `first_h = x * 2`, `h = first_h + y`. Only assignments in every case start a new
    version: of a name that one branch alone assigns, the branch's value keeps the name. `names` are those to treat.
    """
    used = set(taken)
    statements, origin = _with_results_named(graph, statements, used)
    for name in sorted(names):
        places = [
            at for at, item in enumerate(statements) if name in surely_written(item)
        ]
        # A branch further up may have assigned it: that value counts as one more.
        before = bool(places) and name in written(*statements[: places[0]])
        if len(places) < 2 and not before:  # it has one value
            continue
        # The name in each stretch from one assignment to the next; the first is before any of them.
        stretches = [name]
        for count, position in enumerate(places):
            # `h 0` for now: a space cannot stand in a name, so these clash with none.
            stretches.append(f"{name} {count}")
            rest = rebound(graph, statements[position:], stretches[-2], stretches[-1])
            statements = (*statements[:position], *rest)
        change = {stretches[-1]: name}  # the last value keeps the user's name
        # Without a value before, the first stretch, before any assignment, has none.
        earlier = stretches[:-1] if before else stretches[1:-1]
        # From the eighth on they are `earlier_h`, numbered by `fresh`.
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
    """Name discarded results: `values, indices = x.max(-1)` for `values, _`, because a gradient may read them.

    Return the statements, and `_` as the old name of each new one. Nothing is named if some line reads `_`: then it is
    a local.
    """
    origin, lines = dict[str, str](), list[Statement]()
    is_discarded = DISCARDED not in read_names(*statements)
    for item in statements:
        if is_discarded and isinstance(item, Assign) and item.target.kind == "tuple":
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
    """Return the primitive table's names for a statement's discarded results, by position: `_, i = x.max(0)` -> {0: "values"}.

    {} for a call without a primitive of as many results.
    """
    parts = item.target.args
    discarded = [k for k, part in enumerate(parts) if part.label == DISCARDED]
    if not discarded or item.value.kind != "call":
        return {}
    callee = item.value.args[0]
    for facts in facts_of_call(callee.label):
        # `x.max()` has one result, `x.max(0)` two: their number tells which call it is.
        if len(facts.results) == len(parts):
            return {at: facts.results[at] for at in discarded}
    return {}


def as_they_were(
    graph: Graph, statements: Lines, origin: dict[str, str], kept: Collection[str]
) -> Lines:
    """Restore the original names in the forward, except the `kept` ones: the backward reads these values by their new names."""
    change = {new: old for new, old in origin.items() if new not in kept}
    return _renamed(graph, statements, change)


def with_names_again(
    spec: OpSpec, maths: Maths, blocks: tuple[Block, ...]
) -> tuple[Block, ...]:
    """Restore the user's names in the backward, `h` for `first_h`, unless two values of one name would be live at once.

    `blocks` are groups of its lines. Names built from a new name, `grad_first_h`, follow it, and so do comments.
    """
    lines = tuple(line for block in blocks for line in block.statements)
    own = [item.name for item in (*spec.inputs, *spec.outputs)]
    taken = {*own, *(f"grad_{name}" for name in own)}
    taken.update(grad_name(spec, item.name) for item in spec.outputs)
    given = frozenset(item.name for item in spec.inputs)
    hiding = maths.forward.hiding if maths.forward else {}
    # A version of `new_x`, a local that hides the input x, may be called x as well.
    versions = [(new, hiding.get(old, old)) for new, old in maths.versions]
    known = [*maths.versions, *hiding.items(), *versions, *_first_terms(blocks, taken)]
    origin = [(new, old) for new, old in known if old != DISCARDED]
    names = under_one_name(maths.graph, lines, origin, taken, given)
    # A result named for a gradient (`_indices`), which no line reads after all.
    names |= {f"_{new}": old for new, old in maths.versions if old == DISCARDED}
    names |= _with_words(lines, [*versions, *hiding.items()], names, taken)
    if not names:
        return blocks
    change = renaming(maths.graph, names)

    def renewed(line: Statement) -> Statement:
        """Return a line with the user's names, in its comments too."""
        (found,) = rewritten(maths.graph, (line,), change)
        comments = (
            re.sub(r"\w+", lambda word: names.get(word[0], word[0]), comment)
            for comment in found.comments
        )
        return replace(found, comments=tuple(comments))

    return tuple(
        Block(block.serves, tuple(map(renewed, block.statements))) for block in blocks
    )


def _first_terms(
    blocks: Iterable[Block], taken: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield each partial gradient with the gradient it is the first term of, to give both one name.

    `grad_x_via_y = ...`, `grad_x = grad_x_via_y + ...` -> `grad_x = ...`, `grad_x = grad_x + ...`. A part that is the
    only one of its gradient gets the gradient's name too, if that is unused. The two must be in one block. `end` is
    the whole gradient, `first` its first term, `more` by how many columns the name of `end` is longer.
    """
    several = [block.statements for block in blocks]
    statements = tuple(item for lines in several for item in lines)
    names = written(*statements)
    ends = {part: end for part in sorted(names) if (end := gradient_of_part(part))}
    counts = Counter(ends.values())
    sole = {part: end for part, end in ends.items() if counts[end] == 1}
    added = _added(statements)
    for part, end in sole.items():
        if end not in {*names, *taken} and part not in added:
            yield part, end
    for lines in several:
        # A partial sum (`total_grad`) gets another name only where its line still fits.
        lengths = {
            item.target.label: len(f"{item.target.label} = {emit(item.value)}")
            for item in filter(_is_plain, lines)
        }
        for item in filter(_is_plain, lines):
            end, first = item.target.label, _first_term(item.value).label
            if first not in lengths:  # it has no line of its own in this block
                continue
            more = len(end) - len(first)
            # A longer name may make a line too long: then black breaks it.
            fits = more <= 0 or max(lengths[first], lengths[end]) + more <= WIDTH
            is_sum = first in SUMS and end.startswith("grad_")
            if sole.get(first) == end or is_sum and fits:
                yield first, end


def _is_plain(item: Statement) -> TypeGuard[Assign]:
    """Return whether a statement assigns to one name: `x = ...` or `x += ...`, not `a, b = ...` or `x[0] = ...`."""
    return isinstance(item, Assign) and item.target.kind == "name"


def _added(statements: Lines) -> set[str]:
    """Return the names that are terms of a sum, or are updated in place: `a + b`, `a.add_(b)`.

    They are partial sums already, and keep their own names.
    """
    found = (term for part in nodes(*statements) for term in _terms(part))
    return {term.label for term in found if term.kind == "name"}


def _first_term(value: Node) -> Node:
    """Return the first term of a sum, taken apart to the left: `a` of `a + b - c`, of `a.index_add(0, i, b)`, of `a.mul_(b)`."""
    while terms := _terms(value):
        value = terms[0]
    return value


def _terms(value: Node) -> tuple[Node, ...]:
    """Return the operands of a sum, of an adding method, or of a change in place, in their order; () for other values."""
    match value:
        case Node("binary", "+" | "-", both):
            return both
        case Node(
            "call", _, (Node("attribute", label, (first,)), *rest)
        ) if "add" in label or label.endswith("_"):
            return (first, *rest)
    return ()


def under_one_name(
    graph: Graph,
    statements: Lines,
    origin: Iterable[tuple[str, str]],
    taken: Collection[str],
    given: Collection[str],
) -> dict[str, str]:
    """Map names to the user's if one can serve for both: `scores` for `first_scores`, last read where `scores` is assigned.

    For straight-line statements; `origin` has pairs of a name and the user's. Their gradients (`grad_first_scores`)
    are tried likewise. A `taken` name without a value in the statements is not reused, unless its value is `given`
    before the first line; the gradient of a given value keeps its own name.
    """
    change, origin = dict[str, str](), [*origin]
    for new, old in origin:
        both = (new, old), (f"grad_{new}", f"grad_{old}")
        # `one` may become `two`, or what `two` has become before.
        for one, two in both[:1] if old in given else both:
            lines, two = _renamed(graph, statements, change), change.get(two, two)
            if one not in change and _are_apart(
                lines, one, two, two not in taken, two in given
            ):
                # `one` may be the user's name of other versions, which became `one` before: they
                # are renamed along, unless some of them kept names of their own.
                versions = {name for name, end in origin if end == one}
                if versions & {*written(*statements)} <= change.keys():
                    change |= {k: two for k, v in change.items() if v == one}
                change[one] = two
    return change


def _with_words(
    statements: Lines,
    origin: Collection[tuple[str, str]],
    change: Mapping[str, str],
    taken: Collection[str],
) -> dict[str, str]:
    """Map names built from a version's name to those built from the user's: `grad_times_first_q` -> `grad_times_q`.

    `origin` has the pairs (first_q, q), `change` the names mapped already. A name stays if the plain one is in use.
    """
    names = written(*statements)
    inside = names_inside(statements)
    used = {*taken, *names, *change.values(), *read_names(*statements), *inside}
    kept = {*change, *(new for new, _ in origin), *inside}
    found = dict[str, str]()
    for name in sorted(names - kept):
        plain = name
        # As a word of the name: between `_`, or at an end of it.
        for new, old in origin:
            plain = re.sub(rf"(?<![^_]){new}(?![^_])", old, plain)
        if plain not in used:
            found[name] = plain
            used.add(plain)
    return found


def _are_apart(statements: Lines, one: str, two: str, free: bool, given: bool) -> bool:
    """Return whether the live ranges of two names never overlap: then one name can serve for both.

    With `free`, `two` need not be assigned in the statements; with `given`, it has a value before them. False if a
    line copies one to the other: `x = x` would be left.
    """
    stretches = _stretches(statements, one, False)
    others = _stretches(statements, two, given)
    if not stretches or others is None or not (others or free):
        return False
    if {one, two} & names_inside(statements):
        return False
    if any(_is_same(item, one, two) for item in statements):
        return False  # would become `x = x`
    # A line may read the old value and assign the new one: `h = h + y`.
    return all(
        # `start == begun`: one line assigns both, `a, b = f(x)`.
        start != begun and (end <= begun or last <= start)
        for start, end in stretches
        for begun, last in others
    )


def _is_same(item: Statement, one: str, two: str) -> bool:
    """Return whether a line copies one name to the other: `h = first_h`."""
    if not isinstance(item, Assign) or item.operator or item.value.kind != "name":
        return False
    return {item.target.label, item.value.label} == {one, two}


def names_inside(statements: Lines) -> set[str]:
    """Return the names inside lambdas: a renamed one may clash with a parameter, so these keep their names."""
    lambdas = (part for part in nodes(*statements) if part.kind == "lambda")
    return {name for part in lambdas for name in part.names()}


def _stretches(
    statements: Lines, name: str, given: bool
) -> list[tuple[int, int]] | None:
    """Return the live ranges of a name's values, as (assigned, last read) positions; None if unknown.

    They are unknown if a branch assigns it, if it is read before it has a value, or if `h += 1` or `h[0] = 1` changes it,
    where no new value begins. The value `given` begins at -1.
    """
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
                continue  # changed in place, so it is read too
            if item.target.kind not in ("name", "tuple"):
                return None
            found.append((at, at))
    return found


def _renamed(graph: Graph, statements: Lines, names: Mapping[str, str]) -> Lines:
    return rewritten(graph, statements, renaming(graph, names)) if names else statements
