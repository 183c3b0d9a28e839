"""Print ops as expressions in lines of the backward: the op `mul(cos(x), g)` -> the node of `x.cos() * g`.

`statements` decides which ops get a line and a name; this module writes what stands in a line.

In: an op, and the names of values that have one. Out: a formula's node. Invariant: it has the op's value; each primitive is spelled
as its rule says, without default arguments; a size is read from a tensor that lives on anyway, if there is one; products keep the
order of their factors, at no greater cost.

Words: `names` are those in the lines of the backward, `holders.held` those of the forward's values. `owners` has for each shape the
values to read it from; such a value without a name is `asked` for, so that it gets one. A need is a condition for computing a
value: an input to be present, or the outcome of a test. A `scope` is the branches around a line. A placeholder is a name in a
Python expression of the user's for a value that is an op, such as a size. An op without a rule in the table is the engine's own
(`expanded`, `unsliced`); its writer is a method here, listed in `WRITERS`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scaffold.derive.graph import shapes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import (
    Op,
    Operator,
    Program,
    SizeOf,
    is_number,
    literal,
    number,
    tensors,
)
from scaffold.derive.graph.shapes import (
    Axis,
    Broadcast,
    Dim,
    Dropped,
    Kept,
    OrScalar,
    Shape,
    Squeezed,
    Transposed,
    Unsqueezed,
    UnwrittenAxis,
)
from scaffold.derive.graph.static_values import (
    COMPARISONS,
    NO_SHAPE,
    UnsupportedError,
    number_node,
)
from scaffold.derive.rules.call_bindings import Parameter, Spelling
from scaffold.derive.rules.table import Rule
from scaffold.derive.write.dialect import ALONG, PLAIN, Dialect
from scaffold.derive.write.in_place import InPlace, Temporaries
from scaffold.derive.write.schedule import SHAPED, Need, Outcome, meets
from scaffold.derive.write.shape_sources import Holders, UnknownShapeError
from scaffold.formula import Graph, Node

# Arguments passed by position.
POSITIONAL = frozenset({"dim", "dims", "dim0", "dim1", "alpha", "shape"})
SIGNS = {"mul": "*", "div": "/"}

# The values with a given shape, each with its needs.
Owners = dict[Shape, list[tuple[Op, frozenset[Need]]]]
# Ops that need a shape, or have none to be read.
OF_A_SHAPE = SHAPED | {"vjp", "shaped_like", "count", "ones"}


def shape_owners(program: Program, needs: Callable[[Op], frozenset[Need]]) -> Owners:
    """Map each shape to the values to read it from, each with the conditions for computing it.

    A value that itself needs a shape is left out, as it could ask for its own; so is a value that is a number in some calls.
    """
    owners: Owners = {}
    asking, numbers = set[Op](), set[Op]()
    for op in program.ops:  # each after its arguments
        may_be_scalar = isinstance(op.shape.origin, OrScalar) and bool(op.args)
        # A choice has a number in a branch; any other op is one if all its tensors may be.
        if may_be_scalar and (
            op.rule == "cond" or numbers.issuperset(tensors(op.args))
        ):
            numbers.add(op)
        if op.rule in OF_A_SHAPE or not asking.isdisjoint(op.args):
            asking.add(op)
        elif op.is_tensor and op not in numbers:
            owners.setdefault(op.shape, []).append((op, needs(op)))
    return owners


class Scope(NamedTuple):
    """The branches around a line: they decide which values can be read there."""

    gradient: str | None = None  # the optional input whose test guards the line
    tests: tuple[Outcome, ...] = ()


ANYWHERE = Scope()


class Printer:
    """A writer of ops as expressions; `names` are those of locals of forward and backward.

    Printers of one backward that differ only in scope share the cache `written`: (op, scope) -> its expression. `dialect` has the
    forward's spellings.
    """

    def __init__(
        self,
        applier: Applier,
        holders: Holders,
        names: Mapping[Op, str],
        owners: Owners,
        asked: set[Op],
        temporaries: Temporaries | None = None,
        scope: Scope = ANYWHERE,
        written: dict[tuple[Op, Scope], Node] | None = None,
        dialect: Dialect = PLAIN,
    ) -> None:
        """Begin with the names of values, and the sources of shapes; values whose shape is read are added to `asked`.

        `temporaries` may be written in place, if given; `written` keeps the expressions printed in each scope.
        """
        self.applier, self.program = applier, applier.program
        self.dialect = dialect
        self.graph: Graph = self.program.graph
        self.holders = holders.for_gradient_of(scope.gradient)
        self.names, self.owners, self.asked = names, owners, asked
        self.temporaries, self.scope = temporaries, scope
        self.in_place: InPlace | None = None
        if temporaries is not None:
            self.in_place = InPlace(self.graph, self.node, self.by_rule, temporaries)
        self.written = {} if written is None else written

    def in_scope(self, scope: Scope) -> "Printer":
        """Return a printer of the same values in another scope, for a line under other tests."""
        common = self.applier, self.holders, self.names, self.owners, self.asked
        return Printer(*common, self.temporaries, scope, self.written, self.dialect)

    def still_written(self, names: Mapping[Op, str]) -> dict[tuple[Op, Scope], Node]:
        """Return the cached expressions still right if values have the other `names`: a next attempt need not print them again."""
        both = self.names.keys() | names.keys()
        others = {op for op in both if self.names.get(op) != names.get(op)}
        changed: dict[Op, bool] = {}

        def reads_another(op: Op) -> bool:
            """Return whether a name in the expression of an op has changed."""
            if op not in changed:
                # The name of an argument hides whatever is below it.
                changed[op] = any(
                    arg in others or arg not in names and reads_another(arg)
                    for arg in op.args
                )
            return changed[op]

        return {
            key: node for key, node in self.written.items() if not reads_another(key[0])
        }

    def node(self, op: Op) -> Node:
        """Return an op's name, or else its expression."""
        if op in self.names:
            return self.graph.name(self.names[op])
        return self.expression(op)

    def expression(self, op: Op) -> Node:
        """Return the op's expression, even if it has a name: to assign it to that name."""
        # Cached: a line is printed several times, to measure it and its parts.
        key = (op, self.scope)
        if key not in self.written:
            self.written[key] = self._expression(op)
        return self.written[key]

    def _expression(self, op: Op) -> Node:
        """Return an op's expression: in place or as `torch.addcmul` if possible, else by its writer or its rule."""
        if self.in_place is not None and (over := self.in_place(op)) is not None:
            return over
        fused = self.dialect.fused.get(op)
        # A product with a name is read by it, so there is nothing to fuse.
        if fused is not None and fused[0] not in self.names:
            product, other = fused
            nodes = map(self.node, (other, *product.args))
            return self.function("torch.addcmul", *nodes)
        writer = WRITERS.get(op.rule)
        return self.by_rule(op) if writer is None else writer(self, op)

    def by_rule(self, op: Op) -> Node:
        """Return the expression as spelled by the op's rule, or in the forward's dialect; raise `UnsupportedError` without a rule."""
        rule = self.applier.table.of_op(op.rule)
        if rule is None:
            raise UnsupportedError(f"{op.rule} cannot be written down")
        # The forward's spelling for it: `x.t()` is one for `x.mT` of a matrix only.
        way = self.dialect.ways.get(op.rule)
        if way is not None and (not way.of_matrix or op.args[0].shape.rank == 2):
            other = self.applier.table.rule(way.rule)
            values = map(self.program.const, way.values)
            return self.spelled(other.spelled, (op.args[0], *values))
        along = rule.category in ALONG
        args = self._with_dim_counted(op, rule) if along else op.args
        return self.spelled(rule.spelled, args, along)

    def _with_dim_counted(self, op: Op, rule: Rule) -> tuple[Op, ...]:
        """Return the arguments of an op, its `dim` counted as in the forward: from the start, 1, or from the end, -1."""
        rank = op.args[0].shape.rank if op.args and op.args[0].is_tensor else None

        def counted(name: str, arg: Op) -> Op:
            """Return a dim argument counted as in the forward; other arguments stay."""
            dims = literal(arg)
            if name != "dim" or not isinstance(dims, int | tuple):
                return arg
            return self.program.const(self.dialect.counted(dims, rank))

        names = (item.name for item in rule.parameters)
        return tuple(map(counted, names, op.args))

    def _attribute(self, value: Node, label: str) -> Node:
        return self.graph.node("attribute", label, (value,))

    def method(self, value: Node, label: str, *args: Node) -> Node:
        """Return `value.label(args)`."""
        return self.graph.node("call", "", (self._attribute(value, label), *args))

    def function(self, path: str, *args: Node, keywords: tuple[str, ...] = ()) -> Node:
        """Return `torch.path(args)`; the keywords name the last arguments."""
        first, *rest = path.split(".")
        callee = self.graph.name(first)
        for label in rest:
            callee = self._attribute(callee, label)
        return self.graph.node("call", "", (callee, *args), keywords)

    # Rules

    def _call(self, op: Op) -> Node:
        """Return a call of the forward for which the table has no rule, its arguments written as in the backward.

        A hole of its template is filled with an argument; a placeholder in it with a size.
        """
        holes = op.template.filled(op.args)

        def filled(node: Node) -> Node | None:
            arg = holes.get(node)
            return self._placeholder(node) if arg is None else self.node(arg)

        return self.graph.rewrite(op.template.node, filled)

    def spelled(
        self, spelling: Spelling, args: tuple[Op, ...], along: bool = False
    ) -> Node:
        """Return a primitive's expression as its rule spells it: an operator, an attribute, a method or a function.

        With `along` it works along dims, and `dim` is passed by keyword if the forward does that.
        """
        if spelling.kind == "operator":
            nodes = tuple(map(self.node, args))
            if len(nodes) == 1:
                return self._signed(spelling.name, nodes[0])
            kind = "compare" if spelling.name in COMPARISONS else "binary"
            return self.graph.node(kind, spelling.name, nodes)  # type: ignore[arg-type]
        if spelling.kind == "attribute":
            return self._attribute(self.node(args[0]), spelling.name)
        pairs = list(zip(spelling.parameters, args, strict=True))
        if spelling.kind == "method":
            callee = self._attribute(self.node(args[0]), spelling.name)
            # The first argument stands before the dot.
            return self._called(callee, pairs[1:], along)
        return self._called(self.function(spelling.name).args[0], pairs, along)

    def _signed(self, label: str, value: Node) -> Node:
        """Return a signed value, the sign on the first factor of a product: `-a * b` for `-(a * b)`; two minus signs cancel."""
        if label == "-" and value.kind == "unary" and value.label == "-":
            return value.args[0]
        # A sign binds tighter than a product anyway: no brackets are needed.
        if label == "-" and value.kind == "binary" and value.label in ("*", "/"):
            left, right = value.args
            return self.graph.node(
                "binary", value.label, (self._signed("-", left), right)
            )
        return self.graph.node("unary", label, (value,))

    def _called(
        self,
        callee: Node,
        pairs: list[tuple[Parameter, Op]],
        along: bool,
    ) -> Node:
        """Return a call without default arguments: `pairs` has each parameter with its argument.

        After one left out, arguments are passed by keyword, as are booleans and options; of `torch.linalg` even `dim`, with `along`
        `dim` if the forward does that. `min` and `max` of a clamp are positional if both are given.
        """
        args, named, skipped = list[Node](), list[tuple[str, Node]](), False
        bounds = [op for parameter, op in pairs if parameter.name in ("min", "max")]
        has_both = len(bounds) == 2 and all(literal(op) is not None for op in bounds)
        of_linalg = bool(callee.args) and callee.args[0].label == "linalg"
        by_keyword = {
            parameter.name
            for parameter, _ in pairs
            if parameter.default is not None and not has_both
            if of_linalg or parameter.name not in POSITIONAL
        }
        if along and self.dialect.by_keyword:
            by_keyword.add("dim")
        for parameter, op in pairs:
            # Each item of a list is passed for itself; an empty list is passed as `()`.
            if parameter.starred and op.rule == "list" and op.args:
                args += map(self.node, op.args)
            elif parameter.default is not None and self._is_default(
                parameter.default, op
            ):
                # From here on, a position would mean another parameter.
                skipped = True
            elif (
                skipped
                or named
                or parameter.keyword
                or parameter.name in by_keyword
                or isinstance(literal(op), bool)
            ):
                named.append((parameter.name, self.node(op)))
            else:
                args.append(self.node(op))
        names = tuple(name for name, _ in named)
        return self.graph.node(
            "call", "", (callee, *args, *(node for _, node in named)), names
        )

    def _is_default(self, default: Node, op: Op) -> bool:
        """Return whether an argument is the literal its parameter has as default, of the same type: 1.0 is not 1."""
        value = literal(self.applier.default(default))
        own = literal(op)
        return type(value) is type(own) and value == own

    # Python values

    def _input(self, op: Op) -> Node:
        return self.graph.name(op.name)

    _cotangent = _input

    def _const(self, op: Op) -> Node:
        if op.value is ...:
            return self.graph.constant("...")
        return number_node(self.program, op.value)

    def _python(self, op: Op) -> Node:
        """Return a Python expression, `x.ndim - 1`, of its operands."""
        assert isinstance(op.data, Operator)
        return self.graph.node(
            op.data.kind, op.data.label, tuple(map(self.node, op.args))
        )

    def test(self, choice: Op) -> Node:
        """Return the expression of a choice's test."""
        return self.expression(choice.test)

    def placed(self, node: Node) -> Node:
        """Replace the placeholders in an expression by sizes."""
        return self.graph.rewrite(node, self._placeholder)

    def _placeholder(self, node: Node) -> Node | None:
        """Return the size a placeholder stands for, or None if the node is no placeholder: `rewrite` leaves it then."""
        op = self.program.behind(node)
        return None if op is None else self.node(op)

    def _list(self, op: Op) -> Node:
        return self.graph.node("tuple", "", tuple(map(self.node, op.args)))

    # Shapes and their sources

    def shape(self, shape: Shape, like: Op | None = None) -> Node:
        """Return the expression of a shape: of a tensor in memory anyway, else of a forward value; an input `like` is preferred.

        Tried in this order: `x.shape` or its sizes, of a tensor not among `holders.last`; sizes of views of inputs; tensors among `last`;
        any forward value, which is computed for it.
        """
        try:
            return self.holders.other_shape(shape, like)
        except UnsupportedError:
            found = self._sizes_of_views(shape)
        if found is not None:
            return found
        try:
            return self.holders.shape(shape, like)
        except UnknownShapeError:
            return self._shape_of_value(shape)

    def _shape_of_value(self, shape: Shape) -> Node:
        """Return the shape of a forward value, or the broadcast of such shapes, for a shape no tensor in memory has."""
        match shape.origin:
            # A forward value that has the broadcast shape itself is read instead.
            case Broadcast(parts) if shape not in self.owners:
                several = map(self.shape, parts)
                return self.function("torch.broadcast_shapes", *several)
        return self._attribute(self._value_with(shape), "shape")

    def _sizes_of_views(self, shape: Shape) -> Node | None:
        """Return a shape size by size, some of them of views of inputs, `w[:, :k].shape[1]`; None if one has another source.

        So nothing is computed for it. None, too, if one view has all of the shape: `w[:, :k].shape` is shorter (`_value_with`).
        """
        views = [
            (op, op.shape.dims)
            for several in self.owners.values()
            for op, needs in several
            if op.shape.dims and self._is_view(op) and all(map(self._is_met, needs))
        ]
        is_of_one_view = any(dims == shape.dims for _, dims in views)
        # Leading dims have no size each.
        if shape.dims is None or shape.lead is not None or is_of_one_view:
            return None
        found = []
        for dim in shape.dims:
            try:
                found.append(self.holders.size(dim))
            except UnsupportedError:
                holding = (pair for pair in views if dim in pair[1])
                op, dims = next(holding, (None, ()))
                if op is None:
                    return None
                of_view = self._attribute(self._in_forward_names(op), "shape")
                at = number_node(self.program, dims.index(dim))
                found.append(self.graph.node("subscript", "", (of_view, at)))
        return self.graph.node("tuple", "", tuple(found))

    def _is_view(self, op: Op) -> bool:
        """Return whether a forward value is an input or a view of one: its shape is read without computing anything."""
        if op.rule == "input":
            return True
        return op.facts.takes_no_memory and self._is_view(op.args[0])

    def _owner(self, shape: Shape) -> Op | None:
        """Return a forward value with a shape, present in this scope; best one needing the optional input whose gradient is written."""
        several = self.owners.get(shape, ())
        for met in (self._is_current, self._is_met):
            for op, needs in several:
                if all(map(met, needs)):
                    return op
        return None

    def _value_with(self, shape: Shape) -> Node:
        """Return a forward value with a shape; if there is none, one made from a value of another shape."""
        owner = self._owner(shape)
        return self._by_base(shape) if owner is None else self._over_forward(owner)

    def _is_current(self, need: Need) -> bool:
        """Return whether a need is the optional input whose gradient this line computes: it is present here."""
        return self.scope.gradient == need

    def _is_met(self, need: Need) -> bool:
        """Return whether a need is met where the line stands: by a test around it, or as it is the optional input of this gradient."""
        met = any(meets(outcome, need) for outcome in self.scope.tests)
        return met or self._is_current(need)

    def _by_base(self, shape: Shape) -> Node:
        """Return a value with the shape, made from a value of the shape it is derived from: `x.mT`.

        Raise `UnsupportedError` for a shape that came about in another way.
        """
        match shape.origin:
            case Unsqueezed(base, int() | UnwrittenAxis() as dim):
                return self._viewed(base, "unsqueeze", dim)
            case Squeezed(base, int() as dim):
                return self._viewed(base, "squeeze", dim)
            case Transposed(base, dims) if dims == {-2, -1}:
                return self._attribute(self._value_with(base), "mT")
            case Transposed(base, dims) if len(dims) == 2:
                return self._viewed(base, "transpose", *sorted(dims))
            case Dropped(base, (int(), *_) as dims) | Kept(base, (int(), *_) as dims):
                callee = self._attribute(self._value_with(base), "sum")
                at = self.program.const(dims[0] if len(dims) == 1 else dims)
                keepdim = self.program.const(isinstance(shape.origin, Kept))
                args = (callee, self.node(at), self.node(keepdim))
                return self.graph.node("call", "", args, ("keepdim",))
        raise UnsupportedError(NO_SHAPE)

    def _viewed(self, base: Shape, label: str, *dims: Axis) -> Node:
        """Return a view of a value with the `base` shape: `x.unsqueeze(0)`, `label` is the method."""
        return self.method(self._value_with(base), label, *map(self._axis, dims))

    def _axis(self, dim: Axis) -> Node:
        """Return a dim as an expression: a number, or a Python value that only the call tells."""
        if isinstance(dim, int):
            return number_node(self.program, dim)
        assert isinstance(dim.value, Op)
        return self.node(dim.value)

    def _over_forward(self, op: Op) -> Node:
        """Return a forward value in the forward's names alone: a name of the backward may be assigned only later.

        A value without a name is asked for: it gets one in the next attempt.
        """
        if op not in self.holders.held:
            self.asked.add(op)
        return self._in_forward_names(op)

    def _in_forward_names(self, op: Op) -> Node:
        """Return a forward value as an expression over the forward's names."""
        holders, owners = self.holders, self.owners
        common = self.applier, holders, holders.held, owners, self.asked
        printer = Printer(*common, scope=self.scope, dialect=self.dialect)
        return printer.node(op)

    def _size(self, op: Op) -> Node:
        """Return the expression of a `size` op: of a size known by its name or origin, else of one dim of a shape."""
        if isinstance(op.data, SizeOf):
            return self.size(op.data.dim)
        return self.size_along(self.shape(op.asked), op.args[0])

    def size_along(self, shape: Node, dim: Op) -> Node:
        """Return the size of one dim in a shape: `x.shape[0]`, or an entry of a shape written as a tuple."""
        sizes, at = shape.args, number(dim)
        # In `(*x.shape[:-1], 1)` positions of the tuple are no dims.
        plain = shape.kind == "tuple" and all(size.kind != "starred" for size in sizes)
        if plain and isinstance(at, int) and -len(sizes) <= at < len(sizes):
            return sizes[at]
        return self.graph.node("subscript", "", (shape, self.node(dim)))

    def size(self, dim: Dim) -> Node:
        """Return the expression of a size; of an optional input's, only if a test around the line shows it is present."""
        try:
            return self.holders.size(dim)
        except UnsupportedError:
            present = (op for op in self.holders.optional if self._is_met(op.name))
            found = self.holders.read_size(dim, present)
            if found is None:
                raise
            return found

    def _dtype(self, op: Op) -> Node:
        """Return `x.dtype`; a value without a name is asked for, so it gets one in the next attempt."""
        (value,) = op.args
        if value not in self.names:
            self.asked.add(value)
        return self._attribute(self.node(value), "dtype")

    def _ratio(self, op: Op) -> Node:
        """Return how many elements a reduction combines into one, the divisor of a mean: `x.numel() // max(y.numel(), 1)`."""
        total, result = op.args
        numel = self.method(self._over_forward(result), "numel")
        one = self.graph.constant("1")  # an empty result must not divide by 0
        result_count = self.graph.node("call", "", (self.graph.name("max"), numel, one))
        return self.graph.node("binary", "//", (self.node(total), result_count))

    def _of_tensor(self, op: Op, label: str) -> Node:
        """Return `x.ndim` or `x.numel()`, as `label` says, of a tensor with the shape the op asks about."""
        try:
            return self.holders.of_tensor(op.asked, label)
        except UnknownShapeError:
            found = self._attribute(self._value_with(op.asked), label)
            return self.graph.node("call", "", (found,)) if label == "numel" else found

    # Products and new dims in their usual spelling: `2 * g * x`, `x[..., None, None]`

    def _times(self, a: Op, b: Op) -> Node:
        """Return `a * (b * c)` as `a * b * c`, unless that broadcasts earlier, and so computes on larger tensors.

        A quotient of the forward stays whole: in `g * x / y` a product may overflow where `x / y` does not.
        """
        stays = b in self.names or _is_forward_quotient(b)
        if not stays and b.rule in SIGNS and self._as_cheap(a, b):
            first, last = b.args
            return self._joined(SIGNS[b.rule], self._times(a, first), self.node(last))
        return self._joined("*", self.node(a), self.node(b))

    def _joined(self, label: str, left: Node, right: Node) -> Node:
        return self.graph.node("binary", label, (left, right))

    def _as_cheap(self, a: Op, b: Op) -> bool:
        """Return whether `a * b`, `b` a product, may begin with `a` times its first factor: that is no larger than `b`.

        A number `a` makes nothing larger; a product `b` of Python values stays whole.
        """
        if a.kind == "static":
            return b.kind != "static"
        first = b.args[0]
        return first.is_tensor and shapes.fits(
            shapes.broadcast(a.shape, first.shape), b.shape
        )

    def _unsqueeze(self, op: Op) -> Node:
        """Return several new dims as one index: `x.unsqueeze(-1).unsqueeze(-1)` -> `x[..., None, None]`; one alone as a call."""
        dims, inner = [literal(op.args[1])], op.args[0]
        while inner.rule == "unsqueeze" and inner not in self.names:
            dims.insert(0, literal(inner.args[1]))
            inner = inner.args[0]
        # All `unsqueeze` calls inside that have no name are written as one index.
        index = index_of(dims) if len(dims) > 1 else None
        if index is None:
            return self.method(
                self.node(op.args[0]), "unsqueeze", self.node(op.args[1])
            )
        graph, absent = self.graph, self.graph.node("absent")
        words = {
            ":": graph.node("slice", "", (absent,) * 3),
            "...": graph.constant("..."),
            "None": graph.constant("None"),
        }
        return self._indexed(self.node(inner), [words[part] for part in index])

    # Values in a known shape, choices, code for any rank

    def _expanded(self, op: Op) -> Node:
        """Return `g.expand_as(x)` if the shape is written `x.shape`, else `g.expand(shape)`."""
        shape = self.shape(op.asked)
        value = self.node(op.args[0])
        if shape.kind == "attribute" and shape.label == "shape":
            return self.method(value, "expand_as", shape.args[0])
        return self.method(value, "expand", shape)

    def _reshaped(self, op: Op) -> Node:
        shape = self.shape(op.asked)
        return self.method(self.node(op.args[0]), "reshape", shape)

    def _summed_to(self, op: Op) -> Node:
        return self.method(
            self.node(op.args[0]), "sum_to_size", self._shape_to_sum_to(op)
        )

    def _shape_to_sum_to(self, op: Op) -> Node:
        return self.shape(op.asked, op.like)

    def _fitted_to(self, op: Op) -> Node:
        """Return `g.expand(torch.broadcast_shapes(g.shape, x.shape)).sum_to_size(x.shape)`: `g` may be smaller or larger than `x`."""
        value, shape = self.node(op.args[0]), self._shape_to_sum_to(op)
        value_shape = self._attribute(value, "shape")
        both = self.function("torch.broadcast_shapes", value_shape, shape)
        return self.method(self.method(value, "expand", both), "sum_to_size", shape)

    def _shaped_like(self, op: Op) -> Node:
        """Return `g.reshape(x.shape)` for a reduction `x` with kept dims, known by the call alone: nothing else has its shape."""
        g, like = op.args
        shape = self._attribute(self._over_forward(like), "shape")
        return self.method(self.node(g), "reshape", shape)

    def _indices(self, op: Op) -> Node:
        """Return a list of indices as a tensor, on the device of another value: `torch.tensor([0, 2], device=x.device)`."""
        values, like = op.args
        device = self._attribute(self._named_like(like), "device")
        return self.function(
            "torch.tensor", self.node(values), device, keywords=("device",)
        )

    def _zeros(self, op: Op) -> Node:
        """Return `torch.zeros_like(x)`, or `x.new_zeros(shape)` if the shape is not that of `x`; `x` gives the dtype and the device."""
        shape = self.shape(op.asked)
        like = self._named_like(op.args[0])
        source = op.args[0]
        # Equal expressions are one node of the graph, so `is` compares them.
        written_as_its = shape.kind == "attribute" and shape.args[0] is like
        # The shape may be read from another tensor than `like`, though `like` has it too.
        has_shape = source.shape == op.asked and self.node(source) is like
        if written_as_its or has_shape:
            return self.function("torch.zeros_like", like)
        return self.method(like, "new_zeros", shape)

    def _named_like(self, op: Op) -> Node:
        """Return an expression with the dtype and device of a value: its name, else an incoming gradient of its kind, else the value.

        Nothing else of it is read, so it should not be computed for that.
        """
        if op in self.names or op.rule in ("input", "cotangent"):
            return self.node(op)
        # An incoming gradient is there anyway.
        for other in self.holders.sure:
            if other.rule == "cotangent" and other.kind == op.kind:
                return self.node(other)
        return self.node(op)

    def _starred(self, op: Op) -> Node:
        return self.graph.node("starred", "", (self.node(op.args[0]),))

    def _cast(self, op: Op) -> Node:
        """Return `value.to(like.dtype)`; with `promote_types` as the op's data, a cast to the wider dtype of the two."""
        value, like = map(self.node, op.args)
        if op.data is None:
            return self.method(value, "to", self._attribute(like, "dtype"))
        dtypes = (self._attribute(item, "dtype") for item in (value, like))
        widest = self.method(self.graph.name("torch"), op.name, *dtypes)
        return self.method(value, "to", widest)

    def _item(self, op: Op) -> Node:
        index = self.graph.constant(str(op.position))
        return self.graph.node("subscript", "", (self.node(op.args[0]), index))

    def _cond(self, op: Op) -> Node:
        """Return a choice as an expression, `body if test else orelse`."""
        body, orelse = (self._arm(op, at) for at in (0, 1))
        if body is orelse:  # one call, with a rule for each case
            return body
        return self.graph.node("conditional", "", (self.test(op), body, orelse))

    def _arm(self, choice: Op, at: int) -> Node:
        """Return a branch's value, `at` 0 or 1; a shape unknown outside the test is read from values present under it."""
        value = choice.args[at]
        try:
            return self.branch(choice, value)
        except UnsupportedError:
            gradient, tests = self.scope
            inner = Scope(gradient, (*tests, (choice.test, at)))
            return self.in_scope(inner).branch(choice, value)

    def branch(self, choice: Op, value: Op) -> Node:
        """Return the value of one branch of `choice`, as it stands in an `if`; a 0 where the other branch is a tensor becomes zeros.

        `grad_output.new_zeros(x.shape)`: a gradient must be a tensor in each branch.
        """
        if is_number(value, 0) and choice.is_tensor:
            for other in self.holders.sure:
                if other.rule == "cotangent" and other.kind == choice.kind:
                    shape = self._shape_or_empty(choice)
                    return self.method(self.node(other), "new_zeros", shape)
        return self.node(value)

    def _shape_or_empty(self, op: Op) -> Node:
        """Return the shape of a value for `new_zeros`; `()`, which broadcasts, if the shape is unknown."""
        try:
            return self.shape(op.shape)
        except UnsupportedError:
            return self.graph.node("tuple")

    def _lead_dims(self, op: Op) -> Node:
        """Return all dims but the last as a list: `[0, 1]`, or `list(range(x.ndim - 1))` for an unknown rank.

        The gradient of a weight sums over them.
        """
        rank = op.asked.rank
        if rank is not None:
            numbers = (self.graph.constant(str(at)) for at in range(rank - 1))
            return self.graph.node("list", "", tuple(numbers))
        ndim = self._of_tensor(op, "ndim")
        last = self.graph.node("binary", "-", (ndim, self.graph.constant("1")))
        dims = self.graph.node("call", "", (self.graph.name("range"), last))
        return self.graph.node("call", "", (self.graph.name("list"), dims))

    def _unless_vector(self, op: Op) -> Node:
        """Return `g.unsqueeze(-2) if x.ndim == 1 else g`: the gradient of a product with a vector lacks the dim of rows."""
        value, other, ndim = map(self.node, op.args)
        test = self.graph.node("compare", "==", (ndim, self.graph.constant("1")))
        return self.graph.node("conditional", "", (test, other, value))

    def _unless_scalar(self, op: Op) -> Node:
        """Return `g.unsqueeze(-1) if x.ndim else g`: a reduced dim is restored, unless `x` is a number and had none."""
        value, other, ndim = map(self.node, op.args)
        return self.graph.node("conditional", "", (ndim, value, other))

    def _contracted(self, op: Op) -> Node:
        left, right, *dims = map(self.node, op.args)
        pair = self.graph.node("tuple", "", tuple(dims))
        return self.function("torch.tensordot", left, right, pair, keywords=("dims",))

    def _einsum(self, op: Op) -> Node:
        """Return `torch.einsum(equation, *operands)`."""
        equation, operands = op.args
        return self.function(
            "torch.einsum", self.node(equation), *map(self.node, operands.args)
        )

    # Indexing

    def _slice(self, op: Op) -> Node:
        value, dim, *bounds = op.args
        return self._subscripted(value, literal(dim), self._range(bounds))

    def _range(self, bounds: list[Op]) -> Node:
        """Return a slice, `1::2`, from its start, end and step; a None among them is left out."""
        absent = self.graph.node("absent")
        parts = (
            absent if literal(item) is None else self.node(item) for item in bounds
        )
        return self.graph.node("slice", "", tuple(parts))

    def _select(self, op: Op) -> Node:
        value, dim, index = op.args
        return self._subscripted(value, literal(dim), self.node(index))

    def _subscripted(self, value: Op, dim: object, part: Node) -> Node:
        """Return `value[..., part]` with the part at a dim, joined to an index already there: `x[:, 1][:, 0]` -> `x[:, 1, 0]`.

        Raise `UnsupportedError` for a dim that is no literal.
        """
        if not isinstance(dim, int):
            raise UnsupportedError("an index at a dim that is not written out")
        absent = self.graph.node("absent")
        colon = self.graph.node("slice", "", (absent,) * 3)
        dots = self.graph.constant("...")
        node, found = self.node(value), None
        # A negative dim is counted from the end, behind `...`.
        start = [dots] if dim < 0 else []
        # The value is a part itself, written with an index: extend that, if it can be.
        if value.rule in ("select", "slice") and node.kind == "subscript":
            inner = node.args[1]
            parts = [*inner.args] if inner.kind == "tuple" else [inner]
            # Both indices must count from the same end: with dots in front, or without any.
            if parts[: len(start)] == start and (start or dots not in parts):
                found = _with_part(parts, colon, dim, part)
        if found:  # joined: index the inner value
            node = node.args[0]
        else:
            # Never None here: no dim has a part yet.
            found = _with_part(start, colon, dim, part) or []
        return self._indexed(node, found)

    def _indexed(self, value: Node, parts: Sequence[Node]) -> Node:
        """Return `value[part]`, or `value[part, part]` for several."""
        tuple_ = self.graph.node("tuple", "", tuple(parts))
        index = parts[0] if len(parts) == 1 else tuple_
        return self.graph.node("subscript", "", (value, index))

    def _index(self, op: Op) -> Node:
        """Return an index by tensors: `x[index]`, or `x[rows, columns]`, with slices among the parts."""
        value, *parts = op.args
        nodes = tuple(
            self._range(list(part.args)) if part.rule == "range" else self.node(part)
            for part in parts
        )
        is_of_numbers = parts[0].rule == "list" and not any(
            item.is_tensor for item in parts[0].args
        )
        if len(nodes) == 1 and is_of_numbers:  # `x[[0, 1]]` differs from `x[0, 1]`
            nodes = (self.graph.node("list", "", nodes[0].args),)
        return self._indexed(self.node(value), nodes)


def index_of(dims: list[object]) -> list[str] | None:
    """Return the index that adds new dims one after another, `x[..., None]` for [-1], as its parts `["...", "None"]`.

    `dims` are those of the `unsqueeze` calls, the inner one first. None if they count from both ends, as no index does.
    """
    plain = [dim for dim in dims if isinstance(dim, int)]
    if len(plain) < len(dims) or min(plain) < 0 <= max(plain):
        return None
    # From the nearest end on, `:` for each dim that was there.
    parts: list[str] = []
    for dim in plain:
        at = -dim - 1 if dim < 0 else dim
        # Nothing is added for a negative difference: the new dim stands among known ones.
        parts += [":"] * (at - len(parts))
        parts.insert(at, "None")
    return ["...", *reversed(parts)] if plain[0] < 0 else parts


def _with_part(
    parts: Sequence[Node], colon: Node, dim: int, part: Node
) -> list[Node] | None:
    """Return an index with one more part, at a dim of the partly indexed value; None if that dim has a part already.

    `x[:, 1]`, dim 1, `0` -> `x[:, 1, 0]`: a number has taken its dim away, only slices count. A `colon`, all of a dim, is no part. A
    negative dim stands behind `...`, and is counted from the end.
    """
    ordered = [*parts[:0:-1]] if dim < 0 else [*parts]  # from the end, without the dots
    slices = [at for at, item in enumerate(ordered) if item.kind == "slice"]
    count = -dim - 1 if dim < 0 else dim
    # The index does not reach the dim: those between are taken whole.
    if count >= len(slices):
        ordered += [colon] * (count - len(slices)) + [part]
    elif ordered[slices[count]] == colon:
        ordered[slices[count]] = part
    else:
        return None
    return [parts[0], *ordered[::-1]] if dim < 0 else ordered


# --- The gradient of a slice: `g` placed into zeros, so that double backward and vmap work. An `unsliced` op has as arguments
# `g`, the dim, and the bounds of the slice: start, end, step. Its shape is that of the tensor that was sliced.


def unsliced(printer: Printer, op: Op) -> Node:
    """Return the gradient of a slice: `torch.slice_scatter(g.new_zeros(x.shape), g, dim=1, end=2)`."""
    g, dim, start, end, step = op.args
    if g.kind == "complex":
        return _slice_backward(printer, op)
    zeros = printer.method(printer.node(g), "new_zeros", printer.shape(op.shape))
    args, keywords = [zeros, printer.node(g)], []
    for name, item in (("dim", dim), ("start", start), ("end", end), ("step", step)):
        # None and dim 0 are the defaults.
        if literal(item) is not None and not (name == "dim" and is_number(item, 0)):
            keywords.append(name)
            bound = name in ("start", "end")
            args.append(_bound(printer, op, item) if bound else printer.node(item))
    return printer.function("torch.slice_scatter", *args, keywords=tuple(keywords))


def _bound(printer: Printer, op: Op, bound: Op) -> Node:
    """Return a bound of a slice counted from the start, as `vmap` needs: `x.shape[1] - 1` for -1.

    For `-k` with `k` unknown, the part's own size gives it: the end of `x[:-k]` is the size of its gradient `g`.
    """
    value = literal(bound)
    if isinstance(value, int) and value < 0:
        return _before_end(printer, op, -value)
    part, dim, start, end, step = op.args
    # The part's size tells one bound only if the other is known: of `x[-k:]`, of `x[n:-k]`.
    is_other_known = literal(end) is None if bound is start else not _is_negated(start)
    if literal(step) is not None or not (is_other_known and _is_negated(bound)):
        return printer.node(bound)
    graph = printer.graph
    shape = graph.node("attribute", "shape", (printer.node(part),))
    size = graph.node("subscript", "", (shape, printer.node(dim)))
    if bound is start:  # `x[-k:]`
        return graph.node("binary", "-", (_size_along(printer, op), size))
    if not literal(start):  # `x[:-k]`
        return size
    return graph.node("binary", "+", (_bound(printer, op, start), size))


def _is_negated(bound: Op) -> bool:
    return bound.data == Operator("unary", "-")


def _before_end(printer: Printer, op: Op, count: int) -> Node:
    """Return the index `count` before the end of the sliced dim, counted from the start, at least 0: `max(x.shape[1] - 2, 0)`.

    With 1 it is `x.shape[1] - 1`: -1, for an empty dim, selects nothing there, either.
    """
    graph = printer.graph
    number = graph.constant(str(count))
    index = graph.node("binary", "-", (_size_along(printer, op), number))
    if count == 1:
        return index
    return graph.node("call", "", (graph.name("max"), index, graph.constant("0")))


def _size_along(printer: Printer, op: Op) -> Node:
    """Return the size of the sliced dim in the tensor that was sliced, to count a bound from the start."""
    return printer.size_along(printer.shape(op.shape), op.args[1])


def _slice_backward(printer: Printer, op: Op) -> Node:
    """Return the gradient of a complex slice by autograd's own primitive: `slice_scatter` has no derivative for complex tensors."""
    g, dim, *bounds = op.args
    graph, sizes = printer.graph, printer.shape(op.shape)
    # Bounds written out in place of None.
    usual = (graph.constant("0"), _size_along(printer, op), graph.constant("1"))
    given = [
        default if literal(item) is None else printer.node(item)
        for item, default in zip(bounds, usual, strict=True)
    ]
    name, where = "torch.ops.aten.slice_backward", printer.node(dim)
    return printer.function(name, printer.node(g), sizes, where, *given)


def _is_forward_quotient(op: Op) -> bool:
    """Return whether the op is a quotient of tensors, each without an incoming gradient."""
    if op.facts.operator != "/" or not all(arg.is_tensor for arg in op.args):
        return False
    return all(part.rule != "cotangent" for part in op.walk())


# Writers of ops without a table rule, or with another spelling than the rule's.
WRITERS: dict[str, Callable[[Printer, Op], Node]] = {
    "expanded": Printer._expanded,
    "reshaped": Printer._reshaped,
    "summed_to": Printer._summed_to,
    "fitted_to": Printer._fitted_to,
    "shaped_like": Printer._shaped_like,
    "indices": Printer._indices,
    "zeros": Printer._zeros,
    "starred": Printer._starred,
    "same": lambda self, op: self.node(op.args[0]),
    "cast": Printer._cast,
    "item": Printer._item,
    "cond": Printer._cond,
    "lead_dims": Printer._lead_dims,
    "unless_vector": Printer._unless_vector,
    "unless_scalar": Printer._unless_scalar,
    "contracted": Printer._contracted,
    "where": lambda self, op: self.function("torch.where", *map(self.node, op.args)),
    "einsum": Printer._einsum,
    "slice": Printer._slice,
    "select": Printer._select,
    "index": Printer._index,
    "unsliced": unsliced,
    "call": Printer._call,
    "mul": lambda self, op: self._times(*op.args),
    "unsqueeze": Printer._unsqueeze,
    "input": Printer._input,
    "const": Printer._const,
    "static": lambda self, op: self.placed(op.expression),
    "python": Printer._python,
    "list": Printer._list,
    "shape": lambda self, op: self.shape(op.asked),
    "size": Printer._size,
    "rank": lambda self, op: self._of_tensor(op, "ndim"),
    "dtype": Printer._dtype,
    "count": lambda self, op: self._of_tensor(op, "numel"),
    "ratio": Printer._ratio,
    "cotangent": Printer._cotangent,
}
