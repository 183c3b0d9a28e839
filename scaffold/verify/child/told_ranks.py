"""Ranks of inputs that the text of a forward tells, where nobody declared them.

In: the statements of a function, and the functions that stand beside it. Out: `Told`, a word for each dim of an input, equal ones for dims
that are equal. Invariant: nothing is run, and what is told may be of another value: it is where a search begins, no fact.

The text is gone through in its order. A value is known by the input that it was made of and by how many dims it has more, `x.unsqueeze(1)`
one, `w[i]` one less; or by its rank alone, `x.view(B, T, -1)`. So what tells the rank of a value tells that of the input.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, reduce
from itertools import count, pairwise
from typing import NamedTuple

from scaffold.primitives.calls import (
    by_shape,
    facts_of_call,
    is_in_place,
    is_made_of_numbers,
    is_several_tensors,
    mask_positions,
    may_be_several_tensors,
    moves,
    position_of,
)
from scaffold.primitives.facts import SHAPES

# Of an input a word for each dim, equal ones for dims that are equal; "" says nothing.
Told = Mapping[str, tuple[str, ...]]
# The values that an expression tells the dims of, each with its words; the number tells apart the words of several expressions.
Tell = Callable[[ast.AST, int], Iterator[tuple[ast.expr, tuple[str, ...]]]]
LAST_ADDED = re.compile(r"unsqueeze\(-1\)|, None\]")  # for an outer product
LARGEST = 6  # ranks that are told
DEPTH = 3  # of functions that call functions
TIMES = 4  # a loop is read
ROUNDS = 3  # in which a rank goes from one input to another


class _Value(NamedTuple):
    """A tensor that was made of an input, `x[0].unsqueeze(-1)`; without an input one of a rank that is known."""

    input: str
    extra: int  # dims that it has more than the input, or all of them
    # Words for the dims that were taken from the input in front, by an index or as a part of a list; None where it may be others.
    taken: tuple[str, ...] | None = None
    likely: bool = False  # no more than that: the left one of two that are added


_Known = _Value | list["_Known"] | None  # a list is a tuple or a list of Python
_Names = dict[str, _Known]
NUMBER = _Value("", 0)
STACKED = "the layers"  # the first dim of several parameters in one
# What the table says of the shape of a result: how many dims it has more than the first tensor. Not there: those of `reduced`, of sizes, of several tensors.
MORE = {
    **dict.fromkeys(("first", "broadcast", "transposed", "swapped", "padded"), 0),
    **dict.fromkeys(("convolved", "linear", "indexed", "along"), 0),
    **dict.fromkeys(("attention", "pairs"), 0),
    **dict.fromkeys(("unsqueezed", "with_diagonal"), 1),
    **dict.fromkeys(("selected", "squeezed", "diagonal", "product_with_vector"), -1),
    "without_matrix": -2,
}
RANK = {"range": 1, "steps": 1, "length": 1, "length_twice": 2}  # of other results
# What the table says no shape of.
MORE_OF = {"view_as_real": 1, "view_as_complex": -1}
SAME = frozenset({"diff", "glu", "rot90", "movedim", "narrow", "requires_grad_"})
SIZED = frozenset({"repeat", "tile"})
OF_RANK = {"bmm": 3, "mm": 2, "outer": 2}
FROM_SIZES = re.compile(r"(resized|windows|resampled|spread)\(")  # other sizes
ADDED = re.compile(r"\(\*\w+, ([^*]+)\)")  # `(*index, num_classes)`
OWN = frozenset({"torch", "F", "nn", "functional", "einops", "linalg", "special"})


class Ranks(NamedTuple):
    """What is told of ranks, what is no more than likely, and the least that an index or a dim tells."""

    told: Told
    likely: Told
    least: Mapping[str, int]


def told_ranks(
    body: Sequence[ast.stmt],
    inputs: Mapping[str, int | None],
    positions: Collection[str],
    functions: Mapping[str, ast.FunctionDef],
    tell: Tell,
) -> Ranks:
    """What a text says of the ranks of inputs: those whose rank is None. `positions` are those that hold integers, `tell` says what one expression tells."""
    reader = _Reader(functions, tell, positions)
    names: _Names = {
        name: _Value(name, 0, ()) if rank is None else _Value("", rank)
        for name, rank in inputs.items()
    }
    reader.block(body, names, 0)
    return Ranks(reader.found(), reader.likely, reader.least)


class _Reader:
    """Goes through a text, and notes what tells a rank."""

    def __init__(
        self,
        functions: Mapping[str, ast.FunctionDef],
        tell: Tell,
        positions: Collection[str],
    ) -> None:
        self.functions, self.tell, self.positions = functions, tell, positions
        self.rows: dict[str, set[int]] = {}  # that are taken of an input
        self.told: dict[str, tuple[str, ...]] = {}
        self.sure = set[str]()  # what is unpacked
        self.likely: dict[str, tuple[str, ...]] = {}
        self.least: dict[str, int] = {}
        self.added: list[tuple[_Value, _Value]] = []  # after dims of one were added
        self.alike: list[tuple[_Value, _Value]] = []
        self.products: list[tuple[_Value, _Value]] = []  # of matrices
        self.known: dict[int, _Known] = {}  # of the statement that is read
        self.number = count()
        self.given: list[_Known] = []  # what the functions return

    def found(self) -> dict[str, tuple[str, ...]]:
        for name, rows in self.rows.items():
            if name in self.positions and rows == {0, 1}:  # `src, dst = e[0], e[1]`
                self.told[name] = ("2", *self.told.get(name, ("", ""))[1:])
        for _ in range(ROUNDS):
            for one, two in self.alike:
                for this, that in ((one, two), (two, one)):
                    if that.input in self.told and this.input not in self.told:
                        self._note(this, len(self.told[that.input]) + that.extra)
        for one, two in self.products:  # a weight has most often two dims
            rank = len(self.told.get(two.input, ())) + two.extra
            if rank > 2 and (not two.input or two.input in self.told):
                self._note(_likely(one), rank)
        for one, two in self.added:  # `x * scale.unsqueeze(1)`
            for this, that in ((one, two), (two, one)):
                known = {**self.likely, **self.told}
                rank = len(known.get(that.input, ())) or self.least.get(that.input, 0)
                extra = that.extra > max(0, this.extra)
                if rank > 1 and extra and this.input not in known:
                    self._note(_likely(that), rank + that.extra)
                    self._note(_likely(this), rank + that.extra)
        for one, two in self.added:
            for this, that in ((one, two), (two, one)):
                if this.extra > max(0, that.extra) and that.input in self.told:
                    rank = len(self.told[that.input]) + that.extra
                    self._note(_likely(this), max(rank, this.extra + 1))
        return self.told

    def _note(
        self, value: _Known, rank: int, words: tuple[str, ...] = (), sure: bool = False
    ) -> None:
        """That a value has a rank."""
        if not isinstance(value, _Value) or not value.input:
            return
        own = rank - value.extra
        if not 0 <= own <= LARGEST:
            return
        taken = value.taken or ()
        exact = value.taken is not None and len(taken) + len(words) == own
        said = (*taken, *words) if exact else ("",) * own
        if value.likely:
            self.likely.setdefault(value.input, said)
            return
        before = self.told.get(value.input)
        if (
            before is None
            or sure
            and value.input not in self.sure
            or len(before) == own
            and not any(before)
        ):
            self.told[value.input] = said
        if sure:
            self.sure.add(value.input)

    def _has_dim(self, value: _Known, dim: object) -> None:
        """That a value has a dim of this number."""
        if isinstance(value, _Value) and value.input and type(dim) is int:
            least = (dim + 1 if dim >= 0 else -dim) - value.extra
            self.least[value.input] = max(least, self.least.get(value.input, 0))

    def _equal(self, values: Iterable[_Known]) -> None:
        """That values have one rank."""
        known = [one for one in values if isinstance(one, _Value) and one != NUMBER]
        for one, two in pairwise(known):
            if not one.input:
                self._note(two, one.extra)
            elif not two.input:
                self._note(one, two.extra)
            else:
                self.alike.append((one, two))

    # --- Statements.

    def block(self, body: Sequence[ast.stmt], names: _Names, depth: int) -> None:
        for node in body:
            self.known = {}
            match node:
                case ast.Assign(targets, value):
                    found = self.value(value, names, depth)
                    self._hear(node, names, depth)
                    for target in targets:
                        self._assign(target, value, found, names, depth)
                case ast.AnnAssign(ast.Name(name), _, value) if value is not None:
                    names[name] = self.value(value, names, depth)
                case ast.For(target, values, inner, rest):
                    several = self.value(values, names, depth)
                    for item in self._each(target, values, several):
                        self._bind([target], [item], names)
                        self.block([*inner, *rest], names, depth)
                case ast.If():
                    self._chosen(node, names, depth)
                case ast.While(_, inner, _) | ast.With(_, inner):
                    self.block(inner, names, depth)
                case ast.Assert(ast.Compare(left, [ast.Eq()], [right])):
                    self._stated(left, right, names, depth)
                case ast.Return(value) if value is not None:
                    self.given.append(self.value(value, names, depth))
                case ast.FunctionDef():
                    pass
                case _:
                    for part in ast.iter_child_nodes(node):
                        if isinstance(part, ast.expr):
                            self.value(part, names, depth)

    def _chosen(self, node: ast.If, names: _Names, depth: int) -> None:
        """`if mask is None: mask = ...`, which has the rank of the mask; `if a.shape != b.shape: raise ...`."""
        blocks = [*node.body, *node.orelse]
        match node.test, node.body:
            case ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]), _:
                given = names.get(name)
                self.block(blocks, names, depth)
                if isinstance(given, _Value) and given.input:
                    self._equal((given._replace(likely=True), names.get(name)))
                    names[name] = given
            case ast.Compare(left, [ast.NotEq()], [right]), [ast.Raise(), *_]:
                self._stated(left, right, names, depth)
                self.block(node.orelse, names, depth)
            case test, _:
                if re.search(r"\bn?dim\b", ast.unparse(test)):
                    blocks = node.orelse  # of another rank than most often
                self.value(test, names, depth)
                self.block(blocks, names, depth)

    def _assign(
        self,
        target: ast.expr,
        value: ast.expr,
        found: _Known,
        names: _Names,
        depth: int,
    ) -> None:
        match target, value:
            case ast.Name(name), _:
                names[name] = found
            case ast.Tuple(targets) | ast.List(targets), _:
                if any(isinstance(item, ast.Starred) for item in targets):
                    self._bind(targets, None, names)
                    return
                match value:
                    case ast.Attribute(whole, "shape") | ast.Call(
                        ast.Attribute(whole, "size"), []
                    ):
                        of = self.value(whole, names, depth)
                        words = tuple(map(_of_size, targets))
                        self._note(of, len(targets), words, sure=True)
                        found = NUMBER
                self._bind(targets, found, names)
            case _:
                pass

    def _bind(self, targets: Sequence[ast.expr], found: _Known, names: _Names) -> None:
        parts = found if isinstance(found, list) else [found] * len(targets)
        parts = parts if len(parts) == len(targets) else parts[:1] * len(targets)
        for target, part in zip(targets, parts, strict=False):
            match target:
                case ast.Name(name) | ast.Starred(ast.Name(name)):
                    names[name] = part
                case ast.Tuple(inner):
                    self._bind(inner, part, names)

    def _each(
        self, target: ast.expr, values: ast.expr, several: _Known
    ) -> Sequence[_Known]:
        """What a loop goes through; of a tensor its rows."""
        match values:
            case ast.Call(ast.Name("range"), _):
                return [NUMBER]
            case ast.Call(ast.Name("enumerate"), [_]):
                inner = several if isinstance(several, list) else [several]
                return [[NUMBER, item] for item in inner[:TIMES]] or [None]
        if isinstance(several, _Value) and several.input:
            return [_Value(several.input, several.extra - 1)]
        return several[:TIMES] if isinstance(several, list) and several else [None]

    def _stated(
        self, left: ast.expr, right: ast.expr, names: _Names, depth: int
    ) -> None:
        """`assert k.shape == (B, T, D)`, `assert k.shape == q.shape`, `assert q.dim() == 4`."""
        match left, right:
            case ast.Attribute(value, "shape"), ast.Tuple(sizes):
                words = tuple(map(_of_size, sizes))
                found = self.value(value, names, depth)
                self._note(found, len(sizes), words, sure=True)
            case ast.Attribute(one, "shape"), ast.Attribute(two, "shape"):
                self._equal(self.value(item, names, depth) for item in (one, two))
            case (
                ast.Subscript(
                    ast.Attribute(one, "shape"),
                    ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(int(fewer)))),
                ),
                ast.Attribute(two, "shape"),
            ):
                whole = self.value(one, names, depth)
                if isinstance(whole, _Value):
                    whole = whole._replace(extra=whole.extra - fewer, taken=None)
                self._equal((whole, self.value(two, names, depth)))
            case (
                (
                    ast.Call(ast.Attribute(value, "dim"), [])
                    | ast.Attribute(value, "ndim")
                ),
                ast.Constant(int(rank)),
            ):
                self._note(self.value(value, names, depth), rank, sure=True)

    def _aligned(self, one: _Known, two: _Known) -> None:
        """`scores + mask[None]`, `x * scale.unsqueeze(1)`: dims are added to have as many."""
        if not isinstance(one, _Value) or not isinstance(two, _Value):
            return
        if one.input and two.input and one.input != two.input:
            self.added.append((one, two))
        for this, that in ((one, two), (two, one)):
            if this.extra > 0 and not that.input:
                self._note(_likely(this), that.extra)

    def _product(self, one: _Known, two: _Known) -> _Known:
        """`q @ k.mT`, which has the rank of the left one."""
        if isinstance(one, _Value) and one.input and isinstance(two, _Value):
            self.products.append((one, two))
        return _moved(one)

    # --- Expressions.

    def value(self, node: ast.expr, names: _Names, depth: int) -> _Known:
        """What is known of a value; on the way what it tells is noted."""
        if id(node) not in self.known:
            self.known[id(node)] = None
            self.known[id(node)] = self._value(node, names, depth)
            self._hear(node, names, depth)
        return self.known[id(node)]

    def _hear(self, node: ast.AST, names: _Names, depth: int) -> None:
        for part, words in self.tell(node, next(self.number)):
            self._note(self.value(part, names, depth), len(words), words)

    def _value(self, node: ast.expr, names: _Names, depth: int) -> _Known:
        def of(part: ast.expr) -> _Known:
            return self.value(part, names, depth)

        match node:
            case ast.Name(name):
                return names.get(name)
            case ast.Constant(value):
                return NUMBER if isinstance(value, int | float) else None
            case ast.Tuple(parts) | ast.List(parts):
                return [*map(of, parts)]
            case ast.Subscript(ast.Attribute(value, "shape"), at):
                last = getattr(at, "upper", None)  # `x.shape[1:3]`
                end = getattr(last, "value", None)
                self._has_dim(of(value), end - 1 if type(end) is int else _plain(at))
                return NUMBER
            case ast.Subscript(value, index):
                return self._indexed(value, index, names, depth)
            case ast.BinOp(left, operator, right):
                one, two = of(left), of(right)
                if isinstance(operator, ast.MatMult):
                    return self._product(one, two)
                if not LAST_ADDED.search(ast.unparse(node)):
                    self._aligned(one, two)
                return _joined(one, two)
            case ast.Compare(left, _, [right]):
                return _joined(of(left), of(right))
            case ast.UnaryOp(_, value):
                return _moved(of(value))
            case ast.ListComp(element, [one]) | ast.GeneratorExp(element, [one]):
                return self._mapped(one.target, of(one.iter), element, names, depth)
            case ast.Call(ast.Name("map"), [ast.Lambda(arguments, body), values]):
                target = ast.Name(arguments.args[0].arg, ast.Store())
                return self._mapped(target, of(values), body, names, depth)
            case ast.Call():
                return self._called(node, names, depth)
        inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        return _of_parts(node, [*map(of, inner)])

    def _mapped(
        self,
        target: ast.expr,
        several: _Known,
        element: ast.expr,
        names: _Names,
        depth: int,
    ) -> _Known:
        """`[x.transpose(1, 2) for x in (q, k, v)]`."""
        found: list[_Known] = []
        for item in several if isinstance(several, list) else [None]:
            inner = dict(names)
            self._bind([target], [item], inner)
            for node in ast.walk(element):
                self.known.pop(id(node), None)
            found.append(self.value(element, inner, depth))
        return found if isinstance(several, list) else found[0]

    def _indexed(
        self, value: ast.expr, index: ast.expr, names: _Names, depth: int
    ) -> _Known:
        found = self.value(value, names, depth)
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        inner = [self.value(part, names, depth) for part in parts]
        if isinstance(found, list):
            match index:
                case ast.Constant(int(at)) if at < len(found):
                    return found[at]
            return found[0] if found else None
        if not isinstance(found, _Value) or found == NUMBER:
            return None
        extra, taken = found.extra, found.taken
        indexed = sum(getattr(part, "value", part) not in (None, ...) for part in parts)
        self._has_dim(found, indexed - 1)
        for part, own in zip(parts, inner, strict=True):
            match part:
                case ast.Slice():
                    taken = None
                case ast.Constant(whole) if whole is ...:
                    taken = None
                case ast.Constant(None):
                    extra, taken = extra + 1, None
                case ast.Compare():
                    return None  # a mask
                case _ if isinstance(own, _Value) and not own.input and own.extra < 2:
                    extra -= 1 - own.extra
                    row = getattr(part, "value", None) if taken == () else None
                    if isinstance(row, int):
                        self.rows.setdefault(found.input, set()).add(row)
                    if taken is not None:
                        taken = (*taken, STACKED * isinstance(part, ast.Name))
                case _ if isinstance(own, _Value) and own.extra < 0:
                    taken = None  # `h[edges[0]]`, of positions in one dim
                    if own.input not in self.positions:
                        return None
                case _:
                    return None
        return _Value(found.input, extra, taken, found.likely)

    def _called(self, node: ast.Call, names: _Names, depth: int) -> _Known:
        keywords = {item.arg: item.value for item in node.keywords}
        every = [self.value(item, names, depth) for item in node.args]
        for item in keywords.values():
            self.value(item, names, depth)
        match node.func:
            case ast.Name(word) if word in self.functions:
                given = dict(zip(map(str, keywords), keywords.values(), strict=True))
                own = {
                    name: self.value(item, names, depth) for name, item in given.items()
                }
                return self._inner(self.functions[word], every, own, depth)
            case ast.Name("zip"):
                lists = [item if isinstance(item, list) else [item] for item in every]
                return [[*items] for items in zip(*lists, strict=False)]
            case ast.Name("enumerate"):
                first = every[0] if every else None
                if isinstance(first, _Value) and first.input:
                    return first._replace(extra=first.extra - 1, taken=None)
                return first
            case ast.Name(word):
                arguments = [*node.args]
            case ast.Attribute(ast.Name(root), word) if (
                root in OWN and root not in names
            ):
                arguments = [*node.args]
            case ast.Attribute(ast.Attribute(), word) if _root(node.func) in OWN:
                arguments = [*node.args]
            case ast.Attribute(subject, word):
                every = [self.value(subject, names, depth), *every]
                arguments = [subject, *node.args]
            case _:
                return None
        return self._of_call(word, arguments, every, keywords)

    def _of_call(
        self,
        word: str,
        arguments: Sequence[ast.expr],
        every: Sequence[_Known],
        keywords: Mapping[str | None, ast.expr],
    ) -> _Known:
        """The value of a call, whose subject stands first."""
        first = every[0] if every else None
        rest = arguments[1:]
        if word in ("rearrange", "repeat", "reduce") and rest and _text(rest[0]):
            return self._of_pattern(first, _text(rest[0]))
        shapes = _shapes(word)
        if word in SIZED or shapes & {"reshaped", "expanded", "permuted"}:
            return self._of_sizes(word, first, _sizes(rest))
        if shapes & {"sizes", "sizes_first"}:
            sizes = _sizes(rest if word.startswith("new") else arguments)
            return None if sizes is None else _Value("", len(sizes))
        for rank in (OF_RANK.get(word), *map(RANK.get, shapes)):
            if rank is not None:
                return _Value("", rank)
        if is_made_of_numbers(word):
            return None
        if shapes & {"joined", "stacked"}:
            return self._of_several(first, int("stacked" in shapes))
        if word == "matmul" and len(every) > 1:
            return self._product(*every[:2])
        if both := _of_both(word, shapes, every):
            return both
        match word, arguments:
            case "einsum", [ast.Constant(str(text)), *_]:
                result = text.replace(" ", "").partition("->")[2]
                plain = "->" in text and "." not in result
                return _Value("", len(result)) if plain else None
        if not isinstance(first, _Value):
            return None
        return self._of_subject(word, first, rest, every, keywords)

    def _of_sizes(
        self, word: str, first: _Known, sizes: Sequence[ast.expr] | None
    ) -> _Known:
        """What `view` and `expand` make, which tell also of what they are given."""
        if sizes is None:
            return None
        known = [_plain(size) == -1 for size in sizes]
        if isinstance(first, _Value):
            likely = first._replace(likely=True)
            merged = _factors(sizes) if word in ("view", "reshape") else 0
            if merged and not first.likely:
                self._note(_likely(first), merged)
            if word == "permute" or word == "expand" and known[0]:
                self._note(first, len(sizes))  # no dim comes in front
            elif word == "expand" and any(known):
                self._note(likely, len(sizes), tuple("" if n else "1" for n in known))
        return _Value("", len(sizes))

    def _of_pattern(self, first: _Known, pattern: str) -> _Known:
        """What einops makes of a value, or of several."""
        left, _, right = pattern.partition("->")
        one, two = len(_axes(left)), len(_axes(right))
        several = isinstance(first, list)
        for item in first if isinstance(first, list) else [first]:
            if "..." not in left:
                self._note(item, one - several)
        if "..." not in right:
            return _Value("", two)
        if isinstance(first, _Value) and "..." in left:
            return first._replace(extra=first.extra + two - one, taken=None)
        return None

    def _of_several(self, first: _Known, extra: int) -> _Known:
        """What `cat` and `stack` make."""
        several = first if isinstance(first, list) else [first]
        self._equal(several)
        known = [item for item in several if isinstance(item, _Value)]
        absolute = [item for item in known if not item.input]
        for item in (absolute or known)[:1]:
            return item._replace(extra=item.extra + extra, taken=None)
        return None

    def _of_subject(
        self,
        word: str,
        first: _Value,
        rest: Sequence[ast.expr],
        every: Sequence[_Known],
        keywords: Mapping[str | None, ast.expr],
    ) -> _Known:
        """The value of a call of one tensor."""
        if word == "size":
            self._has_dim(first, _plain(rest[0]) if rest else None)
            return NUMBER
        if by_shape(word, creates=False):  # `x.expand_as(y)`
            return _moved(every[1]) if len(every) > 1 else None
        shapes, dim = _shapes(word), _given(word, ("dim", "dims"), rest, keywords)
        extra = _more(word)
        if dim is not None and (extra or 0) <= 0:
            self._has_dim(first, _plain(dim))
        if word in ("transpose", "flatten", "unflatten", "movedim", "swapaxes"):
            for one in rest[: 1 if word == "unflatten" else 2]:
                self._has_dim(first, _plain(one))
        at = _plain(dim) if dim is not None and word == "unsqueeze" else None
        if isinstance(at, int) and at > 0:
            self._has_dim(first, at - 1)
        if word in ("gather", "scatter_add", "scatter"):
            self._equal([first, *every[2:3]])
        if "attention" in shapes:
            self._equal(every[:3])
        if "reduced" in shapes:
            return _reduced(word, first, dim, rest, keywords)
        if word == "unbind":
            return [first._replace(extra=first.extra - 1, taken=None)]
        if is_several_tensors(word) and moves(word):
            return [_moved(first)]
        if word in ("flatten", "ravel"):
            return _flat(first, [*map(_plain, rest)])
        if "unflattened" in shapes and len(rest) > 1:
            extra = len(_sizes(rest[1:]) or (None,)) - 1
        if extra is None or "squeezed" in shapes and dim is None:
            return None
        return first._replace(extra=first.extra + extra, taken=None)

    def _inner(
        self,
        function: ast.FunctionDef,
        values: Sequence[_Known],
        named: Mapping[str, _Known],
        depth: int,
    ) -> _Known:
        """What a function of the file returns."""
        if depth >= DEPTH:
            return None
        arguments = function.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        names: _Names = dict.fromkeys((item.arg for item in every), NUMBER)
        for item in every[: len(every) - len(arguments.defaults)]:
            names[item.arg] = None
        names |= dict(zip([item.arg for item in every], values, strict=False))
        names |= named
        before, self.given, known = self.given, [], self.known
        self.block(function.body, names, depth + 1)
        found, self.given, self.known = self.given, before, known
        return found[-1] if found else None


def _of_parts(node: ast.expr, inner: Sequence[_Known]) -> _Known:
    """A choice, and what an attribute is of a tensor: `q.T`, `x.max(-1).values`."""
    match node:
        case ast.Attribute(_, "shape" | "dtype" | "device" | "ndim"):
            return None
        case ast.Attribute(_, "values" | "indices"):
            (found,) = inner
            return found[0] if isinstance(found, list) and found else None
        case ast.Attribute():
            return _moved(inner[0])
        case ast.IfExp():
            return inner[1] or inner[2]
    return None


@cache
def _shapes(word: str) -> frozenset[str]:
    """What the table says of the shapes of the results of what is called so."""
    return frozenset(facts.shape for facts in facts_of_call(word))


def _of_both(word: str, shapes: Collection[str], every: Sequence[_Known]) -> _Known:
    """What is computed element by element of several tensors; None where it is of one."""
    masks = mask_positions(word)
    several = [item for at, item in enumerate(every) if at not in masks]
    others = [item for item in several[1:] if isinstance(item, _Value)]
    if "compared" in shapes and others:
        both = _joined(*several[:2])
        return both._replace(extra=both.extra - 1) if isinstance(both, _Value) else None
    plain = "broadcast" not in shapes or all(item == NUMBER for item in others)
    return None if plain else reduce(_joined, several)


@cache
def _more(word: str) -> int | None:
    """How many dims a result has more than the first tensor of a call; None where nothing is known of that."""
    if word in MORE_OF:
        return MORE_OF[word]
    if word in SAME or is_in_place(word):
        return 0
    for shape in sorted(_shapes(word)):
        if shape in MORE:
            return MORE[shape]
        if shape not in SHAPES and shape.isidentifier() or FROM_SIZES.match(shape):
            return 0
        if added := ADDED.fullmatch(shape):
            return added[1].count(",") + 1
    return None


def _given(
    word: str,
    names: Iterable[str],
    rest: Sequence[ast.expr],
    keywords: Mapping[str | None, ast.expr],
) -> ast.expr | None:
    """What a call gives to a parameter of one of these names."""
    for name in names:
        if name in keywords:
            return keywords[name]
        at = position_of(word, name)
        if at and at <= len(rest):
            return rest[at - 1]
    return None


def _reduced(
    word: str,
    first: _Value,
    dims: ast.expr | None,
    rest: Sequence[ast.expr],
    keywords: Mapping[str | None, ast.expr],
) -> _Known:
    """`x.sum(-1)`, `x.mean(dim=(1, 2), keepdim=True)`, `x.max(-1)`."""
    if dims is None or isinstance(dims, ast.Constant) and dims.value is None:
        return None if is_several_tensors(word) else NUMBER
    kept = _given(word, ("keepdim",), rest, keywords)
    fewer = len(dims.elts) if isinstance(dims, ast.Tuple | ast.List) else 1
    fewer = 0 if getattr(kept, "value", None) is True else fewer
    found = first._replace(extra=first.extra - fewer, taken=None)
    return [found] if may_be_several_tensors(word) else found


def _flat(first: _Value, dims: Sequence[object]) -> _Known:
    """`x.flatten(1)`, `x.flatten(0, 1)`."""
    match dims:
        case []:
            return _Value("", 1)
        case [int(start)] if start < 0:
            return first._replace(extra=first.extra + start + 1, taken=None)
        case [int(start)] | [int(start), -1] if start >= 0:
            return _Value("", start + 1)
        case [int(start), int(end)] if start * end >= 0 and end > start:
            return first._replace(extra=first.extra - end + start, taken=None)
    return None


def _joined(one: _Known, two: _Known) -> _Known:
    """Of two values that are combined element by element."""
    if not isinstance(one, _Value) or not isinstance(two, _Value):
        return None
    if not one.input and not two.input or one.input == two.input:
        return _moved(max(one, two, key=lambda item: item.extra))
    based, other = (one, two) if one.input else (two, one)
    if not other.input:
        return other if other.extra > 2 else _likely(based, other.extra > 0)
    return _likely(two if two.extra > max(0, one.extra) else one)


def _likely(value: _Value, likely: bool = True) -> _Value:
    return value._replace(taken=None, likely=likely or value.likely)


def _moved(value: _Known) -> _Known:
    """A value of the same rank, whose dims may be others."""
    return value._replace(taken=None) if isinstance(value, _Value) else value


def _of_size(node: ast.expr) -> str:
    """A word for a size by its name."""
    plain = isinstance(node, ast.Name) and node.id.strip("_")
    return f"size {node.id}" if plain and isinstance(node, ast.Name) else ""


def _sizes(nodes: Sequence[ast.expr]) -> Sequence[ast.expr] | None:
    """The sizes that are given, one by one or in a tuple; None where their number is not known."""
    match nodes:
        case [ast.Tuple(parts) | ast.List(parts), *_]:
            nodes = parts
        case [ast.Name() | ast.Attribute() | ast.Call() | ast.BinOp()]:
            return None  # a size, or several
    if not nodes or any(isinstance(item, ast.Starred) for item in nodes):
        return None
    return nodes


def _factors(sizes: Sequence[ast.expr]) -> int:
    """How many dims are put together to fewer, `x.reshape(B * T, D)`; 0 where that is not told."""
    inner = [[*ast.walk(size)] for size in sizes]
    names = [[one.id for one in part if isinstance(one, ast.Name)] for part in inner]
    plain = all(
        isinstance(one, ast.Name | ast.Mult | ast.BinOp | ast.Load)
        or isinstance(one, ast.Constant)
        and one.value == 1
        for part in inner
        for one in part
    )
    count = sum(map(len, names))
    return count if plain and count > sum(map(bool, names)) else 0


def _plain(node: ast.expr) -> object:
    """The number that stands there, also a negative one."""
    match node:
        case ast.Constant(value):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
    return None


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(str(text)) if "->" in text:
            return text
    return ""


def _axes(text: str) -> list[str]:
    """The axes of one side of a pattern of einops: `b (h w) c` has three."""
    found, inside = list[str](), False
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            found.append(word)
        inside = word == "(" or inside and word != ")"
        if not inside and word != ")":
            found.append(word)
    return found


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
