"""What save_for_backward cannot hold, as attributes of ctx.

In: the facts of a Function, a call of save_for_backward and those of its arguments that are no tensors. Out: edits.
Invariant: edits are offered only where the one place that reads what is saved unpacks it into names.
"""

import ast

from scaffold.inspect.facts import ContextCall, Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, span

TAKEN = {"needs_input_grad", "saved_tensors", "saved_variables", "to_save", "metadata"}


def kept_instead(
    facts: Facts, item: ContextCall, plain: list[ast.expr]
) -> tuple[Edit, ...]:
    """The arguments as attributes of ctx, which backward reads under the names it had for them."""
    saver, backward = facts.function.saver, facts.function.backward
    if saver is None or backward is None or item.call.keywords or item.starred:
        return ()
    statement, unpacked = item.step.statement, _unpacking(facts, backward)
    if not isinstance(statement, ast.Expr) or unpacked is None:
        return ()
    assign, targets = unpacked
    if len(facts.context_calls(saver, "save_for_backward")) != 1:
        return ()
    pairs = list(zip(targets, item.call.args, strict=False))
    names = [target.id for target, value in pairs if value in plain]
    known = TAKEN | {kept.name for kept in facts.kept(saver)}
    if len(targets) != len(item.call.args) or known & set(names):
        return ()
    if len(set(names)) != len(names) or any(name.startswith("_") for name in names):
        return ()
    kept = [
        f"{saver.ctx}.{target.id} = {ast.unparse(value)}"
        for target, value in pairs
        if value in plain
    ]
    left = [(target.id, value) for target, value in pairs if value not in plain]
    saved = ", ".join(ast.unparse(value) for _, value in left)
    read = [f"{name} = {backward.ctx}.{name}" for name in names]
    if not left:
        return (*_instead(statement, kept), *_instead(assign, read))
    comma = "," if len(left) == 1 else ""
    shown = f"({', '.join(name for name, _ in left)}{comma})"
    whole = f"{ast.unparse(item.call.func)}({saved})"
    return (
        Edit("replace", span(item.call), whole),
        *(Edit("after", span(statement), text) for text in kept),
        Edit("replace", span(assign.targets[0]), shown),
        *(Edit("after", span(assign), text) for text in read),
    )


def _instead(statement: ast.stmt, texts: list[str]) -> tuple[Edit, ...]:
    """Statements in the place of one."""
    first, *others = texts
    place = span(statement)
    return (Edit("replace", place, first), *(Edit("after", place, t) for t in others))


def _unpacking(
    facts: Facts, backward: Method
) -> tuple[ast.Assign, list[ast.Name]] | None:
    """The one statement that reads the saved tensors, and the names that it binds."""
    nodes = [node for m in facts.function.own for node in ast.walk(m.node)]
    reads = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("saved_tensors", "saved_variables")
    ]
    if len(reads) != 1 or backward not in facts.function.own:
        return None
    for step in backward.flow.steps:
        statement = step.statement
        if not isinstance(statement, ast.Assign) or statement.value is not reads[0]:
            continue
        target = statement.targets[0]
        if len(statement.targets) == 1 and isinstance(target, ast.Tuple):
            names = [item for item in target.elts if isinstance(item, ast.Name)]
            return (statement, names) if len(names) == len(target.elts) else None
    return None
