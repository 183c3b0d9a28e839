"""How the files of a project look: its templates, what stands on top of each file, and what formats them.

In: the configuration and the options. Out: a `House`, a formatter. Invariant: an option goes before the configuration.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaffold.cli.here import working_directory
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.render.formatting import Formatter, format_files
from scaffold.render.house import House, header_line, licence_lines
from scaffold.render.templates import Templates, read_templates
from scaffold.spec import Configuration
from scaffold.spec.config import find_sources

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
    configured = configured_directories(configuration)
    missing = [
        position for position, path in enumerate(configured) if not path.is_dir()
    ]
    raise_all([_missing(configuration, position) for position in missing])
    place = Location(Path(configuration.root, "pyproject.toml").as_posix())
    given = settings.get(TEMPLATE_DIR.removeprefix("--"), ())
    options = [(Path(item), Location(TEMPLATE_DIR)) for item in given]
    return read_templates([*options, *((path, place) for path in configured)])


def configured_directories(configuration: Configuration) -> tuple[Path, ...]:
    """Where templates of the team are looked for, the first before the others; they need not be there yet."""
    root = Path(configuration.root)
    return tuple(root / item for item in configuration.template_dirs)


def _missing(configuration: Configuration, position: int) -> ScaffoldError:
    """That a configured directory is not there, where it is named."""
    said = find_sources(working_directory(), os.environ).said["template-dirs"]
    place = said.locate(("template-dirs", str(position)))
    message = f"'{configuration.template_dirs[position]}' is not a directory"
    shown = os.path.relpath(configured_directories(configuration)[position])
    hint = f"scaffold templates eject op --template-dir {shlex.quote(shown)}"
    return ScaffoldError(message, place, hint)


def find_formatter(configuration: Configuration, root: Path) -> Formatter:
    """What formats the files of the project."""
    if configuration.formatter == "black":
        return format_files
    from functools import partial

    from scaffold.verify.ruff import format_with_ruff

    return partial(format_with_ruff, root=root)
