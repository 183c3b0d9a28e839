"""Chained and tuple assignments and early returns -> plain statements: one target for each, one return at the end.

In: the statements of a formula. Out: the same without those that do nothing, each assigning one target, which is a part of a tensor
or has none in it; and with `result = ...` in each branch that returns. Invariant: the statements that are given stay as they
are, and none is repeated: where one return would need that, they come back unchanged.
"""

import ast
import builtins
import copy
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from scaffold.formula.constant_folding import without_empty
from scaffold.formula.names import take
from scaffold.formula.substitution import (
    changes,
    is_pure,
    names_in,
    stored,
    substituted,
)
from scaffold.primitives.calls import (
    changes_in_place,
    constant_tensors,
    draws_random,
    facts_of_attribute,
    is_in_place,
    is_one_tensor,
    may_be_argument,
    may_be_several_tensors,
    may_compute_lower,
    may_share_memory,
)

NAME = "result"  # what the branches assign
DETACHED = "value.detach()"
SETS = ("copy_", "fill_", "zero_")  # what a part is after these, they are given
UNKNOWN = 'raise ValueError(f"unknown {0}: {{{0}}}")'


def plain(
    body: Sequence[ast.stmt], taken: Collection[str] = frozenset()
) -> list[ast.stmt]:
    """The statements without `pass` and bare annotations; `a = b = x` is two of them.

    So is `v[0], a = x, y`, of which the parts get names that are not `taken`: what is computed is computed before `v` changes.
    """
    return _Plain({*taken, *names_in(body)}).block(body)


class _Plain:
    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for item in body:
            match item:
                case ast.Pass() | ast.AnnAssign(value=None):
                    pass
                case ast.Delete(names) if all(isinstance(x, ast.Name) for x in names):
                    pass  # what is not saved is freed
                case ast.Assign(_, value) if choice := choice_of_mode(item, value):
                    found += self.block([choice])
                case ast.Assign(
                    [ast.Tuple(targets)], ast.Tuple(values)
                ) if star := _sizes_among(targets, values):
                    found += self.block(_apart(item, targets, values, star))
                case ast.Assign([target], value):
                    found += self._parted(item, target, value)
                case ast.Assign([ast.Name(name) as first, *others], value):
                    found.append(_assigned(item, first, value))
                    found += self._each(item, others, name)
                case ast.Assign(targets, value):  # `v[0] = a = x`
                    name = take(self.taken, "value")
                    found.append(_assigned(item, _stored(item, name), value))
                    found += self._each(item, targets, name)
                case ast.If(test, inner, other):
                    choice = ast.If(test, self.block(inner), self.block(other))
                    found += without_empty(ast.copy_location(choice, item))
                case _:
                    found.append(item)
        return found

    def _each(
        self, item: ast.stmt, targets: Sequence[ast.expr], name: str
    ) -> Iterator[ast.stmt]:
        """Targets that get what a name stands for."""
        for target in targets:
            known = ast.copy_location(ast.Name(name, ast.Load()), target)
            yield from self._parted(item, target, known)

    def _parted(
        self, item: ast.stmt, target: ast.expr, value: ast.expr
    ) -> Iterator[ast.stmt]:
        """`v[0], w = x, y` as `part, w = x, y` and `v[0] = part`; any other target as it is."""
        parts = list(_parts(target))
        changed = [part for part in parts if isinstance(part, ast.Subscript)]
        if target in changed or not changed:
            yield _assigned(item, target, value)
            return
        moved = names_in(changed).intersection(stored([target]))  # `v[i], i = x, 1`
        names = {
            id(part): take(self.taken, _stem(part))
            for part in parts
            if part in changed or moved and isinstance(part, ast.Name)
        }
        yield _assigned(item, _renamed(target, names), value)
        for part in parts:
            if id(part) in names:
                known = ast.Name(names[id(part)], ast.Load())
                yield _assigned(item, part, ast.copy_location(known, part))


def _sizes_among(
    targets: Sequence[ast.expr], values: Sequence[ast.expr]
) -> slice | None:
    """Where the names of `*x.shape` stand among others, `b, t, n = *x.shape, 2`, if none of the values reads what is assigned."""
    stars = [at for at, one in enumerate(values) if isinstance(one, ast.Starred)]
    plain = all(isinstance(one, ast.Name) for one in targets)
    more = len(targets) - len(values)
    if len(stars) != 1 or len(values) < 2 or more < 0 or not plain:
        return None
    if names_in(targets) & names_in(values) or not is_pure(values):
        return None
    return slice(stars[0], stars[0] + more + 1)


def _apart(
    item: ast.stmt, targets: list[ast.expr], values: list[ast.expr], star: slice
) -> Iterator[ast.stmt]:
    """`b, t = x.shape` and `n = 2` of `b, t, n = *x.shape, 2`."""
    sizes = values[star.start]
    assert isinstance(sizes, ast.Starred)
    pairs: list[tuple[ast.expr, ast.expr]] = [
        *zip(targets[: star.start], values[: star.start], strict=True),
        (ast.Tuple(targets[star], ast.Store()), sizes.value),
        *zip(targets[star.stop :], values[star.start + 1 :], strict=True),
    ]
    for target, value in pairs:
        made = ast.copy_location(ast.Assign([target], value), item)
        yield ast.fix_missing_locations(made)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """The single targets of a target, from the left."""
    match target:
        case ast.Tuple(elts) | ast.List(elts):
            for item in elts:
                yield from _parts(item)
        case ast.Starred(inner):
            yield from _parts(inner)
        case _:
            yield target


def _stem(part: ast.expr) -> str:
    """What the value of a part is called: of `v[0]` it is `v_part`."""
    base = part
    while isinstance(base, ast.Subscript):
        base = base.value
    return f"{base.id}_part" if isinstance(base, ast.Name) else "part"


def _renamed(target: ast.expr, names: dict[int, str]) -> ast.expr:
    """The target with names in the place of parts."""
    match target:
        case _ if id(target) in names:
            return _stored(target, names[id(target)])
        case ast.Tuple(elts) | ast.List(elts):
            inner = [_renamed(item, names) for item in elts]
            return ast.copy_location(ast.Tuple(inner, ast.Store()), target)
        case ast.Starred(inner):
            starred = ast.Starred(_renamed(inner, names), ast.Store())
            return ast.copy_location(starred, target)
    return target


def _stored(at: ast.stmt | ast.expr, name: str) -> ast.expr:
    return ast.copy_location(ast.Name(name, ast.Store()), at)


def _assigned(item: ast.stmt, target: ast.expr, value: ast.expr) -> ast.Assign:
    if isinstance(item, ast.Assign) and item.targets == [target]:
        return item
    return ast.copy_location(ast.Assign([target], value), item)


def with_one_return(
    body: list[ast.stmt], taken: Collection[str] = ()
) -> list[ast.stmt]:
    """The statements with `result = ...` in each branch, if some of them return."""
    body = _with_last_resort(body)
    early = any(isinstance(item, ast.If) and _returns(item) for item in body)
    if not early or not _closes(body):
        return body
    values = [node.value for item in body for node in _returns_in(item)]
    names = _result_names(values, {*taken, *names_in(body)})
    if names is None:
        return body
    done = _with_assignments(body, names)
    last = ast.Return(_of_names(names, ast.Load()))
    return [*done, ast.fix_missing_locations(ast.copy_location(last, body[-1]))]


def _with_last_resort(body: list[ast.stmt]) -> list[ast.stmt]:
    """An error where the last of `if mode == "sum": return ...` does not hold, and nothing would be returned."""
    last = body[-1] if body else None
    if not isinstance(last, ast.If) or not _returns(last):
        return body
    inner = _with_last_resort(last.body)
    if not _closes(inner):
        return body
    orelse = _with_last_resort(last.orelse) or _last_resort(last)
    if not orelse:
        return body
    closed = ast.If(last.test, inner, orelse)
    return [*body[:-1], ast.copy_location(closed, last)]


def _last_resort(item: ast.If) -> list[ast.stmt]:
    """What ends a choice between modes, `if mode == "sum":`, or ranks, if it is one: an error that says which one was met."""
    match item.test:
        case ast.Compare(chosen, [ast.Eq() | ast.In()], [value]) if isinstance(
            value, ast.Constant | ast.Tuple | ast.List
        ) and (isinstance(chosen, ast.Name) or _is_rank(chosen)):
            (error,) = ast.parse(UNKNOWN.format(ast.unparse(chosen))).body
            for node in ast.walk(error):
                ast.copy_location(node, item)
            return [error]
    return []


def _is_rank(item: ast.expr) -> bool:
    """Whether it is the number of dims of a name: `x.ndim`, `x.dim()`, `len(x.shape)`."""
    match item:
        case (
            ast.Attribute(ast.Name(), "ndim")
            | ast.Call(ast.Attribute(ast.Name(), "dim"), [], [])
            | ast.Call(ast.Name("len"), [ast.Attribute(ast.Name(), "shape")], [])
        ):
            return True
    return False


def with_modes_closed(body: Sequence[ast.stmt], tests: set[str]) -> list[ast.stmt]:
    """The statements with an error in the place of the `else` that a choice between modes lacks, where its last is one of the tests.

    `if mode == "a": y = ...`, `elif mode == "b": y = ...` assigns no `y` in another mode, and what reads it raises.
    """
    return [_closed_mode(item, tests, False) for item in body]


def _closed_mode(item: ast.stmt, tests: set[str], chained: bool) -> ast.stmt:
    if not isinstance(item, ast.If):
        return item
    inner = with_modes_closed(item.body, tests)
    if not item.orelse and chained and ast.unparse(item.test) in tests:
        orelse = _last_resort(item)
    elif len(item.orelse) == 1:
        orelse = [_closed_mode(item.orelse[0], tests, True)]
    else:
        orelse = with_modes_closed(item.orelse, tests)
    return ast.copy_location(ast.If(item.test, inner, orelse), item)


def choice_of_mode(item: ast.stmt, value: ast.expr) -> ast.If | None:
    """`y = {"a": x, "b": z}[mode]` as a statement, which raises where Python does; so is `{"a": f, "b": g}[mode](x)`."""
    call = value if isinstance(value, ast.Call) else None
    match call.func if call else value:
        case ast.Subscript(ast.Dict(keys, several), ast.Name(name) as mode):
            pass
        case _:
            return None
    known = [key for key in keys if isinstance(key, ast.Constant)]
    if not known or len(known) < len(keys) or not is_pure([value]):
        return None
    (found,) = ast.parse(UNKNOWN.format(name)).body
    for node in ast.walk(found):
        ast.copy_location(node, item)
    pairs = zip(known, several, strict=True)
    last = {key.value: (key, chosen) for key, chosen in pairs}  # of equal keys
    for key, chosen in reversed(last.values()):
        made = ast.Call(chosen, call.args, call.keywords) if call else chosen
        part = copy.copy(item)
        part.value = made  # type: ignore[attr-defined]
        test = ast.Compare(mode, [ast.Eq()], [key])
        found = ast.If(test, [part], [found])
    for node in ast.walk(found):
        if isinstance(node, ast.expr | ast.stmt) and not hasattr(node, "lineno"):
            ast.copy_location(node, item)
    assert isinstance(found, ast.If)
    return copy.deepcopy(found)


def _returns_in(item: ast.AST) -> list[ast.Return]:
    return [node for node in ast.walk(item) if isinstance(node, ast.Return)]


def _returns(item: ast.AST) -> bool:
    return bool(_returns_in(item))


def _closes(body: Sequence[ast.stmt]) -> bool:
    """Whether every way through ends in a return, and what follows an `if` belongs to one branch of it."""
    for at, item in enumerate(body):
        if isinstance(item, ast.Return):
            return at == len(body) - 1 and item.value is not None
        if isinstance(item, ast.Raise):
            return at == len(body) - 1
        if isinstance(item, ast.If) and _returns(item):
            rest = body[at + 1 :]
            if _closes(item.body):
                return _closes([*item.orelse, *rest])
            return _closes(item.orelse) and _closes([*item.body, *rest])
        if _returns(item):
            return False
    return False


def _result_names(
    values: Sequence[ast.expr | None], taken: set[str]
) -> list[str] | None:
    """One name, or as many as each return has values."""
    counts = {
        len(value.elts) if isinstance(value, ast.Tuple) else 0 for value in values
    }
    if len(counts) > 1:
        return None
    count = counts.pop()
    stem = NAME
    while any(name == stem or name.startswith(f"{stem}_") for name in taken):
        stem = f"{stem}_value"
    return [f"{stem}_{at}" for at in range(count)] if count else [stem]


def _of_names(names: Sequence[str], context: ast.expr_context) -> ast.expr:
    items: list[ast.expr] = [ast.Name(name, context) for name in names]
    return items[0] if len(items) == 1 else ast.Tuple(items, context)


def _with_assignments(body: Sequence[ast.stmt], names: Sequence[str]) -> list[ast.stmt]:
    """Statements that assign what they returned."""
    done: list[ast.stmt] = []
    for at, item in enumerate(body):
        if isinstance(item, ast.Return) and item.value is not None:
            value = ast.Assign([_of_names(names, ast.Store())], item.value)
            return [*done, ast.fix_missing_locations(ast.copy_location(value, item))]
        if isinstance(item, ast.If) and _returns(item):
            rest = list(body[at + 1 :])
            inner, other = item.body, item.orelse
            if _closes(inner):
                other = [*other, *rest]
            else:
                inner = [*inner, *rest]
            parts = (_with_assignments(inner, names), _with_assignments(other, names))
            return [*done, ast.copy_location(ast.If(item.test, *parts), item)]
        done.append(item)
    return done


RANKS = ("{0}.ndim", "{0}.dim()", "len({0}.shape)", "len({0}.size())")
BEHIND, BEFORE = (
    "{0}.reshape(*{0}.shape, *[1] * {1})",
    "{0}.reshape(*[1] * {1}, *{0}.shape)",
)
NEW_DIMS = {
    **dict.fromkeys(("x.unsqueeze(-1)", "x.unsqueeze(dim=-1)", "x[..., None]"), BEHIND),
    **dict.fromkeys(("x.unsqueeze(0)", "x.unsqueeze(dim=0)", "x[None]"), BEFORE),
}
BUILTINS = {"torch", "F", "math", *dir(builtins)}
NUMBERS = ("float", "int", "len", "max", "min")  # functions of numbers
GROWS = ("append", "extend", "insert")
RECORDS = ("enable_grad", "set_grad_enabled")  # ... within `torch.no_grad()`

# --- Statements that no formula has, as assignments that say the same.


def without_dicts(
    body: Sequence[ast.stmt], taken: Collection[str] = ()
) -> Sequence[ast.stmt]:
    """The statements with a name for each entry of a dict whose keys are all written out: `out["rgb"]` is `out_rgb`."""
    nodes = [node for item in body for node in ast.walk(item)]
    made = {name for item in body for name, _ in _dicts(item)}
    uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    stored_keys, read_keys = set[Entry](), set[Entry]()
    key: object
    for item in body:
        for name, entries in _dicts(item):
            stored_keys.update((name, key) for key, _ in entries)
    for node in nodes:
        match node:
            case ast.Subscript(ast.Name(name), ast.Constant(key), ctx):
                uses[name] -= 1
                known = stored_keys if isinstance(ctx, ast.Store) else read_keys
                known.add((name, key))
    lost = {name for name, _ in read_keys - stored_keys}
    lost |= {name for name in made if uses[name] != 1}
    for item in body:  # of `a, b = {}, {}` both, or none
        several = {name for name, _ in _dicts(item)}
        lost |= several if several & lost else set()
    names, own = dict[Entry, str](), {*taken, *uses}
    for name, key in sorted(stored_keys, key=str):
        if name in made - lost:
            stem = f"{name}_{key!s}" if f"{name}_{key!s}".isidentifier() else name
            names[name, key] = take(own, stem)
    if not names:
        return body
    return [line for item in body for line in _Entries(names).lines(item)]


Entry = tuple[str, object]  # the name of a dict, and a key of it


def _dicts(item: ast.stmt) -> list[tuple[str, list[tuple[object, ast.expr]]]]:
    """The dicts that a statement makes and names, each with its entries: `out = {"x": x}`, `a, b = {}, dict()`."""
    match item:
        case ast.Assign([ast.Name(name)], value):
            entries = _entries(value)
            return [] if entries is None else [(name, entries)]
        case ast.Assign([ast.Tuple(parts)], ast.Tuple(values)):
            several = [part.id for part in parts if isinstance(part, ast.Name)]
            if len(several) == len(values) and all(_entries(x) == [] for x in values):
                return [(name, []) for name in several]
    return []


def _entries(value: ast.expr) -> list[tuple[object, ast.expr]] | None:
    match value:
        case ast.Dict(keys, values):
            named = [key.value for key in keys if isinstance(key, ast.Constant)]
            whole = len(named) == len(values)
            return list(zip(named, values, strict=True)) if whole else None
        case ast.Call(ast.Name("dict"), [], words) if all(word.arg for word in words):
            return [(word.arg, word.value) for word in words]
    return None


class _Entries(ast.NodeTransformer):
    """Puts names in the place of the entries of dicts."""

    def __init__(self, names: Mapping[Entry, str]) -> None:
        self.names, self.dicts = names, {name for name, _ in names}

    def lines(self, item: ast.stmt) -> list[ast.stmt]:
        made = [part for part in _dicts(item) if part[0] in self.dicts]
        if not made:
            found: ast.stmt = self.visit(copy.deepcopy(item))
            return [found]
        return [
            _assigned(item, _stored(value, self.names[name, key]), self.visit(value))
            for name, entries in made
            for key, value in copy.deepcopy(entries)
        ]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Name(name), ast.Constant(key), context):
                own = self.names.get((name, key))
                if own is not None:
                    return ast.copy_location(ast.Name(own, context), node)
        return node


def straightened(
    body: Sequence[ast.stmt],
    tensors: Collection[str] = (),
    others: Collection[str] = (),
) -> list[ast.stmt]:
    """The statements with plain assignments for other statements that come to the same; `tensors` are inputs, as `others` are.

    `with torch.no_grad(): m = x.amax(-1)` is `m = x.amax(-1).detach()`, `rows.append(x)` is `rows = [*rows, x]`, `shape[0] = n` of
    `shape = list(x.shape)` is `shape = [n, *shape[1:]]`,
    `h[0].mul_(2)` is `h[0] = h[0].mul(2)`, and `y = (e := x.exp()) + 1` is `e = x.exp()` and `y = e + 1`.
    """
    nodes = [node for item in body for node in ast.walk(item)]
    if any(isinstance(node, ast.NamedExpr) for node in nodes):
        body = _with_named(body)
    found = _straightened(body, _lists(nodes), _Replacing(nodes))
    known = _Known({*tensors}, {*others} | BUILTINS, names_in(found))
    rest = [names_in(found[at + 1 :]) for at in range(len(found))]
    return [
        line
        for item, after in zip(found, rest, strict=True)
        for line in known.lines(item, after)
    ]


class _Known:
    """What is known of the names of statements, one after another: which are tensors, and which are none."""

    def __init__(self, tensors: set[str], others: set[str], taken: set[str]) -> None:
        self.tensors, self.others, self.taken = tensors, others, taken
        self.bound = tensors | others

    def lines(self, item: ast.stmt, after: Collection[str]) -> list[ast.stmt]:
        """The statement; `with torch.no_grad():` over more than assignments, a loop, as its lines, that read `x.detach()` of tensors above."""
        match item:
            case ast.With([ast.withitem(context, None)], inner):
                if ast.unparse(context) == "torch.no_grad()":
                    return self._constants(inner, after) or [item]
            case ast.Assign([ast.Name(name)], value):
                tensor, other = self._is_tensor(value), self._is_other(value)
                self._forget([item])
                self.tensors |= {name} if tensor else set()
                self.others |= {name} if other else set()
                return [item]
            case ast.Assign([target], value) if self._is_other(value):
                self._forget([item])
                self.others |= {*stored([target])}
                return [item]
        self._forget([item])
        return [item]

    def _forget(self, body: Sequence[ast.stmt]) -> None:
        self.bound.update(stored(body))
        self.tensors.difference_update(stored(body))
        self.others.difference_update(stored(body))

    def _is_tensor(self, value: ast.expr) -> bool:
        match value:
            case ast.Name(name):
                return name in self.tensors
            case ast.BinOp(left, _, right):
                return self._is_tensor(left) or self._is_tensor(right)
            case ast.UnaryOp(_, inner) | ast.Subscript(inner):
                return self._is_tensor(inner)
            case ast.Call(ast.Attribute(inner, word)):
                of = _root(inner) in ("torch", "F") or self._is_tensor(inner)
                return of and is_one_tensor(word)
        return False

    def _is_other(self, value: ast.expr) -> bool:
        """Whether it is surely a Python value: a constant, a size, what is computed of such."""
        match value:
            case ast.Constant():
                return True
            case ast.Name(name):
                return name in self.others
            case ast.BinOp(left, _, right):
                return self._is_other(left) and self._is_other(right)
            case ast.Subscript(inner):
                return self._is_other(inner)
            case ast.Attribute(_, word) | ast.Call(ast.Attribute(_, word)):
                return word in ("shape", "ndim", "size", "dim", "numel")
            case ast.Call(ast.Name(name)):
                return name in ("len", "int", "float")
        return False

    def _constants(
        self, inner: Sequence[ast.stmt], after: Collection[str]
    ) -> list[ast.stmt] | None:
        """The lines of a block under `no_grad` over `x_detached = x.detach()`; None where a name would leave it with a gradient all the same."""
        nodes = [node for item in inner for node in ast.walk(item)]
        own, loops = {*stored(inner)}, [x for x in nodes if isinstance(x, ast.For)]
        above = names_in(inner) - own - self.others
        again = own.difference(*(stored([loop.target]) for loop in loops)) & self.bound
        given = list(_given(nodes))
        changed = _changed_names(nodes)
        doubtful, more = set[str](), {""}
        while more:  # what may be a tensor from above under another name
            more = {
                name
                for name, value in given
                if name not in doubtful and not _is_new(value, own - doubtful)
            }
            doubtful |= more
        made = {name: list[ast.expr]() for name, _ in given}
        for name, value in given:
            made[name].append(value)
        sure = all(
            made.get(name) and all(map(_is_fresh, made[name])) for name in changed
        )
        if again or doubtful & {*after} or not sure or not above <= self.tensors:
            return None
        if any(
            isinstance(node, ast.With | ast.NamedExpr | ast.Return | ast.Lambda)
            for node in nodes
        ):
            return None
        self._forget(inner)
        found, names = list[ast.stmt](), dict[str, ast.expr]()
        for name in sorted(above):
            outside = take(self.taken, f"{name}_detached", sign="")
            names[name] = ast.copy_location(ast.Name(outside, ast.Load()), inner[0])
            target = _stored(inner[0], outside)
            value = ast.copy_location(ast.Name(name, ast.Load()), inner[0])
            found.append(_constant(inner[0], target, value))
        return [*found, *(substituted(copy.deepcopy(item), names) for item in inner)]


def _given(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The names that statements give a value, or put it into, each with that value; a part of several is the whole."""
    row = ast.Subscript(ast.Name(""), ast.Constant(0), ast.Load())
    for node in nodes:
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    parts = value.elts if isinstance(value, ast.Tuple) else [value]
                    for name in stored([target]):
                        yield from ((name, part) for part in parts)
            case ast.For(target, iterable):
                inside = [
                    x for x in ast.walk(iterable) if isinstance(x, ast.Tuple | ast.List)
                ]
                for name in stored([target]):
                    yield name, inside[0] if inside else row
            case ast.Call(ast.Attribute(ast.Name(name), word), args) if word in GROWS:
                yield from ((name, value) for value in args)


def _changed_names(nodes: Iterable[ast.AST]) -> set[str]:
    """The names of what statements change in place; "" is one that has none."""
    found = set[str | None]()
    for node in nodes:
        match node:
            case ast.Subscript(inner, ctx=ast.Store()):
                found.add(_root(inner))
            case ast.AugAssign(target):
                found.add(_root(target))
            case ast.Call(ast.Attribute(inner, word)) if is_in_place(word):
                found.add(_root(inner))
            case ast.Call(keywords=words) if any(
                x.arg in ("out", "inplace") for x in words
            ):
                found.add(None)
    return {name or "" for name in found}


def _is_fresh(value: ast.expr) -> bool:
    """Whether a value has memory of its own."""
    match value:
        case ast.Constant() | ast.BinOp() | ast.UnaryOp():
            return True
        case ast.List(items):
            return not items
        case ast.Call(ast.Attribute(_, word)):
            return is_one_tensor(word) and not may_share_memory(word)
    return False


def _changed_part(item: ast.Expr, part: ast.Subscript, method: str) -> ast.stmt | None:
    """The assignment of what a method in place makes of a part that is a view: of a slice or a row, not of what a tensor picks."""
    call, parts = item.value, part.slice
    places = parts.elts if isinstance(parts, ast.Tuple) else [parts]
    plain = isinstance(part.value, ast.Name) and all(map(_is_place, places))
    if not plain or not changes_in_place(method) or not isinstance(call, ast.Call):
        return None
    target = ast.copy_location(ast.Subscript(part.value, parts, ast.Store()), part)
    if method in SETS:
        # A number that is nowhere in the text ends on another line: what is on one line is read from there.
        zero = ast.copy_location(ast.Constant(0), item)
        zero.end_lineno = item.lineno + 1
        value: ast.expr = call.args[0] if call.args else zero
        known = len(call.args) < 2 and not call.keywords
    else:
        callee = ast.Attribute(part, method.removesuffix("_"), ast.Load())
        value, known = ast.Call(callee, call.args, call.keywords), not draws_random(
            method
        )
    made = ast.copy_location(ast.Assign([target], value), item)
    return ast.fix_missing_locations(made) if known else None


def _is_place(item: ast.expr) -> bool:
    """Whether a part of an index is a number, a slice or an ellipsis, whatever the names in it are."""
    match item:
        case ast.UnaryOp(ast.USub(), ast.Constant()) | ast.Slice():
            return True
        case ast.Constant(value):
            return value is ... or type(value) is int
    return False


def _with_named(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements with those that an expression assigns above them."""
    found: list[ast.stmt] = []
    for item in body:
        names = _Named(_value_of(item))
        found += names.lines
        match item:
            case ast.Assign(targets):
                made: ast.stmt = ast.Assign(targets, names.value)
            case ast.Return(value) if value:
                made = ast.Return(names.value)
            case ast.Expr():
                made = ast.Expr(names.value)
            case ast.If():
                ways = (_with_named(way) for way in (item.body, item.orelse))
                made = ast.If(names.value, *ways)
            case ast.With(items, inner):
                made = ast.With(items, _with_named(inner))
            case _:
                made = item
        found.append(item if made is item else ast.copy_location(made, item))
    return found


def _value_of(item: ast.stmt) -> ast.expr:
    """The expression of a statement that is computed first, and always."""
    match item:
        case (
            ast.Assign(_, value) | ast.Return(value) | ast.If(value) | ast.Expr(value)
        ) if value:
            return value
    return ast.Constant(None)


class _Named(ast.NodeTransformer):
    """Takes `name := value` out of the parts of an expression that are always computed, and that read no other value of it."""

    def __init__(self, value: ast.expr) -> None:
        self.lines: list[ast.stmt] = []
        self.read = [node for node in ast.walk(value) if isinstance(node, ast.Name)]
        named = any(isinstance(node, ast.NamedExpr) for node in ast.walk(value))
        self.value = value
        if named and is_pure([value]):
            self.value = self.visit(copy.deepcopy(value))

    def visit_NamedExpr(self, item: ast.NamedExpr) -> ast.expr:
        name, place = item.target.id, (item.lineno, item.col_offset)
        loads = (node for node in self.read if node.id == name)
        if any((node.lineno, node.col_offset) < place for node in loads):
            return item
        line = ast.Assign([item.target], self.visit(item.value))
        self.lines.append(ast.copy_location(line, item))
        return ast.copy_location(ast.Name(name, ast.Load()), item)

    def visit_IfExp(self, item: ast.IfExp) -> ast.expr:
        item.test = self.visit(item.test)
        return item

    def visit_BoolOp(self, item: ast.BoolOp) -> ast.expr:
        item.values[0] = self.visit(item.values[0])
        return item

    def visit_ListComp(self, item: ast.ListComp) -> ast.expr:
        return item

    def visit_GeneratorExp(self, item: ast.GeneratorExp) -> ast.expr:
        return item


def _straightened(
    body: Sequence[ast.stmt], lists: Collection[str], replacing: "_Replacing"
) -> list[ast.stmt]:
    """The statements with plain ones for modes (`with torch.no_grad():`), for dims that a `while` adds, `xs.append(x)` and `x[0].add_(y)`."""
    found: list[ast.stmt] = []
    for item in body:
        match item:
            case ast.With([ast.withitem(context, None)], inner):
                mode = ast.unparse(context)
                found += _of_mode(mode, inner, lists, replacing) or [item]
            case ast.While(test, [line], []):
                step = _own_dims(line, found) or line
                found.append(_with_dims(item, test, step) or item)
            case ast.If(test, inner, other):
                ways = (_straightened(way, lists, replacing) for way in (inner, other))
                found.append(ast.copy_location(ast.If(test, *ways), item))
            case ast.Expr(ast.Call(ast.Attribute(ast.Subscript() as part, method))):
                found.append(_changed_part(item, part, method) or item)
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method), [value], [])):
                grown = name in lists and method in ("append", "extend")
                found.append(_grown(item, name, method, value) if grown else item)
            case ast.AugAssign(ast.Name(name), ast.Add(), ast.List() as value) if (
                name in lists
            ):
                found.append(_grown(item, name, "extend", value))
            case ast.Assign() | ast.AugAssign():
                found.append(replacing.line(item))
            case _:
                found.append(item)
    return found


def _with_dims(item: ast.While, test: ast.expr, line: ast.stmt) -> ast.stmt | None:
    """`while x.ndim < n: x = x.unsqueeze(-1)` as `x = x.reshape(*x.shape, *[1] * (n - x.ndim))`; of a new `x` also `x.unsqueeze_(-1)`."""
    match test, line:
        case (
            ast.Compare(rank, [ast.Lt()], [wanted]),
            ast.Assign([ast.Name(name) as target], value),
        ):
            places = NEW_DIMS.get(ast.unparse(value).replace(name, "x", 1))
            ranks = (text.format(name) for text in RANKS)
            if places is None or ast.unparse(rank) not in ranks:
                return None
            if name in names_in([ast.Expr(wanted)]):
                return None
            text = places.format(name, f"({ast.unparse(wanted)} - {name}.ndim)")
            whole = ast.parse(text, mode="eval").body
            for node in ast.walk(whole):
                ast.copy_location(node, item)
            return ast.copy_location(ast.Assign([target], whole), item)
    return None


def _own_dims(line: ast.stmt, above: Sequence[ast.stmt]) -> ast.stmt | None:
    """`x.unsqueeze_(-1)` as `x = x.unsqueeze(-1)`, where the line above has made the tensor: it has no other name."""
    match line, above[-1] if above else None:
        case (
            ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method), args, keys)),
            ast.Assign([ast.Name(made)], value),
        ) if (
            made == name and is_in_place(method) and _is_new(value, ())
        ):
            inner = ast.Name(name, ast.Load())
            callee = ast.Attribute(inner, method.removesuffix("_"), ast.Load())
            call = ast.Call(callee, args, keys)
            step = ast.Assign([ast.Name(name, ast.Store())], call)
            return ast.fix_missing_locations(ast.copy_location(step, line))
    return None


def _of_mode(
    mode: str,
    inner: Sequence[ast.stmt],
    lists: Collection[str],
    replacing: "_Replacing",
) -> list[ast.stmt] | None:
    """The statements of a `with` that autograd takes for constants, or that are no other than those around it."""
    if mode == "torch.enable_grad()" or _is_without_autocast(mode, inner):
        return _straightened(inner, lists, replacing)
    again = any(mode in ast.unparse(item) for item in inner for mode in RECORDS)
    if mode != "torch.no_grad()" or again:
        return None
    return _constants(_straightened(inner, lists, replacing), set())


def _is_without_autocast(mode: str, inner: Sequence[ast.stmt]) -> bool:
    """Whether it is `torch.autocast(..., enabled=False)` over what autocast does not take to lower precision."""
    match ast.parse(mode, mode="eval").body:
        case ast.Call(ast.Attribute(_, "autocast") | ast.Name("autocast"), _, keywords):
            words = {word.arg: ast.unparse(word.value) for word in keywords}
        case _:
            return False
    nodes = [node for item in inner for node in ast.walk(item)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = (of.attr for of in called if isinstance(of, ast.Attribute))
    lower = any(isinstance(node, ast.MatMult | ast.For) for node in nodes)
    lower |= any(isinstance(of, ast.Name) and of.id not in NUMBERS for of in called)
    lower |= any(map(may_compute_lower, names))
    return words.get("enabled") == "False" and not lower


def _constants(body: Sequence[ast.stmt], made: set[str]) -> list[ast.stmt] | None:
    """Assignments of constants; None where it is not sure that they say the same."""
    found: list[ast.stmt] = []
    for item in body:
        lines: list[ast.stmt]
        match item:
            case ast.If():
                choice = _choice_of_constants(item, made)
                if choice is None:
                    return None
                found.append(choice)
                continue
            case ast.Assign([ast.Name()], ast.Name(name)) if name not in made:
                found.append(item)  # another name of what may have a gradient
                made.difference_update(stored([item]))
                continue
            case ast.Raise() | ast.Assert():
                lines, known = [item], True
            case ast.Assign([ast.Tuple(parts) as target], value):
                lines = [item, *_each_constant(item, stored(parts))]
                known = all(isinstance(part, ast.Name) for part in parts)
                known = known and _are_new(value, made)
            case ast.Assign([ast.Name() as target], value):
                lines, known = [_constant(item, target, value)], _is_new(value, made)
            case ast.Assign([ast.Subscript(ast.Name(name)) as target], value):
                lines, known = [_constant(item, target, value)], name in made
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name) as h, method)) as call):
                recorded = _may_be_recorded(method, call)
                lines = [item, *[_constant(item, _stored(item, name), h)] * recorded]
                known = name in made and is_in_place(method)
            case ast.AugAssign(ast.Name(name), _, value):  # `q /= q.sum(0)`
                lines, known = [_changed_by_constant(item, made)], name in made
                known = known and not changes([value])
            case _:
                return None
        if not known:
            return None
        made.update(stored([item]))
        found += lines
    return found


def _changed_by_constant(item: ast.AugAssign, made: Collection[str]) -> ast.AugAssign:
    """`q /= value.detach()` of a constant, which it stays; one of constants alone stays as it is written."""
    if names_in([ast.Expr(item.value)]) <= {*made}:
        return item
    value = _constant(item, item.target, item.value).value
    return ast.copy_location(ast.AugAssign(item.target, item.op, value), item)


def _may_be_recorded(method: str, call: ast.Call) -> bool:
    """Whether a change in place may be by a tensor that has a gradient: `h.add_(y)`, not `h.scatter_(0, index, 1)`."""
    without = {*chain.from_iterable(constant_tensors(method.removesuffix("_")))}
    named = ((item.arg, item.value) for item in call.keywords)
    return any(
        place not in without and not isinstance(value, ast.Constant)
        for place, value in (*enumerate(call.args, 1), *named)
    )


def _choice_of_constants(item: ast.If, made: set[str]) -> ast.If | None:
    """The same for a choice: what one way makes another name of a tensor is not sure to be a constant."""
    ends = (set(made), set(made))
    pairs = map(_constants, (item.body, item.orelse), ends)
    ways = [way for way in pairs if way is not None]
    if len(ways) < len(ends):
        return None
    made.clear()
    made.update(ends[0] & ends[1])
    return ast.copy_location(ast.If(item.test, *ways), item)


def _each_constant(item: ast.stmt, names: Sequence[str]) -> Iterator[ast.stmt]:
    for name in names:
        value = ast.copy_location(ast.Name(name, ast.Load()), item)
        yield _constant(item, _stored(item, name), value)


def _are_new(value: ast.expr, made: Collection[str]) -> bool:
    """The same of what several names get."""
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_new(part, made) for part in value.elts)
    return _is_new(value, made, several=True)


def _is_new(value: ast.expr, made: Collection[str], several: bool = False) -> bool:
    """Whether a value has no gradient where autograd is off: it is no tensor from above, and changes none; one, or several."""
    match value:
        case ast.Call(ast.Name(name)):
            return name in ("float", "int", "len")
        case ast.Call(ast.Attribute(inner, name)) if is_in_place(name):
            return _root(inner) in ("torch", *made) and not several
        case ast.Call(ast.Attribute(inner, name)) if may_be_argument(name):
            # `x.float()` of floats is x
            return not several and _is_new(inner, made) and not changes([value])
        case ast.Name(name):
            return name in made and not several
        case ast.IfExp(_, body, orelse):
            return all(_is_new(way, made, several) for way in (body, orelse))
        case ast.Call(ast.Attribute(_, name)):
            one = several or not may_be_several_tensors(name) or _is_of_two(value)
            return one and not changes([value])
        case ast.Attribute(_, name):
            return all(facts.memory != "same" for facts in facts_of_attribute(name))
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return not several and not changes([value])
        case ast.List([]):
            return True
    return isinstance(value, ast.Subscript) and not changes([value])


def _is_of_two(call: ast.Call) -> bool:
    """Whether it is `torch.min(x, y)` of two tensors, and not of one and a dim, by the names."""
    match call:
        case ast.Call(
            ast.Attribute(ast.Name("torch"), "min" | "max"),
            [_, ast.Name(other)],
            [],
        ):
            return other not in ("d", "axis") and "dim" not in other
    return False


def _root(item: ast.expr) -> str | None:
    """The name that a chain of calls and attributes begins with."""
    match item:
        case ast.Name(name):
            return name
        case ast.Attribute(inner) | ast.Call(inner) | ast.Subscript(inner):
            return _root(inner)
    return None


def _constant(item: ast.stmt, target: ast.expr, value: ast.expr) -> ast.Assign:
    """`target = value.detach()`; of what is written as a number, that number."""
    if not isinstance(value, ast.Constant):
        detached = ast.parse(DETACHED, mode="eval").body
        for node in ast.walk(detached):
            ast.copy_location(node, value)
        value = substituted(detached, {"value": value})
    return ast.copy_location(ast.Assign([target], value), item)


def _lists(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """The names of lists that are made here and that nothing else has."""
    lists = set[str]()
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)], value) if _is_list(value):
                lists.add(name)
    return frozenset(lists.difference(*map(_handed_on, nodes)))


def _handed_on(node: ast.AST) -> Iterator[str]:
    """The names whose values something else has behind a node: `ys` of `z = ys`, `z = (ys, 1)`, `z.append(ys)`."""
    match node:
        case ast.Assign(_, value) | ast.NamedExpr(_, value):
            yield from _parts_of(value)
        case ast.Call(ast.Attribute(_, "append"), [value]):
            yield from _parts_of(value)


def _parts_of(value: ast.expr) -> Iterator[str]:
    """The names of what a value is or holds: `ys` of `ys if a else [x]`."""
    match value:
        case ast.Name(name):
            yield name
        case ast.Tuple(parts) | ast.List(parts) | ast.BoolOp(_, parts):
            yield from chain.from_iterable(map(_parts_of, parts))
        case ast.IfExp(_, body, orelse):
            yield from chain(_parts_of(body), _parts_of(orelse))
        case ast.Dict(_, values):
            yield from chain.from_iterable(map(_parts_of, values))


def _is_list(value: ast.expr) -> bool:
    """Whether a value is a new list, whichever way a choice goes: `[x] if include_input else []`, `list(x.shape)`."""
    if isinstance(value, ast.IfExp):
        return _is_list(value.body) and _is_list(value.orelse)
    match value:
        case ast.List() | ast.Call(ast.Name("list"), [_], []):
            return True
    return False


def _grown(item: ast.stmt, name: str, method: str, value: ast.expr) -> ast.stmt:
    """A list with one element more, or with several."""
    whole = ast.Starred(ast.Name(name, ast.Load()), ast.Load())
    more = ast.Starred(value, ast.Load()) if method == "extend" else value
    grown = ast.Assign([_stored(item, name)], ast.List([whole, more], ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(grown, item))


class _Replacing:
    """Writes `shape[1] = n` as `shape = [*shape[:1], n, *shape[2:]]`, of lists that no other name has."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        bound, made, read, kept, sizes = (Counter[str]() for _ in range(5))
        for node in nodes:
            match node:
                case ast.Name(name, ast.Load()):
                    read[name] += 1
                case ast.Name(name) | ast.arg(name):
                    bound[name] += 1
            match node:
                case ast.Assign([ast.Name(name)], value) if _is_list(value):
                    made[name] += 1
                    sizes[name] += _is_of_sizes(value)
                case ast.AugAssign(ast.Name(name), ast.Add(), ast.List()):
                    made[name] += 1
                case (
                    ast.Subscript(ast.Name(name))
                    | ast.Starred(ast.Name(name))
                    | ast.comprehension(_, ast.Name(name))
                    | ast.Attribute(ast.Name(name), "append" | "extend")
                ):
                    kept[name] += 1
                case ast.Call(func, args) if _keeps_none(func):
                    kept.update(arg.id for arg in args if isinstance(arg, ast.Name))
        self.lists = {
            name
            for name, count in made.items()
            if count == bound[name] and read[name] == kept[name]
        }
        self.sizes = {name for name, count in sizes.items() if count == made[name]}

    def line(self, item: ast.Assign | ast.AugAssign) -> ast.stmt:
        """The statement as one that assigns the list; what changes an element stays where that may be a tensor, which others may have."""
        match item:
            case ast.Assign([ast.Subscript(ast.Name(name), index)], value) if (
                name in self.lists
            ):
                return _replaced(item, name, index, value) or item
            case ast.AugAssign(
                ast.Subscript(ast.Name(name), index) as part, sign, value
            ) if (name in self.lists & self.sizes):
                before = ast.Subscript(part.value, index, ast.Load())
                before = ast.copy_location(before, part)
                value = ast.copy_location(ast.BinOp(before, sign, value), item)
                return _replaced(item, name, index, value) or item
        return item


def _is_of_sizes(value: ast.expr) -> bool:
    """Whether it is `list(x.shape)` or `list(x.size())`."""
    match value:
        case ast.Call(_, [ast.Attribute(_, "shape")]):
            return True
        case ast.Call(_, [ast.Call(ast.Attribute(_, "size"), [], [])]):
            return True
    return False


def _keeps_none(func: ast.expr) -> bool:
    """Whether a function reads a list without keeping it."""
    match func:
        case ast.Attribute(_, name):
            return name not in ("append", "extend", "insert")
        case ast.Name(name):
            return name in ("len", "list", "max", "min", "sum", "tuple")
    return False


def _replaced(
    item: ast.stmt, name: str, index: ast.expr, value: ast.expr
) -> ast.stmt | None:
    """`shape[1] = n` as `shape = [*shape[:1], n, *shape[2:]]`."""
    match index:
        case ast.Constant(int(at)):
            pass
        case ast.UnaryOp(ast.USub(), ast.Constant(int(end))):
            at = -end
        case _:
            return None
    before = f"*{name}[:{at}], " if at else ""
    after = f", *{name}[{at + 1}:]" if at != -1 else ""
    whole = ast.parse(f"[{before}value{after}]", mode="eval").body
    for node in ast.walk(whole):
        ast.copy_location(node, item)
        if isinstance(node, ast.Constant):  # which the text does not have
            node.end_lineno = item.lineno + 1
    return _assigned(item, _stored(item, name), substituted(whole, {"value": value}))


# --- Optional inputs under other names, and other tests of them -> `a is None`, `a is not None`.


def with_optionals_named(
    body: Sequence[ast.stmt], optional: Collection[str]
) -> Sequence[ast.stmt]:
    """The statements with `a is not None` for `isinstance(a, torch.Tensor)` and `a != None`, and `a` for the `b` of `b = a`."""
    nodes = [node for item in body for node in ast.walk(item)]
    named = [node for node in nodes if isinstance(node, ast.Name)]
    read = Counter(node.id for node in named if isinstance(node.ctx, ast.Load))
    bound = Counter(node.id for node in named if isinstance(node.ctx, ast.Store))
    bound.update(node.arg for node in nodes if isinstance(node, ast.arg))
    kept = {name for name in optional if not bound[name]}
    if not kept:
        return body
    names: dict[str, ast.expr] = {}
    found: list[ast.stmt] = []
    for item in body:
        match item:
            case ast.Assign([ast.Name(name)], ast.Name(of) as value) if of in kept and (
                bound[name] == 1 or read[of] == 1
            ):
                names[name] = value
            case _:
                found.append(substituted(copy.deepcopy(item), names) if names else item)
    body = found or body
    told = _Told(kept)
    if any(map(told.is_amiss, (node for item in body for node in ast.walk(item)))):
        body = [told.visit(copy.deepcopy(item)) for item in body]
    return body


class _Told(ast.NodeTransformer):
    """Writes tests of optional tensors as `is None` or `is not None`."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def is_amiss(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call | ast.Compare) and self._told(node) is not node

    def _told(self, node: ast.Call | ast.Compare) -> ast.expr:
        match node:
            case ast.Compare(
                ast.Name(name) as value,
                [ast.Eq() | ast.NotEq() as operator],
                [ast.Constant(None) as none],
            ) if (
                name in self.names
            ):
                test: ast.cmpop = (
                    ast.Is() if isinstance(operator, ast.Eq) else ast.IsNot()
                )
            case ast.Call(
                ast.Name("isinstance"),
                [ast.Name(name) as value, ast.Attribute(ast.Name("torch"), "Tensor")],
                [],
            ) if (
                name in self.names
            ):
                test, none = ast.IsNot(), ast.Constant(None)
            case _:
                return node
        made = ast.Compare(value, [test], [none])
        return ast.fix_missing_locations(ast.copy_location(made, node))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return self._told(node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        return self._told(node)
