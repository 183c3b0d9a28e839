"""Functions of a user's file as formula text, with their imports from files beside it and their comments.

`spec` calls `function_in` for `--forward '@file.py:norm'`; the parsers read the result, `program` its other functions.

Words: the `role` of a function is what the op uses it for: forward, backward, or samples; a *relative* import is of a file of the
same package, `from .helpers import gate`; the *key* of a function in such a file is its unique name, `ops/helpers.py.gate`;
an `Origin` is what is kept of the file.

In: the text of a file and the name of a function; a way to read files. Out: its `FunctionText`, with the imports of the
file it needs; for a method, a hint with the equivalent function; comments by their statement. Invariant: files are read
as syntax; nothing is imported or run. Only attributes of `self` become parameters; methods it calls are named in the
hint, since nothing is known about their result.
"""

import ast
import copy
import io
import textwrap
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, why_unread
from scaffold.formula.definitions import (
    Binding,
    Defined,
    Definitions,
    Imported,
    Meanings,
    NameResolver,
    definitions_of,
    effective_decorator,
    functions_of,
    imported,
    is_known,
    names_read,
    parameters,
    reachable,
    without_docstring,
)
from scaffold.formula.einops import with_patterns_written_out
from scaffold.formula.module_forward import (
    ModuleForward,
    module_forward,
    modules_named,
    with_layer_names,
)
from scaffold.formula.names import names_in
from scaffold.formula.numpy_numbers import with_math
from scaffold.formula.text import (
    WELL_KNOWN,
    Origin,
    Refusal,
    Text,
    parse_source,
    place_in,
    with_plain_newlines,
)

ReadFile = Callable[[str], str]
OWN = ("self", "cls", "ctx")  # first parameters of methods, no arguments of the formula


class FunctionText(NamedTuple):
    """A user's function: its body, its parameters and the file's imports it uses."""

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
    inputs: frozenset[str] = frozenset(),
) -> FunctionText:
    """Return the function of a file named by a reference `@path:function`; raise an error if there is none.

    Without a name it is the file's only function, the one named like its `role` (forward, backward), or the only one
    not called by others; a file without functions is one body. Functions from `elsewhere` stay calls; `read` reads files
    of the same package. Numbers among the `inputs` of an nn.Module are parameters, not computed.
    """
    text = with_plain_newlines(Text(source, Location(path)))
    module = parse_source(text)
    if role != "samples":  # a function for samples is copied into a test as it is
        module = with_patterns_written_out(with_math(module), elsewhere)
    if role == "forward" and modules_named(module, function):
        module = with_layer_names(module)
    functions = functions_of(module)
    definitions = definitions_of(module)
    layer = None  # without a name, a function of the file is meant before a class
    if role == "forward" and (function or not functions) and function not in functions:
        layer = _of_module(module, function, text, inputs)
    if layer is not None:
        chosen, definitions = layer.function, layer.beside(definitions)
    elif function is None and not functions:
        # The function may be a method of a class.
        _refuse_method(role, role, module, text)
        return _whole_file(module, definitions, text)
    else:
        chosen = _choose(functions, function, role, module, text)
    parameter_names = _parameters(chosen, definitions.imports, text)
    lines = text.value.split("\n")
    names = _names_needed(chosen, role, definitions.without(elsewhere))
    origin = Origin(text.value, module, definitions, chosen.name)
    if read is not None and role != "samples":
        wanted = names - elsewhere
        origin = _with_other_files(origin, text, wanted, read)
        names -= origin.definitions.functions.keys() | origin.definitions.constants
    return FunctionText(
        _body_of(chosen, lines, text)._replace(origin=origin),
        parameter_names,
        _imports(origin, names, text),
        "\n".join(lines[chosen.lineno - 1 : chosen.end_lineno]),
    )


def _of_module(
    module: ast.Module, function: str | None, text: Text, inputs: frozenset[str]
) -> ModuleForward | None:
    """Return the forward of an `nn.Module` named by a reference; None if the reference is no module.

    Raise an error if several classes of the file have a forward.
    """
    named = modules_named(module, function)
    if len(named) > 1:
        hint = f"name one of them: '@{text.location.source}:{named[0].name}'"
        message = "the file holds several classes with a forward"
        raise ScaffoldError(message, place_in(text, named[1]), hint)
    try:
        return module_forward(named[0], module, inputs) if named else None
    except Refusal as refusal:
        raise refusal.within(text) from None


def _with_other_files(
    origin: Origin, text: Text, names: Collection[str], read: ReadFile
) -> Origin:
    """Return the origin with the definitions of `names` it imports from other files of the package added.

    `text` is the file's, `read` returns the text of a path.
    """
    others = OtherFiles(text, origin.module, read)
    meanings = others.meanings(names)
    if not meanings:
        return origin
    before, found = origin.definitions, meanings.items()
    functions = {name: item.function for name, item in found if item.function}
    constants = {name: item.constant for name, item in found if item.constant}
    definitions = before._replace(
        # Those of `others` are called by the functions imported, and stand under their keys.
        functions={**before.functions, **others.functions, **functions},
        constants={**before.constants, **constants},
    )
    source, files = others.text.value, others.text.files
    return origin._replace(source=source, definitions=definitions, files=files)


def docstring_of(text: Text) -> str | None:
    """Return the first paragraph of the docstring of a text's function, for the op's own docstring; None without one."""
    if text.origin is None:
        return None  # no text of a file
    function = functions_of(text.origin.module).get(text.origin.function or "")
    docstring = ast.get_docstring(function) if function else None
    return (docstring or "").partition("\n\n")[0] or None


def _body_of(function: ast.FunctionDef, lines: Sequence[str], text: Text) -> Text:
    """Return the statements of a function as text, without their indentation, with comments above the first one.

    `lines` are those of the file; positions in the text remain those of the file.
    """
    body = without_docstring(function.body)
    if not body:
        message = f"function '{function.name}' has no body"
        place = place_in(text, function)
        raise ScaffoldError(message, place, "end it with: return ...")
    first, last = lines_of(body, lines, function.lineno)
    start = body[0].lineno - 1
    # In characters: `col_offset` counts bytes.
    indent = len(lines[start].encode()[: body[0].col_offset].decode())
    found = [_without_indent(line, indent) for line in lines[first:last]]
    # In `def f(x): return x` the `def` stands before the first statement.
    found[start - first] = lines[start][indent:]
    place = Location(text.location.source, first + 1, indent + 1)
    return Text("\n".join(found), place, indent)


def _whole_file(
    module: ast.Module, definitions: Definitions, text: Text
) -> FunctionText:
    """Return the statements of a file without functions as the text of a formula; raise an error if there are none."""
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
    """Return the statements of a file without functions, imports and docstring left out."""
    skipped = (ast.Import, ast.ImportFrom)
    body = [item for item in module.body if not isinstance(item, skipped)]
    return without_docstring(body)


def _without_indent(line: str, indent: int) -> str:
    """Cut the indent of a line; comments and continuation lines may be indented less."""
    present = len(line) - len(line.lstrip())
    return line[min(indent, present) :] if line.strip() else ""


def _choose(
    functions: Mapping[str, ast.FunctionDef],
    name: str | None,
    role: str,
    module: ast.Module,
    text: Text,
) -> ast.FunctionDef:
    """Return the function of this name; without a name, the only one, the one named `role`, or the only one nobody calls.

    Raise an error if there is none or if several are left.
    """
    if name is None and len(functions) == 1:
        return next(iter(functions.values()))
    wanted = role if name is None else name
    if wanted in functions:
        return functions[wanted]
    if name is None:
        called = {read for item in functions.values() for read in names_read(item)}
        uncalled = [item for item in functions.values() if item.name not in called]
        if len(uncalled) == 1:
            return uncalled[0]
        path = text.location.source
        hint = f"name one of them: '@{path}:{next(iter(functions))}'"
        raise ScaffoldError("the file holds several functions", text.location, hint)
    _refuse_method(wanted, role, module, text)
    layers = [item.name for item in modules_named(module, None)]
    # A module can be named instead of its forward, for nothing else.
    candidates = [*functions, *(layers if role == "forward" else ())]
    listed = ", ".join(candidates) or "none"
    hint = did_you_mean(wanted, candidates) or f"the file's functions: {listed}"
    message = f"no function '{wanted}' in the file"
    raise ScaffoldError(message, text.location, hint)


def _refuse_method(wanted: str, role: str, module: ast.Module, text: Text) -> None:
    """Raise an error if the name belongs to a method, with the function of a formula to write instead as the hint."""
    found = method_called(wanted, role, module)
    if found is not None:
        owner, method = found
        message = f"'{method.name}' is a method of '{owner}'"
        raise ScaffoldError(message, place_in(text, method), as_function(method))


def _parameters(
    function: ast.FunctionDef, imports: Meanings, text: Text
) -> tuple[str, ...]:
    """Return the names of a function's parameters, `*args` included.

    Raise for `self` or `cls` (it is a method), for a used `**kwargs`, and for a decorator that may change its values.
    """
    name, arguments = function.name, function.args
    place = place_in(text, function)
    try:
        check_decorators(function, name, imports)
    except Refusal as refusal:
        raise refusal.within(text) from None
    # An unused `**kwargs` only swallows arguments.
    if arguments.kwarg and arguments.kwarg.arg in names_in(function.body):
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
    """Return the names of the file read by a function and by the functions it calls: the op's file has to import some.

    Names every formula has, `F`, are left out. A function for samples is copied into a test, so it needs all names in it.
    """
    if role == "samples":
        return names_in([function])
    names = reachable(names_read(function), definitions)
    return {name for name in names if not is_known(definitions.imports.get(name, ""))}


def _imports(origin: Origin, names: Collection[str], text: Text) -> tuple[Binding, ...]:
    """Return the file's imports of some names, for the op's file to repeat; raise an error for a relative one, useless there."""
    found: dict[str, Binding] = {}
    for item in imported(origin.module):
        if item.name not in names:
            continue
        if isinstance(item.statement, ast.ImportFrom) and item.statement.level:
            hint = "write the import with the full name of the package"
            message = "a relative import does not work in the op's file"
            raise ScaffoldError(message, place_in(text, item.statement), hint)
        # `F`, `torch` and `math` are imported by the op's file anyway.
        if item.name not in WELL_KNOWN:
            found[item.name] = item.binding
    return tuple(found.values())


def check_decorators(function: ast.FunctionDef, shown: str, imports: Meanings) -> None:
    """Raise a `Refusal` if a decorator may change the function's values; `shown` is its name in the message."""
    decorator = effective_decorator(function, imports)
    if decorator is not None:
        message = f"a decorator may change what '{shown}' computes"
        hint = "take it off, or name a function without it"
        raise Refusal(decorator, message, hint)


def method_called(
    wanted: str, role: str, module: ast.Module
) -> tuple[str, ast.FunctionDef] | None:
    """Return the name of the class, and the method, meant by `forward`, `Norm` or `Norm.forward`; None if there is none."""
    for owner, method in _methods(module):
        if wanted in (method.name, f"{owner}.{method.name}"):
            return owner, method
        if wanted == owner and method.name == role:  # the class alone: its forward
            return owner, method
    return None


def _methods(module: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield each method of the file with the name of its class."""
    for owner in module.body:
        if isinstance(owner, ast.ClassDef):
            for method in functions_of(owner).values():
                yield owner.name, method


def as_function(method: ast.FunctionDef) -> str:
    """Return a hint with the function to write instead of a method: `def forward(x, weight)`.

    Its parameters are the method's without `self`, and the attributes it reads; methods it calls are to be written out.
    """
    names = [item.arg for item in parameters(method.args)]
    first = names[0] if names and names[0] in OWN else ""
    given = names[1:] if first else names
    if first == "ctx":  # a method of an autograd.Function
        listed = ", ".join(given)
        return f"write a function without ctx: def {method.name}({listed})"
    attributes = _attributes_of(first, method)
    read = sorted(attributes, key=lambda node: (node.lineno, node.col_offset))
    called = {id(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)}
    values = [node.attr for node in read if id(node) not in called]
    listed = ", ".join(dict.fromkeys([*given, *values]))
    calls = dict.fromkeys(f"{first}.{node.attr}" for node in read if id(node) in called)
    out = f", and write out {' and '.join(calls)}" if calls else ""
    return f"write a function of the values it reads{out}: def {method.name}({listed})"


def _attributes_of(name: str, method: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Yield the attributes of a name, `self`, in a method."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(ast.Name(owner)) if owner == name:
                yield node


def comments_inside(
    source: str, bodies: Iterable[Sequence[ast.stmt]]
) -> dict[int, tuple[str, ...]]:
    """Return the comments of several bodies by line of the file, the ones right above each body included.

    They go into the generated forward, above the same statements.
    """
    lines = source.split("\n")
    found: dict[int, tuple[str, ...]] = {}
    for body in bodies if "#" in source else ():
        first, last = lines_of(body, lines)
        blank = "\n" * first  # so that lines are numbered as in the file
        found |= comments_above(
            blank + textwrap.dedent("\n".join(lines[first:last])), body
        )
    return found


def lines_of(
    body: Sequence[ast.stmt], lines: Sequence[str], least: int = 0
) -> tuple[int, int]:
    """Return the range of a body's lines, from 0 and without the last, with the comments right above it.

    Comments at or above line `least`, that of the `def`, are left out.
    """
    first = body[0].lineno - 1
    while first > least and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first, body[-1].end_lineno or body[-1].lineno


def comments_above(source: str, body: Sequence[ast.stmt]) -> dict[int, tuple[str, ...]]:
    """Return the comments of a text by the line (from 1) of the statement they are about.

    `# Scale it.` is returned as `Scale it.`. In the code `spans` are the first and last lines of all statements.
    """
    if "#" not in source:
        return {}
    spans = [
        (node.lineno, node.end_lineno or node.lineno)
        for item in body
        for node in ast.walk(item)
        if isinstance(node, ast.stmt)
    ]
    found: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line = _owner(token.start[0], spans)
            if line is not None:
                found.setdefault(line, []).append(token.string.lstrip("#").strip())
    return {line: tuple(texts) for line, texts in found.items()}


def _owner(line: int, spans: list[tuple[int, int]]) -> int | None:
    """Return the line of the statement a comment belongs to: the innermost one around it, else the next one below.

    In a body, above its first statement, it belongs to that statement. `spans` are first and last lines of statements. None
    for a comment after all of them.
    """
    around = [first for first, last in spans if first <= line <= last]
    below = [first for first, _ in spans if first > line]
    if not around:
        return min(below, default=None)
    inner = max(around)
    inside = below and _is_compound(inner, spans) and min(below) <= _end(inner, spans)
    # On the line of the `if` itself a comment is about the `if`.
    return min(below) if inside and line > inner else inner


def _end(first: int, spans: list[tuple[int, int]]) -> int:
    """Return the last line of the statement that begins at line `first`."""
    return max(last for start, last in spans if start == first)


def _is_compound(first: int, spans: list[tuple[int, int]]) -> bool:
    """Return whether the statement at line `first` contains others."""
    return any(first < start <= _end(first, spans) for start, _ in spans)


# --- Functions and constants imported from files beside it: `from .helpers import gate`.
#
# A file is located by Python's rules, in the same package, and never above it; positions in it are its own. A
# definition from another file keeps its meaning: its constants are written out, and its callees come with it, under
# names no user can write (`ops/helpers.py.gate`).

PACKAGE = "__init__.py"


class Meaning(NamedTuple):
    """The meaning of a name in another file: a function or a constant."""

    function: Defined | None = None
    constant: ast.expr | None = None


class _File(NamedTuple):
    """A file of the package: its definitions, and its imports from other files of it, by name."""

    path: PurePosixPath
    definitions: Definitions
    relative: dict[str, Imported]


def is_relative(item: Imported) -> bool:
    """Return whether an import is from a file of the same package."""
    return isinstance(item.statement, ast.ImportFrom) and item.statement.level > 0


class OtherFiles:
    """A reader of the files of a package a first one imports from, each read once.

    `text` grows by the text of each file, so that a problem has a place in any of them; `functions` are those found, by key.
    """

    def __init__(self, text: Text, module: ast.Module, read: ReadFile) -> None:
        """Start from the syntax of the first file; `read` returns the text of a path."""
        self.text, self.read = text, read
        self.functions: dict[str, Defined] = {}  # by key; called by others
        path = PurePosixPath(text.location.source)
        self.files = {path: _file(path, module)}
        self.main = path

    def meanings(self, names: Collection[str]) -> dict[str, Meaning]:
        """Return the meanings of these names in the first file, the one with the forward, if imported from files of its package.

        A meaning is a function or a constant; its file is read for it. Raise an error if there is none.
        """
        file = self.files[self.main]
        return {
            name: self._meaning(file, item)
            for name, item in file.relative.items()
            if name in names
        }

    def _meaning(
        self, file: _File, item: Imported, through: tuple[Imported, ...] = ()
    ) -> Meaning:
        """Return the function or constant an import refers to, through re-exports in other files; raise an error without one.

        `file` has the import `item`; `through` are the imports followed so far, to notice a circle.
        """
        statement = item.statement
        assert isinstance(statement, ast.ImportFrom)
        if item in through:
            message = f"circular import of '{item.name}'"
            raise ScaffoldError(message, place_in(self.text, statement))
        other = self._loaded(self._path(file.path, statement), statement)
        name = item.binding[1] or ""  # None of `import m`, but this is a `from`
        if name in other.relative:
            return self._meaning(other, other.relative[name], (*through, item))
        if name in other.definitions.functions:
            return Meaning(function=self._function(other, name))
        if name in other.definitions.constants:
            constant = copy.deepcopy(other.definitions.constants[name])
            return Meaning(constant=_Elsewhere(self, other).visit(constant))
        known = {*other.definitions.functions, *other.definitions.constants}
        message = f"'{other.path}' has no function or constant '{name}'"
        hint = (
            did_you_mean(name, known)
            or "a formula can use only functions and constants of a file"
        )
        raise ScaffoldError(message, place_in(self.text, statement), hint)

    def _function(self, file: _File, name: str) -> Defined:
        """Return a copy of another file's function, with the names it reads replaced by their meaning in that file."""
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
        """Return the replacement for a name of a file: the key of a function or the expression of a constant.

        None if the name is neither, but a local or a builtin.
        """
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
        """Return the path of a relative import's file, by Python's rules; raise an error if there is none."""
        folder = path.parent
        for _ in range(statement.level - 1):  # `from ..helpers`: one folder up
            # "" is the name of the folder the path starts from: nothing above it is read.
            if not folder.name or not self._is_there(folder / PACKAGE):
                message = f"the relative import leaves the package of '{path}'"
                raise ScaffoldError(message, place_in(self.text, statement))
            folder = folder.parent
        found = []
        if statement.module:  # none in `from . import x`
            folder = folder.joinpath(*statement.module.split("."))
            # `from .helpers import x` is a file, or else the `__init__.py` of a folder.
            found.append(folder.with_name(f"{folder.name}.py"))
        found.append(folder / PACKAGE)
        for file in found:
            if self._is_there(file):
                return file
        message = f"there is no file '{found[0]}'"
        raise ScaffoldError(message, place_in(self.text, statement))

    def _is_there(self, path: PurePosixPath) -> bool:
        """Return whether a file exists; also true if it cannot be read, an error reported when it is loaded."""
        if path in self.files:
            return True
        try:
            self.read(str(path))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            pass
        return True

    def _loaded(self, path: PurePosixPath, statement: ast.ImportFrom) -> _File:
        """Return a file, read once.

        Its text is appended to `self.text`, and its line numbers are shifted to match, so that one text has all positions.
        Raise at the import `statement` if it cannot be read.
        """
        if path in self.files:
            return self.files[path]
        try:
            # A byte order mark, as editors on Windows write it.
            source = self.read(str(path)).removeprefix("\ufeff")
        except (OSError, ValueError) as error:
            message = f"cannot read '{path}': {why_unread(error)}"
            raise ScaffoldError(message, place_in(self.text, statement)) from None
        text = with_plain_newlines(Text(source, Location(str(path))))
        module = with_patterns_written_out(with_math(parse_source(text)))
        above = self.text.value.count("\n") + 1
        ast.increment_lineno(module, above)
        self.text = self.text._replace(
            value=f"{self.text.value}\n{text.value}",
            files=(*self.text.files, (above, str(path))),
        )
        self.files[path] = _file(path, module)
        return self.files[path]


def _file(path: PurePosixPath, module: ast.Module) -> _File:
    """Return a file's definitions and its relative imports, except an import whose name the file defines anew."""
    definitions = definitions_of(module)
    bound = {*definitions.functions, *definitions.constants, *definitions.others}
    relative = {
        item.name: item
        for item in imported(module)
        if is_relative(item) and item.name not in bound
    }
    return _File(path, definitions, relative)


class _Elsewhere(NameResolver):
    """A resolver of names in a function of another file; its locals keep their names."""

    def __init__(self, files: OtherFiles, file: _File) -> None:
        super().__init__(file.definitions, {}, "")
        self.files, self.file = files, file

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name of the other file by the key of its function or by its constant; a local stays."""
        found = None if node.id in self.locals else self.files.key(self.file, node.id)
        if isinstance(found, ast.expr):
            return copy.deepcopy(found)
        if found is None:
            return super().visit_Name(node)
        node.id = found
        return node
