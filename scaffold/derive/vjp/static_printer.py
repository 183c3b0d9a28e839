"""Python values and shapes of a program -> expressions.

In: static ops, and the names of values that have one. Out: nodes. Invariant: a size is read where no whole tensor must live on
for it.
"""

from collections.abc import Callable, Mapping

from scaffold.derive.vjp.apply import Applier
from scaffold.derive.vjp.holders import Holders, UnknownShapeError
from scaffold.derive.vjp.in_place import InPlace
from scaffold.derive.vjp.ir import Op, Program
from scaffold.derive.vjp.safety import Need, Outcome, meets
from scaffold.derive.vjp.shapes import Dim, Shape
from scaffold.derive.vjp.written import NO_SHAPE, UnsupportedError, number_node
from scaffold.formula import Graph, Node

# The values that have a shape, each with the optional inputs that must be there to compute it.
Owners = dict[Shape, list[tuple[Op, frozenset[Need]]]]
OF_A_SHAPE = frozenset(
    {"zeros", "expanded", "reshaped", "summed_to", "same", "vjp", "unsliced"}
    | {"shaped_like", "fitted_to"}
)


def shape_owners(program: Program, needs: Callable[[Op], frozenset[Need]]) -> Owners:
    """The values that can tell a shape: they ask for none themselves."""
    owners: Owners = {}
    for op in program.ops:
        if op.is_tensor and not _asks(op):
            owners.setdefault(op.shape, []).append((op, needs(op)))
    return owners


def _asks(op: Op) -> bool:
    return any(inner.rule in OF_A_SHAPE for inner in op.walk())


class StaticPrinter:
    """Writes down what is no tensor; `names` are those of locals of forward and backward."""

    in_place: InPlace | None = None
    tests: tuple[Outcome, ...] = ()  # those under which a statement is written

    def __init__(
        self,
        applier: Applier,
        holders: Holders,
        names: Mapping[Op, str],
        owners: Owners,
        asked: set[Op],
    ) -> None:
        self.applier, self.program = applier, applier.program
        self.graph: Graph = self.program.graph
        self.holders, self.names, self.owners = holders, names, owners
        self.asked = asked

    def node(self, op: Op) -> Node:
        """The expression of an op: its name if it has one."""
        raise NotImplementedError

    def _input(self, op: Op) -> Node:
        return self.graph.name(str(op.data))

    _cotangent = _input

    def _const(self, op: Op) -> Node:
        if op.value is ...:
            return self.graph.constant("...")
        return number_node(self.program, op.value)

    def _static(self, op: Op) -> Node:
        assert isinstance(op.data, Node)
        return self.placed(op.data)

    def placed(self, node: Node) -> Node:
        """An expression with sizes where it has placeholders."""
        return self.graph.rewrite(node, self._placeholder)

    def _placeholder(self, node: Node) -> Node | None:
        """What stands for a size in a Python expression of the engine's."""
        if node.kind == "name" and node.label.startswith("<"):
            return self.node(self.program.ops[int(node.label[1:-1])])
        return None

    def _list(self, op: Op) -> Node:
        return self.graph.node("tuple", "", tuple(map(self.node, op.args)))

    def _shape(self, op: Op) -> Node:
        assert isinstance(op.data, Shape)
        return self.shape(op.data)

    def shape(self, shape: Shape, like: Op | None = None) -> Node:
        """The expression of a shape."""
        try:
            return self.holders.shape(shape, like)
        except UnknownShapeError:
            return self._told_by_value(shape)

    def _told_by_value(self, shape: Shape) -> Node:
        """The shape of a value of the forward, or what follows from such shapes."""
        match shape.key:
            case ("broadcast", tuple() as parts) if shape not in self.owners:
                shapes = map(self.shape, parts)
                return self.function("torch.broadcast_shapes", *shapes)
        return self._attribute(self._owner(shape), "shape")

    def _owner(self, shape: Shape) -> Node:
        several = self.owners.get(shape, ())
        for met in (self._is_current, self._is_met):
            for op, needs in several:
                if all(map(met, needs)):
                    return self._anew(op)
        return self._by_base(shape)

    def _is_current(self, need: Need) -> bool:
        """Whether a value needs what is there wherever this gradient is asked for."""
        return need == self.holders.current

    def _is_met(self, need: Need) -> bool:
        """Whether what a value needs is there under the tests around the statement."""
        told = any(meets(outcome, need) for outcome in self.tests)
        return told or self._is_current(need)

    def _by_base(self, shape: Shape) -> Node:
        """A value of a shape, made of one that has the shape it comes of."""
        match shape.key:
            case ("unsqueezed" | "squeezed" as word, Shape() as base, int() as dim):
                return self._viewed(base, word.removesuffix("d"), dim)
            case ("transposed", Shape() as base, dims) if dims == {-2, -1}:
                return self._attribute(self._owner(base), "mT")
            case ("transposed", Shape() as base, frozenset() as dims) if len(dims) == 2:
                return self._viewed(base, "transpose", *sorted(dims))
            case ("drop" | "keep" as word, Shape() as base, (int(), *_) as dims):
                callee = self._attribute(self._owner(base), "sum")
                at = self.program.const(dims[0] if len(dims) == 1 else dims)
                keepdim = self.program.const(word == "keep")
                args = (callee, self.node(at), self.node(keepdim))
                return self.graph.node("call", "", args, ("keepdim",))
        raise UnsupportedError(NO_SHAPE)

    def _viewed(self, base: Shape, label: str, *dims: int) -> Node:
        """A view of a value of a shape."""
        numbers = (number_node(self.program, dim) for dim in dims)
        return self.method(self._owner(base), label, *numbers)

    def _anew(self, op: Op) -> Node:
        """A value of the forward over the forward's names: those of the backward may come later."""
        names, self.names = self.names, self.holders.held
        in_place, self.in_place = self.in_place, None
        if op not in self.names:
            self.asked.add(op)
        try:
            return self.node(op)
        finally:
            self.names, self.in_place = names, in_place

    def _size(self, op: Op) -> Node:
        if isinstance(op.data, Shape):
            (dim,) = op.args
            index = self.node(dim)
            return self.graph.node("subscript", "", (self.shape(op.data), index))
        assert isinstance(op.data, str)
        return self.size(op.data)

    def size(self, dim: Dim) -> Node:
        """The expression of a size."""
        return self.holders.size(dim)

    def _rank(self, op: Op) -> Node:
        return self._of_tensor(op, "ndim")

    def _dtype(self, op: Op) -> Node:
        (value,) = op.args
        if value not in self.names:
            self.asked.add(value)
        return self._attribute(self.node(value), "dtype")

    def _count(self, op: Op) -> Node:
        return self._of_tensor(op, "numel")

    def _ratio(self, op: Op) -> Node:
        """How many elements a reduction takes into one."""
        whole, kept = op.args
        some = self.method(self._anew(kept), "numel")
        one = self.graph.constant("1")
        left = self.graph.node("call", "", (self.graph.name("max"), some, one))
        return self.graph.node("binary", "//", (self.node(whole), left))

    def _of_tensor(self, op: Op, label: str) -> Node:
        assert isinstance(op.data, Shape)
        try:
            return self.holders.of_tensor(op.data, label)
        except UnknownShapeError:
            found = self._attribute(self._owner(op.data), label)
            return self.graph.node("call", "", (found,)) if label == "numel" else found

    def _attribute(self, value: Node, label: str) -> Node:
        return self.graph.node("attribute", label, (value,))

    def method(self, value: Node, label: str, *args: Node) -> Node:
        """`value.label(args)`."""
        return self.graph.node("call", "", (self._attribute(value, label), *args))

    def function(self, path: str, *args: Node, keywords: tuple[str, ...] = ()) -> Node:
        """`torch.path(args)`; the keywords are those of the last arguments."""
        first, *rest = path.split(".")
        callee = self.graph.name(first)
        for label in rest:
            callee = self._attribute(callee, label)
        return self.graph.node("call", "", (callee, *args), keywords)
