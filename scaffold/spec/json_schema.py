"""The JSON Schema of a file of ops, for completion and checks in editors.

`scaffold schema` prints it, `scaffold init` writes it to a file. Out: a mapping for `json.dumps`, made from the
table of keys. Invariant: everything the loader accepts validates; a key, a type or a word the loader rejects does not.
"""

import json
from typing import Any

from scaffold.spec.keys import KEYS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def ops_schema() -> dict[str, Any]:
    """Return the schema of a file of ops."""
    return {
        "$schema": DIALECT,
        "title": "Ops",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "ops": {"type": "object", "additionalProperties": {"$ref": "#/$defs/op"}}
        },
        "$defs": {"op": _op_schema()},
    }


def _op_schema() -> dict[str, Any]:
    """Return the schema of one op's table, `[ops.NAME]`: the keys of `KEYS`, with `inputs` or `schema` as the only required one."""
    return {
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": ["inputs"]}, {"required": ["schema"]}],
        "properties": {
            name: {"description": key.help, **key.kind.schema}
            for name, key in KEYS.items()
        },
    }


def schema_text() -> str:
    """Return the schema as the text of a file."""
    return json.dumps(ops_schema(), indent=2) + "\n"
