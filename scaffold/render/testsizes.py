"""Sizes of the named dims in the generated test.

A test of `x[N, D]` needs numbers for N and D: different ones, or a mistaken dim would go unnoticed. In: an `OpSpec`. Out: a size for each
name, and whether other sizes would do as well.
Invariant: the sizes satisfy `require`; they are distinct if it allows, leave no remainder in the forward's divisions, and are as large as
its indices require.

Words: a condition is one of `require`, or one that the forward's divisions and indices imply; it is undecided while it reads a name without
a size. A dividend is a size that the forward divides, so that the divisor must go into it: `H % ws == 0`. The *reach* of an index is the
least size it needs: `x[:, 3]` needs 4. `spec.tested_dims(name)` are the dims of an input in tests, with `...` for leading ones. *Fixed*
sizes are given by attributes; *wanted* conditions are dropped if no sizes satisfy them, those of `require` never; a name is *bound* if a
condition reads it, and *given* or *solved* if an equation computes its size.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce

from scaffold.derive.analysis.metadata import shape_read, size_read
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Lines,
    Node,
    emit,
    evaluated,
    truth,
)
from scaffold.primitives.calls import has_shape, may_be
from scaffold.render.testlimits import full_rank
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Dim, OpSpec, is_leading, is_size_name, leading

CANDIDATES = (*range(2, 33), 64, 128, 1)  # in the order they are tried


class UndecidedError(Exception):
    """A condition reading something other than sizes."""


def dim_names(spec: OpSpec) -> tuple[str, ...]:
    """Return the named dims in order of first appearance over the inputs."""
    dims = (dim for item in spec.tensors for dim in input_dims(spec, item.name))
    return tuple(dict.fromkeys(filter(is_size_name, dims)))


def input_dims(spec: OpSpec, name: str) -> tuple[Dim, ...]:
    """Return the dims an input is made from, the bound of its indices last."""
    bound = {item.name: item.bound for item in spec.tensors}[name]
    return (spec.tested_dims(name) or ()) + (() if bound is None else (bound,))


def fixed_sizes(spec: OpSpec) -> dict[str, int]:
    """Return the values of integer attributes, which conditions may read as they do sizes: `groups` in `C % groups == 0`.

    An attribute without a default that names a dim is left out: its value is chosen as a size.
    """
    dims = dim_names(spec)
    values = {
        item.name: attribute_value(spec, item)
        for item in spec.attributes
        if item.default is not None or item.name not in dims
    }
    # No size: `-1`, an axis, `0.5` or `None`.
    return {name: int(text) for name, text in values.items() if text.isdecimal()}


def choose_sizes(spec: OpSpec, first: int = 2) -> dict[str, int]:
    """Choose a size for each named dim: from `first` upwards, distinct if `require` allows; raise ScaffoldError for no solution.

    Quotients of sizes are more than 1 and indices in reach, if such sizes are found.
    """
    fixed = fixed_sizes(spec)
    # Large enough for `x.topk(k)`, and for `x.T @ x` to have full rank.
    first = max(first, *_counts(spec, fixed), full_rank(spec))
    names = [name for name in dim_names(spec) if name not in fixed]
    divided, reached = divisions(spec), reaches(spec)
    sizes = None
    # With all wishes first, then with fewer of them.
    for wanted in ((*with_several(divided), *reached), divided, ()):
        # The first try that finds sizes decides.
        sizes = sizes or _bound(fixed, names, (*spec.tested_require, *wanted), first)
    if sizes is None:
        conditions = ", ".join(
            emit(item.result) for item in spec.tested_require if item.result
        )
        raise ScaffoldError(
            f"found no sizes up to {max(CANDIDATES)} that satisfy: {conditions}",
            # There is one: the last try has no other conditions, and without any it finds sizes.
            spec.tested_require[0].location,
            hint="give the test its inputs with samples: '@file.py:function'",
        )
    for name in names:  # those in no condition
        free = (size for size in range(first, 128) if size not in sizes.values())
        sizes.setdefault(name, next(free))
    return {name: sizes[name] for name in dim_names(spec)}


def _counts(spec: OpSpec, fixed: Mapping[str, int]) -> Iterator[int]:
    """Yield the numbers of elements the forward takes of a dim, as it needs at least as many: `x.topk(k)`."""
    if spec.forward is None:
        return
    for call in spec.forward.nodes():
        if call.kind == "call" and may_be(call.args[0].label, "takes_several"):
            # Arguments that are names of attributes: `k` of `x.topk(k)`.
            labels = (arg.label for arg in call.args[1:])
            yield from (fixed[label] for label in labels if label in fixed)


def allows(spec: OpSpec, sizes: Mapping[str, int]) -> bool:
    """Return whether these sizes satisfy every condition they decide."""
    fixed = fixed_sizes(spec)
    return satisfied((*spec.tested_require, *divisions(spec)), fixed | dict(sizes))


def _bound(
    fixed: dict[str, int],
    names: list[str],
    conditions: tuple[Formula, ...],
    first: int,
) -> dict[str, int] | None:
    """Return sizes for the names in the conditions, distinct if possible; None if none are found.

    If too many would have to be tried, names given by an equation, `E == B * C * D`, are computed after all others are chosen.
    """
    read = frozenset[str]().union(
        *(item.result.names() for item in conditions if item.result)
    )
    bound = [name for name in names if name in read]
    solved = dict(_equations(conditions, bound))
    last = [name for name in bound if name not in solved] + [*solved]
    # Each order of the names, the second with those solved by an equation at its end.
    for shared in (fixed, None):  # None: sizes may be equal
        for order, equations in ((bound, {}), (last, solved)):
            search = _Search(conditions, equations, first)
            found = search.found(fixed, order, shared)
            if found is not None:
                return found
            if search.steps <= STEPS:  # all were tried: another order finds none either
                break
    return None


def _equations(
    conditions: Iterable[Formula], names: Sequence[str]
) -> Iterator[tuple[str, Node]]:
    """Yield the names alone on one side of an equation, each with the other side: `E == 3 * D` -> "E", `3 * D`."""
    for test in (item.result for item in conditions):
        if test is not None and test.kind == "compare" and test.label == "==":
            for one, two in (test.args, test.args[::-1]):
                if one.kind == "name" and one.label in names:
                    yield one.label, two


STEPS = 3000  # of a search


class _Search:
    """A search for sizes, one name after the other; equations give some of them."""

    def __init__(
        self, conditions: tuple[Formula, ...], given: Mapping[str, Node], first: int
    ) -> None:
        """Begin a search; `given` maps some names to the other side of their equation. Sizes from `first` on are tried first."""
        self.conditions, self.given, self.steps = conditions, given, 0
        self.usual = [size for size in CANDIDATES if size >= first]
        self.unusual = [size for size in CANDIDATES if size < first]

    def found(
        self,
        sizes: dict[str, int],
        names: Sequence[str],
        shared: Mapping[str, int] | None,
    ) -> dict[str, int] | None:
        """Return the first sizes of `names` satisfying the conditions, with `sizes` chosen already; None if there are none in STEPS steps.

        They differ from each other, but may equal those of `shared` names, the attributes; if that is None, any may be equal. The search goes
        name by name, and back if a condition fails.
        """
        self.steps += 1
        if self.steps > STEPS or not satisfied(self.conditions, sizes):
            return None
        if not names:
            return sizes
        taken = sizes.keys() - shared.keys() if shared is not None else set()
        for size in self._candidates(names[0], sizes, shared is None):
            if size in (sizes[name] for name in taken):
                continue
            chosen = sizes | {names[0]: size}
            found = self.found(chosen, names[1:], shared)
            if found is not None:
                return found
        return None

    def _candidates(
        self, name: str, sizes: Mapping[str, int], any_size: bool
    ) -> Sequence[int]:
        """Return the sizes to try for a name: the one its equation gives, if it has one, else all from `first` on.

        With `any_size` those below it too. [] if the equation gives a size out of range.
        """
        with suppress(KeyError, UndecidedError):  # no equation, or a size in it open
            size = evaluated(self.given[name], _reader(sizes))
            if isinstance(size, int):
                return [size] if 0 < size <= max(CANDIDATES) else []
        return self.usual + (self.unusual if any_size else [])


def _reader(sizes: Mapping[str, int]) -> Callable[[Node], int]:
    """Return a function reading the size of a name; it raises UndecidedError for anything else."""

    def size(node: Node) -> int:
        if node.kind != "name" or node.label not in sizes:
            raise UndecidedError(node.kind)
        return sizes[node.label]

    return size


def satisfied(conditions: Iterable[Formula], sizes: Mapping[str, int]) -> bool:
    """Return whether no condition is false or raises; conditions undecided by these sizes pass."""
    for test in (item.result for item in conditions if item.result is not None):
        try:
            # None, an unknown value, is no yes: `H % G` with a G of 0.
            if truth(evaluated(test, _reader(sizes))) is not True:
                return False
        except UndecidedError:
            continue
    return True


# --- Divisions of sizes in the forward: `H // ws`, `x.unflatten(-1, (groups, -1))`, `F.pixel_shuffle(x, 2)`. They only affect
# the choice of test sizes; an unrecognised division adds no condition.


# The dims a call divides by its second argument, each with the number of divisions.
SHUFFLES = {"pixel_shuffle": ((-3, 2),), "pixel_unshuffle": ((-2, 1), (-1, 1))}


def divisions(spec: OpSpec) -> tuple[Formula, ...]:
    """Return `H % ws == 0` for each division of a size in the forward that must leave no remainder, as conditions on a test's sizes."""
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
    """Return the conditions, and others making every quotient more than one, as a size of 1 broadcasts."""
    found = []
    for item in divided:
        assert item.result is not None
        parts = item.result.args[0].args  # H and ws of `H % ws == 0`
        found.append(replace(item, result=item.graph.node("compare", ">", parts)))
    return (*divided, *found)


class _Reader:
    """A reader of the forward's statements in order: it learns which names stand for sizes, and notes divisions of these (`found`)."""

    def __init__(self, spec: OpSpec, graph: Graph) -> None:
        """Begin without names of sizes; `found` gets the conditions."""
        self.graph = graph
        self.dims = {
            item.name: spec.tested_dims(item.name) or () for item in spec.tensors
        }
        self.sizes: dict[str, str] = {}  # a local of the forward -> the dim it holds
        self.found: list[Node] = []

    def block(self, statements: Lines) -> None:
        """Read statements in order, noting divisions and names of sizes; of an `if`, both branches."""
        for item in statements:
            if isinstance(item, If):
                self.block((*item.body, *item.orelse))
            else:
                # The value first: in `n = n // 2` it reads the old `n`.
                self.read(item.value)
                self._bind(item)

    def _bind(self, item: Assign) -> None:
        """Learn the names an assignment binds to sizes: `B, H, W, C = x.shape`, `n = x.size(1)`."""
        if item.target.kind == "name":
            size = self._size(item.value)
            if size is not None:
                self.sizes[item.target.label] = size
            return
        tensor = shape_read(item.value)
        # Dims are known by a tensor's name, so not of `x.mT.shape`.
        if tensor is None or tensor.kind != "name":
            return
        dims = self.dims.get(tensor.label, ())
        # Leading dims may be several, so that no target is sure to be a certain dim.
        if len(dims) == len(item.target.args) and not leading(dims):
            for part, dim in zip(item.target.args, dims, strict=True):
                if part.kind == "name" and isinstance(dim, str):
                    self.sizes[part.label] = dim

    def _size(self, node: Node) -> str | None:
        """Return the dim whose size an expression is, "D" for `x.shape[1]` of `x[N, D]`; None for any other expression."""
        if node.kind == "name":
            return self.sizes.get(node.label)
        tensor, at = size_read(node) or (None, node)
        return self._dim(tensor.label, at) if tensor and tensor.kind == "name" else None

    def _dim(self, name: str, at: Node) -> str | None:
        """Return the name of a dim of an input, at a position written as a number; None if either is unknown."""
        dims, position = self.dims.get(name, ()), number_of(at)
        if position is None or not -len(dims) <= position < len(dims):
            return None
        # The dims that the position counts over: leading ones among them make it unknown.
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

    def _note(self, dividend: str | Node | None, divisor: Node) -> None:
        """Record the condition `dividend % divisor == 0`, unless the dividend is unknown."""
        if dividend is None:
            return
        node = self.graph.name(dividend) if isinstance(dividend, str) else dividend
        parts = node, self.graph.rewrite(divisor, self._renamed)
        left = self.graph.node("binary", "%", parts)
        zero = self.graph.constant("0")
        self.found.append(self.graph.node("compare", "==", (left, zero)))

    def _renamed(self, node: Node) -> Node | None:
        """Return the name of a dim for an expression of its size, `x.shape[1]` -> `D`; None for others."""
        size = self._size(node)
        return None if size is None else self.graph.name(size)

    def _of_call(self, call: Node) -> Iterator[tuple[str | Node | None, Node]]:
        """Yield each dividend of a call with its divisor: of `x.unflatten(-1, (groups, -1))`, the dim `D` and `groups`.

        Other such calls: pixel_shuffle, chunk (`shares`), and a reshape with a -1. A dividend is None if it is unknown.
        """
        callee, *args = call.args
        # Keyword arguments are the last of a call's arguments.
        named = dict(zip(call.keywords, args[len(args) - len(call.keywords) :]))
        plain = args[: len(args) - len(call.keywords)]
        owner = callee.args[0]  # of a method the tensor, of a function the module
        # `x.chunk(2)` is `torch.chunk(x, 2)`: the owner is the first argument.
        if owner.label not in ("torch", "F"):
            plain = [owner, *plain]
        if not plain or plain[0].label not in self.dims or plain[0].kind != "name":
            return
        name, rest = plain[0].label, plain[1:]
        if callee.label in SHUFFLES and rest:
            for at, times in SHUFFLES[callee.label]:
                size = self._dim(name, self.graph.constant(str(at)))
                yield size, self._product([rest[0]] * times)
        elif rest and may_be(callee.label, "shares"):
            dim = rest[1] if len(rest) > 1 else named.get("dim")
            # Without a `dim` the first one is divided.
            yield self._dim(name, dim or self.graph.constant("0")), rest[0]
        # `rest[1]` is the tuple of sizes, `(groups, -1)`.
        elif callee.label == "unflatten" and len(rest) == 2:
            yield self._dim(name, rest[0]), self._known_product(rest[1].args)
        elif rest and has_shape(callee.label, "reshaped"):
            # `x.view((a, -1))`, or `x.view(a, -1)`.
            sizes = rest[0].args if rest[0].kind in ("tuple", "list") else rest
            # Only for a -1 PyTorch divides: the number of elements by the other sizes.
            if sum(number_of(size) == -1 for size in sizes) == 1:
                yield self._elements(name), self._known_product(sizes)

    def _elements(self, name: str) -> Node | None:
        """Return an expression of the number of elements of a tensor, `N * 3` of `x[N, 3]`; None if it is undeclared or has leading dims."""
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

    def _known_product(self, sizes: tuple[Node, ...] | list[Node]) -> Node:
        """Return the product of the sizes other than -1."""
        return self._product([size for size in sizes if number_of(size) != -1])

    def _product(self, parts: list[Node]) -> Node:
        """Return the product of expressions, 1 for none."""
        if not parts:
            return self.graph.constant("1")
        return reduce(
            lambda one, two: self.graph.node("binary", "*", (one, two)), parts
        )


def number_of(node: Node) -> int | None:
    """Return the integer a node is written as, or None."""
    match node:
        case Node("constant", text) if text.removeprefix("-").isdecimal():
            return int(text)
        case Node("unary", "-", (Node("constant", text),)) if text.isdecimal():
            return -int(text)
    return None


# --- The reach of the forward's indices: `x[:, 3]`, `x[..., :2]`, `x.select(1, 4)`, `x.narrow(-1, 0, 3)`. Only integers in an
# index of an input are read.


LARGE = 16  # a longer slice may be cut short


def reaches(spec: OpSpec) -> tuple[Formula, ...]:
    """Return a condition for each dim with an index in the forward, the largest: `T >= 4` for `x[:, 3]` of `x[B, T]`."""
    if spec.forward is None:
        return ()
    least: dict[str, int] = {}
    for dim, size in _reached(spec, spec.forward):
        least[dim] = max(size, least.get(dim, 0))
    graph, place = spec.forward.graph, spec.forward.location
    found = []
    for dim, size in least.items():
        parts = graph.name(dim), graph.constant(str(size))
        found.append(graph.node("compare", ">=", parts))
    return tuple(Formula((), node, "", place, (), graph) for node in found)


def _reached(spec: OpSpec, forward: Formula) -> Iterator[tuple[str, int]]:
    """Yield named dims with the number of elements an index requires: `x[:, 3]` of `x[B, N]` -> ("N", 4).

    A test's sizes are at least that; a size of 1 or less is no demand.
    """
    dims = {item.name: spec.tested_dims(item.name) or () for item in spec.tensors}
    for node in forward.nodes():
        match node:
            case Node("subscript", _, (Node("name", name), index)):
                pairs = _indexed(dims.get(name, ()), index)
            case Node(
                "call",
                _,
                (Node("attribute", "select", (Node("name", name),)), at, index),
            ):
                pairs = _taken(dims.get(name, ()), at, _counted(index))
            case Node(
                "call",
                _,
                (Node("attribute", "narrow", (Node("name", name),)), at, first, length),
            ):
                # It ends at first + length, if both are written as numbers.
                start, count = number_of(first), number_of(length)
                end = None if start is None or count is None else start + count
                pairs = _taken(dims.get(name, ()), at, end)
            case _:
                continue
        yield from (
            (dim, size) for dim, size in pairs if isinstance(dim, str) and size > 1
        )


def _indexed(dims: tuple[Dim, ...], index: Node) -> Iterator[tuple[Dim, int]]:
    """Yield dims of a tensor with the sizes required by `x[index]`: `x[:, 3]` of `x[B, T]` -> ("T", 4)."""
    parts = index.args if index.kind == "tuple" else (index,)
    # Without `...` all parts count from the first dim.
    ellipsis = next((at for at, part in enumerate(parts) if part.label == "..."), None)
    before = parts if ellipsis is None else parts[:ellipsis]
    after = () if ellipsis is None else parts[ellipsis + 1 :]
    # Parts before `...` count from the first dim, those after it from the last.
    for named, listed in ((dims, before), (dims[::-1], after[::-1])):
        # An index may have fewer parts than the tensor has dims: `x[3]` of `x[B, T]`.
        for dim, part in zip(named, filter(_is_of_a_dim, listed), strict=False):
            if is_leading(dim):
                break
            size = _counted(part)
            if size is not None:
                yield dim, size


def _taken(
    dims: tuple[Dim, ...], at: Node, size: int | None
) -> Iterator[tuple[Dim, int]]:
    """Yield the dim at the position `at`, with the size an index in it requires: `x.select(1, 4)` of `x[B, T]` -> ("T", 5).

    Nothing if the position is no number, lies behind leading dims, or the size is unknown.
    """
    position = number_of(at)
    if position is None or size is None or not -len(dims) <= position < len(dims):
        return
    if leading(dims[position:] if position < 0 else dims[: position + 1]) is None:
        yield dims[position], size


def _counted(part: Node) -> int | None:
    """Return the least size of a dim for an index part, or None if unknown.

    For a slice it is two more than its ends, so that the rest does not broadcast.
    """
    if part.kind != "slice":
        value = number_of(part)
        # 2 and -3 both need 3 elements.
        return None if value is None else max(-value, value + 1)
    # Start and stop, not the step; a 0 demands nothing.
    ends = [abs(value) for value in map(number_of, part.args[:2]) if value]
    return max((end + 2 for end in ends if end <= LARGE), default=None)


def _is_of_a_dim(part: Node) -> bool:
    """Return whether an index part takes up a dim of the tensor, as all but `None` do."""
    return not (part.kind == "constant" and part.label == "None")
