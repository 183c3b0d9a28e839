"""Manifests: the ops that a project lists, in one file or in several.

In: the texts of the files, and the configuration. Out: a `Listed` an op, and digests of what its files follow from, and of what its proof is about.
Invariant: an op stands in one place; what does not change what is generated does not change a digest.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.spec.config import Configuration
from scaffold.spec.keys import KEYS
from scaffold.spec.names import DEFAULT, Patterns, op_names, registered_name
from scaffold.spec.toml import Entry, read_ops

# Fields of the configuration that change no word of a file: where, when and how it is written.
WITHOUT_A_SAY = (
    *("root", "pythonpath", "lint", "line_length", "formatter"),
    "single_line_imports",
    *("manifest", "template_dirs", "exports"),
)

NOWHERE = Location("")
Reads = tuple[tuple[str, str], ...]  # files, and digests of them


class Listed(NamedTuple):
    """An op of a manifest: its name in code, and its table."""

    name: str
    manifest: str
    entry: Entry


def list_ops(
    texts: Mapping[str, str], packaged: bool, patterns: Patterns = DEFAULT
) -> tuple[Listed, ...]:
    """The ops of all files, in the order in which they stand there."""
    problems: list[ScaffoldError] = []
    found: dict[str, Listed] = {}
    for path, text in texts.items():
        try:
            entries = read_ops(text, path)
        except ScaffoldError as error:
            problems.append(error)
            continue
        for entry in entries:
            try:
                _add(Listed(_name(entry, packaged, patterns), path, entry), found)
            except ScaffoldError as error:
                problems.append(error)
    raise_all(problems)
    return tuple(found.values())


def _name(entry: Entry, packaged: bool, patterns: Patterns) -> str:
    try:
        return op_names(entry.name, NOWHERE, packaged, patterns)[0]
    except ScaffoldError:  # to find the place means to read all of the text once more
        place = entry.locate((), key=True)
        return op_names(entry.name, place, packaged, patterns)[0]


def defined_names(entry: Entry, configuration: Configuration) -> tuple[str, ...]:
    """What the op's file defines: the op, its Function, and its Module unless that is off."""
    op, klass = op_names(entry.name, NOWHERE, packaged=True)
    said = {**dict(configuration.defaults), **entry.raw}
    klass = str(said.get("class-name", klass))
    patterns = configuration.names
    module = () if said.get("module") is False else (patterns.module_class(klass),)
    library = said.get("style", configuration.style) == "library"
    function = registered_name(op) if library else patterns.function_class(klass)
    return (op, function, *module)


def _add(listed: Listed, found: dict[str, Listed]) -> None:
    first = found.setdefault(listed.name, listed)
    if first is not listed:
        where = first.entry.locate((), key=True)
        place = listed.entry.locate((), key=True)
        message = f"op '{listed.name}' is listed a second time"
        raise ScaffoldError(message, place, f"the first one: {where}")


def text_digest(text: str) -> str:
    """The fingerprint of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def spec_digest(entry: Entry) -> str:
    """The fingerprint of what a table says, however it is written."""
    raw = json.dumps(entry.raw, sort_keys=True, default=str)
    return text_digest(f"{entry.name}\n{raw}")


def proof_digest(
    entry: Entry,
    configuration: Configuration,
    reads: Reads,
    meaning: Callable[[str], str],
) -> str:
    """The fingerprint of what a proof of the op is about: its maths, its inputs, the files that its formulas name.

    Of the configuration it is what stands for keys that the table leaves out. The op's name is no part of it, nor are comments:
    `meaning` is the fingerprint of code without them, and so are those of `reads`.
    """
    said = {**dict(configuration.defaults), **entry.raw}
    raw = {
        key: _meant(key, said[key], meaning)
        for key in sorted(said)
        if key not in KEYS or KEYS[key].proven
    }
    text = json.dumps([raw, reads], sort_keys=True, default=str)
    return text_digest(f"{text}\n{configuration.conventions!r}")


def _meant(key: str, value: Any, meaning: Callable[[str], str]) -> Any:
    """A value without comments; what holds none is not parsed."""
    if isinstance(value, dict):
        return {name: _meant(key, inner, meaning) for name, inner in value.items()}
    code = key in KEYS and KEYS[key].formula and isinstance(value, str)
    return meaning(value) if code and "#" in value else value


def configuration_digest(
    configuration: Configuration, directories: object, manifest: str
) -> str:
    """The fingerprint of what the configuration contributes to what the files of a manifest say.

    How they are formatted is no part of it, nor is an absolute path.
    """
    said = configuration._asdict()
    for name in WITHOUT_A_SAY:
        del said[name]
    said["rules"] = [PurePath(item.path).name + item.text for item in said["rules"]]
    return text_digest(f"{said!r}\n{directories!r}\n{manifest}")
