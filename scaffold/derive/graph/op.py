"""`Op`, an application of a primitive in the graph, what it carries, and the `Program` that makes ops.

In: a rule's name, its arguments, and for an op of the engine's own its payload. Out: an `Op`, whose shape and kind the caller has
worked out. Invariant: two equal applications in one `Program` are the same object, and an op comes after its arguments.
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

from scaffold.derive.graph import sizes
from scaffold.derive.graph.shapes import (
    SCALAR,
    Dim,
    Own,
    Shape,
    UnnamedSize,
    position,
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

# `static` values are Python's, the same throughout a call; a `group` is several tensors.
Kind = Literal["real", "complex", "int", "bool", "static", "group"]


class Named(NamedTuple):
    """What the user calls an input, a cotangent, or a random value."""

    name: str


class Constant(NamedTuple):
    """A Python literal; its type tells 1, 1.0 and True apart."""

    type_name: str
    value: Hashable


class Expression(NamedTuple):
    """A Python value that is read by its name, or that only its text tells: a comprehension, a call with keywords."""

    node: Node


class Operator(NamedTuple):
    """What is computed of Python values, which are the arguments: a node of that kind and label."""

    kind: NodeKind
    label: str


class Test(NamedTuple):
    """A test that is fixed for a call, a Python value: the first argument is the value where it holds."""

    value: "Op"


class OfShape(NamedTuple):
    """A shape that is asked about, or that the result gets."""

    shape: Shape


class SizeOf(NamedTuple):
    """A size by its name, whichever tensor tells it."""

    dim: Dim


class SummedTo(NamedTuple):
    """A shape that the result gets, and the input that has it, if one does."""

    shape: Shape
    like: "Op | None"


class Position(NamedTuple):
    """Which of several results."""

    at: int


class Template(NamedTuple):
    """A call that no rule is about, and the node in it that stands for each argument."""

    node: Node
    holes: tuple[Node, ...]

    def filled(self, args: "Sequence[Op]") -> dict[Node, "Op"]:
        """Each argument by the node that stands for it in the template."""
        return dict(zip(self.holes, args, strict=True))


class Pullback(NamedTuple):
    """The call that autograd differentiates, and the arguments by which it does."""

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
# The ops that stand in no table, and what each carries beside its arguments. Those of the table carry nothing.
ENGINE_OPS: Mapping[str, tuple[type, ...]] = {
    # where a graph begins
    "input": (Named,),
    "cotangent": (Named,),
    "drawn": (Named,),  # a random value that the forward saves
    # Python values
    "const": (Constant,),
    "static": (Expression,),
    "python": (Operator,),  # what an operator, a choice or a function makes of others
    "list": (NoneType,),  # a tuple or a list that is written out
    "range": (NoneType,),  # `start:end:step` in an index
    "starred": (NoneType,),  # `*sizes`
    "shape": (OfShape,),
    "size": (SizeOf, OfShape),  # of a shape: at the dim that the argument is
    "rank": (OfShape,),
    "count": (OfShape,),  # the number of elements
    "ratio": (NoneType,),  # how many elements a reduction takes into one
    "dtype": (NoneType,),
    "lead_dims": (OfShape,),  # all dims but the last
    # what a forward holds that no rule is about
    "cond": (Test,),
    "item": (Position,),
    "accumulated": (NoneType,),  # a cotangent, and one that may be None
    "call": (Template,),
    "vjp": (Pullback,),
    "jvp": (Pullback,),
    # indexing, dim by dim
    "slice": (NoneType,),
    "index": (NoneType,),
    # values of the backward in a shape that is known
    "zeros": (OfShape,),
    "ones": (OfShape,),  # in the place of a cotangent, which a tangent replaces
    "expanded": (OfShape,),
    "reshaped": (OfShape,),
    "same": (OfShape,),  # which it has already, in one branch of a choice
    "summed_to": (SummedTo,),
    "fitted_to": (SummedTo,),  # spread first where its size is 1
    "shaped_like": (NoneType,),
    "unsliced": (OfShape,),  # the gradient of a slice, among zeros
    # code for any rank
    "unless_vector": (NoneType,),
    "unless_scalar": (NoneType,),
    "contracted": (NoneType,),
    "indices": (NoneType,),  # a list of indices as a tensor
    "cast": (NoneType,),
}


# What is known of them; where nothing stands here, as little as of a call without a rule.
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
    facts: Facts  # what is known of the primitive

    @property
    def is_tensor(self) -> bool:
        return self.kind not in ("static", "group")

    @property
    def value(self) -> object:
        """The Python value of a `const`."""
        assert isinstance(self.data, Constant), self.rule
        return self.data.value

    @property
    def name(self) -> str:
        """The name of an `input`, a `cotangent` or a `drawn` value."""
        assert isinstance(self.data, Named), self.rule
        return self.data.name

    @property
    def expression(self) -> Node:
        """The expression of a `static` value."""
        assert isinstance(self.data, Expression), self.rule
        return self.data.node

    def is_python(self, kind: NodeKind, *labels: str) -> bool:
        """Whether it is a Python value that is computed so; with any label, if none is given."""
        return (
            isinstance(self.data, Operator)
            and self.data.kind == kind
            and (not labels or self.data.label in labels)
        )

    @property
    def test(self) -> "Op":
        """The test of a `cond`."""
        assert isinstance(self.data, Test), self.rule
        return self.data.value

    @property
    def position(self) -> int:
        """Which of several results an `item` is."""
        assert isinstance(self.data, Position), self.rule
        return self.data.at

    @property
    def template(self) -> Template:
        """The expression of a `call`."""
        assert isinstance(self.data, Template), self.rule
        return self.data

    @property
    def pullback(self) -> Pullback:
        """What a `vjp` or a `jvp` differentiates."""
        assert isinstance(self.data, Pullback), self.rule
        return self.data

    @property
    def asked(self) -> Shape:
        """The shape that an op asks about, or gives its result."""
        assert isinstance(self.data, OfShape | SummedTo), self.rule
        return self.data.shape

    def __repr__(self) -> str:
        return f"%{self.serial}"

    def walk(self) -> Iterator["Op"]:
        """This op and all below it, each once."""
        seen, waiting = set[int](), [self]
        while waiting:
            op = waiting.pop()
            if op.serial not in seen:
                seen.add(op.serial)
                yield op
                waiting.extend(reversed(op.args))


@dataclass(frozen=True, slots=True, repr=False)
class ValueOf(UnnamedSize):
    """The size that a Python value is."""

    op: Op

    @property
    def is_of_dim(self) -> bool:
        return False


class Declared(NamedTuple):
    """What a signature says of the names in a forward."""

    optional: frozenset[str] = frozenset()  # inputs that may be None
    never_none: frozenset[str] = frozenset()  # attributes that may not
    ints: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()  # those, and floats, of which each is one
    sequences: frozenset[str] = frozenset()  # tuples and lists
    no_strings: frozenset[str] = frozenset()  # numbers, tuples and lists of them
    bounded: frozenset[str] = frozenset()  # tensors of indices, from 0 on


class Operation(NamedTuple):
    """How a Python value is computed of others."""

    label: str
    args: tuple[Op, ...]


class Program:
    """Makes ops; one that was made before is returned as it was.

    Beside the ops it knows what the forward says of them: what a local is assigned, of what a Python value is computed,
    which tuples are taken apart.
    """

    def __init__(
        self,
        graph: Graph,
        table: Callable[[str], Facts | None],
        declared: Declared | None = None,
    ) -> None:
        self.graph, self.table = graph, table
        self.declared = declared or Declared()
        self.ops: list[Op] = []
        # Values of which something holds as they are real; of a call that PyTorch takes complex ones in, whatever it is made of.
        self.real: set[Op] = set()
        self.real_in_calls: set[Op] = set()
        self._known: dict[tuple[object, ...], Op] = {}
        self._behind: dict[Node, Op] = {}
        self._locals: dict[str, Op] = {}
        self._operations: dict[Op, Operation] = {}
        self._dtypes: dict[Op, Kind] = {}
        self._sizes: dict[Dim, Op] = {}
        self._unpacked: set[Op] = set()
        self._facts: dict[str, Facts] = {}  # asked a thousand times of a few rules

    def facts(self, rule: str) -> Facts:
        """What is known of ops that are called so: as the table says, or of the engine's own."""
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
        """The op; without a shape it gets one of its own."""
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
        """The op, if there is one already."""
        return self._known.get((rule, tuple(args), data))

    def over(self, op: Op, args: Iterable[Op]) -> Op:
        """The same op of other arguments, of which it has the shape that is known; of its own arguments the op itself."""
        given = tuple(args)
        if given == op.args:
            return op
        made = self.op(
            op.rule, given, op.data, kind=op.kind, shape=op.shape, active=op.active
        )
        return self.shaped(made, op.shape)

    def shaped(self, op: Op, shape: Shape) -> Op:
        """The op, of which it is known from elsewhere that it has the shape."""
        if op.shape == shape or not op.is_tensor or op.rule in ("input", "cotangent"):
            return op
        key = (op.rule, op.args, op.data, shape)
        if key not in self._known:
            made = replace(op, shape=shape, serial=len(self.ops))
            self._known[key] = made
            self.ops.append(made)
        return self._known[key]

    def const(self, value: object) -> Op:
        """A Python literal; 1, 1.0 and True are not the same."""
        if isinstance(value, tuple | list):
            return self.op("list", map(self.const, value))
        assert isinstance(value, Hashable)
        return self.op("const", (), Constant(type(value).__name__, value))

    def static(self, node: Node) -> Op:
        """A Python value that an expression has throughout a call: of operators and functions the values that they are of."""
        behind = self.behind(node)
        if behind is not None:
            return behind
        value = _written_out(node)
        if value is not UNKNOWN:
            return self.const(value)
        if node.kind in COMPUTED and not node.keywords:
            return self.python(node.kind, node.label, *map(self.static, node.args))
        return self.op("static", (), Expression(node))

    def read(self, name: str) -> Op:
        """The Python value that a name is, or whether its tensor is there."""
        return self.static(self.graph.name(name))

    def python(self, kind: NodeKind, label: str, *args: Op) -> Op:
        """A Python value that is computed of others."""
        return self.op("python", args, Operator(kind, label))

    def called(self, function: str, *args: Op) -> Op:
        """What a function makes of Python values: `math.sqrt`, `max`."""
        module, _, name = function.rpartition(".")
        callee = self.graph.name(module or name)
        if module:
            callee = self.graph.node("attribute", name, (callee,))
        return self.python("call", "", self.static(callee), *args)

    def placeholder(self, op: Op) -> Node:
        """A node that stands for an op in an expression: only the printer knows how that is written."""
        node = self.graph.node("value", str(op.serial))
        self._behind[node] = op
        return node

    def behind(self, node: Node) -> Op | None:
        """The op that a node stands for, if it is a placeholder."""
        return self._behind.get(node) if node.kind == "value" else None

    def items_of(self, op: Op) -> dict[int, Op]:
        """The results of a call with several that the program reads, by position."""
        items = (item for item in self.ops if item.rule == "item")
        return {item.position: item for item in items if item.args[0] is op}

    def size_of(self, dim: Op) -> Dim:
        """The size that a static value is: a number, or a name for it."""
        whole = self.value_of(dim)
        value = literal(whole)
        if isinstance(value, int) and value >= 0:
            return value
        match whole.data:
            case SizeOf(name):
                return name
            case OfShape(shape) if whole.rule == "size":
                number = literal(whole.args[0])
                at = position(shape, number) if isinstance(number, int) else None
                if at is not None and shape.dims is not None:
                    return shape.dims[at]
        size = self._computed_size(dim)
        self.tell_size(size, dim)
        return size

    def _computed_size(self, dim: Op) -> Dim:
        """The size that a Python value is computed to be: of `2 * x.shape[-1]`."""
        match self.operation(dim):
            case Operation(label, (one, two)) if label in ARITHMETIC:
                return ARITHMETIC[label](self.size_of(one), self.size_of(two))
        return ValueOf(dim)

    def tell_size(self, size: Dim, value: Op) -> None:
        """Note that a size without a name is that Python value; the first that is noted stays."""
        if isinstance(size, UnnamedSize):
            self._sizes.setdefault(size, value)

    def told_size(self, size: Dim) -> Op | None:
        """The Python value that a size without a name is, if one is known."""
        return self._sizes.get(size)

    # What the forward says of Python values and tuples

    def local(self, name: Node, value: Op) -> Op:
        """The value of a local that is assigned once, from now on known to be that Python value."""
        if name.label not in names_read(value):  # nothing is told of `n = n + 1`
            self._locals[name.label] = value
        return self.static(name)

    def assigned(self, name: str) -> Op | None:
        """The Python value of a local that is assigned once."""
        return self._locals.get(name)

    def value_of(self, op: Op) -> Op:
        """What a local is assigned; another op as it is."""
        match op.data:
            case Expression(Node("name", name)) if name in self._locals:
                return self.value_of(self._locals[name])
        return op

    def compute(self, op: Op, label: str, *args: Op) -> None:
        """Note how a Python value is computed: the op keeps the user's words, `z.shape[-1] + 1`, so that they stand in the text again.

        What they mean, the size of a dim and 1, only lowering knows, which has the names of the forward.
        """
        self._operations[op] = Operation(label, args)

    def operation(self, op: Op) -> Operation | None:
        """How a Python value is computed, where that is known."""
        return self._operations.get(self.value_of(op))

    def set_dtype(self, op: Op, kind: Kind) -> None:
        """Note that a Python value is the dtype of tensors of that kind."""
        self._dtypes[op] = kind

    def dtype(self, op: Op) -> Kind | None:
        """The kind of the tensors that have a dtype, where it is known."""
        return self._dtypes.get(self.value_of(op))

    def unpack(self, op: Op) -> None:
        """Note that the forward takes every part of a tuple."""
        self._unpacked.add(op)

    def is_unpacked(self, op: Op) -> bool:
        return op in self._unpacked

    def may_be_absent(self, op: Op) -> bool:
        """Whether it is an input that may be None."""
        return op.rule == "input" and op.name in self.declared.optional


# How a size is computed of others.
ARITHMETIC: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": sizes.plus,
    "-": sizes.minus,
    "*": sizes.times,
    "//": sizes.quotient,
}
# What a Python value is computed by.
COMPUTED = frozenset(
    {"unary", "binary", "compare", "boolean", "conditional", "tuple", "list"}
    | {"attribute", "subscript", "slice", "call"}
)


def _written_out(node: Node) -> object:
    """The value of a literal; `UNKNOWN` of one that is spelled otherwise than the printer would, as `1e-06`, which stays so."""
    match node:
        case Node("constant", text):
            value = literal_value(text)
            return value if literal_text(value) == text else UNKNOWN
        case Node("unary", "-", (Node("constant") as inner,)):
            number = as_number(_written_out(inner))
            return UNKNOWN if number is None else -number
    return UNKNOWN


def literal_text(value: object) -> str:
    """A literal as one writes it: `1e-6` rather than `1e-06`."""
    if not isinstance(value, float):
        return repr(value)
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if mark else digits


def names_read(op: Op) -> frozenset[str]:
    """The names that a Python value is computed of."""
    read = (item.expression.names() for item in op.walk() if item.rule == "static")
    return frozenset[str]().union(*read)


def literal(op: Op) -> object:
    """The Python value of a static op, or `UNKNOWN`."""
    if op.rule == "const":
        return op.value
    if op.rule == "list":
        values = tuple(literal(arg) for arg in op.args)
        return UNKNOWN if UNKNOWN in values else values
    return UNKNOWN


def number(op: Op) -> Number | None:
    """The number that an op is, if it is one."""
    return as_number(op.value) if op.rule == "const" else None


def is_number(op: Op, value: Number) -> bool:
    """Whether an op is that very number."""
    if op.rule != "const":  # asked of nearly every op
        return False
    found = number(op)
    return found is not None and found == value


def down_to(roots: Iterable[Op], stops: Collection[Op]) -> Iterator[Op]:
    """Some ops and all that is below them, each once, as far as the `stops`."""
    seen, waiting = set[Op](), list(roots)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            yield op
            if op not in stops:
                waiting += op.args


def tensors(ops: Iterable[Op]) -> Iterator[Op]:
    """The tensors among arguments, those in lists included."""
    for op in ops:
        if op.rule == "list":
            yield from tensors(op.args)
        elif op.is_tensor:
            yield op
