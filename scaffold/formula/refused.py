"""Statements that no formula holds, in words.

In: a statement, and whether it stands in a forward. Out: what is said of it. Invariant: each is called what Python calls it.
"""

import ast

from scaffold.formula.expression import ELSEWHERE

LONGEST = 40  # characters of a statement that is shown
LOOP = ("a loop", "loops stand in a forward alone")
CHECK = "what an input has to be is checked in the forward"
ASYNC = ("async", None)
KINDS: dict[type[ast.stmt], tuple[str, str | None]] = {
    ast.AsyncFor: ASYNC,
    ast.AsyncFunctionDef: ASYNC,
    ast.AsyncWith: ASYNC,
    ast.Assert: ("an assert", CHECK),
    ast.Raise: ("a raise", CHECK),
    ast.ClassDef: ("a class", ELSEWHERE),
    ast.Delete: ("a del", "take it out: what is not saved is freed"),
    ast.For: LOOP,
    ast.While: LOOP,
    ast.FunctionDef: ("a function", "keep it in a file: '@file.py:function'"),
    ast.Global: ("a global", "make it an input"),
    ast.Nonlocal: ("a nonlocal", "assign a name in each function"),
    ast.Import: ("an import", "use --import 'module:name'"),
    ast.ImportFrom: ("an import", "use --import 'module:name'"),
    ast.Match: ("a match", "write it as if and elif"),
    ast.Try: ("a try", "ask with if for what would fail"),
    ast.TryStar: ("a try", "ask with if for what would fail"),
    ast.With: ("a with", ELSEWHERE),
}


def words_on(item: ast.stmt) -> tuple[str, str | None]:
    """What is wrong with a statement, and what to do."""
    if isinstance(item, ast.Expr):
        return _of_expression(item.value)
    if isinstance(item, ast.Return):
        return "a return must be the last statement", "assign a name in each branch"
    if type(item) in KINDS:
        kind, hint = KINDS[type(item)]
        return f"{kind} is not allowed in a formula", hint
    return f"'{_short(item)}' is not allowed in a formula", "write: name = ..."


def _of_expression(value: ast.expr) -> tuple[str, str | None]:
    match value:
        case ast.Call(ast.Name("print")):
            return "a print is not allowed in a formula", "take it out"
        case ast.Call():
            return f"nothing takes what '{_short(value)}' returns", "write: name = ..."
    return f"'{_short(value)}' does nothing", "write: name = ..."


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
