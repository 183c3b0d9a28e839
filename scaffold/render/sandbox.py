"""A team's templates: layers over the built-in ones, in a sandbox, with errors reported at their line.

Words: a *layer* is a directory of a team's templates; a template of an earlier layer hides one of the same name in a later one, and may
extend it. A *view* is the data of a template, which reads it as `view`.
In: `Templates`. Out: an environment with these templates. Invariant: a template reads the view and other templates, nothing else:
no file, no code, nothing random; the user sees the place of an error, never a traceback. Its process limits its time and memory.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache, partial
from types import TracebackType
from typing import Any

import jinja2
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.render.templates import (
    BUILT_IN_NAME,
    OPTIONS,
    WRITTEN,
    Templates,
    built_in_environment,
    template_root,
)

# --- The templates of a team: layers over the built-in ones, in a sandbox.


GLOBALS = ("range", "dict", "namespace", "joiner", "cycler")
TOO_LONG = "the template takes too long"
BY_CHANCE = ("random",)  # a Jinja filter: no two runs would agree


class Unknown(jinja2.UndefinedError):
    """An undefined name, or one missing from the value before its dot."""

    def __init__(self, owner: Any, name: Any, message: str = "") -> None:
        super().__init__(message)
        self.owner, self.name = owner, name


class Strict(jinja2.StrictUndefined):
    """An undefined value, remembering its name and the value lacking it."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: Any = jinja2.UndefinedError,
    ) -> None:
        """Remember the owner and the name in the error to be raised; `obj`, `exc` and `hint` are Jinja's."""
        usual = exc is jinja2.UndefinedError  # not an error of the sandbox itself
        known: Any = partial(Unknown, obj, name)
        super().__init__(hint, obj, name, known if usual else exc)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment compiling a team's templates; built-in ones come from their own environment."""

    def __init__(self, templates: Templates) -> None:
        """Make the environment, without functions of no use to a template, and without filters that are random."""
        super().__init__(
            loader=Layers(templates),
            undefined=Strict,
            **OPTIONS,
        )
        self.templates = templates
        for name in set(self.globals) - set(GLOBALS):
            del self.globals[name]
        for name in BY_CHANCE:
            del self.filters[name]

    def join_path(self, template: str, parent: str) -> str:
        """Resolve a name the template `parent` extends or includes, `0:op.py.jinja`; its own name means the next one below it."""
        layer, _, own = parent.partition(":")
        # A built-in parent has no number before its name: `own` is then "".
        below = int(layer) + 1 if template == own else 0
        return self.place(template, below)

    def place(self, name: str, start: int = 0) -> str:
        """Return a name with the number of its layer, from `start` on, `1:op.py.jinja`; the plain name for a built-in template."""
        found = self.templates.find(name, start)
        return name if found is None else f"{found}:{name}"


class Layers(jinja2.BaseLoader):
    """A loader of templates by layer number and name."""

    def __init__(self, templates: Templates) -> None:
        """Give each template the name `0:op.py.jinja`: the number of its layer, and its own."""
        self.texts = {
            f"{position}:{source.name}": source
            for position, layer in enumerate(templates.layers)
            for source in layer
        }

    def load(
        self, environment: jinja2.Environment, name: str, globals: Any = None
    ) -> jinja2.Template:
        """Return a template of a layer, in the sandbox; else a built-in one."""
        if name in self.texts:
            return super().load(environment, name, globals)
        return built_in_environment().get_template(name.removeprefix(BUILT_IN_NAME))

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, None]:
        """Return the text and the path of a template, as Jinja asks for them."""
        source = self.texts[template]
        return source.text, source.path, None


@lru_cache(maxsize=4)
def layered(templates: Templates) -> Sandbox:
    """Return the environment of a team's templates, cached: compiling them takes a while."""
    return Sandbox(templates)


# --- Errors in a team's template: their line and their words.
#
# In: an exception raised by Jinja or by the template's code. Out: a `ScaffoldError` at the line of the template.
# Invariant: whatever a template does, the user sees the place, never a traceback.


NAMES = ("view", "range", "dict", "namespace", "joiner", "cycler", "loop", "super")
SHOWN = 12  # fields listed in a hint


@contextmanager
def blamed(templates: Templates, name: str) -> Iterator[None]:
    """Turn an exception of a template into an error at its line; `name` is the rendered template."""
    try:
        yield
    except ScaffoldError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever a template raises)
        place = _place(error, templates) or Location(templates.source(name).path)
        raise ScaffoldError(_words(error), place, _hint(error, templates)) from None


def _place(error: Exception, templates: Templates) -> Location | None:
    """Return the innermost line in a team's template, else in any template; None for neither."""
    # It is raised when the template is read, so no line of it runs: the error itself has the line.
    if isinstance(error, jinja2.TemplateSyntaxError):
        return Location(_shown(error.filename or error.name or ""), error.lineno)
    known = {source.path for source in templates.sources}
    found = list(_frames(error.__traceback__))
    own = [place for place in found if place.source in known]
    return next(reversed(own or found), None)


def _frames(traceback: TracebackType | None) -> Iterator[Location]:
    """Yield the lines of templates in a traceback."""
    while traceback is not None:
        template = traceback.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            line = template.get_corresponding_lineno(traceback.tb_lineno)
            yield Location(_shown(template.filename or template.name), line)
        traceback = traceback.tb_next


def _shown(path: str) -> str:
    """Return the path of a template; for a built-in one, the name used to extend it."""
    built_in = {str(template_root() / name): BUILT_IN_NAME + name for name in WRITTEN}
    return built_in.get(path, path)


def _words(error: Exception) -> str:
    """Return the message for an error of a template."""
    match error:
        case Unknown(owner=owner) if owner is None:
            return f"{error.name!r} is undefined: the value before the dot is None"
        case Unknown():
            return f"{error.name!r} is undefined"
        case jinja2.TemplateNotFound():
            return f"there is no template '{_asked(error)}'"
        # `environment._text` raises it for a block; a KeyError comes from the template's code.
        case LookupError() if type(error) is LookupError:
            return f"the template has no block '{error}'"
        case MemoryError():
            return "the template takes too much memory"
        case TimeoutError():
            return TOO_LONG
        case RecursionError():
            return "the template extends, includes or calls itself without end"
        case jinja2.TemplateError():
            words = (error.message or type(error).__name__).rstrip(".")
            return words[:1].lower() + words[1:]
        case _:
            return f"{type(error).__name__}: {error}".rstrip(".")


def _asked(error: jinja2.TemplateNotFound) -> str:
    return str(error.name or error).removeprefix(BUILT_IN_NAME)


def _hint(error: Exception, templates: Templates) -> str | None:
    """Return a hint for an error of a template: the closest known name or a list of them; None without any.

    An unknown variable, a field of a None, an unknown field, a template, a filter or a test.
    """
    match error:
        # Nothing stands before the name: it is a variable.
        case Unknown(owner=owner, name=str(name)) if owner is missing:
            return did_you_mean(name, NAMES) or "templates have one variable: view"
        case Unknown(owner=None):
            return "test it first: {% if ... %}"
        case Unknown(owner=owner, name=str(name)):
            return _among(name, _fields(owner), "the fields here")
        case jinja2.TemplateNotFound():
            names = [source.name for source in templates.sources]
            names += [BUILT_IN_NAME + name for name in WRITTEN]
            return _among(_asked(error), names, "the templates")
        # Jinja says "No filter named 'x'." and "No test named 'x'."
        case jinja2.TemplateError(message=str(message)) if " named '" in message:
            return _named(message, templates)
    return None


def _among(word: str, known: Iterable[str], what: str) -> str | None:
    """Return a hint: the closest of the known words, or a list of them after `what` they are, "the fields here"; None without any."""
    listed = list(known)
    shown = ", ".join(listed[:SHOWN]) + (", ..." if len(listed) > SHOWN else "")
    return did_you_mean(word, listed) or (f"{what}: {shown}" if listed else None)


def _fields(owner: Any) -> tuple[str, ...]:
    """Return the field names of a view."""
    return tuple(getattr(type(owner), "_fields", ()))


def _named(message: str, templates: Templates) -> str | None:
    """Return a hint with the known filter or test closest to the one that Jinja's `message` names in quotes; None if none is close."""

    word = message.split("'")[1]
    environment = layered(templates)
    known = environment.tests if "test named" in message else environment.filters
    close = get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else None
