"""Where each line of the backward stands: in which block of `needs_input_grad`, and under which test.

In: lines and the gradients that they serve; statements and the tests that they stand under. Out: `Block`s in order; statements with `if`s,
neighbours under one test in one `if`. Invariant: no line moves before one that it depends on, so every name has the same value
after them. Which gradients need a line is said in `backward_program`; the `if` itself is written by `render`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from scaffold.derive.analysis.metadata import metadata_read, reads
from scaffold.derive.backward_program import Line, read_names
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
    expressions,
    opposite_of,
    written,
)
from scaffold.spec import OpSpec

# --- Blocks: the lines under the branches of `needs_input_grad` that need them.


def blocks_of(maths: Maths, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """The lines in blocks, each under the inputs that need it; where a derived gradient is among them, choices by one test are one."""
    blocks = place(lines)
    if not maths.derived:
        return blocks
    uses = Counter(
        node.label
        for line in lines
        for root in expressions(line.statement)
        for node in root.walk()
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
    """Write a term that only one branch has as `g = a`, then `g = g + b` under the test; `uses` counts the reads of a name.

    Before: `part = a`, and the choice between `g = part + b` and `g = part`.
    """
    found = list[Statement]()
    for line in lines:
        match line, found[-1:]:
            case (
                If(
                    test,
                    (*before, Assign(target, total, "", more)),
                    (Assign(other, kept, "", ()),),
                    comments,
                ),
                [Assign(made, value, "", said)],
            ) if (
                kept is made and other is target and uses[made.label] == 2
            ):
                term = _added_to(graph, made, total, target)
                if made.kind == "name" and term is not None:
                    found[-1] = Assign(target, value, "", said)
                    body = (*before, Assign(target, term, "", more))
                    line = If(test, body, (), comments)
        found.append(line)
    return tuple(found)


def _added_to(graph: Graph, made: Node, total: Node, target: Node) -> Node | None:
    """The sum or difference of `made` and a term, with the target in the place of `made`; None for anything else."""
    match total:
        case Node("binary", "+" | "-" as sign, (one, two)):
            if one is made and made not in two.walk():
                return graph.node("binary", sign, (target, two))
            if sign == "+" and two is made and made not in one.walk():
                return graph.node("binary", sign, (target, one))
    return None


def guarded_as_a_whole(spec: OpSpec, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines, of which those that three and more of the gradients need, and most of them, stand under no test.

    An author asks `needs_input_grad` of one input or of two; and of none for `dtype = x.dtype`, where x is saved anyway.
    """
    every = frozenset(item.name for item in spec.differentiable)
    there = {x.name for x in spec.tensors if not (x.optional or x.variadic)}
    read_for = {name: _read_for(lines, name) for name in there}

    def serves(line: Line) -> frozenset[str]:
        gradients = {f"grad_{name}" for name in every} & written(line.statement)
        for_most = len(line.serves) > 2 and is_for_most(spec, line.serves)
        owner = _owner(line.statement)
        free = owner in there and is_for_most(spec, read_for[owner])
        return every if (for_most or free) and not gradients else line.serves

    return tuple(line._replace(serves=serves(line)) for line in lines)


def _read_for(lines: Iterable[Line], name: str) -> frozenset[str]:
    """The gradients for which the data of a tensor are read."""
    return frozenset().union(
        *(
            line.serves
            for line in lines
            for node in expressions(line.statement)
            if any(read.name == name and not read.facets for read in reads(node))
        )
    )


def _owner(item: Statement) -> str:
    """The `x` of `dtype = x.dtype`; "" of what is computed, as `grad_y.expand_as(x)`, which reads another value, too."""
    if not isinstance(item, Assign):
        return ""
    found = metadata_read(item.value)
    return found.name if found and reads(item.value) == (found,) else ""


def place(lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """Gather the lines that serve the same gradients, as far as their order allows."""
    blocks: list[Block] = []
    for line in lines:
        position = _last_with(blocks, line)
        if position is None:
            position = _last_behind_shared(blocks, line)
        if position is None:
            blocks.append(Block(line.serves, (line.statement,)))
        else:
            statements = (*blocks[position].statements, line.statement)
            blocks[position] = Block(line.serves, statements)
    return tuple(blocks)


def _last_with(blocks: list[Block], line: Line) -> int | None:
    """The block to append to: the last one of the same service, if nothing after it is in the way."""
    for position in reversed(range(len(blocks))):
        if blocks[position].serves == line.serves:
            return position
        if any(depend(item, line.statement) for item in blocks[position].statements):
            return None
    return None


def _last_behind_shared(blocks: list[Block], line: Line) -> int | None:
    """The block to append to, once the blocks between it and the line stand before it: those that serve other gradients as well.

    `if needs[0]: a = x.exp()`, `n = len(x)`, `if needs[0]: grad_x = a[:n]` is one `if`, behind `n`.
    """
    same = [at for at, block in enumerate(blocks) if block.serves == line.serves]
    if not same:
        return None
    block, between = blocks[same[-1]], blocks[same[-1] + 1 :]
    if any(
        not other.serves > block.serves
        or any(depend(one, two) for one in block.statements for two in other.statements)
        for other in between
    ):
        return None
    blocks[same[-1] :] = [*between, block]
    return len(blocks) - 1


def depend(first: Statement, second: Statement) -> bool:
    """Whether two statements must stay in their order."""
    names_first = read_names(first) | written(first)
    names_second = read_names(second) | written(second)
    return bool(written(first) & names_second or names_first & written(second))


def joint_gradients(lines: tuple[Line, ...]) -> frozenset[str]:
    """The inputs whose gradient is assigned where others are served too."""
    joint = set()
    for line in lines:
        for name in written(line.statement):
            served = name.removeprefix("grad_")
            if (
                name.startswith("grad_")
                and served in line.serves
                and len(line.serves) > 1
            ):
                joint.add(served)
    return frozenset(joint)


# --- Statements under tests.


def merged(lines: list[Statement]) -> list[Statement]:
    """Neighbours under the same test, or one and its opposite, as one `if`."""
    done: list[Statement] = []
    for line in lines:
        last = done[-1] if done else None
        both = None
        if isinstance(line, If) and isinstance(last, If):
            both = _as_one(last, line)
        if both is None:
            done.append(line)
        else:
            done[-1] = both
    return done


def gathered(lines: Iterable[Statement]) -> Lines:
    """Choices by one test as one `if`, also where the lines between them have nothing to do with one of the two."""
    done: list[Statement] = []
    for line in lines:
        later = _joined_later(done, line) if isinstance(line, If) else None
        if later is not None:
            done = [item for place, item in enumerate(done) if place != later[0]]
            done.append(later[1])
        else:
            done.append(line)
    return tuple(_inside(item) for item in done)


def _inside(item: Statement) -> Statement:
    """A choice in whose branches the choices are gathered."""
    if not isinstance(item, If):
        return item
    return If(item.test, gathered(item.body), gathered(item.orelse), item.comments)


def _joined_later(done: Sequence[Statement], line: If) -> tuple[int, If] | None:
    """The choice that can wait for another one, since no line between them reads it, and what both are then."""
    for at, before in enumerate(done):
        both = _as_one(before, line) if isinstance(before, If) else None
        if both is not None and not any(depend(before, x) for x in done[at + 1 :]):
            return at, both
    return None


def _as_one(one: If, two: If) -> If | None:
    """Two choices that follow each other, if one test decides both."""
    if one.test.names() & written(one):
        return None
    comments = (*one.comments, *two.comments)
    if one.test is two.test:
        body = tuple(merged([*one.body, *two.body]))
        orelse = tuple(merged([*one.orelse, *two.orelse]))
        return If(one.test, body, orelse, comments)
    if are_opposite(one.test, two.test):
        body = tuple(merged([*one.body, *two.orelse]))
        orelse = tuple(merged([*one.orelse, *two.body]))
        return If(one.test, body, orelse, comments)
    return None


def under(
    graph: Graph, tests: list[tuple[Node, int]], lines: list[Statement]
) -> list[Statement]:
    """Statements under tests, each of which holds (0) or does not (1)."""
    for test, at in reversed(tests):
        test = opposite_of(graph, test) if at else test
        lines = [If(test, tuple(lines))]
    return lines


def without_copy(lines: list[Statement], sole: bool) -> Lines:
    """Statements whose last one copies what the one before has made: made under that name at once.

    Where the copy is the `sole` use, also in the branches of an `if`: of a chain of `elif`.
    """
    match lines:
        case [*before, Assign(made, value, "", comments), Assign(target, last)] if (
            last is made
        ):
            return (*before, Assign(target, value, "", comments))
        case [*before, If() as choice, Assign(target, last)] if sole:
            found = _assigned_in(choice, last, target)
            if found is not None:
                return (*before, found)
    return tuple(lines)


def _assigned_in(choice: If, made: Node, target: Node) -> If | None:
    """A choice that assigns another name, if all of its branches end with that assignment."""
    branches = list[Lines]()
    for body in (choice.body, choice.orelse):
        match body:
            case (*before, Assign(name, value, "", comments)) if name is made:
                branches.append((*before, Assign(target, value, "", comments)))
            case (*before, If() as inner):
                found = _assigned_in(inner, made, target)
                if found is None:
                    return None
                branches.append((*before, found))
            case _:
                return None
    return If(choice.test, branches[0], branches[1])
