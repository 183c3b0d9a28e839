"""`scaffold config`: every key of the configuration, its value, and its origin.

In: keys. Out: TOML on stdout, or one JSON object. Invariant: other commands run with the same values.
"""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.options import FORMAT, FORMATS, check_choice, completing
from scaffold.cli.output import show_object
from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.config_keys import KEYS

if TYPE_CHECKING:
    from scaffold.spec.config import Setting


NAMES = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY...",
        help="Only these keys: style.",
        autocompletion=completing(KEYS),
    ),
]
SHOW_ORIGIN = Annotated[
    bool,
    typer.Option(
        "--show-origin", help="Show where each value is set, as git config does."
    ),
]


def config(
    keys: NAMES = None, show_origin: SHOW_ORIGIN = False, format_: FORMAT = "text"
) -> None:
    """Show the configuration, and where each value is set.

    A value is taken from SCAFFOLD_KEY in the environment, else from [tool.scaffold] in the nearest pyproject.toml.

    Example: scaffold config style line-length --show-origin
    """
    from scaffold.project.configuration import working_directory
    from scaffold.spec.config import load_settings

    raise_all([*check_choice("--format", format_, FORMATS), *_unknown(keys or [])])
    settings = [
        setting
        for setting in load_settings(working_directory(), os.environ)
        if not keys or setting.key in keys
    ]
    if format_ == "json":
        show_object({"settings": [setting._asdict() for setting in settings]})
        return
    for setting in settings:
        typer.echo(_line(setting, show_origin))


def _unknown(keys: list[str]) -> list[ScaffoldError]:
    """Return a problem for each typed key the configuration does not have, with the most similar one."""
    return [
        ScaffoldError(
            f"unknown key '{key}'",
            Location("KEY"),
            did_you_mean(key, KEYS) or f"the keys: {', '.join(KEYS)}",
        )
        for key in keys
        if key not in KEYS
    ]


def _line(setting: "Setting", show_origin: bool) -> str:
    """Return a setting as a line of TOML, a comment if it has no value; with its origin in front, if asked for."""
    from scaffold.spec.toml import toml_text

    if setting.value is None:
        text = f"# {setting.key} is not set"
    else:
        text = f"{setting.key} = {toml_text(setting.value)}"
    return f"{setting.origin}\t{text}" if show_origin else text
