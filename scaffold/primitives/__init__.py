"""All that is known of each primitive, in one table: how it is spelled, its gradient, and the facts that passes ask for.

In: `rules.toml`, whose header describes a section, or a team's own table. Out: `Primitives`. Invariant: what is known of a
primitive stands in its section and nowhere else; this package imports nothing of scaffold's but its errors.

    table = built_in_primitives()
    table.facts("softplus").category              # "elementwise"
    table.find("function", "torch.special.expit") # (("sigmoid", "torch.special.expit"),): its name, and the entry of `also`
    table.named("method", "sum")                  # the facts of each primitive that is spelled so

Formulas are text here. `scaffold.derive` reads them into graphs; `scaffold.formula` and `scaffold.inspect` ask what a call
does, by how it is spelled.
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
