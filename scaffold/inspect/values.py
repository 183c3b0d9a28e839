"""Values: for an expression, the memory it shares, its length, whether it is a tensor.

Rules of lint ask before they warn: is `y += x` a change of a tensor, does it change an input, how many gradients does `return grads`
give? Names are followed to their values: after `h = x.view(-1)` the *root* of `h` is the parameter `x`, by a view.

Words: *ctx* is the context parameter; a *saved* tensor is an element of `ctx.saved_tensors`, a *kept* one an attribute `ctx.x`;
*fresh* memory is a new tensor's own; a *view* shares memory; *elements* are tensors in a tuple parameter, `inputs` of
setup_context; an *evident* tensor is a parameter used as only a tensor can be; *depth* limits how many names or levels are followed.

In: a `Flow`, an expression and its step. Out: a `Root`, a count, a kind; None if unknown.
Invariant: an answer holds for every run that reaches the step; a use shows that a parameter is a tensor only if anything else would
fail there.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

from scaffold.formula.operators import is_tensor_word
from scaffold.formula.optionality import is_none
from scaffold.inspect.flow import Bound, Flow, Step
from scaffold.inspect.imported_names import Names, method_call, torch_call
from scaffold.inspect.vocabulary import (
    SHAPELY,
    changes,
    creates,
    is_tensor_call,
    is_view_attribute,
)
from scaffold.primitives.calls import (
    has_memory,
    is_made_of_numbers,
    is_one_tensor,
    is_several_tensors,
    may_be,
    may_share_memory,
)
from scaffold.primitives.python_values import READ_OUT

# Methods that tensors share with other objects: `queue.put`, `rng.normal`, `items.index`.
OF_OTHERS = frozenset(
    {
        *("copy", "cpu", "cuda", "expand", "float", "gather", "get", "int"),
        *("normal", "put", "repeat", "round", "select", "take", "to", "trace"),
        "type",
    }
)


def evident_tensors(flow: Flow, names: Names) -> Iterator[str]:
    """Yield the parameters of a method that are annotated as tensors, and every name that is used as only a tensor can be.

    A name the code itself tests for its type, `isinstance(x, Tensor)` (`asked`), does not count by its use: it may be something
    else.
    """
    arguments = flow.node.args
    for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        # A `Tensor` not imported by name resolves to itself, as after `from torch import *`.
        if names.resolve(item.annotation) in ("torch.Tensor", "Tensor"):
            yield item.arg
    nodes = list(ast.walk(flow.node))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    asked = {
        ast.unparse(node.args[0])
        for node in calls
        if node.args and names.resolve(node.func) in ("isinstance", "torch.is_tensor")
    }
    found = {name for node in calls for name in _evident_in_call(node, names)}
    found.update(_evident_by_attributes(nodes))
    yield from found - asked


def _evident_by_attributes(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield names used as tensors in some nodes: sliced as `x[:, None]`, or read by `x.dtype` and by attributes of tensors alone."""
    read: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            read.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            # `x[:, None]` is a tensor's; `pairs[i, j]` may be a dict's.
            sliced = any(isinstance(part, ast.Slice) for part in node.slice.elts)
            if sliced and isinstance(node.value, ast.Name):
                yield node.value.id
    for name, attributes in read.items():
        # Attributes few other objects have; `shape` an array has too.
        telling = attributes & {"requires_grad", "is_cuda", "dtype", "ndim"}
        if telling and all(map(is_tensor_word, attributes)):
            yield name


def _evident_in_call(node: ast.Call, names: Names) -> Iterator[str]:
    """Yield names a call shows to be tensors: `x.exp()`, `ctx.save_for_backward(x)`, `torch.exp(x)`."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner = function.value.id
        # `torch.exp(x)` has the form of a method call too, but `torch` is a module.
        if owner not in names.imported and _is_of_tensors(function.attr):
            yield owner
        if function.attr in ("save_for_backward", "mark_dirty"):
            yield from (arg.id for arg in node.args if isinstance(arg, ast.Name))
    name = torch_call(node, names)
    if is_tensor_call(name) and _takes_tensor_first(name):
        yield from (arg.id for arg in node.args[:1] if isinstance(arg, ast.Name))


def _is_of_tensors(method: str) -> bool:
    """Return whether only a tensor has a method of this name, so that `x.exp()` shows a tensor; `x.copy()` may be a list's."""
    # These give numbers, so `is_tensor_call` does not know them.
    if method in ("size", "dim", "numel", "stride"):
        return True
    return method not in OF_OTHERS and (is_tensor_call(method) or changes(method))


def _takes_tensor_first(function: str) -> bool:
    """Return whether the first argument of a torch function is one tensor, not a number, size or sequence: not of `zeros`, `cat`."""
    # Their first argument is data, an equation, a mean (perhaps a number), a condition.
    if function in ("as_tensor", "einsum", "normal", "where"):
        return False
    return not is_made_of_numbers(function) and not may_be(function, "joins")


Origin = Literal["parameter", "saved", "kept", "fresh"]
DEPTH = 20  # longer chains of names are not followed


class Root(NamedTuple):
    """The origin of a tensor's memory."""

    origin: Origin
    name: str = ""  # of the parameter, or of the attribute of ctx
    element: int = -1  # of the saved tensors, if it is one of them
    views: tuple[str, ...] = ()  # taken of it, as `t` and `data`; `[]` for an index
    sure: bool = True  # False: a copy for some inputs, as with `.float()`


class Values:
    """Answers about the expressions of one method."""

    def __init__(
        self,
        flow: Flow,
        names: Names,
        ctx: str | None,
        tensors: Iterable[str] = (),
        elements: Iterable[tuple[str, int]] = (),
        attributes: Iterable[str] = (),
    ) -> None:
        """Prepare to answer questions about the method with this flow, in a file with these imports.

        Known to be tensors are `tensors` (parameters), `elements` (of a tuple parameter: its name, a position) and `attributes`
        (of ctx, or elements of one: `pair[0]`).
        """
        self.flow, self.names, self.ctx = flow, names, ctx
        self.tensors = frozenset(tensors)  # parameters known to be tensors
        self.elements = frozenset(elements)  # of tuple parameters
        self.attributes = frozenset(attributes)  # of ctx
        self._tensor: dict[tuple[int, int], bool] = {}  # answers of `is_tensor`

    def root(self, node: ast.expr, at: Step) -> Root | None:
        """Return the origin of an expression's memory at a step, for a rule about changes of it; None unless it is sure."""
        found = self.possible_root(node, at)
        return found if found and found.sure else None

    def possible_root(
        self, node: ast.expr, at: Step, depth: int = DEPTH
    ) -> Root | None:
        """Return the origin of an expression's memory at a step, perhaps for some inputs only; None if unknown.

        A change in place of the expression is one of its origin: a parameter, a saved tensor, an attribute of ctx, or a fresh
        tensor. Names are followed to their values, through at most `depth` of them.
        """
        if depth == 0:
            return None
        if isinstance(node, ast.Name):
            return self._named(node.id, at, depth)
        if isinstance(node, ast.Attribute):
            if is_view_attribute(node.attr):
                found = self.possible_root(node.value, at, depth - 1)
                return found and self._through(found, node.attr)
            # `ctx.h`; the origin of any other attribute, `self.h`, is unknown.
            known = self.is_ctx(node, node.attr) and node.attr in self.attributes
            return Root("kept", node.attr) if known else None
        # Arithmetic makes a new tensor; of lists or numbers, `a + b`, there is no tensor at all.
        if isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp):
            return Root("fresh") if self.is_tensor(node, at) else None
        if isinstance(node, ast.Subscript):
            return self._subscript(node, at, depth)
        if isinstance(node, ast.Call):
            return self._call(node, at, depth)
        return None

    def _named(self, name: str, at: Step, depth: int) -> Root | None:
        """Return the origin of a name's memory: of itself as a parameter, or of the value bound to it; None if unknown.

        After `x, w = ctx.saved_tensors` it is the saved tensor 1 for `w`. `depth`: how many names may still be followed.
        """
        if self.flow.is_parameter(name, at):
            return Root("parameter", name)
        bound = self.flow.definite(name, at)
        if bound is None or bound.value is None:
            return None
        step = self.flow.steps[bound.order]
        if bound.element is None:
            return self.possible_root(bound.value, step, depth - 1)
        if self.is_element(bound, step):
            return Root("parameter", name)
        # After a star, `*more, x = ctx.saved_tensors`, the position is not sure.
        if bound.starred:
            return None
        if self.is_saved(bound.value, step):
            return Root("saved", element=bound.element)
        # `x, n = ctx.pair` reads `ctx.pair[0]` and `ctx.pair[1]`.
        return self._kept(bound.value, bound.element)

    def _kept(self, node: ast.expr, element: int | None) -> Root | None:
        """Return the origin of an element of a tuple on ctx, `ctx.pair[0]`; None if it is not known to be a tensor.

        `node` is the tuple, `element` the position.
        """
        known = isinstance(node, ast.Attribute) and self.is_ctx(node, node.attr)
        name = f"{node.attr}[{element}]" if known else ""  # type: ignore[attr-defined]
        return Root("kept", name) if name in self.attributes else None

    def _subscript(self, node: ast.Subscript, at: Step, depth: int) -> Root | None:
        """Return the origin of the memory of `x[i]`: a saved tensor, an element of an input, or a view; None if unknown.

        If `i` is a name the origin is unknown: an index by a tensor gives a copy, one by a number a view. `depth`: how many levels
        may still be followed.
        """
        if self.is_saved(node.value, at):
            index = node.slice
            if isinstance(index, ast.Constant) and isinstance(index.value, int):
                return Root("saved", element=index.value)
            return None
        if self.is_element(node, at):
            return Root("parameter", ast.unparse(node))
        if kept := self._kept(node.value, _number(node.slice)):
            return kept
        if not _is_basic(node.slice):
            return None
        found = self.possible_root(node.value, at, depth - 1)
        # A part of a fresh tensor is as fresh.
        if found is None or found.origin == "fresh":
            return found
        # `x[0]` of a parameter may be of a list: then it is no view.
        return self._through(found, "[]") if self.is_tensor(node.value, at) else None

    def _call(self, node: ast.Call, at: Step, depth: int) -> Root | None:
        """Return the origin of a call's memory: fresh, or the viewed tensor's; None if unknown.

        An in-place method, `x.add_(1)`, returns its own tensor; `x.float()` may, so its origin is not sure (`sure=False`).
        """
        name = torch_call(node, self.names)
        # `torch.exp(x, out=y)` returns `y`, which need not be fresh.
        if has_memory(name, "fresh") and not _has_out(node):
            return Root("fresh")
        if has_memory(name, "view") and node.args:
            found = self.possible_root(node.args[0], at, depth - 1)
            return found and self._through(found, name)
        name = method_call(node, self.names)
        if not name or not isinstance(node.func, ast.Attribute):
            return None
        base = node.func.value
        if has_memory(name, "view"):
            found = self.possible_root(base, at, depth - 1)
            return found and self._through(found, name)
        # `x.requires_grad_()` returns x too, though it changes no value of it.
        if changes(name) or name == "requires_grad_":
            return self.possible_root(base, at, depth - 1)
        # `x.exp()`: another object than a tensor may return anything from a method of this name.
        if has_memory(name, "fresh") and self.is_tensor(node, at):
            return Root("fresh")
        if is_one_tensor(name) and may_share_memory(name):
            found = self.possible_root(base, at, depth - 1)
            # `x.to(dtype, copy=True)` always copies; the value of `copy` is not looked at.
            copies = any(keyword.arg == "copy" for keyword in node.keywords)
            # Of a fresh tensor the result is fresh either way: itself or its copy.
            fresh = found is not None and found.origin == "fresh"
            if fresh or copies:
                return Root("fresh")
            return found and found._replace(sure=False)
        return None

    @staticmethod
    def _through(found: Root, view: str) -> Root:
        """Return the origin with one more view on the way from it: `t`, `[]`."""
        return found._replace(views=(*found.views, view))

    def is_saved(self, node: ast.expr, at: Step) -> bool:
        """Return whether an expression is all of `ctx.saved_tensors`, or a name bound to it; `saved_variables` is its old spelling."""
        while isinstance(node, ast.Name):
            found = self.flow.sole_value(node.id, at)
            if found is None:
                return False
            node, at = found
        return self.is_ctx(node, "saved_tensors") or self.is_ctx(
            node, "saved_variables"
        )

    def is_ctx(self, node: ast.AST, attribute: str) -> bool:
        """Return whether a node reads or sets the given attribute of ctx: `ctx.scale` for `scale`."""
        return (
            isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.value, ast.Name)
            and node.value.id == self.ctx
        )

    def is_tensor(self, node: ast.expr, at: Step, depth: int = DEPTH) -> bool:
        """Return whether an expression is surely one tensor at a step; False if the text does not tell. Answers are remembered."""
        key = (id(node), at.order)
        if key not in self._tensor:
            self._tensor[key] = False  # a name defined by itself is unknown
            self._tensor[key] = depth > 0 and self._is_tensor(node, at, depth)
        return self._tensor[key]

    def _is_tensor(self, node: ast.expr, at: Step, depth: int) -> bool:
        """Return the answer of `is_tensor`, computed: True only if the expression is surely one tensor.

        `depth`: how many levels, of names or expressions, may still be followed.
        """
        if isinstance(node, ast.Call):
            return self._makes_tensor(node, at, depth)
        if isinstance(node, ast.BinOp):
            return any(
                self.is_tensor(side, at, depth - 1) for side in (node.left, node.right)
            )
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
            # `is` and `in` give a bool, and so does `x == None`.
            elementwise = all(isinstance(op, ordered) for op in node.ops)
            if not elementwise or any(map(is_none, sides)):
                return False
            return any(self.is_tensor(side, at, depth - 1) for side in sides)
        if isinstance(node, ast.UnaryOp):
            # `-x` and `~x` are tensors, `not x` is a bool.
            inverts = not isinstance(node.op, ast.Not)
            return inverts and self.is_tensor(node.operand, at, depth - 1)
        if isinstance(node, ast.Subscript):
            if self._are_tensors(node.value, at):  # a slice of a tuple is a tuple
                return isinstance(node.slice, ast.Constant)
            if self.is_element(node, at) or self._kept(node.value, _number(node.slice)):
                return True
            return self.is_tensor(node.value, at, depth - 1)
        if isinstance(node, ast.Attribute):
            if self.is_ctx(node, node.attr):
                return node.attr in self.attributes
            # Of a real tensor `x.real` is x itself, so it is no view; `x.grad` is another tensor.
            known = is_view_attribute(node.attr) or node.attr in ("grad", "real")
            return known and self.is_tensor(node.value, at, depth - 1)
        if isinstance(node, ast.IfExp):
            both = (node.body, node.orelse)
            return all(self.is_tensor(side, at, depth - 1) for side in both)
        return isinstance(node, ast.Name) and self._tensor_name(node.id, at, depth)

    def _makes_tensor(self, node: ast.Call, at: Step, depth: int) -> bool:
        """Return whether a call surely gives one tensor: a function of torch, or a method, `x.exp()`, of a tensor.

        Only tensors have methods such as `add_` and `new_zeros`, so of these the object need not be known.
        """
        if is_tensor_call(torch_call(node, self.names)):
            return True
        name = method_call(node, self.names)
        if not name:
            return False
        base = node.func.value  # type: ignore[attr-defined]
        if changes(name) or (name.startswith("new_") and creates(name)):
            return True
        return is_tensor_call(name) and self.is_tensor(base, at, depth - 1)

    def _tensor_name(self, name: str, at: Step, depth: int) -> bool:
        """Return whether a name is surely a tensor at a step: every binding that reaches it makes it one."""
        found = self.flow.reaching(name, at)
        # A nested function may rebind the name by `nonlocal`, to anything.
        if name in self.flow.outer:
            return False
        return bool(found) and all(
            self._tensor_bound(name, bound, depth) for bound in found
        )

    def _tensor_bound(self, name: str, bound: Bound | None, depth: int) -> bool:
        """Return whether a binding makes the name a tensor; None stands for the parameter, a tensor if it is an evident one."""
        if bound is None:
            return name in self.evident
        if bound.value is None:  # of a loop or an import, say
            return False
        step = self.flow.steps[bound.order]
        if bound.element is None:
            return self.is_tensor(bound.value, step, depth - 1)
        # One name of several: `x, y = value`.
        kept = None if bound.starred else self._kept(bound.value, bound.element)
        return (
            self.is_element(bound, step)
            or self._are_tensors(bound.value, step)
            or kept is not None
        )

    def is_element(self, taken: Bound | ast.Subscript, at: Step) -> bool:
        """Return whether a binding or an index takes a known tensor from a tuple parameter: `x, y = inputs`, `inputs[0]`."""
        if not isinstance(taken.value, ast.Name):
            return False
        index = taken.element if isinstance(taken, Bound) else _number(taken.slice)
        known = (taken.value.id, index) in self.elements
        return known and self.flow.is_parameter(taken.value.id, at)

    def _are_tensors(self, node: ast.expr, at: Step) -> bool:
        """Return whether an expression is a tuple of tensors: `ctx.saved_tensors`, `x.topk(2)`.

        So is `torch.autograd.grad(y, x, grad_output)`, unless unused inputs are allowed: these give None.
        """
        if not isinstance(node, ast.Call):
            return self.is_saved(node, at)
        if is_several_tensors(torch_call(node, self.names)):
            return True
        name = method_call(node, self.names)
        if name and is_several_tensors(name):
            return self.is_tensor(node.func.value, at)  # type: ignore[attr-defined]
        # None: `**options`, which may hold allow_unused.
        unused = any(item.arg in (None, "allow_unused") for item in node.keywords)
        dotted = self.names.resolve(node.func)
        return dotted == "torch.autograd.grad" and not unused

    @cached_property
    def evident(self) -> frozenset[str]:
        """Return the parameters surely tensors: those given as known (`tensors`), or shown to be by their use or annotation."""
        return self.tensors.union(evident_tensors(self.flow, self.names))


def _number(node: ast.expr) -> int | None:
    """Return the value of an integer literal, None for another expression."""
    known = isinstance(node, ast.Constant) and isinstance(node.value, int)
    return node.value if known else None  # type: ignore[attr-defined]


def _has_out(node: ast.Call) -> bool:
    """Return whether a call writes into a given tensor, by `out=` or `inplace=`, so its result need not be fresh."""
    return any(keyword.arg in ("out", "inplace") for keyword in node.keywords)


def _is_basic(node: ast.expr) -> bool:
    """Return whether an index surely gives a view: slices, numbers, None, `...`; a name may be a tensor, whose index copies."""
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    # -1 is an operator and its operand.
    plain = (x.operand if isinstance(x, ast.UnaryOp) else x for x in parts)
    return all(isinstance(item, ast.Slice | ast.Constant) for item in plain)


def is_shapely(node: ast.AST) -> bool:
    """Return whether an expression describes a tensor and is none itself: `x.shape[0]`, `x.dtype`, `x.item()`, `x.numel()`."""
    if isinstance(node, ast.Subscript):
        return is_shapely(node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "type":
            return not (node.args or node.keywords)  # `x.type(dtype)` is a cast
        return isinstance(node.func, ast.Attribute) and node.func.attr in SHAPELY
    return isinstance(node, ast.Attribute) and node.attr in SHAPELY


def is_metadata(node: ast.AST) -> bool:
    """Return whether an expression describes a tensor without reading its elements: `x.shape[0]`, not `x.item()`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    call = node.func if isinstance(node, ast.Call) else None
    return is_shapely(node) and getattr(call, "attr", "") not in READ_OUT


def how_many(
    values: Values, node: ast.expr | None, at: Step, depth: int = DEPTH
) -> int | None:
    """Return the number of values a return of `node` gives to autograd at a step; None if unknown.

    `return` and `return x` give 1, `return x, None` gives 2; so lint can compare gradients with inputs. Names are followed to
    their values, through at most `depth` of them.
    """
    if node is None:
        return 1
    if depth == 0:
        return None
    # Asked before `_grows`, which takes any `grad.shape` in between for growth.
    if isinstance(node, ast.Constant) or values.is_tensor(node, at):
        return 1
    if isinstance(node, ast.List):
        return None  # for autograd it is one value, and no tensor
    if isinstance(node, ast.Name):
        found = values.flow.sole_value(node.id, at)
        grows = found is None or _grows(values, node.id, found[1], at)
        return how_many(values, *found, depth - 1) if found and not grows else None
    return _length(values, node, at, depth)


def _display_length(
    values: Values, node: ast.Tuple | ast.List, at: Step, depth: int
) -> int | None:
    """Return the length of a written tuple or list, its starred parts included; None if unknown: 3 for `(a, *(b, c))`.

    `at` is the step that reads it; `depth`: how many names may still be followed.
    """
    total = 0
    for item in node.elts:
        if not isinstance(item, ast.Starred):
            total += 1
            continue
        inner = _length(values, item.value, at, depth - 1)
        if inner is None:
            return None
        total += inner
    return total


def _length(values: Values, node: ast.expr, at: Step, depth: int) -> int | None:
    """Return the length of a tuple or list, written there, added up or bound to a name; None if unknown.

    `at` is the step that reads it; `depth`: how many names may still be followed.
    """
    if isinstance(node, ast.Tuple | ast.List):
        return _display_length(values, node, at, depth)
    if isinstance(node, ast.BinOp):
        return _sum_length(values, node, at, depth)
    if isinstance(node, ast.Name):
        found = values.flow.sole_value(node.id, at)
        if found and depth and not _grows(values, node.id, found[1], at):
            return _length(values, *found, depth - 1)
    return None


def _grows(values: Values, name: str, since: Step, until: Step) -> bool:
    """Return whether the list bound to a name may grow between two steps: by `xs.append(x)` or `xs += ...`.

    If it may, the items of its literal are not all it holds. Any attribute or item of it counts, to be on the safe side.
    """
    # The order of a step is its index in `steps`.
    for step in values.flow.steps[since.order + 1 : until.order]:
        for node in step.expressions():
            if isinstance(node, ast.Attribute | ast.Subscript | ast.AugAssign):
                value = getattr(node, "value", None)
                if isinstance(value, ast.Name) and value.id == name:
                    return True
        if isinstance(step.statement, ast.AugAssign):
            target = step.statement.target
            if isinstance(target, ast.Name) and target.id == name:
                return True
    return False


def _sum_length(values: Values, node: ast.BinOp, at: Step, depth: int) -> int | None:
    """Return the length of `(None,) * 3` or `grads + (None, None)`; None if unknown."""
    if isinstance(node.op, ast.Mult):
        for one, times in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, ast.Tuple | ast.List):
                if isinstance(times, ast.Constant) and isinstance(times.value, int):
                    inner = _display_length(values, one, at, depth)
                    return None if inner is None else inner * times.value
                return None
    if isinstance(node.op, ast.Add):
        lengths = [
            _length(values, side, at, depth - 1) for side in (node.left, node.right)
        ]
        if lengths[0] is not None and lengths[1] is not None:
            return lengths[0] + lengths[1]
    return None
