"""Test values where the forward is smooth, if the signature leaves them open.

In: an `OpSpec` and its `Derivation`. Out: the spec with the domains that derivation found. Invariant: what the user states stands.
"""

from dataclasses import replace

from scaffold.derive import Derivation
from scaffold.spec import Domain, OpSpec, TensorInput


def with_domains(spec: OpSpec, derivation: Derivation) -> OpSpec:
    """The op as its tests see it."""
    if not derivation.domains:
        return spec
    found = dict(derivation.domains)
    inputs = tuple(
        (
            item._replace(domain=_domain(item, found))
            if isinstance(item, TensorInput)
            else item
        )
        for item in spec.inputs
    )
    return replace(spec, inputs=inputs)


def _domain(item: TensorInput, found: dict[str, Domain]) -> Domain:
    """The domain of an input: its own, or what the forward asks for where its shape allows it."""
    word = found.get(item.name, "normal")
    if item.domain != "normal" or item.dtype != "float":
        return item.domain
    dims = item.dims
    square = dims is not None and len(dims) > 1 and dims[-1] == dims[-2]
    return "normal" if word == "spd" and not square else word
