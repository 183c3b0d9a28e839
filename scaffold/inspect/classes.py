"""Classes: find Functions by their bases, aliases and factories; custom operators; `Name.apply` calls.

The first step of reading a user's file: every other module of `inspect` works on the Functions found here. Nothing is imported, so
a class is known by the names of its bases alone.

Words: *within* are the classes and functions around a node, outermost first; an *alias* is a name bound by `scale = Scale.apply`;
a *parent* is a Function of the same file that a Function inherits from; *known* are names of Functions in other files.

In: the tree of a file, and the names of Functions defined in other files. Out: a `Scan`, the results of one walk over the file
in the order of the text; from it `Function`s, with their applications and aliases, and the `Operator`s: functions under
`torch.library.custom_op`, with their registrations.
Invariant: a class is a Function only by its base, or if its methods fit no other kind of class; a registration belongs to an
operator only if it is called on its very name.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from scaffold.inspect.functions import (
    Application,
    Binding,
    Function,
    Method,
    Operator,
    Parameter,
)
from scaffold.inspect.imported_names import Names, decorators, unsubscripted


class Scan(NamedTuple):
    """Nodes of a file by kind, from one walk, with the definitions around each."""

    classes: list[tuple[ast.ClassDef, tuple[ast.AST, ...]]]
    calls: list[tuple[ast.Call, tuple[ast.AST, ...]]]
    assignments: list[tuple[ast.Assign, tuple[ast.AST, ...]]]
    functions: list[tuple[ast.FunctionDef, tuple[ast.AST, ...]]]
    imports: list[ast.AST]


def scan(tree: ast.Module) -> Scan:
    """Return the classes, calls, assignments, functions and imports of a file, in order, with the definitions around each.

    It is one walk for all later questions; with a stack, not recursive, so that deep code does not end it.
    """
    found = Scan([], [], [], [], [])
    pending: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
    while pending:
        node, within = pending.pop()
        if isinstance(node, ast.ClassDef):
            found.classes.append((node, within))
            within = (*within, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(node, ast.FunctionDef):
                found.functions.append((node, within))
            within = (*within, node)
        elif isinstance(node, ast.Call):
            found.calls.append((node, within))
        elif isinstance(node, ast.Assign):
            found.assignments.append((node, within))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        # Reversed, as the last of the stack is taken first.
        children = [(child, within) for child in ast.iter_child_nodes(node)]
        pending.extend(reversed(children))
    return found


def applications(found: Scan) -> dict[str, list[Application]]:
    """Return the calls of each Function by its name: `Scale.apply(x)`, and `scale(x)` after `scale = Scale.apply`."""
    aliases = {alias: name for alias, name, _ in _aliases(found)}
    calls: dict[str, list[Application]] = {}
    for call, within in found.calls:
        function = call.func
        name = ""
        if isinstance(function, ast.Attribute) and function.attr == "apply":
            if isinstance(function.value, ast.Name):
                name = function.value.id
        elif isinstance(function, ast.Name):
            name = aliases.get(function.id, "")
        if name:
            calls.setdefault(name, []).append(Application(call, within))
    return calls


def aliases(found: Scan) -> dict[str, list[str]]:
    """Return the names a module binds at its top level to each `Name.apply`: a test calls the Function by them."""
    aliases: dict[str, list[str]] = {}
    for alias, name, within in _aliases(found):
        if not within:
            aliases.setdefault(name, []).append(alias)
    return aliases


def _aliases(found: Scan) -> Iterator[tuple[str, str, tuple[ast.AST, ...]]]:
    """Yield each name bound to `Name.apply`, the `Name`, and the definitions around the assignment."""
    for node, within in found.assignments:
        match node.value:
            case ast.Attribute(ast.Name(name), "apply"):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        yield target.id, name, within


def local_names(found: Scan, names: Names) -> dict[str, str]:
    """Return the dotted name behind each top-level name: `Base = torch.autograd.Function` gives it for `Base`, a base of classes."""
    return {
        target.id: names.resolve(node.value)
        for node, within in found.assignments
        if not within and isinstance(node.value, ast.Attribute | ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


# The names of torch's base classes, in `torch.autograd` or a module of it.
BASES = {"Function", "InplaceFunction", "NestedIOFunction", "_SingleLevelFunction"}
# Libraries whose Functions have other rules than torch's.
FOREIGN = {
    *("chainer", "chainerx", "jittor", "megengine", "mindspore", "mxnet", "oneflow"),
    *("paddle", "sympy", "tensorflow"),
}
VMAP = "generate_vmap_rule"
METHODS = {"forward", "backward", "setup_context", "jvp", "vjp", "vmap", "symbolic"}
CTX = {"ctx", "context", "_ctx", "fctx"}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def find_functions(
    found: Scan, names: Names, known: Iterable[str] = ()
) -> tuple[Function, ...]:
    """Return every Function of a file; `known` are names of Functions in other files, without their modules."""
    return _Finder(found, names, frozenset(known)).functions()


class _Finder:
    """A builder of Functions from classes; a base is built before the class, since a Function lists its parents."""

    def __init__(self, found: Scan, names: Names, known: frozenset[str]) -> None:
        """Prepare to find Functions; `known` are names of Functions in other files.

        The tables are made here once: classes by name (`counts`: how many have it), the definitions around each class
        (`within`), the Functions already made, by class.
        """
        self.scan, self.names, self.known = found, names, known
        self.counts = Counter(node.name for node, _ in found.classes)
        self.by_name: dict[str, list[ast.ClassDef]] = {}
        self.within = {id(node): within for node, within in found.classes}
        for node, _ in found.classes:
            self.by_name.setdefault(node.name, []).append(node)
        self.made: dict[int, Function | None] = {}
        self.applied = applications(found)
        self.aliased = aliases(found)
        self.local = local_names(found, names)

    def functions(self) -> tuple[Function, ...]:
        """Return the classes that are Functions, in the order of the text."""
        each = (self._function(node) for node, _ in self.scan.classes)
        return tuple(function for function in each if function is not None)

    def _function(self, node: ast.ClassDef) -> Function | None:
        """Return the Function of a class, found once; None if it is none."""
        if id(node) not in self.made:
            self.made[id(node)] = None  # a class that is its own base is no Function
            self.made[id(node)] = self._make(node)
        return self.made[id(node)]

    def _make(self, node: ast.ClassDef) -> Function | None:
        """Return a class as a Function if it derives from torch's, directly or through others; else None.

        A base of another file counts by its name, one of `known` (`remote`); a class with an unknown base by its methods.
        """
        bases = [unsubscripted(base) for base in node.bases]
        dotted = [
            self.local.get(name := self.names.resolve(base), name) for base in bases
        ]
        parents = [self._parent(base, node) for base in bases]
        # Other libraries' Functions have other rules than torch's.
        if any(name.split(".")[0] in FOREIGN for name in dotted):
            return None
        direct = [self._is_torch(name) for name in dotted]
        remote = [
            # A base found in this file, or torch's own, is not one of another file.
            not (parent or torch or name.startswith("torch."))
            and name.split(".")[-1] in self.known
            for name, parent, torch in zip(dotted, parents, direct, strict=True)
        ]
        based = any(direct) or any(parents) or any(remote)
        if not based and not self._looks_like_one(node, dotted):
            return None
        resolved = zip(direct, parents, dotted, strict=True)
        return self._built(
            node,
            tuple(parent for parent in parents if parent is not None),
            all(
                # `object` has no methods of a Function; another unknown base may.
                torch or name == "object" or parent is not None and parent.complete
                for torch, parent, name in resolved
            ),
        )

    def _parent(self, base: ast.expr, node: ast.ClassDef) -> Function | None:
        """Return the Function of this file a base names, the nearest above the class `node` if several have the name; else None."""
        if isinstance(base, ast.Name):
            candidates = [
                c for c in self.by_name.get(base.id, ()) if c.lineno < node.lineno
            ]
            if candidates:
                return self._function(candidates[-1])
        return None

    def _is_torch(self, name: str) -> bool:
        """Return whether a dotted name is one of torch's base classes of Functions."""
        if name == "Function":  # from `from torch.autograd import *`
            return any("autograd" in source for source in self.names.starred)
        *modules, last = name.split(".")
        return last in BASES and "autograd" in modules

    def _looks_like_one(self, node: ast.ClassDef, bases: list[str]) -> bool:
        """Return whether a class has an unknown base and a method with a ctx, as only Functions have.

        Its base (`bases` are dotted names) may be a subclass of Function elsewhere. If the base's name does not end in Function,
        the method must be a backward or setup_context; a Module never counts.
        """
        # "" is a base such as `make()`; a base in this file is known, and no Function.
        outside = [b for b in bases if b and b.split(".")[0] not in self.by_name]
        if not outside or any("Module" in base for base in outside):
            return False
        named = any(base.split(".")[-1].endswith("Function") for base in outside)
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name in METHODS:
                method = read_method(item, self.names)
                telling = named or item.name in ("backward", "setup_context")
                # Methods of Functions are static; `forward(self, x)` is that of a layer.
                if telling and method.binding != "plain" and method.ctx in CTX:
                    return True
        return False

    def _built(
        self,
        node: ast.ClassDef,
        parents: tuple[Function, ...],
        complete: bool,
    ) -> Function:
        """Return a class as a Function; `complete`: all its bases are known, so it inherits no unseen method.

        `parents` are the Functions among its bases in this file. With a setup_context, its own
        or a parent's (`separate`), its forward has no ctx. A class with keywords or decorators is not complete.
        """
        own = {i.name: i for i in node.body if isinstance(i, ast.FunctionDef)}
        separate = "setup_context" in own or any(p.setup_context for p in parents)
        methods = {
            name: read_method(item, self.names, separate) for name, item in own.items()
        }
        within = self.within[id(node)]
        names = [n.name for n in within if isinstance(n, Definition)]
        return Function(
            name=node.name,
            qualname=".".join([*names, node.name]),
            node=node,
            methods=methods,
            parents=parents,
            # A metaclass or a decorator may add methods.
            complete=complete and not node.keywords and not node.decorator_list,
            generate_vmap_rule=_generates_vmap_rule(node)
            or any(parent.generate_vmap_rule for parent in parents),
            applications=tuple(self.applied.get(node.name, ())),
            aliases=tuple(self.aliased.get(node.name, ())),
            nested=any(not isinstance(n, ast.ClassDef) for n in within),
            unique=self.counts[node.name] == 1,
        )


def read_method(node: ast.FunctionDef, names: Names, separate: bool = False) -> Method:
    """Return a method with its parameters, without `cls` and ctx, its first one.

    `separate`: the class has a setup_context, and so its forward no ctx; a `vmap` never has one.
    """
    found = tuple(decorators(node, names))
    binding: Binding = "plain"
    if "staticmethod" in found:
        binding = "static"
    elif "classmethod" in found:
        binding = "class"
    parameters = list(parameters_of(node))
    # Without `cls`, the first one; `def forward(*args)` has none.
    if binding == "class" and parameters and parameters[0].passing == "positional":
        del parameters[0]
    ctx = None
    without = (separate and node.name == "forward") or node.name == "vmap"
    if not without and parameters and parameters[0].passing == "positional":
        ctx = parameters.pop(0).name
    return Method(node, binding, ctx, tuple(parameters), found)


def parameters_of(node: ast.FunctionDef) -> Iterator[Parameter]:
    """Yield the parameters of a function, in order, each with its default (None: it has none) and annotation."""
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    # Defaults belong to the last parameters; `missing` first ones have none.
    missing = len(plain) - len(arguments.defaults)
    defaults = [*([None] * missing), *arguments.defaults]
    for item, default in zip(plain, defaults, strict=True):
        yield Parameter(item.arg, "positional", default, item.annotation)
    if arguments.vararg:
        item = arguments.vararg
        yield Parameter(item.arg, "variadic", None, item.annotation)
    for item, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield Parameter(item.arg, "keyword", value, item.annotation)
    if arguments.kwarg:
        item = arguments.kwarg
        yield Parameter(item.arg, "keywords", None, item.annotation)


def _generates_vmap_rule(node: ast.ClassDef) -> bool:
    """Return whether a class body sets `generate_vmap_rule = True`: PyTorch then makes its rule for vmap."""
    for item in node.body:
        if isinstance(item, ast.Assign | ast.AnnAssign):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            if any(isinstance(t, ast.Name) and t.id == VMAP for t in targets):
                return isinstance(item.value, ast.Constant) and item.value.value is True
    return False


# A call of register_autograd, and the backward that is its argument.
Registration = tuple[ast.Call | None, ast.expr | None]
ABSENT: Registration = (None, None)


def find_operators(found: Scan, names: Names) -> tuple[Operator, ...]:
    """Return every function decorated with `@torch.library.custom_op("mylib::f", ...)`, with its backward, for lint.

    The backward is registered by a call elsewhere in the file: `f.register_autograd(backward)`, or
    `register_autograd("mylib::f", backward)`. It is None if it is no function of the file.
    """
    registered = _registrations(found, names)
    functions = {node.name: node for node, _ in found.functions}
    operators = []
    for node, _ in found.functions:
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            if names.resolve(decorator.func) != "torch.library.custom_op":
                continue
            first = decorator.args[0] if decorator.args else None
            name = str(first.value) if isinstance(first, ast.Constant) else ""
            # Registered on the function `f`, or under the operator's name, "mylib::f".
            call, backward = registered.get(node.name) or registered.get(name, ABSENT)
            found_backward = (
                functions.get(backward.id) if isinstance(backward, ast.Name) else None
            )
            mutates = next(
                (k.value for k in decorator.keywords if k.arg == "mutates_args"), None
            )
            operators.append(
                Operator(
                    node.name,
                    node,
                    tuple(parameters_of(node)),
                    mutates,
                    call,
                    found_backward,
                )
            )
    return tuple(operators)


def _registrations(found: Scan, names: Names) -> dict[str, Registration]:
    """Return the calls of register_autograd, each with the backward, by the function or the operator they register it for.

    The key is `f` for `f.register_autograd(backward)` and `register_autograd(f, backward)`, and `mylib::f` if the call has this string.
    """
    registered: dict[str, Registration] = {}
    for call, _ in found.calls:
        given = list(call.args)
        if names.resolve(call.func) == "torch.library.register_autograd":
            owner = given.pop(0) if given else None
        elif isinstance(call.func, ast.Attribute):
            owner = call.func.value if call.func.attr == "register_autograd" else None
        else:
            continue
        match owner:
            case ast.Constant(key) | ast.Name(key):
                registered[str(key)] = call, given[0] if given else None
    return registered
