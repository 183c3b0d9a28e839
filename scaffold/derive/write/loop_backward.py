"""The loop of a backward: back over the steps of a loop of the forward, from the cotangents of what that leaves.

In: a `loop_backward`, how its arguments are written, the names of its results. Out: a `loop` node. Invariant: what a step reads of the
forward is what the step of the forward had: its carries are in lists, its parts of tensors are taken again.

The cotangent of a carry is one name that each step assigns anew. The gradient of a part of a tensor goes to a list that is stacked in
the end, that of any other tensor is summed.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.backward_program import read_names
from scaffold.derive.graph.op import Loop, LoopGradient, LoopResult, Op
from scaffold.derive.name_collisions import fresh
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Statement,
    bound,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.loop_parsing import LoopNodes

Assigns = list[Assign]


class LoopWriter:
    """Writes one loop of a backward; `wanted` are the names of the gradients of some arguments."""

    def __init__(
        self,
        graph: Graph,
        op: Op,
        node: Callable[[Op], Node],
        wanted: Mapping[int, str],
    ) -> None:
        self.graph, self.wanted = graph, wanted
        self.nodes = LoopNodes(graph)
        data: LoopGradient = op.loop_gradient
        self.loop: Loop = data.of.loop
        nodes = [node(arg) for arg in op.args]
        start, end = len(data.results), len(data.results) + len(self.loop.tensors)
        self.cotangents = dict(zip(data.results, nodes, strict=False))
        self.given, self.starts = nodes[start:end], op.args[start:end]
        self.before = dict(zip(data.before, nodes[end:], strict=True))
        lines = self._chained(self._needed(data))
        self.of_step = self._apart_from_sums(lines)
        for name, other in self.of_step.items():
            lines = self._renamed(lines, name, other)
        self.lines = lines
        self.results = data.step.results
        _, index, self.items, *_ = self.loop.code.args
        self.taken = {*written(*self.lines), *self.wanted.values()}
        self.index = fresh("step", self.taken) if index.label == "_" else index.label
        self.as_it_was = index.label

    def _needed(self, data: LoopGradient) -> Assigns:
        """The lines of a step that serve what is wanted; the carries always are."""
        loop = self.loop
        names = [name for at, name in enumerate(loop.tensors) if at in self.wanted]
        live = frozenset(f"grad_{name}" for name in (*names, *loop.carries))
        lines = without_dead(self.graph, data.step.lines, live, lambda node: False)
        return [item for item in lines if isinstance(item, Assign)]

    def _chained(self, lines: Assigns) -> Assigns:
        """The lines in which the cotangent of a carry has one name throughout, `grad_h`."""
        for name in self.loop.carries:
            coming, going = f"grad_next_{name}", f"grad_{name}"
            first = [at for at, item in enumerate(lines) if coming in _read(item)]
            last = next(at for at, item in enumerate(lines) if going in written(item))
            if first and first[-1] > last:  # another line reads what came in
                before = f"grad_previous_{name}"
                lines = self._renamed(lines, going, before)
                lines.append(Assign(self.graph.name(going), self.graph.name(before)))
            elif len(first) == 1 and first[0] < last:
                total = lines[first[0]].target.label  # `grad_new_h = grad_next_h + ...`
                later = [at for at, item in enumerate(lines) if total in _read(item)]
                own = total.startswith("grad_") and total not in self._ends()
                if own and later and later[-1] <= last:
                    lines = self._renamed(lines, total, going)
            lines = self._renamed(lines, coming, going)
        return lines

    def _apart_from_sums(self, lines: Assigns) -> dict[str, str]:
        """Other names for values of a step that are called as what all steps add to: `grad_h0` is that of `h[0]` and that of an input."""
        carries = len(self.loop.carries)
        sums = {name for at, name in self.wanted.items() if at >= carries}
        named = written(*lines) | {f"grad_{of.element}" for of in self.loop.collected}
        taken, found = named | sums | read_names(*lines), dict[str, str]()
        for name in sorted(named & sums):
            found[name] = fresh(f"step_{name}", taken)
            taken |= {found[name]}
        return found

    def _gradient(self, name: str) -> str:
        """What a step calls the gradient of a tensor."""
        gradient = f"grad_{name}"
        return self.of_step.get(gradient, gradient)

    def _ends(self) -> set[str]:
        return {f"grad_{name}" for name in self.loop.tensors}

    def _renamed(self, lines: Assigns, old: str, new: str) -> Assigns:
        found = rewritten(self.graph, tuple(lines), renaming(self.graph, {old: new}))
        return [item for item in found if isinstance(item, Assign)]

    def code(self) -> Node:
        """The loop, which leaves the wanted gradients in their order."""
        carries = len(self.loop.carries)
        before, after = list[Node](), list[Node]()
        gathers = dict[str, Callable[[Node], Node]]()
        for at, name in enumerate(self.loop.tensors):
            if at < carries:
                start = self.cotangents.get(at) or self._zeros(at)
                before.append(self.nodes.assign(self._gradient(name), start))
            elif at in self.wanted:
                gather = self._gathering(at, before, after)
                gathers[self._gradient(name)] = gather
        left = (
            self._gradient(self.loop.tensors[at]) if at < carries else name
            for at, name in sorted(self.wanted.items())
        )
        first, step, last = (
            self.graph.node("lines", "", tuple(lines))
            for lines in (before, self._step(gathers), after)
        )
        results = self.graph.node("tuple", "", tuple(map(self.nodes.own, left)))
        index = self.nodes.own(self.index)
        args = (first, index, self._backwards(), step, last, results)
        return self.graph.node("loop", "", args)

    def _step(self, gathers: Mapping[str, Callable[[Node], Node]]) -> Iterator[Node]:
        """The lines of one step; those of the gradients in `gathers` add to what is gathered."""
        graph = self.graph
        bound, values = self._values()
        own = {*written(*self.lines), *bound}

        def inside(node: Node) -> Node | None:
            if node.kind != "name":
                return None
            if node.label == self.as_it_was:
                return self.nodes.own(self.index)
            if node.label in values and node.label not in bound:
                return values[node.label]
            return self.nodes.own(node.label) if node.label in own else None

        for name in bound:
            yield self.nodes.assign(name, values[name])
        for position, item in enumerate(self.lines):
            value, name = graph.rewrite(item.value, inside), item.target.label
            gather = gathers.get(name)
            if gather is None or name in read_names(*self.lines[position + 1 :]):
                target = graph.rewrite(item.target, inside)
                if value is not target:
                    yield graph.node("assign", "", (target, value))
                value = target
            if gather is not None:
                yield gather(value)

    def _zeros(self, at: int) -> Node:
        """Zeros for a carry whose last value nothing reads: of its size, where that is at hand."""
        listed = self.before.get(self.loop.carries[at])
        if listed is None:
            zeros = self.starts[at].rule == "zeros"
            return self.given[at] if zeros else self._zeros_like(self.given[at])
        last = self.graph.node("unary", "-", (self.graph.constant("1"),))
        return self._zeros_like(self.graph.node("subscript", "", (listed, last)))

    def _backwards(self) -> Node:
        """The steps from the last one to the first."""
        if self._goes_back:
            return self.items.args[1]
        return self.nodes.call(self.nodes.own("reversed"), self.items)

    @property
    def _goes_back(self) -> bool:
        return self.items.args[0].label == "reversed"

    def _values(self) -> tuple[list[str], dict[str, Node]]:
        """What the lines read from outside of the step, and which of it has a line since several read it."""
        loop, carries = self.loop, len(self.loop.carries)
        values = dict[str, Node]()
        plain = set[str]()
        for at, name in enumerate(loop.tensors):
            if at < carries:
                if name in self.before:
                    values[name] = self._at_step(name, late=False)
            elif at < carries + len(loop.parts):
                node = loop.parts[at - carries].node
                values[name] = self._part(node, self.given[at])
            else:
                values[name] = self.given[at]
                plain.add(name)
        for name, of in self.results:
            values[name] = self._at_step(of.removeprefix("next_"), late=True)
        for at, result in enumerate(loop.collected, carries):
            if at in self.cotangents:
                part = self._taken(self.cotangents[at], result)
                values[self._gradient(result.element)] = part
        written_here = written(*self.lines)
        uses = Counter(name for item in self.lines for name in _reads(item.value))
        bound = [
            name
            for name in values
            if uses[name] > 1 and name not in plain | written_here
        ]
        return bound, values

    def _at_step(self, carry: str, late: bool) -> Node:
        """What a carry was before a step, or behind it: `hs[t]`, `hs[t + 1]`."""
        listed = self.before[carry]
        if self._goes_back:
            listed, late = self.nodes.from_its_end(listed), not late
        return self.graph.node("subscript", "", (listed, self._since_start(int(late))))

    def _since_start(self, more: int) -> Node:
        """How many steps the index is behind the first one, and more: `t - 1 + more` of `range(1, T)`."""
        graph, index = self.graph, self.nodes.own(self.index)
        ends = (self.items.args[1] if self._goes_back else self.items).args
        start = ends[1] if len(ends) == 3 else graph.constant("0")
        if not start.label.isdecimal():
            since = graph.node("binary", "-", (index, start))
            more_ = graph.constant(str(more))
            return graph.node("binary", "+", (since, more_)) if more else since
        shift = more - int(start.label)
        if not shift:
            return index
        sign = "+" if shift > 0 else "-"
        return graph.node("binary", sign, (index, graph.constant(str(abs(shift)))))

    def _part(self, part: Node, whole: Node) -> Node:
        """`x[:, t]` of the tensor as it is written here."""
        index = self.graph.rewrite(
            part.args[1],
            lambda node: (
                self.nodes.own(self.index)
                if node.kind == "name" and node.label == self.as_it_was
                else None
            ),
        )
        return self.graph.node("subscript", "", (whole, index))

    def _taken(self, whole: Node, of: LoopResult) -> Node:
        """The part of a cotangent that belongs to a step."""
        graph, dim = self.graph, of.dim
        index = self._since_start(0 if of.flipped else of.firsts)
        absent = graph.node("absent")
        full = graph.node("slice", "", (absent,) * 3)
        parts: tuple[Node, ...] = (graph.constant("..."), index)
        if dim < 0:
            parts = (*parts, *(full,) * (-1 - dim))
        else:
            parts = (*(full,) * dim, index)
        at = parts[0] if len(parts) == 1 else graph.node("tuple", "", parts)
        return graph.node("subscript", "", (whole, at))

    def _gathering(
        self, at: int, before: list[Node], after: list[Node]
    ) -> Callable[[Node], Node]:
        """How the gradient of an argument is put together; it gets lines before the loop and behind it."""
        graph, name, of = self.graph, self.wanted[at], self.given[at]
        carries = len(self.loop.carries)
        if at >= carries + len(self.loop.parts):
            before.append(self.nodes.assign(name, self._zeros_like(of)))
            total = self.nodes.own(name)
            return lambda value: self.nodes.assign(
                name, graph.node("binary", "+", (total, value))
            )
        stem = name.removeprefix("pulled_").removeprefix("grad_")
        several = self.nodes.own(fresh(f"grads_{stem}", self.taken))
        self.taken.add(several.label)
        before.append(self.nodes.assign(several.label, graph.node("list")))
        part = self.loop.parts[at - carries]
        listed = several if self._goes_back else self.nodes.from_its_end(several)
        whole = self._torch("stack", listed, graph.constant(str(part.dim)))
        if all(
            result.may_be_empty for result in self.loop.collected
        ):  # no step, and nothing that refuses none
            read = part.over and graph.node("subscript", "", (of, part.over))
            zeros = self._zeros_like(read or of)
            whole = graph.node("conditional", "", (several, whole, zeros))
        after.append(self.nodes.assign(name, whole))
        return lambda value: self.nodes.append(several.label, value)

    def _zeros_like(self, value: Node) -> Node:
        return self._torch("zeros_like", value)

    def _torch(self, name: str, *args: Node) -> Node:
        callee = self.graph.node("attribute", name, (self.graph.name("torch"),))
        return self.nodes.call(callee, *args)


def _read(item: Assign) -> frozenset[str]:
    return item.value.names()


def _reads(node: Node) -> list[str]:
    """The names that an expression reads, as often as it is written."""
    if node.kind == "name":
        return [node.label]
    return [name for arg in node.args for name in _reads(arg)]


# --- Loops in a finished program: without what nothing reads, and with names that nothing else has.


def settled_loops(
    graph: Graph, program: Lines, ends: frozenset[str], taken: frozenset[str]
) -> Lines:
    """The program, each loop of which computes only what is read after it or is one of the `ends`, in names that hide nothing."""
    outside = taken | read_names(*program) | written(*program)
    kept = list[Statement]()
    for item in reversed(program):
        later = ends | read_names(*kept)
        if isinstance(item, Assign) and item.value.kind == "loop":
            if not bound(item.target) & later:
                continue  # what read it went with another line
            item = _without_unread(graph, item, later)
            if item.value.kind == "loop":
                item = _with_own_names(graph, item, outside, later)
        if kept and _begins(item, kept[-1], ends | read_names(*kept[:-1])):
            kept[-1] = _begun(graph, item, kept[-1])
        else:
            kept.append(item)
    return tuple(reversed(kept))


def _without_unread(graph: Graph, item: Assign, live: frozenset[str]) -> Assign:
    """A loop without the results that nothing reads, and without the lines that only they need."""
    before, index, items, body, after, results = item.value.args
    pairs = [
        pair
        for pair in zip(item.target.args, results.args, strict=True)
        if pair[0].label in live
    ]
    wanted = {own.label for _, own in pairs}
    blocks = _needed_lines(graph, (before, body, after), wanted)
    targets, owns = (tuple(each) for each in zip(*pairs, strict=True))
    if not blocks[1].args:  # of `x = x + t` the cotangent of x is what it was
        starts = {line.args[0].label: line.args[1] for line in blocks[0].args}
        values = tuple(starts[own.label] for own in owns)
        if len(pairs) == 1:
            return replace(item, target=targets[0], value=values[0])
        target, value = (graph.node("tuple", "", each) for each in (targets, values))
        return replace(item, target=target, value=value)
    value = graph.node(
        "loop",
        "",
        (blocks[0], index, items, *blocks[1:], graph.node("tuple", "", owns)),
    )
    return replace(item, target=graph.node("tuple", "", targets), value=value)


def _needed_lines(graph: Graph, blocks: Sequence[Node], wanted: set[str]) -> list[Node]:
    """The lines of a loop that the wanted names of its own need."""
    lines = [line for block in blocks for line in block.args]
    needed = set[str]()
    while not wanted <= needed:
        needed |= wanted
        wanted = {
            name
            for line in lines
            if _owners(line) & needed
            for name in _own_names(line)
        }

    def needs(line: Node) -> bool:
        target, value = line.args
        return bool(_owners(line) & needed) and target is not value  # of `h = h`

    return [
        graph.node("lines", "", tuple(filter(needs, block.args))) for block in blocks
    ]


def _owners(line: Node) -> frozenset[str]:
    """The names that a line of a loop is about: those that it assigns, or the list that it appends to."""
    target, value = line.args
    return _own_names(value.args[0] if target.kind == "absent" else target)


def _own_names(node: Node) -> frozenset[str]:
    return frozenset(item.label for item in node.walk() if item.kind == "own")


def _with_own_names(
    graph: Graph, item: Assign, outside: frozenset[str], later: frozenset[str]
) -> Assign:
    """A loop none of whose names stands for another value that is still read: in it, or `later`."""
    pairs = zip(item.target.args, item.value.args[-1].args, strict=True)
    same = {own.label for target, own in pairs if target.label == own.label}
    own = _own_names(item.value) - {"range", "reversed"}
    starts = [line.args for line in item.value.args[0].args]
    begun = [value.label for target, value in starts if target.label == value.label]
    reads = _reads(item.value)
    still = later | {name for name in reads if reads.count(name) > begun.count(name)}
    used, change = outside | own, dict[str, Node]()
    for name in sorted((own & outside & still) - same):
        change[name] = graph.node("own", fresh(f"{name}_of_step", used))
        used |= {change[name].label}
    value = graph.rewrite(
        item.value, lambda node: change.get(node.label) if node.kind == "own" else None
    )
    return replace(item, value=value)


def _begins(item: Statement, loop: Statement, later: frozenset[str]) -> bool:
    """Whether a line only says what a loop right after it begins with, and reads no name that the loop has begun with by then."""
    if not isinstance(item, Assign) or not isinstance(loop, Assign):
        return False
    if loop.value.kind != "loop" or item.operator:
        return False
    pairs = _pairs(item)
    reads = _reads(loop.value)
    starts = [line.args[1].label for line in loop.value.args[0].args]
    values, begun = dict(pairs), set[str]()
    for target, value in (line.args for line in loop.value.args[0].args):
        if begun & values.get(value, value).names():
            return False
        begun.add(target.label)
    return all(
        name.kind == "name"
        and reads.count(name.label) == starts.count(name.label) == 1
        and name.label not in later
        for name, _ in pairs
    )


def _pairs(item: Assign) -> list[tuple[Node, Node]]:
    """Each target of an assignment with its value: of `h, c = h0, c0` two."""
    if item.target.kind == item.value.kind == "tuple":
        return list(zip(item.target.args, item.value.args, strict=True))
    return [(item.target, item.value)]


def _begun(graph: Graph, item: Statement, loop: Statement) -> Assign:
    """The loop with the values in the place of their names."""
    assert isinstance(item, Assign) and isinstance(loop, Assign)
    values = dict(_pairs(item))
    return replace(loop, value=graph.rewrite(loop.value, values.get))
