"""Solve the user's conditions on sizes, `--require "E == 3 * D"`, for named sizes: so `E` is known to be `3*D`.

`expressions` gives inputs these sizes; gradients then need no shape that follows from another.

In: an `OpSpec`. Out: named sizes as sums and products of other sizes; for the program, differences that are not negative (`R <= D`).
Invariant: this holds if all conditions do; conditions of another form are ignored.

Words: `known` maps each size to its value by the conditions read so far; at first each size is its own value.
"""

from collections.abc import Iterator, Mapping

from scaffold.derive.graph import sizes
from scaffold.derive.graph.op import ARITHMETIC, Program, ValueOf
from scaffold.derive.graph.shapes import Dim, NamedSize
from scaffold.formula import Node, as_number, literal_value
from scaffold.spec import OpSpec, is_size_name


def required_sizes(spec: OpSpec, program: Program) -> Mapping[str, Dim]:
    """Return the value of each size name as the conditions of `require` determine it: `E == 3 * D` -> `{"E": 3*D, "D": D}`.

    Int attributes count as sizes too. Without conditions the result is empty. A condition such as `R <= D` determines no size: the
    program notes that `D - R` is not negative.
    """
    dims = {dim for item in spec.tensors for dim in item.dims or ()}
    # Inputs that may be absent are left out: without one, a condition says nothing about other sizes.
    sure = [item for item in spec.tensors if not (item.optional or item.variadic)]
    dims_of_sure = (dim for item in sure for dim in item.dims or ())
    names = dict.fromkeys(filter(is_size_name, dims_of_sure))
    stated = [item.result for item in spec.require if item.result is not None]
    # The forward checks only those that read a size of an input.
    conditions = [result for result in stated if result.names() & names.keys()]
    if not conditions:
        return {}
    known: dict[Dim, Dim] = {NamedSize(name): NamedSize(name) for name in names}
    for item in spec.attributes:
        # An attribute named like a dim is that size, known already.
        if item.annotation == "int" and item.name not in dims:
            value = ValueOf(program.read(item.name))
            program.tell_size(value, value.op)
            known[NamedSize(item.name)] = value
    tests = [test for condition in conditions for test in _conjuncts(condition)]
    for test in tests:
        pair = _solved(test, known)
        if pair is not None:
            known = {name: sizes.replaced(size, *pair) for name, size in known.items()}
    # By the values that all equations give.
    program.nonnegative += filter(None, (_excess(test, known) for test in tests))
    return {
        name.name: size for name, size in known.items() if isinstance(name, NamedSize)
    }


def _conjuncts(test: Node) -> Iterator[Node]:
    """Yield the parts of a condition joined by `and`, or the condition itself."""
    if test.kind == "boolean" and test.label == "and":
        for part in test.args:
            yield from _conjuncts(part)
    else:
        yield test


def _solved(test: Node, known: Mapping[Dim, Dim]) -> tuple[Dim, Dim] | None:
    """Return a size and its value, solved from one condition: `E == 3 * D` -> `(E, 3*D)`; None if it determines no size.

    `H % 2 == 0` makes `H` twice another size. `known` has the value of each size by the conditions before.
    """
    match test:
        case Node("compare", "==", (Node("binary", "%", (one, two)), rest)):
            size, by = _as_size(one, known), _as_size(two, known)
            # `H % 2 == 1` makes H no multiple of a size.
            if size is None or by is None or _as_size(rest, known) != 0:
                return None
            return sizes.divisible(size, by)
        case Node("compare", "==", (one, two)):
            left, right = _as_size(one, known), _as_size(two, known)
            if left is None or right is None:
                return None
            return sizes.solved(left, right)
    return None


def _excess(test: Node, known: Mapping[Dim, Dim]) -> Dim | None:
    """Return the difference that a condition says is not negative: `R <= D` -> `D - R`, `R < D` -> `D - R - 1`; None for others."""
    if test.kind != "compare" or test.label not in ("<", "<=", ">", ">="):
        return None
    least, most = (_as_size(side, known) for side in test.args)
    if least is None or most is None:
        return None
    if test.label.startswith(">"):
        least, most = most, least
    strict = int(not test.label.endswith("="))
    return sizes.minus(sizes.minus(most, least), strict)


def _as_size(node: Node, known: Mapping[Dim, Dim]) -> Dim | None:
    """Return an expression of numbers and size names, `3 * D`, as a size, by their values so far; None for anything else."""
    match node:
        case Node("constant", text):
            value = as_number(literal_value(text))
            return value if type(value) is int else None
        case Node("name", name):
            return known.get(NamedSize(name))
        case Node("binary", label, (one, two)) if label in ARITHMETIC:
            left, right = _as_size(one, known), _as_size(two, known)
            if left is None or right is None:
                return None
            return ARITHMETIC[label](left, right)
    return None
