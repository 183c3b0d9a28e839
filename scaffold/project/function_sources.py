"""A function of this process as text: what `@file.py:function` would name.

In: a function, or the text of a forward as it is. Out: a `ForwardText`: what the key `forward` says, what the op is called, and
texts of files that there are not. Invariant: the function is read, never called. What stands in a file is read there; of one of a
notebook's cells, or inside of another function, the text is its own source, with the constants, functions and imports that it
reads.
"""

import ast
import inspect
import linecache
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.formula.definitions import names_read

PLACE = Location("forward")
Defined = FunctionType | type
SIMPLE = (bool, int, float, str, type(None))


class ForwardText(NamedTuple):
    """What the key `forward` says, and the files that it names which are none, by absolute path."""

    text: str
    name: str
    files: Mapping[str, str] = MappingProxyType({})


def forward_of(forward: object) -> ForwardText:
    """The forward of a function, or the one that is text already."""
    if isinstance(forward, str):
        return _of_text(forward)
    found = _plain(forward)
    name = found.__name__
    path = _file_of(found)
    if path is not None:
        return ForwardText(f"@{path}:{name}", name)
    return _beside(name, _text(found))


def _of_text(text: str) -> ForwardText:
    """Of text that defines functions the last one is the forward."""
    if text.lstrip().startswith("@"):
        function = text.strip().rpartition(":")[2]
        return ForwardText(text, function if function.isidentifier() else "derived")
    plain = textwrap.dedent(text).strip("\n")
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError):  # the derivation says where
        body = []
    names = [item.name for item in body if isinstance(item, ast.FunctionDef)]
    if not names:
        return ForwardText(text, "derived")
    return _beside(names[-1], plain)


def _beside(name: str, text: str) -> ForwardText:
    """A function of a text that is no file, though it has a name as if it were one."""
    path = f"<{name}>.py"
    files = {os.path.abspath(path): text}
    return ForwardText(f"@{path}:{name}", name, files)


def _plain(value: object) -> Defined:
    """The value, if it is a function, or a class with a forward, that Python code defines under a name."""
    if isinstance(value, type) and isinstance(
        value.__dict__.get("forward"), FunctionType
    ):
        return value
    if isinstance(value, MethodType):
        hint = "write a function of the tensors and numbers that it reads"
        raise ScaffoldError(f"'{value.__name__}' is a method", PLACE, hint)
    if not isinstance(value, FunctionType):
        shown = getattr(value, "__name__", type(value).__name__)
        hint = f"give text: scaffold.derive('torch.{shown}(x)')"
        if not callable(value) or isinstance(value, type) or not shown.isidentifier():
            hint = "give a function, or text: scaffold.derive('x * torch.sigmoid(x)')"
        raise ScaffoldError(
            f"'{shown}' is no function that Python code defines", PLACE, hint
        )
    if value.__name__ == "<lambda>":
        hint = f"give its text: scaffold.derive({_of_lambda(value)!r})"
        raise ScaffoldError("a lambda has no name", PLACE, hint)
    return value


def _of_lambda(function: FunctionType) -> str:
    """What a lambda returns, as text, where its line holds no other one."""
    try:
        line = textwrap.dedent(inspect.getsource(function)).strip()
        found = [
            node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Lambda)
        ]
    except (OSError, TypeError, SyntaxError):
        found = []
    return ast.unparse(found[0].body) if len(found) == 1 else "x * torch.sigmoid(x)"


def _file_of(function: Defined) -> str | None:
    """The file that a function stands in, as it is best read from here; None for one of a cell or inside of another."""
    path = _code(function).co_filename
    if function.__qualname__ != function.__name__ or not path.endswith(".py"):
        return None
    if not os.path.isfile(path):
        return None
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near


# --- Of a function that stands in no file: a text with all that it reads.


def _text(function: Defined) -> str:
    """A file that holds the function, and what it reads of its surroundings."""
    lines: dict[str, tuple[object, str]] = {}
    waiting: list[Defined] = [function]
    while waiting:
        one = waiting.pop()
        source = _source(one)
        lines[one.__name__] = (one, source)
        for name, value in _surroundings(one, source):
            if name in lines:
                if lines[name][0] is not value:
                    message = f"'{name}' is one thing here and another there"
                    raise ScaffoldError(message, PLACE, "give one of them another name")
            elif isinstance(value, FunctionType) and _stands_beside(value, function):
                _check_alias(name, value)
                waiting.append(value)
            else:
                lines[name] = (value, _line(name, value, one.__name__))
    imports = [
        text for _, text in lines.values() if text.startswith(("import", "from"))
    ]
    others = [text for _, text in lines.values() if text not in imports]
    return "\n".join([*imports, *reversed(others)]) + "\n"


def _source(function: Defined) -> str:
    try:
        if isinstance(function, type):
            return _of_class(function)
        return textwrap.dedent(inspect.getsource(function)).rstrip("\n")
    except (OSError, TypeError, SyntaxError):
        message = f"the source of '{function.__name__}' cannot be read"
        hint = "define it in a file or a notebook, or give text: scaffold.derive('x * torch.sigmoid(x)')"
        raise ScaffoldError(message, PLACE, hint) from None


def _of_class(found: type) -> str:
    """The text of a class, in that of its forward: of classes in cells Python does not tell where they stand."""
    lines = linecache.getlines(_code(found).co_filename)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.name == found.__name__:
            own = lines[node.lineno - 1 : node.end_lineno]
            return textwrap.dedent("".join(own)).rstrip("\n")
    raise OSError


def _code(function: Defined) -> CodeType:
    found = vars(function)["forward"] if isinstance(function, type) else function
    code: CodeType = found.__code__
    return code


def _surroundings(defined: Defined, source: str) -> Iterator[tuple[str, object]]:
    """The names that a function, or each method of a class, reads and does not bind, with what they stand for."""
    node, *_ = ast.parse(source).body
    if isinstance(defined, FunctionType) and isinstance(node, ast.FunctionDef):
        yield from _read(defined, node)
    if isinstance(defined, type) and isinstance(node, ast.ClassDef):
        for item in node.body:
            method = getattr(item, "name", "")
            if isinstance(item, ast.FunctionDef) and method != "__init__":
                found = vars(defined)[method]
                if isinstance(found, FunctionType):
                    yield from _read(found, item)


def _read(
    function: FunctionType, node: ast.FunctionDef
) -> Iterator[tuple[str, object]]:
    """The names of the surroundings that one function reads; of a name that nobody knows the derivation tells."""
    own = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    for name in dict.fromkeys(names_read(node)):
        if name in cells:
            if name != "__class__":
                yield name, cells[name].cell_contents
        elif name in function.__globals__ and name not in own:
            yield name, function.__globals__[name]


def _stands_beside(value: FunctionType, function: Defined) -> bool:
    """Whether a function is of the same module or cell, or of none that can be imported."""
    return value.__module__ in (function.__module__, "__main__")


def _check_alias(name: str, value: FunctionType) -> None:
    if value.__name__ != name:
        message = f"'{name}' is a function called '{value.__name__}'"
        raise ScaffoldError(message, PLACE, f"call it '{value.__name__}'")


def _line(name: str, value: Any, reader: str) -> str:
    """The line of a file that binds a name to a value."""
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if _is_simple(value):
        return f"{name} = {value!r}"
    torch = sys.modules.get("torch")
    for module in (torch, getattr(getattr(torch, "nn", None), "functional", None)):
        if module is not None and getattr(module, name, None) is value:
            return f"from {module.__name__} import {name}"
    if torch is not None and isinstance(value, torch.dtype):
        return f"{name} = {value}"
    home = getattr(value, "__module__", None)
    if isinstance(value, Callable) and home not in (None, "__main__"):  # type: ignore[arg-type]
        own = getattr(value, "__name__", name)
        return f"from {home} import {own}" + (f" as {name}" if own != name else "")
    message = f"'{reader}' reads '{name}', a {type(value).__name__}"
    raise ScaffoldError(
        message, PLACE, f"make it a parameter: def {reader}(..., {name})"
    )


def _is_simple(value: object) -> bool:
    """Whether a value is what a constant of a file may be."""
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return type(value) in SIMPLE
