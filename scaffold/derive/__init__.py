"""OpSpec -> Derivation: what forward and backward of an op are. Pure, without torch."""

from scaffold.derive.explicit import derive
from scaffold.derive.forward import Forward, write_forward
from scaffold.derive.model import Block, Derivation, Kept, Saved

__all__ = ["Block", "Derivation", "Forward", "Kept", "Saved", "derive", "write_forward"]
