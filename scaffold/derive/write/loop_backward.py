"""The loop of a backward: back over the steps of a loop of the forward, from the cotangents of what that leaves.

In: a `loop_backward`, how its arguments are written, the names of its results. Out: a `loop` node. Invariant: what a step reads of the
forward is what the step of the forward had: its carries are in lists, its parts of tensors are taken again.

The cotangent of a carry is one name that each step assigns anew. The gradient of a part of a tensor goes to a list that is stacked in
the end, that of any other tensor is summed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.autograd_fallback import needs_gradient
from scaffold.derive.backward_program import Line, read_names, surely_written
from scaffold.derive.graph.op import Loop, LoopGradient, LoopPart, LoopResult, Op
from scaffold.derive.graph.shapes import Dim, Shape
from scaffold.derive.write.value_names import STEPS
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    bound,
    opposite_of,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.loop_parsing import LoopNodes
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

Assigns = list[Assign]
ORDER = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}
Gather = Callable[[Node], list[Node]]  # the lines that add a value to a gradient
PUT, ZEROS = "select_scatter", ("new_zeros", "zeros_like")


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
        self.coming = dict(zip(nodes[:start], op.args[:start], strict=True))
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
        gathers = dict[str, Gather]()
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

    def _step(self, gathers: Mapping[str, Gather]) -> Iterator[Node]:
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
                yield from gather(value)

    def _zeros(self, at: int) -> Node:
        """Zeros for a carry whose last value nothing reads: of its size, where that is at hand."""
        listed = self.before.get(self.loop.carries[at])
        if self.starts[at].rule == "zeros":  # a number, where there is no step
            return self._zeros_of_step(at) or self.given[at]
        if listed is None:
            return self._zeros_of_step(at) or self._zeros_like(self.given[at])
        last = self.graph.node("unary", "-", (self.graph.constant("1"),))
        return self._zeros_like(self.graph.node("subscript", "", (listed, last)))

    def _zeros_of_step(self, at: int) -> Node | None:
        """`grad_ys.new_zeros(grad_ys.shape[1:])` for a carry of that shape, the start itself if it is zeros."""
        graph, start = self.graph, self.starts[at]
        for node, op in self.coming.items():
            if start.shape == op.shape:
                return self._zeros_like(node)
            if start.shape.dims is not None and _rest(op.shape) == start.shape.dims:
                shape = graph.node("attribute", "shape", (node,))
                ends = (graph.constant("1"), *(graph.node("absent"),) * 2)
                rest = graph.node("slice", "", ends)
                of = graph.node("subscript", "", (shape, rest))
                return self.nodes.call(graph.node("attribute", ZEROS[0], (node,)), of)
        return None

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

    def _gathering(self, at: int, before: list[Node], after: list[Node]) -> Gather:
        """How the gradient of an argument is put together; it gets lines before the loop and behind it."""
        graph, name, of = self.graph, self.wanted[at], self.given[at]
        carries = len(self.loop.carries)
        if at >= carries + len(self.loop.parts):
            return self._summing(at, before, after)
        several = self._list_for(name, before, graph.node("list"))
        part = self.loop.parts[at - carries]
        listed = several if self._goes_back else self.nodes.from_its_end(several)
        whole = self._torch("stack", listed, graph.constant(str(part.dim)))
        if self._may_have_no_step:
            zeros = self._of_no_step(part, of)
            whole = graph.node("conditional", "", (several, whole, zeros))
        after.append(self.nodes.assign(name, whole))
        return lambda value: [self.nodes.append(several.label, value)]

    def _of_no_step(self, part: LoopPart, of: Node) -> Node:
        """Zeros of the shape of what all steps read of a tensor, where there is no step."""
        graph, whole = self.graph, part.whole.shape
        for node, op in self.coming.items():
            if part.over is None and op.shape == whole:
                return self._zeros_like(node)
            if not part.dim and _rest(op.shape) == _rest(whole) is not None:
                absent = graph.node("absent")
                none = graph.node("slice", "", (absent, graph.constant("0"), absent))
                return graph.node("subscript", "", (node, none))
        read = part.over and graph.node("subscript", "", (of, part.over))
        return self._zeros_like(read or of)

    def _list_for(self, name: str, before: list[Node], start: Node) -> Node:
        """The list in which a gradient is gathered."""
        stem = name.removeprefix("pulled_").removeprefix("grad_")
        stem = stem.removesuffix(STEPS)
        several = self.nodes.own(fresh(f"grads_{stem}", self.taken))
        self.taken.add(several.label)
        before.append(self.nodes.assign(several.label, start))
        return several

    @property
    def _may_have_no_step(self) -> bool:
        """Whether nothing in the forward refuses a loop without a step."""
        carries = len(self.loop.carries)
        return all(
            # What is joined in one way of a choice is there where its cotangent is.
            result.may_be_empty or (result.chosen and at not in self.cotangents)
            for at, result in enumerate(self.loop.collected, carries)
        )

    def _summing(self, at: int, before: list[Node], after: list[Node]) -> Gather:
        """How the gradient of a whole tensor is summed: part by part where each step adds to one part, `x[t + 1]`."""
        graph, name = self.graph, self.wanted[at]
        gradient = self._gradient(self.loop.tensors[at])
        zeros, total = self._zeros_like(self.given[at]), self.nodes.own(name)
        read = gradient in read_names(*self.lines)
        puts = [] if read else self._puts(self._value(gradient))
        dim = _dim_of(puts)
        if dim is None:
            before.append(self.nodes.assign(name, zeros))
            return lambda value: [
                self._added(test, total, way) for test, way in self._ways(value)
            ]
        unbound = graph.node("attribute", "unbind", (zeros,))
        parts = graph.node("starred", "", (self.nodes.call(unbound, dim),))
        rows = self._list_for(name, before, graph.node("list", "", (parts,)))
        whole = self._torch("stack", rows, dim)
        if self._may_have_no_step or any(test for test, _ in puts):
            whole = graph.node("conditional", "", (rows, whole, zeros))
        after.append(self.nodes.assign(name, whole))
        return lambda value: [
            self._added(test, graph.node("subscript", "", (rows, put.at)), put.part)
            for test, put in self._puts(value)
            if put
        ]

    def _value(self, name: str) -> Node:
        (value,) = (x.value for x in self.lines if x.target.label == name)
        return value

    def _puts(self, value: Node) -> list[tuple[Node | None, "_Put | None"]]:
        """The part that each way through a value fills, None for another value."""
        found = list[tuple[Node | None, _Put | None]]()
        for test, way in self._ways(value):
            match way:
                case Node(
                    "call", _, (Node("attribute", put), zeros, *args), ()
                ) if put == PUT and _is_zeros(zeros):
                    found.append((test, _Put(*args)))
                case _:
                    found.append((test, None))
        return found

    def _ways(self, value: Node) -> list[tuple[Node | None, Node]]:
        """The ways through a choice, each with its test, without one that is zero; another value as it is."""
        if value.kind != "conditional":
            return [(None, value)]
        test, *ways = value.args
        tests: tuple[Node | None, ...] = (test, self._otherwise(test))
        pairs = zip(tests, ways, strict=True)
        found = [(test, way) for test, way in pairs if not _is_zeros(way)]
        return found if len(found) < len(ways) else [(None, value)]

    def _otherwise(self, test: Node) -> Node:
        """The opposite of a test: also that of `t < T - 1`, since neither is a nan."""
        if test.kind == "compare" and test.label in ORDER:
            index, size = test.args
            if index is self.nodes.own(self.index) and _is_size(size):
                return self.graph.node("compare", ORDER[test.label], test.args)
        return opposite_of(self.graph, test)

    def _added(self, test: Node | None, total: Node, value: Node) -> Node:
        """`total = total + value`, where the test holds."""
        both = self.graph.node("binary", "+", (total, value))
        line = self.graph.node("assign", "", (total, both))
        return self.graph.node("choice", "", (test, line)) if test else line

    def _zeros_like(self, value: Node) -> Node:
        return self._torch("zeros_like", value)

    def _torch(self, name: str, *args: Node) -> Node:
        callee = self.graph.node("attribute", name, (self.graph.name("torch"),))
        return self.nodes.call(callee, *args)


class _Put(NamedTuple):
    """A tensor that is zero but for one part."""

    part: Node
    dim: Node
    at: Node


def _dim_of(puts: Iterable[tuple[Node | None, _Put | None]]) -> Node | None:
    """The dim of the parts that a gradient of a step fills, if it fills no more than one in any way through it."""
    dims = {put and put.dim for _, put in puts}
    return dims.pop() if len(dims) == 1 else None


def _is_size(value: Node) -> bool:
    """Whether it is made of sizes and integers."""
    match value:
        case Node("constant", number):
            return number.isdecimal()
        case Node("subscript", _, (Node("attribute", "shape"), _)):
            return True
        case Node("binary", "+" | "-" | "*" | "//", parts):
            return all(map(_is_size, parts))
    return False


def _is_zeros(value: Node) -> bool:
    return value.kind == "call" and value.args[0].label in ZEROS


def _rest(shape: Shape) -> tuple[Dim, ...] | None:
    """The dims of a shape without the first one, where that is one dim."""
    return None if not shape.dims or shape.lead == 0 else shape.dims[1:]


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
    return _settled(graph, program, ends, outside)


def _settled(
    graph: Graph, lines: Lines, ends: frozenset[str], outside: frozenset[str]
) -> Lines:
    kept = list[Statement]()
    for item in reversed(lines):
        later = ends | read_names(*kept)
        if isinstance(item, If):
            body, orelse = (
                _settled(graph, way, later, outside) for way in (item.body, item.orelse)
            )
            item = replace(item, body=body, orelse=orelse)
        elif isinstance(item, Assign) and item.value.kind == "loop":
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


def _needed_names(lines: Sequence[Node], wanted: set[str]) -> set[str]:
    """The names of a loop's own that the wanted ones need, and these."""
    needed = set[str]()
    while not wanted <= needed:
        needed |= wanted
        wanted = {
            name
            for line in lines
            if _owners(line) & needed
            for name in _own_names(line)
        }
    return needed


def _needed_lines(graph: Graph, blocks: Sequence[Node], wanted: set[str]) -> list[Node]:
    """The lines of a loop that the wanted names of its own need."""
    needed = _needed_names([line for block in blocks for line in block.args], wanted)

    def needs(line: Node) -> bool:
        # `h = h` is left out.
        return bool(_owners(line) & needed) and line.args[0] is not line.args[1]

    return [
        graph.node("lines", "", tuple(filter(needs, block.args))) for block in blocks
    ]


def _owners(line: Node) -> frozenset[str]:
    """The names that a line of a loop is about: those that it assigns, or the list that it changes."""
    if line.kind == "choice":
        return frozenset().union(*map(_owners, line.args[1:]))
    target, value = line.args
    if target.kind == "subscript":
        return _own_names(target.args[0])
    return _own_names(value.args[0] if target.kind == "absent" else target)


def _own_names(node: Node) -> frozenset[str]:
    return frozenset(item.label for item in node.walk() if item.kind == "own")


def _with_own_names(
    graph: Graph, item: Assign, outside: frozenset[str], later: frozenset[str]
) -> Assign:
    """A loop none of whose names stands for another value that is still read: in it, or `later`."""
    left = {
        own.label: target.label
        for target, own in zip(item.target.args, item.value.args[-1].args, strict=True)
    }
    same = {name for name, target in left.items() if target == name}
    own = _own_names(item.value) - {"range", "reversed"}
    starts = [line.args for line in item.value.args[0].args]
    begun = [value.label for target, value in starts if target.label == value.label]
    reads = _reads(item.value)
    still = later | {name for name in reads if reads.count(name) > begun.count(name)}
    used, change = outside | own, dict[str, Node]()
    for name in sorted((own & outside & still) - same):
        called = left.get(name, name)  # what it is behind the loop
        if called in own or called in reads:
            called = fresh(f"{name}_of_step", used)
        change[name] = graph.node("own", called)
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


# --- Loops in which the gradient of one input alone is gathered only where that input wants one, and no whole tensor for a part.


def guarded_loops(
    spec: OpSpec, graph: Graph, lines: tuple[Line, ...]
) -> tuple[Line, ...]:
    """The lines, in whose loops a line that serves one gradient of several stands under `if ctx.needs_input_grad[0]:`."""
    found = list[Line]()
    for at, line in enumerate(lines):
        item = line.statement
        if isinstance(item, Assign) and item.value.kind == "loop":
            loop = _Gathered(spec, graph, item)
            found += loop.lines(line.serves, _live_after(lines[at + 1 :], line.serves))
        else:
            found.append(line)
    return tuple(found)


def _live_after(
    later: Sequence[Line], gradients: Iterable[str]
) -> dict[str, frozenset[str]]:
    """The names that lines read, before they assign them, where each gradient is wanted."""
    found = dict[str, frozenset[str]]()
    for gradient in gradients:
        live = frozenset({f"grad_{gradient}"})
        for line in reversed(later):
            if gradient in line.serves:  # a line may stand where it serves nothing
                live -= surely_written(line.statement)
                live |= read_names(line.statement)
        found[gradient] = live
    return found


class _Gathered:
    """A loop of a backward, whose lists are put together in lines of their own behind it."""

    def __init__(self, spec: OpSpec, graph: Graph, item: Assign) -> None:
        self.spec, self.graph, self.item = spec, graph, item
        self.nodes = LoopNodes(graph)
        before, self.index, self.steps, body, after, results = item.value.args
        self.before, self.body = before.args, body.args
        # What is made behind the loop of its lists: `grad_x = torch.stack(grads_x)`.
        self.joined = {line.args[0].label: line.args[1] for line in after.args}
        self.results = {
            own.label: target.label
            for target, own in zip(item.target.args, results.args, strict=True)
        }

    def lines(
        self, serves: frozenset[str], live: Mapping[str, frozenset[str]]
    ) -> list[Line]:
        """The loop, and what is made of its lists."""
        served = {
            own: frozenset(name for name in serves if target in live[name])
            for own, target in self.results.items()
        }
        for own, target in self.results.items():
            if own != target and served[own] != serves:
                self.joined.setdefault(own, self.nodes.own(own))
        body = self._guarded(served) if len(serves) > 1 else self.body
        loop = replace(self.item, value=self._loop(body), target=self._targets())
        return [
            Line(loop, serves),
            *(
                Line(Assign(self.graph.name(self.results[own]), value), served[own])
                for own, value in self._outside()
                if served[own]  # what the loop leaves may serve no gradient
            ),
        ]

    @property
    def _left(self) -> list[str]:
        """The names of its own that the loop leaves."""
        several = (
            sorted(_own_names(self.joined[own])) if own in self.joined else [own]
            for own in self.results
        )
        return list(dict.fromkeys(name for names in several for name in names))

    def _targets(self) -> Node:
        names = (
            name if name in self.joined else self.results.get(name, name)
            for name in self._left
        )
        return self.graph.node("tuple", "", tuple(map(self.graph.name, names)))

    def _loop(self, body: Sequence[Node]) -> Node:
        blocks = (
            self.graph.node("lines", "", tuple(block))
            for block in (self.before, body, ())
        )
        before, body_, after = blocks
        results = self.graph.node("tuple", "", tuple(map(self.nodes.own, self._left)))
        args = (before, self.index, self.steps, body_, after, results)
        return self.graph.node("loop", "", args)

    def _outside(self) -> Iterator[tuple[str, Node]]:
        """What is made of the lists, behind the loop."""
        for own, value in self.joined.items():
            yield own, self.graph.rewrite(
                value,
                lambda node: (
                    self.graph.name(node.label) if node.kind == "own" else None
                ),
            )

    def _guarded(self, served: Mapping[str, frozenset[str]]) -> list[Node]:
        """The lines of a step, each that serves one gradient under its test."""
        lines = (*self.before, *self.body)
        needed = {
            own: _needed_names(
                lines, {*_own_names(self.joined[own])} if own in self.joined else {own}
            )
            for own in served
        }
        found = list[Node]()
        for line in self.body:
            owners = _owners(line)
            serves = frozenset[str]().union(
                *(served[own] for own, names in needed.items() if owners & names)
            )
            if len(serves) == 1:
                (name,) = serves
                test = needs_gradient(self.spec, self.graph, name)
                line = self._under(test, line)
            found.append(line)
        return list(self._merged(found))

    def _merged(self, lines: Iterable[Node]) -> Iterator[Node]:
        """Neighbours under one test as one choice."""
        for _, group in groupby(
            lines, lambda line: line.kind == "choice" and line.args[0]
        ):
            first, *others = group
            if first.kind == "choice" and others:
                under = (line for item in others for line in item.args[1:])
                yield self.graph.node("choice", "", (*first.args, *under))
            else:
                yield from (first, *others)

    def _under(self, test: Node, line: Node) -> Node:
        if line.kind != "choice":
            return self.graph.node("choice", "", (test, line))
        inner, *lines = line.args
        both = self.graph.node("boolean", "and", (test, inner))
        return self.graph.node("choice", "", (both, *lines))
