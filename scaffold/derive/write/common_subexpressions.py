"""Compute common subexpressions of a backward once, on a line of their own.

`grad_x = grad * x.exp()` and `grad_y = grad * x.exp() * z` -> `exp = x.exp()`, and both lines read `exp`.

In: the backward's statements, nearly finished: `composition` alone follows. Out: the same with a name for each repeated expression
that costs more than a view. Invariant: a named expression is computed where it was computed anyway, from the same values; nothing
gets a name that draws random numbers, changes a tensor in place or is foreign to PyTorch.

Values shared in the graph have their names from `schedule` already. The rest repeats as text alone, in one derived backward of
five: forward lines repeated as the user wrote them, and values computed for their shape, `(x * y).shape`, which appear only when a
line is printed. Hence this second pass over the statements.

Words: a `fixed` expression may share memory with one that is changed in place, so it must stay where it is; a `foreign` one calls
something unknown, and must not be moved either. A statement serves the inputs whose gradients need it. A use of an expression is
`sure` if it runs whenever its statement does, not only in one branch of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.backward_program import lines_of
from scaffold.derive.derivation import Maths
from scaffold.derive.forward.live_forward import effects
from scaffold.derive.name_collisions import RESERVED
from scaffold.derive.stated_gradients import outer_names
from scaffold.derive.write.placement import blocks_of
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    ValueKinds,
    assignments,
    nodes,
    rewritten,
    same_memory,
    written,
    written_to,
)
from scaffold.formula.names import numbered
from scaffold.primitives import built_in_primitives
from scaffold.primitives.calls import facts_of_call
from scaffold.spec import OpSpec

OFTEN = 3  # uses from which one cheap operation gets a name
OPERATIONS = frozenset({"binary", "call"})


class Use(NamedTuple):
    """A use of an expression in a block: the position of its statement, and whether it runs whenever that statement does."""

    position: int
    sure: bool


class Backward(NamedTuple):
    """Facts about the backward around the statements: they decide whether an expression may be moved, and under which name."""

    graph: Graph
    kinds: ValueKinds
    taken: frozenset[str]  # names used outside the statements: not free here
    foreign: Callable[[Node], bool]  # whether an expression must not be moved
    wanted: tuple[str, ...]  # the inputs whose gradients are computed
    optional: frozenset[str]  # inputs that may be absent


def with_repeats_named(spec: OpSpec, maths: Maths, program: Lines) -> Lines:
    """Name the repeated expressions of a backward, `program`; return it unchanged if the user states a gradient by a formula.

    Such a formula stays as it was written. The lines are first put in the order they will be printed in, block by block: it decides
    which use of an expression is the first.
    """
    wanted = tuple(item.name for item in spec.differentiable)
    if not maths.derived.issuperset(wanted):
        return program
    blocks = blocks_of(maths, lines_of(program, wanted))
    program = tuple(item for block in blocks for item in block.statements)
    taken = outer_names(spec, maths.forward)
    backward = Backward(
        maths.graph,
        kinds_of_inputs(spec).after(program),
        taken,
        effects(spec),
        wanted,
        frozenset(item.name for item in spec.tensors if item.optional),
    )
    return named_once(backward, program)


def named_once(known: Backward, statements: Lines) -> Lines:
    """Return the statements with each costly repeated expression on a line of its own, where it may be moved.

    One step names one expression; its line may be a repeated one too, so steps go on until nothing is found.
    """

    def spelled(node: Node) -> Node | None:
        """Replace `1.` by `1.0`, the formatter's and the engine's spelling."""
        number = node.kind == "constant" and node.label[0] in "0123456789"
        if number and node.label.endswith("."):
            return known.graph.constant(f"{node.label}0")
        return None

    statements = rewritten(known.graph, statements, spelled)
    while _stands_twice(statements):  # rare; only then trace in-place changes
        step = _Step(known, statements, Trace(statements).changed)
        found = step.with_one_name(statements, True)
        if found is None:
            return statements
        statements = found
    return statements


def _stands_twice(statements: Lines) -> bool:
    """Return whether any operation occurs twice in the statements: without one there is nothing to name."""
    several = [node for item in statements for node, _ in _operations(item)]
    return len({*several}) < len(several)


class _Step:
    """One step: gives a name to one repeated expression, the largest."""

    def __init__(
        self, known: Backward, statements: Lines, changed: frozenset[str]
    ) -> None:
        """Gather facts on the statements: names in use, the gradients each serves, expressions in `fixed` memory.

        `changed` are the names of tensors that the statements change in place.
        """
        self.known, self.changed = known, changed
        inner = {*nodes(*statements)}
        self.fixed = {
            part
            for node in inner
            for tensor in written_to(node)
            for part in same_memory(tensor)
        }
        lines = lines_of(statements, known.wanted)
        # By identity: of two equal statements each serves its own inputs.
        self.serves = {id(line.statement): line.serves for line in lines}
        self.assigned = [
            name for item in assignments(statements) for name in written(item)
        ]
        read = {node.label for node in inner if node.kind == "name"}
        self.names = known.taken.union(read, self.assigned)

    def with_one_name(self, lines: Lines, outermost: bool) -> Lines | None:
        """Return the lines with a name for one more repeated expression, or None if there is none left to name.

        An `if`'s branches are searched only if the lines themselves have none; `outermost` lines are in no branch.
        """
        uses: dict[Node, list[Use]] = {}
        for position, item in enumerate(lines):
            for node, sure in _operations(item):
                uses.setdefault(node, []).append(Use(position, sure))
        repeated = [
            node
            for node, of_node in uses.items()
            if len(of_node) > 1 and self._may_be_named(node, len(of_node))
            if self._may_stand_first(lines, node, of_node, outermost)
        ]
        if repeated:  # the largest: those inside it are then read once
            node = max(repeated, key=lambda node: sum(1 for _ in node.walk()))
            return self._named(lines, node, uses[node][0].position)
        for position, item in enumerate(lines):
            if isinstance(item, If):
                before, after = lines[:position], lines[position + 1 :]
                if (body := self.with_one_name(item.body, False)) is not None:
                    return (*before, replace(item, body=body), *after)
                if (orelse := self.with_one_name(item.orelse, False)) is not None:
                    return (*before, replace(item, orelse=orelse), *after)
        return None

    def _may_be_named(self, node: Node, count: int) -> bool:
        """Return whether an expression, read `count` times, is expensive enough for a name, and may be moved.

        A call, a matrix product, or two operations are; one cheap operation only if it is read three times.
        """
        if node.kind not in OPERATIONS or node in self.fixed:
            return False
        inner = list(node.walk())
        # A lambda has names of its own; `body` is a forward kept as the user wrote it.
        if any(part.kind in ("lambda", "body") for part in inner):
            return False
        if any(any(written_to(part)) for part in inner):  # it changes a tensor in place
            return False
        if node.names() & self.changed or self.known.foreign(node):
            return False
        if _is_view(node) or not self._is_costly(node):
            return False
        steps = sum(p.kind in OPERATIONS and self._is_costly(p) for p in inner)
        return node.kind == "call" or node.label == "@" or steps > 1 or count >= OFTEN

    def _is_costly(self, node: Node) -> bool:
        """Return whether an expression is worth a name: it is a tensor, or a broadcast of shapes, `torch.broadcast_shapes(...)`.

        Other Python values are cheap, so they are repeated.
        """
        if node.kind == "call" and node.args[0].label == "broadcast_shapes":
            return True
        return self.known.kinds.of(node) == "tensor"

    def _may_stand_first(
        self, lines: Lines, node: Node, uses: Sequence[Use], outermost: bool
    ) -> bool:
        """Return whether the expression may be computed before its first use: its value is the same, and it is never computed in vain.

        `outermost` lines are under no test yet: `render` later puts each under the test of the gradients it serves. So a name used
        for several gradients needs a sure use for an input that is always present.
        """
        first, last = uses[0].position, uses[-1].position
        between = lines[first : last + 1]
        if node.names() & written(*between):  # an operand gets another value
            return False
        holders = (item for item in between if isinstance(item, Assign))
        # A local with this value is changed in place before the last use.
        if any(item.value is node and written(item) & self.changed for item in holders):
            return False
        sure = [lines[use.position] for use in uses if use.sure]
        if not outermost:  # the tests around these lines are written already
            return bool(sure)
        serves_one = len(self._served(lines[use.position] for use in uses)) == 1
        always_wanted = self._served(sure) - self.known.optional
        return bool(sure) and (serves_one or bool(always_wanted))

    def _served(self, several: Iterable[Statement]) -> frozenset[str]:
        """Return the inputs whose gradients need one of the statements: their tests will stand around these."""
        nothing = frozenset[str]()
        return nothing.union(*(self.serves.get(id(item), nothing) for item in several))

    def _named(self, lines: Lines, node: Node, first: int) -> Lines:
        """Return the lines with every `node` replaced by a name: an existing local with this value, or a new one.

        The line that assigns the name stands before the first one with the expression, at position `first`.
        """
        local = next(filter(None, (self._holder(item, node) for item in lines)), None)
        name = local.target if local else self.known.graph.name(self._name(node))
        first_line = local or Assign(name, node)
        rest = tuple(item for item in lines if item is not local)

        def change(part: Node) -> Node | None:
            if part.kind == "lambda":  # its parameters may have these names
                return part
            return name if part is node else None

        changed = rewritten(self.known.graph, rest, change)
        return (*changed[:first], first_line, *changed[first:])

    def _holder(self, item: Statement, node: Node) -> Assign | None:
        """Return the statement if it assigns the expression to a local that others may read from then on; else None.

        The local is assigned once, and is no gradient.
        """
        if not isinstance(item, Assign) or item.value is not node or item.operator:
            return None
        name = item.target.label
        # A gradient is assigned under a test of its own, where others may not see it.
        is_local = item.target.kind == "name" and not name.startswith("grad_")
        return item if is_local and self.assigned.count(name) == 1 else None

    def _name(self, node: Node) -> str:
        """Return a free name for an expression, by its function and what it reads: `exp`, else `exp_x`, else `exp2`.

        What reads a gradient is named `exp_grad`, without its operands: it is not their gradient.
        """
        label = node.args[0].label if node.kind == "call" else node.label
        # `_softmax_backward_data` of `torch.ops.aten`: a local begins with no underscore.
        stem = _word(node.kind, label) or label.strip("_")
        stem = stem if stem.isidentifier() else "value"  # there is no word for `//`
        reads = [part.label for part in node.walk() if part.kind == "name"]
        operands = [name for name in reads if name not in ("torch", "F", "math")]
        # `torch.zeros_like(grad_x)` reads no more than the shape of a gradient.
        of_shape_alone = stem in ("zeros", "ones", "shape")
        if any(name.startswith("grad_") for name in reads) and not of_shape_alone:
            stem, operands = f"{stem}_grad", []
        for name in (stem, *(f"{stem}_{operand}" for operand in operands)):
            if name not in self.names and name not in RESERVED:
                return name
        return numbered(stem, self.names)


def _word(kind: str, label: str) -> str:
    """Return the table's word for a value made by the function or operator `label`: "probs" for `softmax`, "" if it has none."""
    if label == "broadcast_shapes":  # a Python value, hence no primitive
        return "shape"
    known = (
        built_in_primitives().named("operator", label)
        if kind == "binary"
        else facts_of_call(label)
    )
    return next((word for facts in known for word in facts.words), "")


def _is_view(node: Node) -> bool:
    """Return whether a value may be a view, computed at no cost: it may share its argument's memory."""
    return sum(1 for _ in same_memory(node)) > 1


def _operations(item: Statement) -> Iterator[tuple[Node, bool]]:
    """Yield every operation in a statement, with repeats, and whether it always runs when the statement does.

    An operation in a branch of an `if` does not always run, one in its test does.
    """
    if isinstance(item, If):
        yield from _inside(item.test, True)
        for inner in (*item.body, *item.orelse):
            yield from ((node, False) for node, _ in _operations(inner))
        return
    if item.target.kind == "subscript":
        yield from _inside(item.target, True)
    yield from _inside(item.value, True)


def _inside(node: Node, sure: bool) -> Iterator[tuple[Node, bool]]:
    """Yield the operations in an expression, each with whether it runs whenever the statement does: `sure` says it of the expression.

    In `a if t else b` and `t and b`, only the first part always runs.
    """
    if node.kind == "lambda":  # its parameters are local names
        return
    if node.kind in OPERATIONS:
        yield node, sure
    maybe = node.kind in ("conditional", "boolean")
    for at, part in enumerate(node.args):
        yield from _inside(part, sure and (at == 0 or not maybe))
