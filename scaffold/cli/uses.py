"""Where else a project uses an op.

In: the root, the op's module and the paths of its own files. Out: lines that import it, as `path:line`.
Invariant: nothing is changed or imported; what cannot be read uses nothing.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from scaffold.cli.places import from_here
from scaffold.cli.sources import find_sources, read_source
from scaffold.errors import ScaffoldError


def uses_of(root: Path, module: str, own: Collection[str]) -> Iterator[str]:
    """The imports of a module below the root, but for those in some files."""
    mine = {(root / path).resolve() for path in own}
    for path in find_sources([str(root)]):
        if Path(path).resolve() in mine:
            continue
        try:
            text = read_source(path)
            if module not in text:
                continue
            tree = ast.parse(text)
        except (ScaffoldError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            if _imports(node, module):
                line = getattr(node, "lineno", 1)
                yield f"{from_here(Path.cwd(), path)}:{line}"


def _imports(node: ast.AST, module: str) -> bool:
    match node:
        case ast.ImportFrom(str(name), names):
            found = name.rpartition(".")[2] == module
            return found or any(alias.name == module for alias in names)
        case ast.ImportFrom(None, names):
            return any(alias.name == module for alias in names)
        case ast.Import(names):
            return any(alias.name.rpartition(".")[2] == module for alias in names)
    return False
