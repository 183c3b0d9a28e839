"""Rows of several parts: the op rewritten over the parts, each an input or an output of its own.

In: an `OpSpec` whose forward takes a row apart, `gate, value = x.chunk(2, -1)` or `x[..., ::2]`, or puts one together with `torch.cat`.
Out: a `Packed`. Invariant: the op of the parts computes what the op does; of a row that is read in parts nothing else is read.

Words: a *part* is some of the columns of a row, one half or each second one; `of` is the number of parts of a row, `at` the place of one;
parts are *taken* from rows by lines that the new op does without, as its inputs are the parts; *pieces* are joined by `torch.cat`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.graph.static_values import UnsupportedError, dotted
from scaffold.formula import (
    Assign,
    Formula,
    Lines,
    Node,
    arguments_of,
    emit,
    emit_lines,
    evaluated,
    read_names,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.kernels.row_program import Part
from scaffold.spec import Dim, OpSpec, Output, TensorInput

NAMES = {2: "half", 3: "third", 4: "quarter"}  # of the size of a part
HALVES = ("first", "second")
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
    """Return the op with an input for each part of a row, and an output for each part of a `torch.cat`; with no parts, the op as it is.

    `gate, value = x.chunk(2, -1)` and `return F.silu(gate) * value` -> inputs `gate[..., half]`, `value[..., half]`.
    UnsupportedError if a row is read whole too, or in different numbers of parts, or if there are branches.
    """
    formula = spec.forward
    # A stated gradient is that of the whole row: nothing says what it is of a part.
    if formula is None or spec.gradients or spec.backward or spec.surrogate:
        return Packed(spec, {}, {})
    taken = Taken(spec, formula)
    if not taken.parts:
        return Packed(spec, {}, {})
    lines, result = taken.lines, taken.result
    if not all(isinstance(item, Assign) for item in lines):
        raise UnsupportedError("a branch in a forward that splits rows")
    # The rows that are split; more of them after `halves`, which splits `cos` and `sin` too.
    rows = {row for row, _ in taken.parts.values()}
    # A row is also read whole, as in `x * cos + torch.cat([-b, a], -1) * sin`.
    if rows & _read(lines, result):
        lines, result = taken.halves(lines, result)
    rows = {row for row, _ in taken.parts.values()}
    # The name of a part may also get another value, and stand for that below.
    if rows & _read(lines, result) or {*taken.parts} & written(*lines):
        raise UnsupportedError(f"'{min(rows)}' is read both whole and in parts")
    if len({part.of for _, part in taken.parts.values()}) > 1:
        raise UnsupportedError("rows are split into different numbers of parts")
    found = _declared(spec, taken)
    outputs, result = _outputs(spec, result, found)
    formula = replace(formula, statements=lines, result=result)
    given = tuple(Output(name) for name in outputs) or spec.outputs
    # Without `require`: the op's forward checks it before it asks the kernels.
    found = replace(found, forward=formula, outputs=given, require=())
    return Packed(found, taken.parts, outputs, tuple(taken.removed))


def _read(lines: Lines, result: Node | None) -> set[str]:
    """Return the names read by some lines, and by a result."""
    return {*read_names(*lines), *(result.names() if result else ())}


class Taken:
    """A forward without the lines that split its rows: `parts` has the row and place of each part, `removed` the text of these lines.

    `rows`: the inputs with two dims or more; only they can be split.
    """

    def __init__(self, spec: OpSpec, formula: Formula) -> None:
        """Split a forward's lines: ones taking a part of a row, noted in `parts` and `removed`, and the rest with the parts' names."""
        rows = (item for item in spec.tensors if item.dims and len(item.dims) > 1)
        self.rows = {item.name: item for item in rows}
        self.attributes = {item.name for item in spec.attributes}
        self.names = {item.name for item in spec.inputs} | {*formula.names()}
        self.parts: Parts = {}
        self.removed: list[str] = []
        kept = [item for item in formula.statements if not self._is_chunk(item)]
        self.graph = formula.graph
        self.lines: Lines = rewritten(self.graph, tuple(kept), self._sliced)
        # As a line, so that `rewritten` takes the result too.
        end = (Assign(self.graph.name("_"), formula.result),) if formula.result else ()
        ends = rewritten(self.graph, end, self._sliced)
        self.result = ends[0].value if ends and isinstance(ends[0], Assign) else None

    def _is_chunk(self, item: object) -> bool:
        """Return whether a line is `gate, value = x.chunk(2, -1)`, or a split in equal parts; if so, add its names to the parts."""
        if not isinstance(item, Assign) or item.target.kind != "tuple":
            return False
        names = [target.label for target in item.target.args]
        call = item.value
        if call.kind != "call" or any(x.kind != "name" for x in item.target.args):
            return False
        callee = call.args[0]
        word = (dotted(callee) or "").rpartition(".")[2]
        if callee.kind != "attribute" or word not in ("chunk", "split"):
            return False
        if dotted(callee) == f"torch.{word}":
            bound = arguments_of(call, ("input", "size", "dim"))
        else:
            bound = {"input": callee.args[0], **arguments_of(call, ("size", "dim"))}
        # `size` if given by its position, else by the name that PyTorch has for it.
        sizes = (bound[x] for x in ("size", "chunks", "split_size") if x in bound)
        size, owner = next(sizes, None), bound.get("input")
        if size is None or owner is None or owner.label not in self.rows:
            return False
        row, of = owner.label, len(names)
        # A split is one in equal parts only if its size is written as such a share of the row.
        equal = {f"{row}.shape[-1] // {of}", f"{row}.size(-1) // {of}"}
        if emit(size) not in (equal if word == "split" else {str(of)}):
            return False
        # Without a `dim`, PyTorch splits the first one.
        if "dim" not in bound or evaluated(bound["dim"]) != -1:
            raise UnsupportedError(f"{word} along a dim other than the last")
        for at, name in enumerate(names):
            self.parts[name] = (row, Part(at, of))
        self.removed += emit_lines((item,))
        return True

    def _part(self, row: str, part: Part, words: tuple[str, ...], text: str) -> Node:
        """Return the name for a part of a row; if it is new, name it by `words`, `x_even`, and record `x_even = x[..., ::2]` (`text`) as removed."""
        known = next((k for k, v in self.parts.items() if v == (row, part)), None)
        if known is None:
            word = words[part.at] if part.of == len(words) else str(part.at)
            known = fresh(f"{row}_{word}", self.names)
            self.names.add(known)
            self.parts[known] = (row, part)
            self.removed.append(f"{known} = {text}")
        return self.graph.name(known)

    def _half(self, node: Node, row: str, start: Node, end: Node) -> Node | None:
        """Return the name for `x[..., :half]` or `x[..., half:]` with `half` written `x.shape[-1] // 2`; None for other bounds."""
        # Which half: only the second one has no end, `x[..., half:]`.
        at = 1 if end.kind == "absent" else 0
        bound, other = (start, end) if at else (end, start)
        middle = (f"{row}.shape[-1] // 2", f"{row}.size(-1) // 2")
        # The bound at the end of the row itself is left out, or the 0 in `x[..., 0:half]`.
        whole = other.kind == "absent" or not at and emit(other) == "0"
        if not whole or emit(bound) not in middle:
            return None
        return self._part(row, Part(at, 2), HALVES, emit(node))

    def _sliced(self, node: Node) -> Node | None:
        """Return the name for `x[..., ::2]` or `x[..., :half]`; None if the node is no such part of a splittable row."""
        if node.kind != "subscript" or node.args[0].label not in self.rows:
            return None
        index = node.args[1].args if node.args[1].kind == "tuple" else ()
        if len(index) != 2 or index[0].label != "..." or index[1].kind != "slice":
            return None
        start, end, step = index[1].args
        row = node.args[0].label
        if step.kind == "absent":
            # `x[..., :]` is no part, but the whole row.
            absent = start.kind == "absent" and end.kind == "absent"
            return None if absent else self._half(node, row, start, end)
        count = evaluated(step)
        at = 0 if start.kind == "absent" else evaluated(start)
        # `x[..., :8:2]` may leave out the last columns.
        if end.kind != "absent" or not isinstance(at, int):
            return None
        # A part begins within the first step: not `x[..., 2::2]`, and no `x[..., ::1]`.
        if not isinstance(count, int) or not 0 <= at < count or count < 2:
            return None
        part = Part(at, count, interleaved=True)
        return self._part(row, part, ("even", "odd"), emit(node))

    def halves(self, lines: Lines, result: Node | None) -> tuple[Lines, Node | None]:
        """Return the lines and result of a forward reading a row whole too, computed by parts; unchanged, and then refused, if not possible.

        `x * cos + torch.cat([-b, a], -1) * sin` -> `torch.cat([a * cos_first - b * sin_first, b * cos_second + a * sin_second], -1)`.
        """
        assigned = (item for item in lines if isinstance(item, Assign))
        values = {item.target.label: item.value for item in assigned}
        found = self._split(result, values) if result is not None else None
        # Fewer values than lines: a name is assigned twice, and `values` has only its last value.
        if found is None or len(values) < len(lines):
            return lines, result
        graph = self.graph
        parts = (graph.node("list", "", found), graph.node("constant", "-1", ()))
        cat = graph.node("attribute", "cat", (graph.name("torch"),))
        # No lines are left: `_split` filled their values in.
        return (), graph.node("call", "", (cat, *parts))

    def _split(self, node: Node, values: Mapping[str, Node]) -> tuple[Node, ...] | None:
        """Return an elementwise expression for each part of the row; None if it has anything but arithmetic, rows, numbers and `torch.cat`.

        `values`: the value of each local name.
        """
        # There is a part; if others have another `of`, `unpacked` refuses them all.
        of = next(part.of for _, part in self.parts.values())
        if node.kind == "name" and node.label in values:
            return self._split(values[node.label], values)
        if node.kind == "name" and node.label in self.rows:
            text = f"{node.label}.chunk({of}, -1)"
            parts = [(Part(at, of), f"{text}[{at}]") for at in range(of)]
            return tuple(self._part(node.label, x, HALVES, y) for x, y in parts)
        attribute = node.kind == "name" and node.label in self.attributes
        if attribute or node.kind == "constant":
            return (node,) * of
        if node.kind == "unary" or node.kind == "binary" and node.label in "+-*/":
            every = [self._split(item, values) for item in node.args]
            known = [item for item in every if item is not None]
            if len(known) < len(every):
                return None
            pairs = zip(*known, strict=True)
            return tuple(self._combined(node, args) for args in pairs)
        pieces = _joined(node)
        read = {name for item in pieces for name in item.names()}
        # The pieces of a `torch.cat` are values of parts already: they may read no whole row or local.
        plain = not read & {*self.rows, *values}
        return pieces if plain and len(pieces) == of else None

    def _combined(self, node: Node, args: tuple[Node, ...]) -> Node:
        """Return an operator applied to the same part of its operands; `a + -b * c` is written `a - b * c`."""
        match node.label, args:
            case "+", (one, Node(_, "*" | "/" as sign, (Node("unary", "-", (b,)), c))):
                product = self.graph.node("binary", sign, (b, c))
                return self.graph.node("binary", "-", (one, product))
        return self.graph.node(node.kind, node.label, args)


def _declared(spec: OpSpec, taken: Taken) -> OpSpec:
    """Return the op with the parts as inputs in place of their rows.

    The size of a part is the last dim of the other inputs, if they all have the same (`cos[..., H]`), else `half`, `third`, `quarter` or `part`.
    """
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
    """Return the part each new output is, by name, and the tuple of their values: `torch.cat([a, b], -1)` -> `(a, b)`.

    No parts and the result unchanged unless every output is such a `torch.cat` or an interleaving `torch.stack`.
    """
    if result is None or spec.forward is None:
        return {}, result
    several = result.args if result.kind == "tuple" else (result,)
    if len(several) != len(spec.outputs):
        return {}, result
    taken = {item.name for item in found.inputs} | {*result.names()}
    parts: Parts = {}
    ends: list[Node] = []
    for output, node in zip(spec.outputs, several, strict=True):
        joined = _joined(node)
        pieces = joined or _stacked(node)
        if not pieces:
            return {}, result
        of, interleaved = len(pieces), not joined
        for at, piece in enumerate(pieces):
            # `y_first` and `y_second` if the parts are called `first` and `second`, else `y_1` and `y_2`.
            word = HALVES[at] if of == 2 and taken.issuperset(HALVES) else at + 1
            name = fresh(f"{output.name}_{word}", taken)
            parts[name] = (output.name, Part(at, of, interleaved))
            ends.append(piece)
    return parts, spec.forward.graph.node("tuple", "", tuple(ends))


def _joined(node: Node, function: str = "torch.cat") -> tuple[Node, ...]:
    """Return `a`, `b` of `torch.cat([a, b], -1)`; () for anything else. `function`: the call to look for."""
    if node.kind != "call" or dotted(node.args[0]) != function:
        return ()
    bound = arguments_of(node, ("tensors", "dim"))
    last = "dim" in bound and evaluated(bound["dim"]) == -1
    parts = bound["tensors"].args if last and "tensors" in bound else ()
    return parts if len(parts) > 1 else ()


def _stacked(node: Node) -> tuple[Node, ...]:
    """Return `a`, `b` of `torch.stack([a, b], -1).flatten(-2)`, a row of alternating columns; () for anything else."""
    match node:
        case Node("call", _, (Node("attribute", "flatten", (stack,)), dim), names):
            # `end_dim=-2` flattens other dims.
            is_last = "end_dim" not in names and emit(dim) == "-2"
            return _joined(stack, "torch.stack") if is_last else ()
    return ()
