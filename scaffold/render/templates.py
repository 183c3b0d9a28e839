"""Templates: those of the team, layer by layer, over the built-in ones.

Words: a *team* may put its own templates, in directories of its project, in front of ours; a *layer* is such a directory. In a template,
`{% extends "builtin/op.py.jinja" %}` asks for ours.
In: directories. Out: a `Templates`, their texts as data, and its digest.
Invariant: every text is read once, here; rendering reads no other file. The built-in ones are the same files, whether
installed, installed as editable, or run from a clone.
"""

import hashlib
import os
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from scaffold.errors import Location, ScaffoldError, raise_all, why_unread
from scaffold.files import read_text

if TYPE_CHECKING:
    import jinja2

OP, TESTS, OP_TESTING = "op.py.jinja", "test.py.jinja", "op_testing.py.jinja"
KERNEL = "kernel.py.jinja"
WRITTEN = (OP, TESTS, OP_TESTING)  # rendered into files
BUILT_IN_NAME = "builtin/"  # the prefix for extending one of ours
SUFFIX = ".jinja"


class Source(NamedTuple):
    """One template: its name below its directory, its path as messages show it, its text."""

    name: str
    path: str
    text: str


class Templates(NamedTuple):
    """A team's templates by directory, the first one on top; below them are the built-in ones."""

    layers: tuple[tuple[Source, ...], ...] = ()

    def find(self, name: str, start: int = 0) -> int | None:
        """Return the first layer from `start` on with a template of this name, or None."""
        for position in range(start, len(self.layers)):
            if any(source.name == name for source in self.layers[position]):
                return position
        return None

    def source(self, name: str) -> Source:
        """Return the template rendered under this name: that of the first layer with one, else the built-in one."""
        position = self.find(name)
        if position is None:
            return built_in(name)
        return next(item for item in self.layers[position] if item.name == name)

    def layer_of(self, source: Source) -> int:
        """Return the layer of a template; for a built-in one, the number below all layers."""
        places = (
            position for position, layer in enumerate(self.layers) if source in layer
        )
        return next(places, len(self.layers))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return all templates of the team."""
        return tuple(source for layer in self.layers for source in layer)


BUILT_IN = Templates()


def template_root() -> Path:
    """Return the directory of the built-in templates: in the package of a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "templates"
    return shipped if shipped.is_dir() else package.parent / "templates"


def built_in(name: str) -> Source:
    """Return a built-in template; its path is the name used to extend it."""
    text = (template_root() / name).read_text(encoding="utf-8")
    return Source(name, BUILT_IN_NAME + name, text)


def read_templates(directories: Iterable[tuple[Path, Location]]) -> Templates:
    """Read the templates of directories, each given with the place naming it; raise ScaffoldError for unreadable ones."""
    layers: list[tuple[Source, ...]] = []
    problems: list[ScaffoldError] = []
    for directory, place in directories:
        try:
            layers.append(_layer(directory, place))
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return Templates(tuple(layers))


def _layer(directory: Path, place: Location) -> tuple[Source, ...]:
    """Read the templates of a directory; raise for unreadable ones."""
    shown = os.path.relpath(directory)
    if not directory.is_dir():
        hint = f"to start one: scaffold templates eject op --template-dir {shlex.quote(shown)}"
        raise ScaffoldError(f"'{shown}' is not a directory", place, hint)
    found: list[Source] = []
    problems: list[ScaffoldError] = []
    for path in sorted(directory.rglob(f"*{SUFFIX}")):
        name = path.relative_to(directory).as_posix()
        try:
            # An editor may have put a byte order mark in front.
            text = read_text(path, "utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            message = f"cannot be read: {why_unread(error)}"
            problems.append(ScaffoldError(message, Location(f"{shown}/{name}")))
            continue
        found.append(Source(name, os.path.normpath(f"{shown}/{name}"), text))
    raise_all(problems)
    return tuple(found)


def digest(templates: Templates) -> str:
    """Return a hash of every text with a possible effect on a written file.

    It is recorded with each op: another digest later means that its files are out of date.
    """
    total = hashlib.sha256()
    sources = [built_in(name) for name in WRITTEN]
    for position, layer in enumerate((*templates.layers, tuple(sources))):
        for source in layer:
            text = hashlib.sha256(source.text.encode()).hexdigest()
            total.update(f"{position} {source.name!r} {text}\n".encode())
    return total.hexdigest()


class Options(TypedDict):
    """The options common to our templates and a team's."""

    trim_blocks: bool
    lstrip_blocks: bool
    keep_trailing_newline: bool
    auto_reload: bool


OPTIONS = Options(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False
)


@cache
def built_in_environment() -> "jinja2.Environment":
    """Return the environment of our own templates."""
    import jinja2  # imported only if something is rendered

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_root()),
        undefined=jinja2.StrictUndefined,
        **OPTIONS,
    )
