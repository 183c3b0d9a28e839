"""Value kinds of formula text: a tensor, a Python value, or a tuple of tensors.

The derivation asks it what a name holds: only tensors have gradients and can be saved for the backward; a Python number goes
on ctx as it is.

Words: a *scalar* is any Python value, a number or a shape; a *group* a tuple of tensors; an *array* a value of NumPy or a
similar library. A value may be a number in some calls and a tensor in others: `w.sum() if w is not None else 2.0`.

In: expressions as nodes, and the names that are no tensors. Out: a `ValueKind`. Invariant: in doubt it is a tensor, since
formulas are made of tensors; only tensors are saved for the backward. The element type of a tensor (real, complex,
integer or mask) is a fact of an op of the graph, not of text.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from scaffold.formula.graph import (
    Assign,
    If,
    Lines,
    Node,
    Statement,
    assignments,
    is_of_module,
    unpacked,
)
from scaffold.formula.text import BUILTINS
from scaffold.formula.uses import nodes
from scaffold.primitives.calls import (
    is_made_of_numbers,
    is_several_tensors,
    mask_positions,
    may_be_several_tensors,
)
from scaffold.primitives.python_values import ATTRIBUTES, DTYPES, FUNCTIONS, METHODS

ValueKind = Literal["tensor", "scalar", "group", "array"]

# Options that give a function several results.
OPTIONS_OF_GROUPS = frozenset(
    {"as_tuple", "return_counts", "return_indices", "return_inverse"}
)
SCALAR_CALLS = frozenset(
    {"bool", "float", "int", "isinstance", "len", "list", "range", "tuple"}
)
NUMBERS = frozenset({"e", "inf", "nan", "pi", "tau"})  # of math and of torch
ARRAYS = frozenset({"numpy", "__array__"})
# Comparisons that give a bool, also of tensors.
PLAIN_TESTS = frozenset({"is", "is not", "in", "not in"})


class ValueKinds:
    """The kinds of names, updated statement by statement; a name without an entry is a tensor."""

    def __init__(
        self,
        scalars: Iterable[str],
        groups: Iterable[str] = (),
        arrays: Iterable[str] = (),
    ) -> None:
        """Start from names of Python values, of tuples of tensors, and of imported array libraries; all others are tensors."""
        self.names: dict[str, ValueKind] = dict.fromkeys(scalars, "scalar")
        self.names |= dict.fromkeys(groups, "group")
        # Names of the kind "tensor" that are a number in some calls.
        self.maybe_numbers = set[str]()
        self.arrays = frozenset(arrays)  # imports of NumPy and its like

    def after(self, statements: Iterable[Statement]) -> "ValueKinds":
        """Update these kinds by the statements' assignments, and return them.

        `y += x` of a tensor `y` is a tensor; of a Python number `y` it is one only if `x` is.
        """
        for item in statements:
            if isinstance(item, If):
                self._choose(item)
            elif not item.operator:
                self._learn(item)
            elif self.of(item.target) == "scalar":  # `total += x.sum()`
                both = self._common_kind((item.target, item.value), "tensor")
                self.names[item.target.label] = both
                # Of a number and a tensor the sum is a tensor in every call.
                if not self.may_be_number(item.value):
                    self.maybe_numbers.discard(item.target.label)
        return self

    def of_name(self, name: str) -> ValueKind:
        """Return the kind of a name's value, "tensor" if nothing else is recorded."""
        return self.names.get(name, "tensor")

    def is_tensor(self, name: str) -> bool:
        """Return whether it is a tensor, or None, in every call, and so can be saved."""
        return self.of_name(name) == "tensor" and name not in self.maybe_numbers

    def of(self, node: Node) -> ValueKind:
        """Return the kind of an expression's value; in doubt it is a tensor.

        Of several operands it is a scalar if all are, an array if one is. An item of a group is a tensor.
        """
        match node:
            case Node("binary", _, args):  # first, as most expressions are this
                return self._common_kind(args, "tensor")
            case Node("name", name):
                return "array" if name in self.arrays else self.of_name(name)
            case Node("constant" | "slice" | "absent"):
                return "scalar"
            case Node("tuple" | "list"):
                return self._common_kind(node.args, "group")
            # `torch.float32` is a Python value; `torch.foo` is a function or unknown, so a tensor in doubt.
            case Node("attribute", label, (Node("name", "math" | "torch"),)):
                return "scalar" if label in NUMBERS | DTYPES.keys() else "tensor"
            case Node("attribute", label) if label in ATTRIBUTES:
                return "scalar"
            case Node("attribute" | "subscript", _, (value, *_)):
                kind = self.of(value)
                return "tensor" if kind == "group" else kind
            # The label of `a is b < c` is "is,<".
            case Node("compare", label) if PLAIN_TESTS.intersection(label.split(",")):
                return "scalar"
            case Node("unary", "not"):
                return "scalar"
            case Node("conditional", _, (_, *branches)):
                return self._common_kind(tuple(branches), "tensor")
            case Node("call"):
                return self._of_call(node)
        return self._common_kind(node.args, "tensor")

    def may_be_number(self, node: Node) -> bool:
        """Return whether an expression may be a number in some calls: `w.sum() if w is not None else 2.0`.

        Its kind is then a tensor, but it cannot be saved as one, and a function such as `log` fails for it.
        """
        match node:
            case Node("name", name) if name in self.maybe_numbers:
                return True
            # None is no number: where the value is None, nothing is computed with it.
            case Node("constant", "None"):
                return False
            case Node("conditional", _, (_, *branches)):
                return any(map(self.may_be_number, branches))
            case Node("binary" | "unary" | "compare", _, args):
                return all(map(self.may_be_number, args))
            case Node("call", _, (Node("name", name), *args)) if name in BUILTINS:
                return all(map(self.may_be_number, args))
        return self.of(node) == "scalar"

    def _of_call(self, node: Node) -> ValueKind:
        """Return the kind of a call's result: array (of NumPy), scalar, group (several tensors) or tensor.

        A method of a Python value gives a Python value.
        """
        callee, *args = node.args
        root = callee.root()
        if root.kind == "name" and root.label in self.arrays:
            return "array"
        if root.kind == "name" and root.label == "math":
            return "scalar"
        if callee.kind == "name":
            return self._of_function(callee.label, args)
        if callee.label in ARRAYS:  # `x.numpy()`
            return "array"
        if callee.kind == "attribute" and self._gives_several(node):
            return "group"
        if callee.label in METHODS | FUNCTIONS or callee.label == "type" and not args:
            return "scalar"  # `x.type()` is the name of a type
        # Of `fs[0](x)`, a function of the user's, nothing is known.
        kind = self.of(callee.args[0]) if callee.kind == "attribute" else "tensor"
        return kind if kind in ("scalar", "array") else "tensor"

    def _gives_several(self, node: Node) -> bool:
        """Return whether a call of PyTorch's returns a tuple: `x.max(0)` does, `x.max()` does not."""
        callee, *args = node.args
        of_module = is_of_module(callee.args[0])
        always = is_several_tensors(callee.label)
        if not always and may_be_several_tensors(callee.label):  # with a dim: x.max(0)
            # A function of a module has its tensor before the dim; keywords come last.
            positional = args[: len(args) - len(node.keywords)]
            dim = positional[1:2] if of_module else positional[:1]
            return "dim" in node.keywords or [self.of(x) for x in dim] == ["scalar"]
        if callee.label == "where":
            # `torch.where(condition)`: the indices at which it holds.
            return of_module and len(args) == 1
        return always or not OPTIONS_OF_GROUPS.isdisjoint(node.keywords)

    def _of_function(self, name: str, args: list[Node]) -> ValueKind:
        """Return the kind of the result of a builtin, or of the user's own function."""
        if name in ("tuple", "list"):
            return self._common_kind(tuple(args), "group")
        if name in SCALAR_CALLS:
            return "scalar"
        if name in BUILTINS:  # abs, max, pow: of numbers a number
            return self._common_kind(tuple(args), "tensor")
        return "tensor"

    def _common_kind(self, parts: tuple[Node, ...], mixed: ValueKind) -> ValueKind:
        """Return the kind of a value made of some parts: "scalar" if all are Python values, "array" if one is an array, else `mixed`."""
        kinds = {self.of(part) for part in parts}
        if "array" in kinds:
            return "array"
        return "scalar" if kinds <= {"scalar"} else mixed

    def _choose(self, item: If) -> None:
        """Merge the kinds after both branches of an `if`: a tensor in one, and None (a scalar) in the other, is a tensor.

        A number in either makes a name one that may be a number. Of a tensor and a group, or an array, the kind after `orelse` stands:
        neither is right in every call.
        """
        before, numbers = dict(self.names), {*self.maybe_numbers}
        self.after(item.body)
        after_body, self.names = self.names, before
        numbers_after_body, self.maybe_numbers = self.maybe_numbers, numbers
        self.after(item.orelse)
        self.maybe_numbers |= numbers_after_body
        # A name that one branch alone assigns is read only where that ran: it has the kind from there.
        # (`x = 2.0` in a branch, with an input `x`, is `new_x = x` above the `if` behind `forward.body`.)
        self.names = after_body | self.names
        for name, kind in self.names.items():
            if kind == "scalar":  # then the kind after the body decides
                self.names[name] = after_body.get(name, kind)

    def _learn(self, item: Assign) -> None:
        """Record the kinds of the names an assignment binds: of `a, *b = group`, `a` is a tensor and `b` a group."""
        for target, value in unpacked(item.target, item.value):
            kind = self.of(value)
            if target.kind == "name":
                self.maybe_numbers.discard(target.label)
                if self.may_be_number(value):
                    self.maybe_numbers.add(target.label)
                self.names[target.label] = kind
            for part in target.args if target.kind == "tuple" else ():
                # Several of a tensor, or of a group, are a group.
                star = part.kind == "starred" and kind in ("tensor", "group")
                each = "tensor" if kind == "group" else kind
                self.names |= dict.fromkeys(part.names(), "group" if star else each)


def functions_of_numbers(
    kinds: ValueKinds, forward: Lines, backward: Lines
) -> Iterator[str]:
    """Yield the tensor functions only the backward calls on a value possibly a number: `log` fails for `2.0`.

    They are the reason to leave such a gradient to autograd. `shape` counts too: a number has none. `kinds` are those before the
    first line of the backward; they are updated on the way.
    """
    if not kinds.maybe_numbers:
        return
    old = {*nodes(*forward)}  # what the forward computes works with a number already
    # Values chosen by a test, by name.
    chosen = {
        item.target.label: item.value
        for item in assignments(forward)
        if item.value.kind == "conditional"
    }

    def searched(lines: Lines) -> Iterator[str]:
        """Yield them for lines of the backward."""
        for item in lines:
            for node in nodes(item):
                # Calls in the branches of an `if` are judged below, each in its own branch.
                if isinstance(item, Assign) and node.kind == "call" and node not in old:
                    yield from _function_of_number(kinds, node)
                shape = node.kind == "attribute" and node.label == "shape"
                if shape and node not in old and kinds.may_be_number(node.args[0]):
                    yield node.label
            if isinstance(item, If):
                numbers = {*kinds.maybe_numbers}
                # Of a conditional argument 0 is the test; 1 and 2 are its two values.
                for position, way in ((1, item.body), (2, item.orelse)):
                    kinds.maybe_numbers = {
                        name
                        for name in numbers
                        if _may_be_in_branch(kinds, chosen.get(name), item, position)
                    }
                    yield from searched(way)
                kinds.maybe_numbers = numbers
            else:
                kinds.after((item,))

    yield from searched(backward)


def _may_be_in_branch(
    kinds: ValueKinds, chosen: Node | None, item: If, position: int
) -> bool:
    """Return whether a value that may be a number may be one in a branch of an `if` too; `chosen` is it, if it is a conditional.

    After `x = w if test else 2.0` it is not in the first branch of the same test: there x is `w`. `position` is that of the
    branch's value among the arguments of such a conditional.
    """
    if chosen is None or chosen.args[0] is not item.test:
        return True
    return kinds.may_be_number(chosen.args[position])


def _function_of_number(kinds: ValueKinds, call: Node) -> Iterator[str]:
    """Yield the name of a called tensor function if a tensor argument of it may be a number in some calls."""
    callee, *args = call.args
    if callee.kind == "attribute" and not is_made_of_numbers(callee.label):
        tensors = args if is_of_module(callee) else [*callee.args, *args]
        # The first argument and a mask must be tensors; in other places a number is taken to be allowed.
        places = {0, *mask_positions(callee.label)}
        strict = (each for at, each in enumerate(tensors) if at in places)
        doubtful = [each for each in strict if each.names() & kinds.maybe_numbers]
        if any(map(kinds.may_be_number, doubtful)):
            yield callee.label
