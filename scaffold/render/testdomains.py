"""What the tests take for granted of inputs where the signature leaves it open: values where the forward is smooth, shapes that broadcast.

In: an `OpSpec` and its `Derivation`. Out: the spec with the domains that derivation found, and without dims where all inputs have the one
shape of what is not declared, which `testcases` knows. Invariant: what the user states stands.
"""

from dataclasses import replace

from scaffold.derive import Derivation, without_gradient
from scaffold.derive.analysis.activity import calls
from scaffold.primitives.calls import may_be
from scaffold.spec import Dim, Domain, OpSpec, TensorInput

SQUARE: tuple[Dim, ...] = (3, 3)


def with_domains(spec: OpSpec, derivation: Derivation) -> OpSpec:
    """The op as its tests see it.

    `x, weight[...; const]`: both have the one shape of what is not declared; indices and masks may be of another. A matrix
    that is inverted is square.
    """
    spec = without_gradient(spec, derivation.detached)
    found = dict(derivation.domains)
    several = [spec.tested_dims(item.name) for item in spec.tensors]
    loose = None in several and {*several} <= {None, ("...",)}
    alike = _takes_indices_of_its_rank(spec)
    if not (found or loose):
        return spec

    def seen(item: TensorInput) -> TensorInput:
        dims = spec.tested_dims(item.name)
        if dims is None and found.get(item.name) == "spd":
            dims = SQUARE
            item = item._replace(dims=dims)
        elif loose and item.dtype in ("complex", "float", *["int"] * alike):
            dims = None
            item = item._replace(dims=dims)
        return item._replace(domain=_domain(item, dims, found))

    inputs = (seen(one) if isinstance(one, TensorInput) else one for one in spec.inputs)
    return replace(spec, inputs=tuple(inputs))


def _takes_indices_of_its_rank(spec: OpSpec) -> bool:
    """Whether the forward calls what wants an index with the dims of the tensor."""
    if spec.forward is None:
        return False
    read = spec.forward.expressions()
    return any(may_be(name, "aligned") for node in read for name in calls(node))


def _domain(
    item: TensorInput, dims: tuple[Dim, ...] | None, found: dict[str, Domain]
) -> Domain:
    """The domain of an input: its own, or what the forward asks for where its shape allows it."""
    word = found.get(item.name, "normal")
    if item.domain != "normal" or item.dtype != "float":
        return item.domain
    square = dims is not None and len(dims) > 1 and dims[-1] == dims[-2]
    return "normal" if word == "spd" and not square else word
