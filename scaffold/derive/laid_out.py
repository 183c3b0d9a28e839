"""A derived backward as an author lays it out.

In: an op, what was taken apart of it, and the statements of its backward. Out: statements, and the blocks that they stand in.
Invariant: the same values; of a backward that holds a formula of the user's no expression is renamed.
"""

from scaffold.derive.given import Given, outer_names
from scaffold.derive.kinds import kinds_of_inputs
from scaffold.derive.model import Block
from scaffold.derive.place import place
from scaffold.derive.program import Line, lines_of
from scaffold.derive.reuse import effects
from scaffold.derive.twice import Backward, named_once
from scaffold.derive.untyped import by_bare_names
from scaffold.derive.vjp.branches import gathered
from scaffold.formula import Statement
from scaffold.spec import OpSpec


def once_each(
    spec: OpSpec, given: Given, program: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """The program with names for what stands in it several times."""
    wanted = tuple(item.name for item in spec.differentiable)
    if not given.derived.issuperset(wanted):
        return program
    blocks = blocks_of(given, lines_of(program, wanted))
    program = tuple(item for block in blocks for item in block.statements)
    taken = outer_names(spec, given.forward)
    known = Backward(
        given.graph,
        kinds_of_inputs(spec).after(program),
        taken,
        effects(spec),
        wanted,
        frozenset(item.name for item in spec.tensors if item.optional),
    )
    return by_bare_names(given.graph, named_once(known, program), taken)


def blocks_of(given: Given, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """The lines where they go; choices by one test are one."""
    blocks = place(lines)
    if not given.derived:
        return blocks
    return tuple(Block(block.serves, gathered(block.statements)) for block in blocks)
