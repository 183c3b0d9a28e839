"""Templates behind one function.

In: a template's name and a view. Out: text, not formatted yet. Invariant: the text follows from the view and the templates
alone; a mistake in a template of the team's is an error at its line.
"""

from typing import TYPE_CHECKING, Any, Protocol, Self

from scaffold.render.templates import BUILT_IN, Templates, built_in_environment

if TYPE_CHECKING:
    import jinja2


class View(Protocol):
    """What a template shows: a NamedTuple with a text of imports."""

    @property
    def imports(self) -> str: ...

    def _replace(self, *, imports: str) -> Self: ...


def keep_compiled(compiled: "jinja2.BytecodeCache") -> None:
    """Take compiled templates from a cache, and leave those there that it lacks."""
    built_in_environment().bytecode_cache = compiled


def render_template(name: str, view: Any, templates: Templates = BUILT_IN) -> str:
    """The text of a template, not formatted yet; the template sees the view as `view`."""
    return _rendered(name, None, view, templates)


def render_block(
    name: str, block: str, view: Any, templates: Templates = BUILT_IN
) -> str:
    """The text of one block of a template."""
    return _rendered(name, block, view, templates)


def _rendered(name: str, block: str | None, view: Any, templates: Templates) -> str:
    if templates.find(name) is None:
        return _text(built_in_environment().get_template(name), block, view)
    from scaffold.render.blame import blamed  # only where a team has some
    from scaffold.render.layers import layered

    with blamed(templates, name):
        environment = layered(templates)
        environment.begin()
        template = environment.get_template(environment.place(name))
        return _text(template, block, view)


def _text(template: "jinja2.Template", block: str | None, view: Any) -> str:
    """The text of a template, or of one block of it, as the templates below it leave it."""
    context = template.new_context({"view": view})
    if block is None:
        return "".join(template.root_render_func(context))
    for _ in template.root_render_func(context):
        pass  # what it extends adds its blocks on the way
    if block not in context.blocks:
        raise LookupError(block)
    return "".join(context.blocks[block][0](context))
