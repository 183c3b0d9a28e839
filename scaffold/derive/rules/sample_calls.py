"""Read samples and domains of the rule table: calls to check a rule with, and the range of their values.

In: their text, `x[3, 4], dim=-1` and `positive; not 1`. Out: a `Sample` by parameter, a `Domain`; None for unreadable text.
Invariant: no value is drawn here: that takes torch, so tests and `scaffold rules check` do it.

Words: a kink is a value at which a function has no derivative, so that test values avoid it.
"""

import ast
import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.derive.rules.call_bindings import Spelling, bind
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Graph, Node, Scope, Text, parse

NAMED = frozenset(
    {"any", "positive", "nonzero", "unit", "simplex", "spd", "distinct"}
    | {"invertible", "lower", "bool", "sign"}
)
_INDEX = re.compile(r"index\((\d+)\)$")
_INTERVAL = re.compile(r"\((-?[\d.]+), (-?[\d.]+)\)$")


class Drawn(NamedTuple):
    """A tensor of a sample, to be filled with random values: `x[3, 4]`."""

    name: str
    sizes: tuple[int, ...]


class Several(NamedTuple):
    """A tuple of tensors in a sample."""

    items: tuple["Argument", ...]


Argument = Drawn | Several | Node
Sample = dict[str, Argument]


class Domain(NamedTuple):
    """The range of test values: a word of `NAMED`, "index" or "interval", its bounds, and values to avoid (`kinks`)."""

    within: str = "any"
    bounds: tuple[float, float] = (0, 0)
    kinks: tuple[Node, ...] = ()


def read_sample(text: str, spelled: Spelling, graph: Graph) -> Sample | None:
    """Return the arguments of a sample call by parameter: `x[3, 4], dim=-1` -> `Drawn("x", (3, 4))` for x; None if they do not fit."""
    try:
        tree = ast.parse(f"f({text})", mode="eval").body
        # `x) + f(y` as the text.
        if not isinstance(tree, ast.Call):
            return None
        positional = [_argument(item, graph) for item in tree.args]
        keywords = {
            str(item.arg): _argument(item.value, graph) for item in tree.keywords
        }
    except (SyntaxError, ValueError, ScaffoldError):
        return None
    return bind(spelled, positional, keywords, _collected)


def _argument(item: ast.expr, graph: Graph) -> Argument:
    """Return one argument of a sample: a `Drawn` for `x[3, 4]`, a `Several` for a tuple of them, the expression for a Python value."""
    match item:
        case ast.Subscript(ast.Name(name), sizes):
            found = ast.literal_eval(sizes)
            return Drawn(name, found if isinstance(found, tuple) else (found,))
        case ast.Tuple(items) if any(isinstance(part, ast.Subscript) for part in items):
            return Several(tuple(_argument(part, graph) for part in items))
    node = parse(
        Text(ast.unparse(item), Location("sample")), Scope(frozenset()), graph
    ).result
    assert node is not None  # without `targets` a formula has a result
    return node


def _collected(items: Sequence[Argument]) -> Argument:
    """Return the value of a starred parameter from the arguments left for it: the only one, or a tuple of several."""
    return items[0] if len(items) == 1 else Several(tuple(items))


def read_domain(text: str, names: frozenset[str], graph: Graph) -> Domain | None:
    """Return the domain of test values in a text: `"positive; not 1"` is positive numbers, away from 1. None if it is invalid.

    `names` are the parameters a value to avoid may be computed from.
    """
    first, *rest = (part.strip() for part in text.split(";"))
    kinks = []
    for part in rest:
        if not part.startswith("not "):
            return None
        place = Location("domain")
        try:
            kink = parse(Text(part[4:], place), Scope(names), graph).result
        except ScaffoldError:
            return None
        if kink is not None:
            kinks.append(kink)
    if first in NAMED:
        return Domain(first, kinks=tuple(kinks))
    if found := _INDEX.match(first):
        return Domain("index", (0, int(found[1])), tuple(kinks))
    if found := _INTERVAL.match(first):
        bounds = (float(found[1]), float(found[2]))
        return Domain("interval", bounds, tuple(kinks))
    return None
