"""A derived backward as an author would lay it out: nothing computed twice, choices by one test in one place.

In: an op and the statements of its backward. Out: statements, and the blocks that they stand in. Invariant: the same values; of a
backward that holds a formula of the user's no expression is renamed.
"""

import re
from dataclasses import replace

from scaffold.derive.backward_program import Line, lines_of
from scaffold.derive.derivation import Block, Maths
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.live_forward import effects
from scaffold.derive.forward.ssa_names import under_one_name
from scaffold.derive.saving import is_for_most
from scaffold.derive.stated_gradients import outer_names
from scaffold.derive.value_kinds import kinds_of_inputs
from scaffold.derive.write.common_subexpressions import Backward, named_once
from scaffold.derive.write.placement import gathered, place, settled
from scaffold.formula import Statement, renaming, rewritten, written
from scaffold.spec import OpSpec


def laid_out(
    spec: OpSpec, maths: Maths, program: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """The program with names for what stands in it several times; one with a formula of the user's stays as it is."""
    wanted = tuple(item.name for item in spec.differentiable)
    if not maths.derived.issuperset(wanted):
        return program
    blocks = blocks_of(maths, lines_of(program, wanted))
    program = tuple(item for block in blocks for item in block.statements)
    taken = outer_names(spec, maths.forward)
    known = Backward(
        maths.graph,
        kinds_of_inputs(spec).after(program),
        taken,
        effects(spec),
        wanted,
        frozenset(item.name for item in spec.tensors if item.optional),
    )
    return named_once(known, program)


def with_names_again(
    spec: OpSpec, maths: Maths, blocks: tuple[Block, ...]
) -> tuple[Block, ...]:
    """The blocks with the user's name for what he has called the same, as far as that is clear."""
    lines = tuple(line for block in blocks for line in block.statements)
    own = [item.name for item in (*spec.inputs, *spec.outputs)]
    taken = {*own, *(f"grad_{name}" for name in own)}
    taken.update(grad_name(spec, item.name) for item in spec.outputs)
    names = under_one_name(maths.graph, lines, maths.versions, taken)
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


def guarded_as_a_whole(spec: OpSpec, lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """The lines, of which those that three and more of the gradients need, and most of them, stand under no test.

    An author asks `needs_input_grad` of one input or of two.
    """
    every = frozenset(item.name for item in spec.differentiable)

    def serves(line: Line) -> frozenset[str]:
        gradients = {f"grad_{name}" for name in every} & written(line.statement)
        for_most = len(line.serves) > 2 and is_for_most(spec, line.serves)
        return every if for_most and not gradients else line.serves

    return tuple(line._replace(serves=serves(line)) for line in lines)


def blocks_of(maths: Maths, lines: tuple[Line, ...]) -> tuple[Block, ...]:
    """The lines in blocks, each under the inputs that need it; where a derived gradient is among them, choices by one test are one."""
    blocks = place(lines)
    if not maths.derived:
        return blocks
    return tuple(
        Block(block.serves, settled(maths.graph, gathered(block.statements)))
        for block in blocks
    )
