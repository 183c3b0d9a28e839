"""Statements of several meanings -> plain ones: one target for each, one return at the end.

In: the statements of a formula. Out: the same without those that do nothing, each assigning one target, which is a part of a tensor
or has none in it; and with `result = ...` in each branch that returns. Invariant: the statements that are given stay as they
are, and none is repeated: where one return would need that, they come back unchanged.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

from scaffold.formula.constant_folding import without_empty
from scaffold.formula.substitution import names_in, stored

NAME = "result"  # what the branches assign
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

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for item in body:
            match item:
                case ast.Pass() | ast.AnnAssign(value=None):
                    pass
                case ast.Assign([target], value):
                    found += self._parted(item, target, value)
                case ast.Assign([ast.Name(name) as first, *others], value):
                    found.append(_assigned(item, first, value))
                    found += self._each(item, others, name)
                case ast.Assign(targets, value):  # `v[0] = a = x`
                    name = self._fresh("value")
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
            id(part): self._fresh(_stem(part))
            for part in parts
            if part in changed or moved and isinstance(part, ast.Name)
        }
        yield _assigned(item, _renamed(target, names), value)
        for part in parts:
            if id(part) in names:
                known = ast.Name(names[id(part)], ast.Load())
                yield _assigned(item, part, ast.copy_location(known, part))

    def _fresh(self, stem: str) -> str:
        count, name = 1, stem
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name


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
    if last.orelse:
        orelse = _with_last_resort(last.orelse)
    else:
        match last.test:
            case ast.Compare(
                ast.Name(name), [ast.Eq() | ast.In()], [value]
            ) if isinstance(value, ast.Constant | ast.Tuple | ast.List):
                (error,) = ast.parse(UNKNOWN.format(name)).body
            case _:
                return body
        for node in ast.walk(error):
            ast.copy_location(node, last)
        orelse = [error]
    closed = ast.If(last.test, inner, orelse)
    return [*body[:-1], ast.copy_location(closed, last)]


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
