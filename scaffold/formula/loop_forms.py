"""Loops as people write them -> loops of the one form that `loop_parsing` reads.

In: the statements of a forward in which a loop stays. Out: the same with `while i < n` over a counter, a list that a comprehension makes,
two loops over ranges of which one is all that the other does, a `continue`, and `ys = torch.stack(ys)` as loops over `range`, choices and names
of their own. Invariant: it computes what the forward does wherever that runs; what is none of these stays as it is.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from scaffold.formula.definite_assignment import NEGATED
from scaffold.formula.names import take
from scaffold.formula.substitution import is_pure, names_in, renamed, stored

OPPOSITE = {**NEGATED, **{after: before for before, after in NEGATED.items()}}
STARTED = ast.Constant(0.0)  # of what each step gives a value
Naming = Callable[[str], str]
Body = list[ast.stmt]


def as_plain_loops(
    body: Sequence[ast.stmt], taken: Collection[str], whole: Collection[str]
) -> Body:
    """The statements with loops over ranges; `taken` are the names that have a value before them, `whole` those of them that are integers."""
    used = {*names_in(body), *taken}

    def fresh(stem: str) -> str:
        return take(used, stem, sign="")

    found = _with_counters(copy.deepcopy([*body]), {*whole} - {*stored(body)})
    nodes = (node for item in found for node in ast.walk(item))
    uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    found = [line for item in found for line in _with_lists(item, fresh, uses)]
    sizes = _sizes(found, taken)
    found = [_in_steps(item, fresh, sizes) for item in found]
    found = [line for item in found for line in _over_names(item, fresh)]
    found = _with_joined_lists(found, fresh)
    found = _without_nones(found)
    found = _with_starts(found, taken)
    return [_at(item, item) for item in found]


def _at(place: ast.stmt, made: ast.stmt) -> ast.stmt:
    """A statement that stands where another did; what is new in it ends on another line, since it is nowhere in the text."""
    for node in ast.walk(made):
        if isinstance(node, ast.expr | ast.stmt) and not hasattr(node, "lineno"):
            ast.copy_location(node, place)
            node.end_lineno = place.lineno + 1
    return made


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _range(*ends: ast.expr) -> ast.expr:
    return ast.Call(_name("range"), [*ends], [])


# --- Counters: `i = 0`, `while i < n: ...; i += 1`.


def _with_counters(body: Body, known: Collection[str]) -> Body:
    found = Body()
    for at, item in enumerate(body):
        made = item
        if isinstance(item, ast.While):
            made = _counted(item, found, body[at + 1 :], known) or item
        found.append(made)
    return found


def _counted(
    loop: ast.While, above: Body, after: Body, known: Collection[str]
) -> ast.stmt | None:
    """The loop over a range, whose counter begins with a number and that nothing reads behind it."""
    match loop.test, loop.body:
        case ast.Compare(ast.Name(name), [ast.Lt() | ast.LtE() as order], [stop]), [
            *lines,
            ast.AugAssign(ast.Name(other), ast.Add(), ast.Constant(1))
            | ast.Assign(
                [ast.Name(other)],
                ast.BinOp(ast.Name(_), ast.Add(), ast.Constant(1)),
            ) as last,
        ] if (
            name == other and lines
        ):
            pass
        case _:
            return None
    again = isinstance(last, ast.Assign) and name not in names_in([last.value])
    written = {*stored(loop.body)}
    whole = _is_whole(stop, known) and not names_in([stop]) & written
    if loop.orelse or again or not whole or name in stored(lines):
        return None
    if any(isinstance(node, ast.Continue) for node in ast.walk(loop)):
        return None
    if name in names_in(after):
        return None
    starts = [at for at, item in enumerate(above) if name in stored([item])]
    match [above[at] for at in starts[-1:]]:
        case [ast.Assign([ast.Name()], ast.Constant(int()) as first)]:
            pass
        case _:
            return None
    if name in names_in(above[starts[-1] + 1 :]):
        return None
    if isinstance(order, ast.LtE):
        stop = ast.BinOp(stop, ast.Add(), ast.Constant(1))
    del above[starts[-1]]
    ends = [stop] if first.value == 0 else [first, stop]
    made = ast.For(ast.Name(name, ast.Store()), _range(*ends), lines, [])
    return _at(loop, made)


def _is_whole(value: ast.expr, known: Collection[str]) -> bool:
    """Whether it is an integer, which may be negative: a size, or computed of such ones; `known` are names of integers."""
    match value:
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
            return _is_whole(left, known) and _is_whole(right, known)
    return _is_size(value, known)


# --- Lists that a comprehension makes: `ys = []`, `for t in range(n): ys.append(f(t))`.


def _with_lists(
    item: ast.stmt, fresh: Naming, uses: Counter[str]
) -> Iterator[ast.stmt]:
    """The statement below the loops that make the lists of its comprehensions."""
    if (
        not isinstance(item, ast.Assign | ast.AugAssign | ast.Return | ast.Expr)
        or item.value is None
        or not is_pure([item.value])  # what it changes is changed before the list
    ):
        yield item
        return
    lists = _Lists(item, fresh, uses)
    made = lists.visit(item)
    yield from lists.above
    if not lists.is_all:
        yield made


class _Lists(ast.NodeTransformer):
    def __init__(self, place: ast.stmt, fresh: Naming, uses: Counter[str]) -> None:
        self.place, self.fresh, self.uses = place, fresh, uses
        self.above = Body()
        self.is_all = False  # the statement only names the list

    def visit_IfExp(self, item: ast.IfExp) -> ast.expr:
        return item  # one way is not computed

    def visit_BoolOp(self, item: ast.BoolOp) -> ast.expr:
        return item

    def visit_Lambda(self, item: ast.Lambda) -> ast.expr:
        return item

    def visit_Call(self, item: ast.Call) -> ast.expr:
        match item:
            case ast.Call(
                ast.Name("sum"),
                [ast.ListComp(elt, [one]) | ast.GeneratorExp(elt, [one])],
                [],
            ):
                total = self.fresh("total")
                value = ast.BinOp(_name(total), ast.Add(), elt)
                step = _assign(total, value)
                if self._loops(_assign(total, ast.Constant(0)), step, one):
                    return ast.copy_location(_name(total), item)
        self.generic_visit(item)
        return item

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        name = self.fresh("parts")
        match self.place:
            case ast.Assign([ast.Name(own)], value) if value is item:
                name, self.is_all = own, True
        append = ast.Attribute(_name(name), "append", ast.Load())
        step = ast.Expr(ast.Call(append, [item.elt], []))
        if len(item.generators) == 1:
            begin = _assign(name, ast.List([], ast.Load()))
            if self._loops(begin, step, item.generators[0]):
                return ast.copy_location(_name(name), item)
        self.is_all = False
        return item

    def _loops(self, begin: ast.stmt, step: ast.stmt, over: ast.comprehension) -> bool:
        if over.ifs or over.is_async:
            return False
        if any(isinstance(node, ast.ListComp) for node in ast.walk(step)):
            return False
        own = {
            name: self.fresh(name)
            for name in stored([over.target])
            if self.uses[name] > _uses(name, [over.target, step])
        }
        target, step = renamed(over.target, own), renamed(step, own)
        loop = ast.For(target, over.iter, [step], [])
        self.above += [_at(self.place, begin), _at(self.place, loop)]
        return True


def _uses(name: str, parts: Sequence[ast.AST]) -> int:
    nodes = (node for part in parts for node in ast.walk(part))
    return sum(isinstance(node, ast.Name) and node.id == name for node in nodes)


# --- What a step does: `continue`, and a loop that is all of it.


def _in_steps(item: ast.stmt, fresh: Naming, sizes: Collection[str]) -> ast.stmt:
    """A loop without `continue`; one over two ranges of which one is never negative, `sizes` being names of such, as a loop over their product."""
    if not isinstance(item, ast.For):
        return item
    item.body = _without_continue(item.body)
    match item:
        case ast.For(
            ast.Name(row),
            ast.Call(ast.Name("range"), [rows], []),
            [
                ast.For(
                    ast.Name(column),
                    ast.Call(ast.Name("range"), [columns], []),
                    inner,
                    [],
                )
            ],
            [],
        ) if (
            row not in {column, *stored(inner)}
            and not names_in([columns]) & {row, *stored(inner)}
            and (_is_size(rows, sizes) or _is_size(columns, sizes))
        ):
            both = fresh("step")
            lines = [
                _assign(row, ast.BinOp(_name(both), ast.FloorDiv(), columns)),
                _assign(column, ast.BinOp(_name(both), ast.Mod(), columns)),
            ]
            made = ast.For(
                ast.Name(both, ast.Store()),
                _range(ast.BinOp(rows, ast.Mult(), columns)),
                [*lines, *_without_continue(inner)],
                [],
            )
            return _at(item, made)
    return item


def _sizes(body: Body, taken: Collection[str]) -> set[str]:
    """The names that are sizes wherever they are read: `b, t = x.shape`."""
    counts = Counter([*taken, *stored(body)])
    found = set[str]()
    for item in body:
        match item:
            case ast.Assign(
                [ast.Tuple() as several],
                ast.Attribute(_, "shape") | ast.Call(ast.Attribute(_, "size"), [], []),
            ):
                found.update(stored([several]))
            case ast.Assign([ast.Name(name)], value) if _is_size(value, ()):
                found.add(name)
    return {name for name in found if counts[name] == 1}


def _is_size(value: ast.expr, sizes: Collection[str]) -> bool:
    """Whether it is an integer that is never negative: `x.shape[0]`, `len(steps)`, a sum of such ones; `sizes` are names of them."""
    match value:
        case ast.Name(name):
            return name in sizes
        case ast.BinOp(left, ast.Add() | ast.Mult() | ast.FloorDiv(), right):
            return _is_size(left, sizes) and _is_size(right, sizes)
        case ast.Constant(int()):
            return True
        case ast.Subscript(ast.Attribute(_, "shape"), at):
            return not isinstance(at, ast.Slice)
        case ast.Call(ast.Attribute(_, "size"), [_]) | ast.Call(ast.Name("len"), [_]):
            return True
    return False


def _without_continue(body: Body) -> Body:
    """`if skipped: continue` as a choice of what follows."""
    for at, item in enumerate(body):
        match item:
            case ast.If(test, [ast.Continue()], []):
                rest = _without_continue(body[at + 1 :])
                if not rest:
                    return body[:at]
                return [*body[:at], _at(item, ast.If(_negated(test), rest, []))]
    return body


def _negated(test: ast.expr) -> ast.expr:
    """`i != 2` of `i == 2`."""
    match test:
        case ast.UnaryOp(ast.Not(), inner):
            return inner
        case ast.Compare(left, [order], [right]) if type(order) in OPPOSITE:
            return ast.copy_location(
                ast.Compare(left, [OPPOSITE[type(order)]()], [right]), test
            )
    return ast.copy_location(ast.UnaryOp(ast.Not(), test), test)


# --- What a loop goes over, by name: `for a, b in zip(x[:-1], x[1:])`.


def _over_names(item: ast.stmt, fresh: Naming) -> Iterator[ast.stmt]:
    if isinstance(item, ast.For):
        above = Body()
        item.iter = _named(item.iter, item, fresh, above)
        yield from above
    yield item


def _named(value: ast.expr, place: ast.stmt, fresh: Naming, above: Body) -> ast.expr:
    match value:
        case ast.Call(ast.Name("zip" | "enumerate" | "reversed"), args, []):
            value.args = [_named(arg, place, fresh, above) for arg in args]
        case ast.Subscript(ast.Name(name), ast.Slice() | ast.Tuple()):
            own = fresh(f"{name}_part")
            above.append(_at(place, _assign(own, value)))
            return ast.copy_location(_name(own), value)
    return value


# --- A list whose name the tensor gets that it becomes: `ys = torch.stack(ys)`.


def _with_joined_lists(body: Body, fresh: Naming) -> Body:
    found, lists = [*body], set[str]()
    for at, item in enumerate(found):
        match item:
            case ast.Assign([ast.Name(name)], ast.List()):
                lists.add(name)
            case ast.Assign(
                [ast.Name(name)], ast.Call(_, [one, *_])
            ) if name in lists and name in names_in([one]):
                own = {name: fresh(f"joined_{name}")}
                target = renamed(item.targets[0], own)
                made = ast.copy_location(ast.Assign([target], item.value), item)
                later = (renamed(line, own) for line in found[at + 1 :])
                return _with_joined_lists([*found[:at], made, *later], fresh)
    return found


# --- What the first step gives a value and the last one leaves.


def _with_starts(body: Body, taken: Collection[str]) -> Body:
    """`v = 0.0` above a loop whose steps assign v before they read it, and that leaves it."""
    found, there = Body(), {*taken}
    for at, item in enumerate(body):
        if isinstance(item, ast.For):
            own = {*stored([item.target])}
            left = {*stored(item.body)} - there - own
            for name in sorted(left & _read_first(body[at + 1 :])):
                found.append(_at(item, _assign(name, copy.copy(STARTED))))
        there |= {*stored([item])}
        found.append(item)
    return found


def _read_first(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements read before they assign them."""
    read, written = set[str](), set[str]()
    for item in body:
        loads = {
            node.id
            for node in ast.walk(item)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        read |= loads - written
        written |= {*stored([item])}
    return read


# --- What is None until the first step gives it a value: `if old is None or t > 3`.


def _without_nones(body: Body) -> Body:
    """`old = 0.0` for `old = None` above a loop each of whose steps assigns it, and `t == 0` for `old is None`."""
    found = [*body]
    for at, item in enumerate(body):
        match item:
            case ast.For(
                ast.Name(index), ast.Call(ast.Name("range"), [*ends]), steps, []
            ) if (len(ends) < 3):
                pass
            case _:
                continue
        for before in range(at):
            match body[before]:
                case ast.Assign([ast.Name(name)], ast.Constant(None)):
                    between = names_in(body[before + 1 : at])
                    first = ends[0] if len(ends) == 2 else ast.Constant(0)
                    sure = [line for line in steps if isinstance(line, ast.Assign)]
                    own = name in stored(sure) and index not in stored(steps)
                    own = own and _is_made(name, steps)
                    own = own and name not in _read_first(body[at + 1 :])
                    tests = _NoneTests(name, index, first)
                    made = tests.visit(copy.deepcopy(item))
                    if name in between or not own or not tests.found:
                        continue
                    found[at] = made
                    found[before] = _at(body[before], _assign(name, copy.copy(STARTED)))
                    return _without_nones(found)
    return found


def _is_made(name: str, steps: Body, by_name: bool = True) -> bool:
    """Whether whatever a step assigns to a name is computed, or `by_name` what is, so that it is never None."""
    for item in (node for line in steps for node in ast.walk(line)):
        if isinstance(item, ast.stmt) and name in stored(_targets(item)):
            match item:
                case ast.Assign([ast.Name()], ast.Name(other)) if by_name:
                    if other not in stored(steps) or not _is_made(other, steps, False):
                        return False
                case ast.Assign(
                    [ast.Name()], ast.BinOp() | ast.UnaryOp() | ast.Subscript()
                ):
                    pass
                case _:
                    return False
    return True


def _targets(item: ast.stmt) -> Sequence[ast.AST]:
    """What a statement gives a value, those of the statements in it left out."""
    match item:
        case ast.Assign(targets):
            return targets
        case ast.AugAssign(target) | ast.AnnAssign(target) | ast.For(target):
            return [target]
    return []


class _NoneTests(ast.NodeTransformer):
    """Puts what tells the first step in the place of what asks whether a name is None."""

    def __init__(self, name: str, index: str, first: ast.expr) -> None:
        self.name, self.index, self.first = name, index, first
        self.found = 0
        self.stale = False  # the step has assigned the name

    def visit_Assign(self, item: ast.Assign) -> ast.stmt:
        self.generic_visit(item)
        self.stale |= self.name in stored(item.targets)
        return item

    def visit_Compare(self, item: ast.Compare) -> ast.expr:
        match item:
            case ast.Compare(
                ast.Name(name), [ast.Is() | ast.IsNot() as order], [ast.Constant(None)]
            ) if (name == self.name and not self.stale):
                self.found += 1
                same: ast.cmpop = ast.Eq() if isinstance(order, ast.Is) else ast.NotEq()
                made = ast.Compare(_name(self.index), [same], [self.first])
                return ast.copy_location(made, item)
        return item
