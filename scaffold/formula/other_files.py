"""Functions and constants that a file of the user's imports from files beside it: `from .helpers import gate`.

In: the syntax of a file, the names that its formula needs, a way to read files. Out: what these names stand for, and the text of all files
that were read, one below the other. Invariant: files are read as syntax; nothing is imported or run. A file is found as Python
would find it, in the same package, and never above it; positions in it are those of its own lines.

What is taken from another file means there what it means here: its constants are written out, and the functions that it calls
come with it, under names that no user can write (`ops/helpers.py.gate`).
"""

import ast
import copy
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.formula.definitions import (
    Defined,
    Definitions,
    Imported,
    NameResolver,
    definitions_of,
    imported,
)
from scaffold.formula.numpy_numbers import with_math
from scaffold.formula.text import Text, parse_source, place_in, with_plain_newlines

ReadFile = Callable[[str], str]
PACKAGE = "__init__.py"


class Meaning(NamedTuple):
    """What a name of another file stands for: one of the two."""

    function: Defined | None = None
    constant: ast.expr | None = None


class _File(NamedTuple):
    path: PurePosixPath
    definitions: Definitions
    relative: dict[str, Imported]


def is_relative(item: Imported) -> bool:
    """Whether an import is from a file of the same package."""
    return isinstance(item.statement, ast.ImportFrom) and item.statement.level > 0


class OtherFiles:
    """Reads the files that a file imports from, each once."""

    def __init__(self, text: Text, module: ast.Module, read: ReadFile) -> None:
        self.text, self.read = text, read
        self.functions: dict[str, Defined] = {}  # those that others call, by their keys
        path = PurePosixPath(text.location.source)
        self.files = {path: _file(path, module)}
        self.main = path

    def meanings(self, names: Collection[str]) -> dict[str, Meaning]:
        """What the relative imports of the first file mean by these names."""
        file = self.files[self.main]
        return {
            name: self._meaning(file, item)
            for name, item in file.relative.items()
            if name in names
        }

    def _meaning(
        self, file: _File, item: Imported, through: tuple[Imported, ...] = ()
    ) -> Meaning:
        """What an import stands for, through those of the files between."""
        statement = item.statement
        assert isinstance(statement, ast.ImportFrom)
        if item in through:
            message = f"'{item.name}' is imported in a circle"
            raise ScaffoldError(message, place_in(self.text, statement))
        other = self._loaded(self._path(file.path, statement), statement)
        name = item.binding[1] or ""
        if name in other.relative:
            return self._meaning(other, other.relative[name], (*through, item))
        if name in other.definitions.functions:
            return Meaning(function=self._function(other, name))
        if name in other.definitions.constants:
            constant = copy.deepcopy(other.definitions.constants[name])
            return Meaning(constant=_Elsewhere(self, other).visit(constant))
        known = {*other.definitions.functions, *other.definitions.constants}
        message = f"'{other.path}' has no function '{name}', and no constant"
        hint = did_you_mean(name, known) or "a formula can hold no more of a file"
        raise ScaffoldError(message, place_in(self.text, statement), hint)

    def _function(self, file: _File, name: str) -> Defined:
        """A function in which the names of its file are told apart from those of any other."""
        key = f"{file.path}.{name}"
        if key not in self.functions:
            node = copy.deepcopy(file.definitions.functions[name])
            self.functions[key] = node  # before its body is read: it may call itself
            body = _Elsewhere(self, file).function(name, node).body
            if isinstance(node, ast.FunctionDef):
                node.body = body
            else:
                assert isinstance(body[0], ast.Return) and body[0].value
                node.body = body[0].value
        return self.functions[key]

    def key(self, file: _File, name: str) -> str | ast.expr | None:
        """What stands for a name of a file: the key of a function, a constant; None for any other name."""
        if name in file.definitions.functions:
            self._function(file, name)
            return f"{file.path}.{name}"
        if name not in file.relative:
            return None
        found = self._meaning(file, file.relative[name])
        if found.function is None:
            return found.constant
        return next(
            key for key, node in self.functions.items() if node is found.function
        )

    def _path(self, path: PurePosixPath, statement: ast.ImportFrom) -> PurePosixPath:
        """The file that a relative import is from."""
        folder = path.parent
        for _ in range(statement.level - 1):
            if not folder.name or not self._is_there(folder / PACKAGE):
                message = f"the import leaves the package that '{path}' stands in"
                raise ScaffoldError(message, place_in(self.text, statement))
            folder = folder.parent
        for part in (statement.module or "").split("."):
            folder = folder / part
        found = folder.with_name(f"{folder.name}.py") if statement.module else folder
        if statement.module and self._is_there(found):
            return found
        if self._is_there(folder / PACKAGE):
            return folder / PACKAGE
        message = (
            f"there is no file '{found if statement.module else folder / PACKAGE}'"
        )
        raise ScaffoldError(message, place_in(self.text, statement))

    def _is_there(self, path: PurePosixPath) -> bool:
        if path in self.files:
            return True
        try:
            self.read(str(path))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            return True  # which is told where it is read
        return True

    def _loaded(self, path: PurePosixPath, statement: ast.ImportFrom) -> _File:
        """A file, with its text below those that were read before."""
        if path in self.files:
            return self.files[path]
        try:
            source = self.read(str(path)).removeprefix("\ufeff")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            message = f"cannot read '{path}': {reason}"
            raise ScaffoldError(message, place_in(self.text, statement)) from None
        text = with_plain_newlines(Text(source, Location(str(path))))
        module = with_math(parse_source(text))
        above = self.text.value.count("\n") + 1
        ast.increment_lineno(module, above)
        self.text = self.text._replace(
            value=f"{self.text.value}\n{text.value}",
            files=(*self.text.files, (above, str(path))),
        )
        self.files[path] = _file(path, module)
        return self.files[path]


def _file(path: PurePosixPath, module: ast.Module) -> _File:
    definitions = definitions_of(module)
    own = {*definitions.functions, *definitions.constants, *definitions.others}
    relative = {
        item.name: item for item in _relative_imports(module) if item.name not in own
    }
    return _File(path, definitions, relative)


def _relative_imports(module: ast.Module) -> Iterator[Imported]:
    return (item for item in imported(module) if is_relative(item))


class _Elsewhere(NameResolver):
    """Tells the names of a function of another file apart; its locals keep their names."""

    def __init__(self, files: OtherFiles, file: _File) -> None:
        super().__init__(file.definitions, {}, "")
        self.files, self.file = files, file

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = None if node.id in self.locals else self.files.key(self.file, node.id)
        if isinstance(found, ast.expr):
            return copy.deepcopy(found)
        if found is None:
            return super().visit_Name(node)
        node.id = found
        return node
