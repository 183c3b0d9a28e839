"""The layers that a module makes in its `__init__`, `self.up = nn.Linear(dim, hidden)`: each as a class with the parameters of that call.

In: `nn.Linear(dim, hidden)` or `Norm(dim)` in the `__init__` of a class, and the file. Out: a class whose `__init__` has what the
call gives in the place of its parameters, so that it takes those of the class around it. Invariant: a class of PyTorch has the
parameters, the start and the result of PyTorch's own (a test compares them); what is not known of a call is None.
"""

import ast
import copy
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from scaffold.formula.definitions import defaults, dotted_name, parameters

# What PyTorch's modules compute, in the words of a module of one's own. `fan_in_uniform` is the start of a bias.
LAYERS = """
class Linear(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.empty(out_features)) if bias else None
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        nn.init.fan_in_uniform_(self.bias)

    def forward(self, input):
        return F.linear(input, self.weight, self.bias)


class LayerNorm(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5, *, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape)) if bias else None

    def forward(self, input):
        return F.layer_norm(input, self.weight.shape, self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    def __init__(self, normalized_shape, eps=None):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(normalized_shape))

    def forward(self, input):
        return F.rms_norm(input, self.weight.shape, self.weight, self.eps)


class Sequential:
    def __init__(self):
        pass

    def forward(self, input):
        return input


class Identity:
    def forward(self, input):
        return input
"""

Syntax = TypeVar("Syntax", bound=ast.AST)
SEQUENTIAL = ("nn.Sequential", "torch.nn.Sequential")


@cache
def _layers() -> Mapping[str, ast.ClassDef]:
    body = ast.parse(LAYERS).body
    return {item.name: item for item in body if isinstance(item, ast.ClassDef)}


def member_class(
    call: ast.Call, file: ast.Module, around: ast.FunctionDef | None
) -> ast.ClassDef | None:
    """The class that a call in the `__init__` `around` it makes a module of, with what the call gives; None where it is not known."""
    layer = _class_of(call, file)
    if layer is None or around is None:
        return None
    in_turn = dotted_name(call.func) in SEQUENTIAL
    found = _in_turn(layer, call) if in_turn else _instance(layer, call)
    if found is None:
        return None
    for item in found.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            if _stored(item) & {one.arg for one in parameters(around.args)}:
                return None  # two things of one name
            item.args = copy.deepcopy(around.args)
    return found


def _class_of(call: ast.Call, file: ast.Module) -> ast.ClassDef | None:
    module, _, name = (dotted_name(call.func) or "").rpartition(".")
    if not module:
        found = [item for item in file.body if isinstance(item, ast.ClassDef)]
        return next((item for item in found if item.name == name), None)
    if module not in ("nn", "torch.nn"):
        return None
    known = _layers().get(name)
    return known and placed(copy.deepcopy(known), call)


def _in_turn(layer: ast.ClassDef, call: ast.Call) -> ast.ClassDef | None:
    """`nn.Sequential(a, b)` as a class with a forward; its modules are called by their numbers, as in a state dict."""
    if call.keywords or not all(isinstance(item, ast.Call) for item in call.args):
        return None
    init, forward = layer.body
    assert isinstance(init, ast.FunctionDef) and isinstance(forward, ast.FunctionDef)
    (returned,) = forward.body
    assert isinstance(returned, ast.Return) and returned.value is not None
    for at, made in enumerate(call.args):
        member = ast.Attribute(ast.Name("self", ast.Load()), str(at), ast.Store())
        init.body.append(ast.Assign([member], copy.deepcopy(made)))
        read = ast.Attribute(ast.Name("self", ast.Load()), str(at), ast.Load())
        returned.value = ast.Call(read, [returned.value], [])
    return placed(ast.fix_missing_locations(layer), call)


def placed(found: Syntax, at: ast.AST) -> Syntax:
    """Syntax that stands in no text of the user's, where something stands that does."""
    for node in ast.walk(found):
        if hasattr(node, "lineno"):
            ast.copy_location(node, at)
        if isinstance(node, ast.Constant):
            node.end_lineno = node.lineno + 1  # it is not spelled there
    return found


def _instance(layer: ast.ClassDef, call: ast.Call) -> ast.ClassDef | None:
    """The class with what a call gives it in its `__init__`."""
    made = copy.deepcopy(layer)
    methods = {
        item.name: item for item in made.body if isinstance(item, ast.FunctionDef)
    }
    if "forward" not in methods:
        return None
    init = methods.get("__init__")
    if init is None:
        return None if call.args or call.keywords else made
    given = _given(init.args, call)
    if given is None or _stored(init) & given.keys():
        return None
    init.body = [item for one in init.body for item in _filled_in(one, given)]
    return made


def _stored(init: ast.FunctionDef) -> set[str]:
    """The names that it assigns."""
    names = [node for node in ast.walk(init) if isinstance(node, ast.Name)]
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _given(arguments: ast.arguments, call: ast.Call) -> dict[str, ast.expr] | None:
    """The parameters of an `__init__` with what a call gives, or their defaults; None where it does not fit."""
    _, *plain = [*arguments.posonlyargs, *arguments.args]
    names = [item.arg for item in plain]
    every = {*names, *(item.arg for item in arguments.kwonlyargs)}
    words = {item.arg: item.value for item in call.keywords}
    stars = any(isinstance(item, ast.Starred) for item in call.args)
    if stars or len(call.args) > len(names) or not words.keys() <= every:
        return None
    if arguments.vararg or arguments.kwarg:
        return None
    known = dict(defaults(arguments))
    known |= dict(zip(names, call.args, strict=False))
    known |= {str(name): value for name, value in words.items()}
    return known if known.keys() >= every else None


def _filled_in(item: ast.stmt, given: Mapping[str, ast.expr]) -> list[ast.stmt]:
    """A statement with these in the place of names, and without choices that they decide."""
    found = _Filling(given).visit(item)
    return found if isinstance(found, list) else [found]


class _Filling(ast.NodeTransformer):
    """Puts expressions in the place of names, and takes the branch that a constant decides."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.given.get(node.id, node))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        held = _holds(node.test)
        return node if held is None else node.body if held else node.orelse

    def visit_If(self, node: ast.If) -> ast.If | list[ast.stmt]:
        self.generic_visit(node)
        held = _holds(node.test)
        return node if held is None else node.body if held else node.orelse


def _holds(test: ast.expr) -> bool | None:
    """Whether a test holds; None where constants do not tell."""
    match test:
        case ast.Constant(value):
            return bool(value)
        case ast.UnaryOp(ast.Not(), inner):
            held = _holds(inner)
            return None if held is None else not held
        case ast.BoolOp(operator, values):
            every = [_holds(value) for value in values]
            decides = isinstance(operator, ast.Or)
            if decides in every:
                return decides
            return None if None in every else not decides
    return None
