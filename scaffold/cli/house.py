"""How the files of a project look: its templates, what stands on top of each file, and what formats them.

In: the configuration and the options. Out: a `House`, a formatter. Invariant: an option goes before the configuration.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaffold.errors import Location
from scaffold.render.formatting import Formatter, format_files
from scaffold.render.house import House, header_line, licence_lines
from scaffold.render.templates import Templates, read_templates
from scaffold.spec import Configuration

TEMPLATE_DIR = "--template-dir"


def find_house(configuration: Configuration, settings: Mapping[str, Any]) -> House:
    """What the configuration and the options say of the looks of files; which manifest is theirs, `headed` adds."""
    return House(
        templates=find_templates(configuration, settings),
        licence=licence_lines(configuration.licence or ""),
        docstrings=configuration.docstrings,
        single_line_imports=configuration.single_line_imports,
    )


def headed(house: House, configuration: Configuration, manifest: str) -> House:
    """The same for the ops of a manifest, whose files name it unless the configuration forbids it."""
    return (
        house._replace(header=header_line(manifest)) if configuration.header else house
    )


def find_templates(
    configuration: Configuration, settings: Mapping[str, Any]
) -> Templates:
    """The templates that apply: those of the option, those of the configuration, then ours."""
    return read_templates(template_directories(configuration, settings))


def template_directories(
    configuration: Configuration, settings: Mapping[str, Any]
) -> tuple[tuple[Path, Location], ...]:
    """Where templates of the team are looked for, the first before the others, and who says so."""
    given = settings.get(TEMPLATE_DIR.removeprefix("--"), ())
    options = [(Path(item), Location(TEMPLATE_DIR)) for item in given]
    root = Path(configuration.root)
    place = Location((root / "pyproject.toml").as_posix())
    configured = [(root / item, place) for item in configuration.template_dirs]
    return (*options, *configured)


def find_formatter(configuration: Configuration, root: Path) -> Formatter:
    """What formats the files of the project."""
    if configuration.formatter == "black":
        return format_files
    from functools import partial

    from scaffold.verify.ruff import format_with_ruff

    return partial(format_with_ruff, root=root)
