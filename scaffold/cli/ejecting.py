"""Templates of the user's beside those below them: what there is, a start for another, the differences.

In: `Templates`, or the name of a built-in one. Out: rows, the text of a template, unified diffs. Invariant: nothing is written here.
"""

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from scaffold.cli.here import configuration_here
from scaffold.cli.house import configured_directories
from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.files import read_bytes
from scaffold.render.blocks import Outline, outline, parent_of
from scaffold.render.templates import (
    BUILT_IN_NAME,
    WRITTEN,
    Source,
    Templates,
    built_in,
    read_templates,
)


class Row(NamedTuple):
    """A template that applies."""

    name: str
    path: str
    extends: str | None  # the path of the template below it
    blocks: tuple[str, ...]


class Ejected(NamedTuple):
    """A template to write: below an existing directory, and whether it only adds to what is there."""

    root: Path
    path: str
    text: str
    added: bool
    before: bytes | None  # what is there, as it was read


def listed_templates(templates: Templates) -> tuple[Row, ...]:
    """All templates, each name from the top layer down."""
    sources = [*templates.sources, *map(built_in, WRITTEN)]
    names = sorted({source.name for source in sources}, key=_written_first)
    ordered = sorted(sources, key=lambda source: names.index(source.name))
    return tuple(_row(source, templates) for source in ordered)


def _written_first(name: str) -> tuple[bool, str]:
    return name not in WRITTEN, name


def _row(source: Source, templates: Templates) -> Row:
    found = outline(source, templates)
    parent = parent_of(found, templates.layer_of(source), templates)
    blocks = tuple(block.name for block in found.blocks)
    return Row(source.name, source.path, parent.path if parent else None, blocks)


def ejected(name: str, blocks: tuple[str, ...], directory: Path) -> Ejected:
    """The template of that name to start from, in a directory that need not be there yet."""
    target = directory / name
    before = read_bytes(target) if target.is_file() else None
    own = read_templates([(directory, Location("--template-dir"))] * directory.is_dir())
    there = own.source(name) if own.find(name) is not None else None
    lower = _below(directory)
    parent = lower.source(name)
    root = directory
    while not root.is_dir():
        root = root.parent
    path = target.relative_to(root).as_posix()
    if not blocks:
        return Ejected(root, path, parent.text, False, before)
    extended = there is not None and outline(there, own).extends is not None
    head = there.text.rstrip("\n") + "\n" if there and extended else _extends(parent)
    have = {block.name for block in outline(there, own).blocks} if there else set()
    texts = [
        _text(block, parent, lower)
        for block in dict.fromkeys(blocks)
        if not (extended and block in have)
    ]
    return Ejected(root, path, "\n".join([head, *texts]), extended, before)


def _below(directory: Path) -> Templates:
    """The layers of the configuration below a directory; all of them if it is none of them."""
    listed = configured_directories(configuration_here())
    resolved = [path.resolve() for path in listed]
    own = directory.resolve()
    start = resolved.index(own) + 1 if own in resolved else 0
    place = Location("pyproject.toml")
    # What is not there yet holds no templates: it may be the next to be begun.
    return read_templates([(path, place) for path in listed[start:] if path.is_dir()])


def _extends(parent: Source) -> str:
    ours = parent.path.startswith(BUILT_IN_NAME)
    return f'{{% extends "{parent.path if ours else parent.name}" %}}\n'


def _text(block: str, source: Source, templates: Templates) -> str:
    """The block as the nearest template has it."""
    known: list[str] = []
    found: Source | None = source
    while found is not None:
        shape = outline(found, templates)
        if any(item.name == block for item in shape.blocks):
            return shape.text(block)
        known += [item.name for item in shape.blocks]
        found = parent_of(shape, templates.layer_of(found), templates)
    hint = did_you_mean(block, known) or f"they are: {', '.join(known)}"
    message = f"'{source.name}' has no block '{block}'"
    raise ScaffoldError(message, Location("--block"), hint)


def differences(templates: Templates) -> Iterator[str]:
    """What each template changes in the one that it extends or, as a copy, replaces."""
    for source in templates.sources:
        found = outline(source, templates)
        parent = parent_of(found, templates.layer_of(source), templates)
        if parent is not None:
            yield from _of_blocks(found, outline(parent, templates))
        elif found.extends is None and source.name in WRITTEN:
            yield _difference(built_in(source.name).text, source.text, source, "")


def _of_blocks(found: Outline, below: Outline) -> Iterator[str]:
    known = {block.name for block in below.blocks}
    for block in found.blocks:
        if block.name in known:
            before, after = below.text(block.name), found.text(block.name)
            yield _difference(before, after, found.source, f", block {block.name}")


def _difference(before: str, after: str, source: Source, block: str) -> str:
    old, new = f"{BUILT_IN_NAME}{source.name}{block}", f"{source.path}{block}"
    lines = unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), old, new
    )
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
