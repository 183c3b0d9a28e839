"""TOML files: the ops that they hold.

In: the text of a file. Out: an `Entry` an op, which can say where a key of it stands.
Invariant: what is not TOML, or no table of ops, is an error at its place.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.problems import Locate
from scaffold.spec.toml_places import Places


class Entry(NamedTuple):
    """One op of a file, as it stands."""

    name: str
    raw: Mapping[str, Any]
    locate: Locate


def parse_toml(text: str, path: str) -> dict[str, Any]:
    """The tables of a TOML file, or where it is not TOML."""
    import tomllib  # only where a file is read

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        line, column = (int(found[1]), int(found[2])) if found else _end(text)
        message = str(error).split(" (at ")[0]
        if isinstance(error, RecursionError):
            message = "it is nested too deeply"
        message = f"not valid TOML: {message[:1].lower() + message[1:]}"
        raise ScaffoldError(message, Location(path, line, column)) from None


def _end(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def read_ops(text: str, path: str) -> tuple[Entry, ...]:
    """Every `[ops.NAME]` of a file; none is no error here."""
    data = parse_toml(text, path)
    places = Places(text, path)
    problems = []
    for key in data.keys() - {"ops"}:
        hint = did_you_mean(key, ["ops"]) or "an op is a table: [ops.NAME]"
        place = places((key,), key=True)
        problems.append(ScaffoldError(f"unknown table '{key}'", place, hint))
    ops = data.get("ops", {})
    if not isinstance(ops, dict):
        place = places(("ops",), key=True)
        problems.append(ScaffoldError("'ops' must be a table", place, "[ops.NAME]"))
        ops = {}
    for name, raw in ops.items():
        if not isinstance(raw, dict):
            place = places(("ops", name), key=True)
            problems.append(ScaffoldError(f"'ops.{name}' must be a table", place))
    raise_all(sorted(problems, key=lambda item: item.location or Location(path)))
    below = ((name, raw, places.below(("ops", name))) for name, raw in ops.items())
    return tuple(Entry(name, raw, place) for name, raw, place in below)
