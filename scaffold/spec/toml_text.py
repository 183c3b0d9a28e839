"""Values as TOML writes them, in one line.

In: what a TOML parser gives. Out: text. Invariant: parsed again, it is the same value.
"""

import json
import re
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(value: Any) -> str:
    """A value as TOML writes it."""
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
