"""Kinds of values: how to call one, how to tell it, what JSON Schema says of it.

In: a value, as TOML gives it. Out: whether it is of a kind. Invariant: a value that a kind accepts validates against the
kind's schema.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Schema = Mapping[str, Any]


class Kind(NamedTuple):
    """A kind of value: how to call it, how to tell it, the words it is limited to."""

    what: str
    accepts: Callable[[Any], bool]
    schema: Schema
    choices: tuple[str, ...] = ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_either(value: Any) -> bool:
    return isinstance(value, bool | str)


def _is_number(value: Any) -> bool:
    return type(value) is int


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_text_or_texts(value: Any) -> bool:
    return _is_text(value) or _is_texts(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_any_table(value: Any) -> bool:
    return isinstance(value, dict)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_any_table, value))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, int | float) for item in value.values()
    )


# No file can hold half a character, and no editor shows a control character.
PRINTABLE = r"^[^\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]*$"
_STRING: Schema = {"type": "string", "pattern": PRINTABLE}
_STRINGS: Schema = {"type": "array", "items": _STRING}

TEXT = Kind("a string", _is_text, _STRING)
SWITCH = Kind("true or false", _is_bool, {"type": "boolean"})
EITHER = Kind(
    "true, false or a string", _is_either, {"anyOf": [{"type": "boolean"}, _STRING]}
)
NUMBER = Kind("a number", _is_number, {"type": "integer"})
TEXTS = Kind("a list of strings", _is_texts, _STRINGS)
TEXT_OR_TEXTS = Kind(
    "a string or a list of strings",
    _is_text_or_texts,
    {"anyOf": [_STRING, _STRINGS]},
)
TABLE = Kind(
    "a table of strings",
    _is_table,
    {"type": "object", "additionalProperties": _STRING},
)
ANY_TABLE = Kind("a table", _is_any_table, {"type": "object"})
TABLES = Kind(
    "a list of tables",
    _is_tables,
    {"type": "array", "items": {"type": "object", "additionalProperties": _STRING}},
)
NUMBERS = Kind("a table of numbers", _is_numbers, {"type": "object"})


def choice(what: str, choices: tuple[str, ...]) -> Kind:
    """One of some words."""
    return Kind(what, _is_text, {"enum": list(choices)}, choices)


def choices(what: str, words: tuple[str, ...]) -> Kind:
    """A list of some words."""
    schema = {"type": "array", "items": {"enum": list(words)}}
    return Kind(what, _is_texts, schema, words)
