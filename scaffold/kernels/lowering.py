"""Statements as a row program: the meaning of each primitive for a row.

In: a `Lowered` graph of ops, and the `Space` of each input: `Space(True, "D")` of `x[N, D]`, `Space(False, "D")` of `w[D]`,
`Space(True, "")` of `t[N]`, `Space(True, "1")` of `x.sum(-1, keepdim=True)`, `NUMBER` of a scalar. Out: a `RowProgram`. Invariant: it
computes what the statements do, or `UnsupportedError` names the primitive; a value assigned to a name in the statements has that name in
the program.

A *meaning* is a function registered for primitives a kernel cannot compute element by element by the rule table's `triton` text: it gets
the `Lowering`, the op and the op's arguments by parameter, and returns the op's value.

Words: *held* are the ops whose value a name of the statements has, with that name; a row is *kept* if the condition of an op's result
`where(kept, loss, 0.0)` holds for it: of the others nothing but that 0.0 has an effect; an argument is *given* to an op by a call; a
value's *line* is `name = value` in the program; a gradient is *factored* if it is a product with the incoming one.
"""

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from scaffold.derive.graph import shapes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import OfShape, Op, Operator, SizeOf, literal
from scaffold.derive.graph.shape_rules import dim_of, dims_of
from scaffold.derive.graph.static_values import UnsupportedError, as_text
from scaffold.derive.lower.statements import Lowered
from scaffold.derive.rules.table import Table
from scaffold.derive.write.value_names import spread_role
from scaffold.formula import UNKNOWN, Node, emit, evaluated
from scaffold.kernels.row_program import (
    NUMBER,
    ONE,
    Apply,
    Column,
    Fold,
    Gather,
    Kind,
    Line,
    Load,
    Name,
    Number,
    Reduce,
    Repeat,
    Space,
    Value,
    Word,
    free_name,
    inner,
)
from scaffold.spec import Dim

# The kinds of ops that a kernel computes, as this package types them.
KINDS: Mapping[str, Kind] = {"real": "real", "int": "int", "bool": "bool"}
Meaning = Callable[["Lowering", Op, dict[str, Op]], Value]
MEANINGS: dict[str, Meaning] = {}
Terms = list[tuple[bool, Value]]  # of a sum: whether one is added, and its value
ZEROS = ("zeros_like", "zeros", "new_zeros")
VARIANCES = ("var", "std")
SUMS = ("sum_to_size", "summed_to")  # to the shape of an input: they state no dims
CASTS = ("to", "cast", "float", "double", "unsqueeze", "squeeze")  # no arithmetic
LINEAR = ("neg", "mul", "div", *CASTS)  # in the argument that is a sum over rows
ARITHMETIC = ("binary", "unary", "conditional", "compare")  # on numbers
NEGATIVE = re.compile(r"-[\w.]+( / \w+)?")  # `-2`, `-alpha`, `-1 / D`
LITERALS = re.compile(r"(-?[\d.]+ ?){2}")  # two numbers: "0.1 0.9"


def meaning(*rules: str) -> Callable[[Meaning], Meaning]:
    """Return a decorator to register a function as the meaning of some primitives, named as in the rule table."""

    def add(function: Meaning) -> Meaning:
        MEANINGS.update(dict.fromkeys(rules, function))
        return function

    return add


class Shapes(NamedTuple):
    """The declared space of each input of a kernel, and the names of its leading dims and of the last one."""

    spaces: Mapping[str, Space]
    lead: tuple[Dim, ...]
    width: str  # "" of a program that is elementwise
    attributes: frozenset[str] = frozenset()
    of: int = 1  # how many values of that width the rows of some inputs hold
    repeats: Mapping[str, Repeat] = {}  # of inputs that lack leading dims
    singles: frozenset[str] = frozenset()  # inputs of one number for all rows
    lse: bool = False  # a softmax reads the logarithm of its sum, which is saved
    kept: Value | None = None  # a condition: results of other rows are a number


class Lowering:
    """The row program of one direction, as it is built: `value` translates an op of the graph, and adds loads and lines for it.

    A value gets a line of its own, `name = value`, if several ops read it or the statements name it; else it is an expression in another line.
    """

    def __init__(
        self, applier: Applier, lowered: Lowered, shapes: Shapes, taken: Iterable[str]
    ) -> None:
        """Start an empty program for a graph; `taken`: names lines must not get, by any word.

        These stay in `reserved`; in `taken` are also the user's names for values, and names given since. `values` and `names`: translated ops,
        and values with a line; `uses`: how many ops read each.
        """
        self.program, self.table = applier.program, applier.table
        self.lowered, self.shapes = lowered, shapes
        self.reserved = {*taken}
        self.taken = {*taken, *lowered.held.values()}
        self.loads: dict[str, Load] = {}
        self.lines: list[Line] = []
        self.constants: dict[str, str] = {}  # of math, as they are written
        self.widths: dict[str, str] = {}  # a width -> one that is the same size
        self.names: dict[Value, Name] = {}
        self.values: dict[Op, Value] = {}
        every = {op for result in lowered.results for op in result.walk()}
        self.ops = sorted(every, key=lambda op: op.serial)
        self.uses = Counter(arg for op in every for arg in op.args)
        self.kept: Value | None = None  # that condition
        self.factored = ""  # a gradient as a product, for the docstring

    def run(self) -> None:
        """Add the lines of all values with a name, in the order of the statements; sums over rows are not lines: `finished` makes them results."""
        for op in self.ops:
            if op in self.lowered.held and op.is_tensor and not self.is_sum(op):
                self.value(op)

    # --- Values.

    def value(self, op: Op) -> Value:
        """Return the value of an op, translated once; a `Name` if it is named in the statements or several ops read it."""
        if op not in self.values:
            self.values[op] = self._evaluated(op)
        return self.values[op]

    def _evaluated(self, op: Op) -> Value:
        """Translate an op: a `Number` of a Python value, else its value, or the `Name` of the line added for it.

        Inputs get no line, as their load names them, nor does an `unsqueeze` or `squeeze` that several ops read: it is no arithmetic.
        """
        if op.kind == "complex":
            raise UnsupportedError("a kernel cannot compute complex numbers")
        if not op.is_tensor:
            return self.number(op)
        found = self._known(self._computed(op))
        if op in self.lowered.held and op.rule != "input":
            return self.named(found, self.lowered.held[op], own=True)
        if self.uses[op] > 1 and op.rule not in ("input", "unsqueeze", "squeeze"):
            return self.named(found, _word(op))
        return found

    def _computed(self, op: Op) -> Value:
        """Return the value of an op by its registered meaning, else its primitive applied element by element."""
        if op.rule in MEANINGS:
            return MEANINGS[op.rule](self, op, self.given(op))
        refuse_foreign(self.table, op)
        return self.applied(op, self.given(op))

    def given(self, op: Op) -> dict[str, Op]:
        """Return the arguments of an op by parameter; {} for an op without a section in the rule table."""
        rule = self.table.of_op(op.rule)
        # An op without a section, as `item` is, has arguments but no parameters.
        return rule.by_parameter(op.args) if rule else {}

    def applied(self, op: Op, args: Mapping[str, Op]) -> Value:
        """Return an op as its primitive, applied element by element; `args`: its arguments by parameter, translated here.

        A number of each row, computed in this very expression, is named before it meets columns, so that the row is reduced on a line of its own.
        """
        given = {name: self._argument(arg) for name, arg in args.items()}
        values = [item for item in given.values() if not isinstance(item, Word)]
        space = self.joined(item.space for item in values)
        for name, item in given.items():
            if space.has_columns and not isinstance(item, Word) and _is_reduced(item):
                given[name] = self.named(item, _word(args[name]))
        return Apply(op.rule, (*given.items(),), space, KINDS[op.kind])

    def _known(self, value: Value) -> Value:
        """Return the `Name` of an equal value with a line, over the value's own space; else the value itself.

        A number of each row is found also if its line has it with or without a last dim of size 1: the kernel computes both alike.
        """
        known, space = self.names.get(value), value.space
        if known is None and not space.has_columns:
            width = "" if space.width else ONE
            known = self.names.get(_with_space(value, Space(space.rows, width)))
        return value if known is None else _with_space(known, space)

    def _argument(self, op: Op) -> Value | Word:
        """Return an argument of a primitive: a `Word` for a string, bool or None (`approximate='tanh'`), else its value."""
        known = literal(op)
        # None here is the literal itself: what is no literal is UNKNOWN.
        if not op.is_tensor and (known is None or isinstance(known, str | bool)):
            return Word(known)
        return self.value(op)

    def apply(self, primitive: str, *values: Value, kind: Kind = "real") -> Value:
        """Return a primitive of values given in the order of its parameters, or the `Name` of a line with that value."""
        rule = self.table.rule(primitive)
        names = [item.name for item in rule.parameters]
        space = self.joined(item.space for item in values)
        args = tuple(zip(names, values, strict=False))
        return self._known(Apply(primitive, args, space, kind))

    def named(self, value: Value, word: str, *, own: bool = False) -> Value:
        """Return the `Name` of a value; if it has no line yet, add one, called `word` or similar.

        `own`: the word is the user's name for the value, taken as it is unless the kernel's file or another line has it.
        """
        if isinstance(value, Name | Number):
            return value
        if value not in self.names:
            # `mask` is the kernel's own name, for the test of rows and columns.
            word = "condition" if word == "mask" and word in self.reserved else word
            given = {line.name for line in self.lines} | {*self.loads}
            free = own and word not in self.reserved | given
            name = word if free else free_name(word, value, self.taken, self._line)
            self.taken.add(name)
            self.lines.append(Line(name, value))
            self.names[value] = Name(name, value.space, value.kind)
        return self.names[value]

    def _scores(self) -> str:
        """Return the name for the argument of a softmax: `scores`, or `logits` if an input is called `scores`."""
        return "logits" if "scores" in self.shapes.spaces else "scores"

    def whole(self, value: Value) -> Value:
        """Return the value of a name's line; any other value, and the name of a load, as it is."""
        line = self._line(value.text) if isinstance(value, Name) else None
        return line or value

    def sign(self, value: Apply) -> str:
        """Return the operator of a primitive: "*" of `mul`; "" of one that is no operator."""
        return self.table.rule(value.primitive).facts.operator or ""

    def shown(self, value: Value) -> str:
        """Return the text of a value, as PyTorch's functions of numbers of one row; "" if it has more than primitives, names and numbers."""
        if isinstance(value, Name | Number):
            return value.text
        args = [self.shown(item) for item in inner(value)]
        # Fewer values than arguments: one of these is a `Word`, which the text would lack.
        if not isinstance(value, Apply) or len(args) < len(value.args) or "" in args:
            return ""
        text = f"{self.table.rule(value.primitive).spelled.name}({', '.join(args)})"
        if sign := self.sign(value):
            operands = [f"({x})" for x in args]
            text = sign.join(operands) if len(args) > 1 else sign + operands[0]
        return ast.unparse(ast.parse(text))  # drops needless parentheses

    def selected(self, value: Value) -> Value:
        """Return `where(kept, value, 0.0)` in an op with such a condition, else the value."""
        if self.kept is None:
            return value
        test = _with_space(self.kept, Space(True, ONE if value.space.width else ""))
        return self.apply("where", test, value, Number("0.0"))

    def _line(self, name: str) -> Value | None:
        """Return the value of the line with a name; None for the name of a load."""
        return next((item.value for item in self.lines if item.name == name), None)

    # --- What is the same in all rows.

    def number(self, op: Op) -> Number:
        """Return a Python value as a `Number`, an expression in the kernel's source; UnsupportedError if the kernel cannot compute it."""
        node = self._text(op)
        # The size is an argument of the kernel, and Triton has no `**` of these; attributes are constants.
        if self.shapes.width in node.names() and "**" in emit(node):
            raise UnsupportedError("a power of the row's size")
        return Number(emit(node))

    def _text(self, op: Op) -> Node:
        """Return the expression of a Python value: of attributes, constants and the size of a row, `x.shape[-1]` -> `D`.

        What Python can evaluate now, like `math.sqrt(2)`, becomes a constant; `self.constants` keeps its origin for a comment.
        """
        match op.data:
            case SizeOf(dim):
                return self._size(dim)
            case OfShape(shape) if op.rule == "size" and literal(op.args[0]) == -1:
                return self._size(shape.dims[-1] if shape.dims else None)
            case Operator(kind, label) if kind in ARITHMETIC:
                node = Node(kind, label, tuple(map(self._text, op.args)))
            case Operator("subscript"):
                return self._size_read(as_text(op))
            case _:
                node = as_text(op)
        known = evaluated(as_text(op)) if op.rule == "python" else UNKNOWN
        # `evaluated` calls functions of math, but no `float`.
        known = INFINITE.get(emit(as_text(op)), known)
        if isinstance(known, int | float):  # of functions of math, too
            self.constants[_constant(known)] = emit(as_text(op))
            return Node("constant", _constant(known))
        if op.rule not in ("const", "static", "python") or not self._is_plain(node):
            raise UnsupportedError(f"a kernel cannot compute the number {emit(node)}")
        return node

    def _is_plain(self, node: Node) -> bool:
        """Return whether an expression is arithmetic on constants, attributes and the size of a row."""
        if node.kind == "name":
            return node.label in {*self.shapes.attributes, self.shapes.width}
        known = node.kind in ("constant", *ARITHMETIC)
        return known and all(map(self._is_plain, node.args))

    def _size_read(self, node: Node) -> Node:
        """Return the name of the row's size for `x.shape[-1]`, if the rows of `x` have that size; UnsupportedError for any other size."""
        owner, index = node.args
        space = self.shapes.spaces.get(owner.args[0].label) if owner.args else None
        last = owner.label == "shape" and evaluated(index) == -1
        return self._size(shapes.NamedSize(space.width) if last and space else None)

    def _size(self, dim: shapes.Dim | None) -> Node:
        """Return the name of the row's size if a dim has it; UnsupportedError if it is another or None (not known)."""
        if not isinstance(dim, shapes.NamedSize) or dim.name != self.shapes.width:
            raise UnsupportedError("a kernel knows only the size of a row")
        return Node("name", dim.name)

    # --- Spaces.

    def joined(self, spaces: Iterable[Space]) -> Space:
        """Return the space several values broadcast to, and note that their widths are equal.

        Numbers of each row, `t[N]`, with `x[N, D]` are refused: PyTorch would align N with D. `t[N, 1]` and scalars broadcast.
        """
        every = [space for space in spaces if space != NUMBER]
        rows = any(space.rows for space in every)
        ranked = [space.width for space in every if space.width]
        # Some have a last dim, perhaps of size 1, and some are numbers of each row without one.
        if ranked and len(ranked) < len(every):
            raise UnsupportedError("a number per row is broadcast along the rows")
        wide = list(dict.fromkeys(width for width in ranked if width != ONE))
        for one, two in pairwise(wide):
            self.widths[self.canonical(two)] = self.canonical(one)
        width = wide[0] if wide else ONE if ranked else ""
        return Space(rows, width)

    def canonical(self, width: str) -> str:
        """Return the one name for a width: `joined` notes sizes found equal, `{"K": "D"}`, and all of them get the name `D`."""
        while width in self.widths and self.widths[width] != width:
            width = self.widths[width]
        return width

    def over_row(self, op: Op, dim: Op | None) -> bool:
        """Return whether a reduction of an op's value over `dim` is over its last dim alone."""
        dims = dims_of(dim) or ()
        return [shapes.from_end(op.shape, at) for at in dims] == [-1]

    def is_sum(self, op: Op) -> bool:
        """Return whether an op is a sum over rows, or to the shape of an input, or linear in such: `(grad * x).sum(0) * 2`.

        A kernel has no line for a value that reads all rows; it may only be the gradient of an input shared by rows. A sum to the
        shape of `s[N, 1]` is over columns, but is a gradient too, so it is left to `finished` as well.
        """
        # Only a `sum` has dims to look at; of SUMS the input's declared space tells what is summed
        # (`_summed_to_space`).
        if op.rule in SUMS:
            return True
        if op.rule == "sum":
            return not self.over_row(op.args[0], op.args[1])
        return self._summand(op) is not None

    def _summand(self, op: Op) -> Op | None:
        """Return the argument of a linear op with a sum (`is_sum`) in it, `s` of `s * 2`, `-s` or `s / n`; else None.

        Of `s * t` and `s / n` the other factor must not be such a sum, and of a division the sum is the dividend.
        """
        sums = [arg for arg in op.args if arg.is_tensor and self.is_sum(arg)]
        # `s * t` and `t * s`, but only `s / n`.
        is_factor = op.facts.operator == "*" or sums == [*op.args[:1]]
        return sums[0] if op.rule in LINEAR and len(sums) == 1 and is_factor else None

    def reduced(self, value: Value, keepdim: bool) -> Space:
        """Return the space of the reduction of a row: its rows, with a last dim of size 1 if `keepdim`."""
        if not value.space.has_columns:
            raise UnsupportedError("a reduction of a value without columns")
        return Space(value.space.rows, ONE if keepdim else "")

    def total(self, value: Value, word: str = "") -> Value:
        """Return the sum of each row, with a last dim of size 1; with a `word`, it gets a line of this name."""
        found = Reduce("sum", value, self.reduced(value, True))
        return self.named(found, word) if word else found


INFINITE = {f"float('{sign}inf')": float(f"{sign}inf") for sign in ("", "-", "+")}


def _constant(value: float) -> str:
    """Return a number as source for a kernel: `float("inf")` for an infinity, which has no literal."""
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _word(op: Op) -> str:
    """Return a name for the value of an op: by its role in the rule table (`std`, `mean`), else the primitive's name.

    A result of several is named after the call: `row_max` of `x.max(-1)`.
    """
    # A word such as `{}_over_{}` is a pattern for names of operands.
    words = (word for word in op.facts.words if "{" not in word)
    if op.rule == "item":
        return f"row_{op.args[0].rule.partition('_')[0]}"
    return spread_role(op) or next(words, op.rule)


def _is_reduced(value: Value) -> bool:
    """Return whether a value is a number of each row with a reduction in its expression: the reduction has no line yet."""
    reduced = isinstance(value, Reduce) or any(map(_is_reduced, inner(value)))
    return reduced and not value.space.has_columns


UNNAMED = {"call": "a call without a rule", "cond": "a choice"}
SEVERAL = ("max_dim", "min_dim", "var_mean")  # results
TAKEN_APART = (*SEVERAL, "chunk", "item", "cat", "index", "slice")


def refuse_foreign(table: Table, op: Op) -> None:
    """Raise UnsupportedError if a primitive has neither a meaning here nor a `triton` text in the rule table.

    Sums and parts of rows pass: `finished` and `packed` treat them where they can, and refuse them elsewhere.
    """
    rule = table.of_op(op.rule)
    known = op.rule in MEANINGS or rule is not None and rule.triton
    if not known and op.rule not in (*SUMS, *TAKEN_APART):
        name = UNNAMED.get(op.rule, op.rule)
        raise UnsupportedError(f"{name} cannot be part of a row kernel")


def _flag(args: Mapping[str, Op], name: str) -> bool:
    """Return whether a boolean argument is the literal True."""
    return name in args and literal(args[name]) is True


# --- Reductions.


def _reduced_row(self: Lowering, op: Op, args: Mapping[str, Op]) -> tuple[Value, bool]:
    """Return the value an op reduces, and whether it keeps the dim; UnsupportedError for a dim other than the last."""
    x, dim = op.args[0], args.get("dim")
    # An elementwise program, without a width, has no rows: its tensors are flat.
    if not self.over_row(x, dim) or not self.shapes.width:
        raise UnsupportedError(f"{op.rule} over a dim other than the last")
    return self.value(x), _flag(args, "keepdim")


@meaning("sum")
def _sum(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the sum of a row, without a reduction if it is known: the sum of a one-hot row is its one number."""
    value, keepdim = _reduced_row(self, op, args)
    space, known = self.reduced(value, keepdim), _known_sum(self, value)
    return Reduce("sum", value, space) if known is None else _with_space(known, space)


def _known_sum(self: Lowering, value: Value) -> Value | None:
    """Return the sum of a row if it needs no reduction, else None; in the gradient of a cross entropy it need not be computed.

    Such rows are a mean's gradient (`s / D` in all columns: the sum is `s`), a one-hot row, and sums, differences and multiples of these.
    """
    sums, items = partial(_known_sum, self), inner(value)
    match value:
        case Name(text) if (line := self._line(text)) is not None:
            return sums(line)
        # The one-hot row of an index in range, `items[1]`; it is all NaN if it is not.
        case Apply("where", (_, (_, _), (_, Number('float("nan")')))):
            return sums(items[1])
        # Only `_scatter` makes such a comparison of columns: `items[1]` in one column, 0.0 in all others.
        case Apply("where", ((_, Apply("eq", ((_, Column()), _))), _, _)):
            return items[1]
        case Apply("div", (_, (_, Number(text)))) if text == self.shapes.width:
            # Of `row / D` the sum is no single number that is known.
            return None if items[0].space.has_columns else items[0]
        case Apply("add" | "sub" | "neg"):
            every = [item for item in map(sums, items) if item is not None]
            both = len(every) == len(items)
            return self.apply(value.primitive, *every) if both else None
        case Apply("mul"):
            for factor, row in (items, items[::-1]):
                known = None if factor.space.has_columns else sums(row)
                if known is not None:
                    one = known == Number("1.0")
                    return factor if one else self.apply("mul", factor, known)
    return None


@meaning("mean")
def _mean(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the mean of a row, as a division of its sum by the row's size; of `log_softmax(x)`, which is `x - lse`, as `mean(x) - lse`."""
    value, keepdim = _reduced_row(self, op, args)
    if op.args[0].rule == "log_softmax":
        scores, lse = inner(self.whole(value))
        mean = _mean_of(self, scores, keepdim)
        return self.apply("sub", mean, _with_space(lse, mean.space))
    return _mean_of(self, value, keepdim)


def _mean_of(self: Lowering, value: Value, keepdim: bool) -> Value:
    """Return the mean of a row; if its sum has been divided already, the `Name` of that line."""
    mean = self.apply("div", self.total(value), Number(self.shapes.width))
    return self._known(_with_space(mean, self.reduced(value, keepdim)))


@meaning(*VARIANCES, *(f"{rule}_unbiased" for rule in VARIANCES))
def _variance(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the variance of a row, or its root, from the centred row: the mean of the squares would cancel.

    `var` and `std` take a `correction`; their overloads with `unbiased` subtract 1 if it is True, else 0.
    """
    value, keepdim = _reduced_row(self, op, args)
    lost = Number(str(int(_flag(args, "unbiased"))))
    correction = self.number(args["correction"]) if "correction" in args else lost
    mean = self.named(_mean_of(self, value, True), "mean")
    centred = self.named(self.apply("sub", value, mean), "centred")
    square = self.apply("square", centred)
    total = Reduce("sum", square, self.reduced(value, keepdim))
    length = Number(self.shapes.width)
    if correction.text != "0":
        length = Number(f"({length.text} - {correction.text})")
    found = self.apply("div", total, length)
    return self.apply("sqrt", found) if op.rule.startswith("std") else found


@meaning("norm", "vector_norm", "linalg_norm")
def _norm(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the 1-norm or 2-norm of a row; other orders are refused."""
    # `p` of norm, `ord` of the other two; without one, and with "fro", it is the 2-norm.
    order = args.get("p") or args["ord"]
    power = 2 if emit(as_text(order)) == "None" else literal(order)
    value, keepdim = _reduced_row(self, op, args)
    space = self.reduced(value, keepdim)
    value = self.named(value, _word(op.args[0]))
    if power == 1:
        return Reduce("sum", self.apply("abs", value), space)
    if power not in ("fro", 2):
        raise UnsupportedError(f"a norm of the order {power}")
    return self.apply("sqrt", Reduce("sum", self.apply("square", value), space))


@meaning("amax", "amin")
def _extremum(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the maximum or minimum of a row; it is NaN if the row has one, as in PyTorch."""
    value, keepdim = _reduced_row(self, op, args)
    fold: Fold = "max" if op.rule == "amax" else "min"
    return Reduce(fold, value, self.reduced(value, keepdim), value.kind, nan=True)


@meaning("softmax")
def _softmax(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the softmax of a row, as `exp(row - lse)` in an op with a log_softmax too: the forward saves that `lse`, and both read it."""
    value = self.named(_reduced_row(self, op, args)[0], self._scores())
    if self.shapes.lse:
        return _exp(self, value, _lse(self, value))
    row_max = self.named(Reduce("max", value, self.reduced(value, True)), "row_max")
    exp = self.named(_exp(self, value, row_max), "exp")
    return self.apply("div", exp, self.total(exp, "total"))


def _lse(self: Lowering, value: Value) -> Value:
    """Return `log(sum(exp(row)))`, on a line `lse`; the row's maximum is subtracted first, against overflow."""
    row_max = self.named(Reduce("max", value, self.reduced(value, True)), "row_max")
    return self.named(_log_sum_exp(self, value, row_max), "lse")


def _log_sum_exp(self: Lowering, value: Value, shift: Value) -> Value:
    """Return `shift + log(sum(exp(row - shift)))`: the shift, a number of each row, avoids overflow."""
    total = self.total(_exp(self, value, shift))
    return self.apply("add", shift, self.apply("log", total))


def _exp(self: Lowering, value: Value, shift: Value) -> Value:
    """Return `exp(row - shift)`, the shift a number of each row."""
    return self.apply("exp", self.apply("sub", value, shift))


@meaning("log_softmax")
def _log_softmax(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return `row - log(sum(exp(row)))`."""
    value = self.named(_reduced_row(self, op, args)[0], self._scores())
    return self.apply("sub", value, _lse(self, value))


# --- Dims, casts, parts.


@meaning("input")
def _input(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the `Name` of an input, and add its load, one for all reads."""
    name, space, kind = op.name, self.shapes.spaces[op.name], KINDS[op.kind]
    repeat, single = self.shapes.repeats.get(name), name in self.shapes.singles
    self.loads.setdefault(name, Load(name, name, space, kind, None, repeat, single))
    return Name(name, space, kind)


@meaning("unsqueeze", "squeeze")
def _with_dim_of_one(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a number of each row with a last dim of size 1 for `unsqueeze`, without it for `squeeze`; other dims are refused."""
    value = self.value(op.args[0])
    grows = op.rule == "unsqueeze"
    fits = value.space == Space(True, "" if grows else ONE)
    # The shape that has the dim of size 1, as `dim` counts in that one.
    whole = op.shape if grows else op.args[0].shape
    if not fits or shapes.from_end(whole, dim_of(args["dim"])) != -1:
        raise UnsupportedError(f"{op.rule} at a dim other than the last")
    return _with_space(value, Space(True, ONE if grows else ""))


@meaning("add")
def _add(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a sum; of the straight-through `x + (y - x).detach()` only `y`, which is its value but for rounding."""
    x, rest = op.args[:2]
    change = rest.args[0] if rest.rule == "detach" else rest
    if change is not rest and change.facts.operator == "-" and change.args[1:] == (x,):
        return self.value(change.args[0])
    return self.applied(op, args)


@meaning("pow_exponent")
def _power(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a power; `x ** 2` as the primitive `square`, as the printer knows that it is 0 past a row's end if `x` is."""
    if literal(args["exponent"]) == 2:
        return self.apply("square", self.value(args["x"]))
    return self.applied(op, args)


@meaning("expand_as")
def _expanded(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a number of each row as a value of all columns, for `expand_as`; anything else is refused."""
    value, like = self.value(op.args[0]), self.value(op.args[1])
    if value.space != Space(True, ONE) or not like.space.is_row:
        raise UnsupportedError("expand_as of anything but one number per row")
    return _with_space(value, like.space)


@meaning("item")
def _item(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return one of the two results of `max`, `min` or `var_mean` over a row: of an extremum its value or its column.

    The column is the smallest one with the row's extremum, or with a NaN, as in PyTorch.
    """
    group, at = op.args[0], op.position
    given = self.given(group)
    if group.rule == "var_mean" and at == 0:
        return _variance(self, group, given)
    if group.rule not in SEVERAL or at not in (0, 1):
        words = "cannot be part of a row kernel"
        raise UnsupportedError(f"a result of {group.rule} {words}")
    value, keepdim = _reduced_row(self, group, given)
    if group.rule == "var_mean":
        return _mean_of(self, value, keepdim)
    fold: Fold = "max" if group.rule == "max_dim" else "min"
    # For the column (`at` 1) it keeps its dim, to be compared with the row.
    found = Reduce(fold, value, self.reduced(value, at == 1 or keepdim), nan=True)
    if at == 0:
        return found
    value = self.named(value, _word(group.args[0]))
    first = self.apply("eq", value, self.named(found, f"row_{fold}"), kind="bool")
    nan = self.apply("isnan", value, kind="bool")  # PyTorch's index is that of a NaN
    first = self.apply("bitwise_or", first, nan, kind="bool")
    column, end = Column(value.space), Number(self.shapes.width, kind="int")
    where = self.apply("where", first, column, end, kind="int")
    return Reduce("min", where, self.reduced(value, keepdim), "int")


def _with_space(value: Value, space: Space) -> Value:
    """Return a value with its `space` replaced: the same numbers, seen with another last dim or in all columns."""
    same = isinstance(value, Number | Column)
    return value if same else replace(value, space=space)


@meaning("contiguous", "clone", "detach", "cast", "to", "float", "double", "type_as")
def _same(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the argument of a cast or copy, as in a kernel all real numbers have one precision; a bool becomes 1.0 or 0.0.

    A cast to float32 stays an op: it rounds in a kernel of float64. Integers are refused.
    """
    value = self.value(op.args[0])
    if (value.kind, op.kind) == ("bool", "real"):
        return self.apply("where", value, Number("1.0"), Number("0.0"))
    if (value.kind, op.kind) != ("real", "real"):
        raise UnsupportedError(f"{op.rule} of a value that is not real")
    single = op.rule == "to" and emit(as_text(op.args[1])) == "torch.float32"
    if op.rule == "float" or single:
        return Apply("float", (("x", value),), value.space)
    return value


@meaning("neg")
def _negated(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a negated value; of a difference `a - b`, `b - a`."""
    value = self.applied(op, args)
    match inner(value):
        case (Apply("sub") as found,) if len(inner(found)) == 2:
            return _with_space(self.apply("sub", *inner(found)[::-1]), value.space)
    return value


@meaning("gather")
def _gather(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return the number of each row at an index: `x.gather(-1, index)`, also for a computed `x`; NaN if the index is out of range."""
    row, index = self.value(args["x"]), self.value(args["index"])
    if not self.over_row(args["x"], args["dim"]) or index.space != Space(True, ONE):
        raise UnsupportedError("gather of anything but one number per row")
    index = self.named(index, "index")
    return _at_column(self, row, index, _in_range(self, index))


def _at_column(self: Lowering, row: Value, index: Value, inside: Value) -> Value:
    """Return a computed row at one column, from the inputs at that column: `(x * w)` at `i` -> `x[i] * w[i]`.

    `inside`: whether the index is in the range of the row. A value without columns is the same at every index.
    """
    at = partial(_at_column, self, index=index, inside=inside)
    match row:
        case Column():
            return index
        case Name(text, space, kind) if space.has_columns:
            if (line := self._line(text)) is not None:
                return at(line)
            if kind != "real":  # outside of the row it is NaN, which no integer can be
                raise UnsupportedError("gather of a value that is not real")
            return self.named(Gather(text, index, inside, index.space), "picked")
        case Apply(_, args, space) if space.has_columns:
            given = ((k, x if isinstance(x, Word) else at(x)) for k, x in args)
            return self._known(replace(row, args=(*given,), space=index.space))
    return row


def _in_range(self: Lowering, index: Value) -> Value:
    """Return the test `(index >= 0) & (index < D)`, on a line; a kernel cannot raise PyTorch's error, so others give NaN."""
    low = self.apply("ge", index, Number("0"), kind="bool")
    high = self.apply("lt", index, Number(self.shapes.width), kind="bool")
    both = self.apply("bitwise_and", low, high, kind="bool")
    return self.named(both, "in_range")


@meaning("logsumexp")
def _logsumexp(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return `log(sum(exp(row)))`; an infinite maximum is not subtracted, for `inf - inf` is NaN where PyTorch returns inf."""
    value, keepdim = _reduced_row(self, op, args)
    value = self.named(value, self._scores())
    row_max = self.named(Reduce("max", value, self.reduced(value, True)), "row_max")
    bounds = (self.apply("abs", row_max), Number('float("inf")'))
    finite = self.apply("lt", *bounds, kind="bool")
    shift = self.named(self.apply("where", finite, row_max, Number("0.0")), "shift")
    return _with_space(_log_sum_exp(self, value, shift), self.reduced(value, keepdim))


# Zeros of any shape are one number, which broadcasts.
MEANINGS |= dict.fromkeys(ZEROS, lambda *_: Number("0.0"))


@meaning("scatter")
def _scatter(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a one-hot row times a number: `zeros.scatter(-1, index, src)`, as a comparison of each column with the index.

    An index out of range makes the row NaN; the column of an extremum is in range, and needs no test.
    """
    index, base = self.value(args["index"]), args["x"]
    zeros = base.rule in ZEROS
    if not zeros or not self.over_row(base, args["dim"]) or index.space.width != ONE:
        raise UnsupportedError("scatter of anything but one number per row")
    width = Space(True, self.shapes.width)
    at = self.apply("eq", Column(width), index, kind="bool")
    src = self.value(args["src"])
    # A float, like the 0.0 of the other columns.
    src = Number(f"{src.text}.0") if src == Number("1", kind=src.kind) else src
    found = self.apply("where", at, src, Number("0.0"))
    known = self._line(index.text) if isinstance(index, Name) else index
    if isinstance(known, Reduce):  # the column of an extremum
        return found
    inside = _in_range(self, self.named(index, "index"))
    return self.apply("where", inside, found, Number('float("nan")'))


# --- Rows that are selected away: no other value of them has an effect.


def select(self: Lowering) -> Value | None:
    """Return `loss` of an op's result `where(kept, loss, 0.0)`, and note the condition of each row; None of any other result."""
    op, *others = self.lowered.results
    fits = op.rule == "where" and not others and self.shapes.width != ""
    if not fits or literal(op.args[2]) != 0:
        return None
    test = self.value(op.args[0])
    # Only a condition of one value for each row selects rows.
    is_one_each_row = test.space.rows and not test.space.has_columns
    test = self.named(test, "kept") if is_one_each_row else test
    # An input has no line, and by that the backward finds the condition (`_pair`).
    if not is_one_each_row or self.whole(test) is test:
        return None
    self.kept, self.shapes = test, self.shapes._replace(kept=self.whole(test))
    return self.value(op.args[1])


@meaning("where")
def _where(self: Lowering, op: Op, args: dict[str, Op]) -> Value:
    """Return a choice; by the condition of the rows that are kept, what it chooses there."""
    test, kept = self.value(args["condition"]), self.shapes.kept
    # With or without a last dim of size 1 it is the same condition.
    if kept is None or _with_space(self.whole(test), kept.space) != kept:
        return self.applied(op, args)
    self.kept = self.named(test, "kept")
    return self.value(args["x"])


# --- A gradient as a product with the incoming one.


def factored(self: Lowering, value: Value, grad: str) -> None:
    """Replace the line of a gradient, `grad * a - grad * b`, by `grad * (a - b)`, and set the text of this product, `factored`.

    So the kernel multiplies by `grad`, the incoming gradient, only once; done if that is one number of each row.
    """
    whole = self.whole(value)
    if isinstance(value, Name) and not self.shapes.spaces[grad].has_columns:
        rest = _over(self, whole, grad)
        sums = isinstance(whole, Apply) and self.sign(whole) in ("+", "-")
        if sums and rest is not None:
            # Added terms first, so that the factor does not begin with a minus if it need not.
            (plus, rest), *terms = sorted(_terms(self, rest), key=lambda x: not x[0])
            rest = rest if plus else self.apply("neg", rest)
            for plus, term in terms:
                rest = self.apply("add" if plus else "sub", rest, term)
            product = self.apply("mul", Name(grad, Space(True, ONE)), rest)
            at = self.lines.index(Line(value.text, whole))
            self.lines[at] = Line(value.text, product)
            self.factored = self.shown(self.selected(product))


def _terms(self: Lowering, value: Value, plus: bool = True) -> Terms:
    """Return the terms of a sum, each with whether it is added: of `a - (b - c)` `a` and `c`, but not `b`."""
    if isinstance(value, Apply) and (sign := self.sign(value)) in ("+", "-"):
        *first, last = inner(value)
        terms = [x for item in first for x in _terms(self, item, plus)]
        return terms + _terms(self, last, plus == (sign == "+"))
    # `a + -2` has the term 2, taken away.
    if isinstance(value, Number) and NEGATIVE.fullmatch(value.text):
        return [(not plus, Number(value.text[1:]))]
    return [(plus, value)]


def _over(self: Lowering, value: Value, grad: str) -> Value | None:
    """Return a value without its factor `grad`; None if it is not linear in it."""
    found: Value | None = None
    match value:
        case Name(text) if text == grad:
            return Number("1")
        case Name() if (whole := self.whole(value)) is not value:
            found = _over(self, whole, grad)
        # `-x` has an operator too, but one operand.
        case Apply(word) if (sign := self.sign(value)) and len(inner(value)) == 2:
            one, two = inner(value)
            first, second = _over(self, one, grad), _over(self, two, grad)
            if sign in "+-":
                found = first and second and _joined(self, word, first, second)
            elif first is not None:
                found = _joined(self, word, first, two) if sign in "*/" else None
            elif second is not None and sign == "*":
                found = _joined(self, word, one, second)
    is_one_each_row = found and found.space.rows and not found.space.has_columns
    # `value` may have its columns, or its last dim of size 1, of the factor: the rest gets them.
    return _with_space(found, value.space) if found and is_one_each_row else found


def _joined(self: Lowering, word: str, one: Value, two: Value) -> Value | None:
    """Return an operator of two values without factors 1: `1 * a` -> `a`, `s + (1 - s)` -> `1`, `0.1 + 0.9` -> `1`.

    None if it would be one of two numbers that are no literals: a kernel computes these in float32.
    """
    sign = self.sign(Apply(word, (), NUMBER))
    match sign, one, two:
        case ("*", Number("1"), found) | ("*" | "/", found, Number("1")):
            return found
        case ("*", Number("-1"), found) | ("*" | "/", found, Number("-1")):
            return self.apply("neg", found)
        case "+", Number(a), Number(b) if f"1 - {a}" == b or f"1 - {b}" == a:
            return Number("1")
        # The printer has exact ways to write such a number: `complements`, `shares`.
        case "/", Number(a), Number(b) if b == self.shapes.width:
            return Number(f"{a} / {b}")
        case "+" | "-", Number(a), Number(b) if LITERALS.fullmatch(f"{a} {b}"):
            total = float(a) + (float(b) if sign == "+" else -float(b))
            return Number(repr(total).removesuffix(".0"))
        case _, Number(), Number():
            return None
    return self.apply(word, one, two)


# --- What is summed over all rows: only as a result.


def finished(self: Lowering, op: Op, name: str) -> tuple[Value, bool]:
    """Return the gradient of an input, and whether it must be summed over all rows after the program: of `w[D]`, but not of `x[N, D]`.

    The value is that of each row; a sum over rows in the graph of the gradient, `op`, is dropped for the summand. `name`: the input.
    """
    space = self.shapes.spaces[name]
    # Only a `sum` states dims, which may not fit the input; SUMS are sums to its very shape, over rows or
    # columns or both.
    if op.rule == "sum" and self.is_sum(op):
        _check_dims(self, op, name)
    if op.rule in (*SUMS, "sum") and self.is_sum(op):
        return _summed_to_space(self, op.args[0], space)
    if (summand := self._summand(op)) is not None:
        value, summed = finished(self, summand, name)
        # A cast or an `unsqueeze` changes no number.
        if op.rule not in CASTS:
            args = self.given(op).items()
            given = ((k, value if x is summand else self._argument(x)) for k, x in args)
            value = Apply(op.rule, (*given,), value.space)
        return value, summed
    value = self.value(op)
    return _summed_to_space(self, op, space) if value.space != space else (value, False)


def _check_dims(self: Lowering, op: Op, name: str) -> None:
    """Raise UnsupportedError unless a sum over given dims covers just the leading dims the declared shape of an input lacks."""
    space, repeat = self.shapes.spaces[name], self.shapes.repeats.get(name)
    given, rank = literal(op.args[1]), op.args[0].shape.rank
    dims = (given,) if isinstance(given, int) else given
    lead = [str(dim) for dim in self.shapes.lead]
    lacking = [*range(len(lead))]
    if repeat is not None:
        there = repeat.every + repeat.within
        lacking = [at for at, dim in enumerate(lead) if dim not in there]
    if not isinstance(dims, tuple) or not dims:
        # A sum of everything is the gradient of a scalar.
        fits = dims in (None, ()) and space == NUMBER
    elif rank is None:
        # Behind `...` dims can be told only by counting from the end; `*batch` may be several.
        fits = all(at < 0 and at + len(lead) + 1 in lacking for at in dims)
        fits = fits and len(dims) == len(lacking) and "*" not in str(lead)
    else:
        over = {at % rank for at in dims}
        # Of `s[N, 1]` the columns are summed too, which `_summed_to_space` sees to.
        over -= {rank - 1} if space.width == ONE else set()
        # `x[N, D]` lacks no dim; an input with rows lacks some only if its rows repeat.
        fits = space.rows is (repeat is not None) and over == {*lacking}
    if not fits:
        raise UnsupportedError("sum over a dim other than the last")


def _summed_to_space(self: Lowering, op: Op, space: Space) -> tuple[Value, bool]:
    """Return the value of an op, reduced to the declared space of an input, and whether its rows are still to be summed.

    Of a gradient with the dims of `x[N, D]`, the columns are summed here for `s[N, 1]`; for `w[D]` and a scalar the rows are summed later.
    """
    value = self.value(op)
    known = Space(value.space.rows, self.canonical(value.space.width))
    wanted = Space(space.rows, self.canonical(space.width))
    if known == wanted:
        return value, False
    if known.is_row and wanted == Space(False, known.width):
        return value, True
    if known.is_row and wanted == Space(True, ONE):
        return self.total(value), False
    if known.rows and wanted == NUMBER:
        return value, True
    raise UnsupportedError("a gradient is summed over neither rows nor columns")
