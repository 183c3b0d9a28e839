"""Edits of a manifest that keep its form and its comments.

In: the text of a manifest. Out: the text with one op replaced, renamed or gone.
Invariant: what is said of other ops is the same, byte for byte.
"""

from collections.abc import Mapping
from typing import Any

from scaffold.cli.manifest_tables import renamed_op, without_op
from scaffold.errors import Location, ScaffoldError
from scaffold.spec.toml_text import op_table


def replaced(text: str, op: str, keys: Mapping[str, Any]) -> str:
    """The op with other keys, where it stood."""
    import tomlkit  # few runs need it

    document = tomlkit.parse(text)
    table = tomlkit.parse(op_table(op, keys))["ops"][op]
    document["ops"][op] = table
    return tomlkit.dumps(document)


def without(text: str, op: str) -> str:
    """The text without the op, and without the comments that belong to it."""
    kept = without_op(text, op)
    if kept is not None:
        return kept
    import tomlkit  # for tables without a header

    document = tomlkit.parse(text)
    del document["ops"][op]
    return tomlkit.dumps(document)


def renamed(text: str, op: str, new: str, place: Location) -> str:
    """The text with another name for the op, in the same place."""
    changed = renamed_op(text, op, new)
    if changed is None:
        message = f"the name of op '{op}' cannot be changed in this form of a table"
        raise ScaffoldError(message, place, f"write it as [ops.{op}]")
    return changed
