"""The module of an op: which inputs it owns, how they start and change.

In: `module`, `params`, `buffers`, `update` and `init` of a raw mapping. Out: a `ModuleSpec`, or None.
Invariant: what a list or table names is an input that the module can own.
"""

import ast
from collections.abc import Mapping
from functools import partial
from typing import Any

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.formula import Formula, Graph, Scope, Text, parse
from scaffold.spec.arguments import Arguments, tensor_names
from scaffold.spec.config import Configuration
from scaffold.spec.model import Init, ModuleSpec
from scaffold.spec.problems import Problems

INITS = frozenset(
    {"constant", "dirac", "eye", "fan_in_uniform", "kaiming_normal", "kaiming_uniform"}
    | {"normal", "ones", "orthogonal", "sparse", "trunc_normal", "uniform"}
    | {"xavier_normal", "xavier_uniform", "zeros"}
)


def read_module(
    raw: Mapping[str, Any],
    arguments: Arguments,
    graph: Graph,
    configuration: Configuration,
    problems: Problems,
) -> ModuleSpec | None:
    """The module's side of the op; None where the user wants none."""
    if raw.get("module") is False:
        for key in ("params", "buffers", "update", "init"):
            if raw.get(key):
                problems.at((key,), f"'{key}' is for a module, and module is off")
        return None
    buffers = tensor_names("buffers", arguments.inputs, raw, problems)
    parameters = _parameters(raw, arguments, buffers, configuration, problems)
    _check_owned(raw, arguments, parameters, buffers, problems)
    return ModuleSpec(
        parameters,
        buffers,
        _updates(raw, arguments, graph, buffers, problems),
        _inits(raw, (*parameters, *buffers), problems),
    )


def _parameters(
    raw: Mapping[str, Any],
    arguments: Arguments,
    buffers: tuple[str, ...],
    configuration: Configuration,
    problems: Problems,
) -> tuple[str, ...]:
    if "params" in raw:
        return tensor_names("params", arguments.inputs, raw, problems)
    usual = set(configuration.parameter_names) - set(buffers) - set(arguments.dirty)
    kept = [
        item.name
        for item in arguments.tensors
        if item.name in usual and item.differentiable and not item.variadic
    ]
    return tuple(kept) if len(kept) < len(arguments.tensors) else ()


def _check_owned(
    raw: Mapping[str, Any],
    arguments: Arguments,
    parameters: tuple[str, ...],
    buffers: tuple[str, ...],
    problems: Problems,
) -> None:
    known = {item.name: item for item in arguments.tensors}
    for name in parameters:
        if name in buffers:
            problems.at(("params",), f"'{name}' is a parameter and a buffer")
        if name in arguments.dirty:
            problems.at(
                ("params",),
                f"'{name}' is changed in place, which a parameter cannot be",
            )
        if known[name].dtype not in ("float", "complex"):
            problems.at(("params",), f"'{name}' is not floating: make it a buffer")
    for name in buffers:
        if known[name].optional:
            problems.at(("buffers",), f"'{name}' may be None, which a buffer cannot be")
    if raw.get("params") and len({*parameters, *buffers}) == len(known):
        problems.at(("params",), "the module would own every tensor and take none")


def _updates(
    raw: Mapping[str, Any],
    arguments: Arguments,
    graph: Graph,
    buffers: tuple[str, ...],
    problems: Problems,
) -> tuple[tuple[str, Formula], ...]:
    names = frozenset(item.name for item in arguments.inputs)
    optional = frozenset(item.name for item in arguments.tensors if item.optional)
    found = []
    for name, value in raw.get("update", {}).items():
        path = ("update", name)
        if name not in buffers:
            hint = (
                did_you_mean(name, buffers)
                or f"name it in buffers: buffers = ['{name}']"
            )
            problems.at_key(path, f"'{name}' is no buffer", hint)
            continue
        formula = _formula(
            Text(value, problems.within(path)), Scope(names, optional), graph, problems
        )
        if formula is not None:
            found.append((name, formula))
    return tuple(found)


def _formula(
    text: Text, scope: Scope, graph: Graph, problems: Problems
) -> Formula | None:
    return problems.attempt(lambda: parse(text, scope, graph))


def _inits(
    raw: Mapping[str, Any], owned: tuple[str, ...], problems: Problems
) -> tuple[Init, ...]:
    found = []
    for name, text in raw.get("init", {}).items():
        path = ("init", name)
        if name not in owned:
            hint = (
                did_you_mean(name, owned) or f"name it in params: params = ['{name}']"
            )
            problems.at_key(path, f"'{name}' is no parameter of the module", hint)
            continue
        item = problems.attempt(partial(_init, name, text, problems.within(path)))
        found += [item] if item else []
    return tuple(found)


def _init(name: str, text: str, place: Location) -> Init:
    """`uniform(-0.1, 0.1)`, or a bare `zeros`."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ScaffoldError(f"'{text}' is no initialisation", place, _hint()) from None
    call = tree if isinstance(tree, ast.Call) else None
    function = call.func if call else tree
    if not isinstance(function, ast.Name):
        raise ScaffoldError(f"'{text}' is no initialisation", place, _hint())
    if function.id not in INITS:
        bare = function.id.rstrip("_")
        close = bare if bare in INITS else None
        hint = f"did you mean '{close}'?" if close else did_you_mean(function.id, INITS)
        hint = hint or f"one of: {', '.join(sorted(INITS))}"
        raise ScaffoldError(f"unknown initialisation '{function.id}'", place, hint)
    return Init(
        name, function.id, _arguments(call, text.strip(), place) if call else ""
    )


def _hint() -> str:
    return "write: uniform(-0.1, 0.1), or another function of torch.nn.init"


def _arguments(call: ast.Call, text: str, place: Location) -> str:
    """The arguments as they stand, after a look at each: arithmetic of numbers, or a word."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    named = all(keyword.arg for keyword in call.keywords)
    for value in values:
        if not _is_literal(value) or not named:
            message = f"'{ast.unparse(value)}' is no number"
            raise ScaffoldError(message, place, "write numbers, as in a=5**0.5")
    start = text.index("(") + 1
    return text[start : text.rindex(")")].strip().rstrip(",")


def _is_literal(value: ast.expr) -> bool:
    """A number, arithmetic of numbers, or a string such as 'fan_in'."""
    match value:
        case ast.Constant(constant):
            return isinstance(constant, int | float | str) and "\n" not in str(constant)
        case ast.UnaryOp(ast.USub(), operand):
            return _is_literal(operand)
        case ast.BinOp(
            left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow(), right
        ):
            return _is_literal(left) and _is_literal(right)
    return False
