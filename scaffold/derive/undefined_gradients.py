"""Undefined output gradients: PyTorch passes None to `backward` for an unread output.

Zeros in place of None are right for a finite gradient. The gradient of `x.sqrt()` is infinite at 0, and 0 times
infinity is NaN: `return x.sqrt(), x * 2` would have no gradient there, though only the second output is read.

In: the outputs. Out: the cotangents whose part of a gradient is left out if they are None. Invariant: at least one of
them is present, or replaced by zeros.

Words: the cotangent of an output is the gradient that autograd passes for it. An op is one application of a primitive
in the graph, and singular if its gradient can be infinite, as of `sqrt` or a division.
"""

from collections import Counter
from collections.abc import Mapping

from scaffold.derive.graph.op import Op
from scaffold.derive.graph.signs import is_singular
from scaffold.derive.simplify.constructors import Maker
from scaffold.spec import OpSpec


def undefined_gradients(spec: OpSpec, cotangents: Mapping[Op, Op]) -> frozenset[Op]:
    """Return the cotangents with a singular step of their own, not shared with another output; none if all have one.

    A singular step turns a cotangent of zeros into NaN, so an unused output must give None rather than zeros.
    `cotangents` maps each to the output's op; a step shared with another output passes that one's cotangent anyway.
    """
    if spec.is_library:  # PyTorch passes it zeros
        return frozenset()
    steps = {
        cotangent: {op for op in result.walk() if is_singular(op)}
        for cotangent, result in cotangents.items()
    }
    outputs_with = Counter(op for ops in steps.values() for op in ops)
    found = {
        cotangent
        for cotangent, ops in steps.items()
        if any(outputs_with[op] == 1 for op in ops)
    }
    return frozenset(found) if len(found) < len(cotangents) else frozenset()


def where_defined(make: Maker, cotangent: Op) -> Op:
    """Return the cotangent, or 0 if it is None: `grad_y if grad_y is not None else 0`, which leaves out all its terms."""
    program = make.program
    none = program.const(None)
    given = program.python("compare", "is not", program.read(cotangent.name), none)
    return make.choose(given, cotangent, program.const(0))
