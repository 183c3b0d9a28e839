"""Formulas of rules in torch: a small interpreter, and a reference for each word.

`rule_runs.py` computes with it the gradient a rule states, to compare it with autograd's.
In: the parsed text of a formula, values by name. Out: its value.
Words: a *word* is a function of the rule language that PyTorch lacks, as `sum_to(grad, x)`; the compiler has its own version of each, and
those here say independently what it means (`BUILDERS` in `table.py` lists them). An unused result has the number 0 as its cotangent.
Invariant: nothing here uses the engine; only the text of a formula counts.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scaffold.derive.rules.call_bindings import Spelling, bind
from scaffold.derive.rules.table import Rule, Table
from scaffold.formula import ARITHMETIC, COMPARISONS, Assign, Node, literal_value

Values = dict[str, Any]
OPERATORS = {**ARITHMETIC, **COMPARISONS, "@": operator.matmul}
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "not": operator.not_,
}
# Builtins of formulas, and builtins that a rule is about.
BUILTINS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "len": len}
PYTHON = {"abs": abs, "round": round, "pow": pow}
IMPORTED: dict[str, Any] = {}  # the user's functions with rules


def reduced(x: Tensor, dim: Any) -> list[int]:
    """Return the dims of a reduction, counted from 0 and sorted; all of them for None or ().

    A tensor without dims has none to reduce, though PyTorch takes dim 0 and -1 for it.
    """
    if x.ndim == 0 or dim is None or dim == ():
        return list(range(x.ndim))
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    return sorted(item % x.ndim for item in dims)


def restore(g: Tensor, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Return a reduced tensor with its reduced dims again, of size 1, so it broadcasts with x."""
    if not keepdim:
        for item in reduced(x, dim):
            g = g.unsqueeze(item)
    return g


def moved(x: Tensor, dim: int, by: int) -> Tensor:
    """Shift a tensor by one step along a dim, towards its end if `by` is 1, else (-1) to its begin; fill the free place with a 1.

    The gradients of cumulative products are written with it: of `cumprod` shifted, each element has the product of those before it.
    """
    size = x.shape[dim]
    rest = x.narrow(dim, 0 if by == 1 else 1, size - 1)
    one = torch.ones_like(x.narrow(dim, 0, 1))
    return torch.cat((one, rest) if by == 1 else (rest, one), dim)


def padding(x: Tensor, dim: int, before: int, after: int) -> list[int]:
    """Return the argument of `F.pad` to pad one dim: pairs of numbers, from the last dim of x on."""
    return [0, 0] * (x.ndim - 1 - dim % x.ndim) + [before, after]


def inverse_permutation(dims: Any) -> list[int]:
    positive = [item % len(dims) for item in dims]
    return [positive.index(place) for place in range(len(dims))]


def negated(numbers: Any) -> Any:
    several = isinstance(numbers, tuple | list)
    return tuple(-item for item in numbers) if several else -numbers


def equation(x: Tensor, y: Tensor, dims: Any) -> str:
    """Return the einsum equation of `torch.tensordot(x, y, dims)`: for matrices and 1 dim "ab,bd->ad"."""
    n = dims if isinstance(dims, int) else 0
    # A number n means: the last n dims of x with the first n of y.
    pairs = dims if not isinstance(dims, int) else (range(x.ndim - n, x.ndim), range(n))
    # By each contracted dim of y: the dim of x that it is summed with.
    places = {at % y.ndim: other % x.ndim for other, at in zip(*pairs, strict=True)}
    names = "abcdefghijklmnop"
    of_x = names[: x.ndim]
    of_y = [names[places.get(at, x.ndim + at)] for at in range(y.ndim)]
    kept = [item for at, item in enumerate(of_x) if at not in places.values()]
    kept += [item for at, item in enumerate(of_y) if at not in places]
    return f"{of_x},{''.join(of_y)}->{''.join(kept)}"


def number_at(numbers: Any, at: int) -> Any:
    """Return the number for the dim `at`: one of several, or the one for all dims, `2` or `(2,)`."""
    several = isinstance(numbers, tuple | list)
    return numbers[at if len(numbers) > 1 else 0] if several else numbers


def default_eps(x: Tensor) -> float:
    """Return the `eps` of `F.rms_norm` if none is given: by x's dtype, but at most float32's."""
    return min(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps)


def sum_repeats(g: Tensor, x: Tensor, repeats: Any) -> Tensor:
    """Return the gradient of x for g, that of `x.repeat(repeats)`: the sum over all copies."""
    # Reshaped to (times, size) of each dim, the copies lie along the even dims.
    ndim = max(x.ndim, len(repeats))
    times = [1] * (ndim - len(repeats)) + list(repeats)
    sizes = [1] * (ndim - x.ndim) + list(x.shape)
    pairs = [part for pair in zip(times, sizes, strict=True) for part in pair]
    total = g.reshape(pairs).sum(list(range(0, 2 * ndim, 2)))
    return total.reshape(x.shape)


AT_LEAST: dict[int, Callable[..., Any]] = {
    1: torch.atleast_1d,
    2: torch.atleast_2d,
    3: torch.atleast_3d,
}
REFERENCE: dict[str, Callable[..., Any]] = {  # by word: its meaning in plain PyTorch
    "expand_back": lambda g, x, dim, keep: restore(g, x, dim, keep).expand(x.shape),
    "restore": restore,
    "sum_to": lambda g, x: g.sum_to_size(x.shape),
    # Expanded along dims longer in x, summed along shorter ones.
    "fit_to": lambda g, x: g.expand_as(g.detach() + x.detach()).sum_to_size(x.shape),
    "reshape_as": lambda g, x: g.reshape(x.shape),
    "expand_as": lambda g, x: g.expand(x.shape),
    "zeros": lambda g, x: g.new_zeros(x.shape),
    "cast_as": lambda g, x: g.to(x.dtype),
    "cast_back": lambda g, x: g.to(x.dtype),
    "widened": lambda x, g: x.to(torch.promote_types(x.dtype, g.dtype)),
    "count": lambda x, dim: math.prod(x.shape[item] for item in reduced(x, dim)),
    "shape": lambda x: x.shape,
    "size": lambda x, dim: x.shape[dim],
    "dtype": lambda x: x.dtype,
    "rank": lambda x: x.ndim,
    "whole": lambda x: x.dtype == torch.long,
    "excludes": lambda x, value: False,  # a result of torch.arange is treated as any tensor
    "class_dim": lambda x: min(1, x.ndim - 1),
    "sum_repeats": sum_repeats,
    "channels": lambda weight, x: weight.reshape([-1] + [1] * (x.ndim - 2)),
    "trailing": lambda sizes: tuple(range(-len(sizes), 0)),
    "leading": lambda x: tuple(range(x.ndim - 1)),
    "moved": moved,
    "padding": padding,
    "negated": negated,
    "inverse_permutation": inverse_permutation,
    "number_at": number_at,
    "asked": lambda length: None if length == -1 else length,
    "default_eps": default_eps,
    "equation": equation,
    "chain": lambda tensors: reduce(torch.matmul, tensors),
    "grids": lambda tensors, indexing: torch.meshgrid(*tensors, indexing=indexing),
    "batched": lambda x, rank: x.reshape(-1, *x.shape[-rank:]),
    "columns": lambda tensors: [x[:, None] if x.ndim == 1 else x for x in tensors],
    "at_least": lambda tensors, rank: AT_LEAST[rank](*tensors),
}


def named(dotted: str) -> Any:
    """Return the function or constant of a dotted name in a rule: `F.relu`, `math.pi`, `abs`, or an imported function of the user's."""
    if dotted in IMPORTED:
        return IMPORTED[dotted]
    if dotted in PYTHON:
        return PYTHON[dotted]
    roots: dict[str, Any] = {"torch": torch, "F": F, "math": math}
    root, *rest = dotted.split(".")
    found = roots[root]
    for part in rest:
        found = getattr(found, part)
    return found


def called(spelled: Spelling, values: Mapping[str, Any]) -> Any:
    """Make the call of a rule as it is spelled, with values by parameter; a parameter without a value is left out."""
    positional: list[Any] = []
    keywords: Values = {}
    for item in spelled.parameters:
        if item.name not in values:
            continue
        value = values[item.name]
        # Those with a default by keyword: one before them may have been left out.
        if item.default is not None or item.keyword:
            keywords[item.name] = value
        else:
            # `*sizes` of a rule stands for several arguments of the call.
            several = item.starred and isinstance(value, tuple | list)
            positional += value if several else [value]
    return applied(spelled, positional, keywords)


def applied(
    spelled: Spelling, positional: list[Any], keywords: Mapping[str, Any]
) -> Any:
    """Make a call as a rule spells it: a function, method, attribute, index or operator; of all but a function the first argument is the object."""
    if spelled.kind == "function":
        return named(spelled.name)(*positional, **keywords)
    first, *rest = positional
    if spelled.kind == "method":
        return getattr(first, spelled.name)(*rest, **keywords)
    if spelled.kind == "attribute":
        return getattr(first, spelled.name)
    if spelled.kind == "subscript":
        return first[rest[0]]
    if not rest:
        return UNARY[spelled.name](first)
    return OPERATORS[spelled.name](first, *rest)


class Interpreter:
    """An evaluator of formula nodes, with values by name."""

    def __init__(self, table: Table, values: Values) -> None:
        self.table, self.values = table, values

    def __call__(self, node: Node) -> Any:
        """Return the value of a formula's node; raise NotImplementedError for a kind no formula of a rule has.

        The number 0 stands for the cotangent of an unused result: `0 @ x` and `0[i]` are 0.
        """
        match node:
            case Node("name", label):
                return self.values[label]
            case Node("constant", label):
                return literal_value(label)
            case Node("attribute", label, (Node("name", "math" | "torch" as root),)):
                return named(f"{root}.{label}")
            case Node("attribute", label, (value,)):
                return getattr(self(value), label)
            case Node("tuple", _, args):
                return tuple(self.several(args))
            case Node("list", _, args):
                return self.several(args)
            case Node("unary", label, (value,)):
                return UNARY[label](self(value))
            case Node("binary" | "compare", label, (left, right)):
                both = self(left), self(right)
                return (
                    0
                    if label == "@" and any(map(is_zero, both))
                    else OPERATORS[label](*both)
                )
            case Node("boolean", label, args):
                return (all if label == "and" else any)(self(item) for item in args)
            case Node("conditional", _, (test, body, orelse)):
                return self(body) if self(test) else self(orelse)
            case Node("subscript", _, (value, index)):
                target = self(value)
                return target if is_zero(target) else target[self(index)]
            case Node("absent"):  # the end of the slice `1:`
                return None
            case Node("slice", _, args):
                return slice(*map(self, args))
            case Node("call"):
                return self.call(node)
        raise NotImplementedError(node.kind)

    def several(self, nodes: Sequence[Node]) -> list[Any]:
        """Return the values of arguments; `*sizes` adds each of its items."""
        found: list[Any] = []
        for node in nodes:
            found += self(node.args[0]) if node.kind == "starred" else [self(node)]
        return found

    def call(self, node: Node) -> Any:
        """Return the value of a call: of a method, a word of the rule language, a builtin, or a function with a rule of its own.

        Given numbers alone, an elementwise function gets them as tensors: `exp(eps)`.
        """
        callee, *args = node.args
        split = len(args) - len(node.keywords)  # the values of keywords come last
        positional = self.several(args[:split])
        keywords = dict(zip(node.keywords, map(self, args[split:]), strict=True))
        if callee.kind == "attribute":
            return self(callee)(*positional, **keywords)
        # The number 0 is no tensor, so the function itself could not take it.
        if self._keeps_zero(callee.label) and is_zero(positional[0]):
            return 0
        if callee.label in REFERENCE:
            return REFERENCE[callee.label](*positional, **keywords)
        # A rule of the table goes before Python's function of the same name.
        if callee.label in BUILTINS and callee.label not in self.table:
            return BUILTINS[callee.label](*positional, **keywords)
        rule = self.table.rule(callee.label)
        values = bind(rule.spelled, positional, keywords, collected)
        assert values is not None, f"{callee.label} of {len(args)}"
        pointwise = rule.category in ("elementwise", "constant")
        given = [values.get(name) for name in rule.tensors]  # tensor parameters
        if pointwise and not any(isinstance(item, Tensor) for item in given):
            values |= {
                name: as_tensor(values[name]) for name in rule.tensors & set(values)
            }
        return called(rule.spelled, values)

    def _keeps_zero(self, word: str) -> bool:
        """Return whether the function `word` of the number 0, an unused result's cotangent, is 0 itself: it is linear in its one argument.

        All words of the rule language are taken to be so in their first argument.
        """
        if word not in self.table:
            return word in REFERENCE
        facts = self.table.rule(word).facts
        return facts.linear and len(facts.differentiable) == 1


def is_zero(value: Any) -> bool:
    """Return whether it is the number 0."""
    return type(value) is int and value == 0


def value_of(table: Table, rule: Rule, values: Values) -> Any:
    """Return the result of a call computed by the rule's `value`: assignments to names, then an expression."""
    formula = table.value(rule)
    interpret = Interpreter(table, defaults(table, rule) | values)
    for step in formula.statements:
        assert isinstance(step, Assign)
        interpret.values[step.target.label] = interpret(step.value)
    assert formula.result is not None
    return interpret(formula.result)


def collected(items: Sequence[Any]) -> Any:
    """Return the value of a starred parameter, `*sizes`, from its arguments: a tuple of them; a single one as it is, `(2, 3)` in `x.view((2, 3))`."""
    return items[0] if len(items) == 1 else tuple(items)


def as_tensor(value: Any) -> Any:
    number = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return torch.tensor(value, dtype=torch.float64) if number else value


def defaults(table: Table, rule: Rule) -> Values:
    """Return the values of the parameters with a default, by name."""
    interpret = Interpreter(table, {})
    return {
        item.name: interpret(item.default)
        for item in rule.parameters
        if item.default is not None
    }
