"""Inputs assumed real by stated gradients, as far as their text tells.

In: the lines of stated gradients, and the forward. Out: the inputs that must not be complex, since a gradient multiplies by
values made of them, and conjugates none; None if there are none, or in doubt. Invariant: the engine is not imported.

`real_inputs` asks the graph of derived gradients the same, and shares what both know of functions and results.
"""

from collections.abc import Iterable, Iterator

from scaffold.derive.analysis.activity import callee, known_facts
from scaffold.derive.backward_program import needed_for
from scaffold.derive.derivation import Forward, RealInputs
from scaffold.formula import (
    BUILTINS,
    If,
    Lines,
    Node,
    expressions,
    metadata_read,
    reads,
    written,
)
from scaffold.primitives import Facts
from scaffold.primitives.calls import (
    casts_like,
    facts_of_attribute,
    in_place_or_not,
    is_discrete,
    may_be,
)
from scaffold.primitives.python_values import FUNCTIONS, METHODS
from scaffold.spec import OpSpec

REAL = frozenset({"real", "magnitude", "int", "bool"})  # kinds fixed for any inputs
# Calls of these compute no tensor.
_PYTHON = BUILTINS | METHODS | FUNCTIONS


def of_stated(spec: OpSpec, forward: Forward, stated: Lines) -> RealInputs | None:
    """Return the inputs that stated gradients take for real: the text of one reads values of these, and conjugates none.

    None if none reads such a value, as `-grad_output`; and in doubt: where a function is not PyTorch's, or of a forward
    kept as the user wrote it, with a loop.
    """
    facts, known = _called(forward.expressions()), _called(expressions(*stated))
    declared = any(item.dtype == "complex" for item in spec.tensors)
    if facts is None or known is None or spec.kept or declared:
        return None
    real = frozenset(item.name for item in spec.tensors if item.dtype == "float")
    # Of any other value of the forward nobody knows here of which inputs it is made.
    made = {item.name for item in spec.outputs if item.differentiable}
    made |= written(*forward.statements) - {item.name for item in spec.inputs}
    in_doubt = any(makes_real(one) for several in facts for one in several)
    assumed_real = frozenset[str]()
    for item in spec.differentiable:
        needed = needed_for(stated, [f"grad_{item.name}"])
        values = [*expressions(*(stated[at] for at in sorted(needed)))]
        if not values or _is_for_complex(_called(values) or ()):
            continue
        read = {name for value in values for name in _values_read(value)}
        assumed_real |= real if read & made else real & read
        if _is_for_complex(facts):  # the gradient of `3 * x.conj()` conjugates, too
            assumed_real |= {item.name}
    if not in_doubt:
        assumed_real -= _refused(forward, real, made)
    found = to_refuse(spec, assumed_real, frozenset() if in_doubt else real)
    return found if found.names else None


def _refused(forward: Forward, real: frozenset[str], made: set[str]) -> frozenset[str]:
    """Return inputs rejected as complex by a function of the forward; none if it has branches: they may avoid the call."""
    nodes = [part for value in forward.expressions() for part in value.walk()]
    branches = any(isinstance(item, If) for item in forward.statements)
    if branches or any(node.kind == "conditional" for node in nodes):
        return frozenset()
    found = frozenset[str]()
    for node in nodes:
        facts = known_facts(node) if node.kind in ("binary", "call") else ()
        if facts and all(map(rejects, facts)):
            read = {one.name for one in reads(node) if not one.facets}
            # A local is made of the only input, if there is but one.
            found |= real if read & made and len(real) == 1 else real & read
    return found


def _values_read(node: Node) -> Iterator[str]:
    """Yield the names read for their values: not for a shape, a dtype or a mask, as in `x.new_zeros(3)` and `x > 0`."""
    word = callee(node) or ""
    no_values = may_be(word, "creates") or is_discrete(word)
    if metadata_read(node) or node.kind == "compare" or no_values:
        return
    if node.kind == "name":
        yield node.label
    # `grad.to(x)`, and the tensor of a method: `grad` of `grad.to`.
    for arg in node.args[:1] if casts_like(word) else node.args:
        yield from _values_read(arg)


def _is_for_complex(called: Iterable[tuple[Facts, ...]]) -> bool:
    """Return whether a text that calls these was written with complex numbers in mind: `x.conj()`, `x.imag`."""
    facts = (one for several in called for one in several)
    return any(one.complex == "only" or "for_complex" in one.flags for one in facts)


def _called(values: Iterable[Node]) -> list[tuple[Facts, ...]] | None:
    """Return what is known of each call, operator and attribute in some expressions; None if a function is not PyTorch's."""
    found = []
    for node in (part for value in values for part in value.walk()):
        if node.kind == "attribute":
            facts = facts_of_attribute(node.label)
        elif node.kind in ("binary", "call"):
            word = callee(node) or ""
            # Of `torch.ops.aten.tanh_backward` it depends on the function: some conjugate.
            if "aten" in {part.label for part in node.args[0].walk()}:
                return None
            # `exp_` of `x.exp_()` is no primitive: what holds of `exp` holds of it.
            facts = known_facts(node) or in_place_or_not(word)
            if word and not facts and word not in _PYTHON:
                return None
        else:
            continue
        if facts:
            found.append(facts)
    return found


def rejects(facts: Facts) -> bool:
    """Return whether a function of PyTorch raises for complex numbers."""
    # A step function, as `torch.round`, has no complex form; of other constants, as `zeros_like`, the table does not say.
    untold = facts.category == "constant" and "recorded" not in facts.flags
    return not (facts.complex or untold or "takes_complex" in facts.flags)


def makes_real(facts: Facts) -> bool:
    """Return whether a result may be real though the argument is complex: `x.abs()`, `x.to(torch.float32)`, `x.type_as(y)`."""
    # A number is the position of the argument with the result's dtype: 1 for `type_as`.
    of_other = isinstance(facts.dtype, int) and facts.dtype > 0
    is_cast = facts.memory == "same" and (facts.dtype == "own" or of_other)
    return facts.kind() in REAL or is_cast


def to_refuse(
    spec: OpSpec, assumed_real: frozenset[str], of_results: frozenset[str]
) -> RealInputs:
    """Return the inputs to refuse if complex, in order, with whether a complex one shows in the dtype of grad_output.

    `of_results` are the inputs that, if complex, make a result complex.
    """
    # The backward looks at one incoming gradient, which must be a tensor: not None, and no tuple of them.
    sole = len(spec.outputs) == 1 and not spec.outputs[0].variadic
    one_gradient = sole and spec.materialize_grads
    shown = one_gradient and assumed_real <= of_results
    if shown and assumed_real & {item.name for item in spec.differentiable}:
        # Real inputs beside a complex one would get a complex gradient: autograd
        # refuses it.
        assumed_real |= of_results
    # Any other input of the result would be refused along with these.
    shown = shown and assumed_real == of_results
    names = tuple(item.name for item in spec.tensors if item.name in assumed_real)
    return RealInputs(names, shown)
