"""What a formula may read, and what it is for.

In: nothing. Out: `Scope`. Invariant: a name is in it by what it is at the start; what statements assign is no part of it.
"""

from typing import NamedTuple


class Scope(NamedTuple):
    """The names a formula may read.

    `optional` ones may be None for a call; `targets` are the gradients that a whole backward assigns;
    `tensors` cannot be called. Where code may be `kept`, loops are no problem. What is `imported` is called, also where
    the formula's own file defines it.
    """

    names: frozenset[str]
    optional: frozenset[str] = frozenset()
    targets: frozenset[str] | None = None
    tensors: frozenset[str] = frozenset()
    kept: bool = False
    imported: frozenset[str] = frozenset()
