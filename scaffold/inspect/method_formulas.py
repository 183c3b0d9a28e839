"""The statements of a method as formulas: what has to do with ctx is resolved, comments stay.

In: the facts of a Function. Out: text in the language of specifications; `Unfit` where a statement has no place in it.
Invariant: every statement is in the text, but for those whose whole effect the specification infers: what is saved,
which branch a gradient stands under, which gradients begin as None.
"""

import ast
import re
from collections.abc import Iterable, Iterator

from scaffold.inspect.facts import Facts, is_none
from scaffold.inspect.flow import LOOPS
from scaffold.inspect.functions import Method

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
            if not _only_asks_need(statement, replaced):
                raise Unfit(statement, "a branch asks more than needs_input_grad")
            yield from statements(facts, method, statement.body, replaced)
            continue
        if method is facts.function.backward and (
            isinstance(statement, ast.Return)
            or _is_recomputed(facts, statement, replaced)
        ):
            continue
        yield comments_above(facts, statement) + text_of(facts, statement, replaced)


def is_inferred(facts: Facts, method: Method, statement: ast.stmt) -> bool:
    """Whether a statement is about ctx, a docstring, or the None that gradients begin with."""
    if isinstance(statement, ast.If) and not facts.materializes:
        test = statement.test
        given = {item.name for item in method.positional}
        absent = (
            isinstance(test, ast.Compare)
            and isinstance(test.ops[0], ast.Is)
            and is_none(test.comparators[0])
            and isinstance(test.left, ast.Name)
            and test.left.id in given
        )
        if absent and isinstance(statement.body[0], ast.Return):
            return not statement.orelse  # no gradient comes in, none goes out
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
        return method is facts.function.backward and _are_none(statement.value)
    return False


def _are_none(node: ast.expr) -> bool:
    return all(map(is_none, node.elts if isinstance(node, ast.Tuple) else [node]))


def _only_asks_need(statement: ast.If, replaced: Replaced) -> bool:
    """Whether a branch is one that the specification infers: of gradients that are needed, and of inputs that are there."""
    stored = {
        replaced.get(node.id, node.id)
        for inner in statement.body
        for node in ast.walk(inner)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return _asks_need_alone(statement.test, stored)


def _asks_need_alone(test: ast.expr, stored: set[str]) -> bool:
    if isinstance(test, ast.BoolOp):
        return all(_asks_need_alone(part, stored) for part in test.values)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name):
        several = test.func.id in ("any", "all") and not test.keywords
        return several and all(_asks_need_alone(part, stored) for part in test.args)
    if isinstance(test, ast.Tuple | ast.List):
        return all(_asks_need_alone(part, stored) for part in test.elts)
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
        there = isinstance(test.ops[0], ast.IsNot) and is_none(test.comparators[0])
        return there and stored == {f"grad_{test.left.id}"}
    if isinstance(test, ast.Subscript):
        test = test.value
    return isinstance(test, ast.Attribute) and test.attr == "needs_input_grad"


def _is_recomputed(facts: Facts, statement: ast.stmt, replaced: Replaced) -> bool:
    """Whether a statement is one of forward's: what it computes is known to a formula by its name."""
    forward, backward = facts.function.forward, facts.function.backward
    if forward is None or backward is None or not isinstance(statement, ast.Assign):
        return False
    known = {ast.dump(other) for other in forward.node.body}
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    if ast.dump(statement) not in known or not names.isdisjoint(replaced):
        return False
    values = facts.values(backward)
    steps = backward.flow.steps
    return not any(rebound(forward, name) for name in names) and all(
        ast.dump(steps[bound.order].statement) in known
        or bound.value is not None
        and values.is_saved(bound.value, steps[bound.order])
        for name in names
        for bound in backward.flow.bindings.get(name, ())
    )


def rebound(method: Method, name: str) -> bool:
    """Whether a name has more than one value in a method."""
    bounds = method.flow.bindings.get(name, ())
    if any(isinstance(guard.node, LOOPS) for b in bounds for guard in b.guards):
        return True
    augmented = any(
        isinstance(step.statement, ast.AugAssign)
        and isinstance(step.statement.target, ast.Name)
        and step.statement.target.id == name
        for step in method.flow.steps
    )
    return augmented or len(bounds) + (name in method.flow.parameters) > 1


def asks_need(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "needs_input_grad"
        for node in ast.walk(test)
    )


def text_of(facts: Facts, node: ast.stmt | ast.expr, replaced: Replaced) -> str:
    """The source of a node, with names and attributes replaced in their places.

    Parentheses around an expression are no part of it: where it means something else without them, they are put back.
    """
    lines = facts.module.text.split("\n")
    rows = lines[node.lineno - 1 : node.end_lineno or node.lineno]
    text = "\n".join(rows).encode()
    starts = [0, *(found.end() for found in re.finditer(rb"\n", text))]

    def offset(line: int, column: int) -> int:
        return starts[line - node.lineno] + column

    first = offset(node.lineno, node.col_offset)
    last = offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
    if len(rows) > 1 and re.search(rb"\"\"\"|\'\'\'", text[first:last]):
        raise Unfit(node, "a string of several lines would be indented otherwise")
    for place, new in sorted(_edits(facts, node, replaced), reverse=True):
        line, column, end_line, end_column, old = place
        start, end = offset(line, column), offset(end_line, end_column)
        if not text[start:end].startswith(old.encode()):
            raise Unfit(node, f"where '{old}' stands in it cannot be told")
        last += len(new.encode()) - (end - start)
        text = text[:start] + new.encode() + text[end:]
    indent = re.match(r"\s*", rows[0])
    assert indent is not None
    found = _dedented(text[first:last].decode(), indent[0])
    return _alone(node, found) if isinstance(node, ast.expr) else found


def _dedented(text: str, indent: str) -> str:
    """The lines after the first without the indentation that the first had."""
    first, *rest = text.split("\n")
    rows = (
        line.removeprefix(indent) if line.startswith(indent) else line.lstrip()
        for line in rest
    )
    return "\n".join([first, *rows]).rstrip()


def _alone(node: ast.expr, text: str) -> str:
    """An expression as it may stand behind `=` or `return`, or between commas."""
    within = f"({text})"
    try:
        meant = ast.dump(ast.parse(f"_ = {within}"))
    except SyntaxError:
        raise Unfit(node, "is no expression of its own") from None
    try:
        same = ast.dump(ast.parse(f"_ = {text}")) == meant
    except SyntaxError:
        same = False
    return text if same else within


Place = tuple[int, int, int, int, str]  # where it begins and ends, and how it begins


def _edits(
    facts: Facts, node: ast.AST, replaced: Replaced
) -> Iterator[tuple[Place, str]]:
    """What stands in place of names and of attributes of ctx; a name that an inner scope binds is not the outer one."""
    methods = (facts.function.forward, facts.function.backward)
    contexts = {method.ctx for method in methods if method and method.ctx}
    bound = _bound_within(node)
    if bound:
        outer = [node.generators[0].iter] if isinstance(node, COMPREHENSIONS) else []
        for inner in outer:
            yield from _edits(facts, inner, replaced)
        inside = {key: text for key, text in replaced.items() if key not in bound}
        for child in ast.iter_child_nodes(node):
            found = list(_edits_below(facts, child, inside, outer))
            caught = bound & words_of(new for _, new in found)
            if caught:
                raise Unfit(node, f"'{min(caught)}' has another meaning within it")
            yield from found
        return
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = node.value.id
        if owner in contexts:
            known = replaced.get(f"ctx.{node.attr}")
            if known is None:
                raise Unfit(node, f"ctx.{node.attr} is not set in sight")
            yield _place(node, owner), known
            return
    if isinstance(node, ast.Name):
        if node.id in contexts:
            raise Unfit(node, f"'{node.id}' itself is handed on")
        new = replaced.get(node.id)
        if new is not None and new != node.id:
            yield _place(node, node.id), new
        return
    for child in ast.iter_child_nodes(node):
        yield from _edits(facts, child, replaced)


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def _edits_below(
    facts: Facts, child: ast.AST, replaced: Replaced, outer: list[ast.expr]
) -> Iterator[tuple[Place, str]]:
    """The edits in a part of an inner scope, but for what is evaluated outside of it."""
    if isinstance(child, ast.comprehension):
        for part in ast.iter_child_nodes(child):
            if part not in outer:
                yield from _edits(facts, part, replaced)
        return
    yield from _edits(facts, child, replaced)


def _bound_within(node: ast.AST) -> frozenset[str]:
    """The names that a lambda, a comprehension or a function binds for itself."""
    if isinstance(node, COMPREHENSIONS):
        parts: list[ast.AST] = [item.target for item in node.generators]
        return frozenset(
            n.id for part in parts for n in ast.walk(part) if isinstance(n, ast.Name)
        )
    if isinstance(node, ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef):
        inner = list(ast.walk(node))
        stored = {
            n.id
            for n in inner
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        return frozenset(stored | {n.arg for n in inner if isinstance(n, ast.arg)})
    return frozenset()


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The names that occur in some texts."""
    return frozenset(re.findall(r"(?<![\w.])[A-Za-z_]\w*", "\n".join(texts)))


def _place(node: ast.expr, old: str) -> Place:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset, *end, old)


def comments_above(facts: Facts, statement: ast.stmt) -> str:
    """The comments that stand right above a statement."""
    lines = facts.module.text.split("\n")
    at = statement.lineno - 2
    found: list[str] = []
    while at >= 0 and lines[at].strip().startswith("#"):
        found.insert(0, lines[at].strip())
        at -= 1
    return "".join(f"{line}\n" for line in found)
