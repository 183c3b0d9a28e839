"""The functions of a user's file, as formula text.

In: the text of a file and the name of a function. Out: its `FunctionText`, which says what the file it stands in imports
for it. Invariant: files are read as syntax; nothing is imported or run.
"""

import ast
import textwrap
from collections.abc import Collection, Mapping
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.formula.definitions import (
    definitions_of,
    imported,
    is_docstring,
    is_known,
    names_read,
    parameters,
    reachable,
    telling_decorator,
)
from scaffold.formula.numpy_numbers import with_math
from scaffold.formula.text import (
    WELL_KNOWN,
    Origin,
    Text,
    parse_source,
    place_in,
    with_plain_newlines,
)

Binding = tuple[str, str | None, str | None]  # module, name, alias


class FunctionText(NamedTuple):
    """A function of the user's: its body, its parameters and the file's imports that it uses."""

    text: Text
    parameters: tuple[str, ...]
    imports: tuple[Binding, ...]
    source: str  # the whole function, as written


def function_in(
    source: str,
    path: str,
    function: str | None,
    role: str,
    imported: frozenset[str] = frozenset(),
) -> FunctionText:
    """The function of a file that a reference `@path:function` names.

    Without a name it is the only function of the file, the one called like its `role` (forward, backward), or the only
    one that no other calls; a file without functions is one body. Functions that are `imported` stay calls.
    """
    text = with_plain_newlines(Text(source, Location(path)))
    module = with_math(parse_source(text))
    functions = {
        item.name: item for item in module.body if isinstance(item, ast.FunctionDef)
    }
    if function is None and not functions:
        return _whole_file(module, text)
    chosen = _choose(functions, function, role, module, path)
    found = _parameters(chosen, module, text)
    lines = text.value.split("\n")
    body = _without_docstring(chosen, text)
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    while first > chosen.lineno and lines[first - 1].lstrip().startswith("#"):
        first -= 1  # comments above the first statement belong to it
    block, indent = _dedented(lines[first:last])
    if body[0].lineno == chosen.lineno:  # def f(x): return x
        indent = len(lines[first].encode()[: body[0].col_offset].decode())
        block = "\n".join([lines[first][indent:], *lines[first + 1 : last]])
    origin = Origin(text.value, chosen.name)
    return FunctionText(
        Text(block, Location(path, first + 1, indent + 1), indent, origin),
        found,
        _imports(module, chosen, role, text, imported),
        "\n".join(lines[chosen.lineno - 1 : chosen.end_lineno]),
    )


def _whole_file(module: ast.Module, text: Text) -> FunctionText:
    body = program_of_file(module)
    if not body:
        raise ScaffoldError("the file holds no formula", text.location)
    lines = text.value.split("\n")
    first, last = body[0].lineno - 1, body[-1].end_lineno or body[-1].lineno
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    value = "\n".join(lines[first:last])
    where = Location(text.location.source, first + 1, 1)
    found = Text(value, where, 0, Origin(text.value, None))
    return FunctionText(found, (), _imports(module, module, "", text), value)


def program_of_file(module: ast.Module) -> list[ast.stmt]:
    """What a file without functions does."""
    skipped = (ast.Import, ast.ImportFrom)
    body = [item for item in module.body if not isinstance(item, skipped)]
    return body[1:] if body and is_docstring(body[0]) else body


def _dedented(lines: list[str]) -> tuple[str, int]:
    block = "\n".join(lines)
    dedented = textwrap.dedent(block)
    return dedented, len(lines[0]) - len(dedented.split("\n", 1)[0])


def _choose(
    functions: Mapping[str, ast.FunctionDef],
    name: str | None,
    role: str,
    module: ast.Module,
    path: str,
) -> ast.FunctionDef:
    if name is None and len(functions) == 1:
        return next(iter(functions.values()))
    wanted = role if name is None else name
    if wanted in functions:
        return functions[wanted]
    if name is None:
        called = {read for item in functions.values() for read in names_read(item)}
        free = [item for item in functions.values() if item.name not in called]
        if len(free) == 1:
            return free[0]
        hint = f"name one of them: '@{path}:{next(iter(functions))}'"
        raise ScaffoldError("the file holds several functions", Location(path), hint)
    message = f"no function '{wanted}' in the file"
    raise ScaffoldError(message, Location(path), _other_hint(wanted, functions, module))


def _other_hint(wanted: str, functions: Collection[str], module: ast.Module) -> str:
    for owner in (item for item in module.body if isinstance(item, ast.ClassDef)):
        for item in owner.body:
            if isinstance(item, ast.FunctionDef) and item.name == wanted:
                return f"it is a method of '{owner.name}': write a function of what it reads"
    listed = ", ".join(functions) or "none"
    return did_you_mean(wanted, functions) or f"the file's functions: {listed}"


def _parameters(
    function: ast.FunctionDef, module: ast.Module, text: Text
) -> tuple[str, ...]:
    decorator = telling_decorator(function, dict(imported(module)))
    name, arguments = function.name, function.args
    place = place_in(text, function)
    if decorator is not None:
        place = place_in(text, decorator)
        message = f"a decorator may change what '{name}' computes"
        hint = "take it off, or name a function without it"
        raise ScaffoldError(message, place, hint)
    if arguments.kwarg:
        message = f"function '{name}' takes '**{arguments.kwarg.arg}'"
        raise ScaffoldError(message, place, "give each of its parameters a name")
    named = [item.arg for item in parameters(arguments)]
    if named[:1] in (["self"], ["cls"]):
        message = f"function '{name}' is a method: it takes '{named[0]}'"
        raise ScaffoldError(message, place, "write a function of what it reads")
    return (*named, *([arguments.vararg.arg] if arguments.vararg else []))


def _without_docstring(function: ast.FunctionDef, text: Text) -> list[ast.stmt]:
    body = function.body[1:] if is_docstring(function.body[0]) else function.body
    if not body:
        message = f"function '{function.name}' has no body"
        raise ScaffoldError(message, place_in(text, function))
    return body


def _imports(
    module: ast.Module,
    chosen: ast.AST,
    role: str,
    text: Text,
    elsewhere: frozenset[str] = frozenset(),
) -> tuple[Binding, ...]:
    """The file's imports that a function and those that it calls read, but for those that every formula has.

    A function that makes samples stands in a test as it is written, so it needs all that it names.
    """
    known = dict(imported(module))
    names = {node.id for node in ast.walk(chosen) if isinstance(node, ast.Name)}
    if isinstance(chosen, ast.FunctionDef) and role != "samples":
        definitions = definitions_of(module).without(elsewhere)
        names = set(reachable(names_read(chosen), definitions))
        names = {name for name in names if not is_known(known.get(name, ""))}
    found: dict[str, Binding] = {}
    for item in module.body:
        if isinstance(item, ast.Import):
            for alias in item.names:
                name = alias.asname or alias.name.split(".")[0]
                found[name] = (alias.name, None, alias.asname)
        elif isinstance(item, ast.ImportFrom):
            for alias in item.names:
                name = alias.asname or alias.name
                if item.level and name in names:
                    hint = "write the import with the full name of the package"
                    message = "a relative import means nothing in the op's file"
                    raise ScaffoldError(message, place_in(text, item), hint)
                found[name] = (item.module or "", alias.name, alias.asname)
    return tuple(
        binding
        for name, binding in found.items()
        if name in names and name not in WELL_KNOWN
    )
