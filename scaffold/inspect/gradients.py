"""The gradients of a hand-written backward as formulas, by input where each stands alone.

In: the facts of a Function and the names of its outputs. Out: text by input, or under '' what computes several at once.
Invariant: what a formula names is an input, an output, a local of forward or the gradient that comes in.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.inspect.backward_reads import Read, handed
from scaffold.inspect.facts import Facts, is_none
from scaffold.inspect.functions import Method
from scaffold.inspect.method_formulas import (
    Replaced,
    Unfit,
    asks_need,
    is_inferred,
    statements,
    text_of,
    words_of,
)


def backward_text(facts: Facts, outputs: tuple[str, ...]) -> dict[str, str]:
    """The statements of backward: by input where each stands alone, else together under ''."""
    backward = facts.function.backward
    assert backward is not None
    each = _of_each(facts, backward)
    if each is not None:
        return each
    gradients = gradients_by_input(facts)
    replaced = _replaced(facts, backward, outputs, gradients)
    blocks = _blocks(facts, backward, gradients)
    if blocks is not None:
        return {
            name: _returning(list(statements(facts, backward, body, replaced)), name)
            for name, body in blocks.items()
        }
    texts = list(statements(facts, backward, backward.node.body, replaced))
    for name, value in gradients.items():
        text = text_of(facts, value, replaced)
        if text != f"grad_{name}" or not texts:
            texts.append(f"grad_{name} = {text}")
    if len(gradients) == 1:
        (name,) = gradients
        return {name: _returning(texts, name)}
    return {"": "\n".join(texts)} if texts else {}


def _of_each(facts: Facts, backward: Method) -> dict[str, str] | None:
    """The gradient of an element of `*tensors`: `[GRAD if needed else None for needed in ctx.needs_input_grad]`."""
    inputs, body = facts.inputs, backward.node.body
    if len(inputs) != 1 or inputs[0].passing != "variadic" or len(body) != 2:
        return None
    listed, last = body
    value = listed.value if isinstance(listed, ast.Assign) else None
    if not isinstance(value, ast.ListComp) or not isinstance(value.elt, ast.IfExp):
        return None
    first, *others = value.generators
    whole = ast.unparse(first.iter) == f"{backward.ctx}.needs_input_grad"
    asked = ast.unparse(value.elt.test) == ast.unparse(first.target)
    returned = ast.unparse(last) == f"return tuple({ast.unparse(listed.targets[0])})"  # type: ignore[attr-defined]
    if others or first.ifs or not (whole and asked and returned):
        return None
    replaced = {item.name: "grad_output" for item in backward.positional}
    return {inputs[0].name: text_of(facts, value.elt.body, replaced)}


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
        if not isinstance(statement, ast.Return) and not is_inferred(
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
    reads = handed(facts, outputs)
    saved = dict(_saved(facts, backward, reads))
    replaced = dict(_kept(reads)) | {k: v for k, v in saved.items() if k != v}
    wanted = (
        ["grad_output"] if len(outputs) == 1 else [f"grad_{name}" for name in outputs]
    )
    for item, name in zip(backward.positional, wanted, strict=False):
        replaced[item.name] = name
    for name, value in gradients.items():
        if isinstance(value, ast.Name) and value.id not in replaced:
            replaced[value.id] = f"grad_{name}"
    _check_caught(facts, backward, replaced)
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
    backward = facts.function.backward
    last = given[0].step.order
    values = [_needed(value) for value in given[0].values]
    for value in values:
        for node in ast.walk(value):
            bounds = (
                backward.flow.bindings.get(getattr(node, "id", "")) if backward else ()
            )
            if any(bound.order > last for bound in bounds or ()):
                raise Unfit(value, "a gradient has another value where it is returned")
    if any(item.passing != "positional" for item in facts.inputs):
        raise Unfit(facts.function.node, "its arguments are not all positional")
    names = [item.name for item in facts.inputs]
    pairs = zip(names, values, strict=False)
    return {name: value for name, value in pairs if not is_none(value)}


def _needed(value: ast.expr) -> ast.expr:
    """`grad if ctx.needs_input_grad[0] else None` is the gradient."""
    if isinstance(value, ast.IfExp) and is_none(value.orelse):
        asked = isinstance(value.test, ast.Subscript) and asks_need(value.test)
        return value.body if asked else value
    return value


def _kept(handed: tuple[Read, ...]) -> Iterator[tuple[str, str]]:
    """What the attributes of ctx stand for."""
    for item in handed:
        if item.name:
            simple = isinstance(
                item.value, ast.Name | ast.Attribute | ast.Call | ast.Subscript
            )
            text = ast.unparse(item.value)
            yield f"ctx.{item.name}", text if simple else f"({text})"


def _saved(
    facts: Facts, backward: Method, handed: tuple[Read, ...]
) -> Iterator[tuple[str, str]]:
    """The names that saved tensors are unpacked to, and what was saved for them."""
    saved = [_saved_name(item) for item in handed if not item.name]
    values = facts.values(backward)
    for name, bounds in backward.flow.bindings.items():
        for bound in bounds:
            step = backward.flow.steps[bound.order]
            if bound.value is None or not values.is_saved(bound.value, step):
                continue
            if bound.element is None or bound.element >= len(saved) or bound.starred:
                raise Unfit(step.statement, "saved tensors are not unpacked by name")
            yield name, saved[bound.element]


def _saved_name(item: Read) -> str:
    if not isinstance(item.value, ast.Name):
        raise Unfit(item.node, "something without a name is saved")
    return item.value.id


def _attribute(node: ast.expr) -> str:
    """`ctx.eps` of whatever ctx is called."""
    return f"ctx.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _check_caught(facts: Facts, backward: Method, replaced: Replaced) -> None:
    """Refuse a name of forward that is another thing in backward."""
    values = facts.values(backward)
    own = {
        name
        for name, bounds in backward.flow.bindings.items()
        for bound in bounds
        if bound.value is None
        or not values.is_saved(bound.value, backward.flow.steps[bound.order])
        and replaced.get(_attribute(bound.value)) != name  # `eps = ctx.eps`
    }
    own |= {item.name for item in backward.positional}
    kept = {name for name in own if replaced.get(name, name) == name}
    read = words_of(new for old, new in replaced.items() if old != new)
    for name in sorted(read & kept):
        raise Unfit(
            backward.node, f"'{name}' is one thing in forward, and another here"
        )
