"""The lines of the backward with no more names, and no longer ones, than an author gives.

In: blocks of lines in which every value has a name of its own. Out: the same, in which what one block alone reads is called by its role
(`inner` under the test of `x` and again under that of `y`, for `inner_x` and `inner_y`), and a value that is read once
stands in the line that reads it, where that fits. Invariant: the same values are computed, in each branch as before; names
of the user's stay, and so does what draws or changes in place.

It is the last pass over the lines, since how long one is depends on the names in it, and on the branch that it stands in.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

from scaffold.derive.analysis.aliasing import Trace
from scaffold.derive.analysis.value_kinds import kinds_of_inputs
from scaffold.derive.autocast import amp_of
from scaffold.derive.backward_program import free_reads, read_names
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
    assignments,
    changed_in_place,
    emit,
    expressions,
    renaming,
    rewritten,
    sharing,
    written,
)
from scaffold.spec import OpSpec

ABOUT_A_NAME = "w.r.t. "  # a comment that says what a name does not


def composed(
    spec: OpSpec,
    maths: Maths,
    blocks: tuple[Block, ...],
    elements: tuple[Element, ...],
) -> tuple[Block, ...]:
    """The blocks with the user's names, short ones of ours and as few lines; those with a formula of the user's stay as they are."""
    blocks = with_names_again(spec, maths, blocks)
    every = frozenset(item.name for item in spec.differentiable)
    if not maths.derived.issuperset(every):
        return blocks
    outside = {name for item in elements for name in item.value.names()}
    outside |= {name for item in elements for name in read_names(*item.statements)}
    own = outer_names(spec, maths.forward)  # and what a gradient of a local is called
    fixed = {*own, *(f"grad_{name}" for name in own), *outside}
    fixed |= written(*maths.again) if maths.again is not None else frozenset()
    known = _Known(spec, maths, every, frozenset(fixed), indent_of(amp_of(spec)))
    while True:
        shorter = known.joined(known.renamed(blocks))
        if shorter == blocks:
            return blocks
        blocks = shorter


@dataclass(frozen=True, slots=True)
class _Known:
    """What surrounds the lines."""

    spec: OpSpec
    maths: Maths
    every: frozenset[str]  # with gradients: a block that serves all has no test
    fixed: frozenset[str]  # names that stay, and that no other value gets
    indent: int  # of all lines, where the backward runs under an autocast

    @property
    def graph(self) -> Graph:
        return self.maths.graph

    # --- Names.

    def renamed(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """The blocks in which a value is called by its role alone, wherever no other value that is seen there is."""
        roles = self.maths.roles
        lines = [item for block in blocks for item in block.statements]
        wanted = dict.fromkeys(filter(roles.__contains__, _assigned(lines)))
        if not wanted:
            return blocks
        kinds = kinds_of_inputs(self.spec).after(lines)
        found = [*blocks]
        inside = [_names(block.statements) for block in blocks]
        free = [_free(block.statements) for block in blocks]

        def is_free(role: str, name: str, at: int) -> bool:
            """Whether nothing else is called so, or only tensors in branches that this one does not see."""
            if role in self.fixed | RESERVED or role in inside[at]:
                return False
            others = [k for k, names in enumerate(inside) if role in names]
            branches = all(blocks[k].serves != self.every for k in (at, *others))
            apart = branches and not any(role in free[k] for k in others)
            tensors = {kinds.of_name(name), kinds.of_name(role)} == {"tensor"}
            return not others or (apart and tensors)

        for name in wanted:
            at, *more = (k for k, names in enumerate(inside) if name in names)
            if more or name in self.fixed or name in free[at]:
                continue
            seen = (
                names
                for k, names in enumerate(inside)
                if k == at or self.every in (blocks[at].serves, blocks[k].serves)
            )
            others = _of_role(roles[name], roles, frozenset().union(*seen)) - {name}
            possible = _plainer(name, roles[name], bool(others))
            role = next((one for one in possible if is_free(one, name, at)), None)
            if role is not None:
                change = renaming(self.graph, {name: role})
                few = rewritten(self.graph, found[at].statements, change)
                found[at] = found[at]._replace(statements=few)
                inside[at] = _names(few)
        return tuple(found)

    # --- Lines.

    def joined(self, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
        """The blocks in which what is read once stands where it is read, if that fits on a line."""
        lines = tuple(item for block in blocks for item in block.statements)
        traced = Trace(lines, sharing).changes
        changed = frozenset(name for item in traced for name in item.holders)
        free = [_free(block.statements) for block in blocks]
        found = list[Block]()
        for at, block in enumerate(blocks):
            elsewhere = frozenset[str]().union(*free[:at], *free[at + 1 :])
            reads = Counter(_reads(block.statements))
            assigned = Counter(_assigned(block.statements))
            once = {name for name, n in assigned.items() if n == reads[name] == 1}
            once -= self.fixed | changed | elsewhere
            width = LINE - METHOD - self.indent - STEP * (block.serves != self.every)
            few = self._in_fewer_lines(block.statements, once, changed, width)
            found.append(block._replace(statements=few))
        return tuple(found)

    def _in_fewer_lines(
        self, lines: Lines, once: Collection[str], changed: Collection[str], width: int
    ) -> Lines:
        """Lines of a block, those of its branches included, with few of the names that are read `once`."""
        rest = list[Statement]()
        for item in lines:
            if isinstance(item, If):
                body, orelse = (
                    self._in_fewer_lines(part, once, changed, width - STEP)
                    for part in (item.body, item.orelse)
                )
                item = If(item.test, body, orelse, item.comments)
            rest.append(item)
        for at in reversed(range(len(rest))):
            item = rest[at]
            if not _is_plain(item) or item.target.label not in once:
                continue
            if item.value.names() & frozenset(changed) or self._stays(item):
                continue
            for after in range(at + 1, len(rest)):
                line = rest[after]
                if item.target.label in read_names(line):
                    longer = self._with_value(line, item)
                    if longer is not None and self._width(longer) <= width:
                        rest[after] = longer
                        del rest[at]
                    break
                if written(line) & item.value.names():
                    break
        return tuple(rest)

    def _stays(self, item: Assign) -> bool:
        """Whether a line does more than to compute its value, or says more."""
        foreign = effects(self.spec)
        return (
            any(not comment.startswith(ABOUT_A_NAME) for comment in item.comments)
            or _is_apart(item.value)
            or any(map(foreign, item.value.walk()))
            or bool(changed_in_place(item.value))
        )

    def _width(self, item: Assign) -> int:
        name = item.target.label
        typed = len(self.spec.inputs) == 1 and name in gradient_names(self.spec)
        return len(f"{name}{': Tensor' * typed} = {emit(item.value)}")

    def _with_value(self, line: Statement, item: Assign) -> Assign | None:
        """A line with a value in place of its name; None where it is no line that a value may stand in."""
        if not _is_plain(line) or changed_in_place(line.value):
            return None
        if _is_apart(line.value):
            return None

        def change(part: Node) -> Node | None:
            return item.value if part is item.target else None

        (found,) = rewritten(self.graph, (line,), change)
        assert isinstance(found, Assign)
        return found


def _plainer(name: str, role: str, among_others: bool) -> Iterator[str]:
    """What a name may become, the best first; one that tells its value from `others` of the same role stays, or has a lower number."""
    counted = _is_counted(name, role)
    if counted or not among_others:
        yield role
    if counted:
        lower = range(2, int(name.removeprefix(role)))
        yield from (f"{role}{number}" for number in lower)


def _of_role(
    role: str, roles: Mapping[str, str], names: Iterable[str]
) -> frozenset[str]:
    """The names that tell values of one role apart by more than a number."""
    alike = (name for name in names if roles.get(name) == role)
    return frozenset(name for name in alike if not _is_counted(name, role))


def _is_counted(name: str, role: str) -> bool:
    """Whether nothing but a number tells a name from others of its role."""
    return name.startswith(role) and name.removeprefix(role).isdigit()


def _is_apart(value: Node) -> bool:
    """Whether it has names of its own, or is a call that `render` gives a line and a comment."""
    return any(
        part.kind == "lambda" or part.label == "broadcast_shapes"
        for part in value.walk()
    )


def _is_plain(item: Statement) -> TypeGuard[Assign]:
    return isinstance(item, Assign) and item.target.kind == "name" and not item.operator


def _assigned(lines: Iterable[Statement]) -> list[str]:
    """The names that plain assignments give, as often as they do."""
    return [item.target.label for item in assignments(lines) if _is_plain(item)]


def _names(lines: Iterable[Statement]) -> frozenset[str]:
    """All names that stand in the lines."""
    nodes = (node for item in lines for node in expressions(item))
    return written(*lines).union(*(node.names() for node in nodes))


def _free(lines: Lines) -> frozenset[str]:
    """The names that are read there without being assigned there before."""
    free = frozenset(read.name for read, _ in free_reads(lines))
    return free | (_names(lines) - written(*lines))


def _reads(lines: Iterable[Statement]) -> Iterator[str]:
    """Each name that is read, as often as it is."""
    waiting = [node for item in lines for node in expressions(item)]
    while waiting:
        node = waiting.pop()
        if node.kind == "name":
            yield node.label
        waiting += node.args
