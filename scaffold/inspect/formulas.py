"""The statements of a method as formulas: what has to do with ctx is resolved, comments stay.

In: the facts of a Function. Out: text in the language of specifications; `Unfit` where a statement has no place in it.
Invariant: every statement is in the text, but for those whose whole effect the specification infers: what is saved,
which branch a gradient stands under, which gradients begin as None.
"""

import ast
import re
from collections.abc import Iterator
from textwrap import dedent

from scaffold.inspect.facts import Facts, is_none
from scaffold.inspect.model import Method

Replaced = dict[str, str]  # an attribute of ctx, or a name, -> the text for it
CONTEXT = {
    *("save_for_backward", "save_for_forward", "mark_dirty", "set_materialize_grads"),
    "mark_non_differentiable",
}


class Unfit(Exception):
    """A statement that a specification has no words for."""

    def __init__(self, node: ast.AST, reason: str) -> None:
        super().__init__(reason)
        self.node, self.reason = node, reason


def forward_text(facts: Facts) -> str:
    """The statements of forward without those about ctx."""
    forward = facts.function.forward
    assert forward is not None
    texts = list(statements(facts, forward, forward.node.body, {}))
    only = forward.node.body[-1]
    if len(texts) == 1 and isinstance(only, ast.Return):
        return re.sub(r"^return\s+", "", texts[0])
    return "\n".join(texts)


def statements(
    facts: Facts, method: Method, body: list[ast.stmt], replaced: Replaced
) -> Iterator[str]:
    for statement in body:
        if is_inferred(facts, method, statement):
            continue
        if isinstance(statement, ast.If) and asks_need(statement.test):
            if statement.orelse:
                raise Unfit(statement, "a branch on needs_input_grad has an else")
            yield from statements(facts, method, statement.body, replaced)
            continue
        if method is facts.function.backward and (
            isinstance(statement, ast.Return)
            or _is_recomputed(facts, statement, replaced)
        ):
            continue
        yield _comments(facts, statement) + text_of(facts, statement, replaced)


def is_inferred(facts: Facts, method: Method, statement: ast.stmt) -> bool:
    """Whether a statement is about ctx, a docstring, or the None that gradients begin with."""
    if isinstance(statement, ast.If) and not facts.materializes:
        returns = [s for s in statement.body if isinstance(s, ast.Return)]
        guards = isinstance(statement.test, ast.Compare) and is_none(
            statement.test.comparators[0]
        )
        if guards and returns and len(statement.body) == 1:
            return True  # no gradient comes in, none goes out
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Constant):
            return True
        called = value.func if isinstance(value, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in CONTEXT:
            return isinstance(called.value, ast.Name) and called.value.id == method.ctx
    if isinstance(statement, ast.Assign):
        targets = statement.targets
        owned = [t for t in targets if isinstance(t, ast.Attribute)]
        if owned and len(owned) == len(targets):
            return all(
                isinstance(t.value, ast.Name) and t.value.id == method.ctx
                for t in owned
            )
        values = facts.values(method)
        step = next(s for s in method.flow.steps if s.statement is statement)
        if values.is_saved(statement.value, step):
            return True
        return method is facts.function.backward and is_none(statement.value)
    return False


def _is_recomputed(facts: Facts, statement: ast.stmt, replaced: Replaced) -> bool:
    """Whether a statement is one of forward's: what it computes is known to a formula by its name."""
    forward = facts.function.forward
    same = ast.dump(statement)
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    if not names.isdisjoint(replaced):
        return False
    return isinstance(statement, ast.Assign) and any(
        ast.dump(other) == same for other in (forward.node.body if forward else ())
    )


def asks_need(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "needs_input_grad"
        for node in ast.walk(test)
    )


def text_of(facts: Facts, node: ast.stmt | ast.expr, replaced: Replaced) -> str:
    """The source of a node, with names and attributes replaced in their places."""
    lines = facts.module.text.split("\n")
    first, last = node.lineno, node.end_lineno or node.lineno
    rows = [line.encode() for line in lines[first - 1 : last]]
    edits = []
    for inner in ast.walk(node):
        new = _new_text(facts, inner, replaced)
        if new is not None and isinstance(inner, ast.expr):
            place = (inner.lineno - first, inner.col_offset, inner.end_col_offset or 0)
            edits.append((*place, new.encode()))
    rows[-1] = rows[-1][: node.end_col_offset]
    for row, start, end, new_bytes in sorted(set(edits), reverse=True):
        rows[row] = rows[row][:start] + new_bytes + rows[row][end:]
    rows[0] = b" " * node.col_offset + rows[0][node.col_offset :]
    return dedent("\n".join(row.decode() for row in rows)).strip()


def _new_text(facts: Facts, node: ast.AST, replaced: Replaced) -> str | None:
    if isinstance(node, ast.Name):
        return replaced.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        contexts = {
            m.ctx for m in (facts.function.forward, facts.function.backward) if m
        }
        if node.value.id in contexts - {None}:
            known = replaced.get(f"ctx.{node.attr}")
            if known is None:
                raise Unfit(node, f"ctx.{node.attr} is not set in sight")
            return known
    return None


def _comments(facts: Facts, statement: ast.stmt) -> str:
    """The comments that stand right above a statement."""
    lines = facts.module.text.split("\n")
    at = statement.lineno - 2
    found: list[str] = []
    while at >= 0 and lines[at].strip().startswith("#"):
        found.insert(0, lines[at].strip())
        at -= 1
    return "".join(f"{line}\n" for line in found)
