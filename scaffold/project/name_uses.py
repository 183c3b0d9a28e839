"""Uses of names in a forward: as tensors, as positions, as masks, as numbers.

`inferred_inputs` tells by them which inputs of `x[i] * w` are tensors, and of what: `i` is an index. In: statements. Out:
`NameUses.of`, the uses of each free name; a local alias or view of an input counts as the input. Invariant: a use that may not
run, or may be of another value, is `doubtful`: it proves nothing beside a use by value.

Words: a use takes a "tensor" of numbers; "positions", integers that number elements, `F.embedding(i, w)`; a "mask"; an
"index", any of both or a number, `x[i]` (its type is "positions" if no mask fits there: `F.embedding(i + 1, w)`); a
"value", a Python number or string; an "operand", a tensor or a number; "unclear" proves nothing. Uses by value compute with
the elements as floats: they may have a gradient. The meaning of a local name is the inputs behind it. A "constant" is only
compared for equality, or converted to integers, as in `x.long()`; "moved" reads a tensor whatever its elements are
(`x.view(-1)`); "assigned" waits for the uses of the new name; "optional" is a test for None. `expected` is a function that
gives the use which the place of an expression expects.
"""

import ast
import re
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from functools import reduce
from itertools import dropwhile
from operator import or_
from typing import Literal, NamedTuple

from scaffold.formula import BUILTINS
from scaffold.formula.constant_folding import BINARY
from scaffold.formula.definitions import RESERVED, dotted_name
from scaffold.formula.operators import (
    ARRAYS,
    is_tensor_word,
    is_torch_word,
    judged_value,
)
from scaffold.primitives import normalized
from scaffold.primitives.calls import facts_of_call, is_made_of_numbers
from scaffold.primitives.facts import MOVING
from scaffold.primitives.python_values import ATTRIBUTES, METHODS, READ_OUT
from scaffold.primitives.sections import built_in_primitives
from scaffold.primitives.slots import Argument, Call, Slot, Taken, calls_of

Arguments = Mapping[Argument, ast.expr]
Names = Collection[str]
# Modules whose functions the table knows by name.
KNOWN = {"torch", "F", "math", "nn"}
OF_SIZES = ("empty", "eye", "ones", "rand", "randn", "zeros")  # taking only sizes
MOVED = ("T", "mT", "data")  # attributes with the elements of their tensor
NO_TENSOR = (METHODS | ATTRIBUTES) - READ_OUT
BY_INTEGERS = ("positions", "mask", "index")  # uses of integers or booleans alone
BY_VALUE = ("tensor", "operand", "unclear")  # uses of floats, which may have a gradient
EQUAL = {"eq", "ne", "long", "int", "bool"}  # calls without a gradient
WHOLE_DTYPE = re.compile(r"torch\.(u?int\d*|long|bool)")
COMPUTED = ast.Call | ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript

Takes = (
    Taken
    | Literal[
        "index", "constant", "moved", "operand", "optional", "assigned", "unclear"
    ]
)


class Use(NamedTuple):
    """A use of a name: the kind of value expected there, and for messages the function or operator."""

    takes: Takes
    node: ast.AST
    where: str
    type: str = ""  # of a value; of an index "positions", if it cannot be a mask
    doubtful: bool = False  # it may not run, or the name may have another value
    soft: bool = False  # positions, or floats with another meaning

    @property
    def position(self) -> tuple[int, int]:
        """Return the line and column of the name."""
        return getattr(self.node, "lineno", 0), getattr(self.node, "col_offset", 0)


Expected = Callable[[ast.expr], Use]  # gives the use expected of an expression


def _used(takes: Takes, where: str = "") -> Expected:
    """Return an `Expected` giving the same kind of use for any expression; `where` tells of it in messages."""
    return lambda node: Use(takes, node, where)


_unclear, _tensor, _operand = _used("unclear"), _used("tensor"), _used("operand")
_moved = _used("moved")  # a tensor, whatever its elements are: `x.shape`, `x.T`
_assigned = _used("assigned")  # the type depends on uses of the assigned name
_constant, _optional = _used("constant"), _used("optional")
_index = _used("index", "an index")


def _condition(node: ast.expr) -> Use:
    """Return the use of an expression that is a condition: a truth value, possibly a number, possibly a tensor of one element."""
    return Use("value", node, "it is a condition", "bool", doubtful=True)


def _value(kind: str, where: str) -> Expected:
    """Return an `Expected` for a Python value of this type: "int", "float", "str", "bool", "object"."""
    return lambda node: Use("value", node, where, kind)


class _Meaning(NamedTuple):
    """The inputs a local name stands for: itself one of them, `moved` elements of one (`labels.view(-1)`), or `computed` from them."""

    inputs: frozenset[str] = frozenset()
    moved: bool = False
    computed: bool = False
    doubtful: bool = False

    def __or__(self, other: "_Meaning") -> "_Meaning":
        """Return the meaning of a name that has one of two, after a branch: the inputs of both, doubtful unless they are the same."""
        if self == other:
            return self
        moved, computed = self.moved or other.moved, self.computed or other.computed
        doubtful = self.doubtful or other.doubtful or self.inputs != other.inputs
        return _Meaning(self.inputs | other.inputs, moved, computed, doubtful)


NOTHING = _Meaning()


class NameUses:
    """A visitor of a forward's statements, in their order; it collects in `of` the uses of each free name, which is an input."""

    def __init__(self, imported: Names, own: Names = ()) -> None:
        """Start without uses; `imported` are names of imports, `own` names that are inputs even if a builtin has them.

        `bound` are names that are no inputs, unless they are own.
        """
        self.known = {*imported, *BUILTINS}  # callable names
        self.own = {*own}
        self.bound = {*self.known, *RESERVED, *ARRAYS} - self.own
        self.of: dict[str, list[Use]] = {}
        self.means: dict[str, _Meaning] = {}  # of assigned names
        self.rows = set[str]()  # names unpacked from one input, which may be a tuple
        self.doubtful = False  # the present statement may not run

    def meaning(self, name: str) -> _Meaning:
        """Return the inputs behind a name; a free name is an input itself, an imported or unknown one none."""
        if name in self.bound or name in self.means:
            return self.means.get(name, NOTHING)
        return _Meaning(frozenset((name,)))

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Note the uses in statements; after one with a `return`, `break` or `continue` inside, the rest may not run and is doubtful."""
        before = self.doubtful
        for item in body:
            self.statement(item)
            self.doubtful |= _leaves(item)
        self.doubtful = before

    def doubted(self, body: Sequence[ast.stmt]) -> dict[str, _Meaning]:
        """Note the uses in statements of a branch or loop, perhaps not run; return what local names mean after it.

        Each use inside is doubtful. `self.means` is as before the call: the caller joins the meanings of both ways.
        """
        before, doubtful = dict(self.means), self.doubtful
        self.doubtful = True
        self.block(body)
        self.doubtful = doubtful
        after, self.means = self.means, before
        return after

    def statement(self, item: ast.stmt) -> None:
        """Note the uses of names in a statement: `return x[i]` uses x as a tensor, i as an index.

        Of a function or a `try` inside only the names are looked at; those made there (`made`) are no inputs.
        """
        match item:
            case ast.Return(value) | ast.Expr(value) if value is not None:
                self.expression(value, _tensor)
            case ast.Assign(targets, value):
                self.assign(targets, value)
            case ast.AnnAssign(target, _, value):
                if value is not None:
                    self.assign([target], value)
            case ast.AugAssign(target, operator, value):
                # `x += y` is read as `x = x + y`.
                both = ast.BinOp(_as_loaded(target), operator, value)
                self.assign([target], ast.copy_location(both, target))
            case ast.If(test, body, orelse):
                self.expression(test, _condition)
                self.means = self.joined(self.doubted(body), self.doubted(orelse))
            case ast.While() | ast.For():
                self.loop(item)
            case ast.With(items, body):
                for one in items:
                    self.expression(one.context_expr, _unclear)
                    self.bind(*filter(None, [one.optional_vars]))
                self.block(body)
            case ast.Assert(test):
                self.expression(test, _condition)
            case _:  # a function or a `try`: only its names are known
                made = {i.arg for i in ast.walk(item) if isinstance(i, ast.arg)}
                named = [i for i in ast.walk(item) if isinstance(i, ast.Name)]
                made |= {i.id for i in named if isinstance(i.ctx, ast.Store)}
                for inner in named:
                    # An input may be read before it is assigned there.
                    if inner.id not in made or inner.id in self.own | self.of.keys():
                        self.name(inner.id, _unclear(inner))
                # Outside a function only its own name is bound.
                if isinstance(item, ast.FunctionDef):
                    made = {item.name}
                self.means |= dict.fromkeys(made, NOTHING)

    def loop(self, item: ast.While | ast.For) -> None:
        """Note the uses in a loop, again until its names mean the same after it: a name assigned in one round is read in the next."""
        if isinstance(item, ast.For):
            self.expression(item.iter, _unclear)
        while True:
            before = dict(self.means)
            if isinstance(item, ast.For):
                self.bind(item.target)
            else:
                self.expression(item.test, _condition)
            self.means = self.joined(before, self.doubted(item.body))
            if self.means == before:
                break
        self.block(item.orelse)

    def joined(self, *ways: Mapping[str, _Meaning]) -> dict[str, _Meaning]:
        """Return what local names mean after one of two `ways`, as after `if` and `else`, each with its meanings.

        A name assigned in one alone may still be the input of its name: `if on: x = x[0]`.
        """
        one, two = ways
        found = dict[str, _Meaning]()
        for name in one.keys() | two.keys():
            meanings = [way[name] for way in ways if name in way]
            # `own` are a function's parameters; an expression has none, so names used so far are its inputs.
            if len(meanings) < 2 and name in (self.own or self.of):
                meanings.append(_Meaning(frozenset((name,))))
            found[name] = meanings[0] | meanings[-1]
        return found

    def assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """Note the uses in an assignment, and what its names mean from now on.

        Copying a name to another is no use: the copy's uses count for the input. Names unpacked from one input are `rows`: the input
        may be a tuple of numbers, so their arithmetic proves nothing. An assignment to elements, `y[i] = x` (`inside`), reads x as a
        tensor.
        """
        found = [pair for target in targets for pair in self.pairs(target, value)]
        # `moved`: a name for elements of a tensor, `y = x.T`; what is left stands for an input itself.
        rows = {name for name, of in found if of.inputs and not of.moved}
        inside = any(isinstance(item, ast.Subscript) for item in targets)
        match targets, value:
            case _, ast.Name() if all(isinstance(item, ast.Name) for item in targets):
                rows = set()
            case [ast.Tuple()], ast.Name():  # `row, col = edge_index`
                pass
            case [ast.Tuple(names)], ast.Tuple(values) if len(names) == len(values):
                for one, item in zip(names, values, strict=True):  # `h, c = h0, c0`
                    binds = not isinstance(one, ast.Subscript | ast.Attribute)
                    if not (binds and isinstance(item, ast.Name)):
                        self.expression(item, _assigned if binds else _tensor)
                rows = set()
            case _:
                self.expression(value, _tensor if inside else _assigned)
        self.bind(*targets)
        self.means |= found
        self.rows = self.rows - {name for name, _ in found} | rows

    def pairs(
        self, target: ast.expr, value: ast.expr
    ) -> Iterator[tuple[str, _Meaning]]:
        """Yield each name an assignment binds, with its meaning; nothing for several results of one call: they stand for no input."""
        match target, value:
            case ast.Name(name), ast.Name(other):
                yield name, self.meaning(other)
            case ast.Name(name), _:
                yield name, self.elements_of(value)
            case ast.Tuple(items) | ast.List(items), ast.Tuple(values) | ast.List(
                values
            ) if len(items) == len(values) and not _starred((*items, *values)):
                for one, part in zip(items, values, strict=True):
                    yield from self.pairs(one, part)
            case ast.Tuple(items), ast.Name(other) if not _starred(items):
                for one in items:
                    yield from self.pairs(one, value)

    def bind(self, *targets: ast.expr) -> None:
        """Let the names of assigned targets stand for no input from now on (NOTHING); a target like `y[i]` binds none, and reads its names."""
        for target in targets:
            match target:
                case ast.Name(name):
                    self.means[name] = NOTHING
                case ast.Tuple(items) | ast.List(items):
                    self.bind(*items)
                case ast.Starred(inner):
                    self.bind(inner)
                case _:
                    self.expression(target, _unclear)

    def expression(self, node: ast.expr, expected: Expected) -> None:
        """Note the uses in an expression; `expected` gives the use its place expects, of it or of a part in its place.

        A use of a value made of an input's elements, as `labels.view(-1)`, is a use of the input too.
        """
        use = expected(node)
        self.parts(node, use, expected)
        # A name was noted by `parts`; "assigned" and "moved" say nothing of the elements.
        if isinstance(node, COMPUTED) and use.takes not in ("assigned", "moved"):
            meaning = self.elements_of(node)
            # Arithmetic has used the elements by value already: `parts` noted it.
            if use.takes in (*BY_INTEGERS, "constant") or not meaning.computed:
                self.used(meaning, use)

    def parts(self, node: ast.expr, use: Use, expected: Expected) -> None:
        """Note the uses of an expression's parts, as its operator or call expects them; a name has `use`, which `expected` gave its place."""
        match node:
            case ast.Name(name):
                self.name(name, use)
            case ast.Attribute():
                self.attribute(node)
            case ast.Call():
                self.call(node)
            case ast.BinOp(left, operator, right):
                self.binary(left, right, BINARY[type(operator)], use, expected)
            case ast.UnaryOp(ast.Invert(), inner):
                self.expression(inner, _taken_by("~", inner))
            case ast.UnaryOp(ast.Not(), inner):
                self.expression(inner, _condition)
            case ast.UnaryOp(_, inner):
                self.expression(inner, _signed(node, use, expected))
            case ast.Compare(left, operators, others):
                self.compare([left, *others], operators)
            case ast.BoolOp() | ast.IfExp():
                self.chosen(node, expected)
            case ast.NamedExpr(target, value):
                self.assign([target], value)
                self.name(target.id, use)
            case ast.Subscript(value, index):
                self.expression(value, _moved)
                self.expression(index, _index)
            case ast.Slice():
                for part in (node.lower, node.upper, node.step):
                    if part is not None:
                        self.expression(part, _value("int", "it stands in a slice"))
            case ast.Tuple(items) | ast.List(items):
                for item in items:
                    self.expression(item, _element_of(expected))
            case ast.Starred(inner):
                self.expression(inner, expected)
            case _:
                self.other(node)

    def chosen(self, node: ast.BoolOp | ast.IfExp, expected: Expected) -> None:
        """Note the uses in `a if c else b`, or in a chain of `and` or `or`: only the first part surely runs, the others are doubtful."""
        if isinstance(node, ast.BoolOp):
            (first, *rest), expected = node.values, _condition
        else:
            first, rest = node.test, [node.body, node.orelse]
        self.expression(first, _condition)
        before, self.doubtful = self.doubtful, True
        for value in rest:
            self.expression(value, expected)
        self.doubtful = before

    def name(self, name: str, use: Use) -> None:
        """Note a use of a name for the inputs behind it; arithmetic with `rows`, perhaps numbers of a tuple, counts as unclear."""
        # What `a = x` means for x is shown by the uses of `a`.
        if (name in self.rows and use.takes == "operand") or use.takes == "assigned":
            use = use._replace(takes="unclear")
        self.used(self.meaning(name), use)

    def used(self, meaning: _Meaning, use: Use) -> None:
        """Note a use of the inputs behind a value, `meaning`.

        Moved elements have the dtype of the input's. So a place that refuses floats, `F.embedding(x.view(-1), w)`, proves that the
        input holds integers. A place for floats proves nothing, since PyTorch converts integers there: `x.view(-1) * w`.
        """
        # Nor does one for a number: in `math.sqrt(x[0])` the element is one, and not x. Such a use becomes
        # "unclear": it may still be by value.
        if meaning.moved and use.takes not in (*BY_INTEGERS, "constant", "moved"):
            if meaning.computed:
                return  # the computation used them by value already
            use = use._replace(takes="unclear", type="")
        # Of `F.embedding(i + j, w)` one may be a number, as an index may; the type says that it is no mask.
        if meaning.computed and use.takes == "positions":
            use = use._replace(takes="index", type="positions")
        doubtful = use.doubtful or self.doubtful or meaning.doubtful
        for name in meaning.inputs:
            self.of.setdefault(name, []).append(use._replace(doubtful=doubtful))

    def elements_of(self, node: ast.expr) -> _Meaning:
        """Return the inputs a value has its elements from: `moved` if they are the same (`i.view(-1)`), `computed` by arithmetic (`-i + 1`).

        Such a value has the dtype of its inputs: if it must hold integers, so must they. `NOTHING` for any other value.
        """
        match node:
            case ast.Name(name):
                return self.meaning(name)._replace(moved=True)
            case ast.Attribute(value, word) if word in MOVED:
                return self.elements_of(value)
            case ast.Subscript(value):
                return self.elements_of(value)
            case ast.UnaryOp(ast.USub() | ast.Invert(), value):
                return self.elements_of(value)._replace(computed=True)
            # `i / 2` is a float whatever `i` is.
            case ast.BinOp(left, operator, right) if not isinstance(operator, ast.Div):
                one, two = self.elements_of(left), self.elements_of(right)
                doubtful = one.doubtful or two.doubtful
                # Moved, as a name is above, and computed.
                return _Meaning(one.inputs | two.inputs, True, True, doubtful)
            case ast.IfExp(_, left, right):
                return self.elements_of(left) | self.elements_of(right)
            case ast.Call():
                found = self.parsed(node)
                if found and 0 in found.given and found.follows():
                    inner = self.elements_of(found.given[0])
                    return inner if found.is_moved() else inner._replace(computed=True)
        return NOTHING

    def other(self, node: ast.expr) -> None:
        """Note the uses in a comprehension or a lambda, all doubtful: it may not run. Names it binds itself are no inputs inside it."""
        before, doubtful = dict(self.means), self.doubtful
        self.doubtful = True
        found = dict[str, _Meaning]()
        for part in getattr(node, "generators", ()):
            self.expression(part.iter, _unclear)
            match part.target, part.iter:  # `x.view(...) for x in (q, k, v)`
                case ast.Name(name), ast.Tuple([first, *rest]):
                    meanings = map(self.elements_of, rest)
                    found[name] = reduce(or_, meanings, self.elements_of(first))
        for inner in ast.walk(node):
            match inner:
                case ast.Name(name, ast.Store()) | ast.arg(name):
                    self.means[name] = found.get(name, NOTHING)
        for child in (getattr(node, "elt", None), getattr(node, "body", None)):
            if isinstance(child, ast.expr):
                self.expression(child, _unclear)
        self.means, self.doubtful = before, doubtful

    def attribute(self, node: ast.Attribute) -> None:
        """Note the use of a value whose attribute is read: as a tensor (`x.T`), or, if tensors have no such attribute, as another object."""
        if self._module(node) is None:
            what: Expected = _moved if node.attr in (*MOVED, *NO_TENSOR) else _tensor
            if not is_tensor_word(node.attr):
                what = _value("object", f"'.{node.attr}' is read")
            self.expression(node.value, what)

    def _module(self, node: ast.expr) -> str | None:
        """Return the table's name of a module's function, `F.silu` for `torch.nn.functional.silu`; None for an attribute of a value."""
        # `f(x).silu` belongs to a value.
        if any(isinstance(inner, ast.Call) for inner in ast.walk(node)):
            return None
        dotted = dotted_name(node)
        root = (dotted or "").partition(".")[0]
        # `F` may also be an input, or a name assigned here: then it is not in `bound`.
        return normalized(dotted) if dotted and root in self.bound & KNOWN else None

    def binary(
        self,
        left: ast.expr,
        right: ast.expr,
        operator: str,
        use: Use,
        expected: Expected,
    ) -> None:
        """Note the uses of an operator's operands; `use` is expected of its result, given by the function `expected`.

        If the result is to be a number or an index, so are the operands; else the table says what the operator takes.
        """
        if use.takes in ("value", "index"):  # arithmetic with numbers
            self.expression(left, expected)
            self.expression(right, expected)
            return
        given: Arguments = {0: left, 1: right}
        if operator == "^" and any(
            isinstance(one, ast.Constant) for one in (left, right)
        ):
            for inner in (left, right):  # `x^2` is no mask, and is refused later
                self.expression(inner, _operand)
            return
        for argument, inner in given.items():
            self.expression(inner, _taken_by(operator, *given.values(), at=argument))

    def compare(self, values: list[ast.expr], operators: list[ast.cmpop]) -> None:
        """Note the uses in a comparison: `==` fits any dtype, `x is None` an optional input, `mode == "sum"` a string."""
        literals = [item.value for item in values if isinstance(item, ast.Constant)]
        equal = all(isinstance(item, ast.Eq | ast.NotEq) for item in operators)
        what: Expected = _constant if equal else _operand
        if any(isinstance(item, ast.In | ast.NotIn) for item in operators):
            what = _unclear
        elif any(isinstance(value, str) for value in literals):
            what = _value("str", "it is compared with a string")
        elif any(value is None for value in literals):
            what = _optional
        for value in values:
            self.expression(value, what)

    def parsed(self, node: ast.Call) -> "_Parsed | None":
        """Return a call of PyTorch's function or a tensor's method with the signatures its arguments fit; None for a call of anything else.

        After a star (`*dims`) or `**options` only signatures count in which all the rest has one known parameter.
        """
        given: dict[Argument, ast.expr] = dict(enumerate(node.args))
        function = self._module(node.func)
        words = {str(word.arg): word.value for word in node.keywords}
        kind, name, shown = "function", function or "", function or ""
        if function is None:
            if not isinstance(node.func, ast.Attribute):
                return None
            receiver, word = node.func.value, node.func.attr
            if isinstance(receiver, ast.Name) and _is_of_module(receiver, word):
                return None
            kind, name, shown = "method", word, f"Tensor.{word}"
            given = dict(enumerate([receiver, *node.args]))
        calls = calls_of(kind, name, len(given), words)
        # A method that works in place, `x.clamp_(0)`, takes what `clamp` does.
        calls = calls or calls_of(kind, name.removesuffix("_"), len(given), words)
        given.update(words)
        if _starred(node.args) or "None" in words:  # `**options` has no name
            calls = tuple(call for call in calls if _is_spread(call, given))
        return _Parsed(given, calls, shown)

    def call(self, node: ast.Call) -> None:
        """Note the uses in a call: each argument as the signatures of PyTorch's function take it."""
        found = self.parsed(node)
        if found is None:
            self.own_call(node)
            return
        for argument, value in found.given.items():
            self.expression(value, found.taken(argument))

    def own_call(self, node: ast.Call) -> None:
        """Note the uses in a call of a function that is not PyTorch's: `int(n)` takes a number.

        Another function of Python's or an imported one proves nothing of its arguments; an unknown one is reported when the op is
        built, and here counts as one of tensors.
        """
        name = (dotted_name(node.func) or "").partition(".")[0]
        what: Expected = _unclear if name in self.known else _tensor
        if name in ("range", "int", "round"):  # they give an int of a float too
            what = _value("int" if name == "range" else "", f"{name} takes a number")
        for value in (*node.args, *(word.value for word in node.keywords)):
            self.expression(value, what)
        known = self.own | self.means.keys()
        match node.func:
            # A value's method that PyTorch lacks; of an unknown name it may be a module's function.
            case ast.Attribute(ast.Name(owner) as receiver) if owner in known:
                self.name(owner, _unclear(receiver))
            case ast.Call() | ast.Subscript() | ast.Lambda() | ast.IfExp():
                self.expression(node.func, _unclear)


class _Parsed(NamedTuple):
    """A call of PyTorch: its arguments, a method's receiver first, its possible signatures, and its name for messages (`shown`).

    A signature (`Call`) has a slot for each argument: the parameter, and what it takes.
    """

    given: Arguments
    calls: Sequence[Call]
    shown: str

    @property
    def word(self) -> str:
        """Return the last part of the function's name: `view` of `Tensor.view`."""
        return self.shown.rpartition(".")[2]

    @property
    def creates(self) -> bool:
        """Return whether the function makes a tensor of new elements, such as `zeros_like`."""
        return any("creates" in facts.flags for facts in facts_of_call(self.word))

    def follows(self) -> bool:
        """Return whether the result has the dtype of the first argument: integers of integers (`x.view(-1)`, `x.clamp(0, 5)`).

        So if integers are needed of the result, they are of the argument. False if the result may have the dtype of another one,
        as of `x` in `torch.where(mask, x, y)`, or one stated as `dtype`.
        """
        called = built_in_primitives().called  # other functions are unknown
        # `clamp_`, in place, is as `clamp`.
        known = called(self.word) or called(self.word.removesuffix("_"))
        kinds = {kind for facts in known for kind in facts.kinds}
        # In the table the kind "kept" says that a result has the dtype of the arguments; `exp` gives
        # floats. It must be the only kind: `max` also gives positions, integers whatever x is.
        if kinds != {"kept"} or self.creates or self.converts():
            return False
        takes = {call[0].takes for call in self.calls if 0 in call}
        slots = (call[at] for call in self.calls for at in self.given if at in call)
        stated = {*self.given, *(slot.parameter for slot in slots)}
        # A first argument that may be a mask or positions gives no dtype: `F.embedding(i, w)` has that of
        # w. None is known for `torch.where(x)`, which gives positions. `x.to(dtype=...)` chooses the dtype
        # itself.
        return takes == {"tensor"} and "dtype" not in stated

    def is_moved(self) -> bool:
        """Return whether the result has elements of the first argument alone (`x.view(-1)`), or none of them (`zeros_like`, `x.shape`)."""
        if self.creates or self.word in NO_TENSOR:
            return True
        return self.follows() and _is_of_any(self.word)

    def converts(self) -> bool:
        """Return whether the result has integers or booleans of any tensor: `x.long()`, `x.to(torch.int64)`, `x.eq(y)`."""
        # The first is the tensor itself.
        values = map(ast.unparse, [*self.given.values()][1:])
        return self.word in EQUAL or any(map(WHOLE_DTYPE.fullmatch, values))

    def taken(self, argument: Argument) -> Expected:
        """Return the `Expected` for one argument, given by position or keyword: what the function takes there, by all fitting signatures."""
        receiver = argument == 0 and self.shown.startswith("Tensor.")
        slots = [item[argument] for item in self.calls if argument in item]
        tensor = receiver or any(slot.takes == "tensor" for slot in slots)
        # Its elements are only compared, or turned into integers: of any dtype, and without a gradient. Of
        # `x.eq(y)` both are, of another such call those of the first argument alone.
        if tensor and self.converts() and (argument == 0 or self.word in EQUAL):
            return _constant
        # `x.view(-1)` says nothing of the elements; the uses of the result do.
        if tensor and argument == 0 and self.is_moved():
            return _moved
        if receiver:
            return _tensor
        return _taken(self.calls, argument, self.given, self.shown)


def _leaves(item: ast.stmt) -> bool:
    """Return whether a statement may leave its block by `return`, `break` or `continue`: its successors may not run."""
    # The `return` of a function defined here leaves only that.
    inner = not isinstance(item, ast.FunctionDef | ast.ClassDef)
    leaving = ast.Return | ast.Break | ast.Continue
    return inner and any(isinstance(node, leaving) for node in ast.walk(item))


def _starred(items: Sequence[ast.expr]) -> bool:
    return any(isinstance(item, ast.Starred) for item in items)


def _is_spread(call: Call, given: Arguments) -> bool:
    """Return whether all arguments of a call from the first star on are one parameter's, and there are several: `x.view(*dims, n)`.

    Then each of them is a size. For `f(*pair)` alone the number of values is unknown, so nothing is known of them.
    """
    places = (at for at in given if isinstance(at, int))
    rest = dropwhile(lambda at: not isinstance(given[at], ast.Starred), places)
    found = [call[at].parameter for at in rest]
    return len(found) > 1 and len({*found}) == 1


def _as_loaded(target: ast.expr) -> ast.expr:
    """Return an assignment's target as an expression read: `x += y` reads `x`."""
    read = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(read, target)


def _is_of_module(receiver: ast.Name, word: str) -> bool:
    """Return whether a receiver, `np` of `np.exp(x)`, is a module used without an import: by its name, or as tensors have no such method."""
    return (
        receiver.id in ARRAYS or judged_value(word) is None and not is_tensor_word(word)
    )


def _is_of_any(word: str) -> bool:
    """Return whether a function takes elements of any dtype and passes them on, as `unsqueeze`: it proves nothing about them."""
    return all(
        facts.category in MOVING or facts.memory == "same"
        for facts in facts_of_call(word)
    )


def _taken_by(operator: str, *values: ast.expr, at: Argument = 0) -> Expected:
    """Return the `Expected` for operand `at` of an operator: a mask of `a & b`, but integers if one operand is a literal, `codes & 1`."""
    if operator in ("&", "|", "^", "~") and any(
        isinstance(item, ast.Constant) for item in values
    ):
        return _index
    calls = calls_of("operator", operator, len(values), ())
    return _taken(calls, at, dict(enumerate(values)), f"'{operator}'")


def _signed(node: ast.UnaryOp, use: Use, expected: Expected) -> Expected:
    """Return the `Expected` for `x` in `-x`, the `node`: an operand, unless `expected`, which gives that its `use`, says more of `x` as well.

    It does if it wants integers or a number, or if it is unclear, but with words: "torch.add takes a tensor or a number".
    """
    plain = use.takes in ("tensor", "assigned", "moved")
    return _operand if plain or use == _unclear(node) else expected


def _element_of(expected: Expected) -> Expected:
    """Return the `Expected` for an element of a tuple, from that for the tuple: of "tuple[int, ...]" each is an "int"."""

    def element(node: ast.expr) -> Use:
        """Return the use of an element: that of its tuple, with the type inside."""
        use = expected(node)
        inner = use.type.removeprefix("tuple[").partition(",")[0]
        return use._replace(type=inner) if use.type.startswith("tuple[") else use

    return element


def _taken(
    calls: Sequence[Call], argument: Argument, given: Arguments, shown: str
) -> Expected:
    """Return the `Expected` for one of the arguments `given` of a call, by its possible signatures.

    A literal rules out a signature with a tensor in its place; if none is left, all count.
    """
    numbers = {at for at, value in given.items() if isinstance(value, ast.Constant)}
    may_be = [
        call
        for call in calls
        if not any(call[at].takes == "tensor" for at in numbers & call.keys())
    ]
    fitting = may_be or calls
    slots = [call[argument] for call in fitting if argument in call]
    takes = {slot.takes for slot in slots}

    def use(node: ast.expr) -> Use:
        """Return the use of an expression as this argument, by the parameters it may be: `slots`."""
        # Functions of `math` take numbers alone.
        if shown.startswith("math."):
            return Use("value", node, f"{shown} takes a number", "float")
        if not slots:
            return _without_slot(argument, node, shown)
        first = slots[0]
        if first.takes == "either":
            where = f"{shown} takes a tensor or a number"
            return Use("unclear", node, where, first.type)
        if first.takes == "value" and len(takes) > 1:  # of another signature a tensor
            where = f"{shown} takes a tensor, or '{first.parameter}'"
            return Use("unclear", node, where, first.type)
        if first.takes == "value":
            where = f"{shown} takes '{first.parameter}'"
            return Use("value", node, where, first.type)
        # An operator is shown in quotes, '+': its operand may as well be a number.
        if shown.startswith("'") and takes == {"tensor"}:
            return _operand(node)
        return _of_slots(slots, node, shown)

    return use


def _without_slot(argument: Argument, node: ast.expr, shown: str) -> Use:
    """Return the use of an argument, `node`, that no known signature of the function `shown` has: a size, if it is of `torch.zeros`."""
    word = shown.rpartition(".")[2]
    if not is_made_of_numbers(word):
        # An unknown function is reported when the op is built.
        return _unclear(node) if is_torch_word(word) else _tensor(node)
    if argument in ("dtype", "device"):
        return Use("value", node, f"{shown} takes a {argument}", str(argument))
    # A size, or perhaps a float: `torch.full((2,), value)`.
    where, unsure = f"{shown} takes numbers", word not in OF_SIZES
    return Use("value", node, where, "int", doubtful=unsure)


def _of_slots(slots: Sequence[Slot], node: ast.expr, shown: str) -> Use:
    """Return the use of an argument, `node`, as a tensor, as positions or as a mask; unclear if it may be positions or something else.

    `slots` are the parameters it may be, by the fitting signatures of the function `shown`. The first decides, but for a soft one: floats
    have another meaning there, as class labels may be given as probabilities.
    """
    soft = [slot for slot in slots if slot.soft]
    if soft:
        where = f"{shown} (a float tensor, if it is probabilities)"
        return Use(soft[0].takes, node, where, doubtful=True, soft=True)
    # Positions for one signature, something else for another: which of them is called is unknown.
    if slots[0].takes in BY_INTEGERS and len({slot.takes for slot in slots}) > 1:
        return _unclear(node)
    return Use(slots[0].takes, node, shown)
