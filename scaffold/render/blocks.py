"""Outlines of templates: the parent, the blocks and their lines.

`scaffold templates` shows a team the built-in templates, and what its own override. Words: a *block* is a named part of a Jinja template,
`{% block name %}`, that a child template may replace; a *layer* is a directory of a team's templates, over those of the next.
In: `Templates`. Out: facts of their syntax; nothing is rendered. Invariant: a template that does not parse is an error at its line.
"""

from collections.abc import Iterable
from typing import NamedTuple

from scaffold.render.templates import (
    BUILT_IN_NAME,
    WRITTEN,
    Source,
    Templates,
    built_in,
)


class Block(NamedTuple):
    """A block: its lines in the template, from 1, the last one included."""

    name: str
    first: int
    last: int


class Outline(NamedTuple):
    """A template's parent, if named by a constant, and its blocks."""

    source: Source
    extends: str | None
    blocks: tuple[Block, ...]

    def text(self, block: str) -> str:
        """Return the lines of the block of this name, its tags included; it must exist."""
        found = next(item for item in self.blocks if item.name == block)
        lines = self.source.text.splitlines(keepends=True)[found.first - 1 : found.last]
        return "".join(lines).rstrip("\n") + "\n"


def outline(source: Source, templates: Templates) -> Outline:
    """Parse a template into its outline; raise ScaffoldError at the line of a syntax error. `templates` are the layers it belongs to."""
    from jinja2 import nodes

    from scaffold.render.sandbox import blamed, layered

    environment = layered(templates)
    with blamed(templates, source.name):
        tree = environment.parse(source.text, source.name, source.path)
        ends = _ends(environment.lex(source.text, source.name, source.path))
    blocks = (
        Block(node.name, node.lineno, ends[node.lineno, node.name])
        for node in tree.find_all(nodes.Block)
    )
    parent = tree.find(nodes.Extends)
    name = parent.template if parent else None  # an expression: known if constant
    stated = name.value if isinstance(name, nodes.Const) else None
    # Of two that begin in the same line, the outer one comes first.
    ordered = tuple(sorted(blocks, key=lambda block: (block.first, -block.last)))
    return Outline(source, stated, ordered)


def _ends(tokens: Iterable[tuple[int, str, str]]) -> dict[tuple[int, str], int]:
    """Return the last line of each block, by its first line and its name; `tokens` are those of Jinja's lexer."""
    words = [
        (line, kind, text)
        for line, kind, text in tokens
        if kind in ("name", "block_begin", "block_end")
    ]
    found: dict[tuple[int, str], int] = {}
    open_: list[tuple[int, str]] = []  # blocks may be nested
    # Each token with the two after it: `{%`, `block`, the name.
    for (line, kind, _), (_, _, word), (_, _, name) in zip(
        words, words[1:], words[2:], strict=False
    ):
        if kind == "block_begin" and word == "block":
            open_.append((line, name))
        elif kind == "block_begin" and word == "endblock":
            found[open_.pop()] = line
    return found


def parent_of(found: Outline, layer: int, templates: Templates) -> Source | None:
    """Return the template extended by the template `found` of layer number `layer`; None if it extends none, or an unknown one.

    A template that extends its own name means the one below it, in a later layer or built in. `BUILT_IN_NAME` before a name asks for the
    built-in template, below all layers.
    """
    if found.extends is None:
        return None
    name = found.extends
    position = templates.find(name, layer + 1 if name == found.source.name else 0)
    if position is not None:
        return next(item for item in templates.layers[position] if item.name == name)
    own = name.removeprefix(BUILT_IN_NAME)
    return built_in(own) if own in WRITTEN else None
