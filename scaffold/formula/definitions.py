"""Definitions in a file: its functions, constants and imports, and the resolution of names.

For `--forward '@file.py:norm'` the maths is a function of the user's file, which reads constants, aliases of modules and other
functions of it. After this module its text means the same without the file around it.

Words: to *resolve* a name is to replace it by its meaning: `EPS` by `1e-5`, `functional.relu` by `F.relu`, a function of the file
by `@name`; a *dotted* name is written with dots, `torch.nn.functional`; `around` are the locals of enclosing functions; an
import is *known* if it is of PyTorch's own modules or of `math`.

In: the syntax of a file. Out: `Definitions`: functions, constants, and the names of PyTorch's own modules; a
`Function`, in which constants replace their names. Invariant: a name bound twice is no constant, and a constant reads
no tensor. In a `Function` a name with a dot is a local of a called function, and a name that begins with `@` is a
function of the file; users can write neither. Positions stay those of the file.
"""

import ast
import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from scaffold.formula.names import bound_names, fresh, load_of, names_in

FUNCTIONAL = "torch.nn.functional"
# An import from these modules is recognized under any alias.
KNOWN_MODULES = frozenset(
    {"math", "torch", "torch.fft", "torch.linalg", FUNCTIONAL, "torch.special"}
)
NO_EFFECT = frozenset(  # decorators that keep the values
    {"torch.compile", "torch.compiler.disable", "torch.jit.export", "torch.jit.ignore"}
    | {"torch.jit.script", "torch.jit.script_if_tracing", "torch.jit.unused"}
    | {"torch.fx.wrap", "typing.no_type_check", "beartype.beartype"}
    | {"torch.compiler.allow_in_graph"}
)

# Generated code uses these names with their usual meaning, so no local may have them.
RESERVED = frozenset(
    {"torch", "F", "math", "nn", "ctx", "self", "cls", "Tensor", "Function"}
)

Defined = ast.FunctionDef | ast.Lambda
Meanings = Mapping[str, str]  # a name -> what it stands for, as a name
Binding = tuple[str, str | None, str | None]  # module, name, alias


class Imported(NamedTuple):
    """A name bound by an import."""

    name: str
    dotted: str  # its full dotted name
    binding: Binding
    statement: ast.Import | ast.ImportFrom


class Definitions(NamedTuple):
    """The names at the top level of a file."""

    functions: Mapping[str, Defined]
    constants: Mapping[str, ast.expr]
    imports: Mapping[str, str]  # name -> full dotted name
    others: frozenset[str]  # bound to values no formula can hold

    def without(self, names: Collection[str]) -> "Definitions":
        """Return the definitions without the functions of these names: the op imports them, so their calls stay calls."""
        functions = {
            name: item for name, item in self.functions.items() if name not in names
        }
        return self._replace(functions=functions)


def definitions_of(module: ast.Module) -> Definitions:
    """Collect the functions, constants and imports at the top level of a file.

    A constant is assigned once, and if it is a list, never changed; it may read constants and imports above it. Any other
    assigned name is one of `others`, whose value no formula can hold. A lambda, `f = lambda x: x * 2`, is a function.
    """
    functions: dict[str, Defined] = {}
    values: dict[str, list[ast.expr]] = {}
    for item in module.body:
        if isinstance(item, ast.FunctionDef):
            functions[item.name] = item
        elif named := _named_value(item):
            values.setdefault(named[0], []).append(named[1])
    constants: dict[str, ast.expr] = {}
    others = set()
    imports = {item.name: item.dotted for item in imported(module)}
    for name, (value, *later_values) in values.items():
        if isinstance(value, ast.Lambda) and not later_values:
            functions[name] = value
        elif (
            not later_values
            # `constants` are those found so far, so a constant reads only names above it.
            and is_constant(value, {**dict.fromkeys(constants, ""), **imports})
            # Of the containers only a list can be changed in place; dicts and sets are no constants.
            and not (isinstance(value, ast.List) and _changes(module, name))
        ):
            constants[name] = value
        else:
            others.add(name)
    return Definitions(functions, constants, imports, frozenset(others))


def _named_value(item: ast.stmt) -> tuple[str, ast.expr] | None:
    """Return the name and the value of an assignment to one name; None for other statements.

    `x += 1` is one too: it makes `x` a name bound twice, and so no constant.
    """
    match item:
        case ast.Assign([ast.Name(name)], value):
            return name, value
        case ast.AnnAssign(ast.Name(name), value=value) if value is not None:
            return name, value
        case ast.AugAssign(ast.Name(name), value=value):
            return name, value
    return None


def imported(module: ast.Module) -> Iterator[Imported]:
    """Yield the names bound by the imports of a file, in order, each with its full name.

    `import torch.nn as nn` binds `nn`, with the full name `torch.nn`; `import torch.nn` binds only its root, `torch`.
    """
    for item in module.body:
        if isinstance(item, ast.Import):
            for alias in item.names:
                root = alias.name.split(".")[0]  # `torch` of `torch.nn`
                full = alias.name if alias.asname else root
                bound: Binding = (alias.name, None, alias.asname)
                yield Imported(alias.asname or root, full, bound, item)
        elif isinstance(item, ast.ImportFrom):
            for alias in item.names:
                module_name = item.module or ""  # "" in `from . import x`
                full = f"{module_name}.{alias.name}"
                bound = (module_name, alias.name, alias.asname)
                yield Imported(alias.asname or alias.name, full, bound, item)


def is_known(dotted: str) -> bool:
    """Return whether a dotted name is, or belongs to, a module every formula may use: `torch.nn.functional.relu`, `math.pi`.

    Such a name keeps its meaning outside of the file; any other, `mylib.relu`, does not.
    """
    module = dotted.rpartition(".")[0]
    return bool({dotted, module} & KNOWN_MODULES)


def is_constant(value: ast.expr, known: Meanings) -> bool:
    """Return whether an expression is constant: literals, arithmetic, `math.sqrt(2)`, `torch.float32`.

    A constant can be written wherever its name is read. It may read the names in `known`, a mapping of names to the dotted
    names imported under them ("" for another constant).
    """
    match value:
        case ast.Constant():
            return True
        case ast.Name(name):
            return name in known
        case ast.Attribute(inner):
            # Not of a literal: `(1, 2).count` is no number but a method.
            return dotted_name(inner) is not None and is_constant(inner, known)
        case ast.Tuple(items) | ast.List(items):
            return all(is_constant(item, known) for item in items)
        case ast.UnaryOp(_, inner):
            return is_constant(inner, known)
        case ast.BinOp(left, _, right):
            return is_constant(left, known) and is_constant(right, known)
        case ast.Call(callee, args, []) if _is_fixed(callee, known):
            return all(is_constant(item, known) for item in args)
    return False


def _changes(module: ast.Module, name: str) -> bool:
    """Return whether the file changes its own list `name`: `table.append(1)`, `table[0] = 1`; such a list is no constant.

    Any attribute counts, `table.index` too, since most methods of a list change it.
    """
    for node in ast.walk(module):
        match node:
            case ast.Attribute(ast.Name(read)) | ast.Subscript(
                ast.Name(read), _, ast.Store() | ast.Del()
            ) if (read == name):
                return True
    return False


def _is_fixed(callee: ast.expr, known: Meanings) -> bool:
    """Return whether a callee gives a constant for constants: `math.sqrt`, `torch.finfo`; `known` are the imports."""
    full = full_name(callee, known)
    return full.startswith("math.") or full in ("torch.finfo", "torch.iinfo")


def full_name(value: ast.expr, imports: Meanings) -> str:
    """Return the dotted name of an expression with imports resolved: `torch.nn.functional.relu` for `F.relu`; "" if it has none."""
    root, _, rest = (dotted_name(value) or "").partition(".")
    return f"{imports.get(root) or root}{'.' if rest else ''}{rest}"


def dotted_name(value: ast.expr) -> str | None:
    """Return the text `F.relu` for a name with attributes, for a call the name of its callee; None for any other expression."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute) and (inner := dotted_name(value.value)):
        return f"{inner}.{value.attr}"
    if isinstance(value, ast.Call):  # torch.finfo(torch.float32).eps
        return dotted_name(value.func)
    return None


def functions_of(owner: ast.Module | ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the functions of a file, or the methods of a class, by name."""
    return {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}


def effective_decorator(
    function: ast.FunctionDef, imports: Mapping[str, str]
) -> ast.expr | None:
    """Return the first decorator that may change the function's values; None if there is none, and the body is all there is.

    Those that may not, such as `torch.jit.script`, are listed in NO_EFFECT. `imports` tell the full name of a decorator.
    """
    for item in function.decorator_list:
        if full_name(item, imports) not in NO_EFFECT:
            return item
    return None


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return the named parameters of a function in order, without `*args` and `**kwargs`."""
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Return the defaults of parameters by name; a parameter without one is left out."""
    positional = [*arguments.posonlyargs, *arguments.args]
    # `ast` lists them without names; they belong to the last parameters.
    values = arguments.defaults
    found = {
        item.arg: value
        for item, value in zip(positional[len(positional) - len(values) :], values)
    }
    # Of equal length: `kw_defaults` has a None for each parameter without a default.
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults)
    return found | {item.arg: value for item, value in pairs if value is not None}


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a body without its docstring, which a formula has no use for."""
    match body[:1]:
        case [ast.Expr(ast.Constant(str()))]:
            return body[1:]
    return body


def names_read(function: Defined) -> set[str]:
    """Return the names in the body and the defaults of a function, not in its annotations."""
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    return names_in([*body, *defaults(function.args).values()])


def reachable(names: Iterable[str], definitions: Definitions) -> frozenset[str]:
    """Return the names, and all names their functions and constants read, directly or through others.

    They are the part of the file a formula depends on: `norm`, and `EPS` and `mean` if `norm` reads them.
    """
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name in definitions.functions:
            waiting += names_read(definitions.functions[name])
        elif name in definitions.constants:
            waiting += names_in([definitions.constants[name]])
    return frozenset(found)


class Function(NamedTuple):
    """A function of the file, or nested in one, with its names resolved; `body` is without the docstring."""

    name: str
    arguments: ast.arguments
    body: list[ast.stmt]
    node: Defined


def resolve(
    name: str, function: Defined, definitions: Definitions, called: bool = True
) -> Function:
    """Return a copy of a function with its names resolved: constants by value, `@name` for functions of the file.

    If it is `called` by another, its locals get its name as a prefix, `norm.mean`, so that none can be a name of the caller.
    """
    node = copy.deepcopy(function)
    resolver = NameResolver(definitions, {}, f"{name}." if called else "")
    return resolver.function(name, node)


def statements_of(node: Defined) -> list[ast.stmt]:
    """Return the body of a function without its docstring; a lambda becomes a `return`."""
    if isinstance(node, ast.Lambda):
        return [ast.copy_location(ast.Return(node.body), node.body)]
    return without_docstring(node.body)


class NameResolver(ast.NodeTransformer):
    """A resolver of one function's names; a nested function gets a resolver of its own, with a longer prefix.

    `locals` maps each local, also of the functions around it, to its new name: `mean` -> `norm.mean`.
    """

    def __init__(self, definitions: Definitions, around: Meanings, prefix: str) -> None:
        """Prepare to resolve names; `around` maps the locals of enclosing functions to their new names."""
        self.definitions, self.locals, self.prefix = definitions, dict(around), prefix

    def function(self, name: str, node: Defined) -> Function:
        """Return a function with its locals renamed and outer names resolved, in place.

        Without a prefix (for the forward itself) a local keeps its name, unless generated code gives that name a meaning: a local
        `F` becomes `new_F`. A parameter keeps its name even then: it is an input, whose name is checked elsewhere.
        """
        arguments, body = node.args, statements_of(node)
        # Before the parameters become locals: a default is evaluated outside of the function.
        arguments.defaults = [self.visit(item) for item in arguments.defaults]
        # None stands for a keyword-only parameter without a default.
        arguments.kw_defaults = [
            item and self.visit(item) for item in arguments.kw_defaults
        ]
        starred = [item for item in (arguments.vararg, arguments.kwarg) if item]
        all_parameters = [*parameters(arguments), *starred]
        names = [item.arg for item in all_parameters]
        bound = (*names, *bound_names(body))
        self.locals |= {item: f"{self.prefix}{item}" for item in bound}
        if not self.prefix:
            for local in RESERVED.intersection(bound).difference(names):
                self.locals[local] = fresh(f"new_{local}", bound, sign="")
        for item in all_parameters:
            item.arg = self.locals[item.arg]
        return Function(name, arguments, [self.visit(item) for item in body], node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name: a local by its new name, a constant by its value, a function by `@name`.

        An imported module gets the name formulas use: `fn` -> `F` after `import torch.nn.functional as fn`.
        """
        if node.id in self.locals:
            node.id = self.locals[node.id]
        elif node.id in self.definitions.constants:
            value = copy.deepcopy(self.definitions.constants[node.id])
            # A constant reads no locals.
            resolver = NameResolver(self.definitions, {}, "")
            return resolver.visit(value)  # type: ignore[no-any-return]
        elif node.id in self.definitions.functions:
            node.id = f"@{node.id}"
        else:
            return self._of_module(node, node.id, "")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace an element of the file's tuple by its value: `SIZES[0]` -> `3` after `SIZES = (3, 4)`.

        It asks first whether the name is of the file, since visiting replaces `SIZES` by its value.
        """
        of_file = isinstance(node.value, ast.Name) and node.value.id not in self.locals
        self.generic_visit(node)
        match node:
            case ast.Subscript(
                ast.Tuple(items) | ast.List(items), ast.Constant(int(at))
            ) if of_file and at < len(items):
                return items[at]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace an import at the root of a dotted name: `functional.relu` -> `F.relu`."""
        root, _, rest = (dotted_name(node) or "").partition(".")
        # `torch.finfo(x.dtype).eps` has calls inside, to be visited.
        plain = root not in self.locals and not any(
            isinstance(inner, ast.Call) for inner in ast.walk(node)
        )
        if plain and root in self.definitions.imports:
            return self._of_module(node, root, rest)
        self.generic_visit(node)
        return node

    def _of_module(self, node: ast.expr, root: str, rest: str) -> ast.expr:
        """Replace an imported name by the one every formula has for it: `F`, `torch`, `math`; other imports stay.

        `root` is the imported name in the file, `rest` the attributes after it.
        """
        full = self.definitions.imports.get(root, "")
        if not is_known(full):
            return node  # unknown names are reported when the formula is parsed
        full = f"{full}.{rest}" if rest else full
        if full == FUNCTIONAL or full.startswith(f"{FUNCTIONAL}."):
            full = f"F{full.removeprefix(FUNCTIONAL)}"
        elif full == root:
            return node  # it has the usual name: `torch`
        first, *others = full.split(".")
        value: ast.expr = load_of(first, node)
        for other in others:
            value = ast.copy_location(ast.Attribute(value, other, ast.Load()), node)
        return value

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Resolve the names of a nested function; its locals get its name as a further prefix."""
        name = self.locals[node.name]
        resolver = NameResolver(self.definitions, self.locals, f"{name}.")
        found = resolver.function(node.name, node)
        node.name, node.body = name, found.body
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        """Resolve the names of a lambda; its position serves as its name in the prefix: `norm.lambda_12_8.x`."""
        inner = f"{self.prefix}lambda_{node.lineno}_{node.col_offset}."
        found = NameResolver(self.definitions, self.locals, inner).function("", node)
        returned = found.body[0]
        assert isinstance(returned, ast.Return) and returned.value
        node.body = returned.value
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        """Resolve the names of `y: Tensor = x * EPS`, except in the annotation: no formula reads it."""
        node.target = self.visit(node.target)
        node.value = node.value and self.visit(node.value)
        return node
