"""What an op in library style cannot be: PyTorch runs its forward on tensors without data, to know the shapes of its outputs.

In: an `OpSpec` and its `Derivation`. Out: nothing, or an error with its place. Invariant: of what passes, the forward itself is the fake.
"""

from scaffold.derive.derivation import Derivation
from scaffold.errors import Location, ScaffoldError
from scaffold.spec import OpSpec

HINT = "write: style = 'setup-context'"


def refuse_unregistrable(spec: OpSpec, derivation: Derivation) -> None:
    """Raise where a registered op would be wrong, or fail at its first call."""
    if not spec.is_library:
        return
    formula = spec.kept or spec.forward
    place = formula.location if formula is not None else Location(spec.name)
    if derivation.opaque:
        message = "a registered op that leaves PyTorch needs a fake of its own"
        raise ScaffoldError(message, place, HINT)
    if not derivation.compiles:
        message = "what this forward computes depends on its data, so that PyTorch cannot run it on tensors without any, as a registered op must"
        raise ScaffoldError(message, place, HINT)
