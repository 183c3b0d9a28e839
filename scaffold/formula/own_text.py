"""The user's formula as a function of its inputs, for Python to run, without the parser's rewrites.

A proof compares the generated op with it, so a mistake of the parser or of the derivation shows.

Words: the *entry* is the function the user named; a *layer* is an `nn.Module` of the file, whose forward is named; names are
*bound* around the entry by assignments and definitions; *bare* syntax has no annotations and decorators, which would run;
*known* names are imports of PyTorch or `math`; the lines `after` go in the place of a return.

In: the `Text` of a parsed formula, the `Scope` of its names, the names of the inputs. Out: the lines of a function's
body, () if there are none. Invariant: the text is only read as syntax, here as everywhere. Since it will run, all of it
may name only what a formula may name, even parts the parser dropped. Annotations, and decorators without effect on the
values, are dropped, nothing else.

A function of a file is nested in a function that binds the names of the file: its constants, its functions, its imports
of PyTorch. Imports from files beside it have the names given by `user_functions`. The methods of an `nn.Module` go into
a class without a base; attributes they read of `self` are set on an instance.
"""

import ast
import builtins
import copy
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from symtable import symtable

from scaffold.formula.definitions import (
    Defined,
    Definitions,
    dotted_name,
    functions_of,
    imported,
    is_known,
    names_read,
    parameters,
    reachable,
    without_docstring,
)
from scaffold.formula.module_forward import modules_named
from scaffold.formula.names import IMPORTS, names_in
from scaffold.formula.operators import not_operators
from scaffold.formula.substitution import with_sizes
from scaffold.formula.text import (
    BUILTINS,
    Meanings,
    Origin,
    Scope,
    Text,
    dedented,
    parse_source,
    with_plain_newlines,
)
from scaffold.formula.user_functions import program_of_file

# The builtins a text may call: those that return a value and have no side effect.
PURE = BUILTINS | {"all", "any", "complex", "dict", "enumerate", "map", "reversed"}
PURE |= {"set", "slice", "sorted", "str", "zip"}
UNREAD = (ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal)
FILE, MODULE = "of_the_file", "module_of_the_file"  # names in the lines returned


def own_text(
    text: Text, scope: Scope, inputs: Sequence[str], after: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the lines of the body of a function of these inputs, as the user wrote it; variadic inputs have a star.

    The lines `after`, if any, replace its return: a surrogate gradient goes on with the forward's locals. () if the text cannot
    be run as it is: it reads a name a formula may not, calls Python code with side effects, or has several returns to replace.
    """
    origin = text.origin
    if origin is None:
        module = parse_source(dedented(with_plain_newlines(text)))
        body = with_sizes(module.body, scope)
        lines = _written(_returning(body, after), {}, scope)
    elif origin.function is None:
        module = copy.deepcopy(origin.module)
        names = sorted(names_in([module]))
        body, known = program_of_file(module), _known(origin, names)
        body = _returning(body, after)
        lines = (*_imports(origin, known), *_written(body, known, scope))
    else:
        lines = _of_file(origin, origin.function, scope, inputs, after)
    return () if _calls_python(lines, scope, inputs) else tuple(lines)


def _of_file(
    origin: Origin,
    function: str,
    scope: Scope,
    inputs: Sequence[str],
    after: Sequence[str],
) -> tuple[str, ...]:
    """Return lines to define the file's function among the names of its file, and to call it; () if impossible.

    The first lines define a function FILE; inside stand the names of the file, and it returns the user's function, called by
    the last line. For a method (`Norm.forward`) it returns its class, reduced to what is read. `after` are lines in place of
    the return of the user's function, if any.
    """
    # The function itself may be among the imported ones, but here its own text is wanted.
    definitions = origin.definitions.without(scope.imported - {function})
    entry = definitions.functions.get(function)
    # An input of such a name would hide the function defined below.
    if not isinstance(entry, ast.FunctionDef) or {FILE, MODULE} & {*inputs}:
        return ()
    names = reachable([function, *names_read(entry)], definitions)
    known = _known(origin, names)
    body = _defined(definitions, names)
    # Only a check: the lines are written below, after the layer has become a class.
    if not _written(body, known, scope):
        return ()
    owner, _, method = function.rpartition(".")
    if owner and any(name.count(".") > 1 for name in names):
        return ()  # `Mlp.up.forward`: an inner module, which the bare class lacks
    if owner:
        # One class alone: of several of the name the reference was refused.
        (layer,) = modules_named(origin.module, owner)
        body = [item for item in body if not _is_of(layer, item)]
        body.append(_bare_layer(layer, names))
        called = _calls_of_layer(layer, method, entry, inputs)
    else:
        passed = _arguments(entry.args, inputs)
        called = () if passed is None else (f"return {FILE}()({passed})",)
    if not called or not _replace_return(body, method, after):
        return ()
    inner = (*_imports(origin, known), *_lines(body), f"return {owner or function}")
    return (f"def {FILE}():", *(f"    {line}" for line in inner), *called)


# --- The methods of a module.


def _is_of(layer: ast.ClassDef, item: ast.stmt) -> bool:
    """Return whether a statement is a method of the class as the parser has it: a function named `Norm.forward`."""
    return isinstance(item, ast.FunctionDef) and item.name.startswith(f"{layer.name}.")


def _bare_layer(layer: ast.ClassDef, names: Collection[str]) -> ast.ClassDef:
    """Return a class without a base, with the methods listed in full among the names, as `Norm.forward`."""
    methods = [
        copy.deepcopy(method)
        for name, method in functions_of(layer).items()
        if f"{layer.name}.{name}" in names
    ]
    return ast.ClassDef(layer.name, [], [], [*methods], [])


def _calls_of_layer(
    layer: ast.ClassDef, method: str, entry: ast.FunctionDef, inputs: Sequence[str]
) -> tuple[str, ...]:
    """Return lines to make an instance of the bare class, set the attributes it reads, and call its method.

    () if it reads an attribute that is no input, such as an inner module or a number computed in `__init__`. `entry` is the
    method as the parser has it: with a keyword-only parameter for each attribute.
    """
    methods = functions_of(layer)
    own = [item.arg for item in parameters(methods[method].args)]
    read = [item.arg for item in entry.args.kwonlyargs if item.arg not in own]
    arguments = copy.deepcopy(entry.args)
    arguments.kwonlyargs = [item for item in arguments.kwonlyargs if item.arg in own]
    passed = _arguments(arguments, inputs)
    used = {
        node.attr
        for node in ast.walk(layer)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
    }
    # Any other is a module, or a number computed by the parsed function.
    known = {*read, *methods}
    if passed is None or not {*inputs} >= {*read} or not used <= known:
        return ()
    return (
        f"{MODULE} = {FILE}()()",
        *(f"{MODULE}.{name} = {name}" for name in read),
        f"return {MODULE}.{method}({passed})",
    )


def _defined(definitions: Definitions, names: Iterable[str]) -> list[ast.stmt]:
    """Return the definitions of these names in a file: constants, then functions."""
    wanted = set(names)
    found: list[ast.stmt] = []
    for name, value in definitions.constants.items():
        if name in wanted:
            found.append(_named(name, copy.deepcopy(value)))
    for name, node in definitions.functions.items():
        if name in wanted:
            found.append(_function(name, copy.deepcopy(node)))
    return found


def _function(name: str, node: Defined) -> ast.stmt:
    """Return the definition of a function under a name; for a lambda an assignment."""
    if isinstance(node, ast.Lambda):
        return _named(name, node)
    node.name = name  # imports from another file are renamed here
    return node


def _named(name: str, value: ast.expr) -> ast.stmt:
    # `ast.unparse` asks an assignment for its line.
    return ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)


def _arguments(arguments: ast.arguments, inputs: Sequence[str]) -> str | None:
    """Return the arguments of a call of the user's function, as text, for its parameters among the inputs: `x, *ys, eps=eps`.

    They go by keyword if they can; before `*ys` they cannot, so there each must be an input: None if one is not.
    """
    names = {name.lstrip("*") for name in inputs}
    positional = [*arguments.posonlyargs, *arguments.args]
    passed = []
    # Only these must go by position: those before `*ys`, and those before a `/`.
    for item in positional if arguments.vararg else arguments.posonlyargs:
        if item.arg not in names:
            return None
        passed.append(item.arg)
    if arguments.vararg:
        passed += [f"*{arguments.vararg.arg}"]
    named = (item.arg for item in parameters(arguments) if item.arg not in passed)
    passed += [f"{name}={name}" for name in named if name in names]
    return ", ".join(passed)


def _known(origin: Origin, names: Iterable[str]) -> dict[str, str]:
    """Return the file's imports of PyTorch or `math` among these names."""
    full = origin.definitions.imports
    return {name: full[name] for name in names if is_known(full.get(name, ""))}


def _imports(origin: Origin, known: Collection[str]) -> Iterator[str]:
    """Yield the import statements of the file, as text, that bind the `known` names: `import torch.nn as nn`."""
    for item in imported(origin.module):
        if item.name in known:
            module, name, alias = item.binding
            renamed = f" as {alias}" if alias else ""
            if name is None:
                yield f"import {module}{renamed}"
            else:
                yield f"from {module} import {name}{renamed}"


def _returning(body: list[ast.stmt], after: Sequence[str]) -> list[ast.stmt]:
    """Return the statements with a `return` for a final expression; with lines `after`, these replace the last statement.

    [] if there are several returns to replace.
    """
    match without_docstring(body):
        case [*above, ast.Expr(value)]:
            body = [*above, ast.Return(value)]
    if not after:
        return body
    inner = [node for item in body[:-1] for node in _outside_functions(item)]
    if any(isinstance(node, ast.Return) for node in inner):
        return []
    return [*body[:-1], *ast.parse("\n".join(after)).body]


def _replace_return(
    body: Sequence[ast.stmt], function: str, after: Sequence[str]
) -> bool:
    """Replace the return of the function or method of this name, in `body`, by the lines `after`; return whether that was possible.

    It is not if there are several returns. Without such lines nothing is changed, and the answer is True.
    """
    nodes = (node for item in body for node in ast.walk(item))
    for node in nodes if after else ():
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.body = _returning(node.body, after)
            return bool(node.body)
    return True


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a statement, insides of nested functions left out: a return there is none of this function."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        for inner in ast.iter_child_nodes(node):
            yield from _outside_functions(inner)


def _written(
    body: Sequence[ast.stmt], known: dict[str, str], scope: Scope
) -> tuple[str, ...]:
    """Return the statements as lines; () if a name or statement in them is not allowed in a formula.

    `known` are the imports of the user's file among the names, each with its full name.
    """
    body = [_Bare().visit(item) for item in body]
    meanings = Meanings({**scope.meanings.imports, **known}, scope.meanings.own)
    nodes = [node for item in body for node in ast.walk(item)]
    if any(map(_is_unread, nodes)) or any(not_operators(body, meanings)):
        return ()
    return _lines(body)


def _lines(body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """Return the statements as text, without the parts of function heads Python would run."""
    bare = [_Bare().visit(item) for item in body]
    whole = ast.fix_missing_locations(ast.Module(bare, []))
    return tuple(ast.unparse(whole).split("\n")) if bare else ()


def _stops_gradients(decorator: ast.expr) -> bool:
    """Return whether a decorator is `no_grad`: the parser allows it."""
    return (dotted_name(decorator) or "").rpartition(".")[2] == "no_grad"


def _is_unread(node: ast.AST) -> bool:
    """Return whether a node is a dunder attribute, `x.__class__`, or a statement no formula has, a class or an import."""
    if isinstance(node, ast.Attribute):
        return node.attr.startswith("__")
    # `import torch` inside a function binds nothing new.
    return isinstance(node, UNREAD) and ast.unparse(node) not in IMPORTS


def _calls_python(lines: Sequence[str], scope: Scope, inputs: Sequence[str]) -> bool:
    """Return whether some lines read a builtin with side effects, `print` or `open`; a name the lines themselves bind is none.

    The lines stand in a function of the inputs; Python's `symtable` tells which names are then global. Classes of errors are
    allowed, names like `__import__` never, and lines that are no Python count too.
    """
    text = "\n".join(
        [f"def own({', '.join(inputs)}):", *(f" {line}" for line in lines)]
    )
    try:
        # No lines, no function: a `def` without a body is no Python.
        tables = [symtable(text, "<own>", "exec")] if lines else []
    except SyntaxError:  # some syntax errors are not found by `ast`
        return True
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            name = symbol.get_name()
            # Global to the function: neither bound by the lines nor an input of it.
            if symbol.is_global() and name not in PURE | scope.names:
                builtin = getattr(builtins, name, None)
                is_error = isinstance(builtin, type) and issubclass(builtin, Exception)
                # Any other global that is no builtin raises a NameError, and runs nothing.
                if name.startswith("__") or builtin is not None and not is_error:
                    return True
    return False


class _Bare(ast.NodeTransformer):
    """A removal of annotations and decorators, which Python would run, except `@torch.no_grad()`.

    Names from the parser that are no identifiers, `ops/helpers.py.gate`, become some: `its_ops_helpers_py_gate`.
    """

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Drop the annotations and decorators of a function, except `@torch.no_grad()`."""
        kept = [item for item in node.decorator_list if _stops_gradients(item)]
        node.decorator_list, node.returns = kept, None
        node.name = _spelled(node.name)
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation, node.arg = None, _spelled(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = _spelled(node.id)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        """Turn `x: Tensor = y` into `x = y`, and `x: Tensor` into `pass`."""
        self.generic_visit(node)
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], node.value, lineno=0)


def _spelled(name: str) -> str:
    """Return a name as an identifier: itself if it is one."""
    return name if name.isidentifier() else re.sub(r"\W", "_", f"its_{name}")
