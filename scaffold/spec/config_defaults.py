"""The table `[tool.scaffold.defaults]`: what every op says that does not say otherwise.

In: the table. Out: its keys and values, in their order. Invariant: each is a key of an op, with a value of its kind.
"""

from typing import Any

from scaffold.errors import did_you_mean
from scaffold.spec.config_values import Stated
from scaffold.spec.keys import DEFAULTS as ALLOWED
from scaffold.spec.keys import KEYS, check_key
from scaffold.spec.kinds import ANY_TABLE

ABOVE = ("style", "save-policy")
DEFAULTS = ANY_TABLE._replace(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {key: KEYS[key].kind.schema for key in ALLOWED},
    }
)


def read_defaults(stated: Stated) -> tuple[tuple[str, Any], ...]:
    """The keys of the table."""
    problems = stated.problems
    for key, value in stated.value.items():
        path = (stated.key, key)
        if key in ABOVE:
            hint = "write it in [tool.scaffold] itself"
            problems.at_key(path, f"'{key}' is no key of '{stated.key}'", hint)
        elif key not in ALLOWED:
            hint = did_you_mean(key, ALLOWED) or f"the keys: {', '.join(ALLOWED)}"
            problems.at_key(path, f"unknown key '{key}' in '{stated.key}'", hint)
        else:
            check_key(path, value, problems)
    return tuple(stated.value.items())
