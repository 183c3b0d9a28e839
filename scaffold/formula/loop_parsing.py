"""Loops over the steps of a sequence -> one assignment each, of what the loop leaves.

In: the statements of a forward with loops whose length only a call tells: `for t in range(x.shape[1])`. Out: a `Formula` in which each
loop is an assignment `h, y, hs = <loop>`. Invariant: it computes what the forward does; a loop of any other shape than the
one below leads to None, and the forward stays as the user wrote it.

What is understood is a loop over `range`, a tensor or its parts, at the top level of the forward, that carries tensors from step to
step (`h`) and collects what it computes (`ys.append(h)`, `out[:, t] = h`) for one `torch.stack` after it. Its value is a
node of kind `loop`: the code itself, in which a name that belongs to the loop is `own`, so that no pass takes it for one outside. What it
leaves: the last value of each carry, what is collected as one tensor, and for the backward a list of what each carry was before the first step and after each.
"""

import ast
import copy
import keyword
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple, TypeVar

from scaffold.errors import ScaffoldError
from scaffold.formula.desugar import plain
from scaffold.formula.effects import bound, changed_in_place, sharing, written
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    Lines,
    Node,
    Statement,
    assignments,
    expressions,
)
from scaffold.formula.names import take
from scaffold.formula.program import Program
from scaffold.formula.statements import StatementParser
from scaffold.formula.substitution import is_pure, names_in, stored, substituted
from scaffold.formula.text import Scope, Text
from scaffold.primitives.calls import is_in_place

JOIN, PARTS = "stack", "unbind"
LARGEST = 2000  # nodes of what a choice computes
Made = TypeVar("Made", bound=ast.expr)
Choice = TypeVar("Choice", ast.If, ast.IfExp, ast.BoolOp)
SHORTEST = "min"
BUILTINS = {"range", "reversed", SHORTEST}  # that a loop is written with
BEGIN, END = "loop_begins", "loop_ends"


def with_loops_as_assignments(
    text: Text, program: Program, scope: Scope, graph: Graph
) -> Formula | None:
    """The formula of a forward with loops, each as one assignment; None where one is of another shape."""
    if scope.targets is not None:
        return None
    program = program._replace(body=_with_last_elements(program.body))
    unrolling = _OneStep(program.body, scope.names)
    if BUILTINS & unrolling.assigned.union(scope.names):
        return None
    flat = unrolling.block(program.body)
    if flat is None or not unrolling.loops:
        return None
    once = program._replace(body=flat, comments={}, problems=[])
    try:
        formula = StatementParser(text, once, scope, graph).formula()
    except ScaffoldError:
        return None
    assert formula.result is not None
    rolling = _Rolling(graph, formula, unrolling.loops, scope.names)
    statements = rolling.statements()
    return replace(formula, statements=statements) if statements else None


OBSTACLES: Mapping[type[ast.AST], str] = {
    ast.Break: "a break",
    ast.Continue: "a continue",
    ast.For: "a loop in it",
    ast.While: "a loop in it",
    ast.If: "a choice (torch.where would be derived)",
}


def obstacle(body: Iterable[ast.stmt]) -> str:
    """What in a loop no step may have; '' where it is something else."""
    nodes = (node for item in body for node in ast.walk(item))
    loops = [node for node in nodes if isinstance(node, ast.For)]
    inner = [node for loop in loops for node in ast.walk(loop) if node is not loop]
    for kind, said in OBSTACLES.items():  # a choice with a break is told as a break
        if any(isinstance(node, kind) for node in inner):
            return said
    return ""


# --- A list that a step reads the last element of -> that element under a name of its own.
#
# In: the statements of a forward. Out: `ys_last = y0` above `ys = [y0]`, then `ys_last = ys_last + dy` and `ys.append(ys_last)` for
# `ys.append(ys[-1] + dy)`. Invariant: the name is the last element wherever it is read; a list that is used otherwise stays.


def _with_last_elements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    taken, found = names_in(body), [*body]
    for loop in [item for item in body if isinstance(item, ast.For)]:
        lists = dict(_lists(found[: found.index(loop)]))
        for name, elements in lists.items():
            grown = [item for item in loop.body if _grows(item, name)]
            if not elements or len(grown) != 1 or _reads_last(loop, name) == 0:
                continue
            start, last = f"{name}_first", f"{name}_last"
            uses = sum(node.id == name for node in _names(loop))
            if {start, last} & taken or uses != 1 + _reads_last(loop, name):
                continue
            at = next(k for k, item in enumerate(found) if name in _assigned(item))
            found = _with_last(found, at, loop, name)
            taken |= {start, last}
            break
    return found


def _with_last(
    body: list[ast.stmt], at: int, loop: ast.For, name: str
) -> list[ast.stmt]:
    """The statements, in which a loop reads the last element of a list, made in line `at`, by a name."""
    first, last = f"{name}_first", f"{name}_last"
    made = copy.deepcopy(body[at])
    assert isinstance(made, ast.Assign) and isinstance(made.value, ast.List)
    *others, value = made.value.elts
    made.value.elts = [*others, ast.Name(first, ast.Load())]
    begin = [_assign(first, value), _assign(last, ast.Name(first, ast.Load())), made]
    step = copy.deepcopy(loop)
    step.body = [line for item in step.body for line in _named_last(item, name)]
    read = _Last(name)
    found = [
        step if item is loop else item if k < at else read.visit(copy.deepcopy(item))
        for k, item in enumerate(body)
        if k != at
    ]
    found[at:at] = [ast.copy_location(line, body[at]) for line in begin]
    return [ast.fix_missing_locations(item) for item in found]


def _named_last(item: ast.stmt, name: str) -> list[ast.stmt]:
    item, last = _Last(name).visit(item), f"{name}_last"
    match item:
        case ast.Expr(ast.Call(args=[value]) as call) if _grows(item, name):
            call.args = [ast.copy_location(ast.Name(last, ast.Load()), item)]
            return [ast.copy_location(_assign(last, value), item), item]
    return [item]


class _Last(ast.NodeTransformer):
    """Puts a name in the place of the last element of a list."""

    def __init__(self, name: str) -> None:
        self.name = name

    def visit_Subscript(self, item: ast.Subscript) -> ast.expr:
        self.generic_visit(item)
        if _is_last(item, self.name):
            return ast.copy_location(ast.Name(f"{self.name}_last", ast.Load()), item)
        return item


def _is_last(item: ast.AST, name: str) -> bool:
    match item:
        case ast.Subscript(
            ast.Name(found), ast.UnaryOp(ast.USub(), ast.Constant(1)), ast.Load()
        ):
            return found == name
    return False


def _reads_last(loop: ast.For, name: str) -> int:
    return sum(_is_last(node, name) for node in ast.walk(loop))


def _grows(item: ast.stmt, name: str) -> bool:
    match item:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(found), "append"), [_], [])):
            return found == name
    return False


def _names(part: ast.AST) -> Iterator[ast.Name]:
    return (node for node in ast.walk(part) if isinstance(node, ast.Name))


# --- One step of each loop in the place of the loop, so that the parser of straight lines reads it.
#
# In: the syntax of a forward. Out: the same with markers around one step of each loop, whose index is the first one. Invariant: the
# statements between the markers are those of one step, and what is collected has a name of its own in them.


class Collected(NamedTuple):
    """What a loop collects, and how it is one tensor in the end."""

    element: str  # what a step adds
    container: str  # the list
    joined: str  # the name of the whole
    flipped: bool  # the last step's part is the first one
    buffer: bool = False  # the forward writes the parts into a tensor of its own
    flat: bool = False  # they are put one after another, along a dim that they have
    chosen: bool = False  # they are joined in one way of a choice alone


class OfLoop(NamedTuple):
    """A loop, as far as its step alone does not tell."""

    at: str
    backwards: bool
    collected: list[Collected]
    # Names that the forward changes in place, and a step gives a new value.
    changed: frozenset[str]


class _Header(NamedTuple):
    """What a loop goes over."""

    at: str
    start: ast.expr
    stop: ast.expr
    backwards: bool
    elements: tuple[tuple[ast.expr, ast.expr], ...] = ()  # target, `x[:, t]`


class _OneStep:
    def __init__(self, body: Sequence[ast.stmt], inputs: Collection[str]) -> None:
        self.taken = set(names_in(body))
        names = [node for item in body for node in _names(item)]
        # Those of inputs are more than what a choice has of them.
        self.counts = Counter([*(node.id for node in names), *inputs])
        self.assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        self.loops: list[OfLoop] = []

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt] | None:
        """The statements, with one step of each loop."""
        found: list[ast.stmt] = []
        rest = [one for item in body for one in _apart(copy.deepcopy(item))]
        while rest:
            item = rest.pop(0)
            if isinstance(item, ast.For):
                step = self._step(item, found, rest)
                if step is None:
                    return None
                found = [*self._before(found), *step]
            elif any(isinstance(node, ast.For | ast.While) for node in ast.walk(item)):
                return None
            else:
                found.append(item)
        return found

    def _before(self, above: Iterable[ast.stmt]) -> list[ast.stmt]:
        """The statements before a loop, without those that make what it collects in."""
        made = {part.container for part in self.loops[-1].collected if not part.buffer}
        return [item for item in above if not set(_assigned(item)) & made]

    def _step(
        self, loop: ast.For, above: list[ast.stmt], after: list[ast.stmt]
    ) -> list[ast.stmt] | None:
        header = self._header(loop.target, loop.iter)
        body = plain(loop.body, self.taken)
        lines = _without_choices(_with_locals_inside(body, self.counts))
        if header is None or loop.orelse or lines is None:
            return None
        if _assigns_what_it_goes_over(loop, header):
            return None
        if isinstance(header.start, ast.Constant):  # `x[-1:0]` is no part
            lines = [_OnePart(header.at).visit(line) for line in lines]
        lines, changed = _with_new_values(lines, header, self.assigned)
        kept = [item for item in above if not changed.intersection(_assigned(item))]
        collecting = _Collecting(header, kept, self._fresh)
        body = [collecting.visit(item) for item in lines]
        joined = collecting.joins(after)
        if joined is None:
            return None
        collected = [pair[0] for pair in joined]
        here = len(self.loops)
        ends = ast.Tuple([header.start, header.stop], ast.Load())
        self.loops.append(OfLoop(header.at, header.backwards, collected, changed))
        if collecting.elements.keys() & names_in([*body]):
            return None
        lines = [
            _assign(f"{BEGIN}_{here}", ends),
            _assign(header.at, header.start),
            *(ast.Assign([target], value) for target, value in header.elements),
            *body,
            _assign(f"{END}_{here}", ast.Constant(0)),
            *(_assign(part.joined, value) for part, value in joined),
        ]
        return [
            ast.fix_missing_locations(ast.copy_location(line, loop)) for line in lines
        ]

    def _fresh(self, stem: str) -> str:
        return take(self.taken, stem, sign="")

    def _header(self, target: ast.expr, items: ast.expr) -> _Header | None:
        match target, items:
            case ast.Name(index), ast.Call(ast.Name("range"), args, []):
                return _of_range(index, args)
            case _, ast.Call(ast.Name("reversed"), [inner], []):
                found = self._header(target, inner)
                return found and found._replace(backwards=not found.backwards)
            case (
                ast.Tuple([ast.Name(index), ast.Tuple(targets)]),
                ast.Call(
                    ast.Name("enumerate"), [ast.Call(ast.Name("zip"), several, [])], []
                ),
            ) if len(targets) == len(several):
                return self._over(targets, several, index)
            case (
                ast.Tuple([ast.Name(index), inner_target]),
                ast.Call(ast.Name("enumerate"), [inner], []),
            ):
                return self._over((inner_target,), (inner,), index)
            case ast.Tuple(targets), ast.Call(ast.Name("zip"), several, []) if len(
                targets
            ) == len(several):
                return self._over(targets, several, self._fresh("step"))
            case ast.Name(), _:
                return self._over((target,), (items,), self._fresh("step"))
        return None

    def _over(
        self, targets: Sequence[ast.expr], several: Sequence[ast.expr], index: str
    ) -> _Header | None:
        """Over tensors, or their parts: `for a_t, b_t in zip(a.unbind(1), b.unbind(1))`."""
        parts = [_sequence(item) for item in several]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        elements = tuple(
            (target, _element(tensor, dim, index))
            for target, (tensor, dim) in zip(targets, known, strict=True)
        )
        lengths = [_length(*part) for part in known]
        stop, *others = lengths
        if others:  # a zip ends with the shortest
            stop = ast.Call(ast.Name(SHORTEST, ast.Load()), lengths, [])
        return _Header(index, ast.Constant(0), stop, False, elements)


def _of_range(index: str, args: list[ast.expr]) -> _Header | None:
    zero = ast.Constant(0)
    match args:
        case [stop]:
            return _Header(index, zero, stop, False)
        case [start, stop]:
            return _Header(index, start, stop, False)
        case [
            ast.BinOp(stop, ast.Sub(), ast.Constant(1)),
            ast.UnaryOp(ast.USub(), ast.Constant(1)),
            ast.UnaryOp(ast.USub(), ast.Constant(1)),
        ]:
            return _Header(index, zero, stop, True)
    return None


def _sequence(item: ast.expr) -> tuple[ast.expr, int] | None:
    """A tensor by the name that it has, and the dim that a loop goes over: `x`, `x.unbind(1)`, `torch.unbind(x, dim=1)`."""
    match item:
        case ast.Name():
            return item, 0
        case ast.Call(ast.Attribute(ast.Name("torch"), word), [tensor, *dim], named):
            pass
        case ast.Call(ast.Attribute(tensor, word), dim, named):
            pass
        case _:
            return None
    given = [*dim, *(keyword.value for keyword in named)] if word == PARTS else [item]
    match tensor, given:
        case ast.Name(), []:
            return tensor, 0
        case ast.Name(), [ast.Constant(int(value))]:
            return tensor, value
    return None


def _length(tensor: ast.expr, dim: int) -> ast.expr:
    shape = ast.Attribute(tensor, "shape", ast.Load())
    return ast.Subscript(shape, ast.Constant(dim), ast.Load())


def _assigns_what_it_goes_over(loop: ast.For, header: _Header) -> bool:
    """Whether a step gives its index, or a tensor whose parts it takes, another value: `for x in x.unbind(1)`."""
    kept = {header.at}.union(*(names_in([value]) for _, value in header.elements))
    targets = [target for target, _ in header.elements]
    nodes = (node for item in (*targets, *loop.body) for node in ast.walk(item))
    assigned = (node for node in nodes if isinstance(node, ast.Name))
    return any(isinstance(node.ctx, ast.Store) and node.id in kept for node in assigned)


def _element(tensor: ast.expr, dim: int, index: str) -> ast.expr:
    at: ast.expr = ast.Name(index, ast.Load())
    if dim:
        at = ast.Tuple([*(ast.Slice() for _ in range(dim)), at], ast.Load())
    return ast.Subscript(tensor, at, ast.Load())


PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)


def _with_locals_inside(
    body: Iterable[ast.stmt], counts: Counter[str]
) -> list[ast.stmt]:
    """The statements of a step; a name that is of one choice alone is what it stands for: `if late: d = f(x)` and then `x = x + d`."""
    found = list[ast.stmt]()
    for item in body:
        if isinstance(item, ast.If):
            inner = Counter(node.id for node in _names(item))
            of_item = {name for name, count in inner.items() if counts[name] == count}
            ways = [
                _with_locals_inside(way, counts) for way in (item.body, item.orelse)
            ]
            ways = [_settled(way, of_item - names_in([item.test])) for way in ways]
            made = ast.If(item.test, *ways)
            item = ast.copy_location(made, item)
        found.append(item)
    return found


def _settled(way: list[ast.stmt], own: set[str]) -> list[ast.stmt]:
    """One way of a choice without the lines that give names of its own a value; as it is where one of them is no such line."""
    known, found = dict[str, ast.expr](), list[ast.stmt]()
    stale = set[str]()  # of which a name has another value since
    for item in way:
        given = item.value if isinstance(item, ast.Assign) else None
        if not isinstance(item, ast.Assign) or given is None or not is_pure([item]):
            return way
        value = substituted(copy.deepcopy(given), known)
        names = stored(item.targets)
        if stale & names_in([given]) or sum(1 for _ in ast.walk(value)) > LARGEST:
            return way
        match item.targets:
            case [ast.Name(name)] if name in own:
                known[name] = value
            case _ if own.isdisjoint(names):
                made = ast.Assign(item.targets, value)
                found.append(ast.copy_location(made, item))
            case _:
                return way
        stale |= {at for at, of in known.items() if names_in([of]) & {*names} - {at}}
    return found or way


def _without_choices(body: Iterable[ast.stmt]) -> list[ast.stmt] | None:
    """The statements of a step, `if t == 0: h = x` as `h = x if t == 0 else h`; None where one is no plain statement."""
    found = list[ast.stmt]()
    for item in body:
        chosen = _chosen(item) if isinstance(item, ast.If) else [item]
        if chosen is None or not all(isinstance(line, PLAIN) for line in chosen):
            return None
        found += chosen
    return found


def _chosen(item: ast.If) -> list[ast.stmt] | None:
    """An assignment for each name that a choice assigns; None where one line after another would compute something else."""
    ways = [_without_choices(way) for way in (item.body, item.orelse)]
    pairs = [
        [
            pair
            for line in way or ()
            if isinstance(line, ast.Assign)
            for pair in _made(line)
        ]
        for way in ways
    ]
    ends = [dict(way) for way in pairs]
    names = list(dict.fromkeys(name for way in pairs for name, _ in way))
    simple = all(
        way is not None and len(way) == len(end)
        for way, end in zip(ways, ends, strict=True)
    )
    if not simple or names_in([item.test]).intersection(names):
        return None
    for end in ends:  # a line reads no name that is assigned above it, and was below
        order = list(end)
        for at, name in enumerate(order):
            above = names[: names.index(name)]
            if names_in([end[name]]).intersection(above).intersection(order[at:]):
                return None
    body, orelse = ends
    found = list[ast.stmt]()
    for name in names:
        kept = ast.Name(name, ast.Load())
        value = ast.IfExp(item.test, body.get(name, kept), orelse.get(name, kept))
        line = ast.copy_location(_assign(name, copy.deepcopy(value)), item)
        found.append(ast.fix_missing_locations(line))
    return found


def _with_new_values(
    body: Sequence[ast.stmt], header: _Header, assigned: Collection[str]
) -> tuple[list[ast.stmt], frozenset[str]]:
    """`h[:, t] = f(h[:, t - 1])` as `h = h.clone()` and that, `h.add_(x)` as `h = h.add(x)`; and the names that are changed so.

    A tensor that all steps write at the index and none reads, `out[:, t] = h`, stays.
    """
    found, changed = list[ast.stmt](), set[str]()
    nodes = [node for item in body for node in ast.walk(item)]
    uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    from_zero = isinstance(header.start, ast.Constant) and header.start.value == 0
    for item in map(_of_part, body):
        match item:
            case ast.Assign([ast.Subscript(ast.Name(name), at)]) if name in assigned:
                whole = from_zero and _place(at, header.at) is not None
                if (not whole or uses[name] > 1) and name not in changed:
                    of = ast.Attribute(ast.Name(name, ast.Load()), "clone", ast.Load())
                    found.append(_at(item, _assign(name, ast.Call(of, [], []))))
                    changed.add(name)
            case ast.Expr(
                ast.Call(ast.Attribute(ast.Name(name) as of, method), args, keys)
            ) if name in assigned and is_in_place(method):
                callee = ast.Attribute(of, method.removesuffix("_"), ast.Load())
                item = _at(item, _assign(name, ast.Call(callee, args, keys)))
                changed.add(name)
        found.append(item)
    return found, frozenset(changed)


def _of_part(item: ast.stmt) -> ast.stmt:
    """`y[rows] = y[rows] + x` for `y[rows] += x`."""
    match item:
        case ast.AugAssign(ast.Subscript(of, at) as target, operation, value):
            before = ast.copy_location(ast.Subscript(of, at, ast.Load()), target)
            after = ast.copy_location(ast.BinOp(before, operation, value), value)
            return _at(item, ast.Assign([target], after))
    return item


def _at(place: ast.stmt, made: ast.stmt) -> ast.stmt:
    """A statement that stands where another did."""
    return ast.fix_missing_locations(ast.copy_location(made, place))


def _apart(item: ast.stmt) -> Iterator[ast.stmt]:
    """`h, ys = torch.zeros(n), []` as a line for each, so that the list has one; another statement as it is."""
    match item:
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if (
            len(targets) == len(values)
            and all(isinstance(target, ast.Name) for target in targets)
            and any(isinstance(value, ast.List) for value in values)
            and not names_in(targets) & names_in(values)
        ):
            for target, value in zip(targets, values, strict=True):
                yield ast.copy_location(ast.Assign([target], value), item)
        case _:
            yield item


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _made(item: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """The name that a statement gives a value, and that value."""
    match item:
        case ast.Assign([ast.Name(name)], value):
            yield name, value
        case ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
            yield name, value


def _assigned(item: ast.stmt) -> Iterator[str]:
    return (name for name, _ in _made(item))


class _OnePart(ast.NodeTransformer):
    """Reads and writes `x[:, t : t + 1]` as the part at `t`, with its dim put back or taken away."""

    def __init__(self, index: str) -> None:
        self.ends = index, f"{index} + 1"

    def visit_Subscript(self, item: ast.Subscript) -> ast.expr:
        self.generic_visit(item)
        dim = self._dim(item.slice)
        if dim is None or not isinstance(item.ctx, ast.Load):
            return item
        return _indexed(self._at(item, dim), [ast.Constant(None)], dim)

    def visit_Assign(self, item: ast.Assign) -> ast.stmt:
        item.value = self.visit(item.value)
        match item.targets:
            case [ast.Subscript(ast.Name()) as target]:
                dim = self._dim(target.slice)
                if dim is not None:
                    item.targets = [self._at(target, dim)]
                    item.value = _indexed(item.value, [ast.Constant(0)], dim)
        return item

    def _dim(self, index: ast.expr) -> int | None:
        """Which of the dims is taken from `t` to `t + 1`, and all others in full."""
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        single = [at for at, part in enumerate(parts) if not _is_full(part)]
        if len(single) != 1:
            return None
        match parts[single[0]]:
            case ast.Slice(ast.expr() as lower, ast.expr() as upper, None):
                ends = ast.unparse(lower), ast.unparse(upper)
                return single[0] if ends == self.ends else None
        return None

    def _at(self, item: ast.Subscript, dim: int) -> ast.Subscript:
        """`x[:, t]`."""
        at = ast.Name(self.ends[0], ast.Load())
        found = _indexed(item.value, [at], dim)
        found.ctx = item.ctx
        return found


def _indexed(value: ast.expr, last: list[ast.expr], dim: int) -> ast.Subscript:
    """`value[:, :, last]`."""
    parts = [*(ast.Slice() for _ in range(dim)), *last]
    index = ast.Tuple(parts, ast.Load()) if dim else last[0]
    return _new(ast.Subscript(value, index, ast.Load()), value)


def _new(made: Made, place: ast.expr) -> Made:
    """An expression at a place; what is new in it ends on another line, since it is nowhere in the text."""
    for node in ast.walk(made):
        if isinstance(node, ast.expr) and not hasattr(node, "lineno"):
            ast.copy_location(node, place)
            node.end_lineno = place.lineno + 1
    return ast.fix_missing_locations(made)


class _Collecting(ast.NodeTransformer):
    """Gives what a step collects a name: `ys.append(h)` becomes `y = h`, and so does `ys += [h]`."""

    def __init__(
        self,
        header: _Header,
        above: Sequence[ast.stmt],
        fresh: Callable[[str], str],
    ) -> None:
        self.header, self.fresh = header, fresh
        self.makers = {name: value for item in above for name, value in _made(item)}
        self.lists = dict(_lists(above))
        self.elements: dict[str, str] = {}  # a container -> what a step adds
        self.dims: dict[str, int] = {}  # of what is written in: along which dim
        self.added: dict[str, ast.Assign] = {}  # to a list
        self.inserted: set[str] = set()  # what a step puts something in front of

    def visit_Expr(self, item: ast.Expr) -> ast.stmt:
        match item.value:
            case ast.Call(ast.Attribute(ast.Name(name), "append"), [value], []) if (
                name not in self.elements and name in self.lists
            ):
                return self._added(name, value)
            case ast.Call(
                ast.Attribute(ast.Name(name), "insert"), [ast.Constant(0), value], []
            ) if (name not in self.elements and self.lists.get(name) == []):
                self.inserted.add(name)
                return self._added(name, value)
        return item

    def visit_AugAssign(self, item: ast.AugAssign) -> ast.stmt:
        match item:
            case ast.AugAssign(ast.Name(name), ast.Add(), ast.List([value])) if (
                name not in self.elements
                and name in self.lists
                and not isinstance(value, ast.Starred)
            ):
                return self._added(name, value)
        return item

    def _added(self, container: str, value: ast.expr) -> ast.Assign:
        self.added[container] = _assign(self._element(container), value)
        return self.added[container]

    def visit_Assign(self, item: ast.Assign) -> ast.stmt:
        match item.targets, item.value:
            case [ast.Subscript(ast.Name(name), index)], value if (
                name not in self.elements and name in self.makers
            ):
                dim = _place(index, self.header.at)
                if dim is not None:
                    self.dims[name] = dim
                    return _assign(self._element(name), value)
        return item

    def _element(self, container: str) -> str:
        step = self.header.at if self.header.at != "_" else "step"
        self.elements[container] = self.fresh(f"{container}_{step}")
        return self.elements[container]

    def joins(self, after: list[ast.stmt]) -> list[tuple[Collected, ast.expr]] | None:
        """How all that is collected is joined behind the loop; None where it is read otherwise."""
        found: list[tuple[Collected, ast.expr]] = []
        for container, element in self.elements.items():
            one = self.added.get(container) if not self.lists.get(container) else None
            joining = _Joining(container, self.fresh, one)
            if container in self.dims:
                value = _stacked(element, self.dims[container])
                parts = self.fresh(f"{container}_parts")
                # It is written in at the index, whichever way the loop goes.
                flipped = self.header.backwards
                part = Collected(element, parts, container, flipped, buffer=True)
                found.append((part, value))
                continue
            kept = [item for item in after if not _reverses(item, container)]
            turned = len(after) - len(kept) + (container in self.inserted)
            after[:] = [joining.visit(item) for item in kept]
            if joining.found is None or container in names_in(after):
                return None
            name, flipped, call = joining.found
            flipped ^= bool(turned % 2)
            part = Collected(
                element,
                container,
                name,
                flipped,
                flat=joining.flat,
                chosen=joining.chosen,
            )
            several = [*self.lists[container], ast.Name(element, ast.Load())]
            listed = ast.List(several, ast.Load())
            found.append(
                (part, ast.Call(call.func, [listed, *call.args[1:]], call.keywords))
            )
        return found


def _lists(above: Sequence[ast.stmt]) -> Iterator[tuple[str, list[ast.expr]]]:
    """The lists that statements make, with what is in them where they end."""
    for at, item in enumerate(above):
        for name, value in _made(item):
            if isinstance(value, ast.List):
                later = (node for line in above[at + 1 :] for node in ast.walk(line))
                assigned = {node.id for node in later if isinstance(node, ast.Name)}
                if not assigned & {name, *names_in(value.elts)}:
                    yield name, value.elts


class _Joining(ast.NodeTransformer):
    """Puts a name in the place of `torch.stack(ys, 1)`; `torch.cat(ys, 1)` of `y.unsqueeze(1)` is such a one of `y`."""

    def __init__(
        self, container: str, fresh: Callable[[str], str], added: ast.Assign | None
    ) -> None:
        self.container, self.fresh, self.added = container, fresh, added
        self.found: tuple[str, bool, ast.Call] | None = None
        self.flat = self.chosen = False
        self.under = 0  # how many choices the place stands under

    def visit_If(self, item: ast.If) -> ast.stmt:
        found = self._choice(item)
        # What follows is the other way.
        self.under += any(isinstance(node, ast.Return) for node in ast.walk(item))
        return found

    def visit_IfExp(self, item: ast.IfExp) -> ast.expr:
        return self._choice(item)

    def visit_BoolOp(self, item: ast.BoolOp) -> ast.expr:
        return self._choice(item)

    def _choice(self, item: Choice) -> Choice:
        self.under += 1
        self.generic_visit(item)
        self.under -= 1
        return item

    def visit_Call(self, item: ast.Call) -> ast.expr:
        self.generic_visit(item)
        item, ends = self._as_stacked(item)
        match item:
            case ast.Call(ast.Attribute(ast.Name("torch"), word), [several, *_]) if (
                word == JOIN and self.found is None
            ):
                flipped = _flips(several, self.container)
                if flipped is not None:
                    name = self.fresh("stacked")
                    self.found, self.flat = (name, flipped, item), bool(ends)
                    self.chosen = self.under > 0
                    flat = f"{name}.flatten{ends}" if ends else name
                    whole = ast.parse(flat, mode="eval").body
                    for node in ast.walk(whole):
                        ast.copy_location(node, item)
                        node.end_lineno = item.lineno + 1  # type: ignore[attr-defined]
                    return whole
        return item

    def _as_stacked(self, item: ast.Call) -> tuple[ast.Call, tuple[int, ...]]:
        """A `cat` as a stack, and the two dims of that which are its one; none of what is unsqueezed along it, or of another call."""
        match item:
            case ast.Call(
                ast.Attribute(ast.Name("torch") as torch, word), [several, dim], []
            ) | ast.Call(
                ast.Attribute(ast.Name("torch") as torch, word),
                [several],
                [ast.keyword("dim", dim)],
            ) if (
                word in ("cat", "concat")
                and self.added is not None
                and _flips(several, self.container) is not None
            ):
                stack = ast.Attribute(torch, JOIN, ast.Load())
                inner, number = _unsqueezed(self.added.value, dim), _number(dim)
                if inner is not None:
                    self.added.value = inner
                    made = ast.Call(stack, [several, dim], [])
                    return ast.copy_location(made, item), ()
                if number is not None:
                    at = number if number >= 0 else number - 1
                    made = ast.Call(stack, [several, _literal(at)], [])
                    return _new(made, item), (at, at + 1)
        return item, ()


def _literal(number: int) -> ast.expr:
    made: ast.expr = ast.Constant(abs(number))
    return made if number >= 0 else ast.UnaryOp(ast.USub(), made)


def _reverses(item: ast.stmt, container: str) -> bool:
    """Whether a statement only turns a list round: `ys.reverse()`, `ys = ys[::-1]`."""
    match item:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "reverse"), [], [])):
            return name == container
        case ast.Assign([ast.Name(name)], value) if name == container:
            return _flips(value, container) is True
    return False


def _unsqueezed(value: ast.expr, dim: ast.expr) -> ast.expr | None:
    """`y` of `y.unsqueeze(1)`, where 1 is the dim."""
    match value:
        case ast.Call(ast.Attribute(inner, "unsqueeze"), [at], []) | ast.Call(
            ast.Attribute(ast.Name("torch"), "unsqueeze"), [inner, at], []
        ) if _number(at) is not None and _number(at) == _number(dim):
            return inner
    return None


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _flips(several: ast.expr, container: str) -> bool | None:
    """Whether a list is joined from its end; None for another one."""
    match several:
        case ast.Name(name) if name == container:
            return False
        case ast.Call(ast.Name("reversed"), [ast.Name(name)]) if name == container:
            return True
        case ast.Subscript(ast.Name(name), ast.Slice(None, None, step)) if (
            name == container and step and ast.unparse(step) == "-1"
        ):
            return True
        case ast.Call(ast.Name("list" | "tuple"), [inner]):
            return _flips(inner, container)
    return None


def _stacked(element: str, dim: int) -> ast.expr:
    torch = ast.Name("torch", ast.Load())
    listed = ast.List([ast.Name(element, ast.Load())], ast.Load())
    args: list[ast.expr] = [listed, ast.Constant(dim)]
    return ast.Call(ast.Attribute(torch, JOIN, ast.Load()), args, [])


def _place(index: ast.expr, name: str) -> int | None:
    """The dim that is written at the index of the loop, in full: `out[:, t]`, `out[:, t, :]`."""
    parts = [*index.elts] if isinstance(index, ast.Tuple) else [index]
    while len(parts) > 1 and _is_full(parts[-1]):
        parts.pop()
    *above, last = parts
    match last:
        case ast.Name(found) if found == name and all(map(_is_full, above)):
            return len(above)
    return None


def _is_full(item: ast.expr) -> bool:
    return isinstance(item, ast.Slice) and not (item.lower or item.upper or item.step)


class LoopNodes:
    """Makes the nodes that the code of a loop consists of, forward and backward."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def own(self, name: str) -> Node:
        """A name that belongs to the loop."""
        return self.graph.node("own", name)

    def assign(self, name: str, value: Node) -> Node:
        """`h = value`, of a name of the loop's own."""
        return self.graph.node("assign", "", (self.own(name), value))

    def call(self, callee: Node, *args: Node) -> Node:
        return self.graph.node("call", "", (callee, *args))

    def append(self, listed: str, value: Node) -> Node:
        """`hs.append(value)`, which assigns nothing."""
        method = self.graph.node("attribute", "append", (self.own(listed),))
        absent = self.graph.node("absent")
        return self.graph.node("assign", "", (absent, self.call(method, value)))

    def from_its_end(self, listed: Node) -> Node:
        """`hs[::-1]`."""
        absent = self.graph.node("absent")
        back = self.graph.node("unary", "-", (self.graph.constant("1"),))
        ends = self.graph.node("slice", "", (absent, absent, back))
        return self.graph.node("subscript", "", (listed, ends))


# --- The statements of one step as a loop.


class _Rolling:
    """Puts each loop together from the statements of its step."""

    def __init__(
        self,
        graph: Graph,
        formula: Formula,
        loops: Sequence[OfLoop],
        inputs: Collection[str],
    ) -> None:
        self.graph, self.formula = graph, formula
        self.nodes = LoopNodes(graph)
        self.loops, self.inputs = loops, inputs
        self.names = {name for item in formula.statements for name in written(item)}

    def statements(self) -> Lines | None:
        """The statements of the forward, each loop as one of them."""
        lines = list(self.formula.statements)
        for number, loop in enumerate(self.loops):
            begin = _position(lines, f"{BEGIN}_{number}")
            end = _position(lines, f"{END}_{number}")
            if begin is None or end is None:
                return None
            joined = len(loop.collected)
            after = self._with_new_values(lines[end + 1 + joined :], lines)
            found = self._loop(
                loop, lines[:begin], lines[begin : end + 1 + joined], after
            )
            if found is None:
                return None
            lines = [*lines[:begin], found, *after]
        return tuple(lines)

    def _loop(
        self,
        loop: OfLoop,
        above: Sequence[Statement],
        lines: Sequence[Statement],
        after: Sequence[Statement],
    ) -> Assign | None:
        assigns = [item for item in lines if isinstance(item, Assign)]
        if len(assigns) < len(lines):
            return None
        ends, _, *inner = assigns
        count = len(loop.collected)
        body, joins = inner[: len(inner) - count - 1], inner[len(inner) - count :]
        step = self._functional(body, above, loop.changed)
        buffers = [part.joined for part in loop.collected if part.buffer]
        around = (*above, *body)
        held = {*buffers, *loop.changed}
        if step is None or any(_shares(*pair) for pair in product(around, held)):
            return None
        later = self._read_after(after)
        wanted = {*later, *(part.element for part in loop.collected)}
        step = _needed(step, wanted | {*buffers})
        known = frozenset().union(
            self.inputs, *(bound(item.target) for item in assignments(above))
        )
        carries = _carries(step, known, later)
        if carries is None or loop.at in later:
            return None
        # A carry, or what a list holds, may be part of what is changed behind the loop.
        held = {*carries, *(part.element for part in loop.collected)}
        shared = (_aliases((*above, *step), name) for name in held)
        if _changes(after, held.union(*shared)):
            return None
        return self._assembled(loop, ends, step, joins, carries)

    def _with_new_values(
        self, after: Sequence[Statement], lines: Sequence[Statement]
    ) -> list[Statement]:
        """`y = y * x` for `y *= x` where nothing reads the memory by another name: what the loop left is not changed then."""
        found = list(after)
        held = {part.element for loop in self.loops for part in loop.collected}
        for at, item in enumerate(found):
            if not isinstance(item, Assign) or item.target.kind != "name":
                continue
            name = item.target.label
            read = _read(found[at + 1 :]) | self._result_names() | item.value.names()
            if item.operator and not _aliases(lines, name) & (read | held):
                value = self.graph.node(
                    "binary", item.operator, (item.target, item.value)
                )
                found[at] = replace(item, value=value, operator="")
        return found

    def _result_names(self) -> frozenset[str]:
        assert self.formula.result is not None
        return self.formula.result.names()

    def _read_after(self, after: Sequence[Statement]) -> frozenset[str]:
        """The names that are read behind a loop for what they are there."""
        assert self.formula.result is not None
        found, assigned = set[str](), set[str]()
        for item in after:
            found |= _read([item]) - assigned
            if isinstance(item, Assign) and not item.operator:
                assigned |= bound(item.target)
        return frozenset(found | (self.formula.result.names() - assigned))

    def _functional(
        self,
        body: Sequence[Assign],
        above: Sequence[Statement],
        changed: Collection[str],
    ) -> list[Assign] | None:
        """The lines with `h = h + x` for `h += x`; None where memory that has another name may change."""
        found = []
        for at, item in enumerate(body):
            if item.target.kind == "subscript" and bound(item.target) <= {*changed}:
                found.append(item)
                continue
            names = _target_names(item)
            if names is None or changed_in_place(item.value):
                return None
            if item.operator:
                (name,) = names
                around = [line for line in (*above, *body) if line is not item]
                made = _is_made_above(body[:at], name)
                if not made and any(_shares(line, name) for line in around):
                    return None
                value = self.graph.node(
                    "binary", item.operator, (item.target, item.value)
                )
                item = Assign(item.target, value)
            found.append(item)
        return found

    def _assembled(
        self,
        loop: OfLoop,
        ends: Assign,
        step: Sequence[Assign],
        joins: Sequence[Assign],
        carries: Sequence[str],
    ) -> Assign:
        containers = {part.element: part.container for part in loop.collected}
        lists = self._lists(carries, containers)
        own = frozenset({*carries, *containers.values(), *lists.values(), loop.at})
        own = own.union(*(bound(item.target) for item in step))
        body = [self._line(item, own, containers) for item in step]
        body += [
            self.nodes.append(lists[name], self.nodes.own(name)) for name in carries
        ]
        after = [
            self.nodes.assign(part.joined, self._joined(item.value, part))
            for part, item in zip(loop.collected, joins, strict=True)
        ]
        names = (*carries, *(part.joined for part in loop.collected), *lists.values())
        buffers = [part.joined for part in loop.collected if part.buffer]
        firsts = {
            part.container: item.value.args[1].args[:-1]
            for part, item in zip(loop.collected, joins, strict=True)
        }
        before = self._before(carries, firsts, buffers, lists)
        blocks = [
            self.graph.node("lines", "", tuple(lines))
            for lines in (before, body, after)
        ]
        index, items = self.nodes.own(loop.at), self._items(loop, ends)
        results = self.graph.node("tuple", "", tuple(map(self.nodes.own, names)))
        args = (blocks[0], index, items, *blocks[1:], results)
        target = self.graph.node("tuple", "", tuple(map(self.graph.name, names)))
        flat = (part.container for part in loop.collected if part.flat)
        return Assign(target, self.graph.node("loop", " ".join(flat), args))

    def _lists(
        self, carries: Sequence[str], containers: Mapping[str, str]
    ) -> dict[str, str]:
        """What the list of the values of each carry is called."""
        taken = _read(self.formula.statements) | self._result_names() | self.names
        taken = taken.union(containers.values())
        found = dict[str, str]()
        for name in carries:
            found[name] = _plural(name, taken)
            taken |= {found[name]}
        return found

    def _items(self, loop: OfLoop, ends: Assign) -> Node:
        """What the loop goes over: `range(T)`, `reversed(range(T))`."""
        start, stop = ends.value.args
        zero = start.kind == "constant" and start.label == "0"
        several = (stop,) if zero else (start, stop)
        items = self.nodes.call(self.nodes.own("range"), *several)
        return (
            self.nodes.call(self.nodes.own("reversed"), items)
            if loop.backwards
            else items
        )

    def _before(
        self,
        carries: Sequence[str],
        firsts: Mapping[str, tuple[Node, ...]],
        buffers: Sequence[str],
        lists: Mapping[str, str],
    ) -> list[Node]:
        """What the loop begins with: `h = h` of outside, `ys = []`, `hs = [h]`."""
        graph = self.graph
        begun = [self.nodes.assign(name, graph.name(name)) for name in carries]
        begun += [
            self.nodes.assign(name, graph.node("list", "", values))
            for name, values in firsts.items()
        ]
        begun += [self.nodes.assign(name, graph.name(name)) for name in buffers]
        for name in carries:
            listed = graph.node("list", "", (self.nodes.own(name),))
            begun.append(self.nodes.assign(lists[name], listed))
        return begun

    def _line(
        self, item: Assign, own: Collection[str], containers: Mapping[str, str]
    ) -> Node:
        """A line of a step; where it is what the step adds to a list, the call that adds it."""
        target, value = (
            self.graph.rewrite(node, self._owned(own))
            for node in (item.target, item.value)
        )
        if item.target.kind == "name" and item.target.label in containers:
            return self.nodes.append(containers[item.target.label], value)
        return self.graph.node("assign", "", (target, value))

    def _owned(self, own: Collection[str]) -> Callable[[Node], Node | None]:
        def change(node: Node) -> Node | None:
            if node.kind == "name" and node.label in own:
                return self.nodes.own(node.label)
            return None

        return change

    def _joined(self, call: Node, part: Collected) -> Node:
        """`torch.stack(ys, 1)` of what was `torch.stack([y], 1)`."""
        graph = self.graph
        listed = self.nodes.own(part.container)
        if part.flipped:
            listed = self.nodes.from_its_end(listed)
        callee, _, *rest = call.args
        whole = graph.node("call", "", (callee, listed, *rest), call.keywords)
        if not part.buffer and not part.chosen:
            return whole
        # Of no step there is nothing to stack: the forward's own tensor stays, or another way of its choice is taken.
        torch_empty = graph.node("attribute", "empty", (graph.name("torch"),))
        unread = self.nodes.call(torch_empty, graph.constant("0"))
        other = self.nodes.own(part.joined) if part.buffer else unread
        listed = self.nodes.own(part.container)
        return graph.node("conditional", "", (listed, whole, other))


def _position(lines: Sequence[Statement], marker: str) -> int | None:
    for at, item in enumerate(lines):
        if isinstance(item, Assign) and item.target.label == marker:
            return at
    return None


def _target_names(item: Assign) -> frozenset[str] | None:
    """The names that a target is; None for a part of a tensor."""
    nodes = item.target.walk()
    plain = all(node.kind in ("name", "tuple") for node in nodes)
    return bound(item.target) if plain else None


def _is_made_above(lines: Sequence[Assign], name: str) -> bool:
    """Whether lines of a step give a name memory of its own, `h = a * h`, which no other has when they end."""
    for item in reversed(lines):
        if name in bound(item.target) and not item.operator:
            return item.target.kind == "name" and not sharing(item.value)
        if _shares(item, name):
            return False
    return False


def _shares(item: Statement, name: str) -> bool:
    """Whether a statement may give memory of a name to another, or the name memory of another."""
    if not isinstance(item, Assign):
        return any(_shares(line, name) for line in (*item.body, *item.orelse))
    if item.target.kind == "subscript":  # it copies what it puts there
        return False
    shared = sharing(item.value) - {name}
    holds = name in sharing(item.value) and bound(item.target) != {name}
    return holds or bool(shared) and name in bound(item.target) and not item.operator


def _aliases(lines: Iterable[Statement], name: str) -> set[str]:
    """The other names that may have memory of a name, wherever they get it."""
    pairs = [(bound(item.target), sharing(item.value)) for item in assignments(lines)]
    found, before = {name}, 0
    while len(found) > before:
        before = len(found)
        for targets, shared in pairs:
            if (targets | shared) & found:
                found |= targets | shared
    return found - {name}


def _changes(after: Sequence[Statement], carries: Iterable[str]) -> bool:
    """Whether memory of what a loop carries may change behind it: the backward reads what it was."""
    held = set(carries)
    for item in assignments(after):
        in_place = item.operator or item.target.kind == "subscript"
        changed = bound(item.target) if in_place else frozenset[str]()
        if held & changed.union(changed_in_place(item.value)):
            return True
        if held & sharing(item.value):
            held |= bound(item.target)
    return False


def _read(lines: Iterable[Statement]) -> frozenset[str]:
    nodes = (node for item in lines for node in expressions(item))
    return frozenset().union(*(node.names() for node in nodes))


def _carries(
    step: Sequence[Assign], known: frozenset[str], later: Collection[str]
) -> list[str] | None:
    """The names whose values go from step to step, or from before the loop to behind it."""
    written = set[str]()
    first: dict[str, None] = {}
    for item in step:
        first |= dict.fromkeys(sorted(_all_read(item) - written))
        written |= bound(item.target)
    left = sorted(written & {*later} - first.keys())
    carries = [name for name in first if name in written] + left
    return carries if known.issuperset(carries) else None


def _all_read(item: Assign) -> frozenset[str]:
    """The names that a line reads, those of an index among them: `h[at] = y`."""
    return _read([item]) if item.target.kind == "subscript" else item.value.names()


def _needed(step: Sequence[Assign], wanted: Collection[str]) -> list[Assign]:
    """The lines that lead to what is wanted, in this step or a later one."""
    live, before = {*wanted}, -1
    while len(live) > before:
        before = len(live)
        for item in step:
            if bound(item.target) & live:
                live |= _all_read(item)
    return [item for item in step if bound(item.target) & live]


def _plural(name: str, taken: Collection[str]) -> str:
    """What a list of the values of a name is called."""
    found = f"{name}s" if not name.endswith("s") else f"all_{name}"
    while found in taken or keyword.iskeyword(found):
        found = f"all_{found}"
    return found
