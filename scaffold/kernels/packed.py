"""Rows of several parts: the op rewritten over the parts, each an input or an output of its own.

In: an `OpSpec` whose forward takes a row apart, `gate, value = x.chunk(2, -1)` or `x[..., ::2]`, or puts one together with `torch.cat`.
Out: a `Packed`. Invariant: the op of the parts computes what the op does; of a row that is read in parts nothing else is read.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.graph.static_values import UnsupportedError, dotted
from scaffold.formula import (
    Assign,
    Formula,
    Lines,
    Node,
    emit,
    emit_lines,
    keywords,
    literal_value,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.kernels.row_program import Part
from scaffold.spec import Dim, OpSpec, Output, TensorInput

NAMES = {2: "half", 3: "third", 4: "quarter"}  # of the size of a part
Parts = dict[str, tuple[str, Part]]


class Packed(NamedTuple):
    """The op over the parts, the row of each part, and the removed lines of its forward."""

    spec: OpSpec
    inputs: Parts
    outputs: Parts
    lines: tuple[str, ...] = ()

    @property
    def of(self) -> int:
        """Return the number of parts of a row."""
        return next((part.of for _, part in self.inputs.values()), 1)


def unpacked(spec: OpSpec) -> Packed:
    """Return the op with each part of a row as an input."""
    formula = spec.forward
    if formula is None or spec.gradients or spec.backward or spec.surrogate:
        return Packed(spec, {}, {})
    taken = Taken(spec, formula)
    if not taken.parts:
        return Packed(spec, {}, {})
    lines, result = taken.lines, taken.result
    rows = {row for row, _ in taken.parts.values()}
    read = {name for item in lines for node in _nodes(item) for name in node.names()}
    read |= {*result.names()} if result else set()
    if rows & read or {*taken.parts} & written(*lines):
        raise UnsupportedError(f"'{min(rows)}' is read whole, and in parts")
    if len({part.of for _, part in taken.parts.values()}) > 1:
        raise UnsupportedError("rows have several numbers of parts")
    found = _declared(spec, taken)
    outputs, result = _outputs(spec, result, found)
    formula = replace(formula, statements=lines, result=result)
    given = tuple(Output(name) for name in outputs) or spec.outputs
    return Packed(
        replace(found, forward=formula, outputs=given, require=()),
        taken.parts,
        outputs,
        tuple(taken.said),
    )


def _nodes(item: object) -> Iterator[Node]:
    if isinstance(item, Assign):
        yield from (item.target, item.value)
    else:
        raise UnsupportedError("a branch in a forward that takes a row apart")


class Taken:
    """The parts taken by a forward, and its other lines."""

    def __init__(self, spec: OpSpec, formula: Formula) -> None:
        self.rows = {
            item.name: item for item in spec.tensors if item.dims and len(item.dims) > 1
        }
        self.names = {item.name for item in spec.inputs} | {*formula.names()}
        self.parts: Parts = {}
        self.said: list[str] = []
        kept = [item for item in formula.statements if not self._is_chunk(item)]
        self.graph = formula.graph
        self.lines: Lines = rewritten(self.graph, tuple(kept), self._sliced)
        end = (Assign(self.graph.name("_"), formula.result),) if formula.result else ()
        ends = rewritten(self.graph, end, self._sliced)
        self.result = ends[0].value if ends and isinstance(ends[0], Assign) else None

    def _is_chunk(self, item: object) -> bool:
        """Return whether a line is `gate, value = x.chunk(2, -1)`."""
        if not isinstance(item, Assign) or item.target.kind != "tuple":
            return False
        names = [target.label for target in item.target.args]
        call = item.value
        if call.kind != "call" or any(x.kind != "name" for x in item.target.args):
            return False
        callee, *args = call.args
        given = keywords(call)
        plain = args[: len(args) - len(given)]
        if dotted(callee) != "torch.chunk":
            if callee.kind != "attribute" or callee.label != "chunk":
                return False
            plain = [callee.args[0], *plain]
        bound = dict(zip(("input", "chunks", "dim"), plain, strict=False)) | given
        if not {"input", "chunks"} <= {*bound}:
            return False
        row = bound["input"].label
        last = "dim" in bound and literal_value(emit(bound["dim"])) == -1
        if row not in self.rows or literal_value(emit(bound["chunks"])) != len(names):
            return False
        if not last:
            raise UnsupportedError("chunk along another dim than the last one")
        for at, name in enumerate(names):
            self.parts[name] = (row, Part(at, len(names)))
        self.said += emit_lines((item,))
        return True

    def _sliced(self, node: Node) -> Node | None:
        """Return the name of `x[..., ::2]`."""
        if node.kind != "subscript" or node.args[0].label not in self.rows:
            return None
        index = node.args[1].args if node.args[1].kind == "tuple" else ()
        if len(index) != 2 or index[0].label != "..." or index[1].kind != "slice":
            return None
        start, end, step = index[1].args
        if end.kind != "absent" or step.kind == "absent":
            return None
        count = literal_value(emit(step))
        at = 0 if start.kind == "absent" else literal_value(emit(start))
        if (
            not isinstance(at, int)
            or not isinstance(count, int)
            or not 0 <= at < count
            or count < 2
        ):
            return None
        row, part = node.args[0].label, Part(at, count, interleaved=True)
        known = next((k for k, v in self.parts.items() if v == (row, part)), None)
        if known is None:
            word = ("even", "odd")[at] if count == 2 else str(at)
            known = fresh(f"{row}_{word}", self.names)
            self.names.add(known)
            self.parts[known] = (row, part)
            self.said.append(f"{known} = {emit(node)}")
        return self.graph.name(known)


def _declared(spec: OpSpec, taken: Taken) -> OpSpec:
    """Return the op over the parts; the size of a part has the name another input gives it."""
    rows = {row for row, _ in taken.parts.values()}
    of = next(part.of for _, part in taken.parts.values())
    others = [item.dims for item in spec.tensors if item.name not in rows]
    named = {dims[-1] for dims in others if dims}
    usual = fresh(NAMES.get(of, "part"), {item.name for item in spec.inputs})
    width: Dim = next(iter(named)) if len(named) == 1 else usual
    inputs = [item for item in spec.inputs if item.name not in rows]
    for name, (row, _) in taken.parts.items():
        whole = taken.rows[row]
        assert whole.dims is not None
        dims = (*whole.dims[:-1], width)
        inputs.append(TensorInput(name, dims, whole.dtype, const=whole.const))
    return replace(spec, inputs=tuple(inputs), conventional=())


def _outputs(
    spec: OpSpec, result: Node | None, found: OpSpec
) -> tuple[Parts, Node | None]:
    """Return the parts of the output of `torch.cat([a, b], -1)`, and the new result."""
    if len(spec.outputs) != 1 or result is None or result.kind != "call":
        return {}, result
    callee, *args = result.args
    given = keywords(result)
    plain = args[: len(args) - len(given)]
    bound = dict(zip(("tensors", "dim"), plain, strict=False)) | given
    parts = bound["tensors"].args if "tensors" in bound else ()
    last = "dim" in bound and literal_value(emit(bound["dim"])) == -1
    if dotted(callee) != "torch.cat" or not last or len(parts) < 2:
        return {}, result
    output, of = spec.outputs[0].name, len(parts)
    taken = {item.name for item in found.inputs} | {*result.names()}
    names = [fresh(f"{output}_{at + 1}", taken) for at in range(of)]
    assert spec.forward is not None
    ends = spec.forward.graph.node("tuple", "", parts)
    return {name: (output, Part(at, of)) for at, name in enumerate(names)}, ends
