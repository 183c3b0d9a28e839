"""The forward of the generated op: the user's statements, changed only as PyTorch needs.

In: an `OpSpec` with a forward. Out: its statements, and one result per output.
Invariant: same values; a conditional on an absent optional becomes an `if`, every result is a tensor of its own, and
no assignment shadows an input, an import, the name of a gradient or the name of another output. A forward kept
verbatim changes no input, and PyTorch can call it with tensors alone, as its autograd needs.

It is the first pass (`pipeline`): all others read these statements. Words: a dirty input is one the user has declared
to be changed in place. A variadic input or output is any number of tensors, and an op's last one. A forward is kept
if it stays as the user wrote it (it has a loop, say); a gradient is stated if the user gives its formula. Names
`taken` are in use: a new name avoids them.
"""

from collections.abc import Iterable
from dataclasses import replace

from scaffold.derive.analysis.activity import callee, is_random
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.derivation import Forward
from scaffold.derive.forward.optional_branches import Unfolder
from scaffold.derive.forward.outputs import own_results
from scaffold.derive.name_collisions import apart_from, hidden_builtins, renamed_local
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Kept,
    Lines,
    Node,
    Statement,
    Trace,
    changed_in_place,
    emit,
    expressions,
    renaming,
    rewritten,
    same_tensor,
    sharing,
    written,
)
from scaffold.formula.names import fresh
from scaffold.primitives.calls import is_constant, is_tuple, may_share_memory
from scaffold.spec import OpSpec

NUMBERS = frozenset({"bool", "float", "int"})


def write_forward(spec: OpSpec, formula: Formula) -> Forward:
    """Return the op's forward for its formula: names that clash are changed, results and random draws have lines of their own.

    Raise if the formula changes an input in place, undeclared, or uses the name of a gradient.
    """
    if formula.kept is not None:
        return kept_forward(spec, formula, formula.kept)
    _refuse_gradient_names(spec, formula)
    assert formula.result is not None  # the parser saw to it
    _refuse_in_place(formula, spec)
    rebound = _with_numbers_rebound(spec, formula)
    statements, result, renamed, hiding = _isolated(rebound, spec, formula.result)
    statements = _without_constant_numbers(spec, formula.graph, statements)
    writer = Unfolder(formula.graph, {*names_of_op(spec), *written(*statements)})
    body = writer.block(statements)
    before, results = _results(spec, formula, result, writer)
    lines = (*body, *before)
    if _is_derived(spec) and any(map(is_random, (*expressions(*lines), *results))):
        # Few forwards draw random numbers, and a skeleton needs no such import.
        from scaffold.derive.forward.random_draws import with_draws_apart

        lines, results = with_draws_apart(
            spec, formula.graph, lines, results, {*names_of_op(spec), *written(*lines)}
        )
    lines, own = own_results(spec, formula.graph, lines, results)
    returned: dict[str, str] = {}
    for output, value in zip(spec.outputs, results, strict=True):
        if value.kind == "name":
            returned.setdefault(value.label, output.name)
    return Forward(lines, own, formula.comments, renamed, returned, hiding)


def _with_numbers_rebound(spec: OpSpec, formula: Formula) -> Formula:
    """Replace `n //= 2` by `n = n // 2` for a number: an attribute, or one with a second name.

    Later passes take an operator with `=` for a change of memory, which a number has none of. It stays for a tensor or
    a list, since it changes that; and for any other number, whose memory no other name has.
    """
    graph, kinds = formula.graph, kinds_of_inputs(spec)
    numbers = {item.name for item in spec.attributes if item.annotation in NUMBERS}
    lists = {item.name for item in spec.attributes} - numbers

    def one(item: Statement) -> Statement:
        """Write `n += 1` of a number as `n = n + 1`, and note what each name of the statement holds from here on.

        After an `if`, a name is a number if it is one after both branches. `n *= x`, after which n is a tensor, stays.
        """
        nonlocal numbers
        if isinstance(item, If):
            numbers_before, kinds_before = {*numbers}, {**kinds.names}
            body = tuple(map(one, item.body))
            numbers_after_body = numbers
            # Both branches begin with what holds before the `if`.
            numbers, kinds.names = numbers_before, {**kinds_before}
            orelse = tuple(map(one, item.orelse))
            numbers, kinds.names = numbers & numbers_after_body, kinds_before
            kinds.after((item,))
            return replace(item, body=body, orelse=orelse)
        value, names = item.value, written(item)
        is_number = kinds.of(value) == "scalar"
        if item.operator and is_number and item.target.label in numbers:
            new = graph.node("binary", item.operator, (item.target, value))
            return replace(item, value=new, operator="")
        kinds.after((item,))
        if _is_list(value) or value.label in lists:
            lists.update(names)
        numbers -= names  # rebound to another value
        # `m = n`, of a number: `m += 1` leaves n as it is, so both may be rebound.
        if is_number and value.kind == "name" and value.label not in lists:
            numbers |= {*names, value.label}
        return item

    return replace(formula, statements=tuple(map(one, formula.statements)))


def _is_list(value: Node) -> bool:
    """Return whether a Python value may be a list, which can change in place: `[a, b]`, `list(x)`, `x.tolist()`."""
    called = callee(value) or ""
    return value.kind == "list" or called.rpartition(".")[2] in ("list", "tolist")


def _without_constant_numbers(spec: OpSpec, graph: Graph, statements: Lines) -> Lines:
    """Replace `n = x.shape[0].detach()` by `n = x.shape[0]`, since a number has no such method.

    The parser adds `.detach()` to each value under `torch.no_grad()`, tensor or not.
    """
    kinds = kinds_of_inputs(spec)

    def plain(node: Node) -> Node | None:
        """Return a number itself for a detached number; None for other nodes, which stay."""
        match node:
            case Node("call", _, (Node("attribute", name, (inner,)),)):
                # `detach` and its like: `x.argmax()` is constant too, but another value.
                same = is_constant(name) and may_share_memory(name)
                return inner if same and kinds.of(inner) == "scalar" else None
        return None

    def one(item: Statement) -> Lines:
        """Return the statements in place of one; none for an assignment left as `n = n`.

        Note what kind of value its names have from here on, as later lines ask that.
        """
        if isinstance(item, If):
            body, orelse = (_flat(map(one, way)) for way in (item.body, item.orelse))
            return (If(item.test, body, orelse, item.comments),)
        (done,) = rewritten(graph, (item,), plain)  # one line in, one line out
        kinds.after((done,))
        assert isinstance(done, Assign)
        # `n = n.detach()` has become `n = n`; an `n = n` of the user's own is left.
        is_left_as_itself = done.target is done.value is not item.value
        return () if is_left_as_itself else (done,)

    return _flat(map(one, statements))


def _flat(several: Iterable[Lines]) -> Lines:
    return tuple(line for lines in several for line in lines)


def grad_name(spec: OpSpec, output: str) -> str:
    """Return the backward's name for the incoming gradient of an output: `grad_y`.

    A sole output gets `grad_output`, unless an input has that name or is called `output`: then its own gradient
    would.
    """
    sole = len(spec.outputs) == 1 and not spec.outputs[0].variadic
    usual = sole and not any(
        item.name in ("output", "grad_output") for item in spec.inputs
    )
    return "grad_output" if usual else f"grad_{output}"


def part_name(name: str, reader: str) -> str:
    """Return the backward's name for the part of a gradient that comes from one reader of the value: `grad_x_via_y`."""
    return f"grad_{name}_via_{reader}"


def gradient_of_part(name: str) -> str:
    """Return `grad_x` for `grad_x_via_y`, a name made by `part_name`; "" for other names."""
    gradient, via, _ = name.partition("_via_")
    return gradient if via and gradient.startswith("grad_") else ""


def gradient_names(spec: OpSpec) -> frozenset[str]:
    """Return all names of incoming and outgoing gradients in the backward: no local of the forward may have one."""
    names = {f"grad_{item.name}" for item in (*spec.inputs, *spec.outputs)}
    return frozenset(names | {"grad_output"})


def returned_names(spec: OpSpec, result: Node | None) -> dict[str, str]:
    """Map each output returned under a local's name to that local; {} without a forward.

    Outputs first and second: `return y, z * 2` -> {"first": "y"}. A formula of the user's may read that output by
    either name.
    """
    if result is None:
        return {}
    values = result.args if len(spec.outputs) > 1 else (result,)
    # Their numbers are checked later; a variadic output takes several values.
    pairs = zip(spec.outputs, values, strict=False)
    return {out.name: node.label for out, node in pairs if node.kind == "name"}


def names_of_op(spec: OpSpec) -> frozenset[str]:
    """Return the names of inputs, outputs, imports and gradients: a new name in the op is none of these, and no local's."""
    names = {item.name for item in (*spec.inputs, *spec.outputs)}
    return gradient_names(spec).union(names, (item.binding for item in spec.imports))


def _isolated(
    formula: Formula, spec: OpSpec, result: Node
) -> tuple[Lines, Node, dict[str, str], dict[str, str]]:
    """Rename locals that shadow an input, an import or another name; return statements and result, and two maps.

    `x = x.exp()` -> `new_x = x.exp()`: the backward may need the input too. The first map leads from the user's name
    of a local named like a gradient to its new one, the second from the new name of a local to the input it shadowed.
    """
    graph, statements = formula.graph, formula.statements
    taken = {*names_of_op(spec), *written(*statements)}
    # A dirty input is changed under its own name: `x = x.add_(y)`.
    outer = {item.name for item in spec.inputs} - set(spec.dirty)
    outer |= {item.binding for item in spec.imports}
    outer |= hidden_builtins(statements, result)
    statements, hiding = apart_from(graph, statements, outer, taken, result.names())
    taken |= set(hiding.values())
    locals_ = written(*statements)
    returned = returned_names(spec, result)
    renamed = {
        name: fresh(f"{name.removeprefix('grad_')}_grad", taken)
        for name in sorted(locals_ & gradient_names(spec))
    }
    # A local named like an output that is another value: `y = x * 2`, `return y + 1`.
    inner = {
        name: fresh(f"inner_{name}", taken)
        for name in (output.name for output in spec.outputs)
        # A dirty input may be an output of the same name; a local returned as that output is it.
        if name in locals_ - set(spec.dirty) and returned.get(name) != name
    }
    for name, new in (renamed | inner).items():
        statements = renamed_local(graph, statements, name, new)
    # Locals in `hiding` have their new names in the statements already.
    for name, new in (hiding | renamed | inner).items():
        result = graph.rewrite(result, renaming(graph, {name: new}))
    inputs = {item.name for item in spec.inputs}
    hidden = {new: name for name, new in hiding.items() if name in inputs}
    return statements, result, renamed, hidden


def _results(
    spec: OpSpec, formula: Formula, result: Node, writer: Unfolder
) -> tuple[Lines, tuple[Node, ...]]:
    """Return the statements before the results, and one result per output; `writer` writes a conditional one as an `if`."""
    graph = formula.graph
    if len(spec.outputs) > 1:
        return _several(spec, formula, result, writer)
    output = spec.outputs[0]
    if output.variadic:
        return (), (_as_tuple(graph, result),)
    if (name := _changed_input(spec, result)) is not None:
        # `return x.add_(y)` -> `x.add_(y)`, `return x`
        effect = Assign(graph.node("absent"), result)
        return (effect,), (graph.name(name),)
    before, value = writer.result(output.name, result)
    return before, (value,)


def _changed_input(spec: OpSpec, result: Node) -> str | None:
    """Return the dirty input the result changes, as x of `return x.add_(y)`, or None.

    PyTorch wants that very tensor returned, so the change gets a line of its own.
    """
    changed = [name for name in changed_in_place(result) if name in spec.dirty]
    # Not of `x.add_(y) * 2`, which is another tensor.
    return changed[0] if (callee(result) or "").endswith("_") and changed else None


def _several(
    spec: OpSpec, formula: Formula, result: Node, writer: Unfolder
) -> tuple[Lines, tuple[Node, ...]]:
    """Return the statements before the results, and the values of several outputs, each under its name.

    `return f(x)`, not a tuple, is unpacked first: `y, z = f(x)`, or `y, *rest = f(x)` for a variadic output.
    """
    graph, outputs = formula.graph, spec.outputs
    if result.kind != "tuple":
        names = tuple(graph.name(output.name) for output in outputs)
        targets = names
        if outputs[-1].variadic:
            targets = (*names[:-1], graph.node("starred", "", names[-1:]))
        unpack = Assign(graph.node("tuple", "", targets), result)
        return (unpack,), names
    values = _one_each(spec, formula, result)
    before: list[Statement] = []
    results = []
    for output, item in zip(outputs, values, strict=True):
        if output.variadic:
            results.append(_as_tuple(graph, item))
            continue
        lines, value = writer.result(output.name, item)
        before += lines
        results.append(value)
    return tuple(before), tuple(results)


def _one_each(spec: OpSpec, formula: Formula, result: Node) -> tuple[Node, ...]:
    """Return one value per output, those of a variadic (last) output combined into one; raise if their number is wrong.

    Outputs y and *rest: `return a, b, c` -> a, (b, c).
    """
    values, outputs = result.args, spec.outputs
    if outputs[-1].variadic:
        count = len(outputs) - 1
        rest = values[count:]
        # A single value without a star is taken for the tuple itself.
        if len(rest) == 1 and rest[0].kind == "starred":
            return (*values[:count], rest[0].args[0])
        if len(rest) > 1:
            return (*values[:count], formula.graph.node("tuple", "", rest))
    if len(values) == len(outputs):
        return values
    names = ", ".join(output.name for output in outputs)
    message = f"the forward returns {len(values)} values for {len(outputs)} outputs"
    raise ScaffoldError(message, formula.location, f"declared outputs: {names}")


def _is_derived(spec: OpSpec) -> bool:
    """Return whether no formula states a gradient: such a formula might read the user's own random draw, so it stays in place."""
    return spec.derive and not spec.gradients and spec.backward is None


def _as_tuple(graph: Graph, result: Node) -> Node:
    """Return a value for a variadic output, as forward must return a tuple: `[a, b]` -> `(a, b)`, else `tuple(value)`.

    It stays as it is if it is a tuple, or a call that gives one, or a name.
    """
    called = callee(result) or ""
    if result.kind in ("tuple", "name") or called == "tuple" or is_tuple(called):
        return result
    if result.kind == "list":
        return graph.node("tuple", "", result.args)
    return graph.node("call", "", (graph.name("tuple"), result))


def _refuse_in_place(formula: Formula, spec: OpSpec) -> None:
    """Raise if the forward changes an input that is not declared dirty, or rebinds a dirty input's name.

    A dirty input is marked as changed for autograd, which must then get that very tensor back.
    """
    tensors = {item.name for item in spec.tensors} - set(spec.dirty)
    trace = Trace(formula.lines())
    for name in sorted(trace.changed_outside & tensors):
        message = f"the forward changes its input '{name}' in place"
        holders = {name}.union(*(x.holders for x in trace.changes if name in x.outside))
        # PyTorch wants a dirty input returned: else declaring it is no advice.
        returned = formula.result and holders.intersection(sharing(formula.result))
        hint = f"work on {name}.clone()"
        hint += f", or declare --dirty {name}" if returned else ""
        raise ScaffoldError(message, formula.location, hint)
    for name in spec.dirty:
        if any(_rebinds(item, name) for item in formula.statements):
            message = f"'{name}' is declared dirty, but the forward assigns a new tensor to the name"
            hint = f"change it in place: {name}.copy_(...), {name} += ..."
            raise ScaffoldError(message, formula.location, hint)


def _rebinds(item: Statement, name: str) -> bool:
    """Return whether a statement binds the name to another tensor, rather than changing its own: `x = x + 1`, not `x += 1`.

    `x = x.add_(1)` is the same tensor.
    """
    if isinstance(item, If):
        return any(_rebinds(inner, name) for inner in (*item.body, *item.orelse))
    if item.operator or item.target.kind == "subscript":
        return False
    return name in item.target.names() and name not in same_tensor(item.value)


def _refuse_gradient_names(spec: OpSpec, formula: Formula) -> None:
    """Raise if a local is named like an incoming gradient: a gradient's formula of the user's could mean either."""
    stated = spec.gradients or spec.backward
    locals_ = written(*formula.statements) if stated else frozenset()
    for name in sorted(locals_ & {grad_name(spec, item.name) for item in spec.outputs}):
        message = f"the forward assigns '{name}', which is the gradient of an output"
        hint = "rename the variable"
        raise ScaffoldError(message, formula.location, hint)


# --- A forward kept as the user wrote it: its restrictions


def kept_forward(spec: OpSpec, formula: Formula, kept: Kept) -> Forward:
    """Return the op's forward, kept verbatim; raise if it changes or returns an input itself, or if the style cannot have it.

    The result of each output is the whole body, and there are no statements: nothing of it is known by name.
    """
    assert formula.result is not None  # the body
    if spec.style == "combined" and not spec.style_is_free:
        message = f"{kept.reason}, and a forward in combined style cannot have one"
        hint = "leave out the style"
        raise ScaffoldError(message, kept.location, hint)
    _refuse_changes(spec, kept)
    _refuse_inputs(spec, kept)
    return Forward((), (formula.result,) * len(spec.outputs), (), {}, {}, {})


def writes_in_place(kept: Kept) -> bool:
    """Return whether the kept forward changes a named tensor or number in place: vmap may refuse that."""
    return bool(Trace(kept.statements).changes)


def _refuse_changes(spec: OpSpec, kept: Kept) -> None:
    """Raise if a kept forward (it stays as the user wrote it) changes an input not declared dirty."""
    tensors = {item.name for item in spec.tensors} - set(spec.dirty)
    for name in sorted(Trace(kept.statements).changed_outside & tensors):
        message = f"the forward changes its input '{name}' in place"
        raise ScaffoldError(message, kept.location, f"work on {name}.clone()")


def _refuse_inputs(spec: OpSpec, kept: Kept) -> None:
    """Raise if a kept forward returns an input itself: PyTorch refuses to return a saved input unchanged.

    In another forward a clone is added; this one stays as the user wrote it. Locals of an input's name are no inputs.
    """
    assigned = written(*kept.statements)
    tensors = {item.name for item in spec.tensors} - assigned - set(spec.dirty)
    for value in kept.returned:
        values = value.args if value.kind == "tuple" else (value,)
        for part in values:
            for name in sorted(same_tensor(part) & tensors):
                how = "returns" if part.kind == "name" else "may return"
                message = f"the forward {how} its input '{name}' itself"
                text = emit(part)
                if part.kind not in ("name", "call", "attribute", "subscript"):
                    text = f"({text})"
                hint = f"return a copy: {text}.clone()"
                raise ScaffoldError(message, kept.location, hint)
