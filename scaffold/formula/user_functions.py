"""The functions of a user's file, as formula text, and the comments in them.

In: the text of a file and the name of a function. Out: its `FunctionText`, which says what the file it stands in imports
for it; of a method, the function that the user would write in its place; comments by the statement that they belong to.
Invariant: files are read as syntax; nothing is imported or run. Of `self` only attributes become parameters; what a method
calls is named, since nothing says what that computes.
"""

import ast
import io
import textwrap
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.formula.definitions import (
    Binding,
    Definitions,
    Meanings,
    definitions_of,
    effective_decorator,
    imported,
    is_known,
    names_read,
    parameters,
    reachable,
    without_docstring,
)
from scaffold.formula.module_forward import (
    ModuleForward,
    module_forward,
    modules_named,
)
from scaffold.formula.numpy_numbers import with_math
from scaffold.formula.other_files import OtherFiles, ReadFile
from scaffold.formula.substitution import names_in
from scaffold.formula.text import (
    WELL_KNOWN,
    Origin,
    Refusal,
    Text,
    parse_source,
    place_in,
    with_plain_newlines,
)

OWN = ("self", "cls", "ctx")  # first parameters that hold what is no argument


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
    elsewhere: frozenset[str] = frozenset(),
    read: ReadFile | None = None,
) -> FunctionText:
    """The function of a file that a reference `@path:function` names.

    Without a name it is the only function of the file, the one called like its `role` (forward, backward), or the only
    one that no other calls; a file without functions is one body. Functions that come from `elsewhere` stay calls; those
    of files of the same package are read by `read`.
    """
    text = with_plain_newlines(Text(source, Location(path)))
    module = parse_source(text)
    if role != "samples":  # which stand in a test as they are written
        module = with_math(module)
    functions = {
        item.name: item for item in module.body if isinstance(item, ast.FunctionDef)
    }
    definitions = definitions_of(module)
    layer = None
    if role == "forward" and (function or not functions) and function not in functions:
        layer = _of_module(module, function, text)
    if layer is not None:
        chosen, definitions = layer.function, layer.beside(definitions)
    elif function is None and not functions:
        _refuse_method(role, role, module, text)
        return _whole_file(module, definitions, text)
    else:
        chosen = _choose(functions, function, role, module, text)
    found = _parameters(chosen, definitions.imports, text)
    lines = text.value.split("\n")
    names = _names_needed(chosen, role, definitions.without(elsewhere))
    origin = Origin(text.value, module, definitions, chosen.name)
    if read is not None and role != "samples":
        wanted = names - elsewhere
        origin = _with_other_files(origin, text, wanted, read)
        names -= origin.definitions.functions.keys() | origin.definitions.constants
    return FunctionText(
        _body_of(chosen, lines, text)._replace(origin=origin),
        found,
        _imports(origin, names, text),
        "\n".join(lines[chosen.lineno - 1 : chosen.end_lineno]),
    )


def _of_module(
    module: ast.Module, function: str | None, text: Text
) -> ModuleForward | None:
    """The forward of an nn.Module that a reference names, if it is one."""
    named = modules_named(module, function)
    if len(named) > 1:
        hint = f"name one of them: '@{text.location.source}:{named[0].name}'"
        message = "the file holds several classes with a forward"
        raise ScaffoldError(message, place_in(text, named[1]), hint)
    try:
        return module_forward(named[0]) if named else None
    except Refusal as refusal:
        raise refusal.within(text) from None


def _with_other_files(
    origin: Origin, text: Text, names: Collection[str], read: ReadFile
) -> Origin:
    """The same with what its names mean in other files of the package."""
    others = OtherFiles(text, origin.module, read)
    meanings = others.meanings(names)
    if not meanings:
        return origin
    own, found = origin.definitions, meanings.items()
    functions = {name: item.function for name, item in found if item.function}
    constants = {name: item.constant for name, item in found if item.constant}
    definitions = own._replace(
        functions={**own.functions, **others.functions, **functions},
        constants={**own.constants, **constants},
    )
    source, files = others.text.value, others.text.files
    return origin._replace(source=source, definitions=definitions, files=files)


def _body_of(function: ast.FunctionDef, lines: Sequence[str], text: Text) -> Text:
    """The statements of a function, as they stand."""
    body = without_docstring(function.body)
    if not body:
        message = f"function '{function.name}' has no body"
        raise ScaffoldError(message, place_in(text, function))
    first, last = lines_of(body, lines, function.lineno)
    start = body[0].lineno - 1  # of the first statement: def f(x): return x
    indent = len(lines[start].encode()[: body[0].col_offset].decode())
    found = [_without_indent(line, indent) for line in lines[first:last]]
    found[start - first] = lines[start][indent:]
    place = Location(text.location.source, first + 1, indent + 1)
    return Text("\n".join(found), place, indent)


def _whole_file(
    module: ast.Module, definitions: Definitions, text: Text
) -> FunctionText:
    body = program_of_file(module)
    if not body:
        hint = "write a function into it: def forward(x): return x * 2"
        raise ScaffoldError("the file holds no formula", text.location, hint)
    lines = text.value.split("\n")
    first, last = lines_of(body, lines)
    value = "\n".join(lines[first:last])
    where = Location(text.location.source, first + 1, 1)
    origin = Origin(text.value, module, definitions, None)
    imports = _imports(origin, names_in([module]), text)
    return FunctionText(Text(value, where, 0, origin), (), imports, value)


def program_of_file(module: ast.Module) -> list[ast.stmt]:
    """The statements of a file without functions, imports and docstring apart."""
    skipped = (ast.Import, ast.ImportFrom)
    body = [item for item in module.body if not isinstance(item, skipped)]
    return without_docstring(body)


def _without_indent(line: str, indent: int) -> str:
    """A line of a body; a comment, or the middle of a statement, may stand further left."""
    own = len(line) - len(line.lstrip())
    return line[min(indent, own) :] if line.strip() else ""


def _choose(
    functions: Mapping[str, ast.FunctionDef],
    name: str | None,
    role: str,
    module: ast.Module,
    text: Text,
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
        path = text.location.source
        hint = f"name one of them: '@{path}:{next(iter(functions))}'"
        raise ScaffoldError("the file holds several functions", text.location, hint)
    _refuse_method(wanted, role, module, text)
    layers = [item.name for item in modules_named(module, None)]
    known = [*functions, *(layers if role == "forward" else ())]
    listed = ", ".join(known) or "none"
    hint = did_you_mean(wanted, known) or f"the file's functions: {listed}"
    message = f"no function '{wanted}' in the file"
    raise ScaffoldError(message, text.location, hint)


def _refuse_method(wanted: str, role: str, module: ast.Module, text: Text) -> None:
    found = method_called(wanted, role, module)
    if found is not None:
        owner, method = found
        message = f"'{method.name}' is a method of '{owner}'"
        raise ScaffoldError(message, place_in(text, method), as_function(method))


def _parameters(
    function: ast.FunctionDef, imports: Meanings, text: Text
) -> tuple[str, ...]:
    name, arguments = function.name, function.args
    place = place_in(text, function)
    try:
        check_decorators(function, name, imports)
    except Refusal as refusal:
        raise refusal.within(text) from None
    if arguments.kwarg:
        message = f"function '{name}' takes '**{arguments.kwarg.arg}'"
        raise ScaffoldError(message, place, "give each of its parameters a name")
    named = [item.arg for item in parameters(arguments)]
    if named[:1] in (["self"], ["cls"]):
        message = f"function '{name}' is a method: it takes '{named[0]}'"
        raise ScaffoldError(message, place, as_function(function))
    return (*named, *([arguments.vararg.arg] if arguments.vararg else []))


def _names_needed(
    function: ast.FunctionDef, role: str, definitions: Definitions
) -> set[str]:
    """The names of the file that a function and those that it calls read, but for those that every formula has.

    A function that makes samples stands in a test as it is written, so it needs all that it names.
    """
    if role == "samples":
        return names_in([function])
    names = reachable(names_read(function), definitions)
    return {name for name in names if not is_known(definitions.imports.get(name, ""))}


def _imports(origin: Origin, names: Collection[str], text: Text) -> tuple[Binding, ...]:
    """The file's imports of some names."""
    found: dict[str, Binding] = {}
    for item in imported(origin.module):
        if item.name not in names:
            continue
        if isinstance(item.statement, ast.ImportFrom) and item.statement.level:
            hint = "write the import with the full name of the package"
            message = "a relative import means nothing in the op's file"
            raise ScaffoldError(message, place_in(text, item.statement), hint)
        if item.name not in WELL_KNOWN:
            found[item.name] = item.binding
    return tuple(found.values())


def check_decorators(function: ast.FunctionDef, shown: str, imports: Meanings) -> None:
    """Refuse a function with a decorator that may change values."""
    decorator = effective_decorator(function, imports)
    if decorator is not None:
        message = f"a decorator may change what '{shown}' computes"
        hint = "take it off, or name a function without it"
        raise Refusal(decorator, message, hint)


def method_called(
    wanted: str, role: str, module: ast.Module
) -> tuple[str, ast.FunctionDef] | None:
    """The class and the method that `forward`, `Norm` or `Norm.forward` means in a file."""
    for owner, method in _methods(module):
        if wanted in (method.name, f"{owner}.{method.name}"):
            return owner, method
        if wanted == owner and method.name == role:
            return owner, method
    return None


def _methods(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for owner in module.body:
        if isinstance(owner, ast.ClassDef):
            for item in owner.body:
                if isinstance(item, ast.FunctionDef):
                    yield owner.name, item


def as_function(method: ast.FunctionDef) -> str:
    """What to write in place of a method, as a hint."""
    names = [item.arg for item in parameters(method.args)]
    own = names[0] if names and names[0] in OWN else ""
    given = names[1:] if own else names
    if own == "ctx":  # of an autograd.Function
        listed = ", ".join(given)
        return f"write a function without ctx: def {method.name}({listed})"
    read = sorted(_reads(method, own), key=lambda node: (node.lineno, node.col_offset))
    called = {id(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)}
    values = [node.attr for node in read if id(node) not in called]
    listed = ", ".join(dict.fromkeys([*given, *values]))
    done = dict.fromkeys(f"{own}.{node.attr}" for node in read if id(node) in called)
    out = f", and write out {' and '.join(done)}" if done else ""
    return f"write a function of what it reads{out}: def {method.name}({listed})"


def _reads(method: ast.FunctionDef, own: str) -> Iterator[ast.Attribute]:
    """The attributes of `self` in a method."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(ast.Name(name)) if name == own:
                yield node


def comments_inside(
    source: str, bodies: Iterable[Sequence[ast.stmt]]
) -> dict[int, tuple[str, ...]]:
    """The comments of several bodies of a text by line, each with what stands right above its first statement."""
    lines = source.split("\n")
    found: dict[int, tuple[str, ...]] = {}
    for body in bodies if "#" in source else ():
        first, last = lines_of(body, lines)
        blank = "\n" * first
        found |= comments_above(
            blank + textwrap.dedent("\n".join(lines[first:last])), body
        )
    return found


def lines_of(
    body: Sequence[ast.stmt], lines: Sequence[str], least: int = 0
) -> tuple[int, int]:
    """Where a body begins and ends, counted from 0, with the comments right above it that stand below `least`."""
    first = body[0].lineno - 1
    while first > least and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first, body[-1].end_lineno or body[-1].lineno


def comments_above(source: str, body: Sequence[ast.stmt]) -> dict[int, tuple[str, ...]]:
    """Comments by the line (from 1) of the statement that they stand above or end."""
    if "#" not in source:
        return {}
    spans = [
        (item.lineno, item.end_lineno or item.lineno) for item in _statements(body)
    ]
    found: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = _owner(token.start[0], spans)
            if line is not None:
                found.setdefault(line, []).append(token.string.lstrip("#").strip())
    return {line: tuple(texts) for line, texts in found.items()}


def _owner(line: int, spans: list[tuple[int, int]]) -> int | None:
    """The innermost statement around the comment's line, else the next one below."""
    around = [first for first, last in spans if first <= line <= last]
    below = [first for first, _ in spans if first > line]
    if not around:
        return min(below, default=None)
    inner = max(around)
    inside = below and _is_compound(inner, spans) and min(below) <= _end(inner, spans)
    return min(below) if inside and line > inner else inner


def _end(first: int, spans: list[tuple[int, int]]) -> int:
    return max(last for start, last in spans if start == first)


def _is_compound(first: int, spans: list[tuple[int, int]]) -> bool:
    """Whether other statements lie inside the one that starts at `first`."""
    return any(first < start <= _end(first, spans) for start, _ in spans)


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [
        node for item in body for node in ast.walk(item) if isinstance(node, ast.stmt)
    ]
