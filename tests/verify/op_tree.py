"""An autograd.Function as a tree, and the places in it where a mistake can be planted.

In: the text of a module, generated or hand-written. Out: an `Op` for each Function, its parts and `Slot`s in them.
Invariant: what a slot holds can be replaced, and the tree still unparses.
"""

import ast
import re
from collections.abc import Iterator
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
        self.replace(expression(template.replace("_", f"({ast.unparse(self.node)})")))

    def replace(self, node: ast.expr) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node

    def below(self, field: str) -> "Slot":
        return Slot(self.node, field, None, self.label)


class Op:
    """The parts of one Function's tree; `name` chooses among several, the first is the default."""

    def __init__(self, text: str, name: str = "") -> None:
        self.text, self.tree = text, ast.parse(text)
        found = function_classes(self.tree)
        node = next(item for item in found if name in ("", item.name))
        bodies = methods(node)
        self.name = node.name
        self.other_backwards = [
            methods(one)["backward"] for one in found if one is not node
        ]
        self.forward, self.backward = bodies["forward"], bodies["backward"]
        self.setup = bodies.get("setup_context", self.forward)

    @property
    def methods(self) -> tuple[ast.FunctionDef, ...]:
        """Those in which mistakes are planted, each once."""
        listed = (self.forward, self.setup, self.backward)
        return listed[self.combined :]

    @property
    def combined(self) -> bool:
        return self.setup is self.forward

    @property
    def lines(self) -> list[ast.stmt]:
        """The statements of backward; where one `with` holds all of them, what it holds."""
        last = self.backward.body[-1]
        return last.body if isinstance(last, ast.With) else self.backward.body

    @property
    def once_differentiable(self) -> bool:
        decorated = len(self.backward.decorator_list) > 1
        return decorated or "torch.is_grad_enabled()" in ast.unparse(self.backward)

    @property
    def parameters(self) -> list[ast.arg]:
        """Those of forward that a caller gives, a variadic one left out."""
        listed = self.forward.args
        return [*listed.posonlyargs, *listed.args][self.combined :]

    @property
    def tensors(self) -> list[str]:
        """The tensor parameters; without annotations, those that are saved."""
        if not any(item.annotation for item in self.parameters):
            saved = {ast.unparse(slot.node) for slot in self.saved()}
            return [item.arg for item in self.parameters if item.arg in saved]
        return [
            item.arg
            for item in self.parameters
            if item.annotation and "Tensor" in ast.unparse(item.annotation)
        ]

    @property
    def inputs(self) -> list[str]:
        star = self.forward.args.vararg
        names = [item.arg for item in self.parameters]
        return [*names, *([star.arg] if star else [])]

    @property
    def without_gradient(self) -> list[str]:
        """The inputs for which backward returns None, always."""
        end = self.lines[-1]
        if not isinstance(end, ast.Return) or not isinstance(end.value, ast.Tuple):
            return []
        pairs = zip(self.inputs, end.value.elts, strict=False)
        return [name for name, value in pairs if is_none(value)]

    @property
    def matrices(self) -> list[str]:
        """The tensor parameters that are not declared to have one dimension."""
        vector = r"{}: (?:\w+ t|T)ensor of shape ``\(\w+,\)``"
        return [x for x in self.tensors if not re.search(vector.format(x), self.text)]

    @property
    def grad_outputs(self) -> list[str]:
        """The output gradients that backward reads."""
        star = self.backward.args.vararg
        names = [item.arg for item in self.backward.args.args[1:]]
        names += [star.arg] if star else []
        return [name for name in names if not name.startswith("_")]

    def gradients(self) -> list[Slot]:
        """Where backward has the value of a gradient."""
        found = [
            slot
            for node in ast.walk(self.backward)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
            for slot in self._values(node)
        ]
        return [slot for slot in found if not is_none(slot.node)]

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
            if isinstance(node, ast.Call) and "save_for_backward" in callee(node):
                return [Slot(node, "args", k) for k in range(len(node.args))]
        return []

    def unpacked(self) -> tuple[int, list[str]]:
        """Which statement of backward unpacks the saved tensors, and their names."""
        for position, node in enumerate(self.lines):
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


def function_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The autograd.Functions of a module that have a forward and a backward; one that only raises has none."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).endswith("Function") for base in node.bases)
        and {"forward", "backward"} <= methods(node).keys()
        and not isinstance(methods(node)["backward"].body[-1], ast.Raise)
    ]


def methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}


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


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""
