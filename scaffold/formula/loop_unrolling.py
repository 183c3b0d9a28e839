"""Short loops over constants -> straight-line statements.

In: the statements of a formula. Out: the same ones with such loops and comprehensions written out, if that leaves no
loop at all. Invariant: a loop that is not written out stays as the user wrote it, with all that is around it.

A few steps read as well in a row as in a loop, and the gradient of the row is derived. More of them are what loops are
for: nobody would merge five copies of a body, so those are left to autograd.
"""

import ast
import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from scaffold.formula.constant_folding import BINARY, COMPARE, compared, computed
from scaffold.formula.substitution import names_in, stored
from scaffold.primitives.calls import is_sized

ROUNDS = 4  # of one loop
LINES = 24  # that all loops of a forward make
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)


def unrolled(body: list[ast.stmt], taken: Collection[str] = ()) -> list[ast.stmt]:
    """The statements without loops, or as they are; `taken` names hide the builtin functions."""
    if not any(map(_loops, body)):
        return body
    steps = _Steps(_read_outside(body), frozenset(taken))
    found = steps.lines(copy.deepcopy(body))
    nodes = [node for item in found for node in ast.walk(item)]
    # `for i in range(2): if i > 3: ...`: a choice that is left without a statement.
    idle = any(isinstance(node, ast.If) and not node.body for node in nodes)
    longer = sum(isinstance(node, ast.stmt) for node in nodes) > LINES + len(body)
    return body if idle or longer or any(map(_loops, found)) else found


def _loops(item: ast.AST) -> bool:
    return any(isinstance(node, LOOPS) for node in ast.walk(item))


def _read_outside(body: Sequence[ast.AST]) -> frozenset[str]:
    """The names that are read outside of the loops that they belong to."""
    return frozenset(chain.from_iterable(_read(item, frozenset()) for item in body))


def _read(node: ast.AST, own: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from {node.id} - own
    if isinstance(node, ast.For):
        inner = own.union(stored([node.target]))
        yield from _read(node.iter, own)
        for item in (*node.body, *node.orelse):
            yield from _read(item, inner)
        return
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        own = own.union(stored(item.target for item in node.generators))
    for child in ast.iter_child_nodes(node):
        yield from _read(child, own)


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a step of a loop may end the loop, or the forward."""
    for item in body:
        if isinstance(item, ast.Break | ast.Return):
            return True
        if isinstance(item, ast.If) and _leaves([*item.body, *item.orelse]):
            return True
        inner = isinstance(item, ast.For | ast.While)
        if inner and any(isinstance(node, ast.Return) for node in ast.walk(item)):
            return True
    return False


def _continues(item: ast.stmt) -> bool:
    """Whether a statement may go on to the next step of the loop that it stands in."""
    if isinstance(item, ast.If):
        return any(map(_continues, (*item.body, *item.orelse)))
    return isinstance(item, ast.Continue)


class _Steps(ast.NodeTransformer):
    """Writes out the loops and comprehensions whose values the text lists."""

    def __init__(self, outside: frozenset[str], taken: frozenset[str]) -> None:
        self.outside, self.taken = outside, taken

    def lines(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for item in body:
            made = self.visit(item)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_For(self, item: ast.For) -> ast.For | list[ast.stmt]:
        values = self._values(item.iter)
        names = frozenset(stored([item.target]))
        written = frozenset(stored(item.body))
        leaves = _leaves(item.body)
        # What is left after the last step is read: `for i in range(3): ...` and then `return x[i]`.
        if not values or item.orelse or leaves or names & (written | self.outside):
            return item
        if written & names_in(values):  # `for a in (y, x): x = x + a`: the new x
            return item
        rounds = [_bound(item.target, value) for value in values]
        found: list[ast.stmt] = []
        for known in rounds:
            if known is None:
                return item
            step = _step(item.body, known)
            if step is None:
                return item
            found += step
        return self.lines(found)

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        elements = self._elements(item)
        if elements is None:
            return item
        return ast.copy_location(ast.List(elements, ast.Load()), item)

    def visit_Call(self, item: ast.Call) -> ast.expr:
        """`sum(f(i) for i in range(3))` as the sum of a list."""
        self.generic_visit(item)
        match item:
            case ast.Call(ast.Name("sum"), [ast.GeneratorExp() as inner], []):
                elements = self._elements(inner)
                if elements is not None:
                    listed = ast.List(elements, ast.Load())
                    item.args = [ast.copy_location(listed, inner)]
        return item

    def _elements(self, item: ast.ListComp | ast.GeneratorExp) -> list[ast.expr] | None:
        if len(item.generators) > 1 or item.generators[0].ifs:
            return None
        generator = item.generators[0]
        values = self._values(generator.iter)
        found: list[ast.expr] = []
        for value in values or ():
            known = _bound(generator.target, value)
            if known is None or not known.keys().isdisjoint(stored([item.elt])):
                return None
            inner = self.visit(_Known(known).visit(copy.deepcopy(item.elt)))
            assert isinstance(inner, ast.expr)
            found.append(inner)
        return found or None

    def _values(self, item: ast.expr) -> list[ast.expr] | None:
        """What an iterable yields, if the text lists it and it is at most `ROUNDS` values."""
        found = self._listed(item)
        return found if found is not None and len(found) <= ROUNDS else None

    def _listed(self, item: ast.expr) -> list[ast.expr] | None:
        match item:
            case ast.Tuple(elts) | ast.List(elts) if all(map(_is_repeatable, elts)):
                return elts
            case ast.Call(ast.Name(name), args, []) if name not in self.taken:
                return self._called(name, args, item)
            case ast.Call(
                ast.Attribute(ast.Name(), name), [ast.List(sizes), *_]
            ) if is_sized(name) and None not in map(_integer, sizes):
                return [_part(item, number) for number in range(len(sizes))]
        return None

    def _called(
        self, name: str, args: list[ast.expr], at: ast.expr
    ) -> list[ast.expr] | None:
        if name == "range":
            ends = [_integer(end) for end in args]
            known = [end for end in ends if end is not None]
            if not 1 <= len(known) <= 3 or len(known) < len(ends) or known[2:] == [0]:
                return None
            return [_constant(number, at) for number in range(*known)[: ROUNDS + 1]]
        parts = [self._listed(arg) for arg in args]
        listed = [part for part in parts if part is not None]
        if not listed or len(listed) < len(parts):
            return None
        if name == "reversed" and len(listed) == 1:
            return listed[0][::-1]
        if name == "enumerate" and len(listed) == 1:
            numbers = [_constant(number, at) for number in range(len(listed[0]))]
            listed = [numbers, listed[0]]
        elif name != "zip":
            return None
        return [ast.Tuple(list(each), ast.Load()) for each in zip(*listed)]


def _part(several: ast.expr, number: int) -> ast.expr:
    """`x.split([2, 2], -1)[1]`."""
    place = _constant(number, several)
    found = ast.Subscript(copy.deepcopy(several), place, ast.Load())
    return ast.copy_location(found, several)


def _is_repeatable(item: ast.expr) -> bool:
    """Whether a value may stand in several places: a constant, a name, or a tuple of them."""
    if isinstance(item, ast.Tuple):
        return all(map(_is_repeatable, item.elts))
    if isinstance(item, ast.UnaryOp):
        return isinstance(item.operand, ast.Constant)
    return isinstance(item, ast.Constant | ast.Name)


def _bound(target: ast.expr, value: ast.expr) -> dict[str, ast.expr] | None:
    """What the names of a target are for one value."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    match target, value:
        case ast.Tuple(names), ast.Tuple(parts) if len(names) == len(parts):
            found: dict[str, ast.expr] = {}
            for name, part in zip(names, parts, strict=True):
                inner = _bound(name, part)
                if inner is None:
                    return None
                found |= inner
            return found
    return None


def _step(
    body: Sequence[ast.stmt], known: Mapping[str, ast.expr]
) -> list[ast.stmt] | None:
    """The statements of one step, up to a `continue`; None where the data decide whether one is met."""
    found: list[ast.stmt] = []
    for line in body:
        for made in _given(copy.deepcopy(line), known):
            if isinstance(made, ast.Continue):
                return found
            if _continues(made):
                return None
            found.append(made)
    return found


def _given(line: ast.stmt, known: Mapping[str, ast.expr]) -> list[ast.stmt]:
    made = _Known(known).visit(line)
    return made if isinstance(made, list) else [made]


class _Known(ast.NodeTransformer):
    """Puts the values of one step in place of the loop's names, and folds what integers decide: `i + 1`, `if i == 0`."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self.known = known

    def visit_Name(self, item: ast.Name) -> ast.expr:
        if isinstance(item.ctx, ast.Store) or item.id not in self.known:
            return item
        value = self.known[item.id]
        number = _integer(value)
        return copy.deepcopy(value) if number is None else _constant(number, item)

    def visit_BinOp(self, item: ast.BinOp) -> ast.expr:
        self.generic_visit(item)
        left, right = _integer(item.left), _integer(item.right)
        made = _is_made(item.left) or _is_made(item.right)
        if left is None or right is None or not made:
            return item
        value = computed(BINARY[type(item.op)], left, right)
        return _constant(value, item) if isinstance(value, int) else item

    def visit_If(self, item: ast.If) -> ast.If | list[ast.stmt]:
        self.generic_visit(item)
        settled = _settled(item.test)
        if settled is None:
            return item
        return item.body if settled else item.orelse

    def visit_IfExp(self, item: ast.IfExp) -> ast.expr:
        self.generic_visit(item)
        settled = _settled(item.test)
        if settled is None:
            return item
        return item.body if settled else item.orelse


def _settled(test: ast.expr) -> bool | None:
    """What a comparison of two integers says."""
    match test:
        case ast.Compare(left, [order], [right]):
            first, second = _integer(left), _integer(right)
            if first is not None and second is not None:
                return compared(COMPARE[type(order)], first, second)
    return None


def _integer(item: ast.expr) -> int | None:
    match item:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
    return None


def _constant(number: int, at: ast.expr) -> ast.expr:
    """A number that unrolling made, marked by an end on another line (`_is_made`): the user's own `2 + 3` stays."""
    value = _placed(ast.Constant(abs(number)), at)
    return value if number >= 0 else _placed(ast.UnaryOp(ast.USub(), value), at)


def _placed(item: ast.expr, at: ast.expr) -> ast.expr:
    ast.copy_location(item, at)
    item.end_lineno = at.lineno + 1
    return item


def _is_made(item: ast.expr) -> bool:
    return item.lineno != item.end_lineno
