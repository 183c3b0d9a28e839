"""Gradients by autograd inside the backward: of a call without a rule, or of the whole forward as a last resort.

In: a call, or an op whose forward the rules do not cover. Out: ops or statements that pull the cotangent back through
it, or None. The reason, in a note, is the `UnsupportedError` that stopped the derivation; `gradients` writes the
note. Invariant: None if the forward would draw other random numbers or change a tensor.

Words: a cotangent is the gradient of the loss by a value. A pullback, by `torch.func.vjp`, maps the gradients of a
function's results to those of its arguments, and so runs the function again. A variadic input is any number of
tensors. An op of the graph is one application of a primitive; `op.active`: a gradient passes through its value.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from scaffold.derive.analysis.activity import is_random
from scaffold.derive.backward_program import needs_gradient
from scaffold.derive.derivation import BY_AUTOGRAD, Forward
from scaffold.derive.forward.body import grad_name
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import given
from scaffold.derive.graph.op import Op, Position, Pullback, literal, tensors
from scaffold.derive.lower.unruled_calls import changes_statistics
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    keywords,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.primitives.calls import facts_of_call
from scaffold.spec import OpSpec
from scaffold.spec.op_spec import FORWARD

# --- Autograd of a function inside the backward: `pullback = torch.func.vjp(f, x)[1]`.
#
# In: the function and its arguments as expressions. Out: a statement. Invariant: the
# result of `torch.func.vjp` is not unpacked, since a type checker sees two values or
# three.


def pullback_of(
    graph: Graph, name: Node, function: Node, args: Iterable[Node], comment: str
) -> Assign:
    """Return the statement `pullback = torch.func.vjp(function, *args)[1]`: a function from cotangent to gradients.

    `name` is its target, `comment` says why autograd does it.
    """
    functional = graph.node("attribute", "func", (graph.name("torch"),))
    vjp = graph.node("attribute", "vjp", (functional,))
    both = graph.node("call", "", (vjp, function, *args))
    second = graph.node("subscript", "", (both, graph.constant("1")))
    return Assign(name, second, "", (comment,))


# --- Autograd of one call: the fallback without a formula.
#
# In: a call of the forward and the cotangent of its result. Out: pairs of an argument
# and its gradient. Invariant: arguments PyTorch does not differentiate get no gradient.


def pulled_back(applier: Applier, op: Op, g: Op) -> list[tuple[Op, Op]]:
    """Return the arguments of a call with their gradients, by autograd of the call alone; `g` is the cotangent of its result.

    An optional argument has a pullback of its own, since it may be absent in a call. Each gradient is an item of the
    tuple that the pullback returns.
    """
    program, nondiff = applier.program, _without_gradient(applier, op)
    active = (arg for arg in tensors(op.args) if arg.active and arg not in nondiff)
    args = list(dict.fromkeys(active))
    # Those that are there in every call share one pullback.
    present = tuple(arg for arg in args if literal(given(program, arg)) is True)
    groups = [present, *((arg,) for arg in args if arg not in present)]
    pairs = []
    # Without an argument that is always there, the first group is empty.
    for group in filter(None, groups):
        data = Pullback(op, group)
        pulled = program.op("vjp", (g, *op.args), data, kind="group")
        for at, arg in enumerate(group):
            item = program.op(
                "item", (pulled,), Position(at), kind=arg.kind, shape=arg.shape
            )
            pairs.append((arg, item))
    return pairs


def _without_gradient(applier: Applier, op: Op) -> set[Op]:
    """Return the tensor arguments of a call that PyTorch does not differentiate, such as an index; autograd is not asked for them.

    A call without a rule ("call") keeps its text, so they are found there; else the rule says so (`nondiff`).
    """
    if op.rule == "call":
        return set(_refused(op.template.node, op.template.filled(op.args)))
    rule = applier.table.of_op(op.rule)
    if rule is None:
        return set()
    pairs = zip(rule.parameters, op.args, strict=True)
    return {arg for item, arg in pairs if item.name in rule.facts.nondiff}


def _refused(call: Node, holes: Mapping[Node, Op]) -> Iterator[Op]:
    """Yield the arguments of a call without a rule not differentiated by PyTorch.

    `call` is its text, `holes` maps the arguments in it to ops. The table has facts on such functions: `constants`
    has position and name of each such argument, `indices` the names of the arguments that are constant only if integer.
    """
    if call.kind != "call":
        return
    callee, *args = call.args
    named = keywords(call)
    plain = args[: len(args) - len(named)]
    for facts in facts_of_call(callee.label):
        fixed = dict[str, Op]()
        for at, name in facts.constants:
            arg = named.get(name) or (plain[at] if at < len(plain) else None)
            if arg is not None and arg in holes:
                fixed[name] = holes[arg]
        # Class probabilities are no indices: PyTorch differentiates by them and by
        # class weights.
        if all(fixed[name].kind == "int" for name in facts.indices if name in fixed):
            yield from fixed.values()


# --- The last resort: autograd of the whole forward.


def autograd_of_forward(
    spec: OpSpec,
    graph: Graph,
    forward: Forward,
    wanted: tuple[str, ...],
    taken: Collection[str],
) -> Lines | None:
    """Return `pullback = torch.func.vjp(lambda x: SomeFunction.forward(x, eps), x)[1]` and the lines with its calls.

    Return None if the forward cannot run again. `wanted` are the inputs with a gradient; new names avoid `taken`.
    """
    if not _may_run_again(spec, forward):
        return None
    # A single input needs no dict, as its lines run only if its gradient is needed; a variadic one fits in none.
    if len(wanted) > 1 and not any(item.variadic for item in spec.tensors):
        return tuple(_pulled_if_needed(spec, graph, wanted, taken))
    # One pullback for all required inputs, one for each optional input: it may be absent.
    optional = {item.name for item in spec.tensors if item.optional}
    required = tuple(name for name in wanted if name not in optional)
    groups = (required, *((name,) for name in wanted if name in optional))
    lines: list[Statement] = []
    for group in filter(None, groups):
        known = {*taken, *(name for line in lines for name in written(line))}
        lines += _pulled(spec, graph, group, known)
    return tuple(lines)


def _forward_of(spec: OpSpec, graph: Graph) -> Node:
    """Return the forward by its name in the op's file, to be run again: `SomeFunction.forward`, or in library style a function."""
    if spec.is_library:
        return graph.name(FORWARD)
    return graph.node("attribute", "forward", (graph.name(spec.function_name),))


def _pulled(
    spec: OpSpec, graph: Graph, wanted: tuple[str, ...], taken: Collection[str]
) -> Iterator[Statement]:
    """Yield the statements for the gradients of inputs present together: one pullback for them, and a line for each gradient.

    `pullback = ...`, `(pulled_x,) = pullback(grad_output)`, `grad_x = pulled_x`. The gradient of a variadic input is
    that of its tensor `i`, as the template loops over them.
    """
    variadic = {item.name for item in spec.tensors if item.variadic}

    def starred(name: str, node: Node) -> Node:
        """Return the node of an input, starred if the input is variadic."""
        return graph.node("starred", "", (node,)) if name in variadic else node

    pullback = graph.name(fresh("pullback", taken))
    arguments = tuple(starred(x.name, graph.name(x.name)) for x in spec.inputs)
    run = _forward_of(spec, graph)
    body = graph.node("call", "", (run, *arguments))
    # The lambda's parameters; other inputs are read from around it.
    given = tuple(starred(name, graph.name(name)) for name in wanted)
    takes_all = wanted == tuple(item.name for item in spec.inputs)
    function = run if takes_all else graph.node("lambda", "", (*given, body))
    yield pullback_of(graph, pullback, function, given, BY_AUTOGRAD)
    pulled = {name: graph.name(fresh(f"pulled_{name}", taken)) for name in wanted}
    targets = tuple(starred(name, value) for name, value in pulled.items())
    gradients = graph.node("call", "", (pullback, _incoming(spec, graph)))
    yield Assign(graph.node("tuple", "", targets), gradients)
    for name, value in pulled.items():
        if name in variadic:  # the gradient of element `i`
            value = graph.node("subscript", "", (value, graph.name("i")))
        yield Assign(graph.name(f"grad_{name}"), value)


def _pulled_if_needed(
    spec: OpSpec, graph: Graph, wanted: tuple[str, ...], taken: Collection[str]
) -> Iterator[Statement]:
    """Yield statements for several gradients from one run of the forward; autograd gets only the inputs in need of one.

    Another input may be absent, or hold bools or ints, which `torch.func.vjp` refuses. The dict `needed` has the
    inputs in need of a gradient by name, as autograd's only argument; it reaches the forward as the lambda's
    parameter `some`.
    """
    needed, some, pullback, pulled = (
        graph.name(fresh(word, taken))
        for word in ("needed", "some", "pullback", "pulled")
    )
    keys = {name: graph.constant(f'"{name}"') for name in wanted}

    def passed(name: str) -> Node:
        """Return an argument of the forward: `some.get("x", x)` for an input wanted, so autograd sees it if it needs a gradient.

        An input not in `some`, the lambda's parameter, is read from around the lambda, and is a constant to autograd.
        """
        value = graph.name(name)
        if name not in keys:
            return value
        get = graph.node("attribute", "get", (some,))
        return graph.node("call", "", (get, keys[name], value))

    yield Assign(needed, graph.node("dict"))
    for name, key in keys.items():
        item = graph.node("subscript", "", (needed, key))
        yield If(needs_gradient(spec, graph, name), (Assign(item, graph.name(name)),))
    arguments = tuple(passed(item.name) for item in spec.inputs)
    run = _forward_of(spec, graph)
    body = graph.node("call", "", (run, *arguments))
    function = graph.node("lambda", "", (some, body))
    yield pullback_of(graph, pullback, function, (needed,), BY_AUTOGRAD)
    gradients = graph.node("call", "", (pullback, _incoming(spec, graph)))
    yield Assign(graph.node("tuple", "", (pulled,)), gradients)
    for name, key in keys.items():
        gradient = graph.node("subscript", "", (pulled, key))
        yield Assign(graph.name(f"grad_{name}"), gradient)


def of_results(spec: OpSpec, graph: Graph, statement: Statement) -> Statement:
    """Return a statement with the forward's extra results dropped, if it runs the forward: `f(x)` -> `f(x)[:2]` for two outputs.

    Forward also returns locals to be saved; autograd of the whole forward is to see the op's results alone. One
    output is `f(x)[0]`.
    """
    run = _forward_of(spec, graph)
    count = len(spec.outputs)
    absent = graph.node("absent")
    bounds = (absent, graph.constant(str(count)), absent)
    index = graph.constant("0") if count == 1 else graph.node("slice", "", bounds)

    def results(node: Node) -> Node | None:
        """Return the form of a node that takes the first results alone, if it is the forward or a call of it; else None.

        `f` -> `lambda x: f(x)[:2]`, `f(x)` -> `f(x)[:2]`: the other results have no gradient.
        """
        if node is run:  # passed as a function of all inputs, so all are tensors
            named = (graph.name(item.name) for item in spec.tensors)
            pairs = zip(spec.tensors, named, strict=True)
            args = tuple(
                graph.node("starred", "", (part,)) if item.variadic else part
                for item, part in pairs
            )
            called = graph.node("call", "", (run, *args))
            first = graph.node("subscript", "", (called, index))
            return graph.node("lambda", "", (*args, first))
        if node.kind == "call" and node.args[0] is run:
            return graph.node("subscript", "", (node, index))
        return None

    return rewritten(graph, (statement,), results)[0]


def _incoming(spec: OpSpec, graph: Graph) -> Node:
    """Return the argument of the pullback: the output's gradient, or a tuple of them, `(grad_y, grad_z)`."""
    names = (graph.name(grad_name(spec, item.name)) for item in spec.outputs)
    first, *rest = names
    return graph.node("tuple", "", (first, *rest)) if rest else first


def _may_run_again(spec: OpSpec, forward: Forward) -> bool:
    """Return whether `torch.func` can run the forward again, as a function of its inputs.

    It must change nothing and draw no random numbers, have differentiable outputs of a known number, take no ctx (combined style), and call
    nothing outside PyTorch. The formula of a variadic input's gradient reads the index `i`, so no input may have that name.
    """
    nodes = [*forward.expressions()]
    reads_index = any(item.variadic for item in spec.differentiable)
    return (
        all(item.differentiable and not item.variadic for item in spec.outputs)
        and spec.style != "combined"
        and not spec.dirty
        and not spec.foreign
        and not (reads_index and any(item.name == "i" for item in spec.inputs))
        and not any(
            changes_statistics(inner) for node in nodes for inner in node.walk()
        )
        and not any(map(is_random, nodes))
    )
