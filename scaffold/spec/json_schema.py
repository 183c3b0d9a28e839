"""The JSON Schema of a file of ops, and that of [tool.scaffold]: what editors complete and check by.

Out: a mapping for `json.dumps`, made of the tables of keys. Invariant: what the loader accepts validates; a key, a type or a word
that the loader refuses does not.
"""

import json
from typing import Any

from scaffold.spec.config_keys import KEYS as CONFIGURATION
from scaffold.spec.keys import KEYS
from scaffold.spec.names import END

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# An identifier as far as a regular expression can tell: Python knows more letters than ASCII has.
_PUNCTUATION = r"\s!-/:-@\[-\^`{-~"
OP_NAME = rf"^[^0-9{_PUNCTUATION}][^{_PUNCTUATION}]*{END}"


def ops_schema() -> dict[str, Any]:
    """What a file of ops may hold."""
    return {
        "$schema": DIALECT,
        "title": "Ops",
        "description": "Custom PyTorch operators, from which scaffold writes code and tests.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "ops": {
                "description": "Every op by its name: rms_norm or RMSNorm.",
                "type": "object",
                "propertyNames": {"pattern": OP_NAME},
                "additionalProperties": {"$ref": "#/$defs/op"},
            }
        },
        "$defs": {"op": _op()},
    }


def _op() -> dict[str, Any]:
    return {
        "description": "One op.",
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": ["inputs"]}, {"required": ["schema"]}],
        "properties": {
            name: {"description": key.help, **key.kind.schema}
            for name, key in KEYS.items()
        },
    }


def configuration_schema() -> dict[str, Any]:
    """What [tool.scaffold] may hold."""
    return {
        "$schema": DIALECT,
        "title": "[tool.scaffold]",
        "description": "What a project says of its ops.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {
                "description": key.help,
                **key.kind.schema,
                **({} if key.default is None else {"default": key.default}),
            }
            for name, key in CONFIGURATION.items()
        },
    }


def schema_text(configuration: bool = False) -> str:
    """The schema of a file of ops, or that of [tool.scaffold], as a file holds it."""
    described = configuration_schema() if configuration else ops_schema()
    return json.dumps(described, indent=2) + "\n"
