"""OpSpec -> Derivation: what forward and backward of an op are. Pure, without torch."""

from scaffold.derive.derivation import (
    Block,
    Derivation,
    Element,
    Filled,
    Forward,
    Kept,
    Saved,
    ShapeCheck,
)
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.detached_outputs import perhaps_detached, without_gradient
from scaffold.derive.forward.live_forward import live_forward
from scaffold.derive.names import apart_from, fresh
from scaffold.derive.pipeline import derive
from scaffold.derive.saving import facet_of, variadic_names

__all__ = [
    "Block",
    "Derivation",
    "Element",
    "Filled",
    "Forward",
    "Kept",
    "Saved",
    "ShapeCheck",
    "apart_from",
    "derive",
    "facet_of",
    "fresh",
    "grad_name",
    "live_forward",
    "perhaps_detached",
    "variadic_names",
    "without_gradient",
]
