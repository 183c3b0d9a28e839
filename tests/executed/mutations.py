"""Mistakes planted in a generated op, wherever its code has a place for them.

In: the text of an op's file. Out: the text with one mistake, by the name of the mistake.
Invariant: a mutant parses, and does something else than the op.
"""

import ast
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

NEEDED = "needs_input_grad"


@dataclass(frozen=True)
class Slot:
    """A place in the tree that holds an expression."""

    owner: ast.AST
    field: str
    index: int | None
    label: str = ""

    @property
    def node(self) -> ast.expr:
        held = getattr(self.owner, self.field)
        found: ast.expr = held if self.index is None else held[self.index]
        return found

    def put(self, template: str) -> None:
        """Put an expression there, in which `_` stands for the present one."""
        self.replace(_expression(template.replace("_", f"({ast.unparse(self.node)})")))

    def replace(self, node: ast.expr) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node

    def below(self, field: str) -> "Slot":
        return Slot(self.node, field, None, self.label)


class Op:
    """The parts of a generated op's tree."""

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        bodies = {
            item.name: item
            for node in self.tree.body
            if isinstance(node, ast.ClassDef) and node.name.endswith("Function")
            for item in node.body
            if isinstance(item, ast.FunctionDef)
        }
        self.forward, self.backward = bodies["forward"], bodies["backward"]
        self.setup = bodies.get("setup_context", self.forward)

    @property
    def combined(self) -> bool:
        return self.setup is self.forward

    @property
    def once_differentiable(self) -> bool:
        return len(self.backward.decorator_list) > 1

    @property
    def tensors(self) -> list[str]:
        """The tensor parameters of forward, a variadic one left out."""
        return [
            item.arg
            for item in self.forward.args.args
            if item.annotation and "Tensor" in ast.unparse(item.annotation)
        ]

    @property
    def inputs(self) -> list[str]:
        names = [item.arg for item in self.forward.args.args if item.arg != "ctx"]
        star = self.forward.args.vararg
        return [*names, *([star.arg] if star else [])]

    @property
    def matrices(self) -> list[str]:
        """The tensor parameters that are not declared to have one dimension."""
        vector = r"{}: Tensor of shape ``\(\w+,\)``"
        return [x for x in self.tensors if not re.search(vector.format(x), self.text)]

    @property
    def grad_outputs(self) -> list[str]:
        """The output gradients that backward reads."""
        names = [item.arg for item in self.backward.args.args[1:]]
        return [name for name in names if not name.startswith("_")]

    def gradients(self) -> list[Slot]:
        """Where backward has the value of a gradient."""
        found = [
            slot
            for node in ast.walk(self.backward)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
            for slot in self._values(node)
        ]
        return [slot for slot in found if not _is_none(slot.node)]

    def _values(self, node: ast.Assign | ast.AnnAssign | ast.Return) -> Iterator[Slot]:
        if isinstance(node, ast.Return):
            yield from self._returned(node)
            return
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Subscript):
            target = target.value
        name = target.id if isinstance(target, ast.Name) else ""
        if name.removeprefix("grad_") in self.inputs and name.startswith("grad_"):
            yield _inner(Slot(node, "value", None, name))

    def _returned(self, node: ast.Return) -> Iterator[Slot]:
        if isinstance(node.value, ast.Tuple):
            slots = [Slot(node.value, "elts", k) for k in range(len(node.value.elts))]
        else:
            slots = [Slot(node, "value", None)] if node.value else []
        for slot, name in zip(slots, self.inputs, strict=False):
            if isinstance(slot.node, ast.IfExp):
                yield Slot(slot.node, "body", None, f"grad_{name}")
            elif not isinstance(slot.node, ast.Starred) and ast.unparse(
                slot.node
            ) not in (f"grad_{name}", f"tuple(grad_{name})"):
                yield Slot(slot.owner, slot.field, slot.index, f"grad_{name}")

    def saved(self) -> list[Slot]:
        """The arguments of save_for_backward, with the names they are saved under."""
        for node in ast.walk(self.setup):
            if isinstance(node, ast.Call) and "save_for_backward" in _callee(node):
                return [Slot(node, "args", k) for k in range(len(node.args))]
        return []

    def unpacked(self) -> tuple[int, list[str]]:
        """Which statement of backward unpacks the saved tensors, and their names."""
        for position, node in enumerate(self.backward.body):
            if isinstance(node, ast.Assign) and "saved_tensors" in ast.dump(node.value):
                target = node.targets[0]
                if isinstance(target, ast.Tuple):
                    return position, [ast.unparse(item) for item in target.elts]
        return 0, []

    def reads(self, body: ast.FunctionDef, name: str) -> list[Slot]:
        """Where a body reads the data of a tensor."""
        return [
            slot
            for slot in slots(body)
            if isinstance(slot.node, ast.Name)
            and slot.node.id == name
            and isinstance(slot.node.ctx, ast.Load)
            and not isinstance(slot.owner, ast.Compare)
            and not (
                isinstance(slot.owner, ast.Attribute) and slot.owner.attr == "shape"
            )
        ]


def slots(root: ast.AST) -> Iterator[Slot]:
    """Every place of an expression below a node."""
    for owner in ast.walk(root):
        for field, held in ast.iter_fields(owner):
            if isinstance(held, ast.expr):
                yield Slot(owner, field, None)
            elif isinstance(held, list):
                for index, item in enumerate(held):
                    if isinstance(item, ast.expr):
                        yield Slot(owner, field, index)


def _inner(slot: Slot) -> Slot:
    """The value itself, out of a comprehension and a conditional on what is needed."""
    if isinstance(slot.node, ast.ListComp):
        slot = slot.below("elt")
    if isinstance(slot.node, ast.IfExp) and "needed" in ast.unparse(slot.node.test):
        slot = slot.below("body")
    return slot


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


Mistake = Callable[[Op], Iterator[tuple[str, Callable[[], None]]]]


def wrong_transpose(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """A transpose left out; where there is none, one too many."""
    there = [
        slot
        for slot in slots(op.backward)
        if isinstance(slot.node, ast.Call) and _callee(slot.node) == "t"
    ]
    for slot in there:
        receiver = slot.node.func.value  # type: ignore[attr-defined]
        yield ast.unparse(slot.node), lambda slot=slot, to=receiver: slot.replace(to)  # type: ignore[misc]
    for slot in [] if there else op.gradients():
        if slot.label.removeprefix("grad_") in op.matrices:
            yield slot.label, lambda slot=slot: slot.put("_.mT")  # type: ignore[misc]


def missing_sum(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    for slot in slots(op.backward):
        if isinstance(slot.node, ast.Call) and _callee(slot.node).startswith("sum"):
            receiver = slot.node.func.value  # type: ignore[attr-defined]
            yield ast.unparse(slot.node), lambda slot=slot, to=receiver: slot.replace(to)  # type: ignore[misc]


def swapped_grads(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    (end,) = (node for node in op.backward.body[-1:] if isinstance(node, ast.Return))
    if not isinstance(end.value, ast.Tuple):
        return
    elements = end.value.elts
    found = [k for k, item in enumerate(elements) if not _is_none(item)]
    for a, b in itertools.pairwise(found):

        def swap(a: int = a, b: int = b) -> None:
            elements[a], elements[b] = elements[b], elements[a]

        yield f"{ast.unparse(elements[a])}, {ast.unparse(elements[b])}", swap


def missing_branch(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """What the branch needs is saved all the same, or the mistake would be another."""

    def save_all() -> None:
        for slot in list(slots(op.setup)):
            if isinstance(slot.node, ast.IfExp) and NEEDED in ast.unparse(slot.node):
                slot.replace(slot.node.body)

    for node in ast.walk(op.backward):
        if isinstance(node, ast.If) and NEEDED in ast.unparse(node.test):

            def always(node: ast.If = node) -> None:
                save_all()
                node.test = _expression("True")

            yield ast.unparse(node.test), always
    for slot in slots(op.backward):
        test = ast.unparse(slot.node.test) if isinstance(slot.node, ast.IfExp) else ""
        if NEEDED in test or test == "needed":

            def whole(slot: Slot = slot) -> None:
                save_all()
                slot.replace(slot.node.body)  # type: ignore[attr-defined]

            yield test, whole


def detach(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """Nothing that would stop a second derivative counts where there is none.

    Nor where the gradient is a surrogate: its tests compare first derivatives.
    """
    if op.once_differentiable or "The gradient is that of" in op.text:
        return
    constant = re.findall(r"mark_non_differentiable\((.*)\)", ast.unparse(op.setup))
    for name in [*op.grad_outputs, *op.unpacked()[1]]:
        places = [
            slot
            for slot in op.reads(op.backward, name)
            if name not in "".join(constant).split(", ") and not _compared(op, slot)
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
    for name in op.grad_outputs:
        places = op.reads(op.backward, name)
        yield name, lambda places=places: _put(places, VIEW)  # type: ignore[misc]


def tensor_on_ctx(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    """Saved past save_for_backward."""
    position, names = op.unpacked()
    for slot, name in zip(op.saved(), names, strict=False):
        value = slot.node.body if isinstance(slot.node, ast.IfExp) else slot.node
        if isinstance(value, ast.Starred) or f"_{name} = apply(" in op.text:
            continue  # no caller ever has what the wrapper drops

        def move(slot: Slot = slot, name: str = name, value: ast.expr = value) -> None:
            slot.replace(_expression("None"))
            _insert_before_return(op.setup, f"ctx.held = {ast.unparse(value)}")
            op.backward.body.insert(position + 1, _statement(f"{name} = ctx.held"))

        yield name, move


def output_on_ctx(op: Op) -> Iterator[tuple[str, Callable[[], None]]]:
    if not op.combined:
        name = op.setup.args.args[-1].arg
        yield name, lambda: _insert_before_return(op.setup, f"ctx.held = {name}")
        return
    end = op.forward.body[-1]
    if isinstance(end, ast.Return) and isinstance(end.value, ast.Name):
        held = end.value.id
        yield held, lambda: _insert_before_return(op.setup, f"ctx.held = {held}")


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
    *(factor_2, sign),
)


def mutants(text: str) -> dict[str, str]:
    """The mutants of an op by name."""
    return {
        f"{mistake.__name__}: {label}": mutated
        for mistake in MISTAKES
        for label, mutated in _mutated(text, mistake)
    }


def _mutated(text: str, mistake: Mistake) -> Iterator[tuple[str, str]]:
    for number in range(len(list(mistake(Op(text))))):
        op = Op(text)
        label, plant = list(mistake(op))[number]
        plant()
        mutated = ast.unparse(op.tree)
        assert mutated != ast.unparse(ast.parse(text)), f"{label}: the op as it was"
        yield label, mutated
