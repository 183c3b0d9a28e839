"""An op's table as TOML.

In: the name of an op and its keys. Out: the text of `[ops.NAME]`, as a person would write it.
Invariant: reading the text gives the same keys and values.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}


def op_table(name: str, keys: Mapping[str, Any]) -> str:
    """The table of an op; keys in the order given, a table of formulas as dotted keys."""
    lines = [f"[ops.{_key(name)}]"]
    for key, value in keys.items():
        lines += _assignments(_key(key), value)
    return "\n".join(lines) + "\n"


def _assignments(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _assignments(f"{key}.{_key(name)}", item)
    else:
        yield f"{key} = {toml_value(value)}"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _basic(key)


def toml_value(value: Any) -> str:
    """A string, number, switch or list of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return repr(value)
    return f"[{', '.join(map(toml_value, value))}]"


def _string(value: str) -> str:
    if "\n" in value:
        plain = "'''" not in value and not value.endswith("'")
        return f"'''\n{value}'''" if plain and _is_plain(value) else _basic(value)
    return f"'{value}'" if "'" not in value and _is_plain(value) else _basic(value)


def _is_plain(value: str) -> bool:
    """Whether a literal string can hold it."""
    return all(
        letter >= " " and letter != "\x7f" or letter in "\n\t" for letter in value
    )


def _basic(value: str) -> str:
    return f'"{"".join(_ESCAPES.get(letter, _escaped(letter)) for letter in value)}"'


def _escaped(letter: str) -> str:
    plain = " " <= letter != "\x7f"
    return letter if plain else f"\\u{ord(letter):04X}"
