"""Trial declarations: the possible ways to declare a Function's inputs.

`verify` and `test-stub` call a user's Function, and its text often does not tell shapes, kinds and values. So they try one *way*
after the other until forward and backward run; `forward(ctx, x, weight, mask)` gives, among others,

    x[N, D], weight[D], mask[N, D]        x, weight, mask[; bool]

Words: a *way* has one `Entry` for each input, as the user writes it in `--inputs`; a *trait* stands after `;` in it, for a tensor
without a gradient; *dims* are names or sizes of its dims; an Entry's *value* is that of a number or a string; `trial_inputs` has
the guesses by name.

In: the facts of a Function. Out: `Entry`s, in the order of forward, in one or more ways, the likeliest first.
Invariant: every way has the facts stated in the text; only unknown ones vary.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any, NamedTuple

from scaffold.formula.constant_folding import is_literal
from scaffold.inspect.declarations import kinds_of
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.stub_questions import definitions
from scaffold.inspect.trial_inputs import (
    VECTOR,
    WHOLE,
    Argument,
    arguments,
    guessed,
    role_of,
)

MOST, TRIED = 12, 2000  # ways at most, chosen from so many combinations
# Values for an argument without any known type, and by its type.
VALUES = ("0.5", "2", "True")
TYPED = {"int": ("2", "3"), "float": ("0.5",), "bool": ("True", "False")}
HALVES = re.compile(r"chunk\(2\b|// ?2\b")
CONVOLUTION = re.compile(r"\bconv(?:_transpose)?([123])d")
# Tensors of images, and a number for each of their channels.
IMAGES = re.compile(r"\b0, 2, 3\b|\b1, 1\)|\b[Hh], [Ww]\b")
CALLABLE = ": collections.abc.Callable"

SHAPES = ("shape", "size")  # names of a tensor's sizes
LARGE = (30.0, -30.0, 1000.0, -1000.0)  # exp(1000) is infinite, exp(30) is not


class Entry(NamedTuple):
    """One way to declare an input, as for `--inputs`; a tensor unless it has a `value` or is `called`."""

    name: str
    trait: str = ""  # for a tensor without a gradient: const, int or bool
    optional: bool = False
    value: str = ""  # of an argument other than a tensor
    called: bool = False  # a function, as the code calls it
    variadic: bool = False
    dims: str | None = None  # of a tensor; of another argument without any effect

    @property
    def is_tensor(self) -> bool:
        return not (self.value or self.called)

    def text(self, dims: str | None = None) -> str:
        """Return the entry as in `--inputs`, `x[N; bool]?` or `eps = 0.5`; `dims`, if given, is its shape."""
        if not self.is_tensor:
            return f"{self.name}{f' = {self.value}' if self.value else CALLABLE}"
        dims = self.dims if dims is None else dims
        trait = f"; {self.trait}" if self.trait else ""
        shape = f"[{dims or ''}{trait}]" if dims is not None or trait else ""
        return f"{'*' * self.variadic}{self.name}{shape}{'?' * self.optional}"


def ways_to_declare(facts: Facts) -> tuple[tuple[Entry, ...], ...]:
    """Return the ways to declare the inputs of a Function, likeliest first: with shapes the text suggests, then without.

    A way takes one entry for each input. Each input's entries stand likeliest first, so a way is the likelier the lower the sum of
    its entries' positions.
    """
    stated = {item.name: item for item in guessed(facts)}
    items = [
        item for item in facts.inputs if item.passing in ("positional", "variadic")
    ]
    choices = [tuple(_entries(facts, item, stated[item.name])) for item in items]
    tried = islice(product(*choices), TRIED)
    ways = sorted(tried, key=lambda way: sum(map(tuple.index, choices, way)))[:MOST]
    images = IMAGES.search(ast.unparse(facts.function.node))  # sums over "0, 2, 3"
    with_shapes = (
        _with_vectors(ways[0], "N, C, H, W", "C") if images else (),
        _with_vectors(ways[0], "N, D", "D"),
        _with_halves(facts, ways[0]),
    )
    # () among them: shapes that do not suit this Function.
    return (*filter(None, with_shapes), *_with_layers(facts, ways[0]), *ways)


def _with_layers(facts: Facts, way: tuple[Entry, ...]) -> Iterator[tuple[Entry, ...]]:
    """Yield ways with the shapes of a convolution, if the text has one: usual, depthwise, transposed.

    `conv2d` gives `x[N, C, H, W]`, `weight[O, C, 2, 2]` and `bias[O]`; an input's name tells its part. Nothing is yielded for a
    way with an integer or bool tensor, or with `*xs`.
    """
    tensors = [one for one in way if one.is_tensor]
    found = CONVOLUTION.search(ast.unparse(facts.function.node))
    if not found or any(one.trait or one.variadic for one in tensors):
        return
    rank = int(found[1])
    space, kernel = ", ".join("HWL"[:rank]), ", ".join("2" * rank)
    # The usual weight, the depthwise, the transposed.
    for weight, bias in (("O, C", "O"), ("C, 1", "C"), ("C, O", "O")):
        dims = {
            "input": f"N, C, {space}",
            "weight": f"{weight}, {kernel}",
            "bias": bias,
        }
        yield tuple(one._replace(dims=dims[role_of(one.name)]) for one in way)


def _with_halves(facts: Facts, way: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the way with every tensor as `[N, 4]`, if the text halves a dim, by `x.chunk(2, -1)` or `d // 2`; else ().

    Such code refuses the odd sizes other ways have. Functions of the file that it calls are searched too.
    """
    tensors = [one for one in way if one.is_tensor]
    text = ast.unparse(facts.function.node)
    text += definitions(facts.module.text, text)
    alike = all(x.trait in ("", "const") and not x.variadic for x in tensors)
    if not alike or not HALVES.search(text):
        return ()
    return tuple(x._replace(dims="N, 4") for x in way)


def _with_vectors(way: tuple[Entry, ...], data: str, vector: str) -> tuple[Entry, ...]:
    """Return the way with the dims `vector` for parameters, by their names, and `data` for other tensors; () unless it has both.

    () too for a way with an integer or bool tensor, or with `*xs`. With `data` "N, D" and `vector` "D" it is `x[N, D], weight[D]`, as
    of a layer norm.
    """
    tensors = [one for one in way if one.is_tensor]
    named = [bool(VECTOR.fullmatch(one.name)) for one in tensors]
    plain = not any(one.trait or one.variadic for one in tensors)
    if not plain or all(named) or not any(named):
        return ()
    dims = {True: vector, False: data}
    return tuple(x._replace(dims=dims[bool(VECTOR.fullmatch(x.name))]) for x in way)


def _entries(facts: Facts, item: Parameter, stated: Argument) -> Iterator[Entry]:
    """Yield the ways to declare one input, likeliest first; they are tried in this order until forward runs.

    `stated` is the argument for it by the text or by a guess. A default None says nothing of the type: an int if its name is one
    of a number (WHOLE), else a tensor. An input without any type may be a tensor, a number or a bool (`VALUES`).
    """
    forward = facts.function.forward
    if item.passing == "variadic":
        yield Entry(item.name, variadic=True)
    elif "Callable" in item.type or (
        forward and any(_is_call(node, item.name) for node in ast.walk(forward.node))
    ):
        yield Entry(item.name, called=True)
    elif stated.kind in ("tensor", "optional"):
        yield Entry(item.name, optional=stated.kind == "optional")
    elif stated.kind == "value" and stated.text == "None":
        if item.type in ("int", ""):  # `dim_size=None`: a number by its name
            numbers = (x for x, names in WHOLE.items() if names.fullmatch(item.name))
            yield from (Entry(item.name, value=number) for number in numbers)
        yield from (Entry(item.name, kind, True) for kind in kinds_of(facts, item))
    elif stated.kind == "value" and is_literal(stated.text):
        yield Entry(item.name, value=stated.text)
        if "." in stated.text and any(
            one.name == item.name and one.kind == "missing" for one in arguments(facts)
        ):
            yield Entry(item.name, value=VALUES[1])  # the guessed float may be an int
    elif _is_constant(facts, item, stated):
        kinds = [Entry(item.name, kind) for kind in kinds_of(facts, item)]
        typed = TYPED.get(item.type, VALUES)
        values = [Entry(item.name, value=value) for value in typed]
        # Neither a guess nor the annotation makes it a tensor.
        no_tensor = stated.kind != "constant" and "Tensor" not in item.type
        # Unless it is surely a tensor, a number is likelier than a floating one without a gradient.
        if no_tensor and kinds[0].trait == "const":
            kinds, values = [values[0], *kinds], values[1:]
        if item.name in SHAPES and no_tensor:
            yield Entry(item.name, value="(4, 4)")
        yield from (*kinds, *values)
    else:
        yield Entry(item.name)
        yield from (Entry(item.name, value=value) for value in VALUES)


def _is_constant(facts: Facts, item: Parameter, stated: Argument) -> bool:
    """Return whether an input has no gradient, by backward or a guess; False if no backward gives any gradient to tell by."""
    known = facts.function.backward is not None and not facts.is_trivial
    return known and (
        stated.kind == "constant" or facts.has_gradient(item.name) is False
    )


def _is_call(node: ast.AST, name: str) -> bool:
    """Return whether a node calls an argument itself: `name(...)`, or `ctx.name(...)` if forward has put it there."""
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return called in (name, f"ctx.{name}")


FLOAT = re.compile(r"-?(\d+\.\d*(e-?\d+)?|\d+e-\d+)")
MANY = 9  # so large a number is likely a size, such as that of a chunk
SMALL = 1e-2  # a larger eps than usual, but a usual one
# Values of well-known arguments that lead to another branch of the code.
BRANCHES: dict[str, list[Any]] = {
    "dim": [0],
    "axis": [0],
    "stride": [1],  # windows may overlap
    "padding": [1],
    "dilation": [2],
    "reduction": ["sum", "none"],
}


def other_arguments(facts: Facts, way: Sequence[Entry]) -> dict[str, list[Any]]:
    """Return other values for the arguments of a way, by name: another number, bool, dim or compared string.

    `{"eps": [0.01], "mode": ["sum", "mean"]}` for `eps = 1e-5, mode = "sum"`. A test calls with them too, since a backward may
    forget an argument and be right by chance for one value.
    """
    found: dict[str, list[Any]] = {}
    for one in way:
        # By the name first: `stride = 2` is a number too, but 1 makes its windows overlap.
        if one.value and one.name in BRANCHES:
            found[one.name] = BRANCHES[one.name]
        elif FLOAT.fullmatch(one.value):
            number = float(one.value)
            found[one.name] = [number / 2 if abs(number) > SMALL else SMALL]
        elif one.value in ("True", "False"):
            found[one.name] = [one.value == "False"]
        elif one.value.isdecimal():
            number = int(one.value)
            # Not only the next one: 2 cuts a tensor into several chunks, where 16 and 17 make it one.
            far = 2 * number + 1 if number < MANY else 2
            found[one.name] = [number + 1, far]
        elif one.value.startswith(("'", '"')):
            found[one.name] = [*_compared(facts, one.name)]
    return found


def _compared(facts: Facts, name: str) -> Iterator[str]:
    """Yield the strings forward compares with an argument, for a test of each branch.

    For `mode` these are `sum` and `mean` in `if mode == "sum"` and `mode in ("sum", "mean")`.
    """
    forward = facts.function.forward
    for node in ast.walk(forward.node) if forward else ():
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(isinstance(x, ast.Name) and x.id == name for x in sides):
            for inner in (y for x in sides for y in ast.walk(x)):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value


def numbers_in(facts: Facts) -> tuple[float, ...]:
    """Return numbers to test a Function at: some large ones, and those in its text with their halves and doubles, of either sign.

    At a number of the text the derivative may jump, as at 3 in `x.clamp(max=3)`, so both sides are tried; large ones may overflow.
    """
    nodes = [inner for method in facts.function.own for inner in ast.walk(method.node)]
    # Bools are left out, though True is an instance of int.
    values = {
        abs(float(node.value))
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    }
    usual = sorted(x for x in values if 1e-3 < x < 1e3)
    named = (y for x in usual for y in (x, -x, 2 * x, -2 * x, x / 2, -x / 2))
    return (*LARGE, *named)
