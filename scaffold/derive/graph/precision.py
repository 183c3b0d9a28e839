"""Values certain to have equal dtypes in every call, so no cast is needed between them.

In: ops, and the result of each cotangent. Out: for each op the tensors with dtypes that promote to its own.
Invariant: an op with a dtype not known to follow from its arguments is its own source.

Words: a source of a value is a tensor that decides the value's dtype: of `x * y` these are x and y, since the result
has the larger of their dtypes (promotion). A value of a uniform primitive, as a matrix product, has operands of equal
dtype, or PyTorch raises. A cotangent is the gradient of the loss by a value, and has that value's dtype. Two values
with the same sources have the same dtype. `said` is the word of the table for the dtype of a result; sources are
`alike` if they have equal dtypes, and united once one of them stands for all.
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


@lru_cache(maxsize=4096)  # asked about each op on the way, and everything below it
def of_default_dtype(op: Op) -> bool:
    """Return whether a real value is computed from masks and integers alone: PyTorch gives it the default dtype, float32, in any call.

    `mask.sum() / 2` is one.
    """
    if op.kind != "real" or op.facts.dtype != "promoted":
        return False
    args = [*tensors(op.args)]
    # `torch.eye(3, dtype=d)`, of no tensors, may have a dtype of its own (`_is_created`).
    return bool(args) and all(
        arg.kind in ("int", "bool") or of_default_dtype(arg) for arg in args
    )


def says_its_dtype(program: Program, op: Op) -> bool:
    """Return whether the forward fixes a real value's dtype, for any inputs: `y.float()`, `torch.eye(3)`, `mask.sum() + 1e-4`.

    A cast to `x.dtype` does not: that is the dtype of an input. Where it does, a gradient may have to be cast back.
    """
    if op.kind != "real":
        return False
    # Of `x.to(d)`: it may be x itself (same), and its dtype is not that of x (own).
    is_cast = op.facts.memory == "same" and op.facts.dtype == "own"
    if is_cast:
        given = map(program.value_of, op.args[1:])
        return not any(map(_is_dtype_of_a_tensor, given))
    return _is_created(op) or of_default_dtype(op)


def _is_dtype_of_a_tensor(op: Op) -> bool:
    """Return whether it is the Python value `x.dtype`, of any tensor: a cast to it follows an input."""
    match op.data:
        case Operator("attribute", "dtype") | Expression(Node("attribute", "dtype")):
            return True
    return False


def _is_created(op: Op) -> bool:
    """Return whether it is a new tensor of the default dtype or a `torch` dtype: `torch.eye(3)`, not `torch.eye(3, dtype=x.dtype)`."""
    if not isinstance(op.data, Template) or any(tensors(op.args)):
        return False
    match keywords(op.data.node).get("dtype"):
        case None | Node("attribute", _, (Node("name", "torch"),)):
            return True
    return False


def _is_cast_or_given(source: Op) -> bool:
    """Return whether a source is neither created nor of the default dtype: an input, or a cast of one."""
    return not (_is_created(source) or of_default_dtype(source))


class Precision:
    """The sources of dtypes: tensors of a call that decide the dtype of a value; call it with an op."""

    def __init__(self, results: Mapping[Op, Op]) -> None:
        """Start with the equal dtypes each contraction (a matrix product, an einsum) asks for, in the forward up to `results`.

        `results` maps each cotangent to its result.
        """
        self.results = results  # a cotangent -> the result with its dtype
        self.known: dict[Op, Sources] = {}
        self.united: dict[Op, Sources] = {}  # with one source for all of equal dtype
        self.known_gradients: dict[tuple[Op, bool], Sources] = {}  # by op and `surely`
        self.alike: dict[Op, Op] = {}  # operands of a contraction have equal dtypes
        for result in results.values():
            for op in result.walk():
                if op.facts.dtype == "uniform":
                    self.unite(op)

    def unite(self, op: Op) -> None:
        """Note the equal dtypes of all sources of an op's operands: PyTorch refuses a product of matrices of different dtypes.

        The first source made by the program then stands for all of them (`alike`).
        """
        sources = {
            self._root(source) for arg in tensors(op.args) for source in self._of(arg)
        }
        ordered = sorted(sources, key=lambda source: source.serial)
        self.alike |= {source: ordered[0] for source in ordered[1:]}
        self.united.clear()  # answers given before may name a replaced source

    def _root(self, source: Op) -> Op:
        """Return the source noted for all sources of the same dtype as this one."""
        while source in self.alike:
            source = self.alike[source]
        return source

    def __call__(self, op: Op) -> Sources:
        """Return the tensors deciding a value's dtype, by promotion; only one of several certain to have equal dtypes.

        Equal answers for two values mean equal dtypes.
        """
        if op not in self.united:
            self.united[op] = frozenset(map(self._root, self._of(op)))
        return self.united[op]

    def of_gradients(self, op: Op, *, surely: bool = False) -> Sources:
        """Return the cotangents a value is computed from; with `surely`, only cotangents in both branches of a choice.

        Under vmap some of them may be batched: a value may be updated in place only by values of cotangents that it
        surely has too.
        """
        if (op, surely) not in self.known_gradients:
            own = frozenset((op,) if op.rule == "cotangent" else ())
            inner = [self.of_gradients(arg, surely=surely) for arg in op.args]
            if surely and op.rule == "cond":
                # Only one branch is taken, so sure is what both have.
                found = inner[0].intersection(*inner[1:])
            else:
                found = own.union(*inner)
            self.known_gradients[op, surely] = found
        return self.known_gradients[op, surely]

    def _of(self, op: Op) -> Sources:
        """Return the sources of an op, computed once."""
        if op not in self.known:
            self.known[op] = self._compute_sources(op)
        return self.known[op]

    def _compute_sources(self, op: Op) -> Sources:
        """Compute the sources of an op: its arguments' if its dtype is promoted from them, otherwise the op itself.

        The set is empty for an integer or a mask: neither promotes a real value. A cotangent has the dtype of its
        result. The table's `dtype` is "promoted", "uniform", or the position of the argument with the same dtype.
        """
        if not op.is_tensor or op.kind in ("int", "bool"):
            return frozenset()
        if op in self.results:
            return self._of(self.results[op])
        if op.rule == "item":
            # One of several results: `args[0]` is the call, whose tensors decide.
            return self._together(op.args[0].args)
        if of_default_dtype(op):
            return frozenset({op})
        # A cast of its first argument to the second one's dtype; with `promote_types` (its data), to a dtype of both.
        if op.rule == "cast" and op.data is None:
            return self._of(op.args[1])
        said = op.facts.dtype
        if said in ("promoted", "uniform"):
            found = self._together(op.args)
            # A complex value has at least single precision, as created tensors do.
            return (
                frozenset(filter(_is_cast_or_given, found))
                if op.kind == "complex"
                else found
            )
        if isinstance(said, int):
            return self._together((op.args[said],))
        return frozenset({op})

    def _together(self, args: Iterable[Op]) -> Sources:
        """Return the sources of all tensors among arguments."""
        return frozenset[Op]().union(*map(self._of, tensors(args)))


def source_of(op: Op) -> Op | None:
    """Return the one input of surely the same dtype as a value; None if it depends on several, or on something else.

    A gradient of that value can be cast to `x.dtype`.
    """
    precision = Precision({})
    for inner in op.walk():
        if inner.facts.dtype == "uniform":
            precision.unite(inner)
    sources = precision(op)
    if len(sources) != 1:
        return None
    (source,) = sources
    # Of a complex x, `x.abs()` is real: its dtype is not `x.dtype`.
    return source if source.rule == "input" and source.kind == op.kind else None
