"""Where each line of the backward goes: under the `needs_input_grad` branches that need it.

In: lines and what they serve. Out: `Block`s in order. Invariant: no line moves before one that it depends on.
"""

from scaffold.derive.model import Block
from scaffold.derive.program import Line, read_names
from scaffold.formula import Statement, written


def place(lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """Gather the lines that serve the same gradients, as far as their order allows."""
    blocks: list[Block] = []
    for line in lines:
        position = _last_with(blocks, line)
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


def depend(first: Statement, second: Statement) -> bool:
    """Whether two statements must stay in their order."""
    reads_first, reads_second = read_names(first), read_names(second)
    writes_first, writes_second = written(first), written(second)
    return bool(
        writes_first & (reads_second | writes_second) or reads_first & writes_second
    )


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
