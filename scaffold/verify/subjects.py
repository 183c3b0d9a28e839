"""Which file a test file is about.

In: the path of a test file. Out: the file with the autograd.Functions that it imports, or holds itself.
Invariant: nothing is imported; a module is found where a test runner would find it, from the file outwards.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from scaffold.errors import Location, ScaffoldError
from scaffold.files import read_text
from scaffold.verify.op_tree import function_classes

DEPTH = 3  # modules that re-export from another, one after the other
OUTWARDS = 5  # directories above the test file that modules are looked for in
HINT = "name the file with the Functions: --op FILE"


def read_module(path: Path) -> ast.Module:
    """A Python file as a tree."""
    place = str(path)
    try:
        return ast.parse(read_text(path, "utf-8-sig"))
    except OSError as error:
        raise ScaffoldError(f"cannot read '{place}': {error.strerror}") from None
    except (RecursionError, MemoryError):
        message = f"'{place}' is not Python that can be read: it is nested too deeply"
        raise ScaffoldError(message, Location(place)) from None
    except (SyntaxError, ValueError) as error:
        message = f"'{place}' is not Python: {getattr(error, 'msg', error)}"
        line = getattr(error, "lineno", None) or 1
        raise ScaffoldError(message, Location(place, line)) from None


def find_subject(test: Path) -> Path:
    """The one file of Functions that the test imports."""
    tree = read_module(test)
    found = dict.fromkeys(_subjects(tree, test, DEPTH))
    if not found and function_classes(tree):
        found = {test: None}
    if len(found) == 1:
        return next(iter(found))
    if not found:
        message = f"'{test}' imports no autograd.Function with a backward"
        raise ScaffoldError(message, hint=HINT)
    listed = ", ".join(f"'{os.path.relpath(path)}'" for path in found)
    raise ScaffoldError(f"'{test}' imports several: {listed}", hint=HINT)


def _subjects(tree: ast.Module, file: Path, depth: int) -> Iterator[Path]:
    """The files with Functions that a module imports, or that what it imports does."""
    for node in ast.walk(tree):
        for path in _imported(node, file):
            if path.resolve() == file.resolve():
                continue
            inner = read_module(path)
            if function_classes(inner):
                yield path
            elif depth > 1 and path.name == "__init__.py":
                yield from _subjects(inner, path, depth - 1)


def _imported(node: ast.AST, file: Path) -> Iterator[Path]:
    """The files that an import statement reads, as far as they are the user's."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _find(alias.name, _starts(file))
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        start = [file.parent, *file.parent.parents][node.level - 1 : node.level]
        starts = start if node.level else _starts(file)
        yield from _find(module, starts)
        for alias in node.names:
            yield from _find(f"{module}.{alias.name}".lstrip("."), starts)


def _starts(file: Path) -> list[Path]:
    """The directories that a module's name may begin in."""
    above = file.resolve().parents[:OUTWARDS]
    return [Path.cwd(), *(place for each in above for place in (each, each / "src"))]


def _find(module: str, starts: list[Path]) -> Iterator[Path]:
    """The first file of that name: a module or a package."""
    if not module:
        return
    below = Path(*module.split("."))
    for start in starts:
        for path in (start / below.with_suffix(".py"), start / below / "__init__.py"):
            if path.is_file():
                yield path
                return
