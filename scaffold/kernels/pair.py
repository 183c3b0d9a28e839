"""The row programs of an op: of its forward, and of the backward derived for inputs with the same leading dims.

In: an `OpSpec`. Out: a `Pair`, or an `UnsupportedError` that names what no row kernel computes. Invariant: the backward reads gradients,
inputs and outputs, and attributes; no row that can be computed again is saved.

Words: the `total` of an op is a mean or sum of everything at its end, which PyTorch computes; *lead* are the leading dims of the input with
the most dims, its rows are *whole*, and those of an input without some of these dims *repeat*; *kept* rows are those that a condition of
the op selects (`lowering`), except `Derivation.kept`, which are attributes of ctx; *own* names are those of the kernels' file; an *absent*
input is an optional one, with the number that stands for it; a *part* is some of the columns of a row (`packed`), and a *piece* of a
result its value for one part of the row, or for all of it.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scaffold.derive import Derivation, Saved, derive, grad_name, zero_gradients
from scaffold.derive.forward.body import gradient_of_part, write_forward
from scaffold.derive.graph.op import Op
from scaffold.derive.graph.static_values import UnsupportedError, as_text
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.rules.team_tables import table_of
from scaffold.derive.saving import is_of_ctx
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    emit,
    emit_lines,
    nodes,
    read_names,
    rewritten,
    written,
)
from scaffold.kernels.bound_once import bound_once
from scaffold.kernels.lowering import (
    ZEROS,
    Lowering,
    Shapes,
    factored,
    finished,
    refuse_foreign,
    select,
)
from scaffold.kernels.names import AFFIXES, FIXED, LOCAL, Own, own_names
from scaffold.kernels.optional_inputs import with_all
from scaffold.kernels.packed import Packed, Parts, unpacked
from scaffold.kernels.row_program import (
    NUMBER,
    ONE,
    Name,
    Reduce,
    Repeat,
    Result,
    RowProgram,
    Space,
)
from scaffold.kernels.statistics import with_statistics
from scaffold.kernels.unsqueezed import unsqueezed
from scaffold.kernels.written_out import (
    Total,
    applier_of,
    graph_of,
    lower_lines,
    parsed,
    without_total,
    written_out,
)
from scaffold.spec import ANY_DIMS, Dim, OpSpec, Output, TensorInput, is_leading

ROWS = "*rows"
CASTS = {"float": "torch.float32", "double": "torch.float64"}
SCALARS: tuple[tuple[Dim, ...], ...] = ((), (1,))
REAL = ("real", "group")  # kinds of values with a dtype to compute in
# Only of an argument without brackets or commas: no pattern finds the end of another.
SOFTMAX = re.compile(r"torch\.softmax\(([^(),]+), (?:dim=)?-1\)")
PLAIN = ("float", "int", "bool")  # the attributes a registered op can take


class Pair(NamedTuple):
    """The programs of an op, and the values read by its backward."""

    forward: RowProgram
    backward: RowProgram | None  # None: it copies a gradient, or there is none
    saved: tuple[str, ...] = ()  # what the backward reads of inputs and outputs
    shapes: Shapes = Shapes({}, (), "")
    formula: tuple[str, ...] = ()  # the lines that the forward is of
    gradient: tuple[str, ...] = ()  # ... and the backward
    own: Own = Own()
    total: Total | None = None  # what is done with the results of the forward
    columns: bool = False  # each number of a row is such a result
    rows: frozenset[str] = frozenset()  # inputs that are read in parts
    absent: Mapping[str, str] = {}  # the number that stands for an optional input
    views: Mapping[str, tuple[Dim, ...]] = {}  # dims that an input is read with
    # Of each output: inputs and casts that it is promoted of, and whether autocast has it in float32.
    dtypes: Mapping[str, tuple[tuple[str, ...], bool]] = {}

    @property
    def statistics(self) -> tuple[str, ...]:
        """Return the numbers of each row the forward saves."""
        return tuple(item.name for item in self.forward.results if item.saved)

    def dtype_of(self, output: str) -> str:
        """Return the variable in the kernel's file for an output's dtype: `dtype` if all outputs share it, else `y_dtype` of an output `y`."""
        several = {(frozenset(read), wide) for read, wide in self.dtypes.values()}
        return self.own.dtype if len(several) == 1 else f"{output}_dtype"


def kernel_pair(spec: OpSpec) -> Pair:
    """Return the row programs of an op, elementwise if possible; UnsupportedError names the reason if there are none.

    The op is rewritten first: without a final mean or sum (`total`), with all optional inputs, with each name bound once, with formulas in
    place of calls like `F.layer_norm`, and with inputs read as `cos[:, None]` declared so.
    """
    _refuse(spec)
    spec, total = without_total(spec)
    spec, absent = with_all(spec)
    # Dtypes follow the calls as the user wrote them: autocast computes F.layer_norm in float32, but not each op of its formula. It also
    # sums in float32.
    lowered = _lowered(bound_once(spec))
    for op in (x for result in lowered.results for x in result.walk()):
        _refuse_rounding(op, op in lowered.results)
    # Autocast computes sums in float32, but not the mean of everything (`over` is "").
    summed = total is not None and total.over != ""
    known = {name: op for op, name in lowered.held.items()}
    dtypes = {
        item.name: (_dtypes(op, spec, known), summed or _is_float32(op))
        for item, op in zip(spec.outputs, lowered.results, strict=True)
    }
    spec, views = unsqueezed(bound_once(written_out(spec)))
    pair = _pair_over_elements_or_rows(spec, total)
    return pair._replace(absent=absent, views=views, dtypes=dtypes)


def _pair_over_elements_or_rows(spec: OpSpec, total: Total | None) -> Pair:
    """Return the row programs of an op whose optional inputs are all required.

    An op that splits rows is computed row by row; any other is tried first as an elementwise one, on flat tensors of one shape.
    """
    packed = unpacked(spec)
    _refuse_primitives(packed.spec if packed.inputs else spec)
    own = own_names(_names(spec) | _names(packed.spec) | _locals(spec))
    if packed.inputs:
        return _repacked(spec, packed, _pair(_over_rows(packed.spec), own, total))
    try:
        return _pair(_over_elements(spec), own, total)
    except UnsupportedError as error:
        if all(spec.dims(item.name) is None for item in spec.tensors):
            hint = "; declare the shapes: 'x[..., D]'"
            raise UnsupportedError(f"{error}{hint}") from None
        return _pair(_over_rows(spec), own, total)


def _refuse(spec: OpSpec) -> None:
    """Raise UnsupportedError for an op with inputs or options no kernel is written for, before any work on its formula."""
    for item in spec.tensors:
        if item.variadic:
            raise UnsupportedError(f"'{item.name}' takes any number of tensors")
        # 0.0 or 1.0 stands for an absent one.
        if item.optional and item.dtype != "float":
            raise UnsupportedError(f"'{item.name}' is optional and not floating-point")
        if item.dtype == "complex":
            raise UnsupportedError(f"'{item.name}' is complex")
    if spec.dirty:
        raise UnsupportedError(f"'{spec.dirty[0]}' changes in place")
    if spec.forward is None:
        raise UnsupportedError("there is no forward")
    if spec.foreign:
        raise UnsupportedError(f"{min(spec.foreign)} is not PyTorch's")
    if not spec.materialize_grads:
        raise UnsupportedError("an output gradient may be None")
    _refuse_names(spec)


def _refuse_primitives(spec: OpSpec) -> None:
    """Raise UnsupportedError for a primitive no kernel computes, first of all: a message about shapes would mislead."""
    table = table_of(spec)
    for op in _ops(spec):
        if op.is_tensor:
            refuse_foreign(table, op)


def _ops(spec: OpSpec) -> Iterator[Op]:
    """Return the ops in the graph of an op's forward, those of each result after its arguments."""
    return (op for result in _lowered(spec).results for op in result.walk())


def _lowered(spec: OpSpec) -> Lowered:
    """Return the forward of an op as a graph of primitives, without active inputs: no gradient is asked of it."""
    assert spec.forward is not None
    forward = write_forward(spec, spec.forward)
    return lower(spec, forward, applier_of(spec), frozenset())


def _refuse_rounding(op: Op, is_result: bool) -> None:
    """Raise UnsupportedError for a cast to half precision or integers within the formula: a kernel computes it all in one dtype.

    A cast of the result is fine, as the result is stored in its own dtype.
    """
    if op.rule in ("to", "cast") and op.args[0].kind == "real" and not is_result:
        text = emit(as_text(op.args[1]))
        if text.startswith("torch.") and text not in CASTS.values():
            raise UnsupportedError(f"a cast to {text} inside of the formula")


def _is_float32(op: Op) -> bool:
    """Return whether a value is float32 under autocast, by the policy of its op or because an argument is.

    An op of "own" dtype and no policy, or a value without floating-point numbers, does not take its arguments' dtype.
    """
    # "own" is a mere default for the engine's own ops (of category "graph"), as lists and items.
    policy, dtype, floating = op.facts.autocast, op.facts.dtype, op.kind in REAL
    if op.facts.category != "graph" and (not floating or dtype == "own" and not policy):
        return False
    # `1 / x` (`number_first`) is computed in float32, `x / y` in the dtypes that come.
    if policy == "float32" or policy and not op.args[0].is_tensor:
        return True
    args = (op.args[dtype],) if isinstance(dtype, int) else op.args
    return any(map(_is_float32, args))


def _dtypes(op: Op, spec: OpSpec, known: Mapping[str, Op]) -> tuple[str, ...]:
    """Return what a result's dtype is promoted from: names of inputs, and `torch.float32` for a cast to it; () for an index or a mask.

    A scalar input has no part in promotion. `known`: the value of each local name, for `x.to(h.dtype)`.
    """
    # A list is no tensor, but of `torch.cat([x, y])` its items have dtypes.
    if op.kind not in REAL and op.rule not in ("list", "tuple"):
        return ()
    match op.rule:
        case "input":
            return () if spec.dims(op.name) == () else (op.name,)
        case "float" | "double":
            return (CASTS[op.rule],)
        case "to" | "cast":
            text = emit(as_text(op.args[1]))
            owner, _, word = text.rpartition(".")
            if owner == "torch":
                return (text,)
            if word == "dtype" and owner in known:
                return _dtypes(known[owner], spec, known)
            if word != "dtype" or owner not in {item.name for item in spec.tensors}:
                raise UnsupportedError(f"a cast to {text}")
            return (owner,)
    args = (op.args[op.facts.dtype],) if isinstance(op.facts.dtype, int) else op.args
    every = [_dtypes(arg, spec, known) for arg in args]
    return tuple(dict.fromkeys(name for item in every for name in item))


def _refuse_names(spec: OpSpec) -> None:
    """Raise UnsupportedError if the op uses a name the kernel's file needs itself and cannot change, like `tl` or `x_ptr`."""
    tensors = {x.name for x in spec.tensors} | {x.name for x in spec.outputs}
    made = {f"{name}{affix}" for name in tensors for affix in AFFIXES}
    taken = sorted(_names(spec) & (FIXED | made | {f"{spec.name}_forward"}))
    if taken:
        raise UnsupportedError(f"'{taken[0]}' is a name that kernels reserve")


def _names(spec: OpSpec) -> frozenset[str]:
    """Return the names in the signature of an op: its inputs, outputs and sizes."""
    sizes = (str(dim) for item in spec.tensors for dim in item.dims or ())
    given = {item.name for item in spec.inputs}
    return frozenset({*sizes, *given, *(item.name for item in spec.outputs)})


def _locals(spec: OpSpec) -> frozenset[str]:
    """Return the names a forward reads or assigns."""
    assert spec.forward is not None  # or else it was refused
    return spec.forward.names() | written(*spec.forward.statements)


# --- Rows of several parts: their programs are those of the parts, which lie in the rows.


def _repacked(spec: OpSpec, packed: Packed, pair: Pair) -> Pair:
    """Return the programs over the parts of rows as programs over the op's own rows: they load `gate` from columns of `x`.

    The gradients of the parts of `x` become pieces of one result, `grad_x`; the removed lines, `gate, value = x.chunk(2, -1)`, are shown
    again in the formulas. `pair`: the programs of `packed.spec`, the op over the parts.
    """
    rows = {row for row, _ in packed.inputs.values()}
    width = pair.forward.width
    split: dict[str, Space] = dict.fromkeys(rows, Space(True, f"{packed.of} * {width}"))
    every = {**pair.shapes.spaces, **split}
    spaces = {item.name: every[item.name] for item in spec.tensors}
    grads = {
        grad_name(packed.spec, name): (grad_name(spec, row), part)
        for name, (row, part) in packed.outputs.items()
    }
    inputs, read = packed.inputs, packed.inputs | grads
    found = {f"grad_{k}": (f"grad_{row}", part) for k, (row, part) in inputs.items()}
    back = pair.backward and _with_rows(pair.backward, read, found)
    if back is not None:
        order = [f"grad_{item.name}" for item in spec.differentiable]
        results = sorted(back.results, key=lambda item: order.index(item.name))
        back = back._replace(results=tuple(results))
    loads = {load.source for load in pair.backward.loads} if pair.backward else set()
    # The removed lines with a part that the backward reads, for its docstring.
    lines = [x for x in packed.lines if loads & {*x.partition(" = ")[0].split(", ")}]
    row_of = {name: row for name, (row, _) in packed.inputs.items()}
    saved = dict.fromkeys(row_of.get(name, name) for name in pair.saved)
    repeats = {row_of.get(k, k): repeat for k, repeat in pair.shapes.repeats.items()}
    return pair._replace(
        forward=_with_rows(pair.forward, packed.inputs, packed.outputs),
        backward=back,
        saved=tuple(saved),
        shapes=pair.shapes._replace(spaces=spaces, of=packed.of, repeats=repeats),
        rows=frozenset(rows),
        formula=(*packed.lines, *pair.formula),
        gradient=(*lines, *pair.gradient),
    )


def _with_rows(program: RowProgram, sources: Parts, targets: Parts) -> RowProgram:
    """Return a program over parts with its loads and results placed in the rows of the parts: results in one row become its pieces.

    `sources` has the row of each loaded part and the part's place in it, `targets` those of each result. `Result.source`, the input that a
    gradient is of, is such a part, too, and becomes its row.
    """
    loads = []
    for load in program.loads:
        source, part = sources.get(load.source, (load.source, load.part))
        loads.append(load._replace(source=source, part=part))
    results: dict[str, Result] = {}
    for item in program.results:
        name, part = targets.get(item.name, (item.name, None))
        source, _ = sources.get(item.source, (item.source, None))
        pieces = results[name].pieces if name in results else ()
        # A result of the program over parts has one piece: a part.
        pieces = (*pieces, (part, item.pieces[0][1]))
        results[name] = item._replace(name=name, pieces=pieces, source=source)
    return program._replace(loads=tuple(loads), results=tuple(results.values()))


# --- Declared shapes, as a kernel takes them.


def _over_elements(spec: OpSpec) -> OpSpec:
    """Return the op with all tensors flat, `x[*rows]`, but for scalars; UnsupportedError if their declared shapes differ."""
    every = {spec.dims(item.name) for item in spec.tensors}
    # An input without a declared shape may have any, like one declared `x[...]`.
    every = {(ANY_DIMS,) if dims is None else dims for dims in every}
    if len(every - {*SCALARS}) > 1:
        raise UnsupportedError("its inputs have several shapes")

    def dims(item: TensorInput) -> tuple[Dim, ...]:
        """Return `()` or `(1,)` of a scalar, else the one dim of a flat tensor."""
        given = spec.dims(item.name)
        return given if given in SCALARS else (ROWS,)

    return _declared(spec, dims)


def _over_rows(spec: OpSpec) -> OpSpec:
    """Return the op with the dims its tensors declare, `...` as one dim `*rows`; UnsupportedError if one declares none."""

    def dims(item: TensorInput) -> tuple[Dim, ...]:
        """Return the declared dims of a tensor, with `*rows` for `...`."""
        given = spec.dims(item.name)
        if given is None:
            raise UnsupportedError(f"the shape of '{item.name}' is not declared")
        return tuple(ROWS if dim == ANY_DIMS else dim for dim in given)

    return _declared(spec, dims)


def _declared(spec: OpSpec, dims: Callable[[TensorInput], tuple[Dim, ...]]) -> OpSpec:
    """Return the op with other dims for its tensors, and with options set so that its derivation is as a kernel needs it.

    The backward recomputes what it can from inputs, and neither style, autocast nor checks of shapes have a part in a kernel.
    """
    tensors = (item._replace(dims=dims(item)) for item in spec.tensors)
    spec = replace(spec, inputs=(*tensors, *spec.attributes), conventional=())
    spec = replace(spec, style="setup-context", style_is_free=False, kernels=())
    return replace(spec, save_policy="recompute", shape_checks=False, amp="off")


def _shapes(spec: OpSpec) -> Shapes:
    """Return the space of each input, the leading dims and the name of the row's size: `x[N, D], w[D]` -> `("N",)` and `D`.

    The input with the most dims gives the rows. UnsupportedError if its last dim has no name, or the name of another dim.
    """
    dims = {item.name: item.dims or () for item in spec.tensors}
    # `s[N, 1]` has one number for each row, and so no row that could tell the width.
    rows = [given for given in dims.values() if given and given[-1] not in (1, "1")]
    longest = max(rows, key=len, default=())
    names = frozenset(item.name for item in spec.attributes)
    if longest == (ROWS,):
        many = Space(rows=True)
        spaces = {k: NUMBER if x in SCALARS else many for k, x in dims.items()}
        return Shapes(spaces, longest, "", names)
    lead, width = longest[:-1], str(longest[-1]) if longest else ""
    if not lead or is_leading(width) or not width.isidentifier():
        raise UnsupportedError("no input has rows of a named size")
    if width in lead or len({*lead}) < len(lead):
        raise UnsupportedError(f"'{width}' is the size of several dims")
    spaces, repeats = {}, {}
    for name, given in dims.items():
        spaces[name], repeats[name] = _space(name, given, lead)
    repeated = {name: item for name, item in repeats.items() if item is not None}
    return Shapes(spaces, lead, width, names, repeats=repeated)


def _space(
    name: str, dims: tuple[Dim, ...], lead: tuple[Dim, ...]
) -> tuple[Space, Repeat | None]:
    """Return the space of an input of some dims, and how its rows repeat if it lacks leading dims (`lead`) of the op.

    With lead B, T: `x[B, T, D]` -> a row each, None; `w[D]` -> columns, None; `cos[T, D]` -> a row each, repeated for each of B.
    The dims it has may have one gap: `c[B, 1, T, D]` over B, H, T. UnsupportedError for more gaps.
    """
    if dims in SCALARS:
        return NUMBER, None
    if dims == lead:
        return Space(rows=True), None
    if not is_leading(dims[-1]) and dims[:-1] in (lead, ()):
        return Space(dims[:-1] == lead, str(dims[-1])), None
    # As broadcasting sees it: with dims of size 1 in front, for missing leading dims.
    rest = (1,) * (len(lead) + 1 - len(dims)) + dims[:-1]
    there = [at for at, dim in enumerate(rest) if dim not in (1, "1")]
    # `*rows` stands for any number of dims: its place among them tells nothing.
    named = all(rest[at] == lead[at] and rest[at] != ROWS for at in there)
    if len(rest) == len(lead) and there and named and not is_leading(dims[-1]):
        first, last = there[0], there[-1] + 1
        gap = [at for at in range(first, last) if at not in there]
        # The input has the leading dims from `first` to `end`, and those behind the gap, from `begin` on.
        end, begin = (gap[0], gap[-1] + 1) if gap else (last, last)
        sizes = tuple(map(str, lead))
        # One gap at most; and with one, the input has the last leading dim too.
        fits = len(gap) == begin - end and (not gap or last == len(lead))
        # Rows are counted by the sizes behind those that the input has, and `*rows` is no size.
        if fits and ROWS not in sizes[end:]:
            every, within = sizes[first:end], sizes[begin:last]
            repeat = Repeat(every, sizes[end:], first > 0, within)
            return Space(True, str(dims[-1])), repeat
    raise UnsupportedError(f"the shape of '{name}' fits neither rows nor columns")


# --- The programs.


def _pair(spec: OpSpec, own: Own, total: Total | None) -> Pair:
    """Return the row programs of an op with declared dims, after all rewriting; `own`: names of variables in the kernels' file.

    The backward is None if each gradient is a copy of an incoming one, as that of `x + y`; not if a mean scales it.
    """
    lse = any(op.rule == "log_softmax" for op in _ops(spec))
    shapes, derivation = _shapes(spec)._replace(lse=lse), _derived(spec)
    forward = _forward(spec, derivation, shapes, own)
    spaces = {item.name: item.space for item in forward.results}
    unselected, test = shapes, dict(forward.lines).get(forward.kept)
    shapes = shapes._replace(kept=test)
    backward: RowProgram | None = None
    saved = tuple(item.origin for item in derivation.saved)
    if spec.differentiable:
        backward = _backward(spec, derivation, shapes, spaces, own, total)
        # The backward selects no rows by it: then the forward computes all rows, too.
        if forward.kept and not backward.kept:
            forward = _forward(spec, derivation, unselected, own, selects=False)
        if total is not None:
            grads = {grad_name(spec, item.name) for item in spec.outputs}
            loads = (load.source for load in backward.loads)
            saved = tuple(name for name in loads if name not in grads)  # no loss
        read = {load.name for load in backward.loads}
        copied = all(_is_copied(result, read) for result in backward.results)
        if copied and total is None:
            backward = None
    if total is not None:
        forward = _totalled(forward)
    # Without columns there is no reduction to save.
    if backward is not None and shapes.width:
        forward, backward = with_statistics(forward, backward)
    for program in filter(None, (forward, backward)):
        _refuse_unread(program, total)
    kept = {item.name for item in forward.results if item.saved}
    product = backward.factored if backward else ""
    formula = _formula(derivation, spec, total)
    gradient = _gradient(derivation, spec, kept, product)
    pair = Pair(forward, backward, saved, shapes, formula, gradient, own, total)
    return pair._replace(columns=any(space.is_row for space in spaces.values()))


def _formula(
    derivation: Derivation, spec: OpSpec, total: Total | None
) -> tuple[str, ...]:
    """Return the lines of the forward, for the docstring of the kernels' file; the last ones assign the outputs."""
    values = zip(spec.outputs, derivation.results, strict=True)
    results = [f"{item.name} = {_shown(value, total)}" for item, value in values]
    return (*emit_lines(derivation.forward or ()), *results)


def _gradient(
    derivation: Derivation, spec: OpSpec, saved: Collection[str], product: str
) -> tuple[str, ...]:
    """Return the lines of the backward, for the docstring of the kernels' file: those its gradients need.

    A line for a value the forward saves (`saved`) is left out, and so is what only that line reads. `product`: the gradient as the kernel
    computes it, if that is another expression.
    """
    read = {f"grad_{item.name}" for item in spec.differentiable}
    graph, lines = graph_of(spec), []
    every = [*derivation.lines]
    known = {grad_name(spec, item.name) for item in spec.outputs} | {*saved, "torch"}
    known |= written(*every) | _locals(spec) | _names(spec)
    value = product and parsed(spec, product, known)
    if value and known.issuperset(value.names()):
        # Then there is a single gradient (`_gradients`), and the last line is its own.
        every[-1] = Assign(graph.name(min(read)), value)
    for line in reversed(every):
        if written(line) & read - {*saved}:
            read |= {*read_names(line)}
            lines.append(line)
    off_ctx = partial(_off_ctx, graph, _kept_shapes(spec, derivation))
    texts = emit_lines(rewritten(graph, (*reversed(lines),), off_ctx))
    if [x for x in saved if x.startswith("lse")] == ["lse"]:  # of the only softmax
        texts = [SOFTMAX.sub(r"torch.exp(\1 - lse)", text) for text in texts]
    return (*texts,)


def _derived(spec: OpSpec) -> Derivation:
    """Return the derivation of an op; UnsupportedError if a gradient is not derived, or is zero everywhere."""
    derivation = derive(spec)
    if derivation.missing or derivation.forward is None:
        note = next(iter(derivation.notes), "its gradient is not derived")
        raise UnsupportedError(note)
    flat = sorted(zero_gradients(derivation))
    if flat:
        raise UnsupportedError(f"the gradient of '{flat[0]}' is zero everywhere")
    return derivation


def _refuse_unread(program: RowProgram, total: Total | None) -> None:
    """Raise UnsupportedError if a mean is divided by the sum of an input, `x.sum() / mask.sum()`, and the program does not load that input."""
    counted = total.read if total else set()
    if unread := counted - {load.source for load in program.loads}:
        raise UnsupportedError(f"'{min(unread)}' is read by the mean alone")


def _shown(value: Node, total: Total | None) -> str:
    """Return the text of a result, with the final mean or sum removed from the op: `x * y` -> `(x * y).mean()`."""
    if total is None:
        return emit(value)
    word = "mean" if total.over == "" else "sum"
    shown = emit(Node("call", "", (Node("attribute", word, (value,)),)))
    return f"{shown} / {total.over}" if total.over else shown


def _totalled(program: RowProgram) -> RowProgram:
    """Return the program of a loss with partial sums for PyTorch to add up: a sum of each row, or of each block if it is elementwise."""
    (item,) = program.results
    ((part, value),) = item.pieces
    if not program.width:
        return program._replace(results=(item._replace(space=NUMBER, summed=True),))
    if value.space.has_columns:
        value = Reduce("sum", value, Space(True, ""))
    item = item._replace(pieces=((part, value),), space=Space(rows=True))
    return program._replace(results=(item,))


def _reserved(spec: OpSpec, own: Own) -> frozenset[str]:
    """Return the names a line of a kernel must not get: of the file, of the op's signature, and of parameters like `x_ptr`.

    Outputs are left out, as the line of an output has its name.
    """
    made = {f"{item.name}{affix}" for item in spec.inputs for affix in AFFIXES + LOCAL}
    return FIXED | {*own} | _names(spec) - {x.name for x in spec.outputs} | made


def _is_copied(result: Result, read: Collection[str]) -> bool:
    """Return whether a gradient is, number for number, an incoming one (`read`: the names of the program's loads)."""
    values = [value for _, value in result.pieces]
    copied = all(isinstance(item, Name) and item.text in read for item in values)
    return copied and not result.summed and result.repeat is None


def _forward(
    spec: OpSpec, derivation: Derivation, shapes: Shapes, own: Own, selects: bool = True
) -> RowProgram:
    """Return the row program of the forward; UnsupportedError if an output is no real tensor, or has fewer rows than the op.

    An output needs an input with all leading dims (not a repeated one): only that gives the output its shape.
    """
    assert derivation.forward is not None
    applier = applier_of(spec)
    lowered = lower_lines(spec, derivation.forward, derivation.results, applier)
    lowering = Lowering(applier, lowered, shapes, _reserved(spec, own))
    selected = select(lowering) if selects else None
    lowering.run()
    results = []
    for output, op in zip(spec.outputs, lowered.results, strict=True):
        if op.kind != "real":
            raise UnsupportedError(f"'{output.name}' is not a tensor of real numbers")
        read = {item.name for item in op.walk() if item.rule == "input"}
        whole = read & {*shapes.spaces} - {*shapes.repeats}
        if not any(shapes.spaces[name].rows for name in whole):
            raise UnsupportedError(f"'{output.name}' depends on no input with all rows")
        value = lowering.value(op) if selected is None else lowering.selected(selected)
        value = lowering.named(value, output.name, own=True)
        results.append(Result(output.name, ((None, value),), value.space))
    return _program(lowering, results)


def _backward(
    spec: OpSpec,
    derivation: Derivation,
    shapes: Shapes,
    outputs: Mapping[str, Space],
    own: Own,
    total: Total | None,
) -> RowProgram:
    """Return the row program of the backward, lowered as an op of its own: of incoming gradients, saved tensors and attributes.

    `outputs`: the space of each output. If the op ends in a mean or sum (`total`), one incoming gradient serves all rows.
    """
    graph = graph_of(spec)
    lines = derivation.lines
    losses = outputs if total is not None else ()
    singles = frozenset(grad_name(spec, name) for name in losses)
    # Losses are not saved, and a saved output is rounded to its dtype, so that no value equals it: outputs are computed again for both.
    if losses or _compares(lines, outputs):
        inputs = [item for item in derivation.saved if item.source == "input"]
        if len(inputs) < len(derivation.saved):
            lines = (*_recomputed(spec, derivation), *lines)
            # The recomputed lines may read inputs that the derived backward does not.
            read = _locals(spec) & {item.name for item in spec.tensors}
            read -= {item.origin for item in inputs}
            inputs += [Saved(x, "input", frozenset(), x) for x in sorted(read)]
        derivation = replace(derivation, saved=tuple(inputs))
    of_inputs, (back, spaces) = shapes, _of_backward(spec, derivation, shapes, outputs)
    off_ctx = partial(_off_ctx, graph, _kept_shapes(spec, derivation))
    lines = rewritten(graph, lines, off_ctx)
    names = [f"grad_{item.name}" for item in spec.differentiable]
    applier = applier_of(back)
    lowered = lower_lines(back, lines, tuple(map(graph.name, names)), applier)
    # A part of a gradient needs no name in a kernel.
    held = {op: x for op, x in lowered.held.items() if not gradient_of_part(x)}
    lowered = lowered._replace(held=held)
    origins = {item.name: item.origin for item in derivation.saved}
    every = {name: origins.get(name, name) for name in spaces}
    repeats = {k: shapes.repeats[x] for k, x in every.items() if x in shapes.repeats}
    shapes = shapes._replace(spaces=spaces, repeats=repeats, singles=singles)
    lowering = Lowering(applier, lowered, shapes, _reserved(back, own))
    lowering.run()
    return _program(lowering, _gradients(spec, lowering, of_inputs))


def _compares(lines: Lines, outputs: Mapping[str, Space]) -> bool:
    """Return whether a line compares a value with an output by `==`: `x == output`, for the gradient of an `amax`."""
    found = (x for x in nodes(*lines) if x.kind == "compare" and x.label == "==")
    return any(outputs.keys() & {*x.names()} for x in found)


def _gradients(spec: OpSpec, lowering: Lowering, shapes: Shapes) -> list[Result]:
    """Return the gradients as results of the backward, over the dims of their inputs; those summed over all rows are flagged."""
    results = []
    for item, op in zip(spec.differentiable, lowering.lowered.results, strict=True):
        name = f"grad_{item.name}"
        space, repeat = shapes.spaces[item.name], shapes.repeats.get(item.name)
        value, summed = finished(lowering, op, item.name)
        if not summed:
            value = lowering.named(value, name, own=True)
        # The program has one such expression (`RowProgram.factored`), for the docstring.
        if len(spec.differentiable) == 1:
            factored(lowering, value, grad_name(spec, spec.outputs[0].name))
        pieces = ((None, lowering.selected(value)),)
        results.append(Result(name, pieces, space, summed, item.name, repeat))
    return results


def _recomputed(spec: OpSpec, derivation: Derivation) -> Lines:
    """Return the lines of the forward and an assignment to each output, to put before a backward reading an output not saved.

    UnsupportedError if the forward assigns to the name of an input: the backward would read the new value.
    """
    lines = derivation.forward or ()
    inputs = {item.name for item in spec.inputs}
    if inputs & written(*lines):
        raise UnsupportedError("the backward reads a loss")
    graph = graph_of(spec)
    pairs = zip(spec.outputs, derivation.results, strict=True)
    return (*lines, *(Assign(graph.name(item.name), value) for item, value in pairs))


def _of_backward(
    spec: OpSpec, derivation: Derivation, shapes: Shapes, outputs: Mapping[str, Space]
) -> tuple[OpSpec, dict[str, Space]]:
    """Return an op with the backward's inputs and the gradients as outputs, and the space of each input, to be lowered like a forward.

    Inputs of the forward the backward does not read are among its inputs too: a line may read their shape.
    """
    spaces = {grad_name(spec, name): space for name, space in outputs.items()}
    tensors = {item.name: item for item in spec.tensors}
    inputs = [TensorInput(name, _dims(space, shapes)) for name, space in spaces.items()]
    for item in derivation.saved:
        if item.source == "input":
            inputs.append(tensors[item.origin]._replace(name=item.name))
            spaces[item.name] = shapes.spaces[item.origin]
        elif item.origin in outputs:
            spaces[item.name] = outputs[item.origin]
            inputs.append(TensorInput(item.name, _dims(spaces[item.name], shapes)))
        else:  # a local value, and no kernel saves one
            raise UnsupportedError(f"the backward reads '{item.origin}' again")
    there = {item.name for item in inputs}
    for asked in spec.tensors:
        if asked.name not in there:
            inputs.append(asked)
            spaces[asked.name] = shapes.spaces[asked.name]
    grads = tuple(Output(f"grad_{item.name}") for item in spec.differentiable)
    # The forward has checked the conditions on sizes.
    back = replace(spec, inputs=(*inputs, *spec.attributes), outputs=grads, require=())
    return back, spaces


def _dims(space: Space, shapes: Shapes) -> tuple[Dim, ...]:
    """Return the dims to declare for a value of some space: rows and a row's size -> `(N, D)`."""
    lead: tuple[Dim, ...] = shapes.lead if space.rows else ()
    last: tuple[Dim, ...] = (space.width,) if space.has_columns else ()
    return (*lead, *((1,) if space.width == ONE else last))


def _off_ctx(
    graph: Graph, kept: Mapping[str, tuple[str, str]], node: Node
) -> Node | None:
    """Rewrite a node of the backward without `ctx`, as a kernel's op has none; None if it has nothing to change.

    `ctx.eps` -> `eps`; `ctx.x_shape` -> `x.shape`, by `kept`; `torch.zeros(n, dtype=x.dtype)` -> `torch.zeros(n)`, as the kernel has one dtype.
    """
    if node.kind == "call" and node.keywords and node.args[0].label in ZEROS:
        # The keywords of a call are the last of its arguments.
        plain = graph.node("call", node.label, node.args[: -len(node.keywords)])
        return graph.rewrite(plain, partial(_off_ctx, graph, kept))
    if not is_of_ctx(node):
        return None
    if node.label in kept:
        source, facet = kept[node.label]
        return graph.node("attribute", facet, (graph.name(source),))
    return graph.name(node.label)


def _kept_shapes(spec: OpSpec, derivation: Derivation) -> dict[str, tuple[str, str]]:
    """Return the attributes of ctx with an input's shape, dtype or device: `{"x_shape": ("x", "shape")}`."""
    facets = ("shape", "dtype", "device")
    every = {f"{x.name}.{y}": (x.name, y) for x in spec.tensors for y in facets}
    found = {item.name: every.get(item.expression) for item in derivation.kept}
    return {name: source for name, source in found.items() if source is not None}


def _program(lowering: Lowering, results: Iterable[Result]) -> RowProgram:
    """Return what a lowering has collected as a row program with some results."""
    loads, lines = (*lowering.loads.values(),), (*lowering.lines,)
    constants = (*lowering.constants.items(),)
    # "" of a program without such a condition.
    kept = getattr(lowering.kept, "text", "")
    width, factored = lowering.shapes.width, lowering.factored
    return RowProgram(loads, lines, (*results,), width, constants, kept, factored)
