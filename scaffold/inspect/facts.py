"""Facts of a Function: outputs, gradients, saved values, values on ctx, changes in place.

Each rule of lint, and each step of `adopt` and `test-stub`, asks a `Facts` for what it must know of a user's Function:

    ctx.save_for_backward(x); ctx.n = n      ->  context_calls, kept
    return grad * n, None   (in backward)    ->  gradients: two values; has_gradient("x"): True, has_gradient("n"): False

Words: a *kept* value is assigned to an attribute of ctx; the *saver* is the method with ctx and the inputs, forward or
setup_context; *elements* are those of a written tuple; a Function is *trivial* if backward gives no gradient; *step* and
*reaching* are of `inspect.flow`.

In: a `Function` and its `Module`. Out: `Facts`, each computed once, on request.
Invariant: a fact holds on every run; if the text does not settle it, it is None or not listed. A change of a possible non-tensor,
such as `n += 1`, is marked as not sure.
"""

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from scaffold.formula.optionality import is_none
from scaffold.inspect import vocabulary
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Function, Method, Module, Parameter
from scaffold.inspect.imported_names import (
    Names,
    method_call,
    torch_call,
    unsubscripted,
)
from scaffold.inspect.values import Values, how_many


class Change(NamedTuple):
    """A change of a tensor in place."""

    node: ast.AST  # the statement or call
    target: ast.expr  # the tensor changed
    step: Step
    how: str  # for a message: "augmented assignment", ".add_()"
    sure: bool  # the target is surely a tensor


def changes(values: Values) -> Iterator[Change]:
    """Yield every change of a tensor in place by the method `values` is about, in the order of the text."""
    for step in values.flow.steps:
        yield from _changed_by(values, step)
        for node in step.expressions():
            if isinstance(node, ast.Call):
                yield from _changed_by_call(values, node, step)


def _changed_by(values: Values, step: Step) -> Iterator[Change]:
    """Yield the changes by a statement itself: `y += x`, `y[0] = x`; sure only if `y` is surely a tensor, no number or list."""
    statement = step.statement
    if isinstance(statement, ast.AugAssign):
        target = unsubscripted(statement.target)
        # Of attributes `x.data += 1` alone; `ctx.n += 1` is not followed.
        if isinstance(target, ast.Name) or _is_data(target):
            sure = values.is_tensor(target, step)
            yield Change(statement, target, step, "augmented assignment", sure)
    elif isinstance(statement, ast.Assign):
        for item in statement.targets:
            if isinstance(item, ast.Subscript):
                target = unsubscripted(item)
                sure = values.is_tensor(target, step)
                yield Change(statement, target, step, "item assignment", sure)


def _changed_by_call(values: Values, node: ast.Call, step: Step) -> Iterator[Change]:
    """Yield the tensors a call changes: by `out=`, by `inplace=True`, or by a method such as `add_`.

    `x.copy_(x)`, a tensor copied to itself, is no change.
    """
    name = torch_call(node, values.names)
    for keyword in node.keywords:
        # `name` is "" unless a function of torch is called.
        if name and keyword.arg == "out":
            yield Change(node, keyword.value, step, f"{name}(out=...)", True)
        elif name and keyword.arg == "inplace" and _is_true(keyword.value):
            yield from (
                Change(node, argument, step, f"{name}(inplace=True)", True)
                for argument in node.args[:1]
            )
    if vocabulary.changes(name) and node.args:
        yield Change(node, node.args[0], step, f"{name}()", True)
    name = method_call(node, values.names)
    if vocabulary.changes(name) and isinstance(node.func, ast.Attribute):
        target = node.func.value
        if name == "copy_" and _is_own_copy(node, target):
            return
        root = values.root(target, step)
        # `ctx.pair[0]` is a tensor, where `x[0]` is a part of one.
        if root is None or root.views or root.origin not in ("kept", "saved"):
            target = unsubscripted(target)
        yield Change(node, target, step, f".{name}()", True)


def _is_own_copy(node: ast.Call, target: ast.expr) -> bool:
    """Return whether it is `x.copy_(x)`, a call without effect."""
    return [ast.dump(item) for item in node.args] == [ast.dump(target)]


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _is_data(node: ast.expr) -> bool:
    """Return whether it is `x.data`, the tensor without autograd: `x.data += 1` changes `x`."""
    return isinstance(node, ast.Attribute) and node.attr == "data"


class Kept(NamedTuple):
    """An assignment `ctx.name = value`."""

    name: str
    value: ast.expr
    target: ast.Attribute
    step: Step

    @property
    def parts(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield the name with the value, then each element of a tuple or list: for `ctx.pair = x, n` `pair`, `pair[0]`, `pair[1]`."""
        yield self.name, self.value
        # None if it is no written tuple or list, or has a star.
        for at, item in enumerate(_elements(self.value, ast.List) or ()):
            yield f"{self.name}[{at}]", item


class ContextCall(NamedTuple):
    """A call `ctx.method(...)`."""

    call: ast.Call
    step: Step

    @property
    def starred(self) -> bool:
        """Return whether it passes `*xs`, so that the number of its arguments is unknown."""
        return any(isinstance(item, ast.Starred) for item in self.call.args)

    @property
    def names(self) -> frozenset[str]:
        """Return the names among its arguments, other expressions left out."""
        return frozenset(a.id for a in self.call.args if isinstance(a, ast.Name))


class Returned(NamedTuple):
    """A return statement, or one branch of a returned conditional expression."""

    step: Step
    # None: the text does not list them, or the return is empty.
    values: tuple[ast.expr, ...] | None
    length: int | None  # their number, None if unknown
    node: ast.expr | None  # the expression returned


class Facts:
    """The facts of one Function, for rules and stubs."""

    def __init__(self, function: Function, module: Module) -> None:
        """Start without answers; they are computed at the first question."""
        self.function, self.module = function, module
        self.names: Names = module.names
        self._values: dict[int, Values] = {}
        self._changes: dict[int, tuple[Change, ...]] = {}

    def values(self, method: Method) -> Values:
        """Return the object to ask about a method's expressions, told of all that is known to be a tensor there.

        It is made once for each method.
        """
        if id(method) not in self._values:
            tensors = frozenset(self._tensors(method))
            values = Values(
                method.flow,
                self.names,
                method.ctx,
                tensors,
                frozenset(self._elements(method)),
                frozenset(self._attributes(method)),
            )
            self._values[id(method)] = values
        return self._values[id(method)]

    def _tensors(self, method: Method) -> Iterator[str]:
        """Yield a method's parameters known to be tensors: gradients in backward, inputs with a gradient in forward.

        In setup_context(ctx, inputs, output) it is `output`, if forward has one; several are a tuple.
        """
        if method is self.function.backward:
            yield from (item.name for item in method.positional)
        elif method is self.function.forward:
            for item in method.positional:
                if self.has_gradient(item.name):
                    yield item.name
        elif method is self.function.setup_context and self.output_count == 1:
            # `positional` is without ctx: `output` is the second.
            yield from (item.name for item in method.positional[1:2])

    def _attributes(self, method: Method) -> Iterator[str]:
        """Yield the attributes of ctx, and their elements (`pair[0]`), that are surely tensors in backward: all values kept there are.

        For another method than backward there are none, since only backward reads what forward kept.
        """
        saver, tensors = self.function.saver, dict[str, bool]()
        if method is self.function.backward and saver is not None:
            # Not `self.values`: it asks for the gradients, and these for the values of backward.
            values = Values(saver.flow, self.names, saver.ctx)
            for kept in _ctx_attributes(saver):
                for name, value in kept.parts:
                    sure = values.is_tensor(value, kept.step)
                    # With one `ctx.h = None` among the assignments `ctx.h` is not surely a tensor.
                    tensors[name] = sure and tensors.get(name, True)
        yield from (name for name, sure in tensors.items() if sure)

    def _elements(self, method: Method) -> Iterator[tuple[str, int]]:
        """Yield (parameter, position) for each input with a gradient, an element of setup_context's tuple: `("inputs", 0)`.

        For another method there are none.
        """
        if method is self.function.setup_context and method.positional:
            for position, item in enumerate(self.inputs):
                if self.has_gradient(item.name):
                    yield method.positional[0].name, position

    def is_tensor(self, name: str) -> bool:
        """Return whether an input of forward is evidently a tensor: by its gradient, annotation or use; False if nothing tells."""
        forward = self.function.forward
        return forward is not None and name in self.values(forward).evident

    def changes(self, method: Method) -> tuple[Change, ...]:
        """Return the changes of tensors in place by a method, found once."""
        if id(method) not in self._changes:
            self._changes[id(method)] = tuple(changes(self.values(method)))
        return self._changes[id(method)]

    def context_calls(self, method: Method, name: str) -> tuple[ContextCall, ...]:
        """Return the calls of `ctx.name(...)` in a method, `save_for_backward` for example, each with its step."""
        return tuple(
            ContextCall(node, step)
            for step in method.flow.steps
            for node in step.expressions()
            if isinstance(node, ast.Call)
            and self.values(method).is_ctx(node.func, name)
        )

    def kept(self, method: Method) -> tuple[Kept, ...]:
        """Return the assignments to attributes of ctx in a method, `ctx.n = n`, in the order of the text."""
        return tuple(_ctx_attributes(method))

    def values_on_ctx(self, method: Method, name: str) -> list[tuple[ast.expr, Step]]:
        """Return all values a method assigns to the attribute `name` of ctx, or to an element, `pair[0]`, each with its step.

        So a rule can follow `ctx.h` in backward to the tensor forward kept.
        """
        parts = (
            (kept.step, *part) for kept in self.kept(method) for part in kept.parts
        )
        return [(value, step) for step, part, value in parts if part == name]

    def returned(self, method: Method) -> tuple[Returned, ...]:
        """Return the values a method returns, one entry for each return statement, and for each side of a returned conditional.

        `return a if test else b` gives two.
        """
        found = []
        for step in method.flow.returns:
            assert isinstance(step.statement, ast.Return)
            for node in _alternatives(step.statement.value):
                found.append(self._one_return(method, step, node))
        return tuple(found)

    def _one_return(
        self, method: Method, step: Step, node: ast.expr | None
    ) -> Returned:
        """Return the values of one return, or of `node`, one side of a returned conditional, through names bound to a tuple.

        Its `values` are None if the text does not list them. `shown` is the expression followed so far: for
        `out = (a, b); return out` first `out`, then `(a, b)`.
        """
        values = self.values(method)
        count = how_many(values, node, step)
        shown = node
        # Without a count the value may have grown since: its text does not list all.
        while count is not None and isinstance(shown, ast.Name):
            found = method.flow.sole_value(shown.id, step)  # at an earlier step
            if found is None or not isinstance(found[0], ast.Tuple | ast.Name):
                break
            shown, step = found
        elements = _elements(shown)
        if elements is not None:
            return Returned(step, tuple(elements), count, node)
        # One value that is no tuple: `return y`.
        single = (shown,) if shown is not None and count == 1 else None
        return Returned(step, single, count, node)

    @cached_property
    def gradients(self) -> tuple[Returned, ...]:
        """Return the values backward returns, one gradient for each input, for each of its returns."""
        backward = self.function.backward
        return self.returned(backward) if backward else ()

    @cached_property
    def outputs(self) -> tuple[Returned, ...]:
        """Return the values forward returns, the outputs, for each of its returns."""
        forward = self.function.forward
        return self.returned(forward) if forward else ()

    @cached_property
    def output_count(self) -> int | None:
        """Return the number of outputs, if all returns of forward agree, else None."""
        counts = {item.length for item in self.outputs}
        return counts.pop() if len(counts) == 1 else None

    @cached_property
    def is_trivial(self) -> bool:
        """Return whether backward gives no gradient, so none can be tested: there is none, it raises, or it returns only None."""
        if self.function.backward is None:
            return True
        return not any(
            # None: a bare `return`.
            item.node is not None and not _all_none(item.node)
            for item in self.gradients
        )

    def gradient_of(self, name: str) -> tuple[ast.expr, ...] | None:
        """Return the expressions backward returns for an input's gradient, one for each return; None if one is unknown.

        For `w`: (grad * x,) of `return grad * w, grad * x` after `forward(ctx, x, w)`. A name for None is given as None.
        """
        forward = self.function.forward
        if forward is None:
            return None
        order = [item.name for item in forward.positional]
        # A keyword parameter, or part of `*xs`: its gradient has no known place.
        if name not in order:
            return None
        position, found = order.index(name), []
        for item in self.gradients:
            if item.values is None or position >= len(item.values):
                return None
            found.append(self.if_none(item.values[position], item.step))
        return tuple(found)

    def if_none(self, node: ast.expr, at: Step) -> ast.expr:
        """Return the literal None for a name of backward with no other value, else the node itself.

        So `grad_w = None` and `return grad_x, grad_w` says no gradient for `w`. A name from outside may be anything.
        """
        backward = self.function.backward
        if not isinstance(node, ast.Name) or backward is None:
            return node
        # A nested function may rebind it.
        if node.id in backward.flow.outer:
            return node
        # Without a binding (None) on some path a local would fail; a parameter may be anything.
        # `node` stands for an unknown value, such as the element of a tuple: a name is not None.
        found = [
            bound.value if bound and bound.value and bound.element is None else node
            for bound in backward.flow.reaching(node.id, at)
            if bound or node.id in backward.flow.parameters
        ]
        return found[0] if found and all(map(is_none, found)) else node

    def has_gradient(self, name: str) -> bool | None:
        """Return whether an input gets a gradient, another value than None, by some return of backward; None if unknown."""
        found = self.gradient_of(name)
        if found is None:
            return None
        return any(not is_none(node) for node in found)

    def marked(self, name: str) -> frozenset[str] | None:
        """Return the names forward or setup_context gives to a method of ctx: `x` for `ctx.mark_dirty(x)`; None if one is no name."""
        calls = [*self._context_calls(name)]
        # Fewer names than arguments: one is another expression, as in `ctx.mark_dirty(x.t())`.
        if any(item.starred or len(item.names) < len(item.call.args) for item in calls):
            return None
        return frozenset().union(*(item.names for item in calls))

    def _context_calls(self, name: str) -> Iterator[ContextCall]:
        """Yield the calls of `ctx.{name}` in forward and setup_context."""
        for method in (self.function.forward, self.function.setup_context):
            if method is not None and method.ctx is not None:
                yield from self.context_calls(method, name)

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        return self.function.inputs()

    @cached_property
    def materializes(self) -> bool:
        """Return whether backward gets zeros for the gradient of an unused output: unless `set_materialize_grads(False)` asks for None."""
        for item in self._context_calls("set_materialize_grads"):
            # The first argument, by position or keyword; None if there is none.
            first, *_ = (*item.call.args, *(k.value for k in item.call.keywords), None)
            if isinstance(first, ast.Constant) and first.value is False:
                return False
        return True


def _ctx_attributes(method: Method) -> Iterator[Kept]:
    """Yield the assignments of attributes of ctx in a method."""
    for step in method.flow.steps:
        statement = step.statement
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _ctx_targets(method, target, statement.value, step)
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            yield from _ctx_targets(method, statement.target, statement.value, step)


def _ctx_targets(
    method: Method, target: ast.expr, value: ast.expr, step: Step
) -> Iterator[Kept]:
    """Yield the assignments of attributes of ctx in one statement: `ctx.a, ctx.b = x, y` has two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        # Of unequal lengths one has a star, `ctx.a, *rest = x, y, z`.
        if len(target.elts) == len(value.elts):
            for one, item in zip(target.elts, value.elts, strict=True):
                yield from _ctx_targets(method, one, item, step)
    elif isinstance(target, ast.Attribute):
        owner = target.value
        if isinstance(owner, ast.Name) and owner.id == method.ctx:
            yield Kept(target.attr, value, target, step)


def _elements(
    node: ast.expr | None, also: type[ast.Tuple] | type[ast.List] = ast.Tuple
) -> list[ast.expr] | None:
    """Return the elements of a tuple, or of `(a, b) + (None,) * 3`; None if the text does not list them.

    With `also` as `ast.List`, a list has elements too, as on ctx; to autograd a returned list is one value. A tuple repeated 100
    times or more is not written out.
    """
    if isinstance(node, (ast.Tuple, also)):
        starred = any(isinstance(item, ast.Starred) for item in node.elts)
        return None if starred else node.elts
    match node:
        case ast.BinOp(left, ast.Add(), right):
            one, two = _elements(left), _elements(right)
            return None if one is None or two is None else one + two
        case ast.BinOp(left, ast.Mult(), ast.Constant(int(times))) if times < 100:
            inner = _elements(left)
            return None if inner is None else inner * times
    return None


def _alternatives(node: ast.expr | None) -> Iterator[ast.expr | None]:
    """Yield the values a returned conditional may have: both `a` and `b` of `a if test else b`."""
    if isinstance(node, ast.IfExp):
        yield from _alternatives(node.body)
        yield from _alternatives(node.orelse)
    else:
        yield node


def _all_none(node: ast.expr) -> bool:
    """Return whether an expression consists of None alone: `(None, None)`, `(None,) * n`, `[None for x in xs]`.

    A backward that returns it gives no gradient at all. In a product one side is the count `n`; in a sum both must be None.
    """
    if isinstance(node, ast.Tuple | ast.List):
        return all(_all_none(item) for item in node.elts)
    if isinstance(node, ast.Starred):
        return _all_none(node.value)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return any(_all_none(s) for s in sides) and all(
            _all_none(s) or isinstance(node.op, ast.Mult) for s in sides
        )
    if isinstance(node, ast.ListComp):
        return _all_none(node.elt)
    return is_none(node)
