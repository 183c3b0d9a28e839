"""Where an op's files go: from the configuration, the options and what is on disk.

In: the configuration and `--out-dir`, `--test-dir`. Out: a root that holds them all, and `Directories` relative to it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from scaffold.render.layout import Directories
from scaffold.spec import Configuration


@dataclass(frozen=True, slots=True)
class Places:
    """The directory that everything is written under, and the directories below it."""

    root: Path
    directories: Directories


def places(
    configuration: Configuration, out_dir: str | None, test_dir: str | None
) -> Places:
    """Options count from here, the configuration's directories from its own file."""
    base = Path(configuration.root).absolute()
    source = Path(out_dir).absolute() if out_dir else base / configuration.source
    tests = _tests(configuration, base, test_dir, source if out_dir else None) or source
    root = Path(os.path.commonpath([_plain(base), _plain(source), _plain(tests)]))
    package = configuration.package if not out_dir else None
    return Places(
        root,
        Directories(
            source=_below(source, root),
            tests=_below(tests, root),
            package=package or _package(_plain(source)),
            importable=configuration.importable,
            line_length=configuration.line_length,
        ),
    )


def _tests(
    configuration: Configuration, base: Path, test_dir: str | None, source: Path | None
) -> Path | None:
    """Where the option says, else beside an `--out-dir`, else where the configuration says."""
    if test_dir:
        return Path(test_dir).absolute()
    return source or (base / configuration.tests if configuration.tests else None)


def _plain(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _below(path: Path, root: Path) -> str:
    return Path(os.path.relpath(path, root)).as_posix()


def _package(directory: Path) -> str | None:
    """The dotted name of a directory that is a Python package."""
    names: list[str] = []
    while (directory / "__init__.py").is_file():
        names.insert(0, directory.name)
        directory = directory.parent
    return ".".join(names) or None
