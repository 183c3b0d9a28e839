"""Values saved in the wrong way: tensors as attributes of ctx, others through save_for_backward.

The rules AF01, AF02 and AF06 report them: a tensor on ctx escapes autograd's checks and may be a reference cycle; a number given
to save_for_backward is a TypeError. Other rules share its questions about saved values.

In: the facts of a Function, a call of save_for_backward and its arguments that are no tensors. Out: the kept values that are
outputs, and the other tensors; edits. Invariant: edits are offered only if a single place reads the saved values and unpacks
them to names.

Words: the *saver* is the method that saves, setup_context or else forward; a value is *kept* by `ctx.name = value`; a *step* is one
statement of a method, with the branches (guards) around it; a *root* is the origin of a tensor's memory, as a parameter or a saved
tensor; `flow` are the bindings of a method's names; `own` are the methods that the class itself defines.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import ContextCall, Facts, Kept
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.values import is_metadata
from scaffold.inspect.vocabulary import creates
from scaffold.lint.model import Edit, span
from scaffold.lint.questions import ATTRIBUTES, inserted_first
from scaffold.primitives.calls import is_constant, is_discrete


def outputs_on_ctx(facts: Facts, saver: Method) -> Iterator[Kept]:
    """Yield outputs kept as attributes of ctx, each the very tensor returned, with a gradient: a reference cycle.

    Nothing is yielded for an attribute that backward resets.
    """
    marked = facts.marked("mark_non_differentiable")
    if marked is None:
        return  # any output may be marked, and then has no gradient
    for kept in facts.kept(saver):
        if not isinstance(kept.value, ast.Name) or kept.value.id in marked:
            continue
        if _is_output(facts, saver, kept) and not let_go(facts, kept.name):
            yield kept


def _is_output(facts: Facts, saver: Method, kept: Kept) -> bool:
    """Return whether a kept name surely holds an output of forward, with the same value where it is returned."""
    assert isinstance(kept.value, ast.Name)
    name, flow = kept.value.id, saver.flow
    if saver is facts.function.setup_context:
        # Without ctx the parameters are `inputs, output`.
        outputs = [item.name for item in saver.positional][1:2]
        is_the_output = name in outputs and flow.is_parameter(name, kept.step)
        # Of several outputs `output` is the tuple.
        return is_the_output and facts.output_count == 1
    for item in facts.outputs:
        if item.step.order < kept.step.order:
            continue  # this return ends the call before the value is kept
        alone = isinstance(item.node, ast.Name) and item.node.id == name
        among = [n.id for n in item.values or () if isinstance(n, ast.Name)]
        if not alone and name not in among:
            continue
        # The same one binding reaches both.
        bound = flow.reaching(name, kept.step)
        if len(bound) != 1 or flow.reaching(name, item.step) != bound:
            continue
        value = bound[0].value if bound[0] is not None else None
        # None: a parameter, so an input, or a name from outside. Integers have no gradient.
        if bound[0] is None or _is_whole(value):
            continue
        is_container = isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Dict)
        # `return out` of an unknown value: an output, unless it is a number or a container.
        if alone and item.values is None:
            return not is_container
        if facts.values(saver).is_tensor(kept.value, kept.step):
            return True
    return False


def _is_whole(node: ast.expr | None) -> bool:
    """Return whether a tensor has integers or booleans: it requires no gradient, so keeping it makes no cycle."""
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return is_discrete(node.func.attr) or _is_whole(node.func.value)
    return False


def let_go(facts: Facts, attribute: str) -> bool:
    """Return whether backward deletes or resets the attribute, which breaks the cycle."""
    backward = facts.function.backward
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Store | ast.Del)
        for node in (ast.walk(backward.node) if backward else ())
    )


def tensors_on_ctx(
    facts: Facts, saver: Method
) -> Iterator[tuple[Kept, list[ast.expr]]]:
    """Yield attributes of ctx that hold evident tensors, other than outputs, each with these tensors: several if it is a tuple.

    None after `enable_grad`: forward keeps these on purpose, with a graph that it records itself.
    """
    outputs = {kept.target for kept in outputs_on_ctx(facts, saver)}
    values = facts.values(saver)
    for kept in facts.kept(saver):
        if kept.target in outputs or has_graph(facts, saver, kept.step):
            continue
        parts = [
            part
            for part in listed(kept.value)
            if values.is_tensor(part, kept.step) and not _is_scratch(facts, part)
        ]
        if parts:
            yield kept, parts


def listed(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple or list, or the expression itself."""
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


def _is_scratch(facts: Facts, node: ast.expr) -> bool:
    """Return whether an expression creates a tensor without another's values: `x.new_empty(0)`."""
    name = torch_call(node, facts.names) or method_call(node, facts.names)
    return creates(name)


def has_graph(facts: Facts, saver: Method, step: Step) -> bool:
    """Return whether the method calls enable_grad before the step, to record a graph for backward."""
    return any(
        facts.names.resolve(node.func) == "torch.enable_grad"
        for before in saver.flow.steps[: step.order]
        for node in before.expressions()
        if isinstance(node, ast.Call)
    )


def carries_gradient(
    facts: Facts, method: Method, node: ast.expr, at: Step, depth: int = 20
) -> bool:
    """Return whether a value surely depends, differentiably, on an input with a gradient; False if the text does not tell.

    It follows the expression, a value in `method`, through names and calls back to parameters. `at` is the statement with the
    expression; `depth` bounds the number of bindings followed.
    """

    def carried(part: ast.expr) -> bool:
        return carries_gradient(facts, method, part, at, depth - 1)

    values = facts.values(method)
    if isinstance(node, ast.Name) and depth:
        if method.flow.is_parameter(node.id, at):
            # False: each return of backward has None for it.
            never = facts.has_gradient(node.id) is False
            return values.is_tensor(node, at) and not never
        bound = method.flow.definite(node.id, at)
        if bound is None or bound.value is None:
            return False  # several values reach it, or an unknown one
        step = method.flow.steps[bound.order]
        if bound.element is not None:  # of `x, y = inputs`; not of another tuple
            return values.is_element(bound, step)
        return carries_gradient(facts, method, bound.value, step, depth - 1)
    if isinstance(node, ast.Call) and depth:
        name = torch_call(node, facts.names) or method_call(node, facts.names)
        # A detached value has the input's values all the same, and AF07 is to see it.
        if name != "detach" and (
            is_constant(name) or is_discrete(name) or creates(name) or is_metadata(node)
        ):
            return False
        # `x.exp()` depends on x; of `torch.exp(x)` the owner is a module, which carries nothing.
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return any(map(carried, [*owner, *node.args]))
    if isinstance(node, ast.BinOp):
        return carried(node.left) or carried(node.right)
    if isinstance(node, ast.UnaryOp):
        return carried(node.operand)
    if isinstance(node, ast.Subscript):
        return values.is_element(node, at) or carried(node.value)
    return False


def saved_instead(facts: Facts, saver: Method, kept: Kept) -> tuple[Edit, ...]:
    """Return the edits to save a name by save_for_backward instead of `ctx.name = name`; () if anything else is saved, or not read.

    `kept` is the assignment to ctx. Backward then begins with `(x,) = ctx.saved_tensors`, after a docstring, and reads x for ctx.x.
    """
    backward = facts.function.backward
    if backward is None or not isinstance(kept.value, ast.Name):
        return ()
    name = kept.value.id
    is_ctx = facts.values(backward).is_ctx
    reads = [n for n in ast.walk(backward.node) if is_ctx(n, kept.name)]
    if not _is_alone(facts, saver, kept) or not _is_free(backward, name) or not reads:
        return ()
    # Backward sets or deletes the attribute: a saved tensor cannot be set.
    if let_go(facts, kept.name):
        return ()
    unpacked = f"({name},) = {backward.ctx}.saved_tensors"
    saved = f"{saver.ctx}.save_for_backward({name})"
    return (
        Edit("replace", span(kept.step.statement), saved),
        *inserted_first(backward, unpacked),
        *(Edit("replace", span(node), name) for node in reads),
    )


def _is_alone(facts: Facts, saver: Method, kept: Kept) -> bool:
    """Return whether the attribute holds the only kept tensor, so one call of save_for_backward can replace its assignment.

    It has to be set by a statement of its own, and no save_for_backward may be called yet.
    No other method than forward, setup_context, backward and symbolic may read it.
    """
    known = {"forward", "backward", "setup_context", "symbolic"}
    if set(facts.function.methods) - known or kept.step.guards:
        return False
    statement = kept.step.statement
    if not isinstance(statement, ast.Assign) or statement.targets != [kept.target]:
        return False
    values = facts.values(saver)  # saving two tensors would need an order
    tensors = [k for k in facts.kept(saver) if values.is_tensor(k.value, k.step)]
    return len(tensors) == 1 and not facts.context_calls(saver, "save_for_backward")


def _is_free(backward: Method, name: str) -> bool:
    """Return whether backward can bind the name by `(x,) = ctx.saved_tensors`: it has no use for it, and reads no saved tensor yet."""
    nodes = list(ast.walk(backward.node))
    bound = {node.id for node in nodes if isinstance(node, ast.Name)}
    parameters = {item.name for item in backward.parameters}
    unpacks = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return name not in bound | parameters and "saved_tensors" not in unpacks


def kept_instead(
    facts: Facts, saver: Method, item: ContextCall, plain: list[ast.expr]
) -> tuple[Edit, ...]:
    """Return the edits to keep the `plain` arguments of save_for_backward, which are no tensors, as attributes of ctx.

    `ctx.save_for_backward(x, n)` (`item`) becomes `ctx.save_for_backward(x)` and `ctx.n = n`. () if backward does not unpack the
    saved values to names in one statement, or if an attribute would replace one of ctx.
    """
    backward = facts.function.backward
    if backward is None or item.call.keywords or item.starred:
        return ()
    statement, unpacked = item.step.statement, _unpacking(facts, backward)
    if not isinstance(statement, ast.Expr) or unpacked is None:
        return ()
    assign, targets = unpacked
    if len(facts.context_calls(saver, "save_for_backward")) != 1:
        return ()  # another branch saves other values
    pairs = list(zip(targets, item.call.args, strict=False))  # unequal: refused
    names = [target.id for target, value in pairs if value in plain]
    taken = ATTRIBUTES | {kept.name for kept in facts.kept(saver)}
    if len(targets) != len(item.call.args) or taken & set(names):
        return ()
    if len(set(names)) != len(names) or any(name.startswith("_") for name in names):
        return ()  # `_, n, _ = ctx.saved_tensors`: `_` names no attribute
    kept = [
        f"{saver.ctx}.{target.id} = {ast.unparse(value)}"
        for target, value in pairs
        if value in plain
    ]
    tensors = [(target.id, value) for target, value in pairs if value not in plain]
    saved = ", ".join(ast.unparse(value) for _, value in tensors)
    read = [f"{name} = {backward.ctx}.{name}" for name in names]
    if not tensors:
        return (*_instead(statement, kept), *_instead(assign, read))
    comma = "," if len(tensors) == 1 else ""
    target_text = f"({', '.join(name for name, _ in tensors)}{comma})"
    call_text = f"{ast.unparse(item.call.func)}({saved})"
    return (
        Edit("replace", span(item.call), call_text),
        *(Edit("after", span(statement), text) for text in kept),
        Edit("replace", span(assign.targets[0]), target_text),
        *(Edit("after", span(assign), text) for text in read),
    )


def _instead(statement: ast.stmt, texts: list[str]) -> tuple[Edit, ...]:
    """Return the edits to write several statements (`texts`) in place of one."""
    first, *others = texts
    place = span(statement)
    return (Edit("replace", place, first), *(Edit("after", place, t) for t in others))


def _unpacking(
    facts: Facts, backward: Method
) -> tuple[ast.Assign, list[ast.Name]] | None:
    """Return the only statement to read the saved tensors, `x, n = ctx.saved_tensors`, and the names it binds; None without one."""
    nodes = [node for m in facts.function.own for node in ast.walk(m.node)]
    reads = [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("saved_tensors", "saved_variables")
    ]
    # An inherited backward serves other Functions too.
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
