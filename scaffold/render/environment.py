"""Templates and the formatter, each behind one function.

In: a template's name and a view. Out: formatted source. Invariant: text in, text out; no template reads a file.
"""

from functools import cache
from typing import Any

import black
import jinja2
from black.mode import TargetVersion

from scaffold.render.folding import fold
from scaffold.render.templates import template_root


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_root()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def keep_compiled(compiled: jinja2.BytecodeCache) -> None:
    """Take compiled templates from a cache, and leave those there that it lacks."""
    _environment().bytecode_cache = compiled


def render_template(name: str, view: Any) -> str:
    """The text of a template, not formatted yet; the template sees the view as `view`."""
    return _environment().get_template(name).render(view=view)


def render_block(name: str, block: str, view: Any) -> str:
    """The text of one block of a template."""
    template = _environment().get_template(name)
    return "".join(template.blocks[block](template.new_context({"view": view})))


def format_source(source: str, line_length: int = 88) -> str:
    """Python source as black writes it."""
    mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
    return black.format_str(fold(source, line_length), mode=mode)
