"""Values and tables as TOML writes them.

In: what a TOML parser gives. Out: text. Invariant: parsed again, it is the same value.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_LITERAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # what no literal string holds


def toml_text(value: Any) -> str:
    """A value as TOML writes it, in one line."""
    if isinstance(value, dict):
        entries = (
            f"{toml_key(key)} = {toml_text(item)}" for key, item in value.items()
        )
        return f"{{ {', '.join(entries)} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    return repr(value)


def toml_key(key: str) -> str:
    """A key: bare, or quoted where it must be."""
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A basic string: JSON's, with the one control character that JSON leaves alone escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def op_table(name: str, keys: Mapping[str, Any]) -> str:
    """The table of an op as a person writes it: formulas in single quotes, a table of them as dotted keys."""
    lines = [f"[ops.{toml_key(name)}]"]
    for key, value in keys.items():
        lines += _assignments(toml_key(key), value)
    return "\n".join(lines) + "\n"


def _assignments(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _assignments(f"{key}.{toml_key(name)}", item)
    else:
        yield f"{key} = {written_value(value)}"


def written_value(value: Any) -> str:
    """A value as a person writes it in the table of an op: formulas in single quotes."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(written_value, value))}]"
    return _formula(value) if isinstance(value, str) else toml_text(value)


def _formula(text: str) -> str:
    """A literal string where there can be one: nothing in it is escaped."""
    if _NOT_LITERAL.search(text):
        return _string(text)
    if "\n" in text:
        plain = "'''" not in text and not text.endswith("'")
        return f"'''\n{text}'''" if plain else _string(text)
    return f"'{text}'" if "'" not in text else _string(text)
