"""Hand-written Functions: those named by the user, and the dotted name to import their file by.

`verify`, `adopt`, `test-stub` and others take `ops/norm.py::Scale`; a process that runs it, and a test written for it, have to import its
module as the user's own code does, `from lab.ops import norm`: relative imports work, and no module is loaded under two names.
In: `PATH[::CLASS]` as typed; the path of a file. Out: files with the selected Functions; a dotted name, and the directory
the import starts from.
Invariant: a target that does not exist is an error with a place. Among the names allowed by `__init__.py` files and bare
directories, the one in the configuration or used by the code itself wins; without either, that of the outermost `__init__.py`.

Words: a *dotted* name is the one in an import, `lab.ops.norm`; an import *starts from* the directory on Python's path, the
one with `lab` in it; a *target* is what the user typed. A Function is found in the text of its file, nothing is imported here.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.inspect import Function, Module, NotReadable, inspect_text
from scaffold.project.source_files import look_through, read_source
from scaffold.spec import Configuration
from scaffold.spec.names import is_identifier

EMPTY = "holds no autograd.Function"
NAME_ANOTHER = "name a file with a class that inherits from torch.autograd.Function"
ONE_COLON = re.compile(r"(\.py):(?=\w)")  # `ops.py:Scale` is `ops.py::Scale`


class Meant(NamedTuple):
    """A file, and its selected Functions."""

    path: str
    module: Module
    functions: tuple[Function, ...]


class Found(NamedTuple):
    """All selected files, and notes on the skipped ones."""

    meant: tuple[Meant, ...]
    notes: tuple[str, ...]


def find_functions(targets: tuple[str, ...]) -> Found:
    """Return the Functions named by the targets, `PATH` or `PATH::CLASS`; a directory stands for all Functions in it.

    A target without a Function is noted; raise ScaffoldError if no target has one, and for each missing or unreadable file or class.
    """
    problems: list[ScaffoldError] = []
    empty: list[str] = []
    meant: list[Meant] = []
    notes: list[str] = []
    for target in targets:
        path, _, name = ONE_COLON.sub(r"\1::", target).partition("::")
        try:
            found = _in(path, name, notes)
        except ScaffoldError as error:
            problems.append(error)
            continue
        # Said only if other targets have Functions; else it is an error.
        if not found:
            empty.append(path)
        meant += found
    if not meant:
        problems += [
            ScaffoldError(EMPTY, Location(path), NAME_ANOTHER) for path in empty
        ]
    raise_all(problems)
    notes += [f"skipped: '{path}' {EMPTY}" for path in empty]
    return Found(tuple(meant), tuple(notes))


def holds_functions(path: str) -> bool:
    """Return whether a file defines a Function: `scaffold verify FILE.py` then checks it instead of running tests; False if unreadable."""
    try:
        return bool(_in(path, "", []))
    except ScaffoldError:
        return False


def _in(path: str, name: str, notes: list[str]) -> list[Meant]:
    """Return the files with Functions at or below a path, each with its Functions of this `name`; with all if it is "".

    An unreadable file raises if the user named it; in a directory it is skipped, with a note added to `notes`.
    """
    tree = look_through([path])
    if not Path(path).is_dir():
        raise_all(list(tree.unread))
    found = []
    for source in tree.relevant:
        try:
            module = inspect_text(read_source(source), source, tree.known)
        except NotReadable as error:
            if not Path(path).is_dir():
                raise
            notes.append(f"skipped: {error}")
            continue
        functions = _named(module, name) if name else module.functions
        if functions:
            found.append(Meant(source, module, functions))
    return found


def _named(module: Module, name: str) -> tuple[Function, ...]:
    """Return the Functions of a file with this name, perhaps qualified (`Outer.Scale`); raise ScaffoldError if there is none."""
    chosen = tuple(f for f in module.functions if name in (f.name, f.qualname))
    if not chosen:
        known = [function.name for function in module.functions]
        hint = did_you_mean(name, known) or (
            f"its Functions: {', '.join(known)}" if known else NAME_ANOTHER
        )
        message = f"no Function '{name}' in the file"
        raise ScaffoldError(message, Location(module.path), hint)
    return chosen


class Target(NamedTuple):
    """The directory to write files to, in two parts, as it may not exist: a transaction needs an existing `root`."""

    root: Path  # the nearest existing directory
    below: Path  # the directory of the files, relative to it

    @property
    def directory(self) -> Path:
        """Return the directory of the files, which may not exist yet."""
        return self.root / self.below


def target(out_dir: str | None, otherwise: str | Path = ".") -> Target:
    """Return the directory of `--out-dir`, or `otherwise`, split at its nearest existing parent: the rest may have to be made."""
    directory = Path(os.path.abspath(otherwise if out_dir is None else out_dir))
    root = directory
    while not root.is_dir():
        root = root.parent
    return Target(root, directory.relative_to(root))


MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")  # signs of a project's root
READ = 30  # at most this many other files are searched for imports

Named = tuple[str, Path]  # a dotted name, and the directory its import starts from


def dotted(path: str, configuration: Configuration | None = None) -> Named:
    """Return the dotted name to import a file by, and the directory to start the import from: /a/lab/ops/norm.py -> "lab.ops.norm", /a.

    By the configuration, if the file lies below its `source`; else by the `__init__.py` files around, and by the package's own imports.
    """
    place = Path(os.path.abspath(path))
    known = _configured(place, configuration) if configuration else None
    if known is not None:
        return known
    start = place.parent  # becomes the parent of the outermost package around the file
    while (start / "__init__.py").is_file() and start.parent != start:
        start = start.parent
    return _name(place, _namespace(place, start) or start)


def _name(place: Path, start: Path) -> Named:
    """Return the dotted name of a file for imports from `start`, and `start`; `__init__.py` has the name of its directory."""
    parts = place.relative_to(start).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts), start


def _configured(place: Path, configuration: Configuration) -> Named | None:
    """Return the name of a file below the configuration's `source`, as its `package` gives it; None for other files or without `package`.

    `source = "src/my/ops"`, `package = "my.ops"`: src/my/ops/norm.py -> my.ops.norm, imported from src.
    """
    source = Path(os.path.abspath(Path(configuration.root, configuration.source)))
    if configuration.package is None or not place.is_relative_to(source):
        return None
    below, start = _name(place, source)
    for _ in configuration.package.split("."):  # each word is a directory above
        start = start.parent
    # `below` is "" for the `__init__.py` of the source directory.
    return f"{configuration.package}.{below}".rstrip("."), start


def _namespace(place: Path, start: Path) -> Path | None:
    """Return the directory imports start from, for packages without `__init__.py` (PEP 420); None if no import of the code tells.

    `start` is the parent of the outermost directory with `__init__.py`. In /a/lab/ops/norm.py, without any, it is /a/lab/ops; a line
    `from lab.ops import scale` there, or in a file beside it, tells that imports start from /a.
    """
    above = list(_above(start))
    # Nothing above `start` can be a root: no file need be read.
    for file in (place, *_others(place, start)) if above else ():
        dots, imported = _imports(file)
        for root in (start, *above):
            if any(_is_of(start, root, names) for names in imported):
                return root
        # `from ... import a` with more dots than directories below `start`: each further dot is one directory above it.
        beyond = dots - len(file.relative_to(start).parent.parts)
        if beyond > 0:
            return above[min(beyond, len(above)) - 1]  # as far as there is one
    return None


def _above(start: Path) -> Iterator[Path]:
    """Yield the directories above `start` that imports may begin from, nearest first, up to one with signs of a project's root (`MARKS`).

    Each directory passed on the way becomes a word of the dotted name, so the walk also ends at a name that is no identifier.
    """
    while is_identifier(start.name) and start.parent != start:
        if any((start / mark).exists() for mark in MARKS):
            return
        start = start.parent
        yield start


def _others(place: Path, start: Path) -> list[Path]:
    """Return up to `READ` other files of the package of a file, `place`, to search their imports: first its neighbours in the directory.

    `start` is the directory above the outermost package; without a package only the neighbours are returned.
    """
    beside = sorted(place.parent.glob("*.py"))
    rest = sorted(start.rglob("*.py")) if place.parent != start else []
    listed = dict.fromkeys((*beside, *rest))
    return [path for path in listed if path != place and path.is_file()][:READ]


def _imports(path: Path) -> tuple[int, frozenset[tuple[str, ...]]]:
    """Return the most dots of a file's relative imports, and its absolute ones, `from a.b import c` as ("a", "b", "c").

    An unreadable file has none, (0, {}): other files of the package may tell.
    """
    try:
        tree = ast.parse(read_source(str(path)))
    except (ScaffoldError, SyntaxError, ValueError, RecursionError, MemoryError):
        return 0, frozenset()
    dots, found = 0, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # An absolute import has the level 0.
            dots = max(dots, node.level)
            # A relative import tells only by its dots.
            module = (node.module or "").split(".") if not node.level else []
            found |= {(*module, alias.name) for alias in node.names if module}
    return dots, frozenset(found)


def _is_of(start: Path, root: Path, names: tuple[str, ...]) -> bool:
    """Return whether an import names a module of the user's package if imports begin at `root`: if so, this `root` is the right one.

    `start` is as in `_namespace`, `root` is `start` or above it, `names` are the import's words. With start /a/lab/ops, `from lab.ops import
    norm` does so from the root /a, `import norm` from the root `start`.
    """
    if root == start:
        # `import types` beside a types.py means Python's own.
        is_own = names[0] not in sys.stdlib_module_names
        return is_own and _is_module(start / names[0])
    way = start.relative_to(root).parts
    # One word, `import lab`, tells too little: any library may have this name.
    within = names[: len(way)] == way[: len(names)] and len(names) > 1
    return within and _is_module(root.joinpath(*names[:2]))


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or path.is_dir()
