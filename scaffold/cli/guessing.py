"""Where a project that is there already would have its ops: guessed from the tree.

In: the project's directory and its name. Out: values of `source`, `tests` and `package`.
Invariant: nothing is read but the names of files.
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from scaffold.spec.names import is_identifier

# Packages beside the one that is shipped.
BESIDE = frozenset(
    {"benchmarks", "build", "dist", "docs", "examples", "scripts", "test", "tests"}
)


def guess_places(
    directory: Path, project: str | None, given: Mapping[str, str]
) -> dict[str, str]:
    """What is given, and for what is not the likely value; a key is left out where nothing tells."""
    found = dict(given)
    package = _package(directory, project)
    if "source" not in found and package is not None:
        below = package / "ops"
        found["source"] = str(below if (directory / below).is_dir() else package)
    dotted = _dotted(directory, found.get("source"))
    if "package" not in found and dotted:
        found["package"] = dotted
    tests = _tests(directory, package is not None)
    if "tests" not in found and tests:
        found["tests"] = tests
    return {key: found[key] for key in ("source", "tests", "package") if key in found}


def _package(directory: Path, project: str | None) -> PurePosixPath | None:
    """The package of the project: that of its name, or the only one."""
    for top in ("src", "."):
        found = _packages(directory / top)
        named = re.sub(r"[-.]+", "_", project or "")
        chosen = named if named in found else found[0] if len(found) == 1 else None
        if chosen is not None:
            return PurePosixPath(top, chosen)
    return None


def _packages(directory: Path) -> list[str]:
    if not directory.is_dir():
        return []
    return sorted(
        path.name
        for path in directory.iterdir()
        if (path / "__init__.py").is_file()
        and is_identifier(path.name)
        and path.name not in BESIDE
    )


def _dotted(directory: Path, source: str | None) -> str | None:
    """The import path of the source directory: below src, or below a package."""
    parts = PurePosixPath(source or ".").parts
    if parts[:1] == ("src",):
        parts = parts[1:]
    elif not parts or not (directory / parts[0] / "__init__.py").is_file():
        return None
    return ".".join(parts) if all(map(is_identifier, parts)) else None


def _tests(directory: Path, packaged: bool) -> str | None:
    """The directory of tests that is there; a package gets one beside it."""
    there = (name for name in ("tests", "test") if (directory / name).is_dir())
    return next(there, "tests" if packaged else None)
