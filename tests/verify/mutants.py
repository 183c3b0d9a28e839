"""Mutants: an op's file with one mistake planted, which the op's tests must find.

In: the text of a module with autograd.Functions. Out: a `Mutant` for each mistake and place.
Invariant: a mutant parses and differs from the op; what lies outside the changed methods is the same text.
"""

import ast
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.verify.op_tree import (
    NEEDED,
    Op,
    Slot,
    callee,
    expression,
    function_classes,
    is_none,
    slots,
)

# --- The mistakes: those that hand-written backwards are known for.
#
# In: an `Op`. Out: for each place that its code has for the mistake a label, and what plants it there.
# Invariant: a planted mistake does something else than the op.

Mistake = Callable[[Op], Iterator[tuple[str, Callable[[], None]]]]


def wrong_transpose(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A transpose left out; where there is none, one too many."""
    there = [
        slot
        for slot in slots(op.backward)
        if isinstance(slot.node, ast.Call) and callee(slot.node) == "t"
    ]
    for slot in there:
        receiver = slot.node.func.value  # type: ignore[attr-defined]
        yield ast.unparse(slot.node), lambda slot=slot, to=receiver: slot.replace(to)  # type: ignore[misc]
    for slot in [] if there else op.gradients():
        if slot.label.removeprefix("grad_") in op.matrices:
            yield slot.label, lambda slot=slot: slot.put("_.mT")  # type: ignore[misc]


def missing_sum(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A sum left out, but for the `sum_to_size` of an intermediate gradient: what is made of that is summed to its own shape all the same."""
    summed_later = [
        node.value
        for node in ast.walk(op.backward)
        if isinstance(node, ast.Assign) and not _returned(op, node)
    ]
    for slot in slots(op.backward):
        if isinstance(slot.node, ast.Call) and callee(slot.node).startswith("sum"):
            if callee(slot.node) == "sum_to_size" and slot.node in summed_later:
                continue
            receiver = slot.node.func.value  # type: ignore[attr-defined]
            yield ast.unparse(slot.node), lambda slot=slot, to=receiver: slot.replace(to)  # type: ignore[misc]


def _returned(op: Op, *statements: ast.stmt) -> bool:
    """Whether backward returns something that these statements assign."""
    inside = (node for statement in statements for node in ast.walk(statement))
    names = [node for node in inside if isinstance(node, ast.Name)]
    assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    end = ast.walk(op.lines[-1])
    return any(isinstance(node, ast.Name) and node.id in assigned for node in end)


def swapped_grads(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    end = op.lines[-1]
    if not isinstance(end, ast.Return) or not isinstance(end.value, ast.Tuple):
        return
    elements = end.value.elts
    found = [k for k, item in enumerate(elements) if not is_none(item)]
    for a, b in itertools.pairwise(found):

        def swap(a: int = a, b: int = b) -> None:
            elements[a], elements[b] = elements[b], elements[a]

        yield f"{ast.unparse(elements[a])}, {ast.unparse(elements[b])}", swap


def missing_branch(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A gradient that is computed though nobody needs it; what it reads is saved in any case, or that would be missing instead.

    Not of a value that several gradients share, of which only time is spared, nor in the backward of a backward, whose gradients no test
    looks at one by one.
    """
    if _is_second(op):
        return

    def save_all() -> None:
        for slot in list(slots(op.setup)):
            if isinstance(slot.node, ast.IfExp) and NEEDED in ast.unparse(slot.node):
                slot.replace(slot.node.body)

    for node in ast.walk(op.backward):
        if isinstance(node, ast.If) and NEEDED in ast.unparse(node.test):
            if not _returned(op, *node.body):
                continue

            def always(node: ast.If = node) -> None:
                save_all()
                node.test = expression("True")

            yield ast.unparse(node.test), always
    for slot in slots(op.backward):
        test = ast.unparse(slot.node.test) if isinstance(slot.node, ast.IfExp) else ""
        if NEEDED in test or test == "needed":

            def whole(slot: Slot = slot) -> None:
                save_all()
                slot.replace(slot.node.body)  # type: ignore[attr-defined]

            yield test, whole


def _is_second(op: Op) -> bool:
    """Whether it is the backward of a backward."""
    return f"{op.name}.apply" in "".join(map(ast.unparse, op.other_backwards))


def detach(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A value that second derivatives do not flow through.

    Not where there are none: of an op that is differentiable once, of an input without a gradient, of what is only compared; nor of a
    surrogate gradient, whose tests compare first derivatives; nor in the backward of a backward, or of the gradient of a saved
    value, where it would be third ones.
    """
    surrogate = "The gradient is that of" in op.text
    if op.once_differentiable or surrogate or _is_second(op):
        return
    marked = re.findall(r"mark_non_differentiable\((.*)\)", ast.unparse(op.setup))
    constant = {*"".join(marked).split(", "), *op.without_gradient}
    for name in [*op.grad_outputs, *op.unpacked()[1]]:
        places = [
            slot
            for slot in op.reads(op.backward, name)
            if name not in constant and not name.startswith("extra_grad_")
            if not _compared(op, slot)
        ]
        if places:
            yield name, lambda places=places: _put(places, "_.detach()")  # type: ignore[misc]


def _compared(op: Op, slot: Slot) -> bool:
    """Whether the value only decides a comparison, which has no derivative."""
    return any(
        slot.node in list(ast.walk(node))
        for node in ast.walk(op.backward)
        if isinstance(node, ast.Compare)
    )


def view_for_reshape(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """Also where nothing is reshaped: a view that asks for contiguous memory."""
    for body in (op.forward, op.backward):
        for name in op.matrices:
            places = op.reads(body, name)
            if body is op.forward and op.combined:
                places = [slot for slot in places if not _is_saved(op, slot)]
            if places:
                yield f"{body.name}, {name}", lambda places=places: _put(places, VIEW)  # type: ignore[misc]


VIEW = "_.view(-1).view(_.shape)"


def _is_saved(op: Op, slot: Slot) -> bool:
    calls = [item.owner for item in op.saved()]
    return any(slot.node in list(ast.walk(call)) for call in calls)


def grad_output_view(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """The same of what comes in; not of a loss, whose one number lies in memory in one way, nor of a saved value's gradient."""
    end = op.forward.body[-1]
    value = end.value if isinstance(end, ast.Return) else None
    if isinstance(value, ast.Tuple):
        value = value.elts[0]
    if isinstance(value, ast.UnaryOp):
        value = value.operand
    match value:
        case ast.Call(args=[], keywords=[]) if callee(value) in ("mean", "sum"):
            return
    for name in op.grad_outputs:
        if name.startswith("extra_grad_"):
            continue
        places = op.reads(op.backward, name)
        yield name, lambda places=places: _put(places, VIEW)  # type: ignore[misc]


def tensor_on_ctx(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """Saved past save_for_backward; not in the backward of a backward, whose tensors no test changes or waits for."""
    if _is_second(op):
        return
    position, names = op.unpacked()
    for slot, name in zip(op.saved(), names, strict=False):
        value = slot.node.body if isinstance(slot.node, ast.IfExp) else slot.node
        dropped = re.search(rf"\b_{name}\b.* = \w+\.apply\(", op.text)
        if isinstance(value, ast.Starred) or (
            dropped and "_OnceDifferentiable" in op.text
        ):
            continue  # no caller has it, and no second derivative reads it

        def move(slot: Slot = slot, name: str = name, value: ast.expr = value) -> None:
            slot.replace(expression("None"))
            _insert_before_return(op.setup, f"ctx.held = {ast.unparse(value)}")
            op.lines.insert(position + 1, _statement(f"{name} = ctx.held"))

        yield name, move


def output_on_ctx(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """The same of an output, which makes a cycle of references."""
    if _is_second(op):
        return
    if not op.combined:
        name = op.setup.args.args[-1].arg
        yield name, lambda: _insert_before_return(op.setup, f"ctx.held = {name}")
        return
    end = op.forward.body[-1]
    if isinstance(end, ast.Return) and isinstance(end.value, ast.Name):
        held = end.value.id
        yield held, lambda: _insert_before_return(op.setup, f"ctx.held = {held}")


def missing_check(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A shape that forward does not refuse; where its rank is asked as well, also its sizes alone."""
    for statement in op.forward.body:
        if not isinstance(statement, ast.If) or not _refuses(statement):
            continue
        place = ast.unparse(statement.test)
        yield place, lambda node=statement: setattr(node, "test", expression("False"))  # type: ignore[misc]
        sizes = [slot for slot in slots(statement) if _asks(slot.node, "shape")]
        if any(_asks(slot.node, "ndim") for slot in slots(statement)) and sizes:
            yield f"sizes of {place}", lambda sizes=sizes: _put(sizes, "False")  # type: ignore[misc]


def _refuses(statement: ast.If) -> bool:
    """Whether all that is done is to raise a ValueError for a shape."""
    first, *more = statement.body
    asked = any(_asks(slot.node, "shape", "ndim") for slot in slots(statement))
    raises = isinstance(first, ast.Raise) and "ValueError" in ast.unparse(first)
    return raises and asked and not more and not statement.orelse


def _asks(node: ast.expr, *words: str) -> bool:
    """Whether it compares `x.shape`, `x.shape[-1]` or `x.ndim` with something."""
    left = node.left if isinstance(node, ast.Compare) else None
    left = left.value if isinstance(left, ast.Subscript) else left
    return isinstance(left, ast.Attribute) and left.attr in words


def factor_2(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    for slot in op.gradients():
        yield slot.label, lambda slot=slot: slot.put("2 * _")  # type: ignore[misc]


def sign(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    for slot in op.gradients():
        yield slot.label, lambda slot=slot: slot.put("-_")  # type: ignore[misc]


def _put(places: list[Slot], template: str) -> None:
    for slot in places:
        slot.put(template)


def _statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _insert_before_return(body: ast.FunctionDef, text: str) -> None:
    last = len(body.body) - isinstance(body.body[-1], ast.Return)
    body.body.insert(last, _statement(text))


MISTAKES: tuple[Mistake, ...] = (
    *(wrong_transpose, missing_sum, swapped_grads, missing_branch, detach),
    *(view_for_reshape, grad_output_view, tensor_on_ctx, output_on_ctx),
    *(missing_check, factor_2, sign),
)


# --- Mutants.


class Mutant(NamedTuple):
    """A module with a mistake in it."""

    function: str  # the class
    mistake: str  # what is wrong: "missing_sum"
    place: str  # where: the expression or the name that it concerns
    text: str

    @property
    def name(self) -> str:
        return f"{self.mistake}: {self.place}"


def mutants(text: str) -> tuple[Mutant, ...]:
    """All mutants of a module, each text once."""
    found = {
        mutant.text: mutant
        for node in reversed(function_classes(ast.parse(text)))
        for mistake in reversed(MISTAKES)
        for mutant in reversed(list(_mutants(text, node.name, mistake)))
    }
    return tuple(reversed(found.values()))


def _mutants(text: str, function: str, mistake: Mistake) -> Iterator[Mutant]:
    for number in range(len(list(mistake(Op(text, function))))):
        op = Op(text, function)
        place, plant = list(mistake(op))[number]
        plant()
        mutated = _replaced(text, Op(text, function), op)
        if mutated != text:
            yield Mutant(function, mistake.__name__, place, mutated)


def _replaced(text: str, before: Op, after: Op) -> str:
    """The text with the methods that have changed, the last one first so that lines keep their numbers."""
    lines = text.splitlines(keepends=True)
    pairs = zip(before.methods, after.methods, strict=True)
    for old, new in sorted(pairs, key=lambda pair: -pair[0].lineno):
        if ast.dump(old) != ast.dump(new):
            above = [node.lineno for node in old.decorator_list]
            first = min([old.lineno, *above]) - 1
            indent = " " * old.col_offset
            code = textwrap.indent(ast.unparse(new), indent)
            lines[first : old.end_lineno] = [f"{code}\n"]
    return "".join(lines)
