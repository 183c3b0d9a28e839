"""The names around a formula.

In: nothing. Out: a `Scope`. Invariant: what is no name of a scope is unknown to its formula, unless it assigns it.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from scaffold.formula.text import WELL_KNOWN

RESERVED = frozenset(
    {"torch", "F", "math", "nn", "ctx", "self", "cls", "Tensor", "Function"}
)
BUILTINS = frozenset(
    {"abs", "bool", "divmod", "float", "int", "isinstance", "len", "list", "max"}
    | {"min", "pow", "range", "round", "sum", "tuple"}
)
TAKEN = RESERVED | BUILTINS | frozenset(WELL_KNOWN)  # what no new name may be


class Meanings(NamedTuple):
    """What names stand for: imports, by their dotted names; and values of the user's own, whose attributes nobody knows."""

    imports: Mapping[str, str] = {}
    own: frozenset[str] = frozenset()


NO_CHOICES: Mapping[str, Collection[object]] = {}


class Scope(NamedTuple):
    """The names a formula may read.

    `optional` ones may be None for a call; `targets` are the gradients that a whole backward assigns;
    `tensors` cannot be called. Where code may be `kept`, loops are no problem. What is `imported` is called, also where
    the formula's own file defines it. `choices` are all the values that some may have;
    `meanings` say which names are imports.
    """

    names: frozenset[str]
    optional: frozenset[str] = frozenset()
    targets: frozenset[str] | None = None
    tensors: frozenset[str] = frozenset()
    kept: bool = False
    imported: frozenset[str] = frozenset()
    choices: Mapping[str, Collection[object]] = NO_CHOICES
    meanings: Meanings = Meanings()

    @property
    def wants_result(self) -> bool:
        """Whether the formula returns something: a whole backward assigns its targets."""
        return self.targets is None

    @property
    def outer(self) -> frozenset[str]:
        """The names that mean something outside: those that can be read, and the targets."""
        return self.names | (self.targets or frozenset())
