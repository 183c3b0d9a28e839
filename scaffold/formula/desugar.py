"""Statements of several meanings -> plain ones.

In: the statements of a formula. Out: the same without those that do nothing, each assigning one target, which is a part of a tensor
or has none in it. Invariant: the statements that are given stay as they are.
"""

import ast
from collections.abc import Collection, Iterator, Sequence

from scaffold.formula.constant_folding import without_empty
from scaffold.formula.substitution import names_in, stored


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
