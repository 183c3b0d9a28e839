"""Inputs assumed real by derived gradients: complex ones would get wrong gradients, lacking a conjugate.

In: the walk back over a forward. Out: the inputs that must not be complex; None if the gradients are right for
complex ones, too.
Invariant: inputs that PyTorch itself rejects as complex are left out.

The backward of the generated op raises for such. Words: a simplification that holds for real numbers alone, as
`conj(x) -> x`, has noted its values (`program.real`). A cotangent is the gradient of the loss by a value. An op of
the graph is one application of a primitive. The joined input stands for a variadic one, any number of tensors, of
which forward makes one tensor.
"""

from collections.abc import Iterable, Mapping

from scaffold.derive.derivation import RealInputs
from scaffold.derive.gradients import Differentiated
from scaffold.derive.graph.op import Op, tensors
from scaffold.derive.stated_real_inputs import (
    REAL,
    makes_real,
    rejects,
    to_refuse,
)
from scaffold.spec import OpSpec


def real_inputs(spec: OpSpec, found: Differentiated) -> RealInputs | None:
    """Return the inputs whose derived gradients would be wrong if they were complex; None if there are none.

    With them: whether a complex one shows in the dtype of grad_output (`shown`), so that the backward can refuse it;
    else groups of inputs (`alike`) of which one complex one would make the others' gradients complex.
    """
    if found.walked is None:
        return None
    program, results = found.walked.applier.program, found.walked.lowered.results
    assumed_real = _complex_inputs(program.real, found.walked.cotangents)
    assumed_real -= _refused_by_pytorch(results)
    # Of calls that PyTorch computes of complex numbers, too, for which our formula is not.
    assumed_real |= _complex_inputs(program.real_in_calls)
    of_results = _complex_inputs(results)  # if complex, they make a result complex
    # Then the imaginary part of a real value's incoming gradient would be dropped.
    if of_results:
        passed = (op for _, op in found.walked.back.via.values())
        made = (op for op in passed if makes_real(op.facts))
        assumed_real |= _complex_inputs(arg for op in made for arg in op.args)
    if found.joined and found.joined.name in assumed_real:
        assumed_real |= {found.joined.several.name}
    active = {item.name for item in spec.differentiable}
    refused = to_refuse(spec, assumed_real, of_results)
    alike = () if refused.names else _alike(spec, found, active, results)
    return refused._replace(alike=alike) if refused.names or alike else None


def _alike(
    spec: OpSpec, found: Differentiated, active: set[str], results: Iterable[Op]
) -> tuple[tuple[str, ...], ...]:
    """Return groups of inputs of one result, to be all real or all complex: else a real one would get a complex gradient.

    A sole input is in no group, unless it is variadic: several tensors. `active` are the inputs with a gradient.
    """
    joined, groups = found.joined, list[tuple[str, ...]]()
    for result in results:
        names = _complex_inputs([result])
        if joined and joined.name in names:
            names |= {joined.several.name}
        group = [item for item in spec.tensors if item.name in names]
        several = len(group) > 1 or any(item.variadic for item in group)
        if several and active & names:
            groups.append(tuple(item.name for item in group))
    return (*dict.fromkeys(groups),)


def _complex_inputs(
    ops: Iterable[Op], cotangents: Mapping[Op, Op] = {}
) -> frozenset[str]:
    """Return the inputs declared real that, if complex, would make one of `ops` complex.

    `cotangents` maps a cotangent to its result, and it is complex if that is.
    """
    found, seen, waiting = set[str](), set[Op](), [*ops]
    while waiting:
        op = waiting.pop()
        op = cotangents.get(op, op)
        if op in seen or not _may_be_complex(op):
            continue
        seen.add(op)
        if op.rule == "input":
            found.add(op.name)
        # The dtype of one argument alone may decide: `y` in `x.type_as(y)`.
        at = op.facts.dtype
        waiting += (op.args[at],) if isinstance(at, int) else op.args
    return frozenset(found)


def _may_be_complex(op: Op) -> bool:
    """Return whether a value is real only because its arguments are: with complex ones it would be complex.

    Not one that is created anew, nor the result of a function that rejects complex numbers or gives a fixed kind, as
    `abs`.
    """
    if op.kind not in ("real", "group") and op.rule != "list":
        return False
    made = rejects(op.facts) or "creates" in op.facts.flags
    return not made and op.facts.kind() not in REAL


def _refused_by_pytorch(results: Iterable[Op]) -> frozenset[str]:
    """Return the inputs that raise in the forward if complex; none if the forward has branches: they may avoid the call.

    A call of the backward that would raise is no check: it may never run, as it is for the gradient of another input.
    """
    ops = {op for result in results for op in result.walk()}
    if any(op.rule == "cond" for op in ops):
        return frozenset()
    return _complex_inputs(arg for op in ops if _raises(op) for arg in op.args)


def _raises(op: Op) -> bool:
    """Return whether a call of the forward raises for complex arguments: by itself, or as another one is real, `probs @ value`."""
    others = tensors(op.args) if op.facts.dtype == "uniform" else ()
    return rejects(op.facts) or any(
        arg.kind != "complex" and not _complex_inputs((arg,)) for arg in others
    )
