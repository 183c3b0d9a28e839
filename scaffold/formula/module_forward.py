"""The forward of an `nn.Module` as a function: what it reads of `self` becomes parameters of its own.

In: the syntax of a file and what '@file.py:Norm' names. Out: a function like `forward` whose keyword-only parameters are the
attributes that it reads, each with what `__init__` says of it: `weight: Parameter`, `mean: Buffer`, `eps: float = 1e-5`; the
methods that it calls, likewise. Invariant: what a function cannot do is refused at its place: to change `self`, to call another
module that has parameters. Positions stay those of the file.
"""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.formula.definitions import Definitions, defaults, dotted_name, parameters
from scaffold.formula.operators import made_of
from scaffold.formula.text import Refusal

KINDS = {"Parameter": "Parameter", "Buffer": "Buffer"}
REGISTERED = {"register_parameter": "Parameter", "register_buffer": "Buffer"}
SELF = "self"


class Attribute(NamedTuple):
    """What a class says of one attribute: as a parameter of a function is annotated, and given a default."""

    annotation: ast.expr | None = None
    default: ast.expr | None = None
    module: ast.expr | None = None  # the call that makes it another module
    may_lack: bool = False  # it may be None


class ModuleForward(NamedTuple):
    """The function, and those that it calls, by names that only the file's own code has."""

    function: ast.FunctionDef
    methods: dict[str, ast.FunctionDef]

    def beside(self, definitions: Definitions) -> Definitions:
        """What the file defines, these among it."""
        added = {**self.methods, self.function.name: self.function}
        return definitions._replace(functions={**definitions.functions, **added})


def modules_named(module: ast.Module, name: str | None) -> list[ast.ClassDef]:
    """The classes whose forward `Norm` or `Norm.forward` means, and without a name, or `forward`, each that has one."""
    classes = [item for item in module.body if isinstance(item, ast.ClassDef)]
    return [
        owner
        for owner in classes
        for method in _methods(owner).values()
        if method.name == "forward" and _takes_self(method)
        if name in (None, "forward", owner.name, f"{owner.name}.forward")
    ]


def module_forward(owner: ast.ClassDef) -> ModuleForward:
    """The forward of a class as a function; `Refusal` where it is none."""
    return _Converter(owner).converted()


def _methods(owner: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in owner.body if isinstance(item, ast.FunctionDef)}


def _takes_self(method: ast.FunctionDef) -> bool:
    return [item.arg for item in parameters(method.args)][:1] == [SELF]


class _Converter:
    """Turns the methods of one class into functions."""

    def __init__(self, owner: ast.ClassDef) -> None:
        self.owner = owner
        self.methods = _methods(owner)
        self.attributes = dict(_attributes(owner, self.methods.get("__init__")))
        self.made: dict[str, ast.FunctionDef] = {}

    def converted(self) -> ModuleForward:
        function = self.function("forward", ())
        del self.made[function.name]
        return ModuleForward(function, self.made)

    def function(self, name: str, running: tuple[str, ...]) -> ast.FunctionDef:
        """The function of a method, made once."""
        full = f"{self.owner.name}.{name}"
        if full in self.made:
            return self.made[full]
        node = copy.deepcopy(self.methods[name])
        node.name = full
        arguments = node.args
        first = arguments.posonlyargs or arguments.args
        del first[0]  # self
        body = _Reader(self, name, (*running, name))
        node.body = [item for item in map(body.visit, node.body) if not _is_alias(item)]
        _check_names(node, body.read)
        for attribute in body.read:
            known = self.attributes.get(attribute, Attribute())
            shown = ast.arg(attribute, known.annotation)
            arguments.kwonlyargs.append(ast.copy_location(shown, body.read[attribute]))
            default = known.default
            if default is None and known.may_lack:
                default = ast.copy_location(ast.Constant(None), node)
            arguments.kw_defaults.append(default)
        self.made[full] = node
        return node


class _Reader(ast.NodeTransformer):
    """Replaces `self.weight` by `weight` in one method; `read` has the attributes in their order, each with a node."""

    def __init__(self, of: _Converter, name: str, running: tuple[str, ...]) -> None:
        self.of, self.name, self.running = of, name, running
        self.read: dict[str, ast.expr] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if not (isinstance(node.value, ast.Name) and node.value.id == SELF):
            self.generic_visit(node)
            return node
        if not isinstance(node.ctx, ast.Load):
            hint = "give the value a name, and return it as an output"
            raise Refusal(node, f"the forward changes 'self.{node.attr}'", hint)
        known = self.of.attributes.get(node.attr)
        if known is not None and known.module is not None:
            shown = ast.unparse(known.module)
            hint = (
                "call what it computes, with parameters of this module: "
                "F.linear(x, self.weight), where __init__ has self.weight = nn.Parameter(...)"
            )
            raise Refusal(node, f"'self.{node.attr}' is another module: {shown}", hint)
        self.read.setdefault(node.attr, node)
        return ast.copy_location(ast.Name(node.attr, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        match node.func:
            case ast.Attribute(ast.Name("self"), name) if name in self.of.methods:
                return self.call(node, name)
            case ast.Attribute(ast.Name("self"), name) if module := self.function_of(
                name
            ):
                node.func = module
                node.args = [self.visit(item) for item in node.args]
                node.keywords = [self.visit(item) for item in node.keywords]
                return node
            case ast.Attribute(ast.Name("self"), name) if (
                name not in self.of.attributes
            ):
                message = (
                    f"'self.{name}' is no method that stands in '{self.of.owner.name}'"
                )
                raise Refusal(node, message, "write out what it computes")
        self.generic_visit(node)
        return node

    def function_of(self, name: str) -> ast.Call | None:
        """The call that makes a module without parameters, all of it said by constants: `nn.GELU()` of `self.act`."""
        known = self.of.attributes.get(name, Attribute())
        module = known.module
        if known.may_lack or not isinstance(module, ast.Call) or not made_of(module):
            return None
        given = [*module.args, *(word.value for word in module.keywords)]
        return copy.deepcopy(module) if all(map(_is_literal, given)) else None

    def call(self, node: ast.Call, name: str) -> ast.expr:
        """A call of a method of the same class, with the attributes that it reads."""
        method = self.of.methods[name]
        if name in self.running or not _takes_self(method):
            what = "calls itself" if name in self.running else "does not take 'self'"
            raise Refusal(node, f"'self.{name}' {what}", "write out what it computes")
        function = self.of.function(name, self.running)
        node.func = ast.copy_location(ast.Name(function.name, ast.Load()), node.func)
        self.generic_visit(node)
        own = {item.arg for item in parameters(method.args)}
        for item in function.args.kwonlyargs:
            if item.arg not in own:
                self.read.setdefault(item.arg, node)
                value = ast.copy_location(ast.Name(item.arg, ast.Load()), node)
                node.keywords.append(ast.keyword(item.arg, value))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in (SELF, "super"):
            hint = "read its attributes: self.weight"
            raise Refusal(node, f"the forward hands '{node.id}' on", hint)
        return node


def _is_literal(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _is_alias(item: ast.stmt) -> bool:
    """Whether a statement was `weight = self.weight`, which says nothing of a function."""
    match item:
        case ast.Assign([ast.Name(name)], ast.Name(read)):
            return name == read
    return False


def _check_names(node: ast.FunctionDef, read: dict[str, ast.expr]) -> None:
    """Refuse a local that is called like an attribute: as names of one function they would be the same."""
    own = {item.arg: item for item in parameters(node.args)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            own.setdefault(inner.id, inner)  # type: ignore[arg-type]
    for name in own.keys() & read.keys():
        message = f"'{name}' is not 'self.{name}' here"
        raise Refusal(own[name], message, f"give '{name}' another name")


# --- What a class says of its attributes.


def _attributes(
    owner: ast.ClassDef, init: ast.FunctionDef | None
) -> Iterator[tuple[str, Attribute]]:
    """The attributes in the body of a class, and those that `__init__` assigns."""
    found: dict[str, Attribute] = {}
    for item in owner.body:
        match item:
            case ast.AnnAssign(ast.Name(name), annotation, value):
                found[name] = Attribute(annotation, value)
            case ast.Assign([ast.Name(name)], ast.Constant() as value):
                found[name] = Attribute(default=value)
    given = init.args if init else None
    annotations = (
        {item.arg: item.annotation for item in parameters(given)} if given else {}
    )
    values = defaults(given) if given else {}
    before = dict[str, ast.expr]()
    for node in ast.walk(init) if init else ():
        for name, value in _assigned(node):
            known = found.get(name, Attribute())
            if isinstance(value, ast.Constant) and value.value is None:
                found[name] = known._replace(may_lack=True)
                continue
            new = _of_value(value, annotations, values)
            if new.module is not None and name in before:  # it is one of two
                either = ast.BoolOp(ast.Or(), [before[name], new.module])
                new = new._replace(module=either)
            lacks = known.may_lack or new.may_lack
            before[name] = value
            found[name] = new._replace(
                may_lack=lacks, annotation=new.annotation or known.annotation
            )
    found.setdefault("training", Attribute(ast.Name("bool", ast.Load())))
    yield from found.items()


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """What a statement of `__init__` makes an attribute of, with its value."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                match target:
                    case ast.Attribute(ast.Name("self"), name):
                        yield name, value
        case ast.AnnAssign(ast.Attribute(ast.Name("self"), name), _, value) if value:
            yield name, value
        case ast.Call(
            ast.Attribute(ast.Name("self"), word), [ast.Constant(str(name)), value, *_]
        ) if (word in REGISTERED):
            kind = ast.Name(REGISTERED[word], ast.Load())
            none = isinstance(value, ast.Constant)
            yield name, (
                value if none else ast.copy_location(ast.Call(kind, [], []), value)
            )


def _of_value(
    value: ast.expr,
    annotations: dict[str, ast.expr | None],
    given: dict[str, ast.expr],
) -> Attribute:
    """What an attribute is that has this value."""
    match value:
        case ast.Name(name) if name in annotations:
            return Attribute(annotations[name], given.get(name))
        case ast.Constant():
            return Attribute(default=value)
        case ast.IfExp(_, body, ast.Constant(None)):
            return _of_value(body, annotations, given)._replace(may_lack=True)
        case ast.IfExp(_, ast.Constant(None), orelse):
            return _of_value(orelse, annotations, given)._replace(may_lack=True)
        case ast.Call(callee):
            dotted = dotted_name(callee) or ""
            last = dotted.rpartition(".")[2]
            if last in KINDS:
                return Attribute(ast.Name(KINDS[last], ast.Load()))
            if last[:1].isupper():
                return Attribute(module=value)
    if any(isinstance(node, ast.Call) for node in ast.walk(value)):
        return Attribute()
    return Attribute(ast.Name("float", ast.Load()))  # `dim**-0.5`: of numbers


# --- How a class starts its parameters and buffers, in the words of torch.nn.init.

MADE = {"ones": "ones", "zeros": "zeros", "rand": "uniform", "randn": "normal"}
FILLED = {"fill": "constant", "zero": "zeros", "normal": "normal", "uniform": "uniform"}
UNSET = frozenset({"empty", "Tensor", "FloatTensor"})
OTHERWISE = "?"  # in a way that none of these words says


def starts(owner: ast.ClassDef) -> dict[str, str]:
    """`{'weight': 'normal(0.0, 0.02)', 'bias': 'zeros'}`, of what `__init__` and the methods it calls on the way say; else `OTHERWISE`."""
    methods, made, filled = _methods(owner), dict[str, str](), dict[str, set[str]]()
    for node in _run(methods, "__init__", ()):
        for name, value in _values(node):
            made[name] = _start_of(value)
        if isinstance(node, ast.Call) and (found := _filled(node)):
            filled.setdefault(found[0], set()).add(found[1])
    for name, every in filled.items():
        made[name] = every.pop() if len(every) == 1 else OTHERWISE
    return {name: start for name, start in made.items() if start}


def _run(
    methods: dict[str, ast.FunctionDef], name: str, running: tuple[str, ...]
) -> Iterator[ast.AST]:
    """Every node of a method, and of those that it calls without arguments, such as `self.reset_parameters()`."""
    for node in ast.walk(methods[name]) if name in methods else ():
        yield node
        match node:
            case ast.Call(ast.Attribute(ast.Name("self"), called), []):
                if called not in (name, *running):
                    yield from _run(methods, called, (*running, name))


def _values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The tensors that a statement makes parameters or buffers of."""
    match node:
        case ast.Call(
            ast.Attribute(ast.Name("self"), word), [ast.Constant(str(name)), value, *_]
        ) if word in REGISTERED and not isinstance(value, ast.Constant):
            yield name, _inside(value)
        case ast.Assign() | ast.AnnAssign():
            for name, value in _assigned(node):
                inner = _inside(value)
                if inner is not value:
                    yield name, inner


def _inside(value: ast.expr) -> ast.expr:
    """The tensor in `nn.Parameter(torch.ones(n))`, also where it is None else; any other value as it is."""
    match value:
        case ast.IfExp(_, one, ast.Constant(None)) | ast.IfExp(
            _, ast.Constant(None), one
        ):
            return _inside(one)
        case ast.Call(callee, [inner, *_]) if (dotted_name(callee) or "").rpartition(
            "."
        )[2] in KINDS:
            return inner
    return value


def _start_of(tensor: ast.expr) -> str:
    """How what makes a tensor starts it; nothing for `torch.empty`, which somebody fills."""
    match tensor:
        case ast.Call(callee, arguments):
            last = (dotted_name(callee) or "").rpartition(".")[2]
            if last in UNSET:
                return ""
            if last in MADE:
                return MADE[last]
            match last, arguments:
                case ("full", [_, ast.expr() as value]) | ("tensor", [value]):
                    return f"constant({_number(value)})"
        case ast.BinOp(one, ast.Mult(), two):
            for factor, other in ((one, two), (two, one)):
                match _start_of(other):
                    case "ones":
                        return f"constant({_number(factor)})"
                    case "normal":
                        return f"normal(0.0, {_number(factor)})"
    return OTHERWISE


def _filled(call: ast.Call) -> tuple[str, str] | None:
    """What `nn.init.normal_(self.weight, std=0.02)` or `self.weight.data.fill_(1)` fills, and with what."""
    dotted, arguments = dotted_name(call.func) or "", call.args
    *owner, last = dotted.split(".")
    word = last.removesuffix("_")
    if "init" in owner and word != last and arguments:
        match arguments:
            case [ast.Attribute(ast.Name("self"), name), *rest]:
                return name, _as_call(word, rest, call.keywords)
    elif owner[:1] == [SELF] and owner[2:] in ([], ["data"]) and word in FILLED:
        return owner[1], _as_call(FILLED[word], arguments, call.keywords)
    return None


def _as_call(word: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> str:
    given = [_number(item) for item in arguments]
    given += [f"{item.arg}={_number(item.value)}" for item in keywords]
    return f"{word}({', '.join(given)})" if given else word


def _number(node: ast.expr) -> str:
    """A number as it is written, a root as a power: `math.sqrt(5)` is `5**0.5`."""
    match node:
        case ast.Call(callee, [root]) if dotted_name(callee) == "math.sqrt":
            return f"{ast.unparse(root)}**0.5"
    return ast.unparse(node)
