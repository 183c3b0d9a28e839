"""How a parameter starts: the functions of torch.nn.init.

In: `uniform(-0.1, 0.1)`, or a bare `zeros`. Out: an `Init`.
Invariant: the function exists, its arguments are arithmetic of numbers or one of its own words, and it takes them.
"""

import ast
import re
import warnings
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.model import Dim, Init

CALL = re.compile(r"\s*(?P<name>\w+)\s*(?:\((?P<arguments>[^\n]*)\))?\s*")
WORDS = frozenset({"mode", "nonlinearity"})  # arguments that are strings
EXAMPLE = "write: uniform(-0.1, 0.1), or another function of torch.nn.init"


class Function(NamedTuple):
    """Arguments after the tensor, how many of them it needs, and the ranks it is made for."""

    arguments: tuple[str, ...] = ()
    needed: int = 0
    ranks: tuple[int, int] | None = None


KAIMING = Function(("a", "mode", "nonlinearity"), ranks=(2, 99))
XAVIER = Function(("gain",), ranks=(2, 99))
FUNCTIONS = {
    "constant": Function(("val",), needed=1),
    "dirac": Function(("groups",), ranks=(3, 5)),
    "eye": Function(ranks=(2, 2)),
    "fan_in_uniform": Function(),
    "kaiming_normal": KAIMING,
    "kaiming_uniform": KAIMING,
    "normal": Function(("mean", "std")),
    "ones": Function(),
    "orthogonal": Function(("gain",), ranks=(2, 99)),
    "sparse": Function(("sparsity", "std"), needed=1, ranks=(2, 2)),
    "trunc_normal": Function(("mean", "std", "a", "b")),
    "uniform": Function(("a", "b")),
    "xavier_normal": XAVIER,
    "xavier_uniform": XAVIER,
    "zeros": Function(),
}
OTHER_NAMES = {
    "glorot": "xavier_uniform",
    "he": "kaiming_normal",
    "kaiming": "kaiming_uniform",
    "rand": "uniform",
    "randn": "normal",
    "xavier": "xavier_uniform",
}


def parse_init(
    parameter: str, text: str, start: Location, dims: tuple[Dim, ...] | None
) -> Init:
    """Read how a parameter starts; `dims` is its shape where that is known."""
    match = CALL.fullmatch(text)
    if match is None:
        raise ScaffoldError(
            f"'{' '.join(text.split())}' is no initialisation", start, EXAMPLE
        )
    place = start.shifted(0, match.start("name"))
    name = match["name"]
    known = name if name in FUNCTIONS else name.removesuffix("_")
    function = FUNCTIONS.get(known)
    if function is None:
        raise _unknown(name, place)
    written = (match["arguments"] or "").strip().removesuffix(",").rstrip()
    at = match.start("arguments") + _indent(match["arguments"] or "")
    inside = start.shifted(0, max(at, match.start("name")))
    _check_arguments(known, function, written, inside)
    if function.ranks and dims is not None and "..." not in dims:
        _check_rank(parameter, known, function.ranks, len(dims), place)
    return Init(parameter, known, written)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _unknown(name: str, place: Location) -> ScaffoldError:
    other = OTHER_NAMES.get(name.lower())
    hint = f"did you mean '{other}'?" if other else did_you_mean(name, FUNCTIONS)
    hint = hint or f"one of: {', '.join(FUNCTIONS)}"
    return ScaffoldError(f"unknown initialisation '{name}'", place, hint)


def _check_arguments(
    name: str, function: Function, written: str, place: Location
) -> None:
    """Every argument is known, given once, and a number or a word."""
    call = _call(name, written, place)
    problems: list[ScaffoldError] = []
    given = list(function.arguments[: len(call.args)])
    for value in call.args[len(function.arguments) :]:
        message = f"{name} takes {_count(len(function.arguments), 'argument')}"
        problems.append(ScaffoldError(message, _at(value, place)))
    for keyword in call.keywords:
        label = keyword.arg or "**"
        if label not in function.arguments:
            hint = did_you_mean(label, function.arguments)
            message = f"{name} has no argument '{label}'"
            problems.append(ScaffoldError(message, _at(keyword, place), hint))
        elif label in given:
            message = f"{name} gets '{label}' twice"
            problems.append(ScaffoldError(message, _at(keyword, place)))
        given.append(label)
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    for label, value in zip(given, values, strict=False):
        fits = _is_word(value) if label in WORDS else _is_number(value)
        if label in function.arguments and not fits:
            kind = "string" if label in WORDS else "number"
            message = f"{ast.unparse(value)} is no {kind}"
            hint = "write numbers, as in a=5**0.5" if kind == "number" else None
            problems.append(ScaffoldError(message, _at(value, place), hint))
    for label in set(function.arguments[: function.needed]) - set(given):
        hint = f"write: {name}({label}=0.1)"
        problems.append(ScaffoldError(f"{name} needs '{label}'", place, hint))
    raise_all(problems)


def _call(name: str, written: str, place: Location) -> ast.Call:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # '\d' and the like
            tree = ast.parse(f"f({written})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    whole = len(f"f({written})".encode())  # nothing stands behind it, no comment either
    match tree:
        case ast.Call(ast.Name("f"), end_col_offset=end) if end == whole <= 200:
            return tree
    message = f"'{name}({written})' is no initialisation"
    raise ScaffoldError(message, place, EXAMPLE)


def _at(node: ast.expr | ast.keyword, place: Location) -> Location:
    return place.shifted(0, max(node.col_offset - len("f("), 0))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _is_word(value: ast.expr) -> bool:
    match value:
        case ast.Constant(str() as word):
            return word.isidentifier()
    return False


def _is_number(value: ast.expr) -> bool:
    """A number, or arithmetic of numbers."""
    match value:
        case ast.Constant(int() | float() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_number(operand)
        case ast.BinOp(
            left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow(), right
        ):
            return _is_number(left) and _is_number(right)
    return False


def _check_rank(
    parameter: str, name: str, ranks: tuple[int, int], rank: int, place: Location
) -> None:
    low, high = ranks
    if low <= rank <= high:
        return
    wanted = f"{low}" if low == high else f"{low} to {high}"
    wanted = f"at least {low}" if high == 99 else wanted
    message = f"{name} is for {wanted} dimensions, '{parameter}' has {rank}"
    hint = "write uniform(...), normal(...), zeros or fan_in_uniform"
    raise ScaffoldError(message, place, hint)
