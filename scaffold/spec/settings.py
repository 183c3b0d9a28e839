"""What holds of every key of the configuration, and who says so.

In: a directory and variables. Out: a `Setting` a key, in the order of the table of keys.
Invariant: what is shown is what `load_configuration` reads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location
from scaffold.spec.config import Sources, find_sources, read_sources
from scaffold.spec.config_keys import KEYS
from scaffold.spec.variables import PREFIX

DEFAULT = "default"


class Setting(NamedTuple):
    """A key, its value as TOML has it (None: not set), and its origin: a line of a file, a variable, `default`."""

    key: str
    value: Any
    origin: str


def load_settings(start: Path, environment: Mapping[str, str]) -> tuple[Setting, ...]:
    """Every key as it holds in a directory; what is amiss in any is an error."""
    sources = find_sources(start, environment)
    read_sources(sources)
    return tuple(_setting(key, sources) for key in KEYS)


def _setting(key: str, sources: Sources) -> Setting:
    said = sources.said.get(key)
    if said is not None:
        return Setting(key, said.value, _shown(said.locate((key,), key=True)))
    around = sources.around
    if key == "line-length" and around.line_length_key and sources.places:
        place = sources.places(around.line_length_key, key=True)
        return Setting(key, around.line_length, _shown(place))
    return Setting(key, KEYS[key].default, DEFAULT)


def _shown(place: Location) -> str:
    """The place without the column; of a variable its name."""
    if place.source.startswith(PREFIX):
        return place.source
    return f"{place.source}:{place.line}"
