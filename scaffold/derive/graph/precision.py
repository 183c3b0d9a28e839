"""Which values surely have the same dtype in every call, so that no cast stands between them.

In: ops, and the result that each cotangent is of. Out: for each op the tensors whose dtypes, promoted, are its dtype. Invariant:
what is not known to follow from its arguments is a source of its own.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from scaffold.derive.graph.op import (
    Expression,
    Op,
    Operator,
    Program,
    Template,
    tensors,
)
from scaffold.formula import Node, keywords

Sources = frozenset[Op]


@lru_cache(maxsize=4096)  # asked of each op on the way, and of all that is below it
def of_default_dtype(op: Op) -> bool:
    """Whether a real value is computed of masks and integers alone: it is float32 whatever the inputs are."""
    if op.kind != "real" or op.facts.dtype != "promoted":
        return False
    found = False
    for arg in tensors(op.args):
        if not (arg.kind in ("int", "bool") or of_default_dtype(arg)):
            return False
        found = True
    return found


def says_its_dtype(program: Program, op: Op) -> bool:
    """Whether a real value has a dtype that the forward says, whatever the inputs have: `y.float()`, `torch.eye(3)`, `mask.sum() + 1e-4`."""
    if op.kind != "real":
        return False
    is_cast = op.facts.memory == "same" and op.facts.dtype == "own"
    if is_cast:
        given = map(program.value_of, op.args[1:])
        return not any(map(_is_dtype_of_a_tensor, given))
    return _is_created(op) or of_default_dtype(op)


def _is_dtype_of_a_tensor(op: Op) -> bool:
    """Whether it is `x.dtype`, to which a cast brings nothing new in."""
    match op.data:
        case Operator("attribute", "dtype") | Expression(Node("attribute", "dtype")):
            return True
    return False


def _is_created(op: Op) -> bool:
    """Whether it is a new tensor of the default dtype, or of one of `torch`: not of `x.dtype`."""
    if not isinstance(op.data, Template) or any(tensors(op.args)):
        return False
    match keywords(op.data.node).get("dtype"):
        case None | Node("attribute", _, (Node("name", "torch"),)):
            return True
    return False


def _is_cast_or_given(source: Op) -> bool:
    """Whether a dtype is more than the default one."""
    return not (_is_created(source) or of_default_dtype(source))


class Precision:
    """Which tensors of a call tell the dtype of a value."""

    def __init__(self, results: Mapping[Op, Op]) -> None:
        self.results = results  # a cotangent -> the result that it has the dtype of
        self.known: dict[Op, Sources] = {}
        self.united: dict[Op, Sources] = {}  # with one for all that are alike
        self.known_gradients: dict[tuple[Op, bool], Sources] = {}
        self.alike: dict[Op, Op] = {}  # what a contraction takes has one dtype
        for result in results.values():
            for op in result.walk():
                if op.facts.dtype == "uniform":
                    self.unite(op)

    def unite(self, op: Op) -> None:
        sources = {
            self._found(source) for arg in tensors(op.args) for source in self._of(arg)
        }
        first, *rest = sorted(sources or {op}, key=lambda source: source.serial)
        self.alike |= dict.fromkeys(rest, first)
        self.united.clear()

    def _found(self, source: Op) -> Op:
        while source in self.alike:
            source = self.alike[source]
        return source

    def __call__(self, op: Op) -> Sources:
        """The tensors whose dtypes decide that of a value; one for all that surely have the same."""
        if op not in self.united:
            self.united[op] = frozenset(map(self._found, self._of(op)))
        return self.united[op]

    def of_gradients(self, op: Op, *, surely: bool = False) -> Sources:
        """The gradients that come in which it may depend on, or does whichever side of each choice is taken."""
        if (op, surely) not in self.known_gradients:
            own = frozenset((op,) if op.rule == "cotangent" else ())
            inner = [self.of_gradients(arg, surely=surely) for arg in op.args]
            if surely and op.rule == "cond":
                found = inner[0].intersection(*inner[1:])
            else:
                found = own.union(*inner)
            self.known_gradients[op, surely] = found
        return self.known_gradients[op, surely]

    def _of(self, op: Op) -> Sources:
        if op not in self.known:
            self.known[op] = self._sources(op)
        return self.known[op]

    def _sources(self, op: Op) -> Sources:
        if not op.is_tensor or op.kind in ("int", "bool"):
            return frozenset()
        if op in self.results:
            return self._of(self.results[op])
        if op.rule == "item":
            return self._together(op.args[0].args)
        if of_default_dtype(op):
            return frozenset({op})
        said = op.facts.dtype
        if said in ("promoted", "uniform"):
            found = self._together(op.args)
            # A complex value is of single precision at least, as what is created is.
            return (
                frozenset(filter(_is_cast_or_given, found))
                if op.kind == "complex"
                else found
            )
        if isinstance(said, int):
            return self._together((op.args[said],))
        return frozenset({op})

    def _together(self, args: Iterable[Op]) -> Sources:
        return frozenset[Op]().union(*map(self._of, tensors(args)))


def source_of(op: Op) -> Op | None:
    """The one input that has the dtype of a value, if there is one."""
    precision = Precision({})
    for inner in op.walk():
        if inner.facts.dtype == "uniform":
            precision.unite(inner)
    found = next(iter(sources := precision(op)), None)
    plain = found is not None and found.rule == "input" and found.kind == op.kind
    return found if plain and len(sources) == 1 else None
