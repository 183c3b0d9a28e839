"""The templates that apply: those of the team, layer by layer, over the built-in ones.

In: directories. Out: a `Templates`, their texts as data, and its digest.
Invariant: every text is read once, here; what renders has no way to another file. The built-in ones are the same files,
whether installed, installed as editable, or run from a clone.
"""

import hashlib
import os
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import read_text

if TYPE_CHECKING:
    import jinja2

OP, TESTS, OP_TESTING = "op.py.jinja", "test.py.jinja", "op_testing.py.jinja"
WRITTEN = (OP, TESTS, OP_TESTING)  # what they render is written
BUILT_IN_NAME = "builtin/"  # what a template extends to mean the one of ours
SUFFIX = ".jinja"


class Source(NamedTuple):
    """One template: its name below its directory, its path as messages show it, its text."""

    name: str
    path: str
    text: str


class Templates(NamedTuple):
    """The templates of a team by directory, the first one on top; below them are the built-in ones."""

    layers: tuple[tuple[Source, ...], ...] = ()

    def find(self, name: str, start: int = 0) -> int | None:
        """The first layer from `start` on that has a template of this name."""
        for position in range(start, len(self.layers)):
            if any(source.name == name for source in self.layers[position]):
                return position
        return None

    def source(self, name: str) -> Source:
        """The template that is rendered under this name."""
        position = self.find(name)
        if position is None:
            return built_in(name)
        return next(item for item in self.layers[position] if item.name == name)

    def layer_of(self, source: Source) -> int:
        """The layer of a template; what is below all of them for a built-in one."""
        places = (
            position for position, layer in enumerate(self.layers) if source in layer
        )
        return next(places, len(self.layers))

    @property
    def sources(self) -> tuple[Source, ...]:
        """All templates of the team."""
        return tuple(source for layer in self.layers for source in layer)


BUILT_IN = Templates()


def template_root() -> Path:
    """The directory of the built-in templates: a wheel holds it, a checkout has it beside the package."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "templates"
    return shipped if shipped.is_dir() else package.parent / "templates"


def built_in(name: str) -> Source:
    """A built-in template; its path is the name that a team's template extends."""
    text = (template_root() / name).read_text(encoding="utf-8")
    return Source(name, BUILT_IN_NAME + name, text)


def read_templates(directories: Iterable[tuple[Path, Location]]) -> Templates:
    """The templates of directories, each given with the place that names it."""
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
    shown = os.path.relpath(directory)
    if not directory.is_dir():
        hint = f"scaffold templates eject op --template-dir {shlex.quote(shown)} starts one"
        raise ScaffoldError(f"'{shown}' is not a directory", place, hint)
    found: list[Source] = []
    problems: list[ScaffoldError] = []
    for path in sorted(directory.rglob(f"*{SUFFIX}")):
        name = path.relative_to(directory).as_posix()
        try:
            text = read_text(path, "utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            message = f"cannot be read: {reason}"
            problems.append(ScaffoldError(message, Location(f"{shown}/{name}")))
            continue
        found.append(Source(name, os.path.normpath(f"{shown}/{name}"), text))
    raise_all(problems)
    return tuple(found)


def digest(templates: Templates) -> str:
    """What tells whether a template moved: a hash of every text that may show in a written file."""
    total = hashlib.sha256()
    sources = [built_in(name) for name in WRITTEN]
    for position, layer in enumerate((*templates.layers, tuple(sources))):
        for source in layer:
            text = hashlib.sha256(source.text.encode()).hexdigest()
            total.update(f"{position} {source.name!r} {text}\n".encode())
    return total.hexdigest()


class Options(TypedDict):
    """What our templates and those of a team have in common."""

    trim_blocks: bool
    lstrip_blocks: bool
    keep_trailing_newline: bool
    auto_reload: bool


OPTIONS = Options(
    trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, auto_reload=False
)


@cache
def built_in_environment() -> "jinja2.Environment":
    """The environment of our own templates."""
    import jinja2  # what renders nothing does without

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_root()),
        undefined=jinja2.StrictUndefined,
        **OPTIONS,
    )
