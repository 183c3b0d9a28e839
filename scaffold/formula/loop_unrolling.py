"""Short loops over constants -> straight-line statements.

In: the statements of a formula. Out: the same ones with such loops, comprehensions and calls of `map` written out, if that leaves no
loop at all; or the elements of one of them. Invariant: a loop that is not written out stays as the user wrote it, with all that is around it.

A few steps read as well in a row as in a loop, and the gradient of the row is derived. More of them are what loops are
for: nobody would merge five copies of a body, so those are left to autograd.
"""

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from scaffold.formula.constant_folding import (
    BINARY,
    NONE,
    BranchTaker,
    computed,
    truth_of,
    with_nones_settled,
)
from scaffold.formula.definitions import Meanings, full_name
from scaffold.formula.names import take
from scaffold.formula.substitution import named, names_in, stored
from scaffold.primitives.calls import is_sized

ROUNDS = 4  # of one loop
LINES = 24  # that all loops of a forward make
NUMBERS = 64  # that a list of arrangements may have
ARRANGEMENTS: Mapping[str, Callable[..., Iterator[tuple[ast.expr, ...]]]] = {
    "combinations": itertools.combinations,
    "combinations_with_replacement": itertools.combinations_with_replacement,
    "permutations": itertools.permutations,
    "product": itertools.product,
}
Number = Callable[[ast.expr], int | None]  # what an expression is, if it is known
LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp)


def unrolled(body: list[ast.stmt], taken: Collection[str]) -> list[ast.stmt]:
    """The statements without loops, or as they are; `taken` names hide the builtin functions."""
    found = _written_out(body, _Steps, taken)
    return body if any(map(_loops, found)) else found


def with_loops_alone(
    body: list[ast.stmt], taken: Collection[str] = (), alone: bool = True
) -> list[ast.stmt]:
    """The statements with what is short in a loop or beside it written out: `a, b = (f(x) for x in (y, z))`.

    Loops at the top level stay, unless it is not they `alone`: then short ones go too.
    """
    return _written_out(body, _Inside if alone else _Steps, taken)


def with_maps_written_out(
    body: list[ast.stmt], taken: Collection[str] = ()
) -> list[ast.stmt]:
    """The statements without `map`, which no formula has: `map(f, (x, y))` is `[f(x), f(y)]`."""
    return _written_out(body, _Maps, taken)


def _written_out(
    body: list[ast.stmt], steps: "type[_Steps]", taken: Collection[str]
) -> list[ast.stmt]:
    """The statements without what is written out, or as they are where that makes too many."""
    if not any(map(_loops, body)):
        return body
    body = _with_lists_spelled(body, taken)
    lists, numbers = _lists(body, taken), _numbers(body, taken)
    writer = steps(_read_outside(body), frozenset(taken), lists, numbers)
    writer.used = {*names_in(body), *taken}
    found = writer.lines(copy.deepcopy(body))
    if not any(map(_loops, found)):  # in one that stays, a name may be None at first
        found, before = with_nones_settled(found), len(body)
    else:
        before = sum(map(_count, body))
    nodes = [node for item in found for node in ast.walk(item)]
    # `for i in range(2): if i > 3: ...`: a choice that is left without a statement.
    idle = any(isinstance(node, ast.If) and not node.body for node in nodes)
    return body if idle or sum(map(_count, found)) > LINES + before else found


def _with_lists_spelled(body: list[ast.stmt], taken: Collection[str]) -> list[ast.stmt]:
    """`layers = [(w, b), (v, c)]` for `layers = list(zip((w, v), (b, c)))`."""
    writer = _Steps(frozenset(), frozenset(taken), _lists(body, taken), {})
    found = list[ast.stmt]()
    for item in body:
        match item:
            case ast.Assign([ast.Name()], ast.Call(ast.Name("list" | "tuple"), [_])):
                item = writer.visit(copy.deepcopy(item))
        found.append(item)
    return found


def elements_of(item: ast.expr, taken: Collection[str]) -> list[ast.expr] | None:
    """What a comprehension, or a `map`, over values that the text lists gives; None of any other."""
    return _Steps(frozenset(), frozenset(taken), {}, {}).elements(item)


def with_arrangements_listed(
    body: list[ast.stmt], imports: Meanings, taken: Collection[str]
) -> list[ast.stmt]:
    """The statements with what `itertools` makes of constants as a list of it: `permutations(range(2))` is `[(0, 1), (1, 0)]`."""
    if not any(full.startswith("itertools") for full in imports.values()):
        return body
    lister = _Arrangements(imports, _Steps(NONE, NONE, {}, _numbers(body, taken)))
    return [lister.visit(item) for item in body]


class _Arrangements(ast.NodeTransformer):
    def __init__(self, imports: Meanings, steps: "_Steps") -> None:
        self.imports, self.steps = imports, steps
        steps.rounds = NUMBERS

    def visit_Call(self, item: ast.Call) -> ast.expr:
        self.generic_visit(item)
        match item:
            case ast.Call(ast.Name("list"), [ast.List(elts) as listed], []):
                return listed if all(isinstance(x, ast.Tuple) for x in elts) else item
        name = full_name(item.func, self.imports).removeprefix("itertools.")
        arrange = ARRANGEMENTS.get(name)
        several = [self._values(arg) for arg in item.args]
        words = {word.arg or "": _integer(word.value) for word in item.keywords}
        lists = [x for x in several if isinstance(x, list)]
        numbers = several[len(lists) :]
        if arrange is None or not lists or None in (*several, *words.values()):
            return item
        try:
            found = arrange(*lists, *numbers, **words)
            made = list(itertools.islice(found, NUMBERS + 1))
        except TypeError:
            return item
        if sum(map(len, made)) > NUMBERS:
            return item
        tuples = [_listed_as(ast.Tuple, copy.deepcopy([*each]), item) for each in made]
        return _listed_as(ast.List, tuples, item)

    def _values(self, item: ast.expr) -> list[ast.expr] | int | None:
        """The constants of a list, or a number."""
        number = self.steps._number(item)
        found = self.steps._listed(item) if number is None else None
        return found if found and all(map(_is_literal, found)) else number


def _is_literal(item: ast.expr) -> bool:
    match item:
        case ast.UnaryOp(_, ast.Constant()) | ast.Constant():
            return True
    return False


def is_map(item: ast.AST) -> bool:
    """Whether it is a call of `map`."""
    match item:
        case ast.Call(ast.Name("map"), [_, _, *_], []):
            return True
    return False


def _count(item: ast.stmt) -> int:
    """How many statements there are in a statement, itself among them."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(item))


def _loops(item: ast.AST) -> bool:
    return any(isinstance(node, LOOPS) or is_map(node) for node in ast.walk(item))


def _assignments(body: Sequence[ast.stmt], taken: Collection[str]) -> Counter[str]:
    """How often each name is bound, those of inputs once more."""
    nodes = (node for item in body for node in ast.walk(item))
    names = (node for node in nodes if isinstance(node, ast.Name))
    bound = (node.id for node in names if isinstance(node.ctx, ast.Store))
    return Counter([*bound, *taken])


def _numbers(body: Sequence[ast.stmt], taken: Collection[str]) -> dict[str, ast.expr]:
    """What names stand for that get a value once: `last = levels - 1`; `x = x * 2` of an argument has another one before."""
    counts = _assignments(body, taken)
    found = {
        item.targets[0].id: item.value
        for item in body
        if isinstance(item, ast.Assign)
        and isinstance(item.targets[0], ast.Name)
        and counts[item.targets[0].id] == 1
    }
    later = {*found}
    for name in [*found]:
        if later & names_in([found[name]]):
            del found[name]
        later.remove(name)
    return found


def _lists(
    body: Sequence[ast.stmt], taken: Collection[str]
) -> dict[str, list[ast.expr]]:
    """What lists consist of that are written out, `xs = (x, y)`, and that stay as they are; so do the names in them.

    The parts of others, `xs = [x + 1, y]`, are `xs[0]` and `xs[1]`.
    """
    nodes = [node for item in body for node in ast.walk(item)]
    counts = _assignments(body, taken)
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
            case ast.Assign([ast.Name(name)], ast.Dict(keys, values)):
                written = [key for key in keys if isinstance(key, ast.Constant)]
                whole = len(written) == len({key.value for key in written})
                whole = whole and len(written) == len(values)
                if whole and counts[name] == 1 and not _is_stored(name, nodes):
                    found[name] = list[ast.expr](written)
            case ast.Assign([ast.Name(name)], ast.Tuple(elts) | ast.List(elts)):
                if counts[name] > 1 or name in changed:
                    continue
                fixed = all(counts[other] <= 1 for other in names_in(elts))
                whole = not any(isinstance(part, ast.Starred) for part in elts)
                if fixed and all(map(_is_repeatable, elts)):
                    found[name] = elts
                elif whole:
                    known = ast.copy_location(ast.Name(name, ast.Load()), item)
                    found[name] = [_part(known, at) for at in range(len(elts))]
    return found


def _is_stored(name: str, nodes: Iterable[ast.AST]) -> bool:
    """Whether a dict may get or lose an entry: it is read by key, gone through, or measured alone."""
    uses = sum(isinstance(node, ast.Name) and node.id == name for node in nodes)
    for node in nodes:
        match node:
            case ast.Subscript(ast.Name(found), ctx=ast.Load()) if found == name:
                uses -= 1
            case ast.Call(
                ast.Attribute(ast.Name(found), "keys" | "values" | "items"), [], []
            ) if (found == name):
                uses -= 1
            case (
                ast.For(iter=ast.Name(found))
                | ast.comprehension(iter=ast.Name(found))
                | ast.Call(ast.Name("len" | "enumerate"), [ast.Name(found)], [])
            ) if (found == name):
                uses -= 1
    return uses != 1


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


def _assigned(known: Mapping[str, ast.expr], at: ast.stmt) -> list[ast.stmt]:
    """`k = x`, of what names stand for."""
    lines = (named(name, copy.deepcopy(value)) for name, value in known.items())
    return [ast.fix_missing_locations(ast.copy_location(line, at)) for line in lines]


def _continues(item: ast.stmt) -> bool:
    """Whether a statement may go on to the next step of the loop that it stands in."""
    if isinstance(item, ast.If):
        return any(map(_continues, (*item.body, *item.orelse)))
    return isinstance(item, ast.Continue)


class _Steps(ast.NodeTransformer):
    """Writes out the loops and comprehensions whose values the text lists."""

    def __init__(
        self,
        outside: frozenset[str],
        taken: frozenset[str],
        lists: Mapping[str, list[ast.expr]],
        numbers: Mapping[str, ast.expr],
    ) -> None:
        self.outside, self.taken = outside, taken
        self.lists, self.numbers = lists, numbers
        self.rounds = ROUNDS  # of one loop
        self.used: set[str] = set()  # names that no value may get

    def lines(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for item in body:
            made = self.visit(item)
            found += made if isinstance(made, list) else [made]
        return found

    def visit_For(self, item: ast.For) -> ast.For | list[ast.stmt]:
        above, iterable = self._with_names(item.iter, item.target)
        values = self._values(iterable)
        names = frozenset(stored([item.target]))
        written = frozenset(stored(item.body))
        leaves = _leaves(item.body)
        if not values or item.orelse or leaves:
            return item
        if written & names_in(values):  # `for a in (y, x): x = x + a`: the new x
            return item
        # What a step gives another value, `k = k.relu()`, is assigned; so is what is read after the last one, `return x[i]`.
        own = names & written
        found: list[ast.stmt] = []
        last: dict[str, ast.expr] = {}
        for value in values:
            known = _bound(item.target, value)
            if known is None:
                return item
            last = {name: part for name, part in known.items() if name not in own}
            step = _step(item.body, last, self._number)
            if step is None:
                return item
            given = {name: part for name, part in known.items() if name in own}
            found += [*_assigned(given, item), *step]
        left = {name: last[name] for name in last if name in self.outside}
        return [*above, *self.lines([*found, *_assigned(left, item)])]

    def _with_names(
        self, iterable: ast.expr, target: ast.expr
    ) -> tuple[list[ast.stmt], ast.expr]:
        """`zip((n, 2 * n), (x, y))` as `zip((n, size), (x, y))`, and `size = 2 * n` above: what a list has is computed once."""
        match iterable, target:
            case ast.Tuple(items) | ast.List(items), ast.Name(name):
                pass
            case (
                ast.Call(ast.Name("zip"), several, []),
                ast.Tuple(names),
            ) if len(
                several
            ) == len(names):
                above, made = list[ast.stmt](), list[ast.expr]()
                for item, part in zip(several, names, strict=True):
                    lines, inner = self._with_names(item, part)
                    above, made = [*above, *lines], [*made, inner]
                call = ast.Call(iterable.func, made, [])
                return above, ast.copy_location(call, iterable)
            case _:
                return [], iterable
        above, kept = [], list[ast.expr]()
        for at, item in enumerate(items):
            if _is_repeatable(item) or not isinstance(item, ast.BinOp | ast.Call):
                kept.append(item)
                continue
            numbers = range(at, at + len(self.used) + 1)
            own = take(self.used, *(f"{name}_{number}" for number in numbers))
            above.append(named(own, item))
            kept.append(ast.copy_location(ast.Name(own, ast.Load()), item))
        return above, ast.copy_location(type(iterable)(kept, ast.Load()), iterable)

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        elements = self.elements(item)
        return item if elements is None else _listed_as(ast.List, elements, item)

    def visit_Assign(self, item: ast.Assign) -> ast.Assign | list[ast.stmt]:
        """`a, b = (f(x) for x in (y, z))` as `a, b = (f(y), f(z))`, of as many values as there are names."""
        target = item.targets[0]
        names = target.elts if isinstance(target, ast.Tuple | ast.List) else ()
        self.rounds, rounds = max(ROUNDS, len(names)), self.rounds
        above = self._unpacked(item)
        self.generic_visit(item)
        elements = self._yielded(item.value)
        self.rounds = rounds
        if elements is not None and isinstance(target, ast.Tuple):
            item.value = _listed_as(ast.Tuple, elements, item.value)
        return [*above, item] if above else item

    def _unpacked(self, item: ast.Assign) -> list[ast.stmt]:
        """`q_part, k_part = x.chunk(2, -1)`, which `q, k = [f(part) for part in x.chunk(2, -1)]` goes through: of as many as there are names."""
        match item.targets, item.value:
            case [ast.Tuple(names)], (
                ast.ListComp(_, [ast.comprehension(ast.Name(), over, [], 0) as place])
                | ast.GeneratorExp(
                    _, [ast.comprehension(ast.Name(), over, [], 0) as place]
                )
            ):
                pass
            case [ast.Tuple(names)], ast.Call(ast.Name("map"), [_, over], []) as place:
                pass
            case _:
                return []
        plain = len(stored(names)) == len(names)  # and each is a name of its own
        plain &= all(isinstance(name, ast.Name) for name in names)
        if not plain or isinstance(over, ast.Tuple | ast.List) or self._listed(over):
            return []
        stems = [f"{name}_part" for name in stored(names)]
        parts = [take(self.used, stem) for stem in stems]
        targets: list[ast.expr] = [ast.Name(part, ast.Store()) for part in parts]
        made = ast.Assign([ast.Tuple(targets, ast.Store())], over)
        loads: list[ast.expr] = [ast.Name(part, ast.Load()) for part in parts]
        several = ast.copy_location(ast.Tuple(loads, ast.Load()), over)
        if isinstance(place, ast.comprehension):
            place.iter = several
        else:
            place.args[1] = several
        ast.fix_missing_locations(item)
        return [ast.fix_missing_locations(ast.copy_location(made, item))]

    def visit_Starred(self, item: ast.Starred) -> ast.expr:
        self.generic_visit(item)
        item.value = self._listed_if_several(item.value)
        return item

    def visit_Call(self, item: ast.Call) -> ast.expr:
        """`sum(f(i) for i in range(3))` as the sum of a list; so for a tuple or a list of what is yielded."""
        self.generic_visit(item)
        match item:
            case ast.Call(ast.Name("sum"), [inner], []):
                item.args = [self._listed_if_several(inner)]
            case ast.Call(ast.Name("tuple" | "list" as name), [inner], []):
                elements = None if name in self.taken else self._yielded(inner)
                if name not in self.taken and isinstance(inner, ast.Call):
                    elements = elements or self._values(inner)
                if elements is not None:
                    made = ast.Tuple if name == "tuple" else ast.List
                    return _listed_as(made, elements, item)
        return item

    def _listed_if_several(self, item: ast.expr) -> ast.expr:
        elements = self._yielded(item)
        return item if elements is None else _listed_as(ast.List, elements, item)

    def _yielded(self, item: ast.expr) -> list[ast.expr] | None:
        """What a generator or a `map` yields."""
        several = isinstance(item, ast.GeneratorExp) or is_map(item)
        return self.elements(item) if several else None

    def elements(self, item: ast.expr) -> list[ast.expr] | None:
        """The elements of a comprehension or a `map`, if the text lists what it goes through."""
        match item:
            case ast.ListComp(elt, generators) | ast.GeneratorExp(elt, generators):
                return self._elements(elt, generators) or None
            case ast.Call(ast.Name("map"), [function, *several], []):
                return self._mapped(function, several, item)
        return None

    def _elements(
        self, elt: ast.expr, generators: list[ast.comprehension]
    ) -> list[ast.expr] | None:
        """The elements of a comprehension, written out; None where what it goes over is not listed."""
        if not generators:
            found = self.visit(copy.deepcopy(elt))
            assert isinstance(found, ast.expr)
            return [found]
        (first, *others), several = generators, list[ast.expr]()
        values = None if first.ifs else self._values(first.iter)
        for value in values or ():
            known = _bound(first.target, value)
            inner = [item.target for item in others]
            if known is None or not known.keys().isdisjoint(stored([elt, *inner])):
                return None
            step = _Known(known)
            rest = [step.visit(copy.deepcopy(item)) for item in others]
            made = self._elements(step.visit(copy.deepcopy(elt)), rest)
            if made is None:
                return None
            several += made
        return several or None

    def _mapped(
        self, function: ast.expr, several: list[ast.expr], at: ast.expr
    ) -> list[ast.expr] | None:
        """The values of a function, one for each of those that the lists have."""
        if "map" in self.taken:
            return None
        if len(several) == 1:
            lines = [[value] for value in self._values(several[0]) or ()]
        else:
            pairs = self._called("zip", several, at) or ()
            lines = [list(pair.elts) for pair in pairs if isinstance(pair, ast.Tuple)]
        found = [_applied(function, args, at) for args in lines[: self.rounds + 1]]
        if len(found) > self.rounds:
            return None
        return [item for item in found if item is not None] or None

    def _values(self, item: ast.expr) -> list[ast.expr] | None:
        """What an iterable yields, if the text lists it and it is few enough values."""
        found = self._listed(item)
        return found if found is not None and len(found) <= self.rounds else None

    def _listed(self, item: ast.expr) -> list[ast.expr] | None:
        """The values of a list, a dict or what counts that the text lists: `xs.items()`, `range(3)`, `x.split([2, 1])`, `x.shape[-2:]`."""
        match item:
            case ast.Tuple(elts) | ast.List(elts) if all(map(_is_repeatable, elts)):
                return elts
            case ast.Name(name) if name in self.lists:
                return self.lists[name]
            case ast.Call(ast.Name(name), args, []) if name not in self.taken:
                return self._called(name, args, item)
            case ast.Call(
                ast.Attribute(ast.Name(name), "keys" | "values" | "items" as method),
                [],
                [],
            ) if (
                name in self.lists
            ):
                known = ast.copy_location(ast.Name(name, ast.Load()), item)
                return [
                    {
                        "keys": key,
                        "values": _entry(known, key),
                        "items": ast.Tuple([key, _entry(known, key)], ast.Load()),
                    }[method]
                    for key in self.lists[name]
                ]
            case ast.Call(ast.Attribute(ast.Name("itertools"), name), args, []) if (
                name in ARRANGEMENTS and "itertools" not in self.taken
            ):
                return self._of_itertools(name, args)
            case ast.Call(
                ast.Attribute(ast.Name(), name), [ast.List(sizes), *_]
            ) if is_sized(name) and None not in map(_integer, sizes):
                return [_part(item, number) for number in range(len(sizes))]
            case ast.Subscript(
                ast.Attribute(ast.Name(), "shape") as sizes,
                ast.Slice(first, None, None),
            ):
                number = 0 if first is None else _integer(first) or 0
                return [_part(sizes, at) for at in range(number, 0)] or None
        return None

    def _number(self, item: ast.expr) -> int | None:
        """A bound of a range: a number, the length of a list, a name that stands for one, or what is computed of those."""
        match item:
            case ast.Call(ast.Name("len"), [ast.Name(name)], []) if name in self.lists:
                return None if "len" in self.taken else len(self.lists[name])
            case ast.Name(name) if name in self.numbers:
                return self._number(self.numbers[name])
            case ast.BinOp(left, operation, right):
                one, two = self._number(left), self._number(right)
                if one is None or two is None:
                    return None
                value = computed(BINARY[type(operation)], one, two)
                return value if isinstance(value, int) else None
        return _integer(item)

    def _called(
        self, name: str, args: list[ast.expr], at: ast.expr
    ) -> list[ast.expr] | None:
        """The values of `range`, `reversed`, `enumerate` and `zip` of what is listed."""
        if name == "range":
            ends = [self._number(end) for end in args]
            known = [end for end in ends if end is not None]
            if not 1 <= len(known) <= 3 or len(known) < len(ends) or known[2:] == [0]:
                return None
            return [
                _constant(number, at) for number in range(*known)[: self.rounds + 1]
            ]
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

    def _of_itertools(self, name: str, args: list[ast.expr]) -> list[ast.expr] | None:
        """`permutations(range(2))`, `product((0, 1), (0, 1))`, `combinations(xs, 2)`."""
        *several, last = args or [ast.Constant(0)]
        size = self._number(last) if name != "product" and several else None
        parts = [self._listed(arg) for arg in (several if size is not None else args)]
        listed = [part for part in parts if part is not None]
        if not listed or len(listed) < len(parts):
            return None
        ends = () if size is None else (size,)
        try:
            made = ARRANGEMENTS[name](*listed, *ends)
        except TypeError:
            return None
        few = itertools.islice(made, self.rounds + 1)
        return [ast.Tuple(list(each), ast.Load()) for each in few]


class _Inside(_Steps):
    """The same for all but loops at the top level, which stay."""

    def lines(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for item in body:
            if isinstance(item, ast.For):
                item.body = super().lines(item.body)
                found.append(item)
            else:
                found += super().lines([item])
        return found


class _Maps(_Steps):
    """The same for calls of `map` alone."""

    def visit_For(self, item: ast.For) -> ast.For | list[ast.stmt]:
        item.iter = self.visit(item.iter)
        item.body = self.lines(item.body)
        return item

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        return item

    def _yielded(self, item: ast.expr) -> list[ast.expr] | None:
        return self.elements(item) if is_map(item) else None


def _listed_as(
    made: type[ast.Tuple] | type[ast.List], elements: list[ast.expr], at: ast.expr
) -> ast.expr:
    return ast.copy_location(made(elements, ast.Load()), at)


def _applied(function: ast.expr, args: list[ast.expr], at: ast.expr) -> ast.expr | None:
    """`f(x)`; of a lambda that takes so many arguments and nothing else, what it returns."""
    if not isinstance(function, ast.Lambda):
        call = ast.Call(copy.deepcopy(function), copy.deepcopy(args), [])
        return ast.fix_missing_locations(ast.copy_location(call, at))
    own = function.args
    plain = not (own.posonlyargs or own.vararg or own.kwonlyargs or own.kwarg)
    names = [item.arg for item in own.args]
    if not plain or len(names) != len(args) or {*stored([function.body])} & {*names}:
        return None
    known = dict(zip(names, args, strict=True))
    found = _Known(known).visit(copy.deepcopy(function.body))
    assert isinstance(found, ast.expr)
    return found


def _entry(several: ast.expr, key: ast.expr) -> ast.expr:
    """`feats["x"]`."""
    found = ast.Subscript(copy.deepcopy(several), copy.deepcopy(key), ast.Load())
    return ast.copy_location(found, several)


def _part(several: ast.expr, number: int) -> ast.expr:
    """`x.split([2, 2], -1)[1]`."""
    place = _constant(number, several)
    found = ast.Subscript(copy.deepcopy(several), place, ast.Load())
    return ast.copy_location(found, several)


def _is_repeatable(item: ast.expr) -> bool:
    """Whether a value may stand in several places: a constant, a name, also of a module's, `torch.sin`, or a tuple of them."""
    if isinstance(item, ast.Tuple):
        return all(map(_is_repeatable, item.elts))
    if isinstance(item, ast.UnaryOp):
        return isinstance(item.operand, ast.Constant)
    while isinstance(item, ast.Attribute):
        item = item.value
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
    body: Sequence[ast.stmt], known: Mapping[str, ast.expr], number: Number
) -> list[ast.stmt] | None:
    """The statements of one step, up to a `continue`; None where the data decide whether one is met."""
    found: list[ast.stmt] = []
    for line in body:
        for made in _given(copy.deepcopy(line), known, number):
            if isinstance(made, ast.Continue):
                return found
            if _continues(made):
                return None
            found.append(made)
    return found


def _given(
    line: ast.stmt, known: Mapping[str, ast.expr], number: Number
) -> list[ast.stmt]:
    made = _Known(known, number).visit(line)
    return made if isinstance(made, list) else [made]


class _Known(BranchTaker):
    """Puts the values of one step in place of the loop's names, and folds what integers decide: `i + 1`, `if i == 0`."""

    def __init__(
        self, known: Mapping[str, ast.expr], number: Number = lambda item: None
    ) -> None:
        self.known, self.number = known, number

    def visit_Name(self, item: ast.Name) -> ast.expr:
        if isinstance(item.ctx, ast.Store) or item.id not in self.known:
            return item
        value = self.known[item.id]
        number = _integer(value)
        return copy.deepcopy(value) if number is None else _constant(number, item)

    def visit_BinOp(self, item: ast.BinOp) -> ast.expr:
        self.generic_visit(item)
        match item:
            case ast.BinOp(ast.Constant(str(one)), ast.Add(), ast.Constant(str(two))):
                return _placed(ast.Constant(one + two), item)
        left, right = _integer(item.left), _integer(item.right)
        made = _is_made(item.left) or _is_made(item.right)
        if left is None or right is None or not made:
            return item
        value = computed(BINARY[type(item.op)], left, right)
        return _constant(value, item) if isinstance(value, int) else item

    def visit_Call(self, item: ast.Call) -> ast.expr:
        """`x[:, list(p)]` with `(0, 1)` for p as `x[:, [0, 1]]`."""
        self.generic_visit(item)
        match item:
            case ast.Call(ast.Name("list"), [ast.Tuple(items)], []) if all(
                _integer(one) is not None for one in items
            ):
                return _listed_as(ast.List, items, item)
        return item

    def visit_Compare(self, item: ast.Compare) -> ast.expr:
        """`i < levels - 1` with numbers for names: only tests that these settle are folded."""
        self.generic_visit(item)
        match item:
            case ast.Compare(left, [order], [right]):
                sides = [self.number(side) for side in (left, right)]
                one, two = (
                    side if found is None else _constant(found, side)
                    for found, side in zip(sides, (left, right), strict=True)
                )
                settled = truth_of(ast.Compare(one, [order], [two]))
                if settled is not None:
                    return _placed(ast.Constant(settled), item)
        return item


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
