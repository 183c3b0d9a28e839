"""For the sizes of tests: those that the forward divides, `H // ws`, `x.unflatten(-1, (groups, -1))`, `F.pixel_shuffle(x, 2)`.

In: an `OpSpec`. Out: conditions on its dims, as those of `require`. Invariant: they choose the sizes of tests, and nothing else; where
none is read off the forward there is none.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from scaffold.formula import Assign, Formula, Graph, If, Node, Statement
from scaffold.spec import OpSpec, is_size_name, leading

VIEWS = frozenset({"reshape", "view"})
# Which dim a call divides by its second argument, and how often.
SHUFFLES = {"pixel_shuffle": ((-3, 2),), "pixel_unshuffle": ((-2, 1), (-1, 1))}


def divisions(spec: OpSpec) -> tuple[Formula, ...]:
    """`H % ws == 0` for each division of a size that leaves nothing."""
    if spec.forward is None:
        return ()
    forward = spec.forward
    reader = _Reader(spec, forward.graph)
    reader.block(forward.statements)
    if forward.result is not None:
        reader.read(forward.result)
    return tuple(
        Formula((), node, "", forward.location, (), forward.graph)
        for node in dict.fromkeys(reader.found)
    )


def with_several(divided: tuple[Formula, ...]) -> tuple[Formula, ...]:
    """Conditions that every division gives more than one: what is 1 broadcasts."""
    found = []
    for item in divided:
        assert item.result is not None
        parts = item.result.args[0].args
        found.append(replace(item, result=item.graph.node("compare", ">", parts)))
    return (*divided, *found)


class _Reader:
    """Reads statements in order; a name may stand for a size."""

    def __init__(self, spec: OpSpec, graph: Graph) -> None:
        self.graph = graph
        self.dims = {item.name: spec.dims(item.name) or () for item in spec.tensors}
        self.sizes: dict[str, str] = {}
        self.found: list[Node] = []

    def block(self, statements: tuple[Statement, ...]) -> None:
        for item in statements:
            if isinstance(item, If):
                self.block((*item.body, *item.orelse))
            else:
                self.read(item.value)
                self._bind(item)

    def _bind(self, item: Assign) -> None:
        """`B, H, W, C = x.shape`, `n = x.size(1)`."""
        if item.target.kind == "name":
            size = self._size(item.value)
            if size is not None:
                self.sizes[item.target.label] = size
            return
        match item.value:
            case Node("attribute", "shape", (Node("name", name),)):
                pass
            case Node("call", _, (Node("attribute", "size", (Node("name", name),)),)):
                pass
            case _:
                return
        dims = self.dims.get(name, ())
        if len(dims) == len(item.target.args) and not leading(dims):
            for part, dim in zip(item.target.args, dims, strict=True):
                if part.kind == "name" and isinstance(dim, str):
                    self.sizes[part.label] = dim

    def _size(self, node: Node) -> str | None:
        """The dim whose size an expression is."""
        match node:
            case Node("name", name):
                return self.sizes.get(name)
            case Node(
                "subscript", _, (Node("attribute", "shape", (Node("name", name),)), at)
            ) | Node("call", _, (Node("attribute", "size", (Node("name", name),)), at)):
                return self._dim(name, at)
        return None

    def _dim(self, name: str, at: Node) -> str | None:
        dims, position = self.dims.get(name, ()), number_of(at)
        if position is None or not -len(dims) <= position < len(dims):
            return None
        counted = dims[position:] if position < 0 else dims[: position + 1]
        dim = dims[position]
        return dim if is_size_name(dim) and not leading(counted) else None

    def read(self, value: Node) -> None:
        """Note every division in an expression."""
        for node in value.walk():
            if node.kind == "binary" and node.label == "//":
                self._note(self._size(node.args[0]), node.args[1])
            elif node.kind == "call" and node.args[0].kind == "attribute":
                for dim, divisor in self._of_call(node):
                    self._note(dim, divisor)

    def _note(self, whole: str | Node | None, divisor: Node) -> None:
        """The condition that nothing is left."""
        if whole is None:
            return
        node = self.graph.name(whole) if isinstance(whole, str) else whole
        parts = node, self.graph.rewrite(divisor, self._renamed)
        left = self.graph.node("binary", "%", parts)
        zero = self.graph.constant("0")
        self.found.append(self.graph.node("compare", "==", (left, zero)))

    def _renamed(self, node: Node) -> Node | None:
        size = self._size(node)
        return None if size is None else self.graph.name(size)

    def _of_call(self, call: Node) -> Iterator[tuple[str | Node | None, Node]]:
        """What a call divides by what."""
        callee, *args = call.args
        named = dict(zip(call.keywords, args[len(args) - len(call.keywords) :]))
        plain = args[: len(args) - len(call.keywords)]
        owner = callee.args[0]
        if owner.label not in ("torch", "F"):
            plain = [owner, *plain]
        if not plain or plain[0].label not in self.dims or plain[0].kind != "name":
            return
        name, rest = plain[0].label, plain[1:]
        if callee.label in SHUFFLES and rest:
            for at, times in SHUFFLES[callee.label]:
                size = self._dim(name, self.graph.constant(str(at)))
                yield size, self._product([rest[0]] * times)
        elif callee.label == "chunk" and rest:
            dim = rest[1] if len(rest) > 1 else named.get("dim")
            yield self._dim(name, dim or self.graph.constant("0")), rest[0]
        elif callee.label == "unflatten" and len(rest) == 2:
            yield self._dim(name, rest[0]), self._given(rest[1].args)
        elif callee.label in VIEWS and rest:
            sizes = rest[0].args if rest[0].kind in ("tuple", "list") else rest
            if sum(number_of(size) == -1 for size in sizes) == 1:
                yield self._whole(name), self._given(sizes)

    def _whole(self, name: str) -> Node | None:
        """How many elements a tensor has, where all its dims have names."""
        dims = self.dims[name]
        if not dims or leading(dims):
            return None
        names = (
            (
                self.graph.constant(str(dim))
                if isinstance(dim, int)
                else self.graph.name(dim)
            )
            for dim in dims
        )
        return self._product(list(names))

    def _given(self, sizes: tuple[Node, ...] | list[Node]) -> Node:
        """The product of the sizes that are not left to be counted."""
        return self._product([size for size in sizes if number_of(size) != -1])

    def _product(self, parts: list[Node]) -> Node:
        if not parts:
            return self.graph.constant("1")
        return reduce(
            lambda one, two: self.graph.node("binary", "*", (one, two)), parts
        )


def number_of(node: Node) -> int | None:
    """The whole number that is written there."""
    match node:
        case Node("constant", text) if text.removeprefix("-").isdecimal():
            return int(text)
        case Node("unary", "-", (Node("constant", text),)) if text.isdecimal():
            return -int(text)
    return None
