"""A file's text with its imports, which follow from the code below them.

In: a template, its view, and what makes the imports of some code. Out: the text, not formatted yet.
Invariant: nothing is imported that the text does not use, also where a team's template made it.
"""

from collections.abc import Callable

from scaffold.errors import Location, ScaffoldError
from scaffold.render.environment import View, render_template
from scaffold.render.house import PLAIN, House
from scaffold.render.imports import names_read


def with_imports(
    name: str, view: View, imports: Callable[[str], str], house: House = PLAIN
) -> str:
    """The text of a template, first without its imports, then with those that the first text needs."""
    code = render_template(name, view, house.templates)
    ours = house.templates.find(name) is None
    try:
        found = imports(code)
        text = render_template(name, view._replace(imports=found), house.templates)
        if not ours:
            names_read(text)  # which parses it
    except SyntaxError as error:
        if ours:
            raise
        raise _no_python(error, house.templates.source(name).path) from None
    return text


def _no_python(error: SyntaxError, path: str) -> ScaffoldError:
    """The line of the text in which it stops to be Python."""
    line = (error.text or "").strip()
    shown = f": {line}" if line else ""
    words = f"what it renders is no Python, {error.msg} in line {error.lineno}{shown}"
    return ScaffoldError(words, Location(path))
