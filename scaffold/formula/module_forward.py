"""The forward of an `nn.Module` as a function: the attributes it reads of `self` become parameters.

For `--forward '@file.py:Norm'` a user names an `nn.Module`; an op is a function of tensors, so what the module keeps in `self`
becomes its arguments:

    class Norm(nn.Module):                                        def forward(x, *, weight: Parameter[dim],
        def __init__(self, dim, eps=1e-5):                                    eps: float = 1e-5):
            self.weight = nn.Parameter(torch.ones(dim))    ->         return F.normalize(x, eps=eps) * weight
            self.eps = eps
        def forward(self, x):
            return F.normalize(x, eps=self.eps) * self.weight

Words: the *owner* is the class; an attribute is of `self`; a *member* is an inner module, kept as an attribute, `self.up`; a
*layer* is a class of a module, of PyTorch or of the file; `below` is the converter of a member's class; a *number* is a setting
that is no tensor; a parameter or buffer is *started* by its first values (`nn.init`), and *touched* if an unknown use may change
them; `made` is new syntax; `own` are the attributes of the class itself, or the parameters of a method itself; what is *known*
of an attribute are the facts about it; `read` are the attributes that a method reads; the arguments of a call are `given`.

In: the syntax of a file and the class named by '@file.py:Norm'. Out: a function like `forward`, with a keyword-only
parameter for each attribute it reads, annotated from `__init__`: `weight: Parameter[dim]`, `mean: Buffer`,
`eps: float = 1e-5`; the methods it calls, likewise; and the modules in it: for `self.up(x)` with
`self.up = nn.Linear(dim, hidden)` the attributes are `up_weight` and `up_bias`. Invariant: anything impossible in a
function is refused at its place: a change of `self`, a call of a module found neither in the file nor in
`torch_layers.txt`. Positions stay those of the file; new syntax gets the position of the call behind it.

A layer, `nn.Linear(dim, hidden)` or `Norm(dim)`, is a class with the arguments of the call in place of the parameters
of its `__init__`; it gets the parameters of the class around it instead. A class of PyTorch has PyTorch's own
parameters, initial values and result (a test compares them). An unknown call gives None.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scaffold.formula.constant_folding import BINARY, BranchTaker, is_literal
from scaffold.formula.definitions import (
    Definitions,
    defaults,
    dotted_name,
    functions_of,
    imported,
    parameters,
    without_docstring,
)
from scaffold.formula.made_tensors import STARTED, UNSET, elements_of, sizes_of
from scaffold.formula.names import (
    load_of,
    name_nodes,
    names_in,
    numbered,
    stores,
    take,
)
from scaffold.formula.numpy_numbers import FUNCTIONS
from scaffold.formula.operators import called, made_of
from scaffold.formula.optionality import is_none
from scaffold.formula.substitution import placed
from scaffold.formula.text import BUILTINS, Refusal

SEQUENTIAL = ("nn.Sequential", "torch.nn.Sequential")


@cache
def layers() -> Mapping[str, ast.ClassDef]:
    """Return the classes of `torch.nn` that can be members, by name, as syntax: our copies, with `__init__` and forward alone."""
    text = Path(__file__).with_name("torch_layers.txt").read_text("utf-8")
    body = ast.parse(text).body
    return {item.name: item for item in body if isinstance(item, ast.ClassDef)}


@cache
def _module_defaults() -> Mapping[str, Mapping[str, object]]:
    """Return default arguments of the functions in PyTorch's forwards: `{"F.conv2d": {"stride": 1, "padding": 0, ...}}`.

    An argument equal to its default is left out of generated code. They are the defaults in the `__init__` of the module that calls
    the function.
    """
    found = dict[str, dict[str, object]]()
    for layer in layers().values():
        init = functions_of(layer).get("__init__")
        values = defaults(init.args).items() if init else ()
        usual = {name: ast.literal_eval(value) for name, value in values}
        calls = (node for node in ast.walk(layer) if isinstance(node, ast.Call))
        # Also for calls of other functions, `torch.empty`, of which nobody asks.
        found |= {dotted_name(call.func) or "": usual for call in calls}
    return found


def member_class(
    call: ast.Call, file: ast.Module, around: ast.FunctionDef | None
) -> ast.ClassDef | None:
    """Return the class of an inner module, with the arguments of `call` put in place of the parameters of its `__init__`.

    For `nn.Linear(dim, 4 * dim)` its `self.weight` so has the sizes `4 * dim` and `dim`, in the words of the outer module.
    `around` is the `__init__` of the outer module, in which the call stands; the class gets its parameters instead. None
    if the class is unknown, if the arguments do not fit it, or if a name in them could mean something else inside it.
    """
    layer = _class_of(call, file)
    if layer is None or around is None:
        return None
    call = _with_tuples(_without_factory(call, around), around)
    sequential = dotted_name(call.func) in SEQUENTIAL
    found = _sequential(layer, call) if sequential else _instance(layer, call)
    if found is None:
        return None
    later = (node.id for node in stores([around]) if _place(node) > _place(call))
    if names_in([call]).intersection(later):
        return None  # later assignments give these names another meaning
    names = {one.arg for one in parameters(around.args)}.union(
        node.id for node in stores([around])
    )
    init = functions_of(found).get("__init__")
    if init is not None:
        if names.intersection(node.id for node in stores([init])):
            return None  # one name for two values
        init.args = copy.deepcopy(around.args)
    return found


def _with_tuples(call: ast.Call, around: ast.FunctionDef) -> ast.Call:
    """Replace attributes of `self` in a call by their tuples: `Norm(self.patch)` -> `Norm((size, size))`.

    That is after `self.patch = (size, size)` in the function `around`, an `__init__`, if the attribute is assigned once.
    """
    values = dict[str, list[ast.expr]]()
    for node in ast.walk(around):
        for name, value in _assigned(node):
            values.setdefault(name, []).append(value)
    filling = _Filling({})
    for name, (first, *later) in values.items():
        if isinstance(first, ast.Tuple) and not later:
            filling.of_self[name] = first
    filled: ast.Call = filling.visit(copy.deepcopy(call))
    return filled


FACTORY = {"device", "dtype"}  # arguments of functions that create tensors


def _without_factory(call: ast.Call, around: ast.FunctionDef) -> ast.Call:
    """Drop `device` and `dtype` arguments passed on by the outer module, also in `**factory_kwargs`.

    They decide where a parameter is created, not what the forward computes. `around` is the `__init__` with the call.
    """
    keys_of = dict[str, set[str]]()  # the keys of each dict
    for node in ast.walk(around):
        match node:
            case ast.Assign([ast.Name(name)], ast.Dict(keys)):
                # The key of `**other` in a dict is None.
                keys_of[name] = {
                    ast.unparse(key).strip("'") if key else "" for key in keys
                }
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name("dict"), [], words)):
                keys_of[name] = {word.arg or "" for word in words}

    def is_factory(word: ast.keyword) -> bool:
        """Return whether an argument is a passed-on `device` or `dtype`, a None for one, or a dict of nothing else."""
        named = word.value.id if isinstance(word.value, ast.Name) else ""
        if word.arg is None:  # `**factory_kwargs`
            # {""} for an unknown dict: "" is no factory argument, so the dict stays.
            return keys_of.get(named, {""}) <= FACTORY
        return word.arg in FACTORY and (named in FACTORY or is_none(word.value))

    kept = [word for word in call.keywords if not is_factory(word)]
    return ast.copy_location(ast.Call(call.func, call.args, kept), call)


def _class_of(call: ast.Call, file: ast.Module) -> ast.ClassDef | None:
    """Return the class a call makes an instance of: one of the file, or a copy of PyTorch's for `nn.Linear(...)`; else None."""
    # "" for a callee that has no name, `makers[0](dim)`: no class is called so.
    module, _, name = (dotted_name(call.func) or "").rpartition(".")
    if not module:
        found = [item for item in file.body if isinstance(item, ast.ClassDef)]
        return next((item for item in found if item.name == name), None)
    if module not in ("nn", "torch.nn"):
        return None
    # A copy of PyTorch's class, with the place of the call.
    known = layers().get(name)
    return known and placed(copy.deepcopy(known), call)


def _sequential(layer: ast.ClassDef, call: ast.Call) -> ast.ClassDef | None:
    """Return the class of `nn.Sequential(a, b)`: it has modules `0` and `1`, and its forward calls them in order.

    None if an argument is not a call. The numbers are the modules' names in a state dict.
    """
    if call.keywords or not all(isinstance(item, ast.Call) for item in call.args):
        return None
    init, forward = layer.body  # `torch_layers.txt` has these two, both nearly empty
    assert isinstance(init, ast.FunctionDef) and isinstance(forward, ast.FunctionDef)
    (returned,) = forward.body
    assert isinstance(returned, ast.Return) and returned.value is not None
    for at, made in enumerate(map(copy.deepcopy, call.args)):
        assert isinstance(made, ast.Call)
        before = call.args[at - 1] if at else None
        # In place or not is the same for a new tensor, which nothing else reads; the first gets the user's own.
        if isinstance(before, ast.Call) and _makes_new(before):
            made.keywords = [word for word in made.keywords if word.arg != "inplace"]
        member = ast.Attribute(ast.Name("self", ast.Load()), str(at), ast.Store())
        init.body.append(ast.Assign([member], made))
        read = ast.Attribute(ast.Name("self", ast.Load()), str(at), ast.Load())
        returned.value = ast.Call(read, [returned.value], [])
    return placed(layer, call)


def _makes_new(call: ast.Call) -> bool:
    """Return whether the output of a PyTorch module, made by a call, is a new tensor: the next one may change it in place unseen.

    True for modules with a weight, since they compute something; others may return their input.
    """
    name = (dotted_name(call.func) or "").rpartition(".")[2]
    return name in layers() and "self.weight" in ast.unparse(layers()[name])


def _instance(layer: ast.ClassDef, call: ast.Call) -> ast.ClassDef | None:
    """Return a class with the arguments of a call put into its `__init__`.

    `self.scale = scale` of `Norm(0.5)` becomes `self.scale = 0.5`; locals assigned once are replaced too, since the `__init__`
    around may use the same name. None if the class has no forward, if the arguments do not fit the parameters, or if `__init__`
    assigns a parameter anew.
    """
    made = copy.deepcopy(layer)
    methods = functions_of(made)
    if "forward" not in methods:
        return None
    init = methods.get("__init__")
    if init is None:
        return None if call.args or call.keywords else made
    given = _arguments(init.args, call)
    counts = Counter(node.id for node in stores([init]))
    # `dim = dim or 64`: the parameter has two values.
    if given is None or counts.keys() & given.keys():
        return None
    filling, body = _Filling(given), list[ast.stmt]()
    # A generator, so that a local added to `given` below is replaced in the statements after it.
    for item in (new for one in init.body for new in filling.of_statement(one)):
        match item:
            case ast.Assign([ast.Name(name)], value) if counts[name] == 1:
                given[name] = value
                continue
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], value):
                filling.of_self[name] = value
        body.append(item)
    init.body = body or [ast.Pass()]
    return made


def _place(node: ast.expr) -> tuple[int, int]:
    """Return the position of a node, to compare which of two comes first."""
    return node.lineno, node.col_offset


def _arguments(arguments: ast.arguments, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return the argument or default of each parameter of a method but `self`; None if the arguments do not fit."""
    plain = [*arguments.posonlyargs, *arguments.args]
    names = [item.arg for item in plain if item.arg != SELF]
    all_names = {*names, *(item.arg for item in arguments.kwonlyargs)}
    words = {item.arg: item.value for item in call.keywords}
    stars = any(isinstance(item, ast.Starred) for item in call.args)
    # The word of `**options` is None, so it is none of the names either.
    if stars or len(call.args) > len(names) or not words.keys() <= all_names:
        return None
    if arguments.vararg or arguments.kwarg:
        return None
    known = dict(defaults(arguments))
    # Not strict: a call may give the last parameters by keyword, or leave them out.
    known |= dict(zip(names, call.args, strict=False))
    known |= {str(name): value for name, value in words.items()}
    return known if known.keys() >= all_names else None


class _Filling(BranchTaker):
    """A substitution of names, and of numbers held by `self`; it takes branches settled by constants.

    It turns a method of a class into that of one instance: names of `__init__`'s parameters become the arguments of the call.
    """

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        """Prepare to replace the names in `given` by expressions."""
        self.given = given
        self.of_self: dict[str, ast.expr] = {}  # values of attributes of self
        self.configs: Collection[str] = ()  # parameters that hold settings: `config`

    def of_statement(self, item: ast.stmt) -> list[ast.stmt]:
        """Return the statements a statement becomes: those of the branch taken, if it is an `if`."""
        found = self.visit(item)
        return found if isinstance(found, list) else [found]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace a name by a copy of its expression."""
        return copy.deepcopy(self.given.get(node.id, node))

    def visit_Starred(self, node: ast.Starred) -> ast.AST | list[ast.expr]:
        """Write out `*pair(size)` as `size, size`, and `*pair((a, b))` as `a, b`: `pair` is a word of our copies of layers."""
        self.generic_visit(node)
        match node.value:
            case ast.Call(ast.Name("pair"), [ast.Tuple(sizes)]):
                return sizes
            case ast.Call(ast.Name("pair"), [size]):
                return [size, copy.deepcopy(size)]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `self.dim` by the arithmetic assigned to it, and `config.dim` by `dim`."""
        match node:
            case ast.Attribute(
                ast.Name("self"), name, ast.Load()
            ) if name in self.of_self and _is_arithmetic(self.of_self[name], *OF_SIZES):
                return copy.deepcopy(self.of_self[name])
            case ast.Attribute(ast.Name(config), name) if config in self.configs:
                return load_of(name, node)
        self.generic_visit(node)
        return node


# Builtins that give a number for numbers.
NUMBERS = BUILTINS - {"divmod", "isinstance", "len", "list", "range", "sum", "tuple"}


OF_SIZES = (ast.Attribute, ast.Tuple)  # `self.dim`, `(size, size)`
# Arithmetic, with all that `ast` has inside it: also the operators and the contexts of names.
OPERANDS: tuple[type[ast.AST], ...] = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp)
OPERANDS += (ast.operator, ast.unaryop, ast.expr_context)


def _is_arithmetic(value: ast.AST, *more: type[ast.AST]) -> bool:
    """Return whether an expression consists of names, numbers, functions of numbers and nodes of the types `more`.

    Such a value of a setting, `dim ** -0.5`, can be computed again anywhere.
    """
    match value:
        case ast.Call(callee, given, []) if _is_of_numbers(callee):
            return all(_is_arithmetic(item, *more) for item in given)
        case ast.Attribute() if _is_of_numbers(value):  # `math.pi`
            return True
    plain = isinstance(value, (*OPERANDS, *more))
    inside = ast.iter_child_nodes(value)
    return plain and all(_is_arithmetic(x, *more) for x in inside)


def _is_of_numbers(callee: ast.expr) -> bool:
    """Return whether a name is a function, or a constant, of numbers: `max`, `math.sqrt`, `math.pi`."""
    name = dotted_name(callee) or ""
    return name in NUMBERS or name.startswith("math.")


def _is_number(value: ast.AST) -> bool:
    """Return whether every call in an expression gives a number: true for `len(a) * b`, false for `torch.ones(n) * b`.

    Such an attribute is a setting, any other a tensor. An expression without calls counts as a number.
    """
    match value:
        # `torch.finfo(dtype)` itself is read for an attribute that is a number, `.eps`.
        case ast.Call(ast.Attribute(_, "item" | "finfo") | ast.Name("len" | "sum")):
            return True
        case ast.Call(ast.Attribute(ast.Name("np" | "numpy"), name)):
            return name in FUNCTIONS
        case ast.Call(callee):
            return _is_of_numbers(callee)
    return all(map(_is_number, ast.iter_child_nodes(value)))


KINDS = ("Parameter", "Buffer")  # classes of torch.nn, and annotations of that name
TYPED = {"bool": "BoolTensor", "int": "LongTensor"}  # for a tensor that is no buffer
REGISTERED = {"register_parameter": "Parameter", "register_buffer": "Buffer"}
SELF = "self"
# The annotation of a number: only its uses show if it is int or float.
NUMBER = "Number"
AXES = {"dim", "axis"}  # as an argument of an op; in `__init__` sizes have these names
DEEPEST = 8  # nested modules: a module that contains itself never ends


class Attribute(NamedTuple):
    """A class's statements about one attribute, as the annotation and default of a parameter."""

    annotation: ast.expr | None = None
    default: ast.expr | None = None
    module: ast.expr | None = None  # the call that makes it, if it is another module
    optional: bool = False  # it may be None
    argument: str = ""  # the parameter of `__init__` it equals
    value: ast.expr | None = None  # arithmetic over such parameters: `dim ** -0.5`


class ModuleForward(NamedTuple):
    """The function of a forward and the functions it calls, under names no user can write."""

    function: ast.FunctionDef
    methods: dict[str, ast.FunctionDef]

    def beside(self, definitions: Definitions) -> Definitions:
        """Return the definitions of the file with these functions added."""
        added = {**self.methods, self.function.name: self.function}
        return definitions._replace(functions={**definitions.functions, **added})


def modules_named(module: ast.Module, name: str | None) -> list[ast.ClassDef]:
    """Return the classes with a forward `name` means, `Norm`, `forward` or `Norm.forward`; without a name, all of them."""
    classes = [item for item in module.body if isinstance(item, ast.ClassDef)]
    return [
        owner
        for owner in classes
        for method in functions_of(owner).values()
        if method.name == "forward" and _takes_self(method)
        if name in (None, "forward", owner.name, f"{owner.name}.forward")
    ]


def module_forward(
    owner: ast.ClassDef, file: ast.Module, inputs: frozenset[str] = frozenset()
) -> ModuleForward:
    """Return the forward of a class as a function; raise a `Refusal` if it cannot be one.

    `inputs` are the op's declared inputs: a number among them is a parameter, even if it could be computed from a size.
    """
    return _Converter(owner, file, owner.name, inputs).converted()


def with_layer_names(module: ast.Module) -> ast.Module:
    """Return a file with imported layers and functions of `math` under their usual names: `nn.Linear` for `Linear`, `math.cos`.

    That is after `from torch.nn import Linear`. A name also bound by the file itself stays as it is.
    """
    names = {
        item.name: item.dotted.removeprefix("torch.")
        for item in imported(module)
        if _is_renamed(item.dotted)
    }
    for node in ast.walk(module):  # a class, parameter or local may hide an import
        match node:
            case ast.arg(name) | ast.Name(name, ast.Store()):
                names.pop(name, None)
    for item in module.body:
        if isinstance(item, ast.ClassDef):
            names.pop(item.name, None)
    names = {name: usual for name, usual in names.items() if name != usual}
    return _Renamed(names).visit(copy.deepcopy(module)) if names else module


def _is_renamed(dotted: str) -> bool:
    """Return whether an import is `torch.nn`, `math`, a class of `torch.nn`, or a function of `torch.nn.init` or `math`."""
    if dotted in ("torch.nn", "math"):
        return True
    # Classes begin with a capital letter; `torch.nn.functional` does not.
    is_class = dotted.rpartition(".")[2][:1].isupper()
    of_nn = dotted.startswith("torch.nn.") and is_class
    return of_nn or dotted.startswith(("torch.nn.init.", "math."))


class _Renamed(ast.NodeTransformer):
    """A replacement of imported names by dotted names (`names`)."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace an imported name: `Linear` -> `nn.Linear`."""
        if node.id not in self.names:
            return node
        return placed(ast.parse(self.names[node.id], mode="eval").body, node)


class _Returned(ast.NodeTransformer):
    """A replacement of calls of the class's own methods that only return an expression: `self.make_mask(n)`.

    So an `__init__` shows what its attributes are made of.
    """

    def __init__(self, owner: ast.ClassDef) -> None:
        # A static method is called by the name of the class too.
        self.methods, self.receivers = functions_of(owner), {SELF, owner.name}

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace `self.make_mask(n)` by the expression the method returns, if it does nothing else."""
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(ast.Name(before), name) if before in self.receivers:
                return self._result(self.methods.get(name), node) or node
        return node

    def _result(
        self, method: ast.FunctionDef | None, call: ast.Call
    ) -> ast.expr | None:
        """Return the value of a method's only statement, a return, with the arguments put in; None for other methods."""
        match without_docstring(method.body) if method else ():
            case [ast.Return(ast.expr() as value)] if method:
                given = _arguments(method.args, call)
                if given is not None:
                    filled: ast.expr = _Filling(given).visit(copy.deepcopy(value))
                    return placed(filled, call)
        return None


def _init_of(owner: ast.ClassDef) -> ast.FunctionDef | None:
    """Return a copy of `__init__` with the methods it calls without arguments written out; None if the class has none.

    A method with local variables stays a call, since two locals could have one name.
    """
    methods = functions_of(owner)
    init = copy.deepcopy(methods.get("__init__"))
    if init is None:
        return None
    _Returned(owner).visit(init)
    body = list[ast.stmt]()
    for item in init.body:
        match item:
            case ast.Expr(
                ast.Call(ast.Attribute(ast.Name("self"), name), [], [])
            ) if name in methods and not stores([methods[name]]):
                body += copy.deepcopy(methods[name].body)
            case _:
                body.append(item)
    init.body = body
    return init


def _takes_self(method: ast.FunctionDef) -> bool:
    """Return whether the first parameter of a method is `self`; that of a static method is not."""
    return [item.arg for item in parameters(method.args)][:1] == [SELF]


class _Converter:
    """A converter of the methods of one class to functions of the attributes they read.

    Their names begin with the class name, or with `Mlp.up` for a module inside `Mlp`. `attributes` are the facts of the class
    about its attributes; those of inner modules that are read, `up_weight`, are added on the way, while `own` stays.
    """

    def __init__(
        self,
        owner: ast.ClassDef,
        file: ast.Module,
        name: str,
        inputs: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare to convert the methods of `owner`; `name` is its class name, or `Mlp.up` for a module inside `Mlp`."""
        self.owner, self.file, self.name, self.inputs = owner, file, name, inputs
        self.methods, self.init = functions_of(owner), _init_of(owner)
        self.attributes = _attributes(owner, self.init)
        self.own = frozenset(self.attributes)  # without those of inner modules
        # Arguments of `__init__` that are parameters themselves: inner modules or computed numbers read them.
        self.arguments: dict[str, Attribute] = {}
        self.member_of: dict[str, str] = {}  # `up_weight` -> the module `up`
        self.made: dict[str, ast.FunctionDef] = {}  # functions by full name
        self.members: dict[str, _Converter | None] = {}

    def member(self, name: str) -> "_Converter | None":
        """Return the converter of the inner module `self.NAME`; None if its class is unknown, or nested too deep.

        It shares `made`, so that all functions are found in one place.
        """
        if name not in self.members:
            found = member_of(self.owner, self.attributes, name, self.file)
            if found is None or self.name.count(".") > DEEPEST:
                self.members[name] = None
            else:
                below = _Converter(found, self.file, f"{self.name}.{name}")
                below.made = self.made
                self.members[name] = below
        return self.members[name]

    @property
    def is_member(self) -> bool:
        """Return whether the class is that of an inner module: its name has a dot."""
        return "." in self.name

    def converted(self) -> ModuleForward:
        """Return the function of the forward, with the functions of the methods and inner modules it calls."""
        function = self.function("forward", ())
        del self.made[function.name]  # the others are those it calls
        return ModuleForward(function, self.made)

    def function(self, name: str, running: tuple[str, ...]) -> ast.FunctionDef:
        """Return the function of a method, with attributes as keyword-only parameters: `self.weight` -> `weight`.

        It is created once. `running` are the methods whose conversion led here, to notice recursion.
        """
        full = f"{self.name}.{name}"
        if full in self.made:
            return self.made[full]
        node = copy.deepcopy(self.methods[name])
        node.name = full
        arguments = node.args
        first = arguments.posonlyargs or arguments.args
        del first[0]  # self
        aliases = _aliases(node)
        body = _Reader(self, name, (*running, name))
        # `weight = self.weight` is dropped, but visited all the same: it notes the attribute as read.
        visited = [(item in aliases, body.visit(item)) for item in node.body]
        node.body = [item for is_alias, item in visited if not is_alias]
        # Only the forward the user named computes numbers; methods and inner modules get them as arguments.
        computed = {} if self.is_member or running else self.computed(body.read, node)
        _rename_locals(node, body.read.keys() | computed.keys(), body.names)
        lines = [ast.Assign([ast.Name(k, ast.Store())], v) for k, v in computed.items()]
        node.body[:0] = [placed(item, node) for item in lines]
        for attribute in _in_init_order([*body.read], self.init):
            known = self.known(attribute)
            added = ast.arg(attribute, known.annotation)
            arguments.kwonlyargs.append(ast.copy_location(added, body.read[attribute]))
            # An attribute that may be None need not be given.
            none = ast.copy_location(ast.Constant(None), node)
            default = known.default or (none if known.optional else None)
            arguments.kw_defaults.append(default)
        self.made[full] = node
        return node

    def computed(
        self, read: dict[str, ast.expr], method: ast.FunctionDef
    ) -> dict[str, ast.expr]:
        """Return numbers the function can compute itself: `{"scale": dim ** -0.5}`, with `weight.shape[0]` for `dim`.

        Other arguments of `__init__` in such an expression (`added`) become parameters, in place of the number in `read` (names ->
        nodes). If one of them cannot be a parameter, the number itself stays one.
        """
        given = parameters(self.init.args) if self.init else []
        annotations = {item.arg: item.annotation for item in given}
        values = defaults(self.init.args) if self.init else {}
        known = {name: self.known(name) for name in read}
        sizes = dict[str, ast.expr]()
        for name, item in known.items():
            for at, size in enumerate(_sizes_of(item)):
                text = f"{name}.shape[{at}]"
                sizes.setdefault(size, ast.parse(text, mode="eval").body)
        # `margin` for `m` after `self.margin = m`, if the forward reads it.
        named = {x.argument: ast.Name(name, ast.Load()) for name, x in known.items()}
        filled = {**named, **sizes}
        # No new parameters: names of the method's own; `dim`, in `__init__` a size, would be read as a dimension.
        unfit = {item.arg for item in parameters(method.args)} | AXES
        # One that may be None, since None is no operand.
        unfit |= {one for one, default in values.items() if is_none(default)}
        found = dict[str, ast.expr]()
        for name, item in known.items():
            value = item.value if name not in self.inputs else None
            # After `self.p = p` there is nothing to compute: p is a parameter. A size is read: `weight.shape[0]`.
            if value is None or isinstance(value, ast.Name) and value.id not in sizes:
                continue
            unknown = sorted(names_in([value]) - filled.keys() - {*NUMBERS, "math"})
            added = [one for one in unknown if one not in known]
            divided = _is_divided(value, {*added} - values.keys())
            if divided or unfit & {*added} or not all(map(self.keeps, unknown)):
                continue
            found[name] = _Filling(filled).visit(copy.deepcopy(value))
            node = read.pop(name)
            for one in added:
                kind = annotations.get(one)  # none for `dim` of `config.dim`
                number = None if kind or one in values else ast.Name(NUMBER, ast.Load())
                self.arguments[one] = Attribute(kind or number, values.get(one))
                read.setdefault(one, node)
        return found

    def keeps(self, argument: str) -> bool:
        """Return whether an argument of `__init__` can be a parameter of its name: no attribute of another value has this name."""
        known = self.attributes.get(argument, Attribute(argument=argument))
        # An inner module is no parameter of its own name, only its attributes are: `up_weight` for `self.up`.
        return known.module is not None or known.argument == argument

    def known(self, name: str) -> Attribute:
        """Return the class's facts about an attribute or an argument of `__init__`; an empty `Attribute` if there are none."""
        return self.arguments.get(name) or self.attributes.get(name) or Attribute()


def _is_divided(value: ast.expr, unknown: set[str]) -> bool:
    """Return whether a value divides a name without a default by a known number: `width // 8`.

    Generated tests would call the op with `width=0.5`, so the size would be 0. `width // heads` is no such case: of two
    unknown names both are 0.5. `unknown` are the names without a default.
    """
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.FloorDiv | ast.Mod)
        and names_in([node.left]) & unknown
        and not names_in([node.right]) & unknown
        for node in ast.walk(value)
    )


def _sizes_of(item: Attribute) -> list[str]:
    """Return the names of a parameter's sizes, `["dim_4", "dim"]`; [] if unknown, or if the parameter may be None."""
    match item.annotation:
        case ast.Subscript(
            ast.Name("Parameter" | "Buffer" | "BoolBuffer" | "IntBuffer"), sizes
        ) if not item.optional:
            several = sizes.elts if isinstance(sizes, ast.Tuple) else [sizes]
            return [ast.unparse(one) for one in several]
    return []


class _Reader(ast.NodeTransformer):
    """A replacement of `self.weight` by `weight` in one method, for the converter `of` of its class.

    Afterwards `read` maps the attributes, in order of reading, to a node each; calls of methods and members are calls of functions.
    """

    def __init__(self, of: _Converter, name: str, running: tuple[str, ...]) -> None:
        """Prepare to read the method `name` of the class of `of`; `running` are the methods under conversion."""
        self.of, self.name, self.running = of, name, running
        self.read: dict[str, ast.expr] = {}
        self.names: list[ast.Name] = []  # the nodes put in place of attributes

    def named(self, name: str, at: ast.expr) -> ast.Name:
        """Return the node of the parameter for an attribute, and note the attribute as read."""
        self.read.setdefault(name, at)
        self.names.append(load_of(name, at))
        return self.names[-1]

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace `self.weight` by `weight`, `self.up.weight` by `up_weight`, and an inner module's constant by its value.

        Raise a `Refusal` for an assignment and for a module used as a value.
        """
        if ast.unparse(node) in ("self.__class__.__name__", "type(self).__name__"):
            return placed(ast.Constant(self.of.owner.name), node)
        match node.value:
            case ast.Name("self"):
                pass
            case ast.Attribute(ast.Name("self"), owner) if (
                below := self.of.member(owner)
            ) and node.attr in below.attributes:
                return self.of_member(owner, below, node.attr, node)
            case _:
                self.generic_visit(node)
                return node
        # From here it is an attribute of `self`.
        if not isinstance(node.ctx, ast.Load):
            hint = "give the value a name, and return it as an output"
            raise Refusal(node, f"the forward changes 'self.{node.attr}'", hint)
        known = self.of.attributes.get(node.attr)
        # A constant of the user's own module is a setting of the op; one of an inner module is written out.
        if self.of.is_member and known is not None and _is_fixed(known):
            return _constant(known, node)
        if known is not None and known.module is not None:
            raise _other_module(node, node.attr, known.module)
        return self.named(node.attr, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Replace a call of a method, of an inner module or of `self.act` by a call of its function.

        Raise a `Refusal` if nothing is known about the callee, an attribute of `self`.
        """
        match node.func:
            case ast.Attribute(ast.Name("self"), name):
                if name in self.of.methods:
                    return self.call(node, name)
                known = self.of.attributes.get(name)
                if known is None:
                    message = f"'self.{name}' is not a method defined in '{self.of.owner.name}'"
                    raise Refusal(node, message, "write out what it computes")
                if call := self.call_of_function(node, known):
                    return call
                if below := self.of.member(name):
                    return self.call_of_member(node, name, below)
        self.generic_visit(node)
        if self.of.is_member:  # PyTorch's forwards state all arguments
            _leave_out_defaults(node)
        return node

    def call_of_function(self, node: ast.Call, known: Attribute) -> ast.expr | None:
        """Return a call of a module without parameters, `nn.GELU()` for `self.act`, as one of its function; None for others.

        None too unless all arguments that make the module are literals, since they are repeated in each call.
        """
        module = known.module
        if known.optional or not isinstance(module, ast.Call):
            return None
        function = made_of(module)
        given = [*module.args, *(word.value for word in module.keywords)]
        if function is None or not all(map(is_literal, given)):
            return None
        self.read_arguments(node)
        return called(function, copy.deepcopy(module), node)

    def call(self, node: ast.Call, name: str) -> ast.expr:
        """Return a call of a method of the same class as one of its function, with the attributes it reads as keyword arguments.

        Raise a `Refusal` for one that calls itself, or takes no `self`.
        """
        method = self.of.methods[name]
        if name in self.running or not _takes_self(method):
            what = "calls itself" if name in self.running else "does not take 'self'"
            raise Refusal(node, f"'self.{name}' {what}", "write out what it computes")
        function = self.of.function(name, self.running)
        return self.call_with(
            node, function, method, lambda read: self.named(read, node)
        )

    def call_of_member(self, node: ast.Call, name: str, below: _Converter) -> ast.expr:
        """Return a call of the inner module `name` as one of its forward's function, with the attributes it reads as arguments."""
        function, method = below.function("forward", ()), below.methods["forward"]
        return self.call_with(
            node, function, method, lambda read: self.of_member(name, below, read, node)
        )

    def call_with(
        self,
        node: ast.Call,
        function: ast.FunctionDef,
        method: ast.FunctionDef,
        value_of: Callable[[str], ast.expr],
    ) -> ast.expr:
        """Return a call of a method as one of its function, with an argument for each attribute it reads: `value_of` its name."""
        self.read_arguments(node)
        node.func = load_of(function.name, node.func)
        # The method's own keyword-only parameters are given by the call itself.
        own = {item.arg for item in parameters(method.args)}
        for item in function.args.kwonlyargs:
            if item.arg not in own:
                node.keywords.append(ast.keyword(item.arg, value_of(item.arg)))
        return node

    def read_arguments(self, node: ast.Call) -> None:
        """Replace attributes in the arguments of a call, not in its callee."""
        node.args = [self.visit(item) for item in node.args]
        node.keywords = [self.visit(item) for item in node.keywords]

    def of_member(
        self, owner: str, below: _Converter, attribute: str, node: ast.expr
    ) -> ast.expr:
        """Return an inner module's attribute as a parameter of the outer function: `self.up.weight` -> `up_weight`.

        `below` is the converter of the inner module `owner`. A constant is written out; a number from the constructor may keep
        its argument's name. Raise a `Refusal` if the attribute is itself a module, or if the name is in use.
        """
        known = below.attributes.get(attribute) or below.arguments.get(attribute)
        known = known or Attribute()
        if known.module is not None:
            raise _other_module(node, f"{owner}.{attribute}", known.module)
        if _is_fixed(known):
            return _constant(known, node)
        name = f"{owner}_{attribute}"
        # `Norm(eps)` inside: the setting is called `eps`, as in the outer `__init__`.
        if known.argument and self.takes(known, below):
            self.of.arguments[known.argument] = known
            return self.named(known.argument, node)
        if attribute == "training":  # of the whole module
            name = attribute
        # `self.up_weight` beside `self.up.weight`, or `self.a_b.c` beside `self.a.b_c`: one name for two attributes.
        elif name in self.of.own or self.of.member_of.setdefault(name, owner) != owner:
            message = f"the '{attribute}' of 'self.{owner}' would be called '{name}', but another attribute has that name"
            raise Refusal(node, message, f"rename 'self.{owner}'")
        self.of.attributes.setdefault(name, known)
        return self.named(name, node)

    def takes(self, known: Attribute, below: _Converter) -> bool:
        """Return whether an inner module's attribute may have the name of its constructor argument: `eps`, not `norm_eps`.

        The name must mean nothing else: no attribute, no parameter of the method, no size.
        """
        name = known.argument
        method = self.of.methods[self.name]
        annotations = (item.annotation for item in below.attributes.values())
        sizes = " ".join(ast.unparse(kind) for kind in annotations if kind)
        return (
            self.of.keeps(name)
            and name not in {item.arg for item in parameters(method.args)}
            # `Parameter[dim]` of the inner module: there the name is already that of a size.
            and not re.search(rf"\b{name}\b", sizes)
        )

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Raise a `Refusal` for `self` and `super` as values; `self.weight` is replaced before it comes here."""
        if node.id in (SELF, "super"):
            hint = "use its attributes alone: self.weight"
            raise Refusal(node, f"the forward uses '{node.id}' as a value", hint)
        return node


def _other_module(node: ast.expr, name: str, made: ast.expr) -> Refusal:
    """Return the error for a read of `self.name`, a module whose forward is unknown here; `made` is the expression assigned to it."""
    match made:
        case ast.Call(ast.Name(given)) if given[:1].islower():  # from a parameter
            hint = f"name the class in __init__: self.{name} = nn.GELU()"
            message = f"'self.{name}' is unknown: '{given}' makes it"
            return Refusal(node, message, hint)
    message = f"'self.{name}' is another module: {ast.unparse(made)}"
    return Refusal(node, message, _instead_of(name, made))


INSTEAD = {
    "BatchNorm": (
        "write F.batch_norm(x, None, None, self.weight, self.bias, True) in the forward, with "
        "nn.Parameter in __init__; or F.batch_norm(x, self.mean, self.var, self.weight, self.bias) "
        "with buffers, which are read and not updated"
    ),
    "Module": "give each module a name, self.first = nn.Linear(...), or write nn.Sequential(...)",
    "": (
        "call it outside and pass the forward its result; or write out what it "
        "computes, with self.weight = nn.Parameter(...) in __init__"
    ),
}


def _instead_of(name: str, made: ast.expr) -> str:
    """Return a hint: code to write instead of `self.name`, a module with an unknown forward.

    `made` is the expression assigned to it in `__init__`.
    """
    calls = [node for node in ast.walk(made) if isinstance(node, ast.Call)]
    makers = {(dotted_name(call.func) or "").rpartition(".")[2]: call for call in calls}
    for word, call in makers.items():
        if word.startswith("Dropout"):
            same = "which returns its input if p is 0"
            return f"write: self.{name} = {ast.unparse(call)}, {same}"
    # `a or b`: two modules are assigned to it, as in two branches.
    if isinstance(made, ast.IfExp | ast.BoolOp):
        first = ast.unparse(calls[0])
        return f"let __init__ make one of them, for one op each: self.{name} = {first}"
    # Every text begins with "", the last key: it has the general advice.
    known = (word for word in INSTEAD if next(iter(makers), "").startswith(word))
    return INSTEAD[next(known, "")]


def _is_fixed(known: Attribute) -> bool:
    """Return whether an attribute is a constant or None, with no annotation and no argument of `__init__` behind it.

    It is then written out as its value rather than passed as an argument.
    """
    stated = known.annotation or known.module or known.argument
    return not stated and (known.default is not None or known.optional)


def _constant(known: Attribute, at: ast.expr) -> ast.expr:
    """Return the value of an attribute for which `_is_fixed` holds, None if it has no default, at the place of `at`."""
    value = copy.deepcopy(known.default) if known.default else ast.Constant(None)
    return placed(value, at)


def _leave_out_defaults(call: ast.Call) -> None:
    """Drop arguments equal to defaults from a call in one of PyTorch's forwards: no `None` for a bias, no stride of 1."""
    name = dotted_name(call.func) or ""
    # `F.linear(x, weight, None)`: in the functions of F, None is the default of the last positional ones.
    while name.startswith("F.") and call.args and is_none(call.args[-1]):
        del call.args[-1]
    usual = _module_defaults().get(name, {})
    call.keywords = [
        item
        for item in call.keywords
        if not isinstance(item.value, ast.Constant)
        # Without a default the argument itself is compared: it equals no value, so the argument stays.
        or usual.get(item.arg or "", item) != item.value.value
    ]


def _aliases(method: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements `weight = self.weight` and `p, eps = self.p, self.eps`, which say nothing once these are parameters.

    Their targets must not be assigned elsewhere.
    """
    counts = Counter(node.id for node in stores([method]))

    def is_alias(item: ast.stmt) -> bool:
        """Return whether a statement gives attributes their own names as locals: `weight = self.weight`."""
        match item:
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)):
                # Not strict: `a, *b = ...` has a star, and is no alias.
                pairs = zip(targets, values, strict=False)
            case ast.Assign([target], value):
                pairs = zip([target], [value], strict=True)
            case _:
                return False
        return all(
            isinstance(target, ast.Name)
            and counts[target.id] == 1
            and ast.unparse(value) == f"{SELF}.{target.id}"
            for target, value in pairs
        )

    return [item for item in method.body if is_alias(item)]


def _rename_locals(
    function: ast.FunctionDef, read: Collection[str], made: Collection[ast.Name]
) -> None:
    """Rename locals with the name of an attribute, now a parameter; raise for parameters with such a name.

    `read` are the names of the attributes, `made` the nodes put in place of `self.name`: these keep their name, so a local
    `weight` beside `self.weight` becomes `weight2`.
    """
    for item in parameters(function.args):
        if item.arg in read:
            message = f"'{item.arg}' and 'self.{item.arg}' differ, but both would be called '{item.arg}'"
            raise Refusal(item, message, f"give '{item.arg}' another name")
    taken = names_in([function])
    new = {
        name: take(taken, numbered(name, taken))
        for name in sorted({node.id for node in stores([function])} & {*read})
    }
    for node in name_nodes([function]):
        # By identity: a local and an attribute of one name differ as nodes alone.
        if not any(node is one for one in made):
            node.id = new.get(node.id, node.id)


# --- Attributes: the statements of a class about them.


def _attributes(
    owner: ast.ClassDef, init: ast.FunctionDef | None
) -> dict[str, Attribute]:
    """Return the class's statements about each attribute, by its name: in its body, and in `__init__`."""
    return _attributes_and_relations(owner, init)[0]


def _attributes_and_relations(
    owner: ast.ClassDef, init: ast.FunctionDef | None
) -> tuple[dict[str, Attribute], dict[str, str]]:
    """Return the attributes of a class, and the relations between the sizes in their annotations: `{'dim_4': 'dim * 4'}`.

    Of several assignments the last counts, but None only marks the attribute as possibly None, and two modules are
    `one or other`: neither is sure.
    """
    found: dict[str, Attribute] = {}
    for item in owner.body:
        match item:
            case ast.AnnAssign(ast.Name(name), annotation, value):
                found[name] = Attribute(annotation, value)
            case ast.Assign([ast.Name(name)], ast.Constant() as value):
                found[name] = Attribute(default=value)
    given = parameters(init.args) if init else []
    annotations = {item.arg: item.annotation for item in given}
    values = defaults(init.args) if init else {}
    sizes = _Sizes(init)
    changed = set(_changed(init)) if init else set[str]()
    last_value = dict[str, ast.expr]()
    for node in ast.walk(init) if init else ():
        for name, value in _assigned(node):
            known = found.get(name, Attribute())
            if is_none(value):
                found[name] = known._replace(optional=True)
                continue
            facts = _facts_of(value, annotations, values, sizes)
            if facts.module is not None and name in last_value:
                either = ast.BoolOp(ast.Or(), [last_value[name], facts.module])
                facts = facts._replace(module=either)
            # A module changed since its call is no longer described by it: `member_of` leaves out an optional one.
            unlike = facts.module is not None and name in changed
            optional = known.optional or facts.optional or unlike
            last_value[name] = value
            # An annotation in the class body, `scale: float`, holds for the assignment without one.
            found[name] = facts._replace(
                optional=optional, annotation=facts.annotation or known.annotation
            )
    # Every nn.Module has it.
    found.setdefault("training", Attribute(ast.Name("bool", ast.Load())))
    # Each annotation has given its relations by now (`_Sizes.annotation`).
    return found, sizes.relations


def _in_init_order(names: list[str], init: ast.FunctionDef | None) -> list[str]:
    """Sort the attributes named like parameters of `__init__`, or assigned from one, into its order; others keep their places.

    So positional arguments mean the same for the class and for the op's module.
    """
    given = [item.arg for item in parameters(init.args)] if init else []
    turns = {name: given.index(name) for name in names if name in given}
    turns |= {
        name: given.index(value.id)
        for node in (ast.walk(init) if init else ())
        for name, value in _assigned(node)
        if name in names and isinstance(value, ast.Name) and value.id in given
    }
    ordered = iter(sorted(turns, key=turns.__getitem__))
    return [next(ordered) if name in turns else name for name in names]


def _changed(init: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of which `__init__` assigns an attribute: `down` in `self.down.weight = self.up.weight`.

    The call that made them no longer describes them.
    """
    for node in ast.walk(init):
        match node:
            case ast.Attribute(ctx=ast.Store()):
                first, *names = _path(node)
                if first == SELF and len(names) > 1:
                    yield names[0]


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes a statement of `__init__` assigns, with their values.

    `self.register_buffer("mean", x)` assigns `mean`, with the value `Buffer(x)`.
    """
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                match target, value:
                    case ast.Attribute(ast.Name("self"), name), _:
                        yield name, value
                    # `self.a, self.b = a, b`
                    case ast.Tuple(several), ast.Tuple(values):
                        for one, its_value in zip(several, values, strict=False):
                            yield from _assigned(ast.Assign([one], its_value))
        case ast.AnnAssign(ast.Attribute(ast.Name("self"), name), _, value) if value:
            yield name, value
        case ast.Call(
            ast.Attribute(ast.Name("self"), word), [ast.Constant(str(name)), value, *_]
        ) if (word in REGISTERED):
            kind = ast.Name(REGISTERED[word], ast.Load())
            is_constant = isinstance(value, ast.Constant)  # None: no tensor yet
            made = ast.Call(kind, [_inside(value)], [])
            yield name, value if is_constant else ast.copy_location(made, value)


def _facts_of(
    value: ast.expr,
    annotations: dict[str, ast.expr | None],
    given: dict[str, ast.expr],
    sizes: "_Sizes",
) -> Attribute:
    """Return the facts about an attribute assigned in `__init__`, whose parameters have `annotations` and defaults (`given`)."""
    match value:
        case ast.Name(name) if name in annotations:
            # A parameter that `__init__` assigns anew is no longer the argument of its name.
            argument = name if name not in sizes.last else ""
            known = Attribute(annotations[name], given.get(name), argument=argument)
            return known._replace(value=value if argument else None)
        case ast.Attribute(ast.Name(owner), name) if owner in annotations:
            number = ast.Name(NUMBER, ast.Load())  # `config.dim` is one
            return Attribute(number, argument=name, value=load_of(name, value))
        case _ if is_literal(value):
            return Attribute(default=value)
        case ast.IfExp(_, one, ast.Constant(None)) | ast.IfExp(
            _, ast.Constant(None), one
        ):
            return _facts_of(one, annotations, given, sizes)._replace(optional=True)
        case ast.IfExp(_, ast.Call() as one, ast.Call()) if _facts_of(
            one, annotations, given, sizes
        ).module:
            return Attribute(module=value)  # one of two modules
        case ast.Call(ast.Name(name)) if name in annotations:
            return Attribute(module=value)  # `act()` of a parameter `act`, a class
        case ast.Call(callee):
            dotted = dotted_name(callee) or ""
            last = dotted.rpartition(".")[2]
            # Before the test for a class: `nn.Parameter` is one, but no module.
            if last in KINDS:
                kind = "Buffer" if _is_frozen(value) else last
                tensor = _inside(value)
                elements = elements_of(tensor, sizes.locals) if kind == "Buffer" else ""
                return Attribute(sizes.annotation(f"{elements.title()}{kind}", tensor))
            if last[:1].isupper():  # a class is called
                return Attribute(module=value)
    made = sizes.locals.get(value.id, value) if isinstance(value, ast.Name) else value
    if not _is_number(made):
        typed = TYPED.get(elements_of(made, sizes.locals))
        return Attribute(ast.Name(typed, ast.Load()) if typed else None)
    computed = sizes.over_arguments(value)
    return Attribute(ast.Name(NUMBER, ast.Load()), value=computed)  # `dim**-0.5`


def size_relations(
    owner: ast.ClassDef, file: ast.Module, deep: int = 0
) -> dict[str, str]:
    """Return relations between the sizes of parameters, inner modules included: `{'dim_4': 'dim * 4'}`.

    `dim_4` is the name given to the size `4 * dim`. `deep` counts the modules around this one.
    """
    attributes, found = _attributes_and_relations(owner, _init_of(owner))
    for name in attributes if deep < DEEPEST else ():
        layer = member_of(owner, attributes, name, file)
        # `dim_4` says the same in all modules: the sizes of inner ones are in the words of `owner`.
        found |= size_relations(layer, file, deep + 1) if layer else {}
    return found


def _is_frozen(parameter: ast.Call) -> bool:
    """Return whether a parameter has no gradient: `nn.Parameter(torch.ones(n), requires_grad=False)`.

    It is treated as a buffer. `requires_grad` is the second argument of Parameter.
    """
    keywords = {item.arg: item.value for item in parameter.keywords}
    # Two more items, so that there is a second one also without arguments.
    stated = keywords.get("requires_grad", [*parameter.args, None, None][1])
    return isinstance(stated, ast.Constant) and stated.value is False


def constructor_names(owner: ast.ClassDef) -> tuple[str, ...]:
    """Return the parameters of a class's constructor in order, without `self`."""
    init = _init_of(owner)
    return tuple(item.arg for item in parameters(init.args))[1:] if init else ()


def attribute_names(owner: ast.ClassDef) -> frozenset[str]:
    """Return the attributes a class declares, not the ones of inner modules (`up_weight`)."""
    return frozenset(_attributes(owner, _init_of(owner)))


def member_of(
    owner: ast.ClassDef, attributes: dict[str, Attribute], name: str, file: ast.Module
) -> ast.ClassDef | None:
    """Return the class of the module `owner` keeps as `self.NAME`, with its arguments filled in; None if unknown.

    `attributes` are those of `owner`; one that may be None has no sure class.
    """
    known = attributes.get(name, Attribute())
    if known.optional or not isinstance(known.module, ast.Call):
        return None
    return member_class(known.module, file, _init_of(owner))


# Parts of the names of sizes: `dim_per_heads` for `dim // heads`.
WORDS = {ast.Mult: "", ast.FloorDiv: "per_", ast.Add: "plus_", ast.Sub: "less_"}


class _Sizes:
    """The names of sizes in an `__init__`: `dim_4` for `4 * dim`, for annotations such as `Parameter[dim_4, dim]`.

    `last` has the place of the last assignment of each local, `names` all locals and parameters, `values` the values assigned to
    attributes, `locals` those of locals with one value.
    """

    def __init__(self, init: ast.FunctionDef | None) -> None:
        """Collect the values assigned in an `__init__`."""
        made = stores([init] if init else [])
        self.last = {node.id: _place(node) for node in sorted(made, key=_place)}
        given = parameters(init.args) if init else []
        self.names = self.last.keys() | {item.arg for item in given}
        self.values: dict[str, list[ast.expr]] = {}
        self.locals: dict[str, ast.expr] = {}
        self.relations: dict[str, str] = {}  # `dim_4` -> `dim * 4`
        counts = Counter(node.id for node in made)
        for node in ast.walk(init) if init else ():
            for name, value in _assigned(node):
                self.values.setdefault(name, []).append(value)
            match node:
                case ast.Assign([ast.Name(name)], value) if counts[name] == 1:
                    self.locals[name] = value
        if init:
            self.locals |= dict(_rebound(init, counts, self.last))

    def over_arguments(self, value: ast.expr) -> ast.expr | None:
        """Return a value as arithmetic over the parameters of `__init__`; None if it is anything else.

        Attributes of `self` and locals in it are first replaced by their values. `config.dim` becomes `dim`, unless
        `dim` is another parameter. A parameter assigned again in `__init__` (`last`) has no one value.
        """
        filling = _Filling({**self.locals})
        # The value of an attribute assigned twice (`more`) is not known.
        filling.of_self = {
            name: one for name, (one, *more) in self.values.items() if not more
        }
        found: ast.expr = value
        for _ in range(
            DEEPEST
        ):  # a value may read other attributes, but not without end
            found = filling.visit(copy.deepcopy(found))
        inside = [node for node in ast.walk(found) if isinstance(node, ast.Attribute)]
        settings = {node.attr for node in inside}  # `dim` of `config.dim`
        arguments = self.names - self.last.keys()
        if not settings & self.names:  # else `dim` alone would mean another value
            filling.configs = arguments
        found = filling.visit(found)
        names = names_in([found]) - {*NUMBERS, "math"}
        known = names <= arguments | settings
        return found if known and _is_arithmetic(found, ast.Tuple) else None

    def annotation(self, kind: str, tensor: ast.expr) -> ast.expr:
        """Return the annotation of a parameter or buffer with the sizes of `tensor`: `Parameter[out_features, in_features]`.

        `kind` is the word before the brackets. The sizes are left out unless each is a name or a number.
        """
        sizes = [self._size_name(item) for item in sizes_of(tensor, self.locals)]
        known = sizes and all(sizes)
        text = f"{kind}[{', '.join(sizes)}]" if known else kind
        return ast.parse(text, mode="eval").body

    def _size_name(self, node: ast.expr) -> str:
        """Return the name of a size: `hidden`, `8`, `dim_4` for `4 * dim`, and record the last as `dim_4 = dim * 4` in `relations`.

        `config.dim` is called `dim`. Empty for other expressions, and if another size could have the same name.
        """
        match node:
            case ast.Name(name):
                # Assigned again further down, the name has another value at the end. A parameter is assigned before all.
                return "" if self.last.get(name, (0, 0)) > _place(node) else name
            case ast.Attribute(ast.Name("self"), name):
                values = self.values.get(name, [])
                if len(values) != 1:  # never set, or set to several values
                    return ""
                # After `self.hidden = 4 * dim` it is `hidden`, unless a parameter or a local has the name already.
                has_own_name = isinstance(values[0], ast.Name)  # `self.hidden = dim`
                if has_own_name or name in self.names:
                    return self._size_name(values[0])
                return name
            case ast.Attribute(ast.Name(config), name) if config in self.names:
                return "" if name in self.names or config in self.last else name
            case ast.Constant(int(value)):
                return str(value)
            case ast.Call(ast.Name("int"), [ast.BinOp(op=ast.Mult()) as product]):
                before = dict(self.relations)
                called = self._size_name(product)
                # Without its relation: `ratio` may be no integer in `int(dim * ratio)`.
                self.relations = before
                return called
            case ast.BinOp(left, operator, right) if type(operator) in WORDS:
                if isinstance(left, ast.Constant) and isinstance(operator, ast.Mult):
                    left, right = right, left
                return self._composed_name(left, type(operator), right)
        return ""

    def _composed_name(
        self, left: ast.expr, operator: type[ast.operator], right: ast.expr
    ) -> str:
        """Return the name of an operation on two sizes, `dim_4` for `dim * 4`, and record the relation; "" as `_size_name` does."""
        one, two = self._size_name(left), self._size_name(right)
        # `n // n` is 1, `n // 1` is n: no name of their own.
        if operator is ast.FloorDiv and one and two in (one, "1"):
            return one if two == "1" else "1"
        called = f"{one}_{WORDS[operator]}{two}"
        # `8_dim` is no name; and `a_b_c` is the name of `(a * b) * c`, not of `a * (b * c)`.
        known = one.isidentifier() and two and not isinstance(right, ast.BinOp)
        if not known or called in self.names:
            return ""
        self.relations[called] = f"{one} {BINARY[operator]} {two}"
        return called


def _rebound(
    init: ast.FunctionDef, counts: Counter[str], last: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield names assigned twice, each with one value for both assignments.

    After `mask = torch.ones(n, n)` and `mask = mask.triu(1)` it is `torch.ones(n, n).triu(1)`. A name read between the two
    assignments is left out (`early`); the value of the second stands behind its target, so reading there is not early.
    """
    names = [node for node in ast.walk(init) if isinstance(node, ast.Name)]
    loads = [node for node in names if isinstance(node.ctx, ast.Load)]
    early = {x.id for x in loads if x.id in last and _place(x) < last[x.id]}
    first = dict[str, ast.expr]()
    for item in init.body:
        match item:
            case ast.Assign([ast.Name(name)], value) if name in first:
                yield name, _Filling({name: first[name]}).visit(copy.deepcopy(value))
            case ast.Assign([ast.Name(name)], value) if (
                counts[name] == 2 and name not in early
            ):
                first[name] = value


# --- Initialization of parameters and buffers, in the words of torch.nn.init: the op's module repeats it.

FILLED = {
    "fill_": "constant",
    "zero_": "zeros",
    "normal_": "normal",
    "uniform_": "uniform",
}
OTHERWISE = "?"  # none of these words describes it


def starts(owner: ast.ClassDef, file: ast.Module, deep: int = 0) -> dict[str, str]:
    """Return the initialization of each parameter: `{'weight': 'normal(0.0, 0.02)', 'bias': 'zeros'}`.

    It is read from `__init__` and the methods it calls, a later fill replacing the tensor's first values; `OTHERWISE` if it is
    something else. `deep` counts the modules around this one.
    """
    found = _member_starts(owner, file, deep) if deep < DEEPEST else {}
    reader = _Starts(owner)
    reader.run("__init__")
    found |= {name: _only(texts) for name, texts in reader.made.items()}
    for touched in reader.touched:  # these parameters may be refilled
        prefix = f"{touched}_" if touched else ""  # `up` touches `up_weight`, "" all
        names = [name for name in found if name == touched or name.startswith(prefix)]
        found |= dict.fromkeys(names, OTHERWISE)
    # Last: a fill counts more than other uses of the parameter.
    found |= {name: _only(texts) for name, texts in reader.filled.items()}
    return {name: start for name, start in found.items() if start}


def _only(texts: set[str]) -> str:
    """Return the one initialization a parameter has; OTHERWISE if there are several, in branches for example."""
    return next(iter(texts)) if len(texts) == 1 else OTHERWISE


# Reading these attributes of a parameter does not change it; `visit_Call` notes what `requires_grad_` does.
READ = {"shape", "size", "numel", "dim", "ndim", "device", "dtype", "requires_grad"}
READ |= {"requires_grad_"}


class _Starts(ast.NodeVisitor):
    """A reader of the creation and filling of parameters in the methods of a class.

    `made` and `filled` are the initializations by creation and by a later fill, as text for each parameter; `touched` are the
    parameters used in another way, which may change them, "" for all of them; `tests` are those of the `if` statements around, and
    `made_under` those a parameter was created under, as text.
    """

    def __init__(self, owner: ast.ClassDef) -> None:
        """Prepare to read how the methods of a class create and fill its parameters."""
        self.methods = functions_of(owner)
        init = _init_of(owner)
        self.methods |= {"__init__": init} if init else {}
        self.attributes = _attributes(owner, init)
        self.running: list[str] = []
        self.tests: list[ast.expr] = []
        self.made: dict[str, set[str]] = {}
        self.made_under: dict[str, set[str]] = {}
        self.filled: dict[str, set[str]] = {}
        self.touched: set[str] = set()

    def run(self, name: str) -> None:
        """Read a method, such as `reset_parameters`; skip recursive calls."""
        if name in self.methods and name not in self.running:
            self.running.append(name)
            for item in self.methods[name].body:
                self.visit(item)
            self.running.pop()

    def visit_If(self, node: ast.If) -> None:
        """Visit both branches and remember the test: a parameter filled under it may be left unfilled."""
        self.visit(node.test)
        self.tests.append(node.test)
        for item in (*node.body, *node.orelse):
            self.visit(item)
        self.tests.pop()

    def visit_Assign(self, node: ast.Assign | ast.AnnAssign) -> None:
        """Note the parameters an assignment creates; an assignment to a part of one, `self.weight[0] = 1`, touches it."""
        self.make(node)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if len(_path(target)) != 2:  # except `self.weight` itself, created here
                self.visit(target)
        if node.value:
            self.visit(node.value)

    visit_AnnAssign = visit_Assign

    def make(self, node: ast.AST) -> None:
        """Note the initialization of the parameters a statement creates, by the tensor in `nn.Parameter(...)`."""
        for name, value in _values(node):
            inside = (x for x in ast.walk(node) if isinstance(x, ast.IfExp))
            # `nn.Parameter(torch.ones(n)) if bias else None`
            choices = (choice.test for choice in inside if is_none(choice.orelse))
            # Created in both branches of a test, it exists whatever the test gives.
            under = () if name in self.made else (*self.tests, *choices)
            self.made_under[name] = {*map(ast.unparse, under)}
            self.made.setdefault(name, set()).add(_start_of(value))

    def visit_Call(self, node: ast.Call) -> None:
        """Note parameters created or filled by a call; follow methods of the class, `self.reset_parameters()`.

        A parameter changed again after its fill, or filled under a test about anything but its presence, gets `OTHERWISE`.
        """
        self.make(node)
        filled = dict(_filled(node))
        for name, start in filled.items():
            # Under any other test it may stay unfilled.
            sure = all(self.is_presence(test, name) for test in self.tests)
            self.filled.setdefault(name, set()).add(start if sure else OTHERWISE)
        match node.func:
            case ast.Attribute(ast.Call() as above):  # `normal_(self.weight).mul_(2)`
                for name in dict(_filled(above)):
                    self.filled.setdefault(name, set()).add(OTHERWISE)
                self.visit(above)
            # `self.apply(init)` or `self.up.requires_grad_(False)` may change all that is below.
            case ast.Attribute(owner, word) if (
                word in WALKS or word == "requires_grad_" and _freezes(node)
            ) and _path(owner)[0] == SELF:
                self.touched.add(_attribute(owner))
            case ast.Attribute(ast.Name("self"), name):
                self.run(name)  # others create a parameter or a module
            # `nn.init._calculate_fan_in_and_fan_out(self.weight)` only reads the sizes.
            case callee if not filled and "_calculate_fan" not in ast.unparse(callee):
                self.visit(callee)
            case _:
                return  # its arguments are filled, or only their sizes are read
        for item in (*node.args, *node.keywords):
            self.visit(item)

    def is_presence(self, test: ast.expr, name: str) -> bool:
        """Return whether a test holds whenever a parameter exists: `self.bias is not None`, or `bias` if it was created under it.

        A fill under such a test is never left out. `name` is the op's name of the parameter.
        """
        inside = (x for x in ast.walk(test) if isinstance(x, ast.Attribute))
        created = ast.unparse(test) in self.made_under.get(name, ())
        return created or name in map(_attribute, inside)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Skip a comparison with None, as in `self.bias is not None`: it touches no parameter."""
        if not any(map(is_none, node.comparators)):
            self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Mark a parameter as touched if it is read in an unknown way, `f(self.weight)`, or if `requires_grad` is set."""
        first, *names = _path(node)
        if first != SELF:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Store) and names[-1] == "requires_grad":
            self.touched.add("_".join(names[:-1]))
        elif names[-1] not in READ:  # `self.weight.shape` changes nothing
            known = self.attributes.get(names[0], Attribute())
            # A setting with a literal value, `self.eps`, is no parameter.
            if known.module or known.default is None:
                self.touched.add(_attribute(node))

    def visit_Name(self, node: ast.Name) -> None:
        """Mark all parameters as touched if `self` is passed on as a whole."""
        if node.id == SELF:
            self.touched.add("")


def _freezes(call: ast.Call) -> bool:
    """Return whether a call of `requires_grad_` has an argument other than True: it may take the gradient off a parameter."""
    given = [*call.args, *(item.value for item in call.keywords)]
    return any(not isinstance(x, ast.Constant) or x.value is not True for x in given)


def _member_starts(owner: ast.ClassDef, file: ast.Module, deep: int) -> dict[str, str]:
    """Return the initialization of the parameters of inner modules, `{"up_weight": "zeros"}` for `self.up`.

    `deep` counts the modules around this one, so that a module inside itself comes to an end.
    """
    attributes = _attributes(owner, _init_of(owner))
    found = dict[str, str]()
    for name in attributes:
        layer = member_of(owner, attributes, name, file)
        inner = starts(layer, file, deep + 1) if layer else {}
        found |= {f"{name}_{one}": start for one, start in inner.items()}
    return found


def _values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the parameters and buffers a statement creates, each with the tensor in `nn.Parameter(...)`."""
    match node:
        case ast.Call(
            ast.Attribute(ast.Name("self"), word), [ast.Constant(str(name)), value, *_]
        ) if word in REGISTERED and not isinstance(value, ast.Constant):
            yield name, _inside(value)
        case ast.Assign() | ast.AnnAssign():
            for name, value in _assigned(node):
                inner = _inside(value)
                # Only `nn.Parameter(...)` and `nn.Buffer(...)` have a tensor inside; any other value is none.
                if inner is not value:
                    yield name, inner


def _inside(value: ast.expr) -> ast.expr:
    """Return the tensor in `nn.Parameter(torch.ones(n))`, also with `if bias else None` after it; else the value itself."""
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
    """Return the initialization done by a constructor: `normal(0.0, 0.02)` for `0.02 * torch.randn(n)`.

    It is "" for `torch.empty`, to be filled later, and `OTHERWISE` if no word of torch.nn.init describes it.
    """
    match tensor:
        case ast.Call(callee, arguments):
            last = (dotted_name(callee) or "").rpartition(".")[2]
            if last in UNSET:
                return ""
            if last in STARTED:
                return STARTED[last]
            match last, arguments:
                case ("full", [_, value]) | ("tensor", [value]):
                    return f"constant({_number(value)})"
        case ast.BinOp(one, ast.Mult(), two):
            for factor, other in ((one, two), (two, one)):
                match _start_of(other):
                    case "ones":
                        return f"constant({_number(factor)})"
                    case "zeros":
                        return "zeros"
                    case "normal":
                        return f"normal(0.0, {_number(factor)})"
    return OTHERWISE


def _filled(call: ast.Call) -> Iterator[tuple[str, str]]:
    """Yield the parameter a call fills, with the initialization.

    The call is `nn.init.normal_(self.weight, std=0.02)` or `self.weight.data.fill_(1)`. The initialization is text such as
    `normal(std=0.02)`, and OTHERWISE for any other change in place.
    """
    match call:
        case ast.Call(ast.Attribute(owner, last), arguments, keywords) if (
            last.endswith("_") and last != "requires_grad_"
        ):
            pass
        case _:
            return
    if "init" in _path(owner):
        for name in filter(None, map(_attribute, arguments[:1])):
            yield name, _as_text(last.removesuffix("_"), arguments[1:], keywords)
    elif name := _attribute(owner):
        known = last in FILLED
        yield name, _as_text(FILLED[last], arguments, keywords) if known else OTHERWISE


# Methods of a module that give out, or change, all its parameters.
WALKS = {"apply", "parameters", "named_parameters", "modules", "named_modules"}
WALKS |= {"children", "named_children", "state_dict", "load_state_dict"}


def _attribute(node: ast.expr) -> str:
    """Return the op's name for a parameter, given its attribute: `net_2_weight` for `self.net[2].weight.data`.

    Empty if it is no attribute of `self`.
    """
    first, *names = _path(node)
    return "_".join(name for name in names if name != "data") if first == SELF else ""


def _path(node: ast.expr) -> tuple[str, ...]:
    """Return the parts of a path: `self`, `net`, `2`, `weight` for `self.net[2].weight`; one empty part for anything else."""
    match node:
        case ast.Attribute(value, name):
            return (*_path(value), name)
        case ast.Subscript(value, ast.Constant(int(at))):
            return (*_path(value), str(at))
        case ast.Name(name):
            return (name,)
    return ("",)


def _as_text(word: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> str:
    """Return an initialization as text: `normal(0.0, std=0.02)`, or `zeros` without arguments."""
    given = [_number(item) for item in arguments]
    given += [f"{item.arg}={_number(item.value)}" for item in keywords]
    return f"{word}({', '.join(given)})" if given else word


def _number(node: ast.expr) -> str:
    """Return the source of a number, a root as a power: `5**0.5` for `math.sqrt(5)`."""
    match node:
        case ast.Call(callee, [root]) if dotted_name(callee) == "math.sqrt":
            return f"{ast.unparse(root)}**0.5"
    return ast.unparse(node)
