"""Size equations from the user's conditions: `E == 3 * D`, `H % 2 == 0`.

In: an `OpSpec`. Out: named sizes as sums and products of other sizes. Invariant: if all conditions hold, the sizes are
equal; other conditions are ignored.
"""

from collections.abc import Iterator, Mapping

from scaffold.derive.graph import sizes
from scaffold.derive.graph.op import ARITHMETIC, Program, ValueOf
from scaffold.derive.graph.shapes import Dim, NamedSize
from scaffold.formula import Node, as_number, literal_value
from scaffold.spec import OpSpec, is_size_name


def required_sizes(spec: OpSpec, program: Program) -> Mapping[str, Dim]:
    """Map each size name to its value, as far as conditions determine it."""
    conditions = [item.result for item in spec.require if item.result is not None]
    if not conditions:
        return {}
    dims = {dim for item in spec.tensors for dim in item.dims or ()}
    # Optional inputs are left out: without one, a condition says nothing about other
    # sizes.
    sure = [item for item in spec.tensors if not (item.optional or item.variadic)]
    names = (dim for item in sure for dim in item.dims or () if is_size_name(dim))
    known: dict[Dim, Dim] = {NamedSize(name): NamedSize(name) for name in names}
    for item in spec.attributes:
        if item.annotation == "int" and item.name not in dims:
            value = ValueOf(program.read(item.name))
            program.tell_size(value, value.op)
            known[NamedSize(item.name)] = value
    for condition in conditions:
        for test in _conjuncts(condition):
            told = _told(test, known)
            if told is not None:
                known = {
                    name: sizes.replaced(size, *told) for name, size in known.items()
                }
    return {
        name.name: size for name, size in known.items() if isinstance(name, NamedSize)
    }


def _conjuncts(test: Node) -> Iterator[Node]:
    """Yield the conditions joined by `and`."""
    if test.kind == "boolean" and test.label == "and":
        for part in test.args:
            yield from _conjuncts(part)
    else:
        yield test


def _told(test: Node, known: Mapping[Dim, Dim]) -> tuple[Dim, Dim] | None:
    """Return a size and its value, as solved from a condition, or None."""
    match test:
        case Node("compare", "==", (Node("binary", "%", (one, two)), rest)):
            size, by = _size(one, known), _size(two, known)
            if size is None or by is None or _size(rest, known) != 0:
                return None
            return sizes.divisible(size, by)
        case Node("compare", "==", (one, two)):
            left, right = _size(one, known), _size(two, known)
            if left is None or right is None:
                return None
            return sizes.solved(left, right)
    return None


def _size(node: Node, known: Mapping[Dim, Dim]) -> Dim | None:
    """Return the size computed by an expression, or None if unknown."""
    match node:
        case Node("constant", text):
            value = as_number(literal_value(text))
            return value if type(value) is int else None
        case Node("name", name):
            return known.get(NamedSize(name))
        case Node("binary", label, (one, two)) if label in ARITHMETIC:
            left, right = _size(one, known), _size(two, known)
            if left is None or right is None:
                return None
            return ARITHMETIC[label](left, right)
    return None
