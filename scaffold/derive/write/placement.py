"""Place the backward's lines in `if ctx.needs_input_grad[0]:` blocks, and under tests.

So a caller who wants one gradient pays for no other. `pipeline` calls this for the finished lines of every backward, derived or
the user's.

In: lines and the gradients they serve; statements and the tests they stand under. Out: `Block`s in order; statements with `if`s,
adjacent ones with the same test merged into one `if`. Invariant: no line moves before one it depends on, so every name has the same
value after them. `backward_program` says which gradients need a line; `render` writes the `if ctx.needs_input_grad[...]` of a block
itself.

Words: a line serves the inputs whose gradients need it; a block has lines that serve the same inputs; a choice is an `if`
statement, with two branches, `body` and `orelse`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from scaffold.derive.backward_program import Line
from scaffold.derive.derivation import Block, Maths
from scaffold.derive.saving import is_for_most
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    are_opposite,
    data_read,
    metadata_read,
    nodes,
    opposite_of,
    read_names,
    reads,
    written,
)
from scaffold.spec import OpSpec

# --- Blocks: lines grouped by the `needs_input_grad` branches that need them.


def blocks_of(maths: Maths, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """Group the lines in blocks by the inputs that need them; in derived backwards, also merge `if`s with one test.

    A backward of the user's keeps its `if`s as written.
    """
    blocks = place(lines)
    if not maths.derived:
        return blocks
    uses = Counter(
        node.label
        for node in nodes(*(line.statement for line in lines))
        if node.kind == "name"
    )
    return tuple(
        Block(
            block.serves,
            added_under_test(maths.graph, gathered(block.statements), uses),
        )
        for block in blocks
    )


def added_under_test(graph: Graph, lines: Lines, uses: Mapping[str, int]) -> Lines:
    """Write a term present in only one branch as `g = a`, then `g = g + b` under the test.

    Before: `part = a`, then `g = part + b` if the test holds, else `g = part`. `uses` counts the reads of each name: the two in
    these branches must be all of `part`, as it loses its line. In the pattern, `made` is `part`, `target` is `g`, and `total` is
    `part + b`.
    """
    found = list[Statement]()
    for line in lines:
        match line, found[-1:]:
            case (
                If(
                    test,
                    (*before, Assign(target, total, "", notes)),
                    (Assign(other, alone, "", ()),),
                    comments,
                ),
                [Assign(made, value, "", remarks)],
            ) if (
                alone is made and other is target and uses[made.label] == 2
            ):
                term = _added_to(graph, made, total, target)
                if made.kind == "name" and term is not None:
                    # The line before assigns `g`; the `if` keeps the longer branch.
                    found[-1] = Assign(target, value, "", remarks)
                    body = (*before, Assign(target, term, "", notes))
                    line = If(test, body, (), comments)
        found.append(line)
    return tuple(found)


def _added_to(graph: Graph, made: Node, total: Node, target: Node) -> Node | None:
    """Return `target + x` for the sum `made + x`, `total`, once the value of `made` is assigned to `target`; None for other totals.

    None also if `x` itself reads `made`, which is assigned no more.
    """
    match total:
        case Node("binary", "+" | "-" as sign, (one, two)):
            if one is made and made not in two.walk():
                return graph.node("binary", sign, (target, two))
            # Only a sum may be turned around; `x - part` is no `g + ...`.
            if sign == "+" and two is made and made not in one.walk():
                return graph.node("binary", sign, (target, one))
    return None


def unguarded_for_most(spec: OpSpec, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Move lines out of all tests if most of the gradients, and at least three, need them.

    An author tests `needs_input_grad` for one input or two, and for no `dtype = x.dtype`, if x is saved anyway. A line that serves
    all inputs gets no test, so it is said here to serve all.
    """
    all_inputs = frozenset(item.name for item in spec.differentiable)
    always_given = {x.name for x in spec.tensors if not (x.optional or x.variadic)}
    read_for = {name: _read_for(lines, name) for name in always_given}

    def serves(line: Line) -> frozenset[str]:
        """Return the inputs to guard a line by: all, to put no test around it; else those it serves."""
        gradients = {f"grad_{name}" for name in all_inputs} & written(line.statement)
        if gradients:  # the line of a gradient itself keeps its test
            return line.serves
        for_most = len(line.serves) > 2 and is_for_most(spec, line.serves)
        owner = _owner(line.statement)
        # The shape or dtype of a tensor that is saved for most gradients costs nothing.
        is_free = owner in always_given and is_for_most(spec, read_for[owner])
        return all_inputs if for_most or is_free else line.serves

    return tuple(line._replace(serves=serves(line)) for line in lines)


def _read_for(lines: Iterable[Line], name: str) -> frozenset[str]:
    """Return the inputs whose gradients read the data of a tensor, not only its shape or dtype: it is saved for them."""
    return frozenset().union(
        *(line.serves for line in lines if name in data_read(line.statement))
    )


def _owner(item: Statement) -> str:
    """Return the `x` of `dtype = x.dtype`, or "" for other values such as `grad_y.expand_as(x)`."""
    if not isinstance(item, Assign):
        return ""
    found = metadata_read(item.value)
    return found.name if found and reads(item.value) == (found,) else ""


def place(lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """Group lines in blocks by the inputs they serve, as few blocks as the order of dependent lines allows."""
    blocks: list[Block] = []
    for line in lines:
        position = _last_with(blocks, line)
        if position is None:
            position = _last_behind_shared(blocks, line)
        if position is None:  # a block of its own
            blocks.append(Block(line.serves, (line.statement,)))
        else:
            statements = (*blocks[position].statements, line.statement)
            blocks[position] = Block(line.serves, statements)
    return tuple(blocks)


def _last_with(blocks: list[Block], line: Line) -> int | None:
    """Return the position of the last block for the same inputs, to add the line to it; None if a block between stops the line."""
    for position in reversed(range(len(blocks))):
        if blocks[position].serves == line.serves:
            return position
        if any(depend(item, line.statement) for item in blocks[position].statements):
            return None
    return None


def _last_behind_shared(blocks: list[Block], line: Line) -> int | None:
    """Move the last block for the same inputs behind later ones that serve more, so the line fits in; return its position, or None.

    `if needs[0]: a = x.exp()`, `n = len(x)`, `if needs[0]: grad_x = a[:n]` becomes one `if`, after `n`.
    """
    same = [at for at, block in enumerate(blocks) if block.serves == line.serves]
    if not same:
        return None
    block, between = blocks[same[-1]], blocks[same[-1] + 1 :]
    later = [item for other in between for item in other.statements]
    if not all(other.serves > block.serves for other in between):
        return None
    if any(depend(one, two) for one in block.statements for two in later):
        return None
    blocks[same[-1] :] = [*between, block]
    return len(blocks) - 1


def depend(first: Statement, second: Statement) -> bool:
    """Return whether two statements must stay in their order: one assigns a name the other reads or assigns."""
    names_first = read_names(first) | written(first)
    names_second = read_names(second) | written(second)
    return bool(written(first) & names_second or names_first & written(second))


def joint_gradients(lines: tuple[Line, ...]) -> frozenset[str]:
    """Return the inputs whose gradient is assigned in a line also needed for others: it is computed even if unwanted.

    `grad_x, grad_y = ...` is such a line. If only `grad_y` is wanted, backward has to return None in place of `grad_x`.
    """
    return frozenset(
        name
        for line in lines
        if len(line.serves) > 1
        for name in line.serves
        if f"grad_{name}" in written(line.statement)
    )


# --- Statements under tests.


def gathered(lines: Iterable[Statement]) -> Lines:
    """Merge `if`s with the same or opposite tests, also across lines that do not depend on the first one, and within branches."""
    done: list[Statement] = []
    for line in lines:
        joined = _joined_later(done, line) if isinstance(line, If) else None
        if joined is not None:
            at, line = joined
            del done[at]
        done.append(line)
    return tuple(_inside(item) for item in done)


def _inside(item: Statement) -> Statement:
    """Return an `if` with those in its branches merged too; other statements as they are."""
    if not isinstance(item, If):
        return item
    return If(item.test, gathered(item.body), gathered(item.orelse), item.comments)


def _joined_later(done: Sequence[Statement], line: If) -> tuple[int, If] | None:
    """Find an earlier choice in `done` that can move down to this one, as no line between depends on it.

    Return its position and both merged, or None.
    """
    for at, before in enumerate(done):
        together = _as_one(before, line) if isinstance(before, If) else None
        if together is not None and not any(depend(before, x) for x in done[at + 1 :]):
            return at, together
    return None


def _as_one(one: If, two: If) -> If | None:
    """Return two consecutive `if`s as one if their tests are equal or opposite: `if t: a`, `if not t: b` -> `if t: a, else: b`.

    None for other tests. The `if`s in its branches are left to `gathered`.
    """
    if one.test.names() & written(one):  # the first may change the outcome
        return None
    comments = (*one.comments, *two.comments)
    if one.test is two.test:
        body, orelse = (*one.body, *two.body), (*one.orelse, *two.orelse)
        return If(one.test, body, orelse, comments)
    if are_opposite(one.test, two.test):
        body, orelse = (*one.body, *two.orelse), (*one.orelse, *two.body)
        return If(one.test, body, orelse, comments)
    return None


def under(
    graph: Graph, tests: list[tuple[Node, int]], lines: list[Statement]
) -> list[Statement]:
    """Return statements within nested `if`s, the first test outermost: (test, 0) if it must hold, (test, 1) if it must not."""
    for test, at in reversed(tests):
        test = opposite_of(graph, test) if at else test
        lines = [If(test, tuple(lines))]
    return lines


def without_copy(lines: list[Statement], sole: bool) -> Lines:
    """Assign a branch's result at once, without the copy at its end: `h = f(x)`, `y = h` -> `y = f(x)`.

    `sole`: nothing but this copy reads `h`. Then an `if` before the copy may assign it, too: `if t: h = a`, `else: h = b`, `y = h`. A
    single line needs no `sole`: between it and the copy, the last line of the branch, no other can read `h`.
    """
    match lines:
        case [*before, Assign(target, copied)]:
            renamed = _assigning(before, copied, target)
            if renamed is not None and (sole or not isinstance(renamed[-1], If)):
                return renamed
    return tuple(lines)


def _assigning(lines: Sequence[Statement], old: Node, new: Node) -> Lines | None:
    """Return lines with a last value assigned to `new` in place of `old`, in each branch of an `if`; None if they end otherwise."""
    match lines:
        case [*before, Assign(target, value, "", comments)] if target is old:
            return (*before, Assign(new, value, "", comments))
        case [*before, If(test, body, orelse, comments)]:
            one, two = _assigning(body, old, new), _assigning(orelse, old, new)
            if one is not None and two is not None:
                return (*before, If(test, one, two, comments))
    return None
