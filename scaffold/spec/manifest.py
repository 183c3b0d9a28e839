"""Manifests: the ops of a project, in one file or in several.

`scaffold sync` and `check` read all ops of a project here, and tell by the digests, recorded with the files written, which ops
have changed since: only they are generated, or proven, again. In: the texts of the files, and the configuration. Out: a
`Listed` for each op; digests of the inputs of its files, and of the subject of its proof. Invariant: an op is listed once; an
input without influence on generated files does not change a digest.

Words: an *entry* is an op's table as read from TOML, with the places of its keys; *reads* are the files that its formulas are
read from (`'@file.py:function'`), with digests.
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

# Fields of the configuration without influence on the words of a file, only on its
# place, time and format.
WITHOUT_A_SAY = (
    *("root", "pythonpath", "lint", "line_length", "formatter"),
    "single_line_imports",
    *("manifest", "template_dirs", "exports"),
)

NOWHERE = Location("")  # for an error whose place is computed only if it is raised
Reads = tuple[tuple[str, str], ...]  # files, and digests of them


class Listed(NamedTuple):
    """An op of a manifest: its name in code, and its table."""

    name: str
    manifest: str
    entry: Entry


def list_ops(
    texts: Mapping[str, str], packaged: bool, patterns: Patterns = DEFAULT
) -> tuple[Listed, ...]:
    """Return the ops of all manifests in order; raise the errors of all files together, such as a name in two files.

    `texts` maps paths to texts. `packaged`: the ops' files lie in a package, so none can hide an installed module.
    """
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
    """Return the name of an op in code, `rms_norm` for `[ops.RMSNorm]`; raise for an invalid name at its place."""
    try:
        return op_names(entry.name, NOWHERE, packaged, patterns)[0]
    except ScaffoldError:  # locate it only now: that parses the whole text again
        place = entry.locate((), key=True)
        return op_names(entry.name, place, packaged, patterns)[0]


def defined_names(entry: Entry, configuration: Configuration) -> tuple[str, ...]:
    """Return the names an op's file defines, for `__init__.py` to export: the op, its Function, and its Module unless it is off.

    In library style the registered op is in place of the Function. No spec is built: the entry may be invalid otherwise.
    """
    # As if packaged: whether its file would hide a module is not asked here.
    op, klass = op_names(entry.name, NOWHERE, packaged=True)
    keys = {**dict(configuration.defaults), **entry.raw}
    klass = str(keys.get("class-name", klass))
    patterns = configuration.names
    module = () if keys.get("module") is False else (patterns.module_class(klass),)
    library = keys.get("style", configuration.style) == "library"
    function = registered_name(op) if library else patterns.function_class(klass)
    return (op, function, *module)


def _add(listed: Listed, found: dict[str, Listed]) -> None:
    """Add an op to `found`; raise at its place if an op of the name is listed already, and name that one's place."""
    first = found.setdefault(listed.name, listed)
    if first is not listed:
        before = first.entry.locate((), key=True)
        place = listed.entry.locate((), key=True)
        message = f"op '{listed.name}' is listed a second time"
        raise ScaffoldError(message, place, f"the first one: {before}")


def text_digest(text: str) -> str:
    """Return the SHA-256 digest of a text; one with surrogates, which UTF-8 refuses, has one too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def spec_digest(entry: Entry) -> str:
    """Return the digest of an op's name and keys, the same however its table is formatted: does it have to be generated again?"""
    raw = json.dumps(entry.raw, sort_keys=True, default=str)
    return text_digest(f"{entry.name}\n{raw}")


def proof_digest(
    entry: Entry,
    configuration: Configuration,
    reads: Reads,
    meaning: Callable[[str], str],
) -> str:
    """Return the digest of a proof's subject: the op's maths, its inputs, the files of its formulas. A proof counts while it is the same.

    Of the configuration it includes the defaults of keys missing in the table, and the conventions, by which inputs get sizes. It
    excludes the op's name and comments: `meaning` returns the digest of code without comments, and the digests in `reads` ignore them
    too. The entry may be invalid otherwise: an unknown key counts.
    """
    keys = {**dict(configuration.defaults), **entry.raw}
    raw = {
        key: _digested(key, keys[key], meaning)
        for key in sorted(keys)
        if key not in KEYS or KEYS[key].proven
    }
    text = json.dumps([raw, reads], sort_keys=True, default=str)
    return text_digest(f"{text}\n{configuration.conventions!r}")


def _digested(key: str, value: Any, meaning: Callable[[str], str]) -> Any:
    """Return the value of a key as it enters a digest: a formula with comments as `meaning` of it, its digest without comments.

    Any other value enters as it is; in a table of formulas (`grad`) each of them is treated so.
    """
    if isinstance(value, dict):
        return {name: _digested(key, inner, meaning) for name, inner in value.items()}
    code = key in KEYS and KEYS[key].formula and isinstance(value, str)
    # Without a comment in it a formula enters as text, and is not parsed.
    return meaning(value) if code and "#" in value else value


def configuration_digest(
    configuration: Configuration, directories: object, manifest: str
) -> str:
    """Return the digest of all that the configuration says about the files of a manifest: under another one they may be out of date.

    It excludes formatting and absolute paths (the fields in WITHOUT_A_SAY): the same project elsewhere has the same digest.
    `directories` are those of the ops and their tests.
    """
    fields = configuration._asdict()
    for name in WITHOUT_A_SAY:
        del fields[name]
    # Of a table of rules the name and the text count: its directory may be another elsewhere.
    fields["rules"] = [PurePath(item.path).name + item.text for item in fields["rules"]]
    return text_digest(f"{fields!r}\n{directories!r}\n{manifest}")
