"""The table of primitives: the spellings, the gradient and the facts of each.

In: `rules.toml`, whose header describes a section, or a team's own table. Out: `Primitives`. Invariant: all facts about
a primitive are in its section and nowhere else; this package imports only the errors of scaffold.

    table = built_in_primitives()
    table.facts("softplus").category              # "elementwise"
    table.find("function", "torch.special.expit") # (("sigmoid", "torch.special.expit"),): its name, and the entry of `also`
    table.named("method", "sum")                  # the facts of each primitive with this spelling

A *primitive* is a function of PyTorch whose gradient the table has; a *section* is its part of the table; a *spelling* one way to
write it (`torch.exp(x)`, `x.exp()`); *facts* are all it tells besides the gradient, such as whether the result shares memory.
Formulas are text here. `scaffold.derive` parses them into graphs; `scaffold.formula` and `scaffold.inspect` look up the
facts about a call by its spelling.
"""

from scaffold.primitives.facts import (
    CATEGORIES,
    Facts,
    Section,
    facts_of,
    inheriting,
    wrong_facts,
)
from scaffold.primitives.sections import (
    Primitives,
    built_in_primitives,
    built_in_text,
    read_primitives,
)
from scaffold.primitives.spelling import Key, Kind, full_name, key_of, normalized

__all__ = [
    "CATEGORIES",
    "Facts",
    "Key",
    "Kind",
    "Primitives",
    "Section",
    "built_in_primitives",
    "built_in_text",
    "facts_of",
    "full_name",
    "inheriting",
    "key_of",
    "normalized",
    "read_primitives",
    "wrong_facts",
]
