"""A loop of the forward as one op: what its step takes and computes, and which shapes its results have.

In: the `loop` node of an assignment, the op of each name. Out: the ops of what the loop leaves. Invariant: its step is an op of its own,
derived by the same passes; where anything of it is not understood the whole loop is not. `formula/loop_parsing.py` reads the text into that node,
and `write/loop_backward.py` writes the loop of the backward.

A step takes the carries, the parts of tensors at its index (`x[:, t]`, where the loop goes over all of that dim), all other tensors that
it reads, and Python values. The parts are told apart since each step gives the gradient of its own part alone.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.analysis.metadata import reads
from scaffold.derive.analysis.value_kinds import functions_of_numbers, kinds_of_inputs
from scaffold.derive.autocast import autocast_of
from scaffold.derive.forward.outputs import cloned
from scaffold.derive.graph import sizes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import given, shape_or_scalar
from scaffold.derive.graph.op import (
    Expression,
    Kind,
    Loop,
    LoopPart,
    LoopResult,
    OfShape,
    Op,
    Position,
    StepGradient,
    ValueOf,
    literal,
)
from scaffold.derive.graph.shapes import Dim, NamedSize, OrScalar, Shape, is_lead
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Node,
    Statement,
    assignments,
    expressions,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import Attribute, Input, OpSpec, Output, TensorInput
from scaffold.spec.op_spec import DType

DTYPES: Mapping[str, DType] = {"real": "float", "complex": "complex"}
DTYPES = {**DTYPES, "int": "int", "bool": "bool"}


class Step(NamedTuple):
    """A step that was derived: the ops of its results, and the lines of its gradients."""

    results: tuple[Op, ...]
    gradient: Callable[[], StepGradient]


# What derives the step of a loop: the pipeline, which is above this module.
DeriveStep = Callable[[OpSpec, Mapping[str, Shape]], Step]


class _Collected(NamedTuple):
    """What a loop collects."""

    container: str
    element: Node  # what a step adds
    join: Node
    buffer: Node | None  # what the forward writes the parts into
    chosen: bool  # whether they are joined in one way of a choice alone
    firsts: tuple[Node, ...]  # what is there before the first step
    flat: (
        bool  # whether the parts are put one after another, so that they need one shape
    )


class _Code(NamedTuple):
    """A `loop` node, taken apart; names of the loop are names again."""

    carries: tuple[tuple[str, Node], ...]  # with what each is before the loop
    at: str  # the name of the index
    stop: Node
    start: int | None  # None for what only a call tells
    goes_back: bool
    lines: tuple[Assign, ...]
    collected: tuple[_Collected, ...]
    results: tuple[str, ...]


class LoopLowering:
    """Makes the ops of one loop."""

    def __init__(
        self,
        spec: OpSpec,
        applier: Applier,
        env: Mapping[str, Op],
        value: Callable[[Node], Op],
        derive_step: DeriveStep,
    ) -> None:
        self.spec, self.env, self.value = spec, env, value
        self.applier, self.program = applier, applier.program
        self.graph: Graph = self.program.graph
        self.derive_step = derive_step

    def results(self, loop: Node, unsure: Collection[int]) -> tuple[Op, ...]:
        """The op of each result of a loop; those at the `unsure` places may be the number that they begin with, if no step runs."""
        code = self._with_known_length(_code(self.graph, loop))
        carries = {name: self._carry(start) for name, start in code.carries}
        own = {code.at, *carries, *written(*code.lines)}
        parts, code = self._with_parts(code, own)
        read = frozenset().union(
            *(item.value.names() for item in code.lines),
            *(part.element.names() for part in code.collected),
        )
        outer = {name: op for name, op in self.env.items() if name in read - own}
        tensors = {name: op for name, op in outer.items() if self._is_plain_tensor(op)}
        statics = {name: op for name, op in outer.items() if name not in tensors}
        taken = _Step(self.spec, self.graph, code, carries, parts, tensors, statics)
        shapes, step = self._steady(taken)
        numbers = {name for name, op in carries.items() if op.rule == "number"}
        unread = _unread_numbers(taken, numbers)
        carries = {
            name: self._started(op, Shape(()) if name in unread else shapes.get(name))
            for name, op in carries.items()
        }
        args = (
            *carries.values(),
            *(part.read for part in parts.values()),
            *tensors.values(),
            *(self._carry(first) for part in code.collected for first in part.firsts),
        )
        data = Loop(
            loop,
            tuple(carries),
            tuple(LoopPart(name, *part[1:]) for name, part in parts.items()),
            tuple(tensors),
            tuple(self._collected(taken)),
            lambda wanted: self._gradient(
                self.derive_step(taken.spec(wanted), shapes).gradient(), code, numbers
            ),
        )
        active = any(arg.active for arg in args)
        group = self.program.op("loop", args, data, kind="group", active=active)
        return tuple(self._results(taken, group, step, shapes, unsure))

    def _gradient(
        self, step: StepGradient, code: _Code, numbers: Collection[str]
    ) -> StepGradient:
        """That of a step, in which the gradient of what is a number at first has the shape and the dtype of what the step makes of it."""

        def made(node: Node) -> Node | None:
            match node:
                case Node("call", _, (Node(_, "zeros_like"), Node("name", name))) if (
                    name in numbers
                ):
                    coming = self.graph.name(f"grad_next_{name}")
                    return self.graph.node("call", "", (node.args[0], coming))
                case Node("attribute", "dtype", (Node("name", name),)) if (
                    name in numbers
                ):
                    coming = self.graph.name(f"grad_next_{name}")
                    return self.graph.node("attribute", "dtype", (coming,))
                case Node(
                    "call",
                    _,
                    (
                        Node("attribute", "to", (Node("name", coming) as same,)),
                        Node("attribute", "dtype", (Node("name", name),)),
                    ),
                ) if (
                    name in numbers and coming == f"grad_next_{name}"
                ):
                    return same
            return None

        lines = tuple(
            replace(line, value=self.graph.rewrite(line.value, made))
            for line in step.lines
        )
        before, after = kinds_of_inputs(self.spec), kinds_of_inputs(self.spec)
        for kinds in (before, after):
            kinds.numbers.update(numbers)
        left = {f"next_{name}" for name in after.after(code.lines).numbers}
        before.numbers |= {name for name, result in step.results if result in left}
        for _ in functions_of_numbers(before, code.lines, lines):
            raise UnsupportedError("a loop carries what is no tensor")
        read = frozenset().union(*(line.value.names() for line in lines))
        return step._replace(lines=lines, reads=step.reads - ({*numbers} - read))

    def _with_known_length(self, code: _Code) -> _Code:
        """That of a loop over a zip of tensors of the same length: that of the first of them."""
        match code.stop:
            case Node("call", _, (Node("name", "min"), first, *others)):
                length = self._length(first)
                same = all(self._length(item) == length for item in others)
                return code._replace(stop=first) if same and length else code
        return code

    def _length(self, size: Node) -> Dim | None:
        """The size that `x.shape[1]` is, where it is known."""
        return self.program.size_of(self.program.value_of(self.value(size)))

    def _collected(self, taken: "_Step") -> Iterator[LoopResult]:
        for name, part in zip(taken.elements, taken.code.collected, strict=True):
            yield LoopResult(
                name,
                self._dim(part.join, taken.code),
                len(part.firsts),
                taken.code.goes_back,
                may_be_empty=bool(part.firsts) or part.buffer is not None,
                chosen=part.chosen,
            )

    def _carry(self, start: Node) -> Op:
        found = self.value(start)
        if type(literal(found)) in (int, float):
            return self.program.op("number", (found,), kind="real", shape=Shape(()))
        if found.kind not in ("real", "complex") or not self._is_plain_tensor(found):
            raise UnsupportedError("a loop carries what is no tensor")
        return found

    def _started(self, start: Op, shape: Shape | None) -> Op:
        """What a carry is before the first step: a number, `h = 0`, stands for a tensor of the shape that a step makes of it."""
        if start.rule != "number":
            return start
        like = next(
            (op for op in self.env.values() if op.kind == "real" and op.is_tensor), None
        )
        if shape is None or like is None:
            raise UnsupportedError("a loop carries what is no tensor")
        return self.program.op(
            "zeros", (like,), OfShape(shape), kind="real", shape=shape
        )

    def _is_plain_tensor(self, op: Op) -> bool:
        several = op.kind == "group" or op.rule == "list"
        if several or literal(given(self.program, op)) is not True:
            raise UnsupportedError("a loop reads several tensors at once, or none")
        return op.is_tensor and op.rule != "const"

    def _with_parts(
        self, code: _Code, own: set[str]
    ) -> tuple[dict[str, "_Part"], _Code]:
        """The parts of tensors at the index of the loop, and the code over names of theirs."""
        parts: dict[Node, tuple[str, _Part]] = {}
        taken = {*self.env, *own}

        def read(node: Node, sure: bool = True) -> Node | None:
            node, rest = self._taken_apart(node, code)
            if node not in parts:
                found = self._part(node, code, own)
                if found is None or not sure and found.over is not None:
                    return None
                called = fresh(f"{node.args[0].label}_{_letter(code.at)}", taken)
                taken.add(called)
                parts[node] = called, found
            name = self.graph.name(parts[node][0])
            return self.graph.node("subscript", "", (name, rest)) if rest else name

        part = _in_every_step(self.graph, read)
        rest = list[Assign]()
        for item in code.lines:
            found = self._part(item.value, code, own) if _is_only(item, code) else None
            if found is not None and item.value not in parts:
                parts[item.value] = item.target.label, found  # the user's own name
            else:
                rest.append(replace(item, value=self.graph.rewrite(item.value, part)))
        collected = tuple(
            item._replace(element=self.graph.rewrite(item.element, part))
            for item in code.collected
        )
        return dict(parts.values()), code._replace(
            lines=tuple(rest), collected=collected
        )

    def _taken_apart(self, node: Node, code: _Code) -> tuple[Node, Node | None]:
        """`x[:, t, :, None]` as `x[:, t]`, and the index `:, :, None` of that; another expression as it is."""
        match node:
            case Node("subscript", _, (Node("name", name) as whole, index)):
                pass
            case _:
                return node, None
        parts = index.args if index.kind == "tuple" else (index,)
        op = self.env.get(name)
        places = [
            k for k, part in enumerate(parts) if _shift(part, code.at) is not None
        ]
        if len(places) != 1 or op is None:
            return node, None
        full, (at,) = self._full(), places
        above, rest = parts[:at], parts[at + 1 :]
        rank = op.shape.rank
        if len(above) == 1 and above[0].label == "..." and rank is not None:
            if not all(part.kind == "slice" for part in rest):
                return node, None
            above = (full,) * (rank - 1 - len(rest))
        if not all(part is full for part in above):
            return node, None
        first = (*above, parts[at])
        index = first[0] if len(first) == 1 else self.graph.node("tuple", "", first)
        found = self.graph.node("subscript", "", (whole, index))
        if all(part is full for part in rest):
            return found, None
        return found, self.graph.node("tuple", "", (*above, *rest))

    def _full(self) -> Node:
        return self.graph.node("slice", "", (self.graph.node("absent"),) * 3)

    def _part(self, node: Node, code: _Code, own: set[str]) -> "_Part | None":
        """`x[:, t - 1]` of a tensor from outside, which no step makes another one."""
        match node:
            case Node("subscript", _, (Node("name", name) as of, index)) if (
                name in self.env and name not in own
            ):
                whole, place = self.env[name], _place(index, code.at)
            case _:
                return None
        if place is None or not whole.is_tensor or code.start is None:
            return None
        dim, shift = place
        first = code.start + shift
        if first < 0 or whole.shape.rank is not None and whole.shape.rank <= dim:
            return None
        if first == shift == 0 and self._is_length(whole.shape, dim, code.stop):
            return _Part(whole, node, dim, whole, None)
        ends = self._ends(
            first, shift, self._is_length(whole.shape, dim, code.stop), code.stop
        )
        parts = (*(self._full(),) * dim, self.graph.node("slice", "", ends))
        over = parts[0] if not dim else self.graph.node("tuple", "", parts)
        read = self.value(self.graph.node("subscript", "", (of, over)))
        return _Part(read, node, dim, whole, over)

    def _ends(
        self, first: int, shift: int, whole: bool, stop: Node
    ) -> tuple[Node, ...]:
        """The ends of the slice that all steps read: `1:`, `:-1`."""
        graph, absent = self.graph, self.graph.node("absent")
        start = graph.constant(str(first)) if first else absent
        if whole and shift == 0:
            return start, absent, absent
        amount = graph.constant(str(abs(shift)))
        if whole and shift < 0:
            return start, graph.node("unary", "-", (amount,)), absent
        if shift:
            stop = graph.node("binary", "+" if shift > 0 else "-", (stop, amount))
        return start, stop, absent

    def _is_length(self, shape: Shape, dim: int, stop: Node) -> bool:
        size = self.program.value_of(self.value(stop))
        if shape.dims is not None:
            if any(map(is_lead, shape.dims[: dim + 1])) or dim >= len(shape.dims):
                return False
            return self.program.size_of(size) == shape.dims[dim]
        return (
            size.rule == "size"
            and isinstance(size.data, OfShape)
            and size.asked == shape
            and literal(size.args[0]) == dim
        )

    def _steady(self, taken: "_Step") -> tuple[dict[str, Shape], Step]:
        """The step, and the shapes of what it takes: those that are the same in every step."""
        if not taken.outputs or taken.has_name_twice():
            raise UnsupportedError("a loop leaves nothing, or has a name twice")
        shapes = taken.shapes()
        wanted = frozenset(taken.elements)
        while True:
            step = self.derive_step(taken.spec(wanted), shapes)
            changing = [
                name
                for name, result in zip(taken.carries, step.results, strict=False)
                if name in shapes and result.shape != shapes[name]
            ]
            if not changing:
                break
            grown = {
                name: result.shape
                for name, result in zip(taken.carries, step.results, strict=False)
                if name in changing
                and taken.carries[name].rule == "number"
                and shapes[name].dims == ()
                and _is_told(result.shape)
            }
            if grown:  # a number is broadcast
                shapes |= grown
                continue
            # What another carry makes of these may have another shape too.
            shapes = {
                name: shape for name, shape in shapes.items() if name not in changing
            }
        pairs = zip(taken.carries.values(), step.results, strict=False)
        if any(start.kind != result.kind for start, result in pairs):
            raise UnsupportedError("a loop carries tensors of several kinds")
        return shapes, step

    def _shape_outside(self, shape: Shape, taken: "_Step") -> Shape:
        """A shape of the step where its Python values are the sizes of the forward: `y.view(B, H)`."""
        if shape.dims is None:
            return shape
        return Shape(tuple(self._size_outside(dim, taken) for dim in shape.dims))

    def _size_outside(self, dim: Dim, taken: "_Step") -> Dim:
        match dim:
            case ValueOf(Op(data=Expression(Node("name", name)))) if (
                name in taken.statics
            ):
                value = self.program.value_of(taken.statics[name])
                return self.program.size_of(value)
        return dim

    def _dim(self, join: Node, code: _Code) -> int:
        """The dim along which a loop stacks what it collects."""
        _, listed, *rest = join.args
        dim = rest[0] if rest else self.graph.constant("0")
        number = literal(self.value(dim))
        # What is collected lies in the order of the index, whichever way the loop goes.
        flips = listed.kind == "subscript"
        if flips != code.goes_back or not isinstance(number, int):
            raise UnsupportedError("a loop joins what it collects in another way")
        if code.start is None:
            raise UnsupportedError("a loop begins where only a call tells")
        return number

    def _results(
        self,
        taken: "_Step",
        group: Op,
        step: Step,
        shapes: Mapping[str, Shape],
        unsure: Collection[int],
    ) -> Iterator[Op]:
        code, carries = taken.code, taken.carries
        count = len(carries)
        stop = self.program.size_of(self.value(code.stop))
        length = sizes.minus(stop, code.start or 0)
        sure = isinstance(length, int) and length > 0
        results = group.loop.collected
        sure |= not all(part.may_be_empty or part.chosen for part in results)
        starts = enumerate(carries.values())
        numbers = {at for at, start in starts if start.rule == "number"}
        sure |= not numbers <= {*unsure}
        for at, (name, start) in enumerate(carries.items()):
            shape = shapes.get(name)
            if at in numbers and shape and at in unsure and not sure:
                shape = shape_or_scalar(shape, start)
            yield self._item(group, at, start.kind, shape, active=True)
        for at, element in enumerate(step.results[count:]):
            _, dim, more, *_ = group.loop.collected[at]
            inner = self._shape_outside(element.shape, taken)
            if code.collected[at].flat and not _is_steady(element.shape, shapes):
                raise UnsupportedError("a loop joins parts of several sizes")
            self._check_buffer(
                code.collected[at].buffer, element.kind, inner, dim, code
            )
            shape = _with(inner, dim, sizes.plus(length, more))
            if more and not self._has_each_step(code):
                shape = None
            parts = (element, *map(self.value, code.collected[at].firsts))
            active = any(part.active for part in parts)
            yield self._item(group, count + at, element.kind, shape, active)
        for at, name in enumerate(carries):
            yield self._item(group, len(step.results) + at, "real", None, active=False)

    def _has_each_step(self, code: _Code) -> bool:
        """Whether the steps are as many as the ends of the loop are apart, which `range(2, 1)` has not."""
        size = self.program.size_of(self.value(code.stop))
        if isinstance(size, int):
            return code.start is not None and size >= code.start
        if not isinstance(size, NamedSize):
            return False
        return code.start == 0 or code.start == 1 and self._has_one(size, code)

    def _has_one(self, size: NamedSize, code: _Code) -> bool:
        """Whether a size is one or more: what the loop begins with was taken from that dim, `h = x[:, 0]`."""
        firsts = (first for part in code.collected for first in part.firsts)
        return any(
            op.facts.shape == "selected"
            and size in (op.args[0].shape.dims or ())
            and size not in (op.shape.dims or (size,))
            for first in firsts
            for op in self.value(first).walk()
        )

    def _check_buffer(
        self, buffer: Node | None, kind: Kind, shape: Shape, dim: int, code: _Code
    ) -> None:
        """Refuse what writes into a part of a tensor, or spreads what it writes there."""
        if buffer is None:
            return
        whole = self.value(buffer)
        same = shape == _without(whole.shape, dim) and kind == whole.kind
        if not same or code.start or not self._is_length(whole.shape, dim, code.stop):
            raise UnsupportedError("a loop writes into a part of a tensor")

    def _item(
        self, group: Op, at: int, kind: Kind, shape: Shape | None, active: bool
    ) -> Op:
        return self.program.op(
            "item",
            (group,),
            Position(at),
            kind=kind,
            shape=shape,
            active=active and group.active,
        )


class _Part(NamedTuple):
    read: Op  # what all steps read, part by part
    node: Node
    dim: int
    whole: Op
    over: Node | None

    @property
    def shape(self) -> Shape | None:
        """That of one part."""
        return _without(self.read.shape, self.dim)


class _Step(NamedTuple):
    """The step of a loop, as an op."""

    of: OpSpec
    graph: Graph
    code: _Code
    carries: Mapping[str, Op]
    parts: Mapping[str, _Part]
    tensors: Mapping[str, Op]
    statics: Mapping[str, Op]

    @property
    def taken(self) -> frozenset[str]:
        """The names of what a step takes."""
        return frozenset((*self.carries, *self.parts, *self.tensors, *self.statics))

    @property
    def elements(self) -> tuple[str, ...]:
        """What the parts of what is collected are called."""
        letter = _letter(self.code.at)
        several = (
            part.buffer.label if part.buffer else part.container.removesuffix("s")
            for part in self.code.collected
        )
        found = list[str]()
        for name in several:
            found.append(fresh(f"{name}_{letter}", {*self.taken, *found}))
        return tuple(found)

    @property
    def outputs(self) -> tuple[str, ...]:
        return (*(f"next_{name}" for name in self.carries), *self.elements)

    def has_name_twice(self) -> bool:
        """Whether a name of the step is one of its gradients or results too."""
        gradients = {f"grad_{name}" for name in (*self.taken, *self.outputs)}
        return not self.taken.isdisjoint(gradients.union(self.outputs))

    def shapes(self) -> dict[str, Shape]:
        """The shapes of tensors, by name."""
        shapes = {
            **{name: op.shape for name, op in self.carries.items()},
            **{name: part.shape for name, part in self.parts.items()},
            **{name: op.shape for name, op in self.tensors.items()},
        }
        return {
            name: shape for name, shape in shapes.items() if shape and _is_told(shape)
        }

    def spec(self, wanted: frozenset[str]) -> OpSpec:
        """The op, of which the carries and those results are wanted."""
        return replace(
            self.of,
            name=f"{self.of.name}_step",
            class_name=f"{self.of.class_name}Step",
            inputs=self._inputs(),
            outputs=(
                *(Output(f"next_{name}") for name in self.carries),
                *(Output(name) for name in self.elements if name in wanted),
            ),
            forward=self._forward(wanted),
            save_policy="recompute",
            style="setup-context",
            style_is_free=False,
            require=(),
            dirty=(),
            conventional=(),
            module=None,
            test=False,
            forward_ad=False,
            double_backward=False,
            shape_checks=False,
            # The region is that of the whole backward: a step makes the casts in it.
            amp="region" if autocast_of(self.of).amp == "region" else "off",
        )

    def _inputs(self) -> tuple[Input, ...]:
        """What a step takes; the carries last, so that their gradients are assigned after all that reads what came in."""
        pairs = [(name, part.read) for name, part in self.parts.items()]
        pairs += self.tensors.items()
        known = {item.name: item for item in self.of.attributes}
        values = [line.value for line in self.code.lines]
        values += [part.element for part in self.code.collected]
        found = (read for value in values for read in reads(value))
        read = {item.name for item in found if item.element or not item.facets}
        return (
            *(
                _tensor(name, op, const=not op.active or name not in read)
                for name, op in pairs
            ),
            *(known.get(name) or Attribute(name, "float") for name in self.statics),
            Attribute(self.code.at, "int"),
            *(_tensor(name, op, const=False) for name, op in self.carries.items()),
        )

    def _forward(self, wanted: frozenset[str]) -> Formula:
        graph, code = self.graph, self.code
        results = [graph.name(name) for name in self.carries]
        for name, part in zip(self.elements, code.collected, strict=True):
            if name in wanted:  # a copy, which the backward cannot read
                results.append(cloned(graph, part.element))
        value = graph.node("tuple", "", tuple(results))
        assert self.of.forward is not None
        place = self.of.forward.location
        value = value if len(results) > 1 else results[0]
        return Formula(code.lines, value, "", place, graph=graph)


def _tensor(name: str, op: Op, const: bool) -> TensorInput:
    return TensorInput(name, None, DTYPES[op.kind], const=const)


def lines_of_step(
    graph: Graph, statements: Iterable[Statement]
) -> tuple[Assign, ...] | None:
    """The statements with `a = x if test else y` for a choice; None where a way through it assigns other names than the other.

    What serves one way alone is computed in both, where no step refuses it.
    """
    found, statements = list[Assign](), tuple(statements)
    times = Counter(name for item in statements for name in written(item))
    for item in statements:
        if isinstance(item, Assign):
            found.append(item)
            continue
        one_way = written(*item.body) ^ written(*item.orelse)
        alone = {name for name in one_way if times[name] == 1}
        if alone and _never_fails(item, alone):
            for way in (item.body, item.orelse):
                found += (line for line in assignments(way) if _is_of(line, alone))
            body, orelse = (
                tuple(line for line in way if not _is_of(line, alone))
                for way in (item.body, item.orelse)
            )
            if not body and not orelse:
                continue
            item = replace(item, body=body, orelse=orelse)
        ways = [lines_of_step(graph, way) for way in (item.body, item.orelse)]
        ends = [{line.target: line.value for line in way or ()} for way in ways]
        targets = [[line.target for line in way or ()] for way in ways]
        same = targets[0] == targets[1] == [*ends[0]]
        if not same or item.test.names() & written(item):
            return None
        found += (
            Assign(at, graph.node("conditional", "", (item.test, value, ends[1][at])))
            for at, value in ends[0].items()
        )
    return tuple(found)


def _is_of(item: Statement, names: Collection[str]) -> bool:
    """Whether a line gives names of those a value, and no other."""
    return isinstance(item, Assign) and written(item) <= {*names}


def _never_fails(item: If, alone: Collection[str]) -> bool:
    """Whether the lines that give names of one way `alone` a value can be computed whatever the test says.

    They take no part of a tensor, none may be absent, and they read nothing that the choice gives a value otherwise.
    """
    lines = [*item.body, *item.orelse]
    if not all(isinstance(line, Assign) and not line.operator for line in lines):
        return False
    own = [line for line in assignments(lines) if _is_of(line, alone)]
    nodes = [node for line in own for part in expressions(line) for node in part.walk()]
    absent = any(
        node.kind == "compare" and "is" in node.label for node in item.test.walk()
    )
    later = frozenset().union(*map(written, lines)) - {*alone}
    read = frozenset().union(*(line.value.names() for line in own))
    plain = not absent and not later & read and not item.test.names() & {*alone}
    return plain and not any(
        node.kind == "subscript" and node.args[1].kind != "slice" for node in nodes
    )


def _is_told(shape: Shape) -> bool:
    """Whether a shape means the same in another program."""
    return shape.dims is not None and shape.lead is None


def _is_steady(shape: Shape, shapes: Mapping[str, Shape]) -> bool:
    """Whether a shape is the same in every step: its sizes have names, or are those of what a step takes."""
    taken = {dim for item in shapes.values() for dim in item.dims or ()}
    return shape.dims is not None and all(
        dim in taken or sizes.is_told_by_names(dim) for dim in shape.dims
    )


def _in_every_step(
    graph: Graph, read: Callable[[Node, bool], Node | None]
) -> Callable[[Node], Node | None]:
    """`read`, and whether each step reads it: not all have an `x[t]` of `x[t] if t < T - 1 else y`."""

    def part(node: Node) -> Node | None:
        if node.kind == "conditional":
            test, *ways = node.args
            kept = (graph.rewrite(way, lambda item: read(item, False)) for way in ways)
            return graph.node("conditional", "", (graph.rewrite(test, part), *kept))
        return read(node, True)

    return part


def _unread_numbers(taken: _Step, begun: set[str]) -> set[str]:
    """The numbers in the place of which each step computes a tensor; one that it reads may be no more than a factor in a function, or a choice."""
    if any(isinstance(op.shape.origin, OrScalar) for op in taken.carries.values()):
        raise UnsupportedError("a loop carries what is no tensor")
    left, unread, lines = {*begun}, {*begun}, taken.code.lines
    made = {*taken.tensors, *taken.parts, *written(*lines), *taken.carries} - begun
    for item in lines:
        if _asks_for_tensor(left, item.value, made):
            raise UnsupportedError("a loop carries what is no tensor")
        unread -= left & item.value.names()
        left -= written(item)  # from there on it is what the step computes
    return unread - left


def _asks_for_tensor(names: set[str], value: Node, tensors: set[str]) -> bool:
    """Whether a function, an index, or a choice, reads one of the names: the backward then asks a function of what is a number at first.

    A choice may multiply it by what the step makes of `tensors`, which gives a tensor.
    """
    if value.kind == "binary" and value.label == "*":
        left, right = value.args
        for one, other in ((left, right), (right, left)):
            if one.kind == "name" and one.label in names and other.names() & tensors:
                return _asks_for_tensor(names, other, tensors)
    if value.kind == "call" and any(item.label in names for item in value.args):
        return True
    if value.kind == "subscript":
        at = value.args[1]
        several = at.args if at.kind == "tuple" else (at,)
        if any(item.names() & names for item in several if item.kind != "slice"):
            return True
    if value.kind == "conditional" and any(
        _is_among(names, way, tensors) for way in value.args
    ):
        return True
    return any(_asks_for_tensor(names, item, tensors) for item in value.args)


def _is_among(names: set[str], value: Node, tensors: set[str]) -> bool:
    """Whether an expression reads one of the names otherwise than to multiply a tensor by it."""
    if value.kind == "binary" and value.label == "*":
        left, right = value.args
        for one, other in ((left, right), (right, left)):
            if one.kind == "name" and one.label in names and other.names() & tensors:
                return _is_among(names, other, tensors)
    if value.kind == "name":
        return value.label in names
    return any(_is_among(names, item, tensors) for item in value.args)


def _is_only(item: Assign, code: _Code) -> bool:
    """Whether no other line assigns what a line does, and no step takes it from the one before."""
    name = item.target.label
    return (
        item.target.kind == "name"
        and name not in dict(code.carries)
        and sum(name in written(line) for line in code.lines) == 1
    )


def _letter(index: str) -> str:
    return index.strip("_") or "step"


def _place(index: Node, name: str) -> tuple[int, int] | None:
    """The dim that is read at the index of a loop, the dims before it in full, and how far from it: `x[:, t - 1]`."""
    parts = index.args if index.kind == "tuple" else (index,)
    *above, last = parts
    full = all(
        part.kind == "slice" and all(end.kind == "absent" for end in part.args)
        for part in above
    )
    shift = _shift(last, name)
    return (len(above), shift) if full and shift is not None else None


def _shift(index: Node, name: str) -> int | None:
    """How far an index is from that of the loop."""
    match index:
        case Node("name", label) if label == name:
            return 0
        case Node(
            "binary", "+" | "-" as sign, (Node("name", label), Node("constant", number))
        ):
            if label == name and number.isdecimal():
                return int(number) if sign == "+" else -int(number)
    return None


def _without(shape: Shape, dim: int) -> Shape | None:
    if shape.dims is None:
        return None
    return Shape((*shape.dims[:dim], *shape.dims[dim + 1 :]))


def _with(shape: Shape, dim: int, size: Dim) -> Shape | None:
    if shape.dims is None or shape.rank is None:
        return None
    at = dim if dim >= 0 else dim + shape.rank + 1
    return Shape((*shape.dims[:at], size, *shape.dims[at:]))


def _code(graph: Graph, loop: Node) -> _Code:
    before, index, items, body, after, results = loop.args
    lines, added = _step_lines(graph, body)
    begun = {line.args[0].label: line.args[1] for line in before.args}
    joins = dict[str, tuple[Node, Node | None, bool]]()
    for target, value in (line.args for line in after.args):
        chosen = value.kind == "conditional"  # `torch.stack(ys, 1) if ys else out`
        value = value.args[1] if chosen else value
        listed = value.args[1]  # or the list from its end
        buffer = begun.pop(target.label, None)
        joins[listed.label or listed.args[0].label] = (
            value,
            buffer,
            chosen and not buffer,
        )
    ends = items.args[-1]
    goes_back = bool(ends.args) and ends.args[0].label == "range"
    ends = ends if goes_back else items
    return _Code(
        carries=tuple(pair for pair in begun.items() if pair[1].kind != "list"),
        at=index.label,
        stop=ends.args[-1],
        start=_number(ends.args[1]) if len(ends.args) == 3 else 0,
        goes_back=goes_back,
        lines=lines,
        collected=tuple(
            _Collected(
                name, value, *joins[name], begun[name].args, name in loop.label.split()
            )
            for name, value in added
            if name in joins
        ),
        results=tuple(item.label for item in results.args),
    )


def _step_lines(
    graph: Graph, body: Node
) -> tuple[tuple[Assign, ...], list[tuple[str, Node]]]:
    """The assignments of a step, and what it adds to which list, over plain names."""

    def plain(node: Node) -> Node:
        return graph.rewrite(
            node, lambda item: graph.name(item.label) if item.kind == "own" else None
        )

    lines, added = list[Assign](), list[tuple[str, Node]]()
    pairs = [line.args for line in body.args]
    taken = {item.label for item in body.walk()}
    for position, (target, value) in enumerate(pairs):
        if target.kind != "absent":
            lines.append(Assign(plain(target), plain(value)))
            continue
        callee, element = value.args
        name, element = callee.args[0].label, plain(element)
        if any(_changes(line, element) for line in pairs[position + 1 :]):
            # It is added before what it reads is another value.
            early = graph.name(fresh(f"added_to_{name}", taken))
            lines.append(Assign(early, element))
            element = early
        added.append((name, element))
    return tuple(lines), added


def _number(node: Node) -> int | None:
    plain = node.kind == "constant" and node.label.isdecimal()
    return int(node.label) if plain else None


def _changes(line: tuple[Node, ...], value: Node) -> bool:
    """Whether a line of a loop assigns a name that an expression reads."""
    target, _ = line
    return bool({item.label for item in target.walk()} & value.names())
