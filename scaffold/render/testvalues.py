"""Test values of an op's inputs, as expressions.

In: the inputs of an `OpSpec`. Out: a Python expression making each of them; for the proof, further values of attributes, to run each
branch of a forward testing them, and of tensor elements, if a gradient is stated.
Invariant: an expression reads only the sizes given to it, `torch`, and the test file's functions in MAKERS and MASK. A value refused
by the forward shows nothing about the op; one read by `require` or the bound of an index is not tried.

Words: a proof (`scaffold verify`) runs the op with more values than its tests. A stated gradient is one by the user's formula. The *usual*
value of an attribute is that of the tests, *others* are tried beside it.
"""

import ast
import math
from collections.abc import Iterator
from itertools import pairwise
from math import inf, isfinite, nan
from typing import Any, NamedTuple, TypeGuard

from scaffold.formula import Formula, If, Node
from scaffold.formula.constant_folding import evaluated, literal_value
from scaffold.primitives.calls import may_be
from scaffold.spec import Attribute, OpSpec, TensorInput

MAKERS = ("nonzero", "spd", "distinct")  # domains made by a function of the test file
MASK = "mask"  # ... as masks do


class Domain(NamedTuple):
    """A domain, the range of an input's values: its expression in the tests, and further values for a proof, between its bounds."""

    made: str = ""  # `{}` stands for the sizes; "" if a function of the test makes it
    least: float = -inf
    most: float = inf
    tried: tuple[float, ...] = ()  # values a proof puts into elements


# exp(1000) is infinite, exp(30) is not; infinity and NaN are tried in a single element.
SIGNED = (0, 1, -1, 30, -30, 1000, -1000, 1e-4, inf, -inf, nan)
INTEGERS = (0, -1, 5, -100)  # `F.cross_entropy` ignores -100
PLAIN = {
    "normal": Domain("torch.randn({}, dtype=torch.double)", tried=SIGNED),
    "positive": Domain(
        "torch.rand({}, dtype=torch.double) + 0.5", 0, inf, (1, 30, 1000, 1e-4, inf)
    ),
    "unit": Domain(
        "0.1 + 0.8 * torch.rand({}, dtype=torch.double)", 0, 1, (0.5, 1e-4, 1 - 1e-4)
    ),
    "simplex": Domain("torch.randn({}, dtype=torch.double).softmax(-1)"),
    "nonzero": Domain(tried=SIGNED[1:]),  # made by a function
}
VALUES = {
    "float": "0.5",
    "int": "2",
    "bool": "True",
    "str": '""',
    "complex": "0.5j",
    "dtype": "torch.double",
    "torch.dtype": "torch.double",
    "device": 'torch.device("cpu")',
    "torch.device": 'torch.device("cpu")',
}
VISIBLE = 0.01  # the least constant to show beside numbers about 1
AXES = ("dim", "axis")


def tensor_expression(item: TensorInput, sizes: tuple[str, ...], bound: str) -> str:
    """Return an expression for a tensor, `torch.randn(N, D, dtype=torch.double)`, by its dtype and domain.

    `sizes` are the arguments of its shape, one of them perhaps starred, `*batch`; `bound` is above all integers in it.
    """
    if item.dtype in ("int", "index"):
        return f"torch.randint({bound}, {_tuple(sizes)})"
    if item.dtype == "bool":
        return f"{MASK}({', '.join(sizes)})"
    if item.dtype == "complex":
        return f"torch.randn({_spread(sizes)}, dtype=torch.cdouble)"
    if item.domain in MAKERS:
        return f"{item.domain}({', '.join(sizes)})"
    return PLAIN[item.domain].made.format(_spread(sizes))


def attribute_value(spec: OpSpec, item: Attribute) -> str:
    """Return a value for an attribute: its default, else a sample of its type; no number is 0 or 1, which hide mistakes."""
    if item.default is not None:
        return item.default
    # The last dim: the usual int, 2, would need a tensor with three.
    if item.name in AXES and item.annotation == "int":
        return "-1"
    if _is_called(spec, item):
        return "torch.tanh"
    return _value(ast.parse(item.annotation, mode="eval").body)


def choices(item: Attribute) -> tuple[str, ...]:
    """Return the values of a `Literal[...]`, as source."""
    tree = ast.parse(item.annotation, mode="eval").body
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "Literal":
        return tuple(ast.unparse(element) for element in _elements(tree))
    return ()


def label(value: str) -> str:
    """Return a choice as shown in a case's name: a string without its quotes."""
    tree = ast.parse(value, mode="eval").body
    return str(tree.value) if isinstance(tree, ast.Constant) else value


def _value(tree: ast.expr) -> str:
    """Return a sample value for an annotation, `(2, 2)` for `tuple[int, int]`, None for `int | None`; `object()` for an unknown one."""
    # A union: `int | None`, `int | float`.
    if isinstance(tree, ast.BinOp):
        return "None" if "None" in ast.unparse(tree) else _value(tree.left)
    if not isinstance(tree, ast.Subscript):
        return VALUES.get(ast.unparse(tree), "object()")
    elements = _elements(tree)
    if ast.unparse(tree.value) == "Literal":
        return ast.unparse(elements[0])
    values = [_value(element) for element in elements if ast.unparse(element) != "..."]
    # `tuple[int, ...]` and lists are of any length: the one value twice.
    repeated = values * 2 if len(values) < len(elements) else values
    match ast.unparse(tree.value):
        case "tuple":
            return _tuple(tuple(repeated))
        case "list" | "Sequence":
            return f"[{', '.join(values * 2)}]"
    return "object()"


def _elements(tree: ast.Subscript) -> list[ast.expr]:
    return tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]


def _is_called(spec: OpSpec, item: Attribute) -> bool:
    """Return whether an attribute is a function: by its type, or because a formula calls it."""
    calls = (node.args[0] for node in _nodes(spec) if node.kind == "call")
    return "Callable" in item.annotation or any(
        _is_name(called, item.name) for called in calls
    )


def _nodes(spec: OpSpec) -> Iterator[Node]:
    """Yield every node of the forward, and of the stated gradients."""
    stated = (formula for _, formula in spec.gradients)
    surrogate = spec.surrogate.forward if spec.surrogate else None
    for formula in (spec.forward, surrogate, spec.backward, *stated):
        if formula is not None:
            yield from formula.nodes()


def _spread(sizes: tuple[str, ...]) -> str:
    """Return sizes as arguments: `N, D`, or the one tuple itself."""
    if len(sizes) == 1 and sizes[0].startswith("*"):
        return sizes[0][1:]
    # A scalar: `torch.randn(())`.
    return ", ".join(sizes) or "()"


def _tuple(sizes: tuple[str, ...]) -> str:
    """Return sizes as a tuple, or the sole starred one by its name."""
    if len(sizes) == 1:
        return sizes[0][1:] if sizes[0].startswith("*") else f"({sizes[0]},)"
    return f"({', '.join(sizes)})"


def literal(text: str) -> str:
    """Return a string literal as in formatted code: in double quotes if it needs no escape."""
    return f'"{text}"' if repr(text) == f"'{text}'" and '"' not in text else repr(text)


MOST_NUMBERS = 36  # from formulas


def is_asked_more(spec: OpSpec) -> bool:
    """Return whether a proof tries more calls than the tests: the gradient is the user's or has branches, and calls can be chosen."""
    stated = bool(spec.gradients or spec.backward)
    branches = spec.forward is not None and _has_branches(spec.forward)
    # A surrogate without a formula leaves no gradient to compare with.
    known = spec.surrogate is None or spec.surrogate.forward is not None
    return (stated or branches) and known and spec.samples is None


def _has_branches(forward: Formula) -> bool:
    """Return whether a forward has an `if`, or `a if test else b`."""
    return any(isinstance(item, If) for item in forward.statements) or any(
        node.kind == "conditional" for node in forward.nodes()
    )


def enlarged(spec: OpSpec) -> tuple[str, ...]:
    """Return the differentiable inputs to try with larger values: the tests' may stay within a limit, of a clamp for instance.

    () for an op with `samples`, as its calls are the user's choice; and for one with a variadic input, as tests find the value to
    enlarge by the place of its name among the inputs, where such an input has several values.
    """
    if spec.samples is not None or any(item.variadic for item in spec.tensors):
        return ()
    callees = (node.args[0] for node in _nodes(spec) if node.kind == "call")
    if not any(may_be(callee.label, "limited") for callee in callees):
        return ()
    normal = [item for item in spec.differentiable if item.domain == "normal"]
    return tuple(item.name for item in normal if item.dtype == "float")


def tried_values(spec: OpSpec) -> dict[int, tuple[float, ...]]:
    """Return values to put into elements of the inputs, by position: values of their domain, and values in formulas.

    {} if a proof tries no more calls than the tests, or for a variadic input.
    """
    found: dict[int, tuple[float, ...]] = {}
    named = [*_numbers(spec)][:MOST_NUMBERS]
    several = any(item.variadic for item in spec.tensors)  # no fixed positions
    for item in spec.tensors if is_asked_more(spec) and not several else ():
        domain = PLAIN.get(item.domain, Domain())
        if item.dtype == "bool":
            found[spec.index(item.name)] = (True, False)
        elif item.dtype == "float" and domain.tried:
            inside = [x for x in named if domain.least < x < domain.most]
            numbers = dict.fromkeys((*domain.tried, *inside))
            found[spec.index(item.name)] = tuple(numbers)
        elif item.dtype == "complex":
            found[spec.index(item.name)] = tuple(filter(isfinite, SIGNED))
        elif item.dtype in ("int", "index"):
            found[spec.index(item.name)] = INTEGERS
    return found


def _numbers(spec: OpSpec) -> Iterator[float]:
    """Yield each number in a formula with both signs, doubled and halved, and the midpoints: on all sides of a threshold."""
    values = [evaluated(node) for node in _nodes(spec) if node.kind == "constant"]
    values += [_read(attribute_value(spec, one)) for one in spec.attributes]
    numbers = {abs(float(x)) for x in values if _is_number(x)}
    several = sorted(numbers - {0}, reverse=True)  # SIGNED has 0
    for number in several:
        yield from (number, 2 * number, -number, -2 * number, number / 2, -number / 2)
    for one, another in pairwise(several):
        yield (one + another) / 2


UNNAMED = ("none", "other")  # not both are compared with, so one reaches an `else`


def compared_counts(spec: OpSpec) -> tuple[int, ...]:
    """Return the positive integers in comparisons of formulas, each perhaps a size or number of dims at which a branch begins."""
    values = (
        evaluated(arg)
        for node in _nodes(spec)
        if node.kind == "compare"
        for arg in node.args
    )
    return tuple(dict.fromkeys(x for x in values if type(x) is int and x > 0))


Value = bool | int | float | str | tuple[Any, ...] | None


def further_values(spec: OpSpec) -> dict[int, tuple[Value, ...]]:
    """Return values of attributes beyond the tests' for a proof to try, by position: another branch of a formula may be wrong.

    Both values of a bool, None if allowed; numbers and strings it is compared with, and the numbers' neighbours; another
    number.
    """
    if spec.samples is not None or any(item.variadic for item in spec.tensors):
        return {}
    bound = {item.bound for item in spec.tensors}
    read = {name for item in spec.tested_require for name in item.names()}
    found = {}
    for item in spec.attributes:
        if item.name not in bound | read:
            values = _values(spec, item)
            if values:
                found[spec.index(item.name)] = values
    return found


def _values(spec: OpSpec, item: Attribute) -> tuple[Value, ...]:
    """Return values of an attribute at which a formula may behave otherwise: None, both bools, numbers near a comparison."""
    types = {part.strip() for part in item.annotation.split("|")}
    usual = attribute_value(spec, item)
    values: list[Value] = [None] if "None" in types else []
    if "bool" in types:
        values += [False, True]
    numbers = dict.fromkeys(_compared(spec, item.name))
    if "float" in types:
        values += [float(near) for number in numbers for near in _around(number)]
    elif "int" in types:
        # No int equals 0.5, so its neighbours are of no interest.
        values += [int(near) for n in numbers if n == int(n) for near in _around(n)]
    if "str" in types:
        values += _words(spec, item.name)
    values += _others(types, usual)
    # The tests have the usual value already.
    return tuple(value for value in dict.fromkeys(values) if repr(value) != usual)


def other_constants(spec: OpSpec) -> dict[str, Value]:
    """Return another value for each attribute, to expose an op with the usual one hard-coded; none for axes and sizes.

    Other axes and sizes would change shapes.
    """
    found: dict[str, Value] = {}
    named = {
        name for item in spec.tensors for name in spec.tested_dims(item.name) or ()
    }
    for at, values in further_values(spec).items():
        item = spec.inputs[at]
        # The positions are those of attributes; only mypy does not know that.
        if not isinstance(item, Attribute) or item.name in (*AXES, *named):
            continue
        usual = _read(attribute_value(spec, item))
        others = [x for x in values if type(x) is type(usual)]  # True is no int here
        if isinstance(usual, float) and isfinite(usual):
            found[item.name] = _near(usual)
        # Each choice is a case of its own already.
        elif others and not choices(item):
            found[item.name] = others[0]
    return found


def _near(number: float) -> float:
    """Return half of a number, so a probability stays one; 0.1 for one too small to show beside numbers about 1."""
    return number / 2 if abs(number) >= VISIBLE else math.copysign(0.1, number)


def _around(number: float) -> tuple[float, ...]:
    return (number - 1, number, number + 1)


def _others(types: set[str], usual: str) -> Iterator[Value]:
    """Yield numbers other than the tests', since a stated gradient may be right for those alone; a tuple in other orders.

    It may be so for whole numbers alone, for numbers above 1, or for those of one sign. `types` are the parts of the annotation, `usual` is
    the tests' value.
    """
    kind = next((kind for kind in ("float", "int") if kind in types), "")
    # None in the tests, where a number may be: the usual one of its type first.
    instead_of_none = kind if usual == "None" else ""
    number = _read(VALUES[kind] if instead_of_none else usual)
    if instead_of_none and _is_number(number):
        yield number
    if isinstance(number, tuple) and len(number) > 1:
        yield from (number[1:] + number[:1], number[::-1])
    if not _is_number(number):
        return
    if "float" in types:
        yield _near(float(number))
        yield from (float(number + 1), float(-number), 0.0)
        if abs(number) >= 1:
            yield number / 8  # of 1 to 8, one below 1
        yield float(number + 0.25)  # of a whole number, one that is not whole
    elif "int" in types:
        yield from (int(number + 1), int(-number - 1), 0, int(number + 4))


def _read(text: str) -> object:
    """Return the value of an expression; None if it is no literal."""
    try:
        return literal_value(text)
    except (SyntaxError, ValueError):
        return None


def _words(spec: OpSpec, name: str) -> Iterator[str]:
    """Yield the strings a formula compares the attribute `name` with, `reduction == "sum"`, and another one, to reach an `else`."""
    comparisons = (node for node in _nodes(spec) if node.kind == "compare")
    several = [
        node.args
        for node in comparisons
        if any(_is_name(arg, name) for arg in node.args)
    ]
    values = [evaluated(arg) for args in several for arg in args]
    # Also the items of a tuple: `mode in ("a", "b")`.
    flat = [
        x for value in values for x in (value if isinstance(value, tuple) else (value,))
    ]
    words = [word for word in flat if isinstance(word, str)]
    yield from words
    # An attribute compared with nothing has no `else` to reach.
    yield from [word for word in UNNAMED if several and word not in words][:1]


LIMITS = ("min", "max")  # of Python's numbers


def _compared(spec: OpSpec, name: str) -> Iterator[float]:
    """Yield the numbers an attribute is compared with, `n > 2` or `min(n, 2)`; 0 if it is a test itself."""
    if spec.forward and any(_is_name(x, name) for x in spec.forward.expressions()):
        yield 0  # `if n:`
    for node in _nodes(spec):
        if not any(_is_name(arg, name) for arg in node.args):
            continue
        limits = node.kind == "call" and node.args[0].label in LIMITS
        if node.kind == "compare" or limits:
            values = map(evaluated, node.args)
            yield from (value for value in values if _is_number(value))
        elif node.kind in ("conditional", "boolean") or node.label == "not":
            yield 0


def _is_name(node: Node, name: str) -> bool:
    return node.kind == "name" and node.label == name


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number, so it has neighbours on either side; a bool is none."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and isfinite(value)
    )
