"""Bind the arguments of a call to the parameters of a primitive: `torch.sum(x, -1)` -> `{"x": x, "dim": -1}`.

`graph/application` finds a rule for a call by it, `sample_calls` reads samples of rules.

In: the `call` and `also` of a rule, as text. Out: `Spelling`s, and the arguments of a call by parameter. Invariant: a call that
does not fit a spelling is not guessed at: it has no binding.

Words: a head is the text of a spelling, `torch.exp(x)`, or a bare name, `torch.exp`; a starred parameter (`*sizes`) takes several
arguments; a bar is `*_`, behind which parameters are passed by keyword only. An argument is `bound` once its parameter is known.
"""

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from scaffold.errors import Location
from scaffold.formula import Graph, Node, Scope, Text, parse
from scaffold.primitives import Kind, key_of
from scaffold.primitives.spelling import ROOTS, is_bar, is_bare

Value = TypeVar("Value")


class Parameter(NamedTuple):
    """A parameter of a primitive; a starred one takes all remaining positional arguments, or one tuple.

    With a default, or as `keyword`, it is printed as a keyword argument.
    """

    name: str
    default: Node | None = None  # None: it must be given
    starred: bool = False
    keyword: bool = False


class Spelling(NamedTuple):
    """One way to write a primitive: `torch.exp`, the method `exp`, the attribute `mT`, the operator `+`."""

    kind: Kind
    name: str
    parameters: tuple[Parameter, ...]


def spelling(head: str, call: str, graph: Graph) -> Spelling | None:
    """Return the spelling a `head` describes, the `call` of a rule or an entry of `also`; None if it describes none.

    A bare head, as `torch.exp`, has the parameters of `call`.
    """
    key = key_of(head, call)
    parameters = _parameters(call if is_bare(head) else head, graph)
    if key is None or parameters is None:
        return None
    return Spelling(*key, parameters)


def _parameters(call: str, graph: Graph) -> tuple[Parameter, ...] | None:
    """Return the parameters in the text of a call, an operator, an index or an attribute; None for any other text.

    As in Python, parameters behind a star, written `*_`, are passed by keyword only.
    """
    try:
        tree = ast.parse(call, mode="eval").body
    except SyntaxError:
        return None
    match tree:
        case ast.Call(function, args, keywords):
            first = _receiver(function)
            found = [_parameter(item) for item in [*first, *args] if not is_bar(item)]
            bar = next((item.col_offset for item in args if is_bar(item)), len(call))
            # `ast` gives arguments and keywords apart: the column tells which stand behind the bar.
            found += [_keyword(item, graph, item.col_offset > bar) for item in keywords]
        case ast.BinOp(left, _, right) | ast.Compare(left, _, [right]):
            found = [_parameter(left), _parameter(right)]
        case ast.Subscript(value, index):
            found = [_parameter(value), _parameter(index)]
        case ast.UnaryOp(_, value) | ast.Attribute(value):
            found = [_parameter(value)]
        case _:
            return None
    parameters = [item for item in found if item]
    names = {item.name for item in parameters}
    # None if a part is no parameter, or a name stands twice.
    return tuple(parameters) if len(names) == len(found) else None


def _receiver(function: ast.expr) -> list[ast.expr]:
    """Return the tensor a method is called on, as a list: `x` for `x.sum`; empty for a function, `torch.sum`."""
    match function:
        case ast.Attribute(ast.Name(name) as value) if name not in ROOTS:
            return [value]
    return []


def _parameter(item: ast.expr) -> Parameter | None:
    """Return the parameter for `x` or `*sizes`; None for other text."""
    match item:
        case ast.Name(name):
            return Parameter(name)
        case ast.Starred(ast.Name(name)):
            return Parameter(name, starred=True)
    return None


def _keyword(item: ast.keyword, graph: Graph, alone: bool) -> Parameter | None:
    """Return the parameter for `dim=None`, with its default; None for `**others`. `...` as default: it must be given, by keyword.

    `alone` says whether it may be passed by keyword only.
    """
    if item.arg is None:
        return None
    if isinstance(item.value, ast.Constant) and item.value.value is ...:
        return Parameter(item.arg, keyword=True)
    value = Text(ast.unparse(item.value), Location("call"))
    default = parse(value, Scope(frozenset()), graph).result
    return Parameter(item.arg, default, keyword=alone)


def bind(
    spelling: Spelling,
    positional: Sequence[Value],
    keywords: Mapping[str, Value],
    collect: Callable[[Sequence[Value]], Value],
) -> dict[str, Value] | None:
    """Return a call's arguments by parameter; None if the call does not fit the spelling.

    The first argument of a method or an attribute is the tensor before the dot. `collect` makes one value of the arguments for a
    starred parameter. Parameters left to their defaults are missing from the result.
    """
    bound: dict[str, Value] = {}
    at, count = 0, len(positional)
    for item in spelling.parameters:
        if item.starred and at < count:
            bound[item.name], at = collect(positional[at:]), count
        elif at < count and not item.keyword:
            bound[item.name] = positional[at]
            at += 1
    if at < count:  # too many arguments
        return None
    if keywords:
        known = {item.name for item in spelling.parameters}
        if keywords.keys() - known or keywords.keys() & bound.keys():
            return None
        bound.update(keywords)
    for item in spelling.parameters:
        if item.default is None and item.name not in bound:
            return None
    return bound
