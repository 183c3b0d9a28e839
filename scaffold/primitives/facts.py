"""What a section of the table says of its primitive, typed: the facts that passes ask for.

In: a section. Out: `Facts`, or what is wrong with the section. Invariant: what a section leaves out has the default of its
category, so that every primitive has a value for every fact.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple

CATEGORIES = frozenset(
    {"elementwise", "reduction", "loss", "same_shape", "view", "structural"}
    | {"contraction", "linalg", "indexing", "constant", "backward"}
)
# What the kind of a result is said by, beside the name of a parameter whose kind it has.
KINDS = frozenset(
    {"float", "kept", "number", "magnitude", "real", "complex", "int", "bool"}
)
# What the results of a category are made of.
MOVING = frozenset({"view", "structural", "indexing"})  # elements of the arguments
KEEPING = MOVING | {"contraction", "constant"}  # integers of integers
Memory = Literal["fresh", "view", "either", "same"]
Singular = Literal["", "zero", "length", "rank"]
# The words that a key takes, of those keys that take one of a few.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "memory": ("fresh", "view", "either", "same"),
    "singular": ("zero", "length", "rank"),
}
# What is so or not, and by default not.
FLAGS = (
    *("several", "joins", "random", "uninitialised", "creates"),
    *("data_dependent", "contiguous"),
)
Section = Mapping[str, Any]


class Facts(NamedTuple):
    """What is known of a primitive beside its gradient; the header of `rules.toml` says what each fact means."""

    category: str
    results: tuple[str, ...] = ("result",)
    nondiff: tuple[str, ...] = ()  # tensors without a gradient
    linear: bool = False  # in all its differentiable arguments taken together
    complex: bool | Literal["only"] = True  # whether its formulas hold for complex ones
    kinds: tuple[str, ...] = ("float",)  # of each result, or of all
    memory: Memory = "fresh"
    singular: Singular = ""  # where its gradient has no bound
    flags: frozenset[str] = frozenset()  # those of FLAGS that it has
    differentiable: tuple[str, ...] = ()  # arguments that a formula gives a gradient
    indices: tuple[str, ...] = ()  # arguments that are positions
    masks: tuple[str, ...] = ()

    @property
    def is_one_tensor(self) -> bool:
        """Whether it returns one tensor, and no tuple of them."""
        return len(self.results) == 1 and not self.results[0].startswith("*")

    def kind(self, position: int = 0) -> str:
        """What says the kind of a result."""
        return self.kinds[position if len(self.kinds) > 1 else 0]


class Wrong(NamedTuple):
    """What is wrong with a fact: its key, and what to say."""

    key: str
    message: str
    hint: str


def facts_of(section: Section) -> Facts:
    """The facts of a section that is known to be right."""
    category, domains = section["category"], section.get("domain", {}).items()
    return Facts(
        category,
        tuple(section.get("results", ("result",))),
        tuple(section.get("nondiff", ())),
        section.get("linear", False),
        section.get("complex", True),
        _several(section.get("kind", "kept" if category in KEEPING else "float")),
        section.get("memory", "view" if category == "view" else "fresh"),
        section.get("singular", ""),
        frozenset(key for key in FLAGS if section.get(key)),
        tuple(section.get("grad", ())),
        tuple(name for name, said in domains if said.startswith("index(")),
        tuple(name for name, said in domains if said == "bool"),
    )


def wrong_facts(section: Section, parameters: Collection[str]) -> Iterator[Wrong]:
    """What is wrong with the facts of a section whose keys have the right types."""
    kinds = _several(section.get("kind", ()))
    for kind in kinds:
        if kind not in KINDS and kind not in parameters:
            hint = f"{', '.join(sorted(KINDS))}, or a parameter whose kind it has"
            yield Wrong("kind", f"'{kind}' is no kind", hint)
    if len(kinds) > 1 and len(kinds) != len(section.get("results", ("result",))):
        yield Wrong(
            "kind", "as many kinds as results are given, or one", "kind = 'kept'"
        )


def _several(value: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
