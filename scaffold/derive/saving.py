"""Saving: tensors and values passed from forward to backward by ctx, and the backward rewritten to read them.

In: the lines of the backward, over the forward's own names. Out: the same lines over `ctx`, and a `Context`.
Invariant: a tensor is saved only for gradients that read its data, and a parameter of the module for its own
gradient, too; shape, dtype and presence are kept as values instead. No two values share a name on ctx, and none has a
name with a meaning to PyTorch there.

Words: saved tensors pass through `ctx.save_for_backward`; kept values are other attributes of ctx. A facet of a
tensor is its shape, its dtype, its presence (is it None?) or the like; a `Read` is a use of a tensor's name, with the
facets it reads, () for its data. A line `serves` the inputs whose gradients need it: it stands under a test of these.
An intermediate is a saved local of the forward. A variadic input or output is any number of tensors. Output gradients
are incoming; one may be None, if the output was not used (`incoming`). A gradient is `coming` if autograd surely passes
a tensor for it, `watched` if the backward reads it, `filled` if zeros replace it where it is None. Lines are `handed`
over if they read ctx in place of the forward's names.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.analysis.metadata import kept_form, kept_name
from scaffold.derive.backward_program import Line
from scaffold.derive.derivation import (
    PLAIN_GRADIENTS,
    Filled,
    IncomingGradients,
    Kept,
    Saved,
    Source,
    Traits,
)
from scaffold.derive.forward.body import grad_name
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Graph,
    If,
    Node,
    Read,
    Statement,
    data_read,
    emit,
    free_reads,
    metadata_read,
    nodes,
    read_names,
    rewritten,
    written,
)
from scaffold.formula.names import take
from scaffold.primitives.calls import casts_like, rearranges
from scaffold.spec import OpSpec, Output, TensorInput, leading
from scaffold.spec.maths import NEEDS

# --- Names on ctx: attributes of the op, and facts about tensors the backward does not
# read.


# Attributes that torch.autograd.Function's ctx already has.
OF_CTX = frozenset(
    {"apply", "apply_boxed", "apply_jvp", "backward", "dirty_tensors", "forward"}
    | {"mark_dirty", "mark_non_differentiable", "mark_shared_storage", "metadata"}
    | {"materialize_grads", "maybe_clear_saved_tensors", "name", "needs_input_grad"}
    | {"next_functions", "non_differentiable", "register_hook", "register_prehook"}
    | {"requires_grad", "save_for_backward", "save_for_forward", "saved_for_forward"}
    | {"saved_tensors", "saved_variables", "set_materialize_grads", "to_save"}
    | {"_autograd_function_id", "_backward_cls", "_compiled_autograd_backward_state"}
    | {"_compiled_autograd_key", "_forward_cls", "_get_compiled_autograd_symints"}
    | {"_get_user_fn", "_input_metadata", "_is_compiled_autograd_tracing"}
    | {"_is_pure_view", "_materialize_non_diff_grads", "_raw_saved_tensors"}
    | {"_register_hook", "_register_hook_dict", "_sequence_nr", "_set_sequence_nr"}
)


class ContextNames:
    """A source of unique names on ctx, the same one for a value each time."""

    def __init__(self, spec: OpSpec) -> None:
        """Reserve the names of PyTorch's ctx, then names of the op's attributes: `eps`, or `eps_value` if PyTorch uses `eps`."""
        self._taken = set(OF_CTX)
        self._names: dict[tuple[str, str], str] = {}
        for item in spec.attributes:
            self._give((item.name, ""), item.name, f"{item.name}_value")

    def attribute(self, name: str) -> str:
        """Return the name on ctx of an attribute of the op: its own, unless PyTorch has a use for it there."""
        return self._names[name, ""]

    def facet(self, name: str, facet: str) -> str:
        """Return the name on ctx of a facet of a tensor (its shape, dtype, presence, ...): `x_shape`, or else `shape_of_x`."""
        known = self._names.get((name, facet))
        return known or self._give(
            (name, facet), kept_name(name, facet), f"{facet}_of_{name}"
        )

    def _give(self, key: tuple[str, str], usual: str, other: str) -> str:
        """Reserve a name for a value: the usual one, or the other one if it is taken. `key` is a name and a facet, "" for an attribute."""
        name = self._names[key] = take(self._taken, usual, other)
        return name


# --- The choice of saved tensors and kept values, and the lines that read them.


Found = list[tuple[Read, frozenset[str]]]


class Transfer(NamedTuple):
    """The values passed from forward to backward, and the lines that read them."""

    lines: tuple[Line, ...]
    saved: tuple[Saved, ...]
    kept: tuple[Kept, ...]


class Origins(NamedTuple):
    """Sources of names in the backward: outputs and saved locals of the forward."""

    outputs: dict[str, str]  # name in the formulas -> output
    intermediates: tuple[str, ...]
    # Locals read for metadata only -> their expressions in the forward.
    described: Mapping[str, str] = {}
    like: Mapping[str, str] = {}  # input -> an output of the same shape
    traits: Mapping[str, Traits] = {}  # of the tensors that are surely present
    vectors: frozenset[str] = frozenset()  # vectors and scalars, too small for a test
    incoming: IncomingGradients = PLAIN_GRADIENTS


def transfer(
    spec: OpSpec,
    graph: Graph,
    lines: tuple[Line, ...],
    origins: Origins,
    names: ContextNames,
    place: Location,
    gradients_come_in: bool = True,
) -> Transfer:
    """Decide how each free name of the backward reaches it, and rewrite the lines to read it so.

    A name is read from an input or output saved as a tensor, or from a value on ctx. A jvp has no incoming gradients
    (`gradients_come_in`). Raise if the backward reads what cannot be saved.
    """
    found = _free(lines)
    data = _data_readers(spec, found, origins)
    _refuse_changed(spec, data, place)

    def always(name: str, serves: frozenset[str]) -> bool:
        """Return whether to save a tensor without a test of the gradients that read it: most do, or it is a small vector."""
        return name in origins.vectors or is_for_most(spec, serves)

    tensors = (
        Saved(name, source, data[name], origin, always(name, data[name]))
        for name, source, origin in _tensors(spec, origins)
        # What is read for its shape alone is not in `data`.
        if data.get(name)
    )
    # Last, since `a, *tensors = ctx.saved_tensors` takes what is left.
    saved = tuple(sorted(tensors, key=lambda item: are_several(spec, item)))
    _refuse_two_tuples(spec, saved, place)
    every = frozenset(item.name for item in spec.differentiable)
    available_for = {
        name: every if always(name, serves) else serves for name, serves in data.items()
    }
    coming = frozenset(
        grad_name(spec, output.name)
        for output in spec.outputs
        # None comes in for other outputs, unless autograd makes zeros.
        if gradients_come_in and (output.differentiable or spec.materialize_grads)
    )
    coming -= origins.incoming.undefined
    assigned = written(*(line.statement for line in lines))
    rewriter = _Rewriter(spec, graph, origins, names, available_for, coming, assigned)
    renewed = tuple(rewriter.line(line) for line in lines)
    return Transfer(renewed, saved, tuple(rewriter.kept.values()))


# --- Views of an input, read for their shape only: `ctx.x1_shape = x[..., ::2].shape`,
# without saving `x`.


NUMBERS = frozenset(
    {"absent", "binary", "constant", "slice", "starred", "subscript", "tuple", "unary"}
)


def without_views(
    spec: OpSpec, graph: Graph, lines: tuple[Line, ...], described: Collection[str]
) -> tuple[tuple[Line, ...], Mapping[str, str]]:
    """Drop lines for views read only for their shape; return lines, and forward expressions of views and described locals.

    So the input need not be saved: `x1 = x[..., ::2]` goes, and `ctx.x1_shape = x[..., ::2].shape` comes instead.
    Here `y.to(x)` reads no data either: it is rewritten to `y.to(x.device, x.dtype)`. `described` are locals of which
    only the shape is read; the forward has them. A view stays if its data is read, or its input's: the input is saved
    then, and the backward makes the view again.
    """
    views = _Views(spec, graph, lines)
    typed = [_with_types(graph, line, views.inputs) for line in lines]
    dropped = views.at
    # Until no remaining line reads a dropped view, or its input, for more than a shape. `elements`:
    # `x1[0].shape` is such a read, as ctx gets the shape of `x1` alone.
    while True:
        left_lines = (x.statement for at, x in enumerate(typed) if at not in dropped)
        read = data_read(*left_lines, elements=True)
        left = {
            at: names
            for at, names in dropped.items()
            if not read & {*names, *(views.root[name] for name in names)}
        }
        if left == dropped:
            break
        dropped = left
    found = {name: name for name in described}
    found |= {
        name: emit(views.known[name]) for names in dropped.values() for name in names
    }
    # `y.to(x)` stays for an input x that some line reads: it is saved anyway.
    rest = [
        _with_types(graph, line, views.inputs - read)
        for at, line in enumerate(lines)
        if at not in dropped
    ]
    # Without views, numbers of their indices may be unread.
    return _without_unread(spec, graph, rest) if dropped else tuple(rest), found


def _with_types(graph: Graph, line: Line, inputs: Collection[str]) -> Line:
    """Replace `y.to(x)` and `y.type_as(x)`, for an input `x`, by `y.to(x.device, x.dtype)`: it need not be saved for these two."""

    def change(node: Node) -> Node | None:
        """Return the new form of a cast like an input; None for other nodes."""
        match node:
            case Node(
                "call",
                _,
                (Node("attribute", label, (y,)), Node("name", name) as x),
                (),
            ) if name in inputs and casts_like(label):
                to = graph.node("attribute", "to", (graph.rewrite(y, change),))
                facets = (
                    graph.node("attribute", of, (x,)) for of in ("device", "dtype")
                )
                return graph.node("call", "", (to, *facets))
        return None

    (statement,) = rewritten(graph, (line.statement,), change)  # one in, one out
    return line._replace(statement=statement)


def _without_unread(
    spec: OpSpec, graph: Graph, lines: Sequence[Line]
) -> tuple[Line, ...]:
    """Drop lines no longer read once views are gone, such as the numbers of an index.

    The walk goes up from the last line; gradients are read after it.
    """
    live = frozenset(f"grad_{item.name}" for item in spec.differentiable)
    left: list[Line] = []
    for line in reversed(lines):
        for item in without_dead(graph, (line.statement,), live):
            left.append(line._replace(statement=item))
            live |= read_names(item)
    return tuple(reversed(left))


def _one_by_one(graph: Graph, item: Statement) -> Iterator[tuple[str, Node]]:
    """Yield each name assigned by a statement, and its value: `a, b = x.chunk(2)` -> a, `x.chunk(2)[0]`, and so on.

    Nothing if the values cannot be told apart.
    """
    # `a += b` changes a value, and gives none of its own.
    if isinstance(item, If) or item.operator:
        return
    targets, value = item.target.args, item.value
    if item.target.kind == "name":
        yield item.target.label, value
    elif item.target.kind == "tuple" and all(part.kind == "name" for part in targets):
        for at, part in enumerate(targets):
            index = graph.constant(str(at))
            # `a, b = x, y` has an expression for each; else each is an item of the one value.
            if value.kind == "tuple":
                yield part.label, value.args[at]
            else:
                yield part.label, graph.node("subscript", "", (value, index))


class _Views:
    """The locals that are views of an input, as expressions over inputs and attributes."""

    def __init__(self, spec: OpSpec, graph: Graph, lines: tuple[Line, ...]) -> None:
        """Find the lines with nothing but views of inputs: `at` maps their positions to the names they assign.

        Only names assigned once count.
        """
        self.graph = graph
        several = variadic_names(spec)
        # An optional input may be None, which has no shape.
        tensors = (item for item in spec.tensors if not item.optional)
        self.inputs = {item.name for item in tensors} - several
        self.attributes = {item.name for item in spec.attributes}
        self.known: dict[str, Node] = {}  # a local -> its expression
        self.root: dict[str, str] = {}  # a view -> the input
        self.at: dict[int, tuple[str, ...]] = {}
        counts = Counter(name for line in lines for name in written(line.statement))
        # A gradient that is a view of an input, `--grad 'w=w'`, is returned: not
        # dropped.
        counts.update(f"grad_{item.name}" for item in spec.differentiable)
        for at, line in enumerate(lines):
            pairs = [*_one_by_one(graph, line.statement)]
            for name, value in pairs:
                if counts[name] == 1:
                    self._note(name, value)
            if pairs and all(name in self.root for name, _ in pairs):
                self.at[at] = tuple(name for name, _ in pairs)

    def _note(self, name: str, value: Node) -> None:
        """Record a local's expression over inputs and attributes, and the input it is a view of, if it is one or a number."""
        root = self._root(value)
        if root is not None:
            self.root[name] = root
        if root is not None or self._is_plain(value):
            self.known[name] = self.graph.rewrite(value, self._meant)

    def _meant(self, node: Node) -> Node | None:
        """Return the expression of a local, for its name in another expression; None for other nodes."""
        return self.known.get(node.label) if node.kind == "name" else None

    def _root(self, node: Node) -> str | None:
        """Return the name of the input of a view, `x` for `x.mT` or `x[0]`, or None for another value.

        The backward makes such a view again, in place of saving it.
        """
        match node:
            case Node("name", name):
                return name if name in self.inputs else self.root.get(name)
            case Node("subscript", _, (value, index)) if self._is_plain(index):
                return self._root(value)
            case Node(
                "call", _, (Node("attribute", label, (value,)), *args)
            ) if rearranges(label) and all(map(self._is_plain, args)):
                return self._root(value)
        return None

    def _is_plain(self, node: Node) -> bool:
        """Return whether a value is a number, a size or an attribute, or made of such: forward can compute it without tensors' data."""
        read = metadata_read(node)
        if read is not None:
            # `x[i].shape` is read from the tensor itself: ctx has only the facets of x.
            return read.name in self.inputs and not read.element
        if node.kind == "name":
            plain = node.label in self.attributes or node.label in self.known
            # A view is known too, but it is a tensor.
            return plain and node.label not in self.root
        return node.kind in NUMBERS and all(map(self._is_plain, node.args))


# --- The contents of ctx.


class Context(NamedTuple):
    """The values passed from forward to backward, and the incoming gradients they are for."""

    saved: tuple[Saved, ...]
    kept: tuple[Kept, ...]
    filled: tuple[Filled, ...]
    watched: tuple[str, ...]


def context_of(
    spec: OpSpec,
    handed: Transfer,
    names: ContextNames,
    missing: frozenset[str],
    origins: Origins,
) -> Context:
    """Return the contents of ctx: every tensor and attribute if a gradient is missing, since the user may want any to write it.

    `handed` is the backward over ctx, with the values it reads. If output gradients may be None, the context also
    names those the backward reads (`watched`), and the zeros in their place (`filled`).
    """
    saved, kept = handed.saved, handed.kept
    watched = () if spec.materialize_grads else _watched(spec, handed.lines, missing)
    if missing:
        saved, kept = _all_for(missing, spec, handed, names)
        return Context(saved, kept, (), watched)
    incoming = origins.incoming
    defined = tuple(
        name for name in watched if grad_name(spec, name) not in incoming.undefined
    )
    filled = _filled(spec, defined, names, incoming.may_be_none)
    if incoming.may_be_none:
        filled = tuple(_as_saved(item, saved, origins) for item in filled)
        watched = ()  # another gradient may be present
    return Context(saved, (*kept, *_kept_for(filled, kept)), filled, watched)


def is_for_most(spec: OpSpec, names: frozenset[str]) -> bool:
    """Return whether the names are all differentiable inputs, or more than half of them and at least two.

    Tensors read for their gradients are saved without a condition, and are available to the others too. A single
    input among several is often wanted alone.
    """
    count = len(spec.differentiable)
    found = sum(item.name in names for item in spec.differentiable)
    # All of them, even if it is one; else more than half.
    return found == count or (found > 1 and 2 * found > count)


def is_vector(item: TensorInput) -> bool:
    """Return whether an input is declared as a vector or a scalar: too small to be worth a test of `ctx.needs_input_grad`."""
    dims = item.dims
    return not (dims is None or item.variadic or leading(dims) or len(dims) > 1)


def variadic_names(spec: OpSpec) -> frozenset[str]:
    """Return the inputs and outputs that stand for several tensors."""
    items: tuple[TensorInput | Output, ...] = (*spec.tensors, *spec.outputs)
    return frozenset(item.name for item in items if item.variadic)


def are_several(spec: OpSpec, item: Saved) -> bool:
    """Return whether any number of tensors is saved under one name. A local is one tensor, even under the name of a variadic output."""
    return item.source != "intermediate" and item.origin in variadic_names(spec)


def _free(lines: tuple[Line, ...]) -> Found:
    """Return the reads of names no earlier line of the backward assigns, each with the gradients its line serves."""
    statements = tuple(line.statement for line in lines)
    return [(read, lines[position].serves) for read, position in free_reads(statements)]


def _refuse_changed(
    spec: OpSpec, data: dict[str, frozenset[str]], place: Location
) -> None:
    """Raise if the backward reads an input the forward changes in place; `data` maps a tensor to the gradients reading its values.

    The saved tensor would have its later values.
    """
    for name in spec.dirty:
        if data.get(name):
            message = (
                f"the backward reads '{name}', which the forward has changed in place"
            )
            hint = f"read the output, or a copy that the forward makes: old = {name}.clone()"
            raise ScaffoldError(message, place, hint)


def _refuse_two_tuples(spec: OpSpec, saved: tuple[Saved, ...], place: Location) -> None:
    """Raise if two variadic inputs or outputs would be saved: `saved_tensors` is one list, with room for one of any length."""
    several = [item.name for item in saved if are_several(spec, item)]
    if len(several) > 1:
        message = f"the backward reads both '{several[0]}' and '{several[1]}', each of any number of tensors"
        raise ScaffoldError(message, place, "read only one of them, or their shapes")


def _tensors(spec: OpSpec, origins: Origins) -> list[tuple[str, Source, str]]:
    """Return every tensor that can be saved: its name in the backward, its source, its name in the forward."""
    found: list[tuple[str, Source, str]] = []
    found += [(item.name, "input", item.name) for item in spec.tensors]
    found += [(name, "output", origin) for name, origin in origins.outputs.items()]
    return found + [(name, "intermediate", name) for name in origins.intermediates]


def _data_readers(
    spec: OpSpec, found: Found, origins: Origins
) -> dict[str, frozenset[str]]:
    """Return for each tensor the gradients reading its data: for its shape alone, it need not be saved.

    `found` are the reads of the backward, with the gradients they are for.
    """
    tensors = {name for name, _, _ in _tensors(spec, origins)}
    variadic = variadic_names(spec)
    readers: dict[str, frozenset[str]] = {}
    for read, serves in found:
        # The formulas may read an output by the name of the local returned.
        origin = origins.outputs.get(read.name, read.name)
        # `x[i].shape` of a plain tensor is read from the tensor itself.
        slice_of_tensor = read.element and origin not in variadic
        # A local to be saved is read even for its shape: ctx has no facets of it.
        needs_tensor = (
            not read.facets or slice_of_tensor or read.name in origins.intermediates
        )
        if read.name in tensors and needs_tensor:
            readers[read.name] = readers.get(read.name, frozenset()) | serves
    # A parameter with a gradient lives on anyway: if saved for others, it also serves
    # `.sum_to_size(weight.shape)` in its own gradient.
    parameters = spec.module.parameters if spec.module else ()
    for read, serves in found:
        if read.name in parameters and read.name in readers and serves == {read.name}:
            readers[read.name] |= serves
    return readers


class _Rewriter:
    """A rewriter of attributes to `ctx.eps`, and of unavailable tensors' metadata to `ctx.x_shape`; it collects these in `kept`."""

    def __init__(
        self,
        spec: OpSpec,
        graph: Graph,
        origins: Origins,
        names: ContextNames,
        there: dict[str, frozenset[str]],
        coming: frozenset[str],
        assigned: frozenset[str],
    ) -> None:
        """Begin without values on ctx; `coming` are the gradients surely given to backward, `assigned` all names it assigns.

        `there` maps a saved tensor to the gradients under whose tests it is available.
        """
        self.graph, self.origins = graph, origins
        self.spec, self.there = spec, there
        self.coming, self.assigned = coming, assigned
        self.attributes = {item.name for item in spec.attributes}
        self.inputs = {item.name: item for item in spec.tensors}
        self.outputs = {item.name: item for item in spec.outputs}
        self.names = names
        self.kept: dict[str, Kept] = {}

    def line(self, line: Line) -> Line:
        """Return a line of the backward with its attributes and metadata read from ctx, or from tensors at hand."""

        def change(node: Node) -> Node | None:
            return self._changed(node, line.serves)

        (statement,) = rewritten(self.graph, (line.statement,), change)
        return line._replace(statement=statement)

    def _changed(self, node: Node, serves: frozenset[str]) -> Node | None:
        """Return the new form of a read of an attribute or of metadata; None if the node stays.

        Metadata (shape, dtype, presence) of a tensor not available for the gradients in `serves` is read from an
        incoming gradient or a saved tensor that surely has the same, or else from a value put on ctx.
        """
        if node.kind == "name" and node.label in self.attributes:
            name = self.names.attribute(node.label)
            self.kept[name] = Kept(name, node.label)
            return self.graph.node("attribute", name, (self.graph.name("ctx"),))
        # In a formula of the user's `needs_input_grad` is that of ctx, unless an input has the name.
        is_needs = node.kind == "name" and node.label == NEEDS
        if is_needs and NEEDS not in self.inputs:
            return self.graph.node("attribute", NEEDS, (self.graph.name("ctx"),))
        read = metadata_read(node)
        # The tensor itself is at hand for all gradients of this line.
        if read is None or serves <= self.there.get(read.name, frozenset()):
            return None
        output = self._output_with(read)
        if output is not None and self._gradient_has_it(output):
            gradient = grad_name(self.spec, output.name)
            return self._of_another(node, read, gradient, serves)
        if saved := self._saved_with(read, serves):
            return self._of_another(node, read, saved, serves)
        # Not for an input with the shape of an output: its own facet is kept, below.
        if output is not None and read.name in self.origins.outputs:
            self._keep(read, lambda facet: facet, output.name)
        elif read.name in self.inputs:
            self._keep(read, partial(expression_of, self.inputs[read.name]))
        elif read.name in self.origins.described:
            local = self.origins.described[read.name]
            self._keep(read, lambda facet: f"{local}.{facet}")
        else:  # of a local of the backward, or of an incoming gradient: at hand
            return None
        form = kept_form(
            self.graph, node, read, self.names.facet, self._gradient_to_make_from()
        )
        return self.graph.rewrite(form, lambda part: self._below(part, form, serves))

    def _below(self, part: Node, form: Node, serves: frozenset[str]) -> Node | None:
        """Return the new form of a node inside `form`, perhaps an attribute or further metadata; None if it stays.

        `x.shape[dim]` -> `ctx.x_shape[ctx.dim]`: `form`, just made, is not changed again.
        """
        if part is form or (part.kind != "name" and metadata_read(part) is None):
            return None
        return self._changed(part, serves)

    def _output_with(self, read: Read) -> Output | None:
        """Return the output read for its metadata, or an output surely of the same shape as the input read; else None."""
        names = self.origins.outputs
        # An input and its `like` output share the shape, perhaps not the dtype.
        if set(read.facets) <= {"shape", "ndim"}:
            names = {**self.origins.like, **names}
        return self.outputs[names[read.name]] if read.name in names else None

    def _gradient_has_it(self, output: Output) -> bool:
        """Return whether an output's gradient has its metadata: the gradient is present and not reassigned."""
        name = grad_name(self.spec, output.name)
        return name in self.coming and name not in self.assigned

    def _saved_with(self, read: Read, serves: frozenset[str]) -> str | None:
        """Return a saved tensor surely with the same shape, and of the same dtype if more is read; None without one.

        It must be available wherever the line runs, for all gradients in `serves`. `Traits` have no device: all tensors
        of an op are taken to be on one, except scalars, which PyTorch may take from the CPU; a sure scalar has no traits.
        """
        own = self.origins.traits.get(read.name)
        # The traits are those of the forward, and of a whole tensor.
        if own is None or read.name in self.assigned or read.element:
            return None
        of_shape = set(read.facets) <= {"shape", "ndim"}
        for name, gradients in self.there.items():
            other = self.origins.traits.get(name)
            if other is None or not serves <= gradients:
                continue
            if other == own or of_shape and other.shape == own.shape:
                return name
        return None

    def _of_another(
        self, node: Node, read: Read, name: str, serves: frozenset[str]
    ) -> Node:
        """Return an expression with its metadata read from another available tensor, `name`, surely with the same.

        `x.shape` -> `grad_output.shape`; other reads inside the expression are rewritten as usual.
        """
        other, named = self.graph.name(name), self.graph.name(read.name)

        def change(part: Node) -> Node | None:
            if part is named:
                return other
            return None if part is node else self._changed(part, serves)

        return self.graph.rewrite(node, change)

    def _gradient_to_make_from(self) -> str | None:
        """Return a gradient to make new tensors from, since it has their dtype, device and vmap levels; None if none surely comes in."""
        for output in self.spec.outputs:
            name = grad_name(self.spec, output.name)
            # A variadic output has a list of gradients, which makes no tensors.
            known = output.differentiable and not output.variadic
            if known and name in self.coming:
                return name
        return None

    def _keep(
        self, read: Read, value: Callable[[str], str], output: str | None = None
    ) -> None:
        """Put each facet read on ctx: `value` gives its expression in forward; for an output, the facet's name alone.

        The facet of an output is read from what forward returns, whatever its name.
        """
        for facet in read.facets:
            name = self.names.facet(read.name, facet)
            self.kept[name] = Kept(name, value(facet), output)


def read_of_ctx(lines: Iterable[Statement]) -> frozenset[str]:
    """Return the names on ctx read by lines: `eps` for `ctx.eps`."""
    return frozenset(node.label for node in nodes(*lines) if is_of_ctx(node))


def is_of_ctx(node: Node) -> bool:
    """Return whether it is `ctx.name`, an attribute forward has put on ctx."""
    match node:
        case Node("attribute", _, (Node("name", "ctx"),)):
            return True
    return False


def expression_of(item: TensorInput, facet: str) -> str:
    """Return the facet of an input as an expression for forward, None if the input is absent: `x.shape if x is not None else None`."""
    value = facet_of(item, item.name, facet)
    # `x is not None` needs no test of its own.
    guarded = item.optional and facet != "presence"
    return f"{value} if {item.name} is not None else None" if guarded else value


def facet_of(item: TensorInput | Output, name: str, facet: str) -> str:
    """Return the facet of a tensor called `name` as an expression, `x.shape`; a list of one for each tensor of a variadic one."""
    if facet == "presence":
        return f"{name} is not None"
    if facet == "length":
        return f"len({name})"
    return (
        f"[tensor.{facet} for tensor in {name}]" if item.variadic else f"{name}.{facet}"
    )


def _all_for(
    missing: frozenset[str], spec: OpSpec, handed: Transfer, names: ContextNames
) -> tuple[tuple[Saved, ...], tuple[Kept, ...]]:
    """Return all values an unwritten gradient may want: every attribute, and every input the forward does not change.

    A changed input could be saved only in its later state, under the name of the earlier one.
    """
    served = {item.name: item.serves for item in handed.saved}
    saved = []
    for item in spec.tensors:
        if item.name not in spec.dirty:
            serves = served.get(item.name, frozenset()) | missing
            always = is_vector(item) or is_for_most(spec, serves)
            saved.append(Saved(item.name, "input", serves, item.name, always))
    saved += [item for item in handed.saved if item.source != "input"]
    # Variadic ones last, as in `transfer`.
    saved.sort(key=lambda item: are_several(spec, item))
    kept = {item.name: item for item in handed.kept}
    for attribute in spec.attributes:
        name = names.attribute(attribute.name)
        kept[name] = Kept(name, attribute.name)
    return tuple(saved), tuple(kept.values())


def _watched(
    spec: OpSpec, lines: tuple[Line, ...], missing: frozenset[str]
) -> tuple[str, ...]:
    """Return the outputs whose gradients the backward reads: if all are None, it returns None at once.

    With a gradient still to be written (`missing`), all outputs.
    """
    outputs = [item.name for item in spec.outputs if item.differentiable]
    if missing:
        return tuple(outputs)
    names = read_names(*(line.statement for line in lines))
    return tuple(name for name in outputs if grad_name(spec, name) in names)


def _filled(
    spec: OpSpec, watched: tuple[str, ...], names: ContextNames, alone: bool
) -> tuple[Filled, ...]:
    """Return zeros for watched gradients, if one may be None beside another. Each is made by shape, dtype and device on ctx.

    A sole gradient needs none: if it is None, the backward returns None at once. With `alone` it does not, as an
    unwatched gradient may have come in: then a sole one gets zeros, too.
    """
    # A variadic output has several gradients, each of which may be None.
    several = any(item.variadic for item in spec.outputs if item.name in watched)
    if len(watched) < 2 and not (several or alone):
        return ()
    return tuple(
        Filled(
            name,
            "",
            names.facet(name, "shape"),
            names.facet(name, "dtype"),
            names.facet(name, "device"),
        )
        for name in watched
    )


def _as_saved(item: Filled, saved: Iterable[Saved], origins: Origins) -> Filled:
    """Make the zeros for a gradient like a saved tensor rather than by shape, dtype and device on ctx, if there is one.

    The tensor must be saved for every gradient. If it has the output's shape, nothing is kept on ctx for the zeros;
    an intermediate of another shape gives dtype and device, and the shape comes from ctx.
    """
    # Traits go by the name that the formulas use, perhaps a returned local's.
    named = {output: name for name, output in origins.outputs.items()}
    own = origins.traits.get(named.get(item.output, item.output))
    # Saved in any case, and of the kind of the outputs (`akin`), for their dtype.
    every = [
        other for other in saved if other.always and other.name in origins.incoming.akin
    ]
    for other in every:
        traits = origins.traits.get(other.name)
        alike = own is not None and traits is not None and traits.shape == own.shape
        if alike or origins.like.get(other.name) == item.output:
            return Filled(item.output, other.name)
    locals_ = [other.name for other in every if other.source == "intermediate"]
    if not locals_:
        return item
    shape = "" if item.output in origins.incoming.scalars else item.shape
    return Filled(item.output, locals_[0], shape, scalar=not shape)


def _kept_for(filled: tuple[Filled, ...], kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    """Return the values on ctx to make the zeros from, without those `kept` there already."""
    known = {item.name for item in kept}
    found = []
    for item in filled:
        pairs = ((item.shape, "shape"), (item.dtype, "dtype"), (item.device, "device"))
        # A facet without a name on ctx is that of the tensor `like`.
        found += [Kept(name, facet, item.output) for name, facet in pairs if name]
    return tuple(item for item in found if item.name not in known)
