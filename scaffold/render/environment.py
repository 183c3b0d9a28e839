"""Rendering: from a view to the text of a file, through a template.

Words: a *view* is the data of a template, a NamedTuple of strings that the template sees as `view`; a *team's* template is one of the
project's own, in place of a built-in one, which is *ours*; `House` is a team's style, its templates among it.
In: a template's name and a view. Out: text with the imports its code needs, not formatted yet. Invariant: the text depends on the
view and the templates alone; a mistake in a team's template is an error at its line.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from scaffold.errors import Location, ScaffoldError
from scaffold.render.file_style import PLAIN, House
from scaffold.render.imports import names_read
from scaffold.render.templates import BUILT_IN, Templates, built_in_environment

if TYPE_CHECKING:
    import jinja2


LONGEST = 1_000_000  # characters a team's template may render

# --- Templates behind one function.


class View(Protocol):
    """The data of a template: a NamedTuple with the text of its imports."""

    @property
    def imports(self) -> str: ...

    def _replace(self, *, imports: str) -> Self: ...


def keep_compiled(compiled: "jinja2.BytecodeCache") -> None:
    """Let built-in templates be read from a cache of compiled ones from now on; missing ones are added to it."""
    built_in_environment().bytecode_cache = compiled


def render_template(name: str, view: Any, templates: Templates) -> str:
    """Render a template, not formatted yet; the template sees the view as `view`."""
    return _rendered(name, None, view, templates)


def render_block(
    name: str, block: str, view: Any, templates: Templates = BUILT_IN
) -> str:
    """Render one block of a template, `{% block function %}`: a part of a file, to show or to compare."""
    return _rendered(name, block, view, templates)


def _rendered(name: str, block: str | None, view: Any, templates: Templates) -> str:
    """Render a template, or the given block of it; a team's one in the sandbox, as it is code of somebody else's.

    An error in a team's template is raised as ScaffoldError at its line.
    """
    if templates.find(name) is None:
        return _text(built_in_environment().get_template(name), block, view)
    from scaffold.render.sandbox import blamed, layered

    with blamed(templates, name):
        environment = layered(templates)
        template = environment.get_template(environment.place(name))
        text = _text(template, block, view)
        if len(text) > LONGEST:
            raise ValueError(f"the text has more than {LONGEST} characters")
        return text


def _text(template: "jinja2.Template", block: str | None, view: Any) -> str:
    """Render a template, or one of its blocks as overridden by the templates above; raise LookupError for an unknown block."""
    context = template.new_context({"view": view})
    if block is None:
        return "".join(template.root_render_func(context))
    for _ in template.root_render_func(context):
        pass  # running it adds its parents' blocks to the context
    if block not in context.blocks:
        raise LookupError(block)
    return "".join(context.blocks[block][0](context))


# --- A file's text with its imports, derived from the code below them.
#
# In: a template, its view, and a function making the imports of code. Out: the text, not formatted yet.
# Invariant: everything imported is used, even if a team's template made the text.


def with_imports(
    name: str, view: View, imports: Callable[[str], str], house: House = PLAIN
) -> str:
    """Render a template with the imports its code needs: once without them, to see the names it reads, then with them.

    `imports` makes the import lines for code, `house` has the templates. Raise ScaffoldError if a team's template renders no Python.
    """
    code = render_template(name, view, house.templates)
    ours = house.templates.find(name) is None
    try:
        found = imports(code)
        text = render_template(name, view._replace(imports=found), house.templates)
        # Ours are known to render Python.
        if not ours:
            names_read(text)  # raises SyntaxError unless it parses
    except SyntaxError as error:
        if ours:  # a bug of ours, not of the team
            raise
        raise _no_python(error, house.templates.source(name).path) from None
    return text


def _no_python(error: SyntaxError, path: str) -> ScaffoldError:
    """Return the error for rendered text that is not Python, with the line at fault."""
    line = (error.text or "").strip()
    shown = f": {line}" if line else ""
    words = (
        f"the rendered text is not Python, {error.msg} in line {error.lineno}{shown}"
    )
    return ScaffoldError(words, Location(path))
