"""OpSpec -> Derivation: the forward and backward of an op. Pure, without torch.

`pipeline` names the passes in order; `gradients` has those of the engine. Words used in several modules:

- op: one application of a primitive in the graph; value: its result; root: the op that is the gradient of an input.
- cotangent: the gradient of the loss with respect to a value; `of`: cotangent -> its forward value.
- held: values with a name in the forward; opaque: those only read by that name, never expanded.
- saved: tensors passed through `save_for_backward`; kept (`Kept`): non-tensors on ctx. A kept forward is one left as
  the user wrote it, since it is no straight line.
- there: names or values that are available without computing anything; taken: identifiers already in use.
- own lines: a forward value computed by new lines of the backward rather than by repeating the forward's.
- lead, leading dims: the `...` of an input, any number of dims, or those of a name (`*batch`), the same in all inputs
  with it.
- static: a Python value, the same throughout a call; a `static` op reads it, a `python` op computes it from others.
- balanced: the save policy in which `OpSpec.forgoes_second` holds: values may be saved, and a second derivative is
  given up.
"""

from scaffold.derive.autocast import is_lowered
from scaffold.derive.derivation import (
    Block,
    Derivation,
    Element,
    Filled,
    Forward,
    Kept,
    Saved,
    ShapeCheck,
    zero_gradients,
)
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.detached_outputs import perhaps_detached, without_gradient
from scaffold.derive.forward.live_forward import live_forward
from scaffold.derive.name_collisions import apart_from
from scaffold.derive.pipeline import derive
from scaffold.derive.saving import are_several, facet_of, variadic_names

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
    "are_several",
    "derive",
    "facet_of",
    "grad_name",
    "is_lowered",
    "live_forward",
    "perhaps_detached",
    "variadic_names",
    "without_gradient",
    "zero_gradients",
]
