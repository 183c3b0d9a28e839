"""The statements of forward and backward as formulas: what has to do with ctx is resolved, comments stay.

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
    texts = list(_statements(facts, forward, forward.node.body, {}))
    only = forward.node.body[-1]
    if len(texts) == 1 and isinstance(only, ast.Return):
        return re.sub(r"^return\s+", "", texts[0])
    return "\n".join(texts)


def backward_text(facts: Facts, outputs: tuple[str, ...]) -> dict[str, str]:
    """The statements of backward: by input where each stands alone, else together under ''."""
    backward = facts.function.backward
    assert backward is not None
    gradients = gradients_by_input(facts)
    replaced = _replaced(facts, backward, outputs, gradients)
    blocks = _blocks(facts, backward, gradients)
    if blocks is not None:
        return {
            name: _returning(list(_statements(facts, backward, body, replaced)), name)
            for name, body in blocks.items()
        }
    texts = list(_statements(facts, backward, backward.node.body, replaced))
    for name, value in gradients.items():
        text = _text(facts, value, replaced)
        if text != f"grad_{name}":
            texts.append(f"grad_{name} = {text}")
    if len(gradients) == 1:
        (name,) = gradients
        return {name: _returning(texts, name)}
    return {"": "\n".join(texts)} if texts else {}


def _returning(texts: list[str], name: str) -> str:
    """Statements whose last one assigns the gradient, as those that return it; one alone is an expression."""
    *before, last = texts
    comment, _, statement = (
        last.rpartition("\n") if last.startswith("#") else ("", "", last)
    )
    matched = re.match(rf"grad_{name}(?:\s*:[^=]*)?\s*=\s*", statement)
    if matched is None:
        return "\n".join([*texts, f"return grad_{name}"])
    value = statement[matched.end() :]
    if not before and not comment:
        return value
    return "\n".join([*before, *([comment] if comment else []), f"return {value}"])


def _blocks(
    facts: Facts, backward: Method, gradients: dict[str, ast.expr]
) -> dict[str, list[ast.stmt]] | None:
    """The branches of needs_input_grad, if there is one for each gradient and nothing beside them."""
    names = [item.name for item in facts.inputs]
    found: dict[str, list[ast.stmt]] = {}
    for statement in backward.node.body:
        if isinstance(statement, ast.If) and not statement.orelse:
            index = asked_for(statement.test, backward.ctx)
            if index is not None and index < len(names):
                found[names[index]] = statement.body
                continue
        if not isinstance(statement, ast.Return) and not _is_inferred(
            facts, backward, statement
        ):
            return None
    alone = all(
        isinstance(value, ast.Name) and _binds(found.get(name, []), value.id)
        for name, value in gradients.items()
    )
    return found if alone and found.keys() == gradients.keys() else None


def _binds(body: list[ast.stmt], name: str) -> bool:
    last = body[-1] if body else None
    if isinstance(last, ast.AnnAssign):
        return isinstance(last.target, ast.Name) and last.target.id == name
    return isinstance(last, ast.Assign) and [ast.unparse(t) for t in last.targets] == [
        name
    ]


def asked_for(test: ast.expr, ctx: str | None) -> int | None:
    """The position in `ctx.needs_input_grad[i]`."""
    if not isinstance(test, ast.Subscript) or not isinstance(test.slice, ast.Constant):
        return None
    plain = ast.unparse(test.value) == f"{ctx}.needs_input_grad"
    return test.slice.value if plain and isinstance(test.slice.value, int) else None


def _replaced(
    facts: Facts,
    backward: Method,
    outputs: tuple[str, ...],
    gradients: dict[str, ast.expr],
) -> Replaced:
    """What the names of backward are called in a formula."""
    replaced = dict(_attributes(facts))
    replaced |= _saved(facts, backward)
    wanted = (
        ["grad_output"] if len(outputs) == 1 else [f"grad_{name}" for name in outputs]
    )
    for item, name in zip(backward.positional, wanted, strict=False):
        replaced[item.name] = name
    for name, value in gradients.items():
        if isinstance(value, ast.Name) and value.id not in replaced:
            replaced[value.id] = f"grad_{name}"
    return replaced


def gradients_by_input(facts: Facts) -> dict[str, ast.expr]:
    """What backward returns for each input, but for None."""
    given = [
        item
        for item in facts.gradients
        if item.node is not None and not all(map(is_none, item.values or (item.node,)))
    ]
    if not given:
        return {}
    if len(given) != 1 or given[0].values is None:
        raise Unfit(facts.function.node, "backward returns in several places")
    names = [item.name for item in facts.inputs]
    pairs = zip(names, map(_needed, given[0].values), strict=False)
    return {name: value for name, value in pairs if not is_none(value)}


def _needed(value: ast.expr) -> ast.expr:
    """`grad if ctx.needs_input_grad[0] else None` is the gradient."""
    if (
        isinstance(value, ast.IfExp)
        and is_none(value.orelse)
        and _asks_need(value.test)
    ):
        return value.body
    return value


def _attributes(facts: Facts) -> Iterator[tuple[str, str]]:
    """What the attributes of ctx stand for."""
    saver = facts.function.saver
    for item in facts.kept(saver) if saver else ():
        value = item.value
        if isinstance(value, ast.IfExp) and is_none(value.orelse):
            value = value.body  # `x.shape if x is not None else None`
        text = ast.unparse(value)
        simple = isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        yield f"ctx.{item.name}", text if simple else f"({text})"


def _saved(facts: Facts, backward: Method) -> Replaced:
    """The names that saved tensors are unpacked to, and what was saved for them."""
    saver = facts.function.saver
    calls = facts.context_calls(saver, "save_for_backward") if saver else ()
    if len(calls) > 1 or any(call.starred for call in calls):
        raise Unfit(facts.function.node, "what is saved depends on the branch")
    saved = [_saved_name(node) for node in calls[0].call.args] if calls else []
    found: Replaced = {}
    values = facts.values(backward)
    for name, bounds in backward.flow.bindings.items():
        for bound in bounds:
            step = backward.flow.steps[bound.order]
            if bound.value is None or not values.is_saved(bound.value, step):
                continue
            if bound.element is None or bound.element >= len(saved) or bound.starred:
                raise Unfit(step.statement, "saved tensors are not unpacked by name")
            if saved[bound.element] != name:
                found[name] = saved[bound.element]
    return found


def _saved_name(node: ast.expr) -> str:
    if isinstance(node, ast.IfExp) and is_none(node.orelse):
        node = node.body
    if not isinstance(node, ast.Name):
        raise Unfit(node, "something without a name is saved")
    return node.id


def _statements(
    facts: Facts, method: Method, body: list[ast.stmt], replaced: Replaced
) -> Iterator[str]:
    for statement in body:
        if _is_inferred(facts, method, statement):
            continue
        if isinstance(statement, ast.If) and _asks_need(statement.test):
            if statement.orelse:
                raise Unfit(statement, "a branch on needs_input_grad has an else")
            yield from _statements(facts, method, statement.body, replaced)
            continue
        if isinstance(statement, ast.Return) and method is facts.function.backward:
            continue
        yield _comments(facts, statement) + _text(facts, statement, replaced)


def _is_inferred(facts: Facts, method: Method, statement: ast.stmt) -> bool:
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


def _asks_need(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "needs_input_grad"
        for node in ast.walk(test)
    )


def _text(facts: Facts, node: ast.stmt | ast.expr, replaced: Replaced) -> str:
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
