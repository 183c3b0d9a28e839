"""Names: the ones read and bound by syntax, and free ones for values added to the user's.

Most modules that rewrite a formula ask it: which names a statement needs and changes, and for a name that clashes with none.

Words: statements *store* a name if they bind it to a value, and *bind* it to a value or a function; a name is *taken* if no new
one may be equal to it, and *fresh* if it is not taken; a *stem* is a name before a number is added.

In: statements and expressions of `ast`; preferred names, and the names taken. Out: names. Invariant: a name gets a number
only if it is taken without one.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count

# Syntax whose inside may run any number of times.
REPEATED = (
    *(ast.FunctionDef, ast.Lambda, ast.For, ast.While),
    *(ast.ListComp, ast.GeneratorExp),
)
# Imports of names that every formula has: a function may repeat them.
IMPORTS = {
    *("import math", "import torch", "from torch import nn", "import torch.nn as nn"),
    "import torch.nn.functional as F",
    "from torch.nn import functional as F",
}


def name_nodes(parts: Iterable[ast.AST]) -> list[ast.Name]:
    """Return every name in some syntax, as a node."""
    nodes = (node for part in parts for node in ast.walk(part))
    return [node for node in nodes if isinstance(node, ast.Name)]


def names_in(parts: Iterable[ast.AST]) -> set[str]:
    """Return every name in some syntax."""
    return {node.id for node in name_nodes(parts)}


def stores(parts: Iterable[ast.AST]) -> list[ast.Name]:
    """Return every name assigned in some syntax, once for each assignment; nested functions count."""
    return [node for node in name_nodes(parts) if isinstance(node.ctx, ast.Store)]


def stored(body: Iterable[ast.AST]) -> list[str]:
    """Return the names statements bind to values, once each; nested functions do not count: for `y = x; f = lambda: 0` only `y`."""
    return list(dict.fromkeys(_bound(body, functions=False)))


def bound_names(body: Iterable[ast.AST]) -> list[str]:
    """Return the names statements bind to values or functions, once each; bodies of nested functions do not count."""
    return list(dict.fromkeys(_bound(body, functions=True)))


def _bound(body: Iterable[ast.AST], *, functions: bool) -> Iterator[str]:
    """Yield the names statements bind to values; with `functions`, also the names of functions and named lambdas.

    Names bound inside a function are its own, and left out.
    """
    for item in body:
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id
        elif isinstance(item, ast.FunctionDef):
            if functions:
                yield item.name
        # `f = lambda t: t * 2` defines a function too.
        elif isinstance(item, ast.Assign) and isinstance(item.value, ast.Lambda):
            yield from _bound(item.targets if functions else (), functions=functions)
        elif not isinstance(item, ast.Lambda):
            yield from _bound(ast.iter_child_nodes(item), functions=functions)


def reads(body: Sequence[ast.AST], name: str) -> int:
    """Count the reads of a name; one in a function or a loop counts twice or more, since it may run again.

    An expression may replace a name only if it is then computed once: a caller asks whether the count is at most 1.
    """
    count = 0
    for item in body:
        if isinstance(item, ast.Name):
            if item.id == name and isinstance(item.ctx, ast.Load):
                count += 1
        else:
            inner = reads(list(ast.iter_child_nodes(item)), name)
            count += 2 * inner if isinstance(item, REPEATED) else inner
    return count


def load_of(name: str, at: ast.AST) -> ast.Name:
    """Return a name to be read, at the place of some syntax."""
    return ast.copy_location(ast.Name(name, ast.Load()), at)


def store_of(name: str, at: ast.AST) -> ast.Name:
    """Return a name as the target of an assignment, at the place of some syntax."""
    return ast.copy_location(ast.Name(name, ast.Store()), at)


def fresh(stem: str, taken: Collection[str], sign: str = "_") -> str:
    """Return the stem, with a number if it is taken: `x`, `x_2`, or `x2` if `sign`, put before the number, is empty."""
    return stem if stem not in taken else _numbered(stem, taken, sign)


def numbered(stem: str, taken: Collection[str]) -> str:
    """Return the stem with the first free number, in the style of names written by hand: `mask2`."""
    # After a digit the number needs a sign: `x1_2`.
    return _numbered(stem, taken, "_" if any(map(str.isdigit, stem)) else "")


def take(taken: set[str], *stems: str, sign: str = "_") -> str:
    """Return the first of the stems not taken, else the last with a number, and add it to `taken`."""
    free = (stem for stem in stems if stem not in taken)
    name = next(free, None) or fresh(stems[-1], taken, sign)
    taken.add(name)
    return name


def _numbered(stem: str, taken: Collection[str], sign: str) -> str:
    numbers = (f"{stem}{sign}{number}" for number in count(2))
    return next(name for name in numbers if name not in taken)
