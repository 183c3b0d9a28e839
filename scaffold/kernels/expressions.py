"""Values of a row program as expressions of Triton, and the lines to name them.

In: a `RowProgram`, and the spellings of the rule table. Out: lines of a kernel, and the functions that it calls. Invariant: numbers past
the end of a row do not change a reduction of the row.

Words: a kernel computes a *block* of rows and columns at once, and a side of it has 2, 4, 8, 16 ... of them, as Triton demands. So it may reach
*past the end* of a row, or past the last row: loads put 0 there, and what is computed of that is no result. A *fold* is the function of a
reduction: "sum", "max" or "min"; its *neutral* number changes no result: 0, -inf, inf. A *spelling* is a primitive as Triton writes it,
`triton` of its section in `rules.toml`. A *helper* is a `@triton.jit` function that kernels call.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.rules.table import Rule
from scaffold.derive.rules.team_tables import table_of
from scaffold.formula.names import fresh
from scaffold.kernels.names import FIXED
from scaffold.kernels.pair import Pair
from scaffold.kernels.row_program import (
    NUMBER,
    Apply,
    Column,
    Gather,
    Load,
    Name,
    Number,
    Reduce,
    RowProgram,
    Space,
    Value,
    Word,
    free_name,
    inner,
)
from scaffold.spec import OpSpec

LONGEST = 80  # of a line that is not broken
REDUCTION_NAMES = {"sum": "total", "max": "row_max", "min": "row_min"}  # by the fold
SUMS = ("neg", "abs", "add", "sub")  # sums and signs: bounded if their arguments are
ZERO_AT_ZEROS = (*SUMS, "square")  # 0 if all arguments are, finite if all are finite
EXACT_PARAMETERS = ("x", "y", "dtype: tl.constexpr")
EXACT_DIVISION = (
    "# as PyTorch does; / of float32 is not rounded to the nearest",
    "return x / y if dtype == tl.float64 else tl.div_rn(x, y)",
)
At = Callable[[Load, str], str]
NEUTRAL = {"max": 'float("-inf")', "min": 'float("inf")'}


class Helper(NamedTuple):
    """A `@triton.jit` function of the file, called by its kernels."""

    name: str
    parameters: tuple[str, ...]
    lines: tuple[str, ...]


class Helpers:
    """The `@triton.jit` functions the kernels of a file need; both kernels share equal ones."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*taken}
        self.functions: list[Helper] = []

    def of(self, word: str, parameters: Iterable[str], *lines: str) -> str:
        """Return the name of a function with these parameters and lines, `word` or similar if it is new."""
        for known in self.functions:
            if known[1:] == ((*parameters,), lines):
                return known.name
        name = fresh(word, self.taken)
        self.taken.add(name)
        self.functions.append(Helper(name, (*parameters,), lines))
        return name


class Printer:
    """Writer of a row program's values as Triton, for `KernelBody`.

    `assign` appends to `lines`, and `text` may: a reduction or a repeated argument gets a line of its own first. `pointer(load, column)` is the
    address of an input's numbers, `x_ptr + row * stride + cols`.
    """

    def __init__(
        self, spec: OpSpec, program: RowProgram, pair: Pair, helpers: Helpers, at: At
    ) -> None:
        """Prepare to write a program of a pair.

        A kernel gets an attribute as an argument (one of `floats`), which is float32, or as a constant for the compiler. `computed` must be
        constants: those in arithmetic, `2 * alpha`, and those that choose a spelling, `x ** exponent`. But `1 - alpha` and `alpha / D` get
        parameters of their own, `complements`, computed before the launch. `numbers` are all attributes the kernel reads.
        """
        self.table, self.program, self.own = table_of(spec), program, pair.own
        self.pointer, self.helpers, self.absent = at, helpers, pair.absent
        floats = [x.name for x in spec.attributes if x.annotation == "float"]
        self.floats = floats
        self.taken = {*FIXED, *self.own, program.width, *(x.name for x in spec.inputs)}
        self.taken |= {line.name for line in program.lines}
        self.taken |= {name for x in program.loads for name in (x.name, x.source)}
        self.values = {line.name: line.value for line in program.lines}
        self.loaded = {load.name: load for load in program.loads}
        self.lines: list[str] = []
        self.constants: dict[str, ast.expr] = {}  # attributes, by their constants
        self.named: dict[Value, str] = {}  # values that have a line
        self.every = [*program.values()]
        self.texts = texts = {x.text for x in self.every if isinstance(x, Number)}
        self.numbers = _names_in(texts)
        over, words = f" / {program.width}", dict[str, str]()
        for name in floats:
            words[f"1 - {name}"] = f"one_minus_{name}"
            words[name + over] = f"{name}_over_{program.width}"
        rest = texts - words.keys() - {*floats}
        chosen = (x for x in self.every if isinstance(x, Apply) and self._chooses(x))
        choices = (x for value in chosen for x in inner(value))
        rest |= {x.text for x in choices if isinstance(x, Number)}
        self.computed = _names_in(rest) - {program.width}
        # Of an attribute that is a constant anyway, the compiler computes `1 - alpha` too.
        given = [x for x in words if x in texts and not _names_in([x]) & self.computed]
        self.complements = {x: fresh(words[x], self.taken) for x in given}
        self.taken |= {*self.complements.values()}
        self.shares = {x for x in texts - {*given} if x.endswith(over)}
        self.rounded = {x for value in self.every for x in self._rounded(value)}

    def text(self, value: Value) -> str:
        """Return a value as a Triton expression; lines it needs before it are appended to `self.lines`."""
        return ast.unparse(self.node(value))

    def node(self, value: Value) -> ast.expr:
        """Return a value as a Triton expression, its name if it has a line."""
        if (known := self.named.get(_key(value))) is not None:
            return _parsed(known)
        match value:
            # A number divided by the row's size, in the kernel's dtype: Triton would take float32.
            case Number(text) if text in self.shares:
                width = _parsed(f"tl.cast({self.program.width}, {self.own.DTYPE})")
                return _filled(
                    _parsed(text), self.constants | {self.program.width: width}
                )
            case Name(text) | Number(text):
                # `1 - alpha` is a parameter of the kernel, if it is one of `complements`.
                written = self.complements.get(text, text)
                return _filled(_parsed(written), self.constants)
            case Column():
                return _parsed(self.own.cols)
            case Reduce():
                return self._reduction(value)
            case Apply():
                return self._applied(value)
            case Gather():
                return self._gathered(value)

    def _chooses(self, value: Apply) -> bool:
        """Return whether a primitive's spelling depends on an argument, `x * x if exponent == 2 else ...`: that number must be a constant."""
        return " if " in self.table.rule(value.primitive).triton

    def _gathered(self, value: Gather) -> ast.expr:
        """Return the load of one number of each row, NaN for an index out of range; for an absent optional input, its number."""
        load = self.loaded[value.load]
        at = self.pointer(load, self.text(value.index))
        inside = f"({self.inside(value.space)}) & {self.text(value.inside)}"
        given = f"mask={inside}, other=float('nan')"
        text = f"tl.load({at}, {given}).to({self.own.DTYPE})"
        if load.source in self.absent:
            other = self.absent[load.source]
            text = f"{text} if {load.source}_ptr is not None else {other}"
        return _parsed(text)

    def assign(self, name: str, value: Value) -> None:
        """Append the line `name = value`.

        A value longer than `LONGEST` is broken up: what its reductions reduce gets lines of its own, and if that is not enough, the
        reductions too.
        """
        before = len(self.lines)
        text = self.text(value)
        for steps in (self._operands_of_reductions, _reductions):
            if len(f"{name} = {text}") <= LONGEST:
                break
            # Take back the lines that `text` appended: it is asked again, with names for the steps.
            del self.lines[before:]
            for word, item in steps(value):
                given = self._named(word, item, self.node(item)).id
                self.named.setdefault(_key(item), given)
            before, text = len(self.lines), self.text(value)
        if "float('nan')" in text:
            self.lines.append(
                "# NaN stands for PyTorch's error of an index out of range."
            )
        self.lines.append(f"{name} = {text}")
        if not isinstance(value, Name | Number):
            self.named.setdefault(_key(value), name)

    def _applied(self, value: Apply) -> ast.expr:
        """Return a primitive as its Triton spelling with arguments filled in, or as a call of a helper function if it has several steps.

        An argument the spelling has twice gets a line, so that it is computed once.
        """
        rule = self.table.rule(value.primitive)
        steps, end, comment = _spelling(rule, value)
        real = {k: item for k, item in value.args if not isinstance(item, Word)}
        known = {name: self.node(item) for name, item in real.items()}
        if rule.facts.operator == "/" and value in self.rounded:
            arguments = [*known.values(), _parsed(self.own.DTYPE)]
            # Triton's `/` may be one bit off, which `floor` makes 1.
            function = self.helpers.of("_divide", EXACT_PARAMETERS, *EXACT_DIVISION)
            return ast.Call(_parsed(function), arguments, [])
        if steps:
            word = next(iter(rule.facts.words), rule.name)
            read = set().union(*map(_names, (*steps.values(), end)))
            given = {name: node for name, node in known.items() if name in read}
            lines = [f"# {comment}"] if comment else []
            lines += [f"{name} = {ast.unparse(node)}" for name, node in steps.items()]
            lines += [f"return {ast.unparse(end)}"]
            function = self.helpers.of(f"_{word}", given, *lines)
            return ast.Call(_parsed(function), [*given.values()], [])
        counts = [node.id for node in ast.walk(end) if isinstance(node, ast.Name)]
        for name, item in real.items():
            if counts.count(name) > 1 and not isinstance(item, Name | Number):
                word = self._word(item, rule.facts.argument)
                known[name] = self._named(word, item, known[name])
        kinds = {x.kind for x in inner(value) if not isinstance(x, Number)}
        written = _filled(end, known)
        if value.kind == "real" and kinds <= {"bool"}:
            # Triton would make `where(condition, 2.0, 3.0)`, of numbers alone, float32.
            # `where(condition, 1.0, 0.0)` is the condition, cast.
            if inner(value)[1:] == (Number("1.0"), Number("0.0")):
                written = known["condition"]
            return _parsed(f"({ast.unparse(written)}).to({self.own.DTYPE})")
        return written

    def _rounded(self, value: Value, later: bool = False) -> Iterator[Value]:
        """Yield the values inside of `value` with a `floor` or `ceil` around them (`later`: one is around it); reductions end the search.

        A quotient among them must be exact, as an error in its last bit would change the rounded number by 1.
        """
        if later:
            yield value
        if isinstance(value, Apply):
            spelling = self.table.rule(value.primitive).triton
            later |= "tl.floor(" in spelling or "tl.ceil(" in spelling
        later &= not isinstance(value, Reduce)
        if later and isinstance(value, Name) and value.text in self.values:
            yield from self._rounded(self.values[value.text], later)
        for item in inner(value):
            yield from self._rounded(item, later)

    def _word(self, value: Value, role: str = "") -> str:
        """Return a name for an argument to put on a line: its role in the primitive it is for, else the primitive that computes it, else "value"."""
        if role or not isinstance(value, Apply):
            return role or "value"
        rule = self.table.rule(value.primitive)
        # `{}_plus_{}` has no names of arguments to be filled with here.
        return next((word for word in rule.facts.words if "{" not in word), rule.name)

    def _operands_of_reductions(self, value: Value) -> Iterator[tuple[str, Value]]:
        """Yield each expression that a reduction inside of a value reduces, with a name for it."""
        for item in inner(value):
            yield from self._operands_of_reductions(item)
        if isinstance(value, Reduce) and isinstance(value.value, Apply):
            yield self._word(value.value), value.value

    def _named(self, word: str, value: Value, node: ast.expr) -> ast.Name:
        """Return the name of an expression; if it is none yet, append a line to give it one."""
        if isinstance(node, ast.Name):
            return node
        name = free_name(word, value, self.taken, self.values.get)
        self.taken.add(name)
        self.lines.append(f"{name} = {ast.unparse(node)}")
        return ast.Name(name)

    def _reduction(self, value: Reduce) -> ast.expr:
        """Return the reduction of a row: `tl.sum(x, axis=1, keep_dims=True)`; an extremum with NaN needs a helper, as `tl.max` may drop NaN."""
        given = f"{self._operand(value)}, axis=1"
        if value.nan and value.kind == "real":
            both = f"tl.{value.fold}imum(one, two, propagate_nan=tl.PropagateNan.ALL)"
            name = f"_nan_{value.fold}"
            combined = self.helpers.of(name, ("one", "two"), f"return {both}")
            return _parsed(f"tl.reduce({given}, combine_fn={combined}, keep_dims=True)")
        return _parsed(f"tl.{value.fold}({given}, keep_dims=True)")

    def _operand(self, value: Reduce) -> str:
        """Return what a reduction reduces, with the fold's neutral number past the end of the row: `tl.where(mask, x, float("-inf"))`.

        What stands there is left as it is if it has no effect, as the zeros of a load have none on a sum.
        """
        operand, inside = self.text(value.value), self.inside(value.value.space)
        if value.value.kind == "bool":  # each True counts as 1.0
            return f"tl.where(({inside}) & ({operand}), 1.0, 0.0)"
        if self._ends_neutrally(value):
            return operand
        if value.fold == "sum":
            return selected(inside, operand)
        neutral = NEUTRAL[value.fold]
        if value.kind == "int" and value.fold == "min":
            # The integers are numbers of columns, which are all below the width.
            neutral = self.program.width
        return f"tl.where({inside}, {operand}, {neutral})"

    def inside(self, space: Space) -> str:
        """Return the test, true inside a tensor and false past its end: `mask` for a row, `cols < D` for columns alone, else `row < rows`."""
        own, width = self.own, self.program.width
        if space.is_row or not width:
            return own.mask
        columns = f"{own.cols} < {width}"
        return columns if space.has_columns else f"{own.row} < {own.rows}"

    def _ends_neutrally(self, value: Reduce) -> bool:
        """Return whether numbers past the row's end surely have no effect on a reduction: zeros in a sum, or in a maximum of numbers >= 0."""
        operand = value.value
        if operand.kind != "real" or not self.ends_in_zeros(operand):
            return False
        if value.fold == "sum":
            return True
        if value.fold != "max" or not isinstance(operand, Apply):
            return False
        return self.table.rule(operand.primitive).facts.sign == "nonnegative"

    def ends_in_zeros(self, value: Value, rows: bool = False) -> bool:
        """Return whether a value is surely 0 past the end of a row or, with `rows`, past the last row.

        A load is, as it asks Triton for that (`other=0.0`), and so are a sum and a square of such values; `exp` makes 1 of a 0.
        """
        zeros = partial(self.ends_in_zeros, rows=rows)
        finite = partial(self._ends_finite, rows=rows)
        match value:
            case Name(text) if text in self.loaded:
                load = self.loaded[text]
                space, absent = load.space, self.absent.get(load.source, "0.0")
                there = space.rows if rows else space.has_columns
                # A block of an absent weight holds its number, 1.0, past the end too.
                return there and not load.single and absent == "0.0"
            case Name(text):
                return text in self.values and zeros(self.values[text])
            case Apply("mul"):
                one, two = inner(value)
                # 0 times infinity is NaN.
                return zeros(one) and finite(two) or zeros(two) and finite(one)
            case Apply(primitive) if primitive in ZERO_AT_ZEROS:
                return all(map(zeros, inner(value)))
        return False

    def _ends_finite(self, value: Value, rows: bool) -> bool:
        """Return whether a value past the end is surely finite, so zeros times it are zeros: 0 * inf is NaN.

        Past the end of a row, a number of each row is what it is in the row: `x * exp(row_max)` is 0 * inf there, and the row's sum would be NaN.
        """
        if not rows and not value.space.has_columns:
            return self._is_bounded(value)
        match value:
            case Name(text) if text in self.values:
                return self._ends_finite(self.values[text], rows)
            case Apply(primitive) if primitive in (*ZERO_AT_ZEROS, "mul"):
                return all(self._ends_finite(item, rows) for item in inner(value))
        return isinstance(value, Number) or self.ends_in_zeros(value, rows)

    def _is_bounded(self, value: Value) -> bool:
        """Return whether a number of each row is finite if the row is: its maximum, mean or rsqrt; an exp or a sum of squares overflows.

        An rsqrt of 0 is infinite, but then the row is NaN in any case.
        """
        if isinstance(value, Name):
            load = self.loaded.get(value.text)
            # What a saved number is, the forward tells; any other load is data, finite as the row is.
            known = load.saved if load else self.values.get(value.text)
            return self._is_bounded(known) if known else load is not None
        if not isinstance(value, Apply) or value.primitive in SUMS or _is_mean(value):
            return all(map(self._is_bounded, inner(value)))
        return value.primitive == "rsqrt"


def _key(value: Value) -> Value:
    """Return a value to look up equal ones by: of a reduction or mean without its space, as a kernel has all dims of it (`keep_dims=True`)."""
    if isinstance(value, Reduce) or isinstance(value, Apply) and _is_mean(value):
        return replace(value, space=NUMBER)
    return value


def _is_mean(value: Value) -> bool:
    """Return whether a value is a reduction divided by a number."""
    fits = [*map(type, inner(value))] == [Reduce, Number]
    return fits and isinstance(value, Apply) and value.primitive == "div"


def _reductions(value: Value) -> Iterator[tuple[str, Value]]:
    """Yield each reduction or mean inside of a value, with a name for it: "mean", "total", "row_max"; a mean's sum is no reduction of its own."""
    for item in inner(value):
        yield from _reductions(item)
        if _is_mean(item):
            yield "mean", item
        elif isinstance(item, Reduce) and not _is_mean(value):
            yield REDUCTION_NAMES[item.fold], item


def selected(test: str, text: str) -> str:
    """Return `tl.where(mask, x, 0.0)`; of `tl.where(kept, x, 0.0)`, which is a choice already, `tl.where(mask & kept, x, 0.0)`."""
    match _parsed(text):
        case ast.Call(ast.Attribute(_, "where"), [ast.Name(also), x, ast.Constant(0)]):
            test, text = f"({test}) & {also}", ast.unparse(x)
    return ast.unparse(_parsed(f"tl.where({test}, {text}, 0.0)"))


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _filled(node: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
    """Return a copy of an expression with names replaced: `x * x` with `x` as `a + b`."""

    class Filling(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return known.get(node.id, node)

    copy = _parsed(ast.unparse(node))
    filled: ast.expr = Filling().visit(copy)
    return filled


def _spelling(rule: Rule, value: Apply) -> tuple[dict[str, ast.expr], ast.expr, str]:
    """Return the steps, the value and the comment of a primitive's Triton text, with its choices made for the arguments of this call.

    Text of lines `y = ...` and a last expression: only steps the value reads are kept, and those that only rename are filled in.
    UnsupportedError if the choice made is None.
    """
    code, _, comment = rule.triton.strip().partition("  # ")
    *lines, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    end = _chosen(last.value, value)
    if isinstance(end, ast.Constant) and end.value is None:
        raise UnsupportedError(f"Triton has no {rule.name} of these arguments")
    steps: dict[str, ast.expr] = {}
    read = _names(end)
    for line in reversed(lines):
        assert isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
        name = line.targets[0].id
        if name in read:
            steps[name] = _chosen(line.value, value)
            read |= _names(steps[name])
    steps = dict(reversed(steps.items()))
    renamed = {name: node for name, node in steps.items() if isinstance(node, ast.Name)}
    steps = {k: _filled(v, renamed) for k, v in steps.items() if k not in renamed}
    return steps, _filled(end, renamed), comment


def _names_in(texts: Iterable[str]) -> set[str]:
    """Return the names in some expressions."""
    return set[str]().union(*map(_names, map(_parsed, texts)))


def _names(node: ast.expr) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def _chosen(node: ast.expr, value: Apply) -> ast.expr:
    """Return the branch of a spelling, nested `a if test else b`, for the literal arguments of a call; itself if it has no test."""
    while isinstance(node, ast.IfExp):
        node = node.body if _holds(node.test, value) else node.orelse
    return node


def _holds(test: ast.expr, value: Apply) -> bool:
    """Return whether `exponent == 2` or `exponent % 2 != 0` holds for the arguments of a call; False if the argument is no literal number."""
    assert isinstance(test, ast.Compare)
    left, divisor = test.left, None
    # `exponent % 2 != 0`.
    if isinstance(test.left, ast.BinOp):
        left, divisor = test.left.left, ast.literal_eval(test.left.right)
    assert isinstance(left, ast.Name)
    wanted = ast.literal_eval(test.comparators[0])
    match dict(value.args)[left.id]:
        case Word(known):
            pass
        case Number(text) if isinstance(_parsed(text.lstrip("-")), ast.Constant):
            known = ast.literal_eval(text)
        case _:
            return False
    rest = known % divisor if divisor and isinstance(known, int | float) else known
    # A test is one by `==` or by `!=`.
    return bool(rest == wanted) is isinstance(test.ops[0], ast.Eq)
