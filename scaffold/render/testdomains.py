"""Domains and shapes assumed in tests if the signature leaves them open: smooth values, broadcasting shapes.

Finite differences need values at which the forward is smooth: positive ones for a logarithm. A *domain* is such a range: "positive", "spd"
(a symmetric positive definite matrix), "normal" (any). In: an `OpSpec` and its `Derivation`, with the domains that the primitives in the
forward need. Out: the spec with the domains found by derivation, and without dims if all inputs share
the one default shape of `testcases`. Invariant: everything stated by the user is kept.
"""

from dataclasses import replace

from scaffold.derive import Derivation, without_gradient
from scaffold.derive.analysis.activity import calls
from scaffold.primitives.calls import may_be
from scaffold.spec import Dim, Domain, OpSpec, TensorInput

SQUARE: tuple[Dim, ...] = (3, 3)


def with_domains(spec: OpSpec, derivation: Derivation) -> OpSpec:
    """Return the op as its tests see it: with the domains its forward needs, and with one shape for all undeclared inputs.

    For `x, weight[...; const]`, both get the one default shape of undeclared inputs; indices and masks may have another.
    An inverted matrix is square.
    """
    spec = without_gradient(spec, derivation.detached)
    found = dict(derivation.domains)
    several = [spec.tested_dims(item.name) for item in spec.tensors]
    # Some inputs have no declared dims (None), and the others only leading ones.
    loose = None in several and {*several} <= {None, ("...",)}
    if not (found or loose):
        return spec
    with_indices = _takes_indices_of_its_rank(spec)
    assumed = ("complex", "float", "int") if with_indices else ("complex", "float")

    def seen(item: TensorInput) -> TensorInput:
        """Return an input as the tests see it: its domain, and its dims if they are assumed.

        A positive definite matrix is assumed square; if `loose`, inputs of the dtypes in `assumed` are of any one shape.
        """
        dims = spec.tested_dims(item.name)
        if dims is None and found.get(item.name) == "spd":
            dims = SQUARE
            item = item._replace(dims=dims)
        elif loose and item.dtype in assumed:
            dims = None
            item = item._replace(dims=dims)
        return item._replace(domain=_domain(item, dims, found))

    inputs = (seen(one) if isinstance(one, TensorInput) else one for one in spec.inputs)
    return replace(spec, inputs=tuple(inputs))


def _takes_indices_of_its_rank(spec: OpSpec) -> bool:
    """Return whether the forward calls a function requiring an index with the dims of the tensor, as `torch.gather`."""
    if spec.forward is None:
        return False
    read = spec.forward.expressions()
    return any(may_be(name, "aligned") for node in read for name in calls(node))


def _domain(
    item: TensorInput, dims: tuple[Dim, ...] | None, found: dict[str, Domain]
) -> Domain:
    """Return the domain of an input: its own, or the one the forward needs if the input's shape allows it."""
    word = found.get(item.name, "normal")
    # A domain that the user states stays, and only floats have another one than "normal".
    if item.domain != "normal" or item.dtype != "float":
        return item.domain
    square = dims is not None and len(dims) > 1 and dims[-1] == dims[-2]
    return "normal" if word == "spd" and not square else word
