"""OpSpec -> Derivation: what forward and backward of an op are. Pure, without torch.

`pipeline` names the passes in order; `gradients` has those of the engine. Words that several modules use:

- op: one application of a primitive in the graph; value: what it computes; root: the op that is the gradient of an input.
- cotangent: the gradient of the loss with respect to a value; `of`: cotangent -> the value of the forward that it belongs to.
- held: values that a name of the forward stands for; opaque: those that are read by that name, and not taken apart.
- saved: tensors that go through `save_for_backward`; kept (`Kept`): values on ctx that are no tensors. A kept forward is one that
  stays as the user wrote it, since it is no straight line.
- there: names or values that are at hand, so that nothing has to be computed for them; taken: identifiers that are not free.
- own lines: a value of the forward that the backward computes by lines of its own rather than by repeating the forward's.
- lead, leading dims: the `...` of an input, any number of dims, or those of a name (`*batch`), the same in all inputs that have it;
  static: a Python value, the same throughout
  a call; a `static` op reads it, a `python` op computes it of others.
- balanced: the save policy in which `OpSpec.forgoes_second` holds: values may be saved, and a second derivative is given up.
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
)
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.detached_outputs import perhaps_detached, without_gradient
from scaffold.derive.forward.live_forward import live_forward
from scaffold.derive.name_collisions import apart_from
from scaffold.derive.pipeline import derive
from scaffold.derive.saving import facet_of, is_for_most, variadic_names

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
    "grad_name",
    "is_for_most",
    "is_lowered",
    "live_forward",
    "perhaps_detached",
    "variadic_names",
    "without_gradient",
]
