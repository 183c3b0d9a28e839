"""Inputs that a Function may take, where its text states no shape: a test tries them in their order.

In: the facts of a Function, and the arguments that its text states. Out: arguments with nothing missing; shapes.
Invariant: what is guessed is a number or a floating tensor; an index, a label, a length or an object is never made up.
"""

import ast
import re
from collections.abc import Sequence

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.samples import Argument, arguments

Shape = tuple[int, ...]

NUMBERS = {"float": "0.5", "int": "2", "bool": "False"}
# Parameters that are numbers wherever they are no tensors.
NUMERIC = re.compile(
    r"(neg\w*_)?(slope|alpha|beta|gamma|sigma|tau|scale|factor|temperature|threshold|width)"
    r"|lam(bda|bd|da)?_?|margin|delta|rho|\w+_(scale|factor|slope|threshold|width|alpha|beta)|alpha_"
)
LOW = re.compile(r"(min|low|lower)(_|$)|_(min|low|lower)$", re.IGNORECASE)
HIGH = re.compile(r"(max|high|upper)(_|$)|_(max|high|upper)$", re.IGNORECASE)
CODES = re.compile(
    r"(^|_)(idx|ind|index|indices|ids?|labels?|targets?|len|lens|lengths?|offsets?|indptr"
    r"|perm|seqlens?|sizes?|shape|counts?|rows?|cols?|batch|size)(_|$)",
    re.IGNORECASE,
)
WEIGHT = re.compile(r"(^|_)(w|weight)s?\d*$", re.IGNORECASE)
BIAS = re.compile(r"(^|_)(b|bias)\d*$", re.IGNORECASE)
LAYERS: tuple[dict[str, Shape], ...] = (
    {"input": (3, 4), "weight": (5, 4), "bias": (5,)},
    {"input": (3, 4), "weight": (4, 4), "bias": (4,)},
    {"input": (2, 3, 6, 6), "weight": (4, 3, 3, 3), "bias": (4,)},
)
ALIKE: tuple[Shape, ...] = ((3, 4), (4, 4), (4,), (2, 3, 4), (2, 3, 4, 4), ())
LEADING: tuple[tuple[Shape, Shape], ...] = (
    ((3, 4), (4,)),
    ((3, 4), ()),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4, 4), (3,)),
)


def guessed(facts: Facts) -> tuple[Argument, ...]:
    """The arguments of a call, with numbers and constant tensors for what is not stated."""
    parameters = {item.name: item for item in facts.inputs}
    return tuple(
        _guess(facts, parameters[item.name], item) if item.kind == "missing" else item
        for item in arguments(facts)
    )


def _guess(facts: Facts, item: Parameter, stated: Argument) -> Argument:
    if item.passing != "positional":
        return stated
    annotation = ast.unparse(item.annotation) if item.annotation is not None else ""
    forward = facts.function.forward
    evident = forward is not None and item.name in facts.values(forward).evident
    if CODES.search(item.name):
        return stated
    if evident or annotation in ("torch.Tensor", "Tensor"):
        if facts.has_gradient(item.name) is None and "mask" not in item.name:
            return Argument(item.name, "tensor")
        return Argument(item.name, "constant", "mask" if "mask" in item.name else "")
    if annotation in ("float", "int", "") and annotation != "int":
        if LOW.search(item.name):
            return Argument(item.name, "value", "0.25")
        if HIGH.search(item.name):
            return Argument(item.name, "value", "0.75")
    if annotation in NUMBERS:
        return Argument(item.name, "value", NUMBERS[annotation])
    if not annotation and NUMERIC.fullmatch(item.name):
        return Argument(item.name, "value", NUMBERS["float"])
    return stated


def shapes_for(names: Sequence[str]) -> tuple[tuple[Shape, ...], ...]:
    """The shapes to try for some tensors, those that their names suggest first."""
    found: list[tuple[Shape, ...]] = []
    roles = [_role(name) for name in names]
    if "weight" in roles:
        found += [tuple(shapes[role] for role in roles) for shapes in LAYERS]
    found += [(shape,) * len(names) for shape in ALIKE[:1]]
    if len(names) > 1:
        rest = len(names) - 1
        found += [(first, *[other] * rest) for first, other in LEADING]
    found += [(shape,) * len(names) for shape in ALIKE[1:]]
    return tuple(dict.fromkeys(found))


def _role(name: str) -> str:
    if WEIGHT.search(name):
        return "weight"
    return "bias" if BIAS.search(name) else "input"
