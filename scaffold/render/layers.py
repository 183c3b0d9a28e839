"""The templates of a team: layers over the built-in ones, in a sandbox.

In: `Templates`. Out: an environment that has them.
Invariant: a template reads the view and other templates, nothing else: no file, no code, no chance, no endless text.
"""

from functools import lru_cache, partial
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from scaffold.render.environment import OPTIONS, built_in_environment
from scaffold.render.templates import BUILT_IN_NAME, Templates

GLOBALS = ("range", "dict", "namespace", "joiner", "cycler")
BY_CHANCE = ("random",)  # a filter of Jinja's: no two runs would agree
LONGEST = 1_000_000  # of what `*` makes


class Unknown(jinja2.UndefinedError):
    """A name that means nothing, or that the value before its dot does not have."""

    def __init__(self, owner: Any, name: Any, message: str = "") -> None:
        super().__init__(message)
        self.owner, self.name = owner, name


class Strict(jinja2.StrictUndefined):
    """Remembers what was asked of which value."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: Any = jinja2.UndefinedError,
    ) -> None:
        usual = exc is jinja2.UndefinedError
        known: Any = partial(Unknown, obj, name)
        super().__init__(hint, obj, name, known if usual else exc)


class Sandbox(ImmutableSandboxedEnvironment):
    """Where templates of the team's are compiled; the built-in ones come from their own environment."""

    intercepted_binops = frozenset({"*", "**"})

    def __init__(self, templates: Templates) -> None:
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
        """What a template means by a name: one of its own name is the next below it."""
        layer, _, own = parent.partition(":")
        below = int(layer) + 1 if template == own else 0
        return self.place(template, below)

    def place(self, name: str, start: int = 0) -> str:
        """A name with the number of its layer, or the built-in one's."""
        found = self.templates.find(name, start)
        return name if found is None else f"{found}:{name}"

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Refuse what would make a text or a number without end."""
        if operator == "**":
            raise jinja2.exceptions.SecurityError("powers are not for templates")
        for text, times in ((left, right), (right, left)):
            if hasattr(text, "__len__") and len(text) * times > LONGEST:
                raise jinja2.exceptions.SecurityError("the text is too long")
        return super().call_binop(context, operator, left, right)


class Layers(jinja2.BaseLoader):
    """Finds templates by their layer's number and their name."""

    def __init__(self, templates: Templates) -> None:
        self.texts = {
            f"{position}:{source.name}": source
            for position, layer in enumerate(templates.layers)
            for source in layer
        }

    def load(
        self, environment: jinja2.Environment, name: str, globals: Any = None
    ) -> jinja2.Template:
        """A template of a layer, in the sandbox; else a built-in one."""
        if name in self.texts:
            return super().load(environment, name, globals)
        return built_in_environment().get_template(name.removeprefix(BUILT_IN_NAME))

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, None]:
        source = self.texts[template]
        return source.text, source.path, None


@lru_cache(maxsize=4)
def layered(templates: Templates) -> Sandbox:
    """The environment of a team's templates."""
    return Sandbox(templates)
