"""Environment variables that state keys of the configuration: SCAFFOLD_LINE_LENGTH is `line-length`.

In: the variables. Out: the values of keys, as TOML would hold them. Invariant: a variable says of a key what the file
would; text that is no value of the key's kind stays text, and is refused where values are read. A variable that is misspelt
is an error, never ignored.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.config_keys import KEYS
from scaffold.spec.kinds import Kind
from scaffold.spec.problems import KeyPath, Locate

PREFIX = "SCAFFOLD_"
CLOSE = 0.75  # of the names' letters are the same, in the same order
SWITCHES = {"true": True, "1": True, "false": False, "0": False}
PATHS = ("manifest", "rules", "template-dirs")  # separated as PATH is


def variable_of(key: str) -> str:
    """The name of the variable that states a key."""
    return PREFIX + key.upper().replace("-", "_")


def variables_of(environment: Mapping[str, str]) -> dict[str, tuple[Any, Locate]]:
    """The keys that variables state; an empty variable states nothing."""
    found: dict[str, tuple[Any, Locate]] = {}
    for key, row in KEYS.items():
        name = variable_of(key)
        if environment.get(name):
            found[key] = _value(environment[name], key, row.kind), _locate(name)
    return found


def misspelt(environment: Mapping[str, str]) -> tuple[ScaffoldError, ...]:
    """Variables that are called much like one of ours; others may be another tool's."""
    known = {variable_of(key).removeprefix(PREFIX) for key in KEYS}
    found = []
    for name in environment:
        own = name.removeprefix(PREFIX)
        if own == name or own in known or not environment[name]:
            continue
        close = get_close_matches(own.upper(), sorted(known), n=1, cutoff=CLOSE)
        if close:
            message = f"no key of the configuration is called so: {name}"
            hint = f"did you mean {PREFIX}{close[0]}?"
            found.append(ScaffoldError(message, Location(name), hint))
    return tuple(found)


def _locate(variable: str) -> Locate:
    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location(variable)

    return locate


def _value(text: str, key: str, kind: Kind) -> Any:
    """The value that TOML would hold."""
    if key in PATHS:
        return text.split(os.pathsep)
    if kind.accepts(text):
        return text
    if kind.accepts(True):
        return SWITCHES.get(text.lower(), text)
    if kind.accepts(1):
        return int(text) if text.isdecimal() else text
    if kind.accepts([text]):
        return [item.strip() for item in text.split(",")]
    return _table(text)


def _table(text: str) -> Any:
    """A table, or a list of tables, as TOML writes it in one line."""
    from scaffold.spec.toml import parse_toml

    try:
        return parse_toml(f"value = {text}", "")["value"]
    except ScaffoldError:
        return text
