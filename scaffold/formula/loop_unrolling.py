"""Loop unrolling: short loops and comprehensions over literals, `for w in (a, b)`, `sum(f(i) for i in range(3))`.

`parse` calls it before the choice between a derived gradient and autograd.

Words: a *step* is one round of a loop; a loop is *unrolled* if the statements of its steps stand in a row, with the value of
each step in place of the loop variable; an iterable is *listed* if the text itself shows its elements, or their number; the
*known* names of a step are the loop variables with their values; a name is *taken* if it may hide a builtin function.

In: the statements of a formula. Out: the same without loops, or unchanged if one cannot be unrolled. Invariant: a loop
is unrolled only if the text lists the few values it iterates over.

A few steps in a row are as readable as a loop, and their gradient is derived. Five copies of a body would not pass a
review: a loop with more steps is left to autograd.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from scaffold.formula.constant_folding import (
    BINARY,
    BranchTaker,
    computed,
    folded,
    truth_of,
)
from scaffold.formula.names import names_in, stored, stores
from scaffold.formula.substitution import named, placed

ROUNDS = 4  # of one loop
LINES = 24  # nested statements, and those added by unrolling, in a forward
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)
Comprehension = ast.ListComp | ast.GeneratorExp
Number = Callable[[ast.expr], int | None]  # the int an expression is known to be
Lists = Mapping[str, list[ast.expr]]  # elements of locals bound to literal lists


def unrolled(body: list[ast.stmt], taken: Collection[str]) -> list[ast.stmt]:
    """Return the statements without loops: the body of `for i in range(2)` twice, with 0 and 1 for `i`.

    They stay unchanged if a loop is left, or if the result has more than LINES statements beyond the outermost ones of the body.
    `taken` names hide builtin functions: with an input `range`, `range(2)` may be anything.
    """
    if not any(map(_loops, body)):
        return body
    outside = frozenset(name for item in body for name in _read(item, frozenset()))
    unroller = _Unroller(outside, frozenset(taken), _lists(body, taken))
    found = folded(unroller.lines(copy.deepcopy(body)))
    lines = (node for item in found for node in ast.walk(item))
    count = sum(isinstance(node, ast.stmt) for node in lines)
    too_long = count > LINES + len(body)
    return body if too_long or any(map(_loops, found)) else found


def elements_of(item: Comprehension, taken: Collection[str]) -> list[ast.expr] | None:
    """Return the elements of a comprehension, written out; None if it is not over literals.

    `inline` asks, since a call in a comprehension cannot be inlined. `taken` names hide builtin functions.
    """
    return _Unroller(frozenset(), frozenset(taken), {}).elements(item)


def _loops(item: ast.AST) -> bool:
    """Return whether a loop or a comprehension is anywhere in some syntax."""
    return any(isinstance(node, LOOPS) for node in ast.walk(item))


def _lists(body: Sequence[ast.stmt], taken: Collection[str]) -> Lists:
    """Return the elements of locals bound to literal lists, `ws = (a, b)`, if neither they nor the elements may change.

    So `for w in ws` can be unrolled. A name among `taken` ones has a binding already; any attribute of a list, `ws.append`, counts
    as a change.
    """
    nodes = [node for item in body for node in ast.walk(item)]
    counts = Counter([*(node.id for node in stores(body)), *taken])
    changed = {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.value, ast.Name)
        and (isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load))
    }
    found = {}
    for item in body:
        match item:
            case ast.Assign([ast.Name(name)], ast.Tuple(elts) | ast.List(elts)):
                # `ws = (a, b)` is (a, b) at the loop only if a and b are not assigned in between.
                fixed = all(counts[other] <= 1 for other in {name, *names_in(elts)})
                if fixed and name not in changed and all(map(_is_repeatable, elts)):
                    found[name] = elts
    return found


def _read(node: ast.AST, variables: frozenset[str]) -> Iterator[str]:
    """Yield the names a node reads, except the `variables` of loops around it.

    So a loop variable is among them only if it is read outside of its loop: it then needs its last value there.
    """
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield from {node.id} - variables
    if isinstance(node, ast.For):
        inner = variables.union(stored([node.target]))
        yield from _read(node.iter, variables)
        for item in (*node.body, *node.orelse):
            yield from _read(item, inner)
        return
    if isinstance(node, Comprehension):
        targets = [item.target for item in node.generators]
        variables = variables.union(stored(targets))
    for child in ast.iter_child_nodes(node):
        yield from _read(child, variables)


def _assigned(known: Mapping[str, ast.expr], at: ast.stmt) -> list[ast.stmt]:
    """Return assignments of copied values to names, at the place of a statement."""
    lines = (named(name, copy.deepcopy(value)) for name, value in known.items())
    return [ast.fix_missing_locations(ast.copy_location(line, at)) for line in lines]


def _may_continue(item: ast.stmt) -> bool:
    """Return whether a statement holds a `continue` of its own loop, not of one inside it, and so may end the step."""
    if isinstance(item, ast.If):
        return any(map(_may_continue, (*item.body, *item.orelse)))
    return isinstance(item, ast.Continue)


class _Unroller(ast.NodeTransformer):
    """An unroller of loops and comprehensions over literals; a loop it cannot unroll stays in place."""

    def __init__(
        self, outside: frozenset[str], taken: frozenset[str], lists: Lists
    ) -> None:
        """Prepare to unroll: names in `outside` are read after their loop, `taken` ones hide builtin functions.

        `lists` are the elements of locals that are lists.
        """
        self.outside, self.taken, self.lists = outside, taken, lists

    def lines(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements with the loops and comprehensions in them unrolled."""
        found: list[ast.stmt] = []
        for item in body:
            made = self.visit(item)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_For(self, item: ast.For) -> ast.For | list[ast.stmt]:
        """Return the steps of a loop as statements in a row.

        The loop itself is returned if its values are not listed in the text, or if it may end early. `changing` are the loop
        variables that a step changes, `fixed` the values of the others in the last step.
        """
        values = self._values(item.iter)
        names = frozenset(stored([item.target]))
        written = frozenset(stored(item.body))
        inner = (node for line in item.body for node in ast.walk(line))
        # One of an inner loop counts too: it also stops that loop from being unrolled.
        may_end = any(isinstance(node, ast.Break | ast.Return) for node in inner)
        # The lines of an `else` run once, after the last step: they belong to no step.
        if not values or item.orelse or may_end:
            return item
        # In `for a in (y, x): x = x + a` the second `a` is the old x.
        if written & names_in(values):
            return item
        # A loop variable changed in a step, `k = k.relu()`, is assigned; so is one read
        # after the loop.
        changing = names & written
        found: list[ast.stmt] = []
        fixed: dict[str, ast.expr] = {}
        for value in values:
            known = _bound(item.target, value)
            if known is None:
                return item
            fixed = {name: part for name, part in known.items() if name not in changing}
            step = _step(item.body, fixed, self._number)
            if step is None:
                return item
            assigned = {name: part for name, part in known.items() if name in changing}
            found += [*_assigned(assigned, item), *step]
        read_later = {name: fixed[name] for name in fixed if name in self.outside}
        return self.lines([*found, *_assigned(read_later, item)])

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        """Write out `[f(x) for x in (y, z)]` as `[f(y), f(z)]`."""
        return self._listed(item, ast.List)

    def visit_Assign(self, item: ast.Assign) -> ast.Assign:
        """Write out `a, b = (f(x) for x in (y, z))` as `a, b = (f(y), f(z))`."""
        self.generic_visit(item)
        # `g = (f(x) for x in (y, z))` stays a generator, which is no tuple.
        if isinstance(item.targets[0], ast.Tuple | ast.List):
            item.value = self._listed(item.value, ast.Tuple)
        return item

    def visit_Starred(self, item: ast.Starred) -> ast.expr:
        """Write out `*(f(x) for x in (y, z))` as `*[f(y), f(z)]`."""
        self.generic_visit(item)
        item.value = self._listed(item.value, ast.List)
        return item

    def visit_Call(self, item: ast.Call) -> ast.expr:
        """Write out `sum(f(i) for i in range(3))` as the sum of a list; the same for `tuple` and `list`."""
        self.generic_visit(item)
        match item:
            # Whatever `sum` may be here, a list gives it the same elements.
            case ast.Call(ast.Name("sum"), [inner], []):
                item.args = [self._listed(inner, ast.List)]
            case ast.Call(
                ast.Name("tuple" | "list" as name), [ast.GeneratorExp() as inner], []
            ) if (name not in self.taken):
                made = self._listed(inner, ast.Tuple if name == "tuple" else ast.List)
                return item if made is inner else made
        return item

    def _listed(
        self, item: ast.expr, made: type[ast.Tuple] | type[ast.List]
    ) -> ast.expr:
        """Return a comprehension over a literal as a list or tuple (`made`) of its elements, anything else unchanged."""
        if isinstance(item, Comprehension) and (found := self.elements(item)):
            return ast.copy_location(made(found, ast.Load()), item)
        return item

    def elements(self, item: Comprehension) -> list[ast.expr] | None:
        """Return the elements of a comprehension; None if it is not over literals."""
        return self._elements(item.elt, item.generators)

    def _elements(
        self, elt: ast.expr, generators: list[ast.comprehension]
    ) -> list[ast.expr] | None:
        """Return a comprehension's elements, written out; None if their number is unknown, or zero.

        `elt` is the expression before the first `for`. Of several `for` (`generators`), the first one is substituted, and the rest
        are unrolled by recursion. None too for an `if`, and if the same name is bound again inside.
        """
        if not generators:
            found = self.visit(copy.deepcopy(elt))
            assert isinstance(found, ast.expr)
            return [found]
        (first, *others), elements = generators, list[ast.expr]()
        values = None if first.ifs else self._values(first.iter)
        for value in values or ():
            known = _bound(first.target, value)
            inner = [item.target for item in others]
            # The variable is bound again inside: it has another value there.
            if known is None or not known.keys().isdisjoint(stored([elt, *inner])):
                return None
            step = _Known(known, self._number)
            rest = [step.visit(copy.deepcopy(item)) for item in others]
            made = self._elements(step.visit(copy.deepcopy(elt)), rest)
            if made is None:
                return None
            elements += made
        return elements or None

    def _values(self, item: ast.expr) -> list[ast.expr] | None:
        """Return the values of an iterable; None if the text does not list them, or lists more than `ROUNDS`."""
        match item:
            case ast.Tuple(elts) | ast.List(elts) if all(map(_is_repeatable, elts)):
                values: list[ast.expr] | None = elts
            case ast.Name(name):
                values = self.lists.get(name)
            # `range` of the user's own may give anything.
            case ast.Call(ast.Name(name), args, []) if name not in self.taken:
                values = self._from_builtin(name, args, item)
            case _:
                return None
        return values if values is not None and len(values) <= ROUNDS else None

    def _from_builtin(
        self, name: str, args: list[ast.expr], at: ast.expr
    ) -> list[ast.expr] | None:
        """Return the values of a call of `range`, `reversed`, `enumerate` or `zip` (`name`); None if they are not known.

        `at` is the call, whose place the numbers get.
        """
        if name == "range":
            bounds = [self._number(end) for end in args]
            known = [end for end in bounds if end is not None]
            # A wrong number of bounds, an unknown one, or a step of 0.
            if not 1 <= len(known) <= 3 or len(known) < len(bounds) or known[2:] == [0]:
                return None
            # One more than are unrolled shows that there are too many.
            return [_constant(number, at) for number in range(*known)[: ROUNDS + 1]]
        parts = [self._values(arg) for arg in args]
        listed = [part for part in parts if part is not None]
        if len(listed) < len(parts):
            return None
        # Of another number of arguments, `enumerate(xs, 1)`, nothing is known here.
        if name == "reversed" and len(listed) == 1:
            return listed[0][::-1]
        if name == "enumerate" and len(listed) == 1:
            numbers = [_constant(number, at) for number in range(len(listed[0]))]
            listed = [numbers, listed[0]]
        elif name != "zip":
            return None
        # Not strict: Python's own `zip` ends with the shortest one, too.
        return [ast.Tuple(list(each), ast.Load()) for each in zip(*listed)]

    def _number(self, item: ast.expr) -> int | None:
        """Return the value of an integer literal, of the length of a literal list, or of arithmetic of these; else None."""
        match item:
            case ast.Call(ast.Name("len"), [ast.Name(name)], []) if name in self.lists:
                return None if "len" in self.taken else len(self.lists[name])
            case ast.BinOp(left, operation, right):
                one, two = self._number(left), self._number(right)
                if one is None or two is None:
                    return None
                value = computed(BINARY[type(operation)], one, two)
                return value if isinstance(value, int) else None
        return _integer(item)


def _is_repeatable(item: ast.expr) -> bool:
    """Return whether a value may be duplicated: a constant, `-1`, a name, `torch.sin`, or a tuple of them.

    A loop variable may be read several times, and any other expression would be computed at each of them.
    """
    if isinstance(item, ast.Tuple):
        return all(map(_is_repeatable, item.elts))
    if isinstance(item, ast.UnaryOp):
        return isinstance(item.operand, ast.Constant)
    while isinstance(item, ast.Attribute):
        item = item.value
    return isinstance(item, ast.Constant | ast.Name)


def _bound(target: ast.expr, value: ast.expr) -> dict[str, ast.expr] | None:
    """Return the values of the names of a loop target, {"a": x, "b": y} for `a, b` and `(x, y)`; None if they do not match."""
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
    body: Sequence[ast.stmt],
    known: Mapping[str, ast.expr],
    number: Number,
) -> list[ast.stmt] | None:
    """Return the statements of one step of a loop up to a `continue`; None if it depends on data whether one is reached.

    `known` are the values of the loop variables in this step; `number` gives the int that an expression is, if known. A line may
    become several, or none, when a test in it is decided by these values.
    """
    found: list[ast.stmt] = []
    for line in body:
        made = _Known(known, number).visit(copy.deepcopy(line))
        for item in made if isinstance(made, list) else [made]:
            if isinstance(item, ast.Continue):
                return found
            if _may_continue(item):
                return None
            found.append(item)
    return found


class _Known(BranchTaker):
    """A substitution of loop variables by the values of one step (`known`).

    It folds expressions and tests of integers: `i + 1` -> `3`, `if i == 0` -> one branch. `number` is that of `_step`.
    """

    def __init__(self, known: Mapping[str, ast.expr], number: Number) -> None:
        self.known, self.number = known, number

    def visit_Name(self, item: ast.Name) -> ast.expr:
        """Replace a loop variable by its value."""
        if isinstance(item.ctx, ast.Store) or item.id not in self.known:
            return item
        value = self.known[item.id]
        number = _integer(value)
        # An int gets the mark of unrolling, so that `i + 1` is computed.
        return copy.deepcopy(value) if number is None else _constant(number, item)

    def visit_BinOp(self, item: ast.BinOp) -> ast.expr:
        """Compute an operation on integers if one of them comes from the unrolling: `i + 1`; the user's own `2 * 3` stays."""
        self.generic_visit(item)
        left, right = _integer(item.left), _integer(item.right)
        made = _is_unrolled(item.left) or _is_unrolled(item.right)
        if left is None or right is None or not made:
            return item
        value = computed(BINARY[type(item.op)], left, right)
        return _constant(value, item) if isinstance(value, int) else item

    def visit_Compare(self, item: ast.Compare) -> ast.expr:
        """Return True or False for a test settled by numbers: `i < len(ws) - 1`; any other test stays."""
        self.generic_visit(item)
        match item:
            case ast.Compare(left, [order], [right]):
                numbers = [(side, self.number(side)) for side in (left, right)]
                one, two = (
                    side if number is None else _constant(number, side)
                    for side, number in numbers
                )
                settled = truth_of(ast.Compare(one, [order], [two]))
                if settled is not None:
                    return placed(ast.Constant(settled), item)
        return item


def _integer(item: ast.expr) -> int | None:
    """Return the value of an integer literal, also a negative one; None for any other expression."""
    match item:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
    return None


def _constant(number: int, at: ast.expr) -> ast.expr:
    """Return the literal of a number made by unrolling.

    It ends on another line, a mark for `_is_unrolled`: the user's own `2 + 3` is not folded.
    """
    value: ast.expr = ast.Constant(abs(number))
    return placed(value if number >= 0 else ast.UnaryOp(ast.USub(), value), at)


def _is_unrolled(item: ast.expr) -> bool:
    """Return whether a number, also a negative one, has the mark of unrolling (`_constant`)."""
    number = item.operand if isinstance(item, ast.UnaryOp) else item
    return number.lineno != number.end_lineno
