"""What a section of the table says of its primitive, typed: the facts that passes ask for.

In: a section. Out: `Facts`. Invariant: what a section leaves out has the default of its category, so that every primitive has
a value for every fact.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

CATEGORIES = frozenset(
    {"elementwise", "reduction", "loss", "same_shape", "view", "structural"}
    | {"contraction", "linalg", "indexing", "constant", "backward"}
)
Section = Mapping[str, Any]


class Facts(NamedTuple):
    """What is known of a primitive beside its gradient."""

    category: str
    results: tuple[str, ...] = ("result",)
    nondiff: tuple[str, ...] = ()  # tensors without a gradient
    linear: bool = False  # in all its differentiable arguments taken together
    complex: bool | Literal["only"] = True  # whether its formulas hold for complex ones


def facts_of(section: Section) -> Facts:
    """The facts of a section that is known to be right."""
    return Facts(
        section["category"],
        tuple(section.get("results", ("result",))),
        tuple(section.get("nondiff", ())),
        section.get("linear", False),
        section.get("complex", True),
    )
