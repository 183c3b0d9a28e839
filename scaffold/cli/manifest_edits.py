"""Edits of a manifest that keep its form and its comments.

In: the text of a manifest. Out: the text with one op replaced, renamed or gone.
Invariant: what is said of other ops is the same, byte for byte.
"""

from collections.abc import Mapping
from typing import Any

import tomlkit

from scaffold.spec.toml_text import op_table


def replaced(text: str, op: str, keys: Mapping[str, Any]) -> str:
    """The op with other keys, where it stood."""
    document = tomlkit.parse(text)
    table = tomlkit.parse(op_table(op, keys))["ops"][op]
    document["ops"][op] = table
    return tomlkit.dumps(document)


def without(text: str, op: str) -> str:
    """The text without the op."""
    document = tomlkit.parse(text)
    del document["ops"][op]
    return tomlkit.dumps(document)
