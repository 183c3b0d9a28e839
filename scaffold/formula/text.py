"""Formula text with its place, and the functions of a user's file as such text.

In: what stands after `--forward`, in a TOML value or in `@file.py:function`. Out: `Text` that maps any of its
positions back to where the user wrote it. Invariant: files are read as syntax; nothing is imported or run.
"""

import ast
import textwrap
import warnings
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean

DEEPEST = 120  # levels of syntax: far from Python's own limit on recursion
WELL_KNOWN = {"torch": "torch", "F": "torch.nn.functional", "math": "math"}


class Text(NamedTuple):
    """Source text and where it begins; `indent` columns were cut from every line after the first."""

    value: str
    location: Location
    indent: int = 0

    def place(self, line: int, column: int) -> Location:
        """The place of a position, line and column counted from 0."""
        return self.location.shifted(line, column + (self.indent if line else 0))


class FunctionText(NamedTuple):
    """A function of the user's: its body, its parameters and the file's imports that it uses."""

    text: Text
    parameters: tuple[str, ...]
    imports: tuple[tuple[str, str | None, str | None], ...]  # module, name, alias
    source: str  # the whole function, as written


def syntax_error(text: Text, error: SyntaxError) -> ScaffoldError:
    """Python's own complaint, at its place in the user's text."""
    place = text.place((error.lineno or 1) - 1, max((error.offset or 1) - 1, 0))
    return ScaffoldError(f"not valid Python: {error.msg}", place)


def parse_source(text: Text) -> ast.Module:
    """Parse with `ast`, or say where the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            module = ast.parse(text.value)
    except SyntaxError as error:
        raise syntax_error(text, error) from None
    except (RecursionError, MemoryError):
        raise _too_deep(text) from None
    except ValueError as error:
        raise ScaffoldError(f"not valid Python: {error}", text.location) from None
    if _depth(module) > DEEPEST:
        raise _too_deep(text)
    return module


def _depth(tree: ast.AST) -> int:
    """How deep the syntax is nested; a sum of a hundred terms is a hundred deep."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
    return deepest


def _too_deep(text: Text) -> ScaffoldError:
    hint = "give parts of it names: part = ..."
    return ScaffoldError("the formula is nested too deeply", text.location, hint)


def with_plain_newlines(text: Text) -> Text:
    """The text with the newlines that Python counts, and no others."""
    value = text.value.replace("\r\n", "\n").replace("\r", "\n")
    return text if value == text.value else text._replace(value=value)


def dedented(text: Text) -> Text:
    """Cut the common indentation of a multi-line value, and the blank lines above it."""
    lines = text.value.split("\n")
    blank = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if not blank and not lines[0].startswith((" ", "\t")):
        return text
    kept = lines[blank:]
    indents = [len(line) - len(line.lstrip()) for line in kept if line.strip()]
    cut = min(indents, default=0)
    value = "\n".join(line[cut:] for line in kept)
    return text._replace(
        value=value, location=text.place(blank, cut), indent=text.indent + cut
    )


def function_in(
    source: str, path: str, function: str | None, role: str
) -> FunctionText:
    """The function of a file that a reference `@path:function` names.

    Without a name it is the only function of the file, or the one called like its `role` (forward, backward);
    a file without functions is one body.
    """
    text = with_plain_newlines(Text(source, Location(path)))
    source = text.value
    module = parse_source(text)
    functions = {
        item.name: item for item in module.body if isinstance(item, ast.FunctionDef)
    }
    imports = _imports(module, text)
    if function is None and not functions:
        return _whole_file(module, source, path, imports)
    chosen = _choose(functions, function, role, path)
    parameters = _parameters(chosen, text)
    lines = source.split("\n")
    body = _without_docstring(chosen, text)
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    while first > chosen.lineno and lines[first - 1].lstrip().startswith("#"):
        first -= 1  # comments above the first statement belong to it
    block, indent = _dedented(lines[first:last])
    if body[0].lineno == chosen.lineno:  # def f(x): return x
        indent = len(lines[first].encode()[: body[0].col_offset].decode())
        block = "\n".join([lines[first][indent:], *lines[first + 1 : last]])
    return FunctionText(
        Text(block, Location(path, first + 1, indent + 1), indent),
        parameters,
        _used(imports, chosen),
        "\n".join(lines[chosen.lineno - 1 : chosen.end_lineno]),
    )


def _whole_file(
    module: ast.Module,
    source: str,
    path: str,
    imports: dict[str, tuple[str, str | None, str | None]],
) -> FunctionText:
    skipped = (ast.Import, ast.ImportFrom)
    body = [item for item in module.body if not isinstance(item, skipped)]
    if body and _is_docstring(body[0]):
        body = body[1:]
    if not body:
        raise ScaffoldError("the file holds no formula", Location(path))
    lines = source.split("\n")
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    value = "\n".join(lines[first:last])
    text = Text(value, Location(path, first + 1, 1))
    return FunctionText(text, (), _used(imports, module), value)


def _dedented(lines: list[str]) -> tuple[str, int]:
    block = "\n".join(lines)
    dedented = textwrap.dedent(block)
    return dedented, len(lines[0]) - len(dedented.split("\n", 1)[0])


def _choose(
    functions: dict[str, ast.FunctionDef], name: str | None, role: str, path: str
) -> ast.FunctionDef:
    if name is None and len(functions) == 1:
        return next(iter(functions.values()))
    wanted = role if name is None else name
    if wanted in functions:
        return functions[wanted]
    listed = ", ".join(functions) or "none"
    hint = did_you_mean(wanted, functions) or f"the file's functions: {listed}"
    if name is None:
        hint = f"name one of them: '@{path}:{next(iter(functions))}'"
        raise ScaffoldError("the file holds several functions", Location(path), hint)
    raise ScaffoldError(f"no function '{wanted}' in the file", Location(path), hint)


def _parameters(function: ast.FunctionDef, text: Text) -> tuple[str, ...]:
    arguments = function.args
    if arguments.kwarg or function.decorator_list:
        place = text.place(function.lineno - 1, function.col_offset)
        message = f"function '{function.name}' must be plain: no decorator, no **kwargs"
        raise ScaffoldError(message, place)
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [arguments.vararg] if arguments.vararg else []
    return tuple(item.arg for item in [*named, *starred])


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _without_docstring(function: ast.FunctionDef, text: Text) -> list[ast.stmt]:
    body = function.body[1:] if _is_docstring(function.body[0]) else function.body
    if not body:
        place = text.place(function.lineno - 1, function.col_offset)
        raise ScaffoldError(f"function '{function.name}' has no body", place)
    return body


def _imports(
    module: ast.Module, text: Text
) -> dict[str, tuple[str, str | None, str | None]]:
    """What the file's own imports bind: name -> (module, name, alias)."""
    bound: dict[str, tuple[str, str | None, str | None]] = {}
    for item in module.body:
        if isinstance(item, ast.Import):
            for alias in item.names:
                name = alias.asname or alias.name.split(".")[0]
                bound[name] = (alias.name, None, alias.asname)
        elif isinstance(item, ast.ImportFrom):
            if item.level:
                place = text.place(item.lineno - 1, item.col_offset)
                hint = "write the import with the full name of the package"
                raise ScaffoldError(
                    "a relative import means nothing in the op's file", place, hint
                )
            for alias in item.names:
                bound[alias.asname or alias.name] = (
                    item.module or "",
                    alias.name,
                    alias.asname,
                )
    return bound


def _used(
    imports: dict[str, tuple[str, str | None, str | None]], tree: ast.AST
) -> tuple[tuple[str, str | None, str | None], ...]:
    """The file's imports that `tree` reads, but for those that every formula has."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return tuple(
        found
        for name, found in imports.items()
        if name in read and name not in WELL_KNOWN
    )
