"""Trial inputs: arguments to call a Function with, and shapes to try if none are stated.

`test-stub`, `verify` and `adopt` call a user's Function, but need tensors and numbers for its parameters. `arguments` gives those
the text states, `guessed` guesses some of the others: for `forward(ctx, x, slope, eps=1e-6)` a tensor, 0.5 by the name, 1e-6.

Words: an argument is *stated* if the text gives its value, else *missing*; of *kind* `optional` it is a tensor or None, of kind
`constant` a tensor without a gradient; a tensor's *role* by its name is input, weight or bias.

In: the facts of a Function. Out: an `Argument` for each parameter: a tensor, a value as in code, or a description of the missing one; then
arguments with nothing missing, and shapes, to be tried in order by a test. Invariant: a sample is a value stated in the code itself, as a
default, in a call or by a name with a fixed meaning. Only numbers and floating tensors are guessed; an index, a label, a length or an
object is never made up.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from scaffold.formula.constant_folding import is_literal
from scaffold.formula.names import names_in
from scaffold.formula.optionality import is_none
from scaffold.inspect.classes import parameters_of
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.vocabulary import SHAPELY, is_of_any_shape

Kind = Literal["tensor", "optional", "constant", "value", "missing"]
# Names of numbers that mean the same everywhere, with the values to call a Function with.
USUAL_VALUES = {
    "eps": "1e-5",
    "epsilon": "1e-5",
    "inplace": "False",
    "training": "True",
    "dim": "-1",
    "axis": "-1",
    "keepdim": "False",
}
# Functions of Python that work for a tensor of any shape.
SIMPLE = {"float", "int", "bool", "len", "isinstance", "range", "tuple", "max", "min"}


class Argument(NamedTuple):
    """An argument of a call for a parameter, as text."""

    name: str
    kind: Kind
    text: str = ""  # the value as in code, or a description of the missing one


def arguments(facts: Facts) -> tuple[Argument, ...]:
    """Return the arguments of a call, in the order of forward; a keyword with a default is left out, as `apply` takes none."""
    return tuple(
        _argument(facts, item)
        for item in facts.inputs
        if item.passing != "keyword" or item.default is None
    )


def _argument(facts: Facts, item: Parameter) -> Argument:
    """Return the argument for a parameter by the text alone: by its gradient, its default, a call in the file or its name.

    A missing one has a description instead of a value, for the message to the user: "a value of size (int)". `known` is the
    default as a test may write it, `stated` the value in a call of the file, `f(x, 0.5)`.
    """
    # `*xs`, `**options`, or a keyword without a default: the text gives no value.
    if item.passing != "positional":
        star = {"variadic": "*", "keywords": "**", "keyword": "keyword "}
        return Argument(item.name, "missing", f"{star[item.passing]}{item.name}")
    gradient = facts.has_gradient(item.name)
    optional = item.default is not None and is_none(item.default)
    if gradient:
        return Argument(item.name, "optional" if optional else "tensor")
    if item.default is not None and not optional:
        known = _as_seen_from_a_test(item.default)
        what = f"a value of {item.name} (by default {ast.unparse(item.default)})"
        return Argument(item.name, "value" if known else "missing", known or what)
    stated = next(_stated(facts, item.name), None)
    if stated is not None:
        return Argument(item.name, "value", stated)
    # Only if no call of the file passes a value: `apply(x, 0.5)` tells more than `eps=None`.
    if optional:
        return Argument(item.name, "value", "None")
    if item.name in USUAL_VALUES and not facts.is_tensor(item.name):
        return Argument(item.name, "value", USUAL_VALUES[item.name])
    return Argument(item.name, "missing", _missing(facts, item))


def _as_seen_from_a_test(default: ast.expr) -> str:
    """Return a default as written in a test, another file: `EPS` of the user's file as `load('EPS')`, a literal as it is.

    "" for an expression over names of the file, such as `2 * EPS`; a test cannot write it.
    """
    names = names_in([default])
    text = ast.unparse(default)
    if names <= {"torch", *dir(builtins)}:
        return text
    dotted = all(
        isinstance(node, ast.Name | ast.Attribute | ast.expr_context)
        for node in ast.walk(default)
    )
    return f"load({text!r})" if dotted else ""


def _missing(facts: Facts, item: Parameter) -> str:
    """Return a description of a missing argument for the message, by its annotation and its uses: "shape and dtype of x"."""
    if item.type:
        return f"a value of {item.name} ({item.type})"
    if facts.is_tensor(item.name):
        return f"shape and dtype of {item.name}"
    return f"a value of {item.name}"


def _stated(facts: Facts, name: str) -> Iterator[str]:
    """Yield constants the file's own calls pass for a parameter, or defaults of the functions around these calls.

    `0.5` for `Scale.apply(x, 0.5)`, and for `Scale.apply(x, factor)` in `def scale(x, factor=0.5)`. Nothing if two classes have the
    Function's name: their calls cannot be told apart.
    """
    forward = facts.function.forward
    order = [item.name for item in forward.positional] if forward else []
    position = order.index(name) if name in order else -1
    for item in facts.function.applications if facts.function.unique else ():
        given = item.call.args
        # -1: no positional parameter. With `*args` in the call positions are not sure.
        if position < 0 or any(isinstance(a, ast.Starred) for a in given):
            continue
        if position < len(given):
            value = given[position]
            if isinstance(value, ast.Name):
                yield from _default(value.id, item.within)
            elif _is_literal(value):
                yield ast.unparse(value)


def _default(name: str, within: tuple[ast.AST, ...]) -> Iterator[str]:
    """Yield the literal default of a parameter called `name`, of each function around a call that has one, innermost first."""
    for node in reversed(within):
        for item in parameters_of(node) if isinstance(node, ast.FunctionDef) else ():
            if item.name == name and item.default and _is_literal(item.default):
                yield ast.unparse(item.default)


def _is_literal(node: ast.expr) -> bool:
    """Return whether an expression is a number, a string or a bool, perhaps with a sign."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(
        node.value, bool | int | float | str
    )


def is_plain(facts: Facts) -> bool:
    """Return whether forward surely works on one tensor of any shape, or several of one shape.

    Then a test needs no stated shapes. Every call must be elementwise or the like; an index could pick a dim.
    """
    forward, setup = facts.function.forward, facts.function.setup_context
    tensors = [a for a in arguments(facts) if a.kind in ("tensor", "optional")]
    if forward is None or not tensors:
        return False
    nodes = list(ast.walk(forward.node))
    contexts = {m.ctx for m in (forward, setup) if m is not None}
    if any(isinstance(n, ast.MatMult) for n in nodes):
        return False
    # `x[0]` of the only tensor works for any shape; `x[:, 0]` needs two dims.
    picked = [n for n in nodes if isinstance(n, ast.Subscript)]
    if picked and (
        len(tensors) > 1 or any(isinstance(n.slice, ast.Tuple) for n in picked)
    ):
        return False
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    simple = all(_is_simple(call, facts, contexts) for call in calls)
    # A constant index, `x[5]`, must fit the first shape that is tried.
    return simple and least_size(facts) <= min(ALIKE[0])


def _is_simple(call: ast.Call, facts: Facts, contexts: set[str | None]) -> bool:
    """Return whether a call works on a tensor of any shape: `exp`, a sum, a size, `zeros_like`, `len`, or a method of ctx.

    `contexts` are the names ctx has in the methods; None among them: a method has none.
    """
    if isinstance(call.func, ast.Name) and call.func.id in SIMPLE:
        return True
    function = call.func
    owner = function.value if isinstance(function, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id in contexts:
        return True
    name = torch_call(call, facts.names) or method_call(call, facts.names)
    makes = name.endswith("_like") or name == "tensor"  # `torch.tensor(0.5)`
    return is_of_any_shape(name) or makes or name in SHAPELY


Shape = tuple[int, ...]
Shapes = tuple[tuple[Shape, ...], ...]  # tries, each with a shape for every tensor

NUMBERS = {"float": "0.5", "int": "2", "bool": "False"}
# Parameters with numbers as values, unless they are tensors.
NUMERIC = re.compile(
    r"(neg\w*_)?(slope|alpha|beta|gamma|sigma|tau|scale|factor|temperature|threshold|width)"
    r"|lam(bda|bd|da)?_?|margin|delta|rho|\w+_(scale|factor|slope|threshold|width|alpha|beta)|alpha_"
)
LOW = re.compile(r"(min|low|lower|^lo)(_|$)|_(min|low|lower|lo)$", re.IGNORECASE)
HIGH = re.compile(r"(max|high|upper|^hi)(_|$)|_(max|high|upper|hi)$", re.IGNORECASE)
# Parameters with whole numbers as values: an index is below 2.
WHOLE = {
    "2": re.compile(r"k|stride|groups|length|(num|n)_\w+|\w+_(size|groups|count)"),
    "1": re.compile(r"padding|dilation"),
}
EXPONENT = re.compile(r"gamma|power|exponent")
# Parameters with codes as values: indices, labels, lengths. A made-up one would be wrong.
CODES = re.compile(
    r"(^|_)(idx|ind|index|indices|ids?|labels?|targets?|len|lens|lengths?|offsets?|indptr"
    r"|perm|order|seqlens?|sizes?|shape|counts?|rows?|cols?|batch|size)(_|$)",
    re.IGNORECASE,
)
WEIGHT = re.compile(r"(^|_)(w|weight|kernel|filter)s?\d*$", re.IGNORECASE)
BIAS = re.compile(r"(^|_)(b|bias)\d*$", re.IGNORECASE)
# Shapes of layers, by role: linear, of batches, square, convolution.
LAYERS: tuple[dict[str, Shape], ...] = (
    {"input": (3, 4), "weight": (5, 4), "bias": (5,)},
    {"input": (2, 3, 4), "weight": (5, 4), "bias": (5,)},
    {"input": (3, 4), "weight": (4, 4), "bias": (4,)},
    {"input": (2, 3, 6, 6), "weight": (4, 3, 3, 3), "bias": (4,)},
)
# Shapes to try for all tensors alike, and for the first and each other one.
ALIKE: tuple[Shape, ...] = (
    *((3, 4), (4, 4), (4,), (2, 3, 4), (2, 3, 4, 4), ()),
    *((3, 2), (2, 6, 2, 2)),  # pairs of numbers, and channels in groups
)
LEADING: tuple[tuple[Shape, Shape], ...] = (
    ((3, 4), (4,)),
    ((3, 4), ()),
    ((3, 4), (3,)),  # a number for each row
    ((3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4, 4), (3,)),
    ((3, 4), (5, 4)),
)


def guessed(facts: Facts) -> tuple[Argument, ...]:
    """Return the arguments of a call, with guessed numbers and tensors for missing ones, as far as something suggests one."""
    parameters = {item.name: item for item in facts.inputs}
    return tuple(
        _guess(facts, parameters[item.name], item) if item.kind == "missing" else item
        for item in arguments(facts)
    )


def _guess(facts: Facts, item: Parameter, stated: Argument) -> Argument:
    """Return a guess for a missing argument by its name and type; `stated`, the missing one, if nothing suggests a value.

    A label or an index (CODES) is never guessed.
    """
    if item.passing != "positional":
        return stated
    whole = next((x for x, names in WHOLE.items() if names.fullmatch(item.name)), "")
    # Before CODES, which matches `dim_size` as well: a size is 2, an index stays unknown.
    if whole and item.type in ("int", "") and not facts.is_tensor(item.name):
        return Argument(item.name, "value", whole)
    if CODES.search(item.name):
        return stated
    if facts.is_tensor(item.name):  # by the code, or annotated
        # None: backward does not tell, so it may have a gradient; a mask has none.
        if facts.has_gradient(item.name) is None and "mask" not in item.name:
            return Argument(item.name, "tensor")
        return Argument(item.name, "constant", "mask" if "mask" in item.name else "")
    number = _number(item)
    return Argument(item.name, "value", number) if number else stated


def _number(item: Parameter) -> str:
    """Return a number for a parameter, as text, by its name or its type; "" if nothing suggests one.

    Lower limits (LOW) are 0.25 and upper ones 0.75, so that they do not cross.
    """
    if item.type in ("float", ""):
        if LOW.search(item.name):
            return "0.25"
        if HIGH.search(item.name):
            return "0.75"
        if EXPONENT.fullmatch(item.name):
            return "2.0"
        if NUMERIC.fullmatch(item.name):
            return NUMBERS["float"]
    return NUMBERS.get(item.type, "")


def shapes_for(names: Sequence[str]) -> tuple[tuple[Shape, ...], ...]:
    """Return the shapes to try for some tensors, likeliest by their names first; each try has one shape for each tensor.

    With a `weight` first those of a layer; then all tensors `(3, 4)`; then the first unlike the others; then all alike in other
    shapes. For `["x", "y"]`: ((3, 4), (3, 4)), then ((3, 4), (4,)) ...
    """
    found: list[tuple[Shape, ...]] = []
    roles = [role_of(name) for name in names]
    if "weight" in roles:
        found += [tuple(shapes[role] for role in roles) for shapes in LAYERS]
    found += [(shape,) * len(names) for shape in ALIKE[:1]]
    if len(names) > 1:
        rest = len(names) - 1
        found += [(first, *[other] * rest) for first, other in LEADING]
    found += [(shape,) * len(names) for shape in ALIKE[1:]]
    return tuple(dict.fromkeys(found))


def least_size(facts: Facts) -> int:
    """Return the least size of dims that forward's constant indices allow: 8 for `x[:, 7]` or `x[-8]`; 1 without any.

    Only of a name: those of `x.shape` or `ctx.needs_input_grad` say nothing of sizes.
    """
    forward = facts.function.forward
    found = [1]
    for node in ast.walk(forward.node) if forward else ():
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            parts = filter(is_literal, getattr(node.slice, "elts", [node.slice]))
            indices = [x for x in map(ast.literal_eval, parts) if type(x) is int]
            found += [max(index + 1, -index) for index in indices]
    return max(found)


def enlarged(shapes: Shapes, least: int) -> Shapes:
    """Return the tries of at most two dims with every size raised above `least`; () if the usual sizes are.

    Nor above 64: gradcheck of a larger tensor would take too long.
    A multiple of 4 is added to every size, so equal sizes stay equal, and even ones even.
    """
    more = -(-least // 4) * 4
    small = [one for one in shapes if max(map(len, one)) < 3 < least <= 64]
    return tuple(tuple(tuple(n + more for n in x) for x in one) for one in small)


VECTOR = re.compile(r"(.*_)?(bias|gamma|beta|weight)")  # parameters of a norm


def with_vectors(names: Sequence[str]) -> tuple[tuple[Shape, ...], ...]:
    """Return one try of shapes, vectors for parameters such as `bias` and matrices for data; () unless there are both.

    For `["x", "weight"]`: ((3, 4), (4,)), as a layer norm takes them.
    """
    vectors = [bool(VECTOR.fullmatch(name)) for name in names]
    if all(vectors) or not any(vectors):
        return ()
    return (tuple((4,) if vector else (3, 4) for vector in vectors),)


def role_of(name: str) -> str:
    """Return the role of a tensor in a layer by its name: `weight` for `w1`, `bias` for `b`, else `input`."""
    if WEIGHT.search(name):
        return "weight"
    return "bias" if BIAS.search(name) else "input"
