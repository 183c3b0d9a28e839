"""Questions shared by rules: guards, calls, whether a backward is once differentiable.

Words: *facts* are what `inspect` knows of one Function; a *step* is a statement of a method with the branches (*guards*) around it;
a method's *flow* are its steps and the bindings of its names; a Function is *once differentiable* if @once_differentiable makes a
second derivative an error.

In: facts, calls, guards. Out: answers, and the edit to add once_differentiable.
Invariant: if the text does not settle a question, the answer is no.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from scaffold.formula.names import names_in, stores
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import DEFINITIONS, Guards, Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import Names, method_call, torch_call
from scaffold.inspect.vocabulary import is_view_attribute
from scaffold.lint.model import Check, Edit, Found, span
from scaffold.primitives.calls import may_share_memory

ONCE = "from torch.autograd.function import once_differentiable"
# Operators of PyTorch itself: its functions, its collectives.
OF_TORCH = ("torch.ops.aten.", "torch.ops.c10d", "torch.ops._c10d")
# Functions of torch.distributed to write into the tensor they are given.
COLLECTIVES = {"all_reduce", "broadcast", "irecv", "recv", "reduce"}
COMPILED = ("_C", "_ext", "_cuda", "_kernels", "_backend", "_triton")

# Attributes that every ctx has.
ATTRIBUTES = {
    *("apply", "apply_boxed", "apply_jvp", "dirty_tensors", "mark_dirty", "name"),
    *("mark_non_differentiable", "mark_shared_storage", "materialize_grads"),
    *("maybe_clear_saved_tensors", "metadata", "needs_input_grad", "next_functions"),
    *("non_differentiable", "register_hook", "register_prehook", "requires_grad"),
    *("save_for_backward", "save_for_forward", "saved_for_forward", "saved_tensors"),
    *("saved_variables", "set_materialize_grads", "to_save"),
}

MethodName = Literal["forward", "setup_context", "saver", "backward"]
MethodCheck = Callable[[Facts, Method], Iterator[Found]]


def for_own(name: MethodName, trivial: bool = True) -> Callable[[MethodCheck], Check]:
    """Call a rule's check with one method of a Function: `@for_own("backward")` before `def find(facts, backward)`.

    Only if the class itself defines the method, since an inherited one is reported for the parent. With `trivial=False` only if
    backward gives a gradient: in a Function without one the mistake does no harm.
    """

    def decorate(check: MethodCheck) -> Check:
        def checked(facts: Facts) -> Iterator[Found]:
            method = getattr(facts.function, name)
            if method in facts.function.own and (trivial or not facts.is_trivial):
                yield from check(facts, method)

        return checked

    return decorate


def never_differentiable(facts: Facts) -> bool:
    """Return whether forward marks every output as non-differentiable, by its name.

    Autograd then never runs backward, so mistakes in it do no harm.
    """
    marked = facts.marked("mark_non_differentiable")
    if not marked:
        return False
    # A name alone may hold several outputs; one that is marked holds a tensor.
    returned = [item.values or (item.node,) for item in facts.outputs]
    return all(
        isinstance(value, ast.Name) and value.id in marked
        for values in returned
        for value in values
    )


def once(facts: Facts) -> tuple[Edit, ...]:
    """Return the edits to add @once_differentiable to backward, and its import if the file has none.

    () if backward is no static method. Rules use it where a second derivative would be silently wrong: it is an error then.
    """
    backward = facts.function.backward
    if backward is None or backward.binding != "static":
        return ()
    name = "once_differentiable"
    for bound, dotted in facts.names.imported.items():
        # Imported already, perhaps under another name (`bound`): no second import.
        if dotted.startswith("torch.") and dotted.endswith(f".{name}"):
            return (Edit("decorate", span(backward.node), bound),)
    return (
        Edit("decorate", span(backward.node), name),
        Edit("import", (1, 0, 1, 0), ONCE),
    )


def inserted_first(method: Method, text: str) -> tuple[Edit, ...]:
    """Return the edit to insert a statement (`text`) at the top of a method, after its docstring."""
    first = method.node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return (Edit("after", span(first), text),)
    return (Edit("before", span(first), text),)


def to_be_marked(
    facts: Facts, outputs: Iterable[tuple[ast.expr, Step, str]]
) -> Iterator[Found]:
    """Yield a finding for each output, returned by a statement, with its message; the fix marks it as non-differentiable.

    There is no fix for an output without a name, or if there is another one to mark: a second marking call would replace the first.
    """
    forward, found = facts.function.forward, list(outputs)
    sole = len(found) == 1 and not facts.marked("mark_non_differentiable")
    for node, step, message in found:
        edits: tuple[Edit, ...] = ()
        if sole and isinstance(node, ast.Name) and forward and forward.ctx:
            mark = f"{forward.ctx}.mark_non_differentiable({node.id})"
            edits = (Edit("before", span(step.statement), mark),)
        yield Found(node, message, edits)


# Decorators that make no tensor contiguous, and set no attribute of ctx but custom_fwd's own, with a leading _.
PLAIN = {
    *("staticmethod", "classmethod", "once_differentiable"),
    *("custom_fwd", "custom_bwd"),
}


def keeps_arguments(method: Method) -> bool:
    """Return whether a method gets the very arguments passed by the autograd engine: a bare ctx, tensors with any strides.

    That is not sure under a decorator other than the PLAIN ones.
    """
    return not {name.split(".")[-1] for name in method.decorators} - PLAIN


def is_ctx(node: ast.AST, method: Method) -> bool:
    """Return whether a node is the name of a method's context."""
    return isinstance(node, ast.Name) and node.id == method.ctx


def value_of(
    facts: Facts, method: Method, node: ast.expr, at: Step
) -> tuple[ast.expr, Step]:
    """Return the expression a name surely stands for at a step, with the statement that binds it; any other node as it is.

    It is found through further names. A name without one such expression is returned, as one changed in place is: after `grad = 0;
    grad += x` it may be a tensor.
    """
    changed = {ast.unparse(change.target) for change in facts.changes(method)}
    while isinstance(node, ast.Name) and node.id not in changed:
        bound = method.flow.definite(node.id, at)
        if bound is None or bound.value is None or bound.element is not None:
            break  # several values reach it, or it is a part of one
        node, at = bound.value, method.flow.steps[bound.order]
    return node, at


def of_torch(method: Method, decorator: str) -> tuple[str, ast.expr] | None:
    """Return torch's decorator of this name on a method, `custom_fwd`: its dotted name and its expression; None without one."""
    named = zip(method.decorators, method.node.decorator_list, strict=True)
    for name, node in named:
        if name.startswith("torch.") and name.endswith(f".{decorator}"):
            return name, node
    return None


def kernels(nodes: Iterable[ast.AST], names: Names) -> Iterator[ast.Call]:
    """Yield the calls that start compiled code, into which autograd does not see."""
    for node in nodes:
        if isinstance(node, ast.Call) and _is_kernel(node, names):
            yield node


def _is_kernel(node: ast.Call, names: Names) -> bool:
    """Return whether a call starts compiled code.

    That is `kernel[grid](x)` of Triton, an operator under `torch.ops`, a function of an extension (`my_C.scale(x)`). `names` are the
    file's imports.
    """
    function = node.func
    if isinstance(function, ast.Subscript):
        # kernel[grid](...): a Name by itself, not an element of a list of functions
        return isinstance(function.value, ast.Name) and (
            "kernel" in function.value.id.lower()
            or "grid" in ast.unparse(function.slice)
        )
    dotted = names.resolve(function)
    if dotted.startswith("torch.ops.") and not dotted.startswith(OF_TORCH):
        return True
    owners = dotted.split(".")[-2:-1]  # the owner of the function itself
    return any(owner.endswith(COMPILED) for owner in owners)


def behind_results(facts: Facts, method: Method) -> Iterator[Step]:
    """Yield the statements whose values may reach a method's result, the nearest first.

    These are its returns, then the statements that bind or change names they read, and so on; a statement may come twice.
    """
    steps, flow = list(method.flow.returns), method.flow
    # Names to look no further for: ctx, imports, and those already followed.
    names = {method.ctx, *(facts.names.imported.keys() - flow.bindings.keys())}
    written = [(step, _written(facts, method, step)) for step in flow.steps]
    while steps:
        yield from steps
        # An inner function reads names of the method; its statements are no steps.
        inner = [s.statement for s in steps if isinstance(s.statement, DEFINITIONS)]
        nodes = (node for step in steps for node in step.expressions())
        wanted = names_in([*inner, *nodes]) - names
        names |= wanted
        steps = [step for step, found in written if wanted & found]


def _written(facts: Facts, method: Method, step: Step) -> set[str]:
    """Return the names a statement binds, and those of tensors it may change.

    For `flat.fill_(0)` after `flat = out.view(-1)` these are `flat` and `out`: names are followed to those they are views of.
    """
    statement, flow = step.statement, method.flow
    if isinstance(statement, DEFINITIONS):
        return {statement.name}
    nodes = list(step.expressions())
    changed = [c.target for c in facts.changes(method) if c.step is step]
    changed += [
        node
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store)
    ]
    if isinstance(statement, ast.Expr):
        changed.append(statement.value)  # a call for its effect
    names, unvisited = set[str](), names_in(changed)
    while unvisited:
        names |= unvisited
        bounds = [b for name in unvisited for b in flow.bindings.get(name, ())]
        # "": the value shares no name's memory.
        unvisited = {_viewed(b.value) for b in bounds if b.value} - {"", *names}
    return names.union(name.id for name in stores(nodes))


def _viewed(node: ast.expr) -> str:
    """Return the name whose memory an expression may share, `out` of `out.view(-1).data[0]`; "" if it shares none's.

    Functions are not looked into: `torch.flatten(out)` gives "torch", a name that no caller asks for.
    """
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        part = node.func if isinstance(node, ast.Call) else node
        if isinstance(part, ast.Attribute):
            if not is_view_attribute(part.attr) and not may_share_memory(part.attr):
                return ""
        elif not isinstance(part, ast.Subscript):
            return ""  # a function's result
        node = part.value
    return node.id if isinstance(node, ast.Name) else ""


def read_for_shape(node: ast.AST, names: Names) -> list[ast.expr]:
    """Return `y` of a call such as `torch.full_like(y, value)`, as a list; [] for any other node. Only its shape is read."""
    if isinstance(node, ast.Call) and torch_call(node, names).endswith("_like"):
        return node.args[:1]
    return []


def detaches(facts: Facts) -> bool:
    """Return whether forward calls detach, as a straight-through estimator does: `x + (x.round() - x).detach()`.

    Then a detached value is a constant to the true second derivative, too.
    """
    forward = facts.function.forward
    calls = ast.walk(forward.node) if forward else ()
    return any(
        isinstance(node, ast.Call) and method_call(node, facts.names) == "detach"
        for node in calls
    )


def input_tested_alone(guards: Guards) -> int | None:
    """Return i if a statement runs only under `if ctx.needs_input_grad[i]`, for one i alone; else None.

    So rules find the input whose gradient a line serves. `guards` are the branches around it. Branches with other tests do not
    count; `else`, or a test of several inputs, gives None.
    """
    indices: set[int] = set()
    for guard in guards:
        if not isinstance(guard.node, ast.If):
            continue
        index = _tested(guard.node.test)
        if index is None:
            if any(
                isinstance(n, ast.Attribute) and n.attr == "needs_input_grad"
                for n in ast.walk(guard.node.test)
            ):
                return None
            continue
        # In the `else` that input needs no gradient.
        if guard.branch != "body":
            return None
        indices.add(index)
    return indices.pop() if len(indices) == 1 else None


def _tested(test: ast.expr) -> int | None:
    """Return i of the test `ctx.needs_input_grad[i]`, alone or as part of an `and`; None for any other test."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        indices = [_tested(value) for value in test.values]
        known = [index for index in indices if index is not None]
        # `needs[0] and needs[1]` is of two inputs.
        return known[0] if len(known) == 1 else None
    return needed_input(test)


def needed_input(node: ast.AST) -> int | None:
    """Return i of `ctx.needs_input_grad[i]`; None for any other node."""
    match node:
        case ast.Subscript(
            ast.Attribute(attr="needs_input_grad"), ast.Constant(int(index))
        ):
            return index
    return None
