"""The source of a function of this process as text, as `@file.py:function` would name it: `scaffold.derive(function)` begins here.

All later stages read text, of a key or of a file; a function of a notebook cell is in no file, so the text of one is made for it.
In: a function, or the text of a forward. Out: a `ForwardText`: the value of the key `forward`, the op's name, and
texts of virtual files. Invariant: the function is read, never called. A function in a file is read there; for one from a
notebook cell, or nested in another function, the text is its own source, with the constants, functions and imports it
reads.

Words: a *virtual* file is a text under a path that does not exist, given to the reader of formulas in place of a file.
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
SIMPLE = (bool, int, float, str, type(None))  # `repr` of such a value is its code


class ForwardText(NamedTuple):
    """The value of the key `forward`, the op's name, and its virtual files by absolute path."""

    text: str
    name: str
    files: Mapping[str, str] = MappingProxyType({})


def forward_of(forward: object) -> ForwardText:
    """Return a function of this process, or a text, as a value of the key `forward`: "@ops.py:swish", "x * 2".

    A function outside any file gets a virtual one. Raise ScaffoldError for a lambda, a method or anything else without readable source.
    """
    if isinstance(forward, str):
        return _of_given_text(forward)
    function = _readable(forward)
    name = function.__name__
    path = _file_of(function)
    if path is not None:
        return ForwardText(f"@{path}:{name}", name)
    return _in_virtual_file(name, _standalone_text(function))


def _of_given_text(text: str) -> ForwardText:
    """Return a text as a value of `forward`: `@file:name` and a formula as they are, definitions as a virtual file.

    The op is named by the function: of several definitions the last one. A formula's op is called "derived".
    """
    if text.lstrip().startswith("@"):
        function = text.strip().rpartition(":")[2]  # it names the op
        return ForwardText(text, function if function.isidentifier() else "derived")
    plain = textwrap.dedent(text).strip("\n")
    try:
        body = ast.parse(plain).body
    except (SyntaxError, ValueError):  # the derivation reports the error
        body = []
    names = [item.name for item in body if isinstance(item, ast.FunctionDef)]
    if not names:
        return ForwardText(text, "derived")
    return _in_virtual_file(names[-1], plain)


def _in_virtual_file(name: str, text: str) -> ForwardText:
    """Return the value of `forward` for the function `name` of a text, the text as its virtual file: "@<swish>.py:swish"."""
    path = f"<{name}>.py"
    files = {os.path.abspath(path): text}
    return ForwardText(f"@{path}:{name}", name, files)


def _readable(value: object) -> Defined:
    """Return the value if it is a named Python function, or a class with a `forward`; raise ScaffoldError otherwise."""
    if isinstance(value, type) and isinstance(
        value.__dict__.get("forward"), FunctionType
    ):
        return value
    if isinstance(value, MethodType):
        hint = "write a function of the tensors and numbers that it reads"
        raise ScaffoldError(f"'{value.__name__}' is a method", PLACE, hint)
    if not isinstance(value, FunctionType):
        shown = getattr(value, "__name__", type(value).__name__)
        hint = "give a function, or text: scaffold.derive('x * torch.sigmoid(x)')"
        may_be_of_torch = callable(value) and not isinstance(value, type)
        if may_be_of_torch and shown.isidentifier():
            hint = f"give text: scaffold.derive('torch.{shown}(x)')"
        raise ScaffoldError(
            f"'{shown}' is not a function defined in Python", PLACE, hint
        )
    if value.__name__ == "<lambda>":
        hint = f"give its text: scaffold.derive({_of_lambda(value)!r})"
        raise ScaffoldError("a lambda has no name", PLACE, hint)
    return value


def _of_lambda(function: FunctionType) -> str:
    """Return a lambda's body as text, for a hint to give this instead; an example if its line has several lambdas or cannot be read."""
    try:
        line = textwrap.dedent(inspect.getsource(function)).strip()
        found = [
            node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Lambda)
        ]
    except (OSError, TypeError, SyntaxError):
        found = []
    return ast.unparse(found[0].body) if len(found) == 1 else "x * torch.sigmoid(x)"


def _file_of(function: Defined) -> str | None:
    """Return the path of the file with the function at its top level, relative if it is below the working directory.

    None for a function in a notebook's cell or inside another one: no file has it at its top level.
    """
    path = _code(function).co_filename
    # `outer.<locals>.f` or `Class.f` is not at the top level; a cell's path has no .py.
    if function.__qualname__ != function.__name__ or not path.endswith(".py"):
        return None
    if not os.path.isfile(path):
        return None
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near


# --- A function outside any file: a text with everything it reads.


def _standalone_text(function: Defined) -> str:
    """Return the text of a file with the function and all it reads, directly or not: functions beside it, constants, imports.

    Raise ScaffoldError if two functions read different values under one name, as a file has only one.
    """
    lines: dict[str, tuple[object, str]] = {}  # name -> its value and its code
    waiting: list[Defined] = [function]
    while waiting:
        one = waiting.pop()
        source = _source(one)
        lines[one.__name__] = (one, source)
        for name, value in _surroundings(one, source):
            # Two functions may read the same thing; but not two things by one name.
            if name in lines:
                if lines[name][0] is not value:
                    message = f"'{name}' is one thing here and another there"
                    raise ScaffoldError(message, PLACE, "give one of them another name")
            elif isinstance(value, FunctionType) and _stands_beside(value, function):
                _check_alias(name, value)
                waiting.append(value)
                lines[name] = (value, "")  # its text follows
            else:
                lines[name] = (value, _line(name, value, one.__name__))
    imports = [
        text for _, text in lines.values() if text.startswith(("import ", "from "))
    ]
    others = [text for _, text in lines.values() if text not in imports]
    # Reversed: the function itself, found first, comes last, after all it reads.
    return "\n".join([*imports, *reversed(others)]) + "\n"


def _source(function: Defined) -> str:
    """Return the source of a function or class; raise ScaffoldError if Python does not know it."""
    try:
        if isinstance(function, type):
            return _of_class(function)
        return textwrap.dedent(inspect.getsource(function)).rstrip("\n")
    except (OSError, TypeError, SyntaxError):
        message = f"the source of '{function.__name__}' cannot be read"
        hint = "define it in a file or a notebook, or give text: scaffold.derive('x * torch.sigmoid(x)')"
        raise ScaffoldError(message, PLACE, hint) from None


def _of_class(found: type) -> str:
    """Return the source of a class, searched by name in the lines of its forward: Python finds no class defined in a cell.

    Raise OSError, as `inspect.getsource` does, if it is not there.
    """
    lines = linecache.getlines(_code(found).co_filename)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.name == found.__name__:
            own = lines[node.lineno - 1 : node.end_lineno]
            return textwrap.dedent("".join(own)).rstrip("\n")
    raise OSError


def _code(function: Defined) -> CodeType:
    """Return the code object of a function, or of a class's `forward`."""
    found = vars(function)["forward"] if isinstance(function, type) else function
    code: CodeType = found.__code__
    return code


def _surroundings(defined: Defined, source: str) -> Iterator[tuple[str, object]]:
    """Yield each outer name the definition reads, with its value: of a function, or of a class's methods other than `__init__`."""
    node, *_ = ast.parse(source).body  # the source is one definition
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
    """Yield each outer name a function reads, with its value: of an enclosing function or the module.

    Names without a value, misspelt or built in, are left to the reader of the formula. `node` is the function's definition.
    """
    own = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
    cells = dict(
        zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    for name in dict.fromkeys(names_read(node)):
        if name in cells:
            if name != "__class__":  # the cell of `super()`, in a method
                yield name, cells[name].cell_contents
        elif name in function.__globals__ and name not in own:
            yield name, function.__globals__[name]


def _stands_beside(value: FunctionType, function: Defined) -> bool:
    """Return whether the function `value` is of the same module as `function`, or of `__main__`: it is copied, any other is imported."""
    return value.__module__ in (function.__module__, "__main__")


def _check_alias(name: str, value: FunctionType) -> None:
    """Raise ScaffoldError if a function is read by another name than its own: its copied source defines its own name alone."""
    if value.__name__ != name:
        message = f"'{name}' is a function called '{value.__name__}'"
        raise ScaffoldError(message, PLACE, f"call it '{value.__name__}'")


def _line(name: str, value: Any, reader: str) -> str:
    """Return a line of a file giving `name` this value, an import or a constant: "import torch as th", "EPS = 1e-05".

    Raise ScaffoldError for another value, such as a tensor; `reader` is the function reading it, for the message.
    """
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    if _is_simple(value):
        return f"{name} = {value!r}"
    torch = sys.modules.get("torch")  # without it there is no value of torch's
    # The public names first: `F.gelu` says of itself that it is of torch._C._nn.
    for module in (torch, getattr(getattr(torch, "nn", None), "functional", None)):
        if module is not None and getattr(module, name, None) is value:
            return f"from {module.__name__} import {name}"
    if torch is not None and isinstance(value, torch.dtype):
        return f"{name} = {value}"
    home = getattr(value, "__module__", None)  # nothing can be imported from __main__
    if isinstance(value, Callable) and home not in (None, "__main__"):  # type: ignore[arg-type]
        own = getattr(value, "__name__", name)
        return f"from {home} import {own}" + (f" as {name}" if own != name else "")
    message = f"'{reader}' reads '{name}', a {type(value).__name__}"
    raise ScaffoldError(
        message, PLACE, f"make it a parameter: def {reader}(..., {name})"
    )


def _is_simple(value: object) -> bool:
    """Return whether a value can be written as a constant of a file."""
    if isinstance(value, tuple):
        return all(map(_is_simple, value))
    return type(value) in SIMPLE
