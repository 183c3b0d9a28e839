"""Constant folding: operators, expressions and branches whose operands are known.

A rule of the table may hold only for `p == 2`, and a branch only for `mode == "sum"`: with the value known before the
call, the generated code needs no such test. Numbers in a gradient are computed here too: `2 * 3 * x` -> `6 * x`.

Words: a test is *settled* if the known values decide it; an operand is *decisive* if it decides the whole `and` (False) or
`or` (True); a *literal* is a constant written in the text; names in `there` are never None, names in `nones` always are;
`short` is said of a number to be printed.

In: an expression and the known values of its names; an operator and its operands; statements in which constants
replaced parameters. Out: the value, or `UNKNOWN`; the statements without unreachable branches. Invariant: no value is
guessed, and a test that is not settled stays as it is. This is the only constant folder: for tests of branches, a
rule's `when`, sizes, and numbers in a gradient.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from scaffold.formula.graph import Graph, Node
from scaffold.formula.optionality import checked_for_none

Number = int | float | complex
Read = Callable[[Node], object]  # a name, call or attribute -> its value, or `UNKNOWN`


class _Unknown:
    """The type of `UNKNOWN`, a value not known before the call."""


UNKNOWN = _Unknown()
PRESENT = object()  # not None, otherwise unknown: a tensor
NO_STRING = object()  # neither None nor a string, otherwise unknown: a number, a tuple

# --- Operators: their syntax, their text, and the functions they compute.


BINARY: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.MatMult: "@",
    ast.Pow: "**",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
UNARY: Mapping[type[ast.unaryop], str] = {
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Not: "not",
}
COMPARE: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}
# Without `<` and `>=`: of a NaN both are false.
OPPOSITES = {"==": "!=", "is": "is not", "in": "not in"}
OPPOSITES |= {after: before for before, after in OPPOSITES.items()}

ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "is": operator.is_,
    "is not": operator.is_not,
    "in": lambda item, several: item in several,
    "not in": lambda item, several: item not in several,
}
ONLY_ONE = (None, True, False, ...)  # singletons
LARGEST_POWER = 1000  # `10 ** 10 ** 10` takes minutes


def compared(label: str, left: object, right: object) -> bool | None:
    """Evaluate a comparison, `label` being its operator; None if the values do not settle it.

    They may be `UNKNOWN`, `PRESENT` (not None) or `NO_STRING`, about which only some comparisons are sure: `x is None` is
    False of a `PRESENT` one, and `p == "mean"` of a `NO_STRING` one.
    """
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if label in ("is", "is not"):
        if not any(left is item or right is item for item in ONLY_ONE):
            return None  # whether equal literals are one object depends on Python
    # Of the order of a number and a string, `p < "a"`, nothing is said: Python raises.
    elif left is NO_STRING and _all_text(right):
        return {"==": False, "in": False, "!=": True, "not in": True}.get(label)
    elif any(item is known for item in (left, right) for known in (PRESENT, NO_STRING)):
        return None
    try:
        return bool(COMPARISONS[label](left, right))
    except TypeError:  # `kernel_size > 0` of a tuple
        return None


def _all_text(value: object) -> bool:
    """Return whether a value is a string or a tuple of strings."""
    several = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, str) for item in several)


def computed(
    label: str, left: Number, right: Number, *, short: bool = False
) -> Number | None:
    """Compute an arithmetic operation on two numbers, `label` being its operator; None if Python raises.

    With `short` the result is to be printed in a gradient, so it must look handwritten: `6.0 / 2` gives 3 (from 1000 up only of
    ints), and `1 / 3` gives None, since 0.3333333333333333 has over two characters more than the longer operand. A factor of
    many digits stays as its author knows it: `3 * 0.044715` gives None.
    """
    compute = ARITHMETIC.get(label)
    if compute is None or label == "**" and abs(right) > LARGEST_POWER:
        return None  # no arithmetic, or too slow
    try:
        result: Number = compute(left, right)
    except (ZeroDivisionError, OverflowError, ValueError, TypeError):
        return None
    if not short:
        return result
    # Up to 2**53 a float is exactly the int.
    if isinstance(result, float) and result.is_integer() and abs(result) < 2**53:
        of_ints = isinstance(left, int) and isinstance(right, int)
        return int(result) if of_ints or abs(result) < 1000 else result
    if label == "*" and (has_many_digits(left) or has_many_digits(right)):
        return None
    longest = max(len(repr(left)), len(repr(right))) + 2
    return result if len(repr(result)) <= longest else None


def has_many_digits(value: Number) -> bool:
    """Return whether a number is a constant such as 0.044715: its reader knows it, but not three times it."""
    digits = repr(value).partition("e")[0].replace(".", "")
    return isinstance(value, float) and len(digits.strip("-0")) > 4


def as_number(value: object) -> Number | None:
    """Return the value if it is a number, else None; True and False are not numbers."""
    plain = isinstance(value, int | float | complex) and not isinstance(value, bool)
    return value if plain else None  # type: ignore[return-value]


# --- Expressions.


@lru_cache(maxsize=512)  # defaults of parameters, read at each call of a primitive
def literal_value(text: str) -> object:
    """Return the value of a literal's text: 0.5 for "0.5"; raise ValueError if it is no literal."""
    return ast.literal_eval(text)


def is_literal(code: str | ast.expr) -> bool:
    """Return whether an expression (its text, or syntax) is a literal, or a container of literals."""
    try:
        ast.literal_eval(code)
    except (ValueError, SyntaxError):
        return False
    return True


def evaluated(node: Node, read: Read | None = None) -> object:
    """Return the value of an expression, `UNKNOWN` if its parts do not settle it; `and` and `or` give a truth value.

    `read` returns the value of a name, a call or an attribute. By default these are `UNKNOWN`, except the constants and
    functions of `math`. A list gives a tuple.
    """
    read = read or of_math
    match node.kind:
        case "constant":
            return literal_value(node.label)
        case "name":
            return read(node)
        case "tuple" | "list":
            values = tuple(evaluated(item, read) for item in node.args)
            return UNKNOWN if UNKNOWN in values else values
        case "unary":
            return _unary_value(node.label, evaluated(node.args[0], read))
        case "binary":
            return _arithmetic(node.label, *(evaluated(arg, read) for arg in node.args))
        case "conditional":
            return _choice_value(node, read)
        case "boolean":
            return _boolean_value(node, read)
        case "compare":
            return _comparison_value(node, [evaluated(arg, read) for arg in node.args])
    return read(node)


def of_math(node: Node, read: Read | None = None) -> object:
    """Evaluate `math.pi` or a call such as `math.sqrt(2)`; `UNKNOWN` for anything else, and for an error such as `math.sqrt(-1)`.

    It is the default `read` of `evaluated`; its own `read` gives the values of names in the arguments.
    """
    if node.kind == "attribute" and _is_math(node.args[0]):
        return getattr(math, node.label, UNKNOWN)
    if node.kind != "call" or node.args[0].kind != "attribute" or node.keywords:
        return UNKNOWN
    callee, *args = node.args
    values = [as_number(evaluated(arg, read)) for arg in args]
    if not _is_math(callee.args[0]) or None in values:
        return UNKNOWN
    try:
        return getattr(math, callee.label)(*values)
    except (ArithmeticError, ValueError, TypeError, AttributeError):
        return UNKNOWN


def truth(value: object) -> bool | None:
    """Return whether a value counts as true in a test; None if it is one of the unknown ones."""
    undecided = (UNKNOWN, PRESENT, NO_STRING)
    return None if any(value is item for item in undecided) else bool(value)


def _unary_value(label: str, value: object) -> object:
    """Return the value of `not`, `-` or `+` of a value; `UNKNOWN` if the value is unknown, or no number for a sign."""
    if label == "not":
        known = truth(value)
        return UNKNOWN if known is None else not known
    number = as_number(value)
    if number is None or label not in ("-", "+"):
        return UNKNOWN
    return -number if label == "-" else number


def _arithmetic(label: str, left: object, right: object) -> object:
    """Return the value of an operation on two numbers; `UNKNOWN` if one is no known number, or if Python raises."""
    one, two = as_number(left), as_number(right)
    result = None if one is None or two is None else computed(label, one, two)
    return UNKNOWN if result is None else result


def _is_math(node: Node) -> bool:
    return node.kind == "name" and node.label == "math"


def _choice_value(node: Node, read: Read) -> object:
    """Return the value of the branch taken of `a if test else b`; `UNKNOWN` if the test is not settled."""
    test, body, orelse = node.args
    known = truth(evaluated(test, read))
    return UNKNOWN if known is None else evaluated(body if known else orelse, read)


def _boolean_value(node: Node, read: Read) -> object:
    """Evaluate `and` or `or` to True or False; `UNKNOWN` if no operand decides it and some are unknown.

    A decisive operand (True for `or`, False for `and`) decides even after unknown ones. `sure`: all operands so far are known.
    """
    decisive, sure = node.label == "or", True
    for item in node.args:
        known = truth(evaluated(item, read))
        if known is decisive:
            return decisive
        sure = sure and known is not None
    return not decisive if sure else UNKNOWN


def _comparison_value(node: Node, values: list[object]) -> object:
    """Evaluate a chain of comparisons, `a < b < c`, on the `values` of its operands; `UNKNOWN` if they do not settle it."""
    labels = node.label.split(",")
    # There is one operand more than there are operators: `a < b < c` has two pairs.
    pairs = zip(labels, values, values[1:], strict=False)
    known = [compared(*pair) for pair in pairs]
    if False in known:
        return False  # one false link is enough, whatever the unknown ones give
    return UNKNOWN if None in known else True


# --- The opposite of a test in its usual form: `p != 2` for `not p == 2`.
#
# In: the test of an `if`. Out: its opposite. Invariant: exactly one of the two holds.


def opposite_of(graph: Graph, test: Node) -> Node:
    """Return the negation of a test, for the `else` branch: `a` for `not a`, `x is not None` for `x is None`, else `not test`."""
    match test:
        case Node("unary", "not", (inner,)):
            return inner
        case Node("compare", label, args) if label in OPPOSITES:
            return graph.node("compare", OPPOSITES[label], args)
    return graph.node("unary", "not", (test,))


def are_opposite(first: Node, second: Node) -> bool:
    """Return whether one test is the negation of the other, by its form: `p != 2` and `p == 2`, or `a` and `not a`.

    Such tests of two `if` statements choose between branches of which exactly one runs.
    """
    for test, other in ((first, second), (second, first)):
        match test:
            case Node("unary", "not", (inner,)) if inner is other:
                return True
            case Node("compare", label, args) if args == other.args:
                # Opposition is mutual, so the second order of the two need not be tried.
                return other.kind == "compare" and OPPOSITES.get(label) == other.label
    return False


# --- Branches whose test is settled by literals -> the branch taken.

Names = frozenset[str]
NONE: Names = frozenset()
SYNTAX = {label: kind for kind, label in COMPARE.items()}


def folded(
    body: Sequence[ast.stmt], there: Names = NONE, nones: Names = NONE
) -> list[ast.stmt]:
    """Return the statements without the branches never taken, and nothing after a return.

    `if bias is None: return y` is dropped, or is all that is left. Names in `there` are never None, names in `nones` always are.
    """
    done: list[ast.stmt] = []
    for item in body:
        # One statement, or those of the branch taken, perhaps none.
        found = _Folder(there, nones).visit(item)
        done += found if isinstance(found, list) else [found]
        if done and isinstance(done[-1], ast.Return):
            break  # the rest is unreachable
    return done


def without_empty(item: ast.If) -> list[ast.stmt]:
    """Return an `if` without an empty first branch, which is no Python: its test negated, its `else` as the body; [] without either."""
    if item.body:
        return [item]
    item.test, item.body, item.orelse = negated(item.test), item.orelse, []
    return [item] if item.body else []


def negated(test: ast.expr) -> ast.expr:
    """Return the negation of a test: `n != 1` for `n == 1`, `x > 0` for `not x > 0`, else `not test`.

    Only `==`, `is` and `in` have an opposite: `x <= 0` is none for `x > 0`, since a NaN fails both.
    """
    match test:
        case ast.UnaryOp(ast.Not(), inner):
            return inner
        case ast.Compare(left, [order], right) if COMPARE[type(order)] in OPPOSITES:
            opposite = SYNTAX[OPPOSITES[COMPARE[type(order)]]]()
            found: ast.expr = ast.Compare(left, [opposite], right)
        case _:
            found = ast.UnaryOp(ast.Not(), test)
    return ast.copy_location(found, test)


def truth_of(test: ast.expr, there: Names = NONE, nones: Names = NONE) -> bool | None:
    """Return the outcome of a test in syntax; None if literals do not settle it.

    Names in `there` are never None, names in `nones` always are: `bias is None` is False, or True. Other names are unknown.
    """
    match test:
        case ast.Constant(value):
            return bool(value)
        # A parameter may have been replaced by its tuple: `if dims:` is now `if (0, 1):`.
        case ast.Tuple(items) if all(isinstance(one, ast.Constant) for one in items):
            return bool(items)
        case ast.UnaryOp(ast.Not(), inner):
            truth = truth_of(inner, there, nones)
            return None if truth is None else not truth
        case ast.BoolOp(operation, items):
            # One True settles an `or`, one False an `and`.
            decisive = isinstance(operation, ast.Or)
            outcomes = [truth_of(one, there, nones) for one in items]
            if decisive in outcomes:
                return decisive
            return None if None in outcomes else not decisive
        case ast.Compare(left, [operation], [right]):
            checked = checked_for_none(test)  # the name, and True for `is not None`
            if checked and checked[0] in there | nones:
                name, asks_presence = checked
                return asks_presence == (name in there)
            return _compared(left, operation, right)
    return None


def _compared(left: ast.expr, order: ast.cmpop, right: ast.expr) -> bool | None:
    """Return the outcome of a comparison of literals; None if a side is no literal."""
    # Only `in` compares with several: `mode in ("sum", "mean")`.
    values = [_literal(left), _literal(right, isinstance(order, ast.In | ast.NotIn))]
    return compared(COMPARE[type(order)], *values)


def _literal(item: ast.expr, several: bool = False) -> object:
    """Return the value of a literal; with `several` also of a tuple, list or set of literals; `UNKNOWN` for other syntax."""
    match item:
        case ast.Constant(value):
            return value
        # Python has no negative literals: `-1` is an operation on 1.
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
        case ast.Tuple(elts) | ast.List(elts) | ast.Set(elts) if several:
            values = tuple(map(_literal, elts))
            return UNKNOWN if UNKNOWN in values else values
    return UNKNOWN


class BranchTaker(ast.NodeTransformer):
    """A replacement of choices by the branch taken, once their tests consist of literals.

    Subclasses put the literals into the tests: unrolling a loop turns `if i == 0` into `if 0 == 0`, and this class takes it.
    """

    there: Names = NONE
    nones: Names = NONE

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        """Return the statements of the branch taken, or the `if` if its test is not settled."""
        self.generic_visit(node)
        truth = truth_of(node.test, self.there, self.nones)
        if truth is None:
            return node
        return node.body if truth else node.orelse

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Return the value of the branch taken, or the conditional if its test is not settled."""
        self.generic_visit(node)
        truth = truth_of(node.test, self.there, self.nones)
        if truth is None:
            return node
        return node.body if truth else node.orelse


class _Folder(BranchTaker):
    """The transformer behind `folded`: the rest of a branch after a return goes too, and parts of `and` and `or`."""

    def __init__(self, there: Names, nones: Names) -> None:
        self.there, self.nones = there, nones

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        """Return the statements of the branch taken, or an `if` with both branches folded."""
        known = self.there, self.nones
        node.test = self.visit(node.test)
        truth = truth_of(node.test, *known)
        if truth is not None:
            return folded(node.body if truth else node.orelse, *known)
        node.body = folded(node.body, *known)
        node.orelse = folded(node.orelse, *known)
        return without_empty(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Fold `None or 1e-6` to `1e-6`, `True and x` to `x`, `t and True and x` to `t and x`.

        An operand that is settled and not decisive is dropped, unless it is the last: it may be the value.
        """
        self.generic_visit(node)
        # The decisive truth value; what is after a part with it is never evaluated.
        decisive = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for item in node.values:
            truth = truth_of(item, self.there, self.nones)
            if truth is None or truth is decisive or item is node.values[-1]:
                kept.append(item)
            if truth is decisive:
                break
        if len(kept) == 1:
            return kept[0]
        node.values = kept
        return node
