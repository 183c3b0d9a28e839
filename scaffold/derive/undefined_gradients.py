"""The output gradients that `backward` must be able to do without: PyTorch hands in None for an output that nothing reads.

Zeros in the place of None are right where a gradient is finite. The gradient of `x.sqrt()` is infinite at 0, and 0 times infinity is
NaN: `return x.sqrt(), x * 2` would have no gradient there, though only the second output is read.

In: the outputs. Out: the cotangents whose part of a gradient is left out where they are None. Invariant: one of them is always there,
or replaced by zeros.
"""

from collections import Counter
from collections.abc import Mapping

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.signs import is_singular
from scaffold.derive.simplify.constructors import Maker
from scaffold.spec import OpSpec


def undefined_gradients(spec: OpSpec, cotangents: Mapping[Op, Op]) -> frozenset[Op]:
    """Find the cotangents, each given with its output, that lead through a singular step of their own; none where all do."""
    if spec.is_library:  # PyTorch hands zeros to it
        return frozenset()
    steps = {
        cotangent: {op for op in result.walk() if is_singular(op)}
        for cotangent, result in cotangents.items()
    }
    several = Counter(op for own in steps.values() for op in own)
    found = {
        cotangent
        for cotangent, own in steps.items()
        if any(several[op] == 1 for op in own)
    }
    return frozenset(found) if len(found) < len(cotangents) else frozenset()


def where_defined(make: Maker, cotangent: Op) -> Op:
    """Make the choice between a cotangent and, where it is None, nothing."""
    program = make.program
    none = program.const(None)
    given = program.python("compare", "is not", program.read(cotangent.name), none)
    return make.choose(given, cotangent, program.const(0))
