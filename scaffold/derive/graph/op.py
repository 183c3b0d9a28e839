"""`Op`, an application of a primitive in the graph, its payload, and the `Program` of hash-consed ops.

In: a rule's name, its arguments, and for an op of the engine's own its payload. Out: an `Op`, with the shape and kind
found by the caller. Invariant: two equal applications in one `Program` are the same object, and an op comes after its
arguments.

The forward, its gradients and their simplifications are all ops of one program, so an expression common to several is
met as one object. Words: an op is hash-consed: an equal one made before is returned again. A rule is a primitive's
section in the table, `exp`. A payload is all that an op has besides its arguments. A `static` op is a Python value, a
`group` several results of one call; an op is `active` if a gradient may pass through it. A choice (`cond`) is `a if
test else b`; a `const` is a literal. A cotangent is the gradient of the loss by a value. `facts` are those of the
primitive in the table.
"""

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from types import NoneType
from typing import Literal, NamedTuple

from scaffold.derive.graph import shapes, sizes
from scaffold.derive.graph.shapes import (
    SCALAR,
    Dim,
    Own,
    Shape,
    UnnamedSize,
    unknown,
)
from scaffold.formula import (
    UNKNOWN,
    Graph,
    Node,
    NodeKind,
    Number,
    as_number,
    literal_value,
)
from scaffold.primitives import Facts

# `static` values are Python's, constant within a call; a `group` is several tensors.
Kind = Literal["real", "complex", "int", "bool", "static", "group"]


class Named(NamedTuple):
    """The user's name of an input, a cotangent, or a random value."""

    name: str


class Constant(NamedTuple):
    """A Python literal; its type distinguishes 1, 1.0 and True."""

    type_name: str
    value: Hashable


class Expression(NamedTuple):
    """A Python value read by name or kept as text: a comprehension, a call with keywords."""

    node: Node


class Operator(NamedTuple):
    """An operation on Python values, its arguments: a node of this kind and label."""

    kind: NodeKind
    label: str


class Test(NamedTuple):
    """A test fixed in each call, a Python value: if it holds, the result is the first argument."""

    value: "Op"


class OfShape(NamedTuple):
    """A shape to ask about, or to give the result."""

    shape: Shape


class SizeOf(NamedTuple):
    """A size by its name, read from any tensor with it."""

    dim: Dim


class SummedTo(NamedTuple):
    """The shape of the result, and an input of that shape, if any."""

    shape: Shape
    like: "Op | None"


class Position(NamedTuple):
    """The index of one of several results."""

    at: int


class Template(NamedTuple):
    """A call without a rule, and the placeholder node for each argument."""

    node: Node
    holes: tuple[Node, ...]

    def filled(self, args: "Sequence[Op]") -> dict[Node, "Op"]:
        """Return each argument by its placeholder node in the template."""
        return dict(zip(self.holes, args, strict=True))


class Pullback(NamedTuple):
    """A call differentiated by autograd, and the arguments to differentiate by."""

    call: "Op"
    args: tuple["Op", ...]


Payload = (
    Named
    | Constant
    | Expression
    | Operator
    | Test
    | OfShape
    | SizeOf
    | SummedTo
    | Position
    | Template
    | Pullback
    | None
)
# Ops outside the table, and the payload of each. Ops of the table have none.
ENGINE_OPS: Mapping[str, tuple[type, ...]] = {
    # sources of a graph
    "input": (Named,),
    "cotangent": (Named,),
    "drawn": (Named,),  # a random value that the forward saves
    # Python values
    "const": (Constant,),
    "static": (Expression,),
    "python": (Operator,),  # an operator, a choice or a function of other values
    "list": (NoneType,),  # a tuple or a list with all its items
    "range": (NoneType,),  # `start:end:step` in an index
    "starred": (NoneType,),  # `*sizes`
    "shape": (OfShape,),
    "size": (SizeOf, OfShape),  # of a shape: the dim is the argument
    "rank": (OfShape,),
    "count": (OfShape,),  # the number of elements
    "ratio": (NoneType,),  # the number of elements reduced to one
    "dtype": (NoneType,),
    "lead_dims": (OfShape,),  # all dims but the last
    # parts of a forward without a rule
    "cond": (Test,),
    "item": (Position,),
    "accumulated": (NoneType,),  # a cotangent plus one that may be None
    "call": (Template,),
    "vjp": (Pullback,),
    "jvp": (Pullback,),
    # indexing, dim by dim
    "slice": (NoneType,),
    "index": (NoneType,),
    # values of the backward with a known shape
    "zeros": (OfShape,),
    "ones": (OfShape,),  # in place of a cotangent, replaced by a tangent
    "expanded": (OfShape,),
    "reshaped": (OfShape,),
    "same": (OfShape,),  # its own shape already, in one branch of a choice
    "summed_to": (SummedTo,),
    "fitted_to": (SummedTo,),  # expanded first where its size is 1
    "shaped_like": (NoneType,),
    "unsliced": (OfShape,),  # the gradient of a slice, among zeros
    # code for any rank
    "unless_vector": (NoneType,),
    "unless_scalar": (NoneType,),
    "contracted": (NoneType,),
    "indices": (NoneType,),  # a list of indices as a tensor
    "cast": (NoneType, Named),  # of two dtypes: `torch.promote_types`
}


# Facts about these ops; without an entry, as few as for a call without a rule.
PLAIN = Facts("graph", memory="either", dtype="own")
_SPREAD = Facts("graph", memory="either", linear=True)
_FREE = Facts("graph", passes=0, memory="either", dtype="own")
_DEAR = Facts("graph", passes=8, memory="either", dtype="own")
FACTS: Mapping[str, Facts] = {
    **dict.fromkeys(("input", "drawn", "list"), _FREE),
    "item": _FREE._replace(memory="view"),
    "cond": _SPREAD._replace(passes=0, linear=False),
    "accumulated": Facts("graph", passes=0),
    **dict.fromkeys(
        ("slice", "expanded"), _SPREAD._replace(memory="view", inline="leaf")
    ),
    "zeros": Facts("graph", memory="fresh", inline="leaf"),
    **dict.fromkeys(("reshaped", "unless_vector", "unless_scalar", "same"), _SPREAD),
    **dict.fromkeys(("summed_to", "fitted_to", "index"), _SPREAD),
    "contracted": Facts("graph", passes=8, dtype="uniform"),
    **dict.fromkeys(("call", "vjp", "jvp"), _DEAR),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Op:
    """One application of a primitive, of the table or of `ENGINE_OPS`. Compare ops of one program with `is`."""

    rule: str
    args: tuple["Op", ...]
    data: Payload
    kind: Kind
    shape: Shape
    active: bool  # whether a gradient may pass through it
    serial: int
    facts: Facts  # facts about the primitive

    @property
    def is_tensor(self) -> bool:
        """Return whether it is one tensor: neither a Python value nor several results."""
        return self.kind not in ("static", "group")

    @property
    def value(self) -> object:
        """Return the Python value of a `const`."""
        assert isinstance(self.data, Constant), self.rule
        return self.data.value

    @property
    def name(self) -> str:
        """Return the name of an `input`, a `cotangent` or a `drawn` value."""
        assert isinstance(self.data, Named), self.rule
        return self.data.name

    @property
    def expression(self) -> Node:
        """Return the expression of a `static` value."""
        assert isinstance(self.data, Expression), self.rule
        return self.data.node

    def is_python(self, kind: NodeKind, *labels: str) -> bool:
        """Return whether it is a Python operation of this kind, with one of the labels if given: ("binary", "+") for `n + 1`."""
        return (
            isinstance(self.data, Operator)
            and self.data.kind == kind
            and (not labels or self.data.label in labels)
        )

    @property
    def test(self) -> "Op":
        """Return the test of a `cond`."""
        assert isinstance(self.data, Test), self.rule
        return self.data.value

    @property
    def position(self) -> int:
        """Return the index of an `item` among several results."""
        assert isinstance(self.data, Position), self.rule
        return self.data.at

    @property
    def template(self) -> Template:
        """Return the template of a `call`."""
        assert isinstance(self.data, Template), self.rule
        return self.data

    @property
    def pullback(self) -> Pullback:
        """Return the pullback of a `vjp` or a `jvp`."""
        assert isinstance(self.data, Pullback), self.rule
        return self.data

    @property
    def asked(self) -> Shape:
        """Return the shape an op asks about, as `x.shape` does, or gives its result, as `zeros` does."""
        assert isinstance(self.data, OfShape | SummedTo), self.rule
        return self.data.shape

    @property
    def like(self) -> "Op | None":
        """Return the input with the shape to sum to, for a sum written as its gradient; None without one."""
        assert isinstance(self.data, SummedTo), self.rule
        return self.data.like

    def __repr__(self) -> str:
        return f"%{self.serial}"

    def walk(self) -> Iterator["Op"]:
        """Yield this op and all ops it is computed from, each once."""
        seen, waiting = set[int](), [self]
        while waiting:
            op = waiting.pop()
            if op.serial not in seen:
                seen.add(op.serial)
                yield op
                waiting.extend(reversed(op.args))


@dataclass(frozen=True, slots=True, repr=False)
class ValueOf(UnnamedSize):
    """The size given by a Python value."""

    op: Op

    @property
    def is_of_dim(self) -> bool:
        return False


class Declared(NamedTuple):
    """Declarations in a signature about the names in a forward."""

    optional: frozenset[str] = frozenset()  # inputs that may be None
    never_none: frozenset[str] = frozenset()  # attributes that are never None
    ints: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()  # ints and floats, each a single number
    sequences: frozenset[str] = frozenset()  # tuples and lists
    no_strings: frozenset[str] = frozenset()  # numbers, tuples and lists of them
    bounded: frozenset[str] = frozenset()  # tensors of indices, from 0 on


class Operation(NamedTuple):
    """An operator and its operands, which give a Python value."""

    label: str
    args: tuple[Op, ...]


class Program:
    """The ops of one program: an equal op is made once, and returned again.

    It also knows the forward's Python values: values assigned to locals, operands of computed values, and unpacked
    tuples.
    """

    def __init__(
        self,
        graph: Graph,
        table: Callable[[str], Facts | None],
        declared: Declared | None = None,
    ) -> None:
        """Start without ops; `table` gives the facts about ops of a rule, `declared` what the signature says about names."""
        self.graph, self.table = graph, table
        self.declared = declared or Declared()
        self.ops: list[Op] = []
        # Values a step of the derivation assumes to be real; and arguments of calls for which PyTorch accepts complex values too.
        self.real: set[Op] = set()
        self.real_in_calls: set[Op] = set()
        self._known: dict[tuple[object, ...], Op] = {}
        self._behind: dict[Node, Op] = {}  # a placeholder -> its op
        self._locals: dict[str, Op] = {}  # a name assigned once -> its Python value
        self._operations: dict[Op, Operation] = {}  # noted by `compute`
        self._dtypes: dict[Op, Kind] = {}  # noted by `set_dtype`
        self._sizes: dict[Dim, Op] = {}  # noted by `tell_size`
        self.nonnegative: list[Dim] = []  # differences of sizes, by conditions: `D - R`
        self._unpacked: set[Op] = set()  # noted by `unpack`
        self._facts: dict[str, Facts] = {}  # asked often about few rules

    def facts(self, rule: str) -> Facts:
        """Return the facts about ops of a rule, as `memory` and `linear`: from the table, or for the engine's own ops from `FACTS`."""
        found = self._facts.get(rule)
        if found is None:
            found = self._facts[rule] = self.table(rule) or FACTS.get(rule, PLAIN)
        return found

    def op(
        self,
        rule: str,
        args: Iterable[Op] = (),
        data: Payload = None,
        *,
        kind: Kind = "static",
        shape: Shape | None = SCALAR,
        active: bool = False,
    ) -> Op:
        """Return the op of a rule and its arguments; an equal one made before is returned again.

        `kind`, `shape` and `active` describe a new op only. With `shape=None` it gets an unknown shape, equal to no
        other.
        """
        given = tuple(args)
        key = (rule, given, data)
        found = self._known.get(key)
        if found is None:
            serial = len(self.ops)
            own = unknown(Own(serial)) if shape is None else shape
            found = Op(rule, given, data, kind, own, active, serial, self.facts(rule))
            self._known[key] = found
            self.ops.append(found)
        return found

    def made(self, rule: str, args: Iterable[Op], data: Payload = None) -> Op | None:
        """Return the op of a rule and these arguments if the program has it; None otherwise."""
        return self._known.get((rule, tuple(args), data))

    def over(self, op: Op, args: Iterable[Op]) -> Op:
        """Return the same op with other arguments, of the kind and shape it has; with its own arguments, the op itself."""
        given = tuple(args)
        if given == op.args:
            return op
        made = self.op(
            op.rule, given, op.data, kind=op.kind, shape=op.shape, active=op.active
        )
        # `op` returns an equal op made before, which may have another shape.
        return self.shaped(made, op.shape)

    def shaped(self, op: Op, shape: Shape) -> Op:
        """Return the op with a shape known from elsewhere, as a separate op of the program.

        Inputs, cotangents and Python values are returned unchanged: their shape is the declared one.
        """
        if op.shape == shape or not op.is_tensor or op.rule in ("input", "cotangent"):
            return op
        key = (op.rule, op.args, op.data, shape)
        if key not in self._known:
            made = replace(op, shape=shape, serial=len(self.ops))
            self._known[key] = made
            self.ops.append(made)
        return self._known[key]

    def const(self, value: object) -> Op:
        """Return a Python literal as an op; 1, 1.0 and True stay distinct. A tuple becomes a `list` of such."""
        if isinstance(value, tuple | list):
            return self.op("list", map(self.const, value))
        assert isinstance(value, Hashable)
        return self.op("const", (), Constant(type(value).__name__, value))

    def static(self, node: Node) -> Op:
        """Return an expression with one value in each call as an op: a `const`, a `python` op over ops of its operands, or a `static`.

        A literal printed in another spelling than the user's, as `1e-06`, stays `static`, which has its text.
        """
        behind = self.behind(node)
        if behind is not None:
            return behind
        value = _written_out(node)
        if value is not UNKNOWN:
            return self.const(value)
        # An `Operator` has no place for the names of keywords: a call with some stays text.
        if node.kind in COMPUTED and not node.keywords:
            return self.python(node.kind, node.label, *map(self.static, node.args))
        return self.op("static", (), Expression(node))

    def read(self, name: str) -> Op:
        """Return the Python value of a name; for a tensor's name an op good only to test `x is not None`."""
        return self.static(self.graph.name(name))

    def python(self, kind: NodeKind, label: str, *args: Op) -> Op:
        """Return a Python value computed from others: `python("binary", "+", x, y)` is `x + y`."""
        return self.op("python", args, Operator(kind, label))

    def called(self, function: str, *args: Op) -> Op:
        """Return a call of a function of Python values by its dotted name: `called("math.sqrt", n)` is `math.sqrt(n)`."""
        module, _, name = function.rpartition(".")
        callee = self.graph.name(module or name)
        if module:
            callee = self.graph.node("attribute", name, (callee,))
        return self.python("call", "", self.static(callee), *args)

    def placeholder(self, op: Op) -> Node:
        """Return a node standing for an op inside an expression; the printer replaces it by the op's text.

        For expressions that stay text, as a call without a rule.
        """
        node = self.graph.node("value", str(op.serial))
        self._behind[node] = op
        return node

    def behind(self, node: Node) -> Op | None:
        """Return the op a placeholder node stands for; None for other nodes."""
        return self._behind.get(node) if node.kind == "value" else None

    def items_of(self, op: Op) -> dict[int, Op]:
        """Return the used results of an op with several results: position -> op."""
        items = (item for item in self.ops if item.rule == "item")
        return {item.position: item for item in items if item.args[0] is op}

    def size_of(self, dim: Op) -> Dim:
        """Return a Python value as a size: a number, a named size, arithmetic of sizes, or `ValueOf` for any other value.

        The value is noted for the size, to write the size with (`noted_size`).
        """
        assigned = self.value_of(dim)
        value = literal(assigned)
        # A negative number is no size: -1 leaves the size to PyTorch.
        if isinstance(value, int) and value >= 0:
            return value
        match assigned.data:
            case SizeOf(name):
                return name
            case OfShape(shape) if assigned.rule == "size":
                at = literal(assigned.args[0])
                known = shapes.size(shape, at) if isinstance(at, int) else None
                if known is not None:
                    return known
        size = self._computed_size(dim)
        self.tell_size(size, dim)
        return size

    def _computed_size(self, dim: Op) -> Dim:
        """Return the size of a Python value by the operation noted for it, as `2 * x.shape[-1]`; `ValueOf` without one."""
        match self.operation(dim):
            case Operation(label, (one, two)) if label in ARITHMETIC:
                return ARITHMETIC[label](self.size_of(one), self.size_of(two))
        return ValueOf(dim)

    def tell_size(self, size: Dim, value: Op) -> None:
        """Note a Python value to write an unnamed size with, as no input tells it; of several the first one stays."""
        if isinstance(size, UnnamedSize):
            self._sizes.setdefault(size, value)

    def noted_size(self, size: Dim) -> Op | None:
        """Return the Python value noted for a size; None without one."""
        return self._sizes.get(size)

    # Python values and tuples of the forward

    def local(self, name: Node, value: Op) -> Op:
        """Return the op of a local assigned once, and note the value assigned to it: facts of the value then hold for the name.

        Nothing is noted for `n = n + 1`, where the name on the right means another value.
        """
        if name.label not in names_read(value):
            self._locals[name.label] = value
        return self.static(name)

    def assigned(self, name: str) -> Op | None:
        """Return the Python value of a local assigned once; None if unknown."""
        return self._locals.get(name)

    def value_of(self, op: Op) -> Op:
        """Return the value assigned to a local, followed through `m = n`; any other op unchanged."""
        match op.data:
            case Expression(Node("name", name)) if name in self._locals:
                return self.value_of(self._locals[name])
        return op

    def compute(self, op: Op, label: str, *args: Op) -> None:
        """Note the operation of a Python value: the op keeps the user's text, `z.shape[-1] + 1`, for printing.

        Its meaning, the size of a dim plus 1, is known only to lowering, which has the names of the forward.
        """
        self._operations[op] = Operation(label, args)

    def operation(self, op: Op) -> Operation | None:
        """Return the operation noted for a Python value; None if unknown."""
        return self._operations.get(self.value_of(op))

    def set_dtype(self, op: Op, kind: Kind) -> None:
        """Note the kind of tensors for a Python value used as a dtype: "real" for `torch.float32`."""
        self._dtypes[op] = kind

    def dtype(self, op: Op) -> Kind | None:
        """Return the kind of tensors of a dtype, as noted; None if unknown."""
        return self._dtypes.get(self.value_of(op))

    def unpack(self, op: Op) -> None:
        """Note that the forward unpacks every part of a tuple, so all its parts are known by position."""
        self._unpacked.add(op)

    def is_unpacked(self, op: Op) -> bool:
        """Return whether `unpack` was called for this tuple."""
        return op in self._unpacked


# Arithmetic operators on sizes.
ARITHMETIC: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": sizes.plus,
    "-": sizes.minus,
    "*": sizes.times,
    "//": sizes.quotient,
}
# Kinds of nodes computing a Python value.
COMPUTED = frozenset(
    {"unary", "binary", "compare", "boolean", "conditional", "tuple", "list"}
    | {"attribute", "subscript", "slice", "call"}
)


def _written_out(node: Node) -> object:
    """Return the value of a literal; `UNKNOWN` for others, and if it would be printed otherwise than the user wrote it.

    `1e-06` would be printed as `1e-6`: the user's text is to stay.
    """
    match node:
        case Node("constant", text):
            value = literal_value(text)
            return value if literal_text(value) == text else UNKNOWN
        case Node("unary", "-", (Node("constant") as inner,)):
            number = as_number(_written_out(inner))
            return UNKNOWN if number is None else -number
    return UNKNOWN


def literal_text(value: object) -> str:
    """Return a literal as commonly written: `1e-6` rather than Python's `1e-06`."""
    if not isinstance(value, float):
        return repr(value)
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if mark else digits


def names_read(op: Op) -> frozenset[str]:
    """Return the names a Python value is computed from."""
    read = (item.expression.names() for item in op.walk() if item.rule == "static")
    return frozenset[str]().union(*read)


def literal(op: Op) -> object:
    """Return the Python value of a `const` or a list of them, as a tuple; `UNKNOWN` for any other op, as only the call tells."""
    if op.rule == "const":
        return op.value
    if op.rule == "list":
        values = tuple(literal(arg) for arg in op.args)
        return UNKNOWN if UNKNOWN in values else values
    return UNKNOWN


def number(op: Op) -> Number | None:
    """Return the number of a `const` op; None for any other op, and for True or a string."""
    return as_number(op.value) if op.rule == "const" else None


def is_number(op: Op, value: Number) -> bool:
    """Return whether an op is exactly that number, as a literal: 1 and 1.0 count as equal."""
    return number(op) == value


def down_to(roots: Iterable[Op], stops: Collection[Op]) -> Iterator[Op]:
    """Yield some ops and everything they are computed from, each once; the `stops` are yielded too, nothing below them alone.

    With the values that have a name as `stops`, these are the ops that a backward has to compute.
    """
    seen, waiting = set[Op](), list(roots)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            yield op
            if op not in stops:
                waiting += op.args


def unlisted(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield some arguments, and in the place of a list its items: `torch.cat([x, y], 0)` -> x, y, 0."""
    for op in ops:
        if op.rule == "list":
            yield from unlisted(op.args)
        else:
            yield op


def tensors(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield the tensors among arguments, including those in lists."""
    return (op for op in unlisted(ops) if op.is_tensor)
