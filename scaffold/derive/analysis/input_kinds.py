"""The value kinds of an op's inputs: the start of those of its text.

In: an `OpSpec`. Out: `ValueKinds` that know its inputs, and its imports of NumPy and its like. Invariant: an attribute of
any type may hold a tensor.
"""

from scaffold.formula import ValueKinds
from scaffold.spec import OpSpec

ARRAY_MODULES = frozenset({"cupy", "numpy", "scipy"})


def kinds_of_inputs(spec: OpSpec) -> ValueKinds:
    """Return the kinds of an op's inputs, tensor or Python value, for passes that ask the kind of an expression.

    The caller adds the kinds of locals, line by line (`kinds.after`). Arrays of NumPy and the like are neither.
    """
    python_values = [
        item.name
        for item in spec.attributes
        # An attribute of type `object`, or of an imported type, may hold a tensor.
        if item.annotation != "object" and item.imported is None
    ]
    variadic = [item.name for item in spec.tensors if item.variadic]
    roots = ((item.binding, item.module.partition(".")[0]) for item in spec.imports)
    arrays = [binding for binding, root in roots if root in ARRAY_MODULES]
    return ValueKinds(python_values, variadic, arrays)
