"""Give the backward short names and few lines, as an author would write it.

In: blocks of lines in which every value has a name of its own. Out: the same; a value read by one block alone is named by its role
(`inner` under the test of `x` and again under that of `y`, for `inner_x` and `inner_y`), and a value read once is inlined if its
reader's line stays short enough: `a = x.exp()`, `grad_x = grad * a` -> `grad_x = grad * x.exp()`. Invariant: the same values are
computed, in each branch as before; the user's names stay, and so do random draws and in-place changes.

It is the last pass over the lines: a line's length depends on the names in it and on its indentation.

Words: a block has the lines under one test of `needs_input_grad`; the one that serves every input has no test, so its names are
visible in all others. A role is the preferred name of a value, had it been free: `inner` of `inner_x` or `inner2`. A `fixed` name
stays, and is given to no other value.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.autocast import amp_of
from scaffold.derive.derivation import (
    LINE,
    METHOD,
    STEP,
    Block,
    Element,
    Maths,
    indent_of,
)
from scaffold.derive.forward.body import gradient_names
from scaffold.derive.forward.live_forward import effects
from scaffold.derive.forward.ssa_names import with_names_again
from scaffold.derive.name_collisions import RESERVED
from scaffold.derive.stated_gradients import outer_names
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    assignments,
    changed_in_place,
    emit,
    expressions,
    free_names,
    read_names,
    renaming,
    rewritten,
    written,
)
from scaffold.spec import OpSpec

ABOUT_A_NAME = "w.r.t. "  # starts comments that explain a name; inlining may drop them


def composed(
    spec: OpSpec,
    maths: Maths,
    blocks: tuple[Block, ...],
    elements: tuple[Element, ...],
) -> tuple[Block, ...]:
    """Return the blocks with the user's names restored, others shortened and values inlined.

    With a gradient that the user states, names are only restored: its lines stay as they were written. Short names let more values
    fit into a line, and inlining frees names: both are repeated until nothing changes. Names read in `elements`, the gradients of a
    variadic input's tensors, stay.
    """
    blocks = with_names_again(spec, maths, blocks)
    all_inputs = frozenset(item.name for item in spec.differentiable)
    if not maths.derived.issuperset(all_inputs):
        return blocks
    outside = {name for item in elements for name in item.value.names()}
    outside |= {name for item in elements for name in read_names(*item.statements)}
    outer = outer_names(spec, maths.forward)
    fixed = {*outer, *(f"grad_{name}" for name in outer), *outside}
    fixed |= written(*maths.again) if maths.again is not None else frozenset()
    known = _Known(spec, maths, all_inputs, frozenset(fixed), indent_of(amp_of(spec)))
    while True:
        better = known.joined(known.renamed(blocks))
        if better == blocks:
            return blocks
        blocks = better


@dataclass(frozen=True, slots=True)
class _Known:
    """Facts about the op shared by all lines, and the two steps to make its blocks better."""

    spec: OpSpec
    maths: Maths
    every: frozenset[str]  # inputs with gradients: a block that serves all has no test
    fixed: frozenset[str]  # names to keep, and to give to no other value
    indent: int  # added to all lines if the backward runs under an autocast

    @property
    def graph(self) -> Graph:
        return self.maths.graph

    # --- Names.

    def renamed(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Rename each value to its role, `inner` for `inner_x`, unless another visible value has that name."""
        roles = self.maths.roles
        lines = [item for block in blocks for item in block.statements]
        wanted = dict.fromkeys(filter(roles.__contains__, _assigned(lines)))
        kinds = kinds_of_inputs(self.spec).after(lines)
        found, inside = [*blocks], [_names(block.statements) for block in blocks]
        free = [free_names(block.statements) for block in blocks]

        def may_take(name: str, role: str, at: int) -> bool:
            """Can `name` be called `role` in block `at`? No other block has it, or only others under a test, for a tensor of their own."""
            if role in self.fixed | RESERVED or role in inside[at]:
                return False
            others = [k for k, names in enumerate(inside) if role in names]
            under_tests = all(blocks[k].serves != self.every for k in (at, *others))
            is_read_from_outside = any(role in free[k] for k in others)
            # A type checker refuses a name for a tensor here and a number there.
            are_tensors = {kinds.of_name(name), kinds.of_name(role)} == {"tensor"}
            return not others or (
                under_tests and not is_read_from_outside and are_tensors
            )

        for name in wanted:
            at, *more = (k for k, names in enumerate(inside) if name in names)
            if more or name in self.fixed or name in free[at]:
                continue  # other blocks read it, or it is not assigned here first
            # Its own names and those of blocks without a test; the names of such a block are seen by all.
            visible = (
                names
                for k, names in enumerate(inside)
                if k == at or self.every in (blocks[at].serves, blocks[k].serves)
            )
            alike = _of_role(roles[name], roles, frozenset().union(*visible)) - {name}
            shorter = _plainer(name, roles[name], bool(alike))
            role = next((one for one in shorter if may_take(name, one, at)), None)
            if role is not None:
                change = renaming(self.graph, {name: role})
                renamed = rewritten(self.graph, found[at].statements, change)
                found[at] = found[at]._replace(statements=renamed)
                inside[at] = _names(renamed)
        return tuple(found)

    # --- Lines.

    def joined(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """Return the blocks with each value read once written into its reader, if that line is short enough.

        Not one that other blocks read, that changes in place, or whose name is reserved.
        """
        lines = tuple(item for block in blocks for item in block.statements)
        changed = Trace(lines).changed
        free = [free_names(block.statements) for block in blocks]
        found = list[Block]()
        for at, block in enumerate(blocks):
            elsewhere = frozenset[str]().union(*free[:at], *free[at + 1 :])
            reads = Counter(_reads(block.statements))
            assigned = Counter(_assigned(block.statements))
            once = {name for name, n in assigned.items() if n == reads[name] == 1}
            once -= self.fixed | changed | elsewhere
            # A block for all inputs stands under no `if`.
            step = 0 if block.serves == self.every else STEP
            width = LINE - METHOD - self.indent - step
            few = self._in_fewer_lines(block.statements, once, changed, width)
            found.append(block._replace(statements=few))
        return tuple(found)

    def _in_fewer_lines(
        self, lines: Lines, once: Collection[str], changed: frozenset[str], width: int
    ) -> Lines:
        """Return lines with each value named in `once` written into its only reader, in a block and its branches.

        `changed` are names of tensors changed in place, which must keep their line; `width` is the longest line allowed.
        """
        rest = list[Statement]()
        for item in lines:
            if isinstance(item, If):
                body, orelse = (
                    self._in_fewer_lines(part, once, changed, width - STEP)
                    for part in (item.body, item.orelse)
                )
                item = If(item.test, body, orelse, item.comments)
            rest.append(item)
        # From the last line up, as lines are deleted on the way.
        for at in reversed(range(len(rest))):
            item = rest[at]
            if not _is_plain(item) or item.target.label not in once:
                continue
            if item.value.names() & changed or self._stays(item):
                continue
            for after in range(at + 1, len(rest)):
                line = rest[after]
                if item.target.label in read_names(line):
                    longer = self._with_value(line, item)
                    if longer is not None and self._width(longer) <= width:
                        rest[after] = longer
                        del rest[at]
                    break
                if written(line) & item.value.names():  # an operand is overwritten
                    break
        return tuple(rest)

    def _stays(self, item: Assign) -> bool:
        """Return whether a line must stay: it has an effect, a comment about more than a name, or an expression not to inline."""
        foreign = effects(self.spec)
        return (
            any(not comment.startswith(ABOUT_A_NAME) for comment in item.comments)
            or _stands_alone(item.value)
            or any(map(foreign, item.value.walk()))
            or bool(changed_in_place(item.value))
        )

    def _width(self, item: Assign) -> int:
        """Return the length of a line as `render` writes it: the gradient of a sole input has an annotation, `grad_x: Tensor = ...`."""
        name = item.target.label
        is_typed = len(self.spec.inputs) == 1 and name in gradient_names(self.spec)
        annotation = ": Tensor" if is_typed else ""
        return len(f"{name}{annotation} = {emit(item.value)}")

    def _with_value(self, line: Statement, item: Assign) -> Assign | None:
        """Return `line` with the value of `item`, an assignment, in place of its name; None if `line` must stay as it is."""
        if not _is_plain(line) or changed_in_place(line.value):
            return None
        if _stands_alone(line.value):
            return None

        def change(part: Node) -> Node | None:
            return item.value if part is item.target else None

        (found,) = rewritten(self.graph, (line,), change)  # one line in, one line out
        assert isinstance(found, Assign)
        return found


def _plainer(name: str, role: str, among_others: bool) -> Iterator[str]:
    """Yield the possible shorter names, best first: the role, or the role with a lower number: `inner2` for `inner5`.

    A name without a number has no shorter one if others of its role are visible (`among_others`): it tells them apart.
    """
    counted = _is_counted(name, role)
    if counted or not among_others:
        yield role
    if counted:
        lower = range(2, int(name.removeprefix(role)))
        yield from (f"{role}{number}" for number in lower)


def _of_role(
    role: str, roles: Mapping[str, str], names: Iterable[str]
) -> frozenset[str]:
    """Return the names of values with one role that say more than the role: `inner_x`, not `inner2`."""
    alike = (name for name in names if roles.get(name) == role)
    return frozenset(name for name in alike if not _is_counted(name, role))


def _is_counted(name: str, role: str) -> bool:
    """Return whether a name is its role plus a number."""
    return name.startswith(role) and name.removeprefix(role).isdigit()


def _stands_alone(value: Node) -> bool:
    """Return whether a value needs its own line: it has a lambda, or a call to which `render` adds a comment."""
    return any(
        part.kind == "lambda" or part.label == "broadcast_shapes"
        for part in value.walk()
    )


def _is_plain(item: Statement) -> TypeGuard[Assign]:
    """Return whether a statement is `name = value`."""
    return isinstance(item, Assign) and item.target.kind == "name" and not item.operator


def _assigned(lines: Iterable[Statement]) -> list[str]:
    """Return the targets of plain assignments, with repeats."""
    return [item.target.label for item in assignments(lines) if _is_plain(item)]


def _names(lines: Iterable[Statement]) -> frozenset[str]:
    """Return all names in the lines, read or assigned: none of them is free there."""
    items = tuple(lines)
    return written(*items).union(*(node.names() for node in expressions(*items)))


def _reads(lines: Iterable[Statement]) -> Iterator[str]:
    """Yield each name read in the lines, with repeats, to count the reads of a name."""
    waiting = [*expressions(*lines)]
    while waiting:
        node = waiting.pop()
        if node.kind == "name":
            yield node.label
        waiting += node.args
