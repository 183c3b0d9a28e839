"""What a forward says of inputs that it does not take: `assert x.dim() == 3`, `if not ok: raise ValueError(...)`.

In: statements as `ast` has them, or as they were parsed. Out: whether they complain. Invariant: one that may stand in straight-line
maths takes no part in it: it reads names, assigns none, and what follows it runs only where it said nothing.
"""

import ast
import copy
from collections.abc import Iterator, Sequence

from scaffold.formula.graph import If, Statement

ERRORS = frozenset(
    {"AssertionError", "IndexError", "NotImplementedError", "RuntimeError"}
    | {"TypeError", "ValueError"}
)
LISTED = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def words_of(item: ast.Assert | ast.Raise) -> list[ast.expr] | None:
    """What it says; None for one that a formula cannot say."""
    if isinstance(item, ast.Assert):
        return [item.msg] if item.msg else []
    match item.exc:
        case ast.Name(name) if name in ERRORS:
            return []
        case ast.Call(ast.Name(name), args, []) if name in ERRORS:
            return args
    return None


def guards(body: Sequence[ast.stmt]) -> frozenset[ast.stmt]:
    """The complaints that leave the rest a straight line: each `assert`, and each `raise` that is all of a branch."""
    found = [node for item in body for node in _complaints(item)]
    return frozenset(node for node in found if _is_plain(node))


def complains(statements: Sequence[Statement]) -> bool:
    """Whether a branch ends with an error."""
    last = statements[-1] if statements else None
    if last is None or isinstance(last, If):
        return False
    return last.value.kind == "complaint" and last.value.label.startswith("raise")


def goes_on(item: If) -> tuple[tuple[Statement, ...], ...]:
    """The branches after which the next statement runs."""
    both = (item.body, item.orelse)
    return tuple(branch for branch in both if not complains(branch)) or both


def _complaints(item: ast.stmt) -> Iterator[ast.Assert | ast.Raise]:
    for node in ast.walk(item):
        if isinstance(node, ast.Assert):
            yield node
        elif isinstance(node, ast.If):
            match node.body, node.orelse:
                case [ast.Raise()], [ast.Raise()]:
                    pass
                case [ast.Raise() as only], _:
                    yield only
                case _, [ast.Raise() as only]:
                    yield only


def _is_plain(item: ast.Assert | ast.Raise) -> bool:
    """Whether it says no more than a formula can read."""
    words = words_of(item)
    return words is not None and not any(
        isinstance(node, LISTED) for word in words for node in ast.walk(word)
    )


def parts_of(word: ast.expr) -> list[ast.expr]:
    """The expressions in a message, which may be an f-string; of `type(x)` it is `x`."""
    word = _Untyped().visit(copy.deepcopy(word))
    if not isinstance(word, ast.JoinedStr):
        return [word]
    return [part.value for part in word.values if isinstance(part, ast.FormattedValue)]


class _Untyped(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Name("type"), [only], []):
                return self.visit(only)  # type: ignore[no-any-return]
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node:
            case ast.Attribute(ast.Call(ast.Name("type"), [only], []), "__name__"):
                return self.visit(only)  # type: ignore[no-any-return]
        return self.generic_visit(node)
