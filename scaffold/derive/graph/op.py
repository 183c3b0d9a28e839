"""Primitives: the graph that is differentiated.

In: a rule's name and its arguments. Out: an `Op`, whose shape and kind the caller has worked out. Invariant: two equal
applications in one `Program` are the same object, and an op comes after its arguments.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from scaffold.derive.graph.shapes import SCALAR, Dim, Shape, position
from scaffold.formula import Graph, Node

# `static` values are Python's, the same throughout a call; a `group` is several tensors.
Kind = Literal["real", "complex", "int", "bool", "static", "group"]
Number = int | float | complex


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One application of a primitive. Compare ops of one program with `is`.

    Beside those of the rule table there are `input`, `cotangent` (data: its name), `const` (data: its type and value),
    `static` (data: an expression), `shape` and `size` (data: what is known of it), `cond` (data: a test), `list`,
    `item` (data: which of several results), `call` (data: an expression without a rule) and `vjp` of such a call (data: it, and the arguments).
    """

    rule: str
    args: tuple["Op", ...]
    data: Hashable
    kind: Kind
    shape: Shape
    active: bool  # whether a gradient may pass through it
    serial: int

    @property
    def is_tensor(self) -> bool:
        return self.kind not in ("static", "group")

    @property
    def value(self) -> object:
        """The Python value of a `const`."""
        assert self.rule == "const" and isinstance(self.data, tuple)
        return self.data[1]

    def walk(self) -> Iterator["Op"]:
        """This op and all below it, each once."""
        seen, waiting = set[int](), [self]
        while waiting:
            op = waiting.pop()
            if op.serial not in seen:
                seen.add(op.serial)
                yield op
                waiting.extend(reversed(op.args))


class Program:
    """Makes ops; one that was made before is returned as it was."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ops: list[Op] = []
        self.fractions: dict[Op, Dim] = {}  # a size // a number -> that size
        self.offsets: dict[Op, tuple[Op, int]] = {}  # x + a number -> x, that number
        self.unpacked: set[Op] = set()  # tuples of which the forward takes every part
        self.sizes: dict[Dim, Op] = {}  # the expression of a size without a name
        self.optional: set[Op] = set()  # inputs that may be None
        self.dtypes: dict[Op, Kind] = {}  # a dtype in Python -> the kind of its tensors
        self.never_none: set[str] = set()  # names of Python values that are not None
        self.ints: set[str] = set()  # attributes and locals that are one int
        self.sequences: set[str] = set()  # those that are a tuple or a list
        self._known: dict[tuple[object, ...], Op] = {}

    def op(
        self,
        rule: str,
        args: Iterable[Op] = (),
        data: Hashable = None,
        *,
        kind: Kind = "static",
        shape: Shape | None = SCALAR,
        active: bool = False,
    ) -> Op:
        """The op; without a shape it gets one of its own."""
        given = tuple(args)
        key = (rule, tuple(arg.serial for arg in given), data)
        if key not in self._known:
            serial = len(self.ops)
            own = Shape(None, ("of", serial)) if shape is None else shape
            made = Op(rule, given, data, kind, own, active, serial)
            self._known[key] = made
            self.ops.append(made)
        return self._known[key]

    def shaped(self, op: Op, shape: Shape) -> Op:
        """The op, of which it is known from elsewhere that it has the shape."""
        if op.shape == shape or not op.is_tensor or op.rule in ("input", "cotangent"):
            return op
        key = (op.rule, tuple(arg.serial for arg in op.args), op.data, shape)
        if key not in self._known:
            made = Op(
                op.rule, op.args, op.data, op.kind, shape, op.active, len(self.ops)
            )
            self._known[key] = made
            self.ops.append(made)
        return self._known[key]

    def const(self, value: object) -> Op:
        """A Python literal; 1, 1.0 and True are not the same."""
        if isinstance(value, tuple | list):
            return self.op("list", map(self.const, value))
        assert isinstance(value, Hashable)
        return self.op("const", (), (type(value).__name__, value))

    def static(self, node: Node) -> Op:
        """A Python value that an expression has throughout a call."""
        return self.op("static", (), node)

    def items_of(self, op: Op) -> dict[int, Op]:
        """Those of several results that were taken, by position."""
        items = (item for item in self.ops if item.rule == "item")
        return {int(str(item.data)): item for item in items if item.args[0] is op}

    def size_of(self, dim: Op) -> Dim:
        """The size that a static value is: a number, or a name for it."""
        value = literal(dim)
        if isinstance(value, int) and value >= 0:
            return value
        if dim.rule == "size" and isinstance(dim.data, str | int):
            return dim.data
        if dim.rule == "size" and isinstance(dim.data, Shape):
            number = literal(dim.args[0])
            at = position(dim.data, number) if isinstance(number, int) else None
            if at is not None and dim.data.dims is not None:
                return dim.data.dims[at]
        name = f"?{dim.serial}"
        self.sizes[name] = dim
        return name


class _Unknown:
    """What is not known before the call."""


UNKNOWN = _Unknown()


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
    value = op.value if op.rule == "const" else None
    plain = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return value if plain else None  # type: ignore[return-value]


def is_number(op: Op, value: Number) -> bool:
    """Whether an op is that very number."""
    found = number(op)
    return found is not None and found == value


def called(op: Op) -> Op:
    """The call that a `vjp` differentiates."""
    assert isinstance(op.data, tuple) and isinstance(op.data[0], Op)
    return op.data[0]


def pulled_args(op: Op) -> tuple[Op, ...]:
    """The arguments of the call by which a `vjp` differentiates it."""
    assert isinstance(op.data, tuple)
    return op.data[1]  # type: ignore[no-any-return]


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
