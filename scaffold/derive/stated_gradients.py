"""Stated gradients: the user's backward, by a formula for each gradient or one for all.

In: an `OpSpec` and its forward. Out: one program that assigns `grad_<input>`; the outer names available to formulas;
from the finished lines, those computed for each tensor of a variadic input. Invariant: each formula computes the same
as alone; every name that the op owns (inputs, outputs, imports) keeps its meaning, even if it is rewritten to ctx; an
ambiguous name is an error.

`--grad 'x=grad_output * y'` is a formula for one gradient, `--backward` one program for all; the pipeline joins them
with the derived gradients. Words: a formula reads outer names, those of the op, and has locals of its own. A variadic
input is any number of tensors: its gradient is a formula for element `i`.
"""

from collections.abc import Iterable
from dataclasses import replace

from scaffold.derive.backward_program import Line
from scaffold.derive.derivation import Element, Forward
from scaffold.derive.forward.body import (
    grad_name,
    gradient_names,
    names_of_op,
    returned_names,
)
from scaffold.derive.forward.optional_branches import Unfolder
from scaffold.derive.name_collisions import (
    apart_from,
    hidden_builtins,
    outer_renamed,
    rebound,
)
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    If,
    Lines,
    Statement,
    Trace,
    assigned,
    expressions,
    free_names,
    read_names,
    reads,
    renaming,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

# --- The gradient formulas of an op as one program.


def join(
    graph: Graph, formulas: Iterable[tuple[str, Formula]], outer: frozenset[str]
) -> Lines:
    """Join all formulas into one program; none of them assigns an outer name or a local of another: its own is renamed.

    `outer` are the names of the op. A line common to two formulas stands once, if it has the same value in both.
    """
    program: list[Statement] = []
    used = set(outer)
    for name, formula in formulas:
        body = _with_result(graph, name, formula)
        shared = _shared(program, body)
        common = written(*shared)
        for local in sorted(written(*body) - common - {f"grad_{name}"}):
            if local in used:
                new = fresh(f"{name}_{local}", used | written(*body))
                body = rebound(graph, body, local, new)
                used.add(new)
            used.add(local)
        program += [item for item in body if item not in shared]
    return tuple(program)


def _with_result(graph: Graph, name: str, formula: Formula) -> Lines:
    """Return the statements of a formula and the assignment `grad_<name> = result`, unless the result has that name already.

    A local of that name which is not the result is renamed.
    """
    target = graph.name(f"grad_{name}")
    assert formula.result is not None
    if formula.result is target:
        return formula.statements
    statements, result = formula.statements, formula.result
    if target.label in written(*statements):  # a local of that name, but not the result
        new = f"{name}_{target.label}"
        statements = rebound(graph, statements, target.label, new)
        result = graph.rewrite(result, renaming(graph, {target.label: new}))
    return (*statements, Assign(target, result, "", formula.comments))


def _shared(program: list[Statement], body: Lines) -> Lines:
    """Return the lines of a formula (`body`) already in the program, reading the same values: they need not stand twice.

    A shared line reads outer names and names of shared lines alone, and its names are assigned once in each. The last
    line of a formula is its gradient.
    """
    if Trace((*program, *body)).changes:
        return ()  # a line may change a value made by another one
    shared: list[Statement] = []
    locals_ = written(*body) | written(*program)
    for item in body[:-1]:
        if isinstance(item, If) or item not in program:
            continue
        once = all(
            _count(name, program) == _count(name, body) == 1 for name in written(item)
        )
        if once and not read_names(item) & (locals_ - written(*shared)):
            shared.append(item)
    return tuple(shared)


def _count(name: str, statements: Iterable[Statement]) -> int:
    """Return the number of statements assigning a name: a line is shared only if its names are assigned once."""
    return sum(name in written(item) for item in statements)


# --- The whole backward: all formulas, with the op's names.


def outer_names(spec: OpSpec, forward: Forward | None) -> frozenset[str]:
    """Return the names a gradient's formula may read from outside: inputs, outputs, imports, gradients, locals of the forward.

    No new name may be one of them.
    """
    names = names_of_op(spec)
    if forward is not None and spec.forward is not None:
        names |= assigned(spec.forward) | written(*forward.statements)
    return names


def stated_backward(spec: OpSpec, graph: Graph, forward: Forward | None) -> Lines:
    """Return the statements of the formulas of all gradients, in order; raise for an ambiguous name or a change in place.

    () if none is stated. Conditionals on optional inputs become `if` statements, as in the forward.
    """
    outer = outer_names(spec, forward)
    renamed = _renamed(spec, forward)
    for formula in _formulas(spec):
        _refuse_in_place(spec, formula, outer)
    if spec.backward is not None:
        program = _isolated(spec, graph, spec.backward.statements, forward, renamed)
    else:
        _refuse_index(spec)
        formulas = [
            (name, _reads_renamed(graph, formula, renamed))
            for name, formula in spec.gradients
        ]
        program = join(graph, formulas, outer | _builtins(formulas))
    taken = outer | written(*program)
    program = Unfolder(graph, set(taken), _one_expression(spec)).block(program)
    _refuse_ambiguous(spec)
    return program


def _formulas(spec: OpSpec) -> list[Formula]:
    """Return the formulas of single gradients, and the one for all of them (`--backward`), as far as they are stated."""
    whole = [spec.backward] if spec.backward else []
    return [formula for _, formula in spec.gradients] + whole


def _one_expression(spec: OpSpec) -> frozenset[str]:
    """Return the gradients to keep as one expression: of an element of a variadic input, computed in a comprehension."""
    return frozenset(f"grad_{item.name}" for item in spec.tensors if item.variadic)


def _renamed(spec: OpSpec, forward: Forward | None) -> dict[str, str]:
    """Map names in the user's formulas to their different names in the op: renamed locals, `grad_output`.

    With an input called `output`, `grad_output` is its gradient, and the user's `grad_output` of the sole output has
    another name.
    """
    renamed = dict(forward.renamed) if forward else {}
    sole = len(spec.outputs) == 1 and not spec.outputs[0].variadic
    if sole and any(item.name == "output" for item in spec.inputs):
        renamed["grad_output"] = grad_name(spec, spec.outputs[0].name)
    return renamed


def _builtins(formulas: list[tuple[str, Formula]]) -> frozenset[str]:
    """Return the builtins formulas assign and call (`max = ...`): in the joined program such locals need other names."""
    results = [item.result for _, item in formulas if item.result]
    return frozenset().union(
        *(hidden_builtins(item.statements, *results) for _, item in formulas)
    )


def _reads_renamed(graph: Graph, formula: Formula, renamed: dict[str, str]) -> Formula:
    """Rename what a formula reads by another name in the op: `renamed` maps the user's name of a local to its new one."""
    body = formula.lines()
    for old, new in renamed.items():
        body = outer_renamed(graph, body, old, new)
    last = body[-1]
    assert isinstance(last, Assign)
    return replace(formula, statements=body[:-1], result=last.value)


def _isolated(
    spec: OpSpec,
    graph: Graph,
    program: Lines,
    forward: Forward | None,
    renamed: dict[str, str],
) -> Lines:
    """Rename locals of a whole backward named like something of the op, unless only names never rewritten to ctx are hidden.

    An attribute, or a tensor whose shape is read, may become `ctx.x_shape`: a local of its name would be rewritten
    too. `renamed` maps the forward's locals to their new names.
    """
    for old, new in renamed.items():
        program = outer_renamed(graph, program, old, new)
    metadata = {
        read.name
        for node in expressions(*program)
        for read in reads(node)
        if read.facets
    }
    tensors = {item.name for item in spec.tensors} | set(origins_of(spec, forward))
    outer = {attribute.name for attribute in spec.attributes} | tensors & metadata
    outer |= {item.binding for item in spec.imports} | hidden_builtins(program)
    outer -= gradient_names(spec)  # a gradient hides a file's import of the same name
    taken = outer_names(spec, None) | written(*program)
    taken |= assigned(spec.forward) if spec.forward else frozenset()
    return apart_from(graph, program, outer, taken)[0]


def _refuse_in_place(spec: OpSpec, formula: Formula, outer: frozenset[str]) -> None:
    """Raise if a backward changes a tensor it did not make, or one read later under another name.

    `outer` are the names of the op. A number attribute (`n += 1`) is no tensor.
    """
    statements = formula.lines()
    attributes = {item.name for item in spec.attributes}
    for change in Trace(statements).changes:
        not_made_here = sorted(change.outside & outer - attributes)
        if not_made_here:
            message = f"the backward changes '{not_made_here[0]}' in place, but did not create it"
            hint = f"work on a copy: {not_made_here[0]}.clone()"
            raise ScaffoldError(message, formula.location, hint)
        later = statements[change.position + 1 :]
        read = read_names(*later)
        wanted = read | gradient_names(spec)
        others = sorted(change.holders & wanted - {change.name} - attributes)
        if others:
            message = f"'{change.name}' changes in place while '{others[0]}' shares its memory"
            hint = "copy it first: .clone()"
            raise ScaffoldError(message, formula.location, hint)


def _refuse_index(spec: OpSpec) -> None:
    """Raise if `i` is an input: it is the index in the formula of a variadic input's gradient."""
    variadic = {item.name for item in spec.tensors if item.variadic}
    for name, formula in spec.gradients:
        if name in variadic and any(each.name == "i" for each in spec.inputs):
            message = f"'i' is an input, and the index in the gradient of '{name}'"
            raise ScaffoldError(message, formula.location, "rename the input")


def origins_of(spec: OpSpec, forward: Forward | None) -> dict[str, str]:
    """Map the names by which the backward may read an output, its own and the returned local's, to the output.

    `return h` for the output y -> {"y": "y", "h": "y"}. Names of inputs mean the inputs.
    """
    inputs = {item.name for item in spec.inputs}
    origins = {item.name: item.name for item in spec.outputs}
    origins |= forward.returned if forward else {}
    return {name: output for name, output in origins.items() if name not in inputs}


def _refuse_ambiguous(spec: OpSpec) -> None:
    """Raise if the stated backward reads a name that is both an output and a local returned under another name.

    `y = x + 1`, `return y * 2` as output y: which of the two is meant is unknown.
    """
    if spec.forward is None:
        return
    locals_ = assigned(spec.forward)
    returned = returned_names(spec, spec.forward.result)
    other = {
        item.name
        for item in spec.outputs
        if item.name in locals_ and returned.get(item.name) != item.name
    }
    for formula in _formulas(spec):
        for name in sorted(other & free_names(formula.lines())):
            message = f"'{name}' is a local of the forward and the name of an output"
            hint = "return it under that name, or rename it"
            raise ScaffoldError(message, formula.location, hint)


# --- The gradient of a variadic input: lines computed for each of its tensors.


def element_lines(
    spec: OpSpec, lines: tuple[Line, ...]
) -> tuple[tuple[Element, ...], tuple[Line, ...]]:
    """Separate the formulas for element `i` of a variadic input from the other lines; return both.

    Lines that depend on `i` and serve such a gradient alone belong to its formula: they stand inside its loop. A
    whole backward has no such formula: it assigns the list of gradients.
    """
    if spec.backward:
        return (), lines
    variadic = {item.name for item in spec.differentiable if item.variadic}
    gradients = {f"grad_{name}": name for name in variadic}
    elements, rest, inside = [], list[Line](), list[Statement]()
    by_index = {"i"}
    for line in lines:
        item = line.statement
        if isinstance(item, Assign) and item.target.label in gradients:
            name = gradients[item.target.label]
            elements.append(Element(name, tuple(inside), item.value))
        elif line.serves <= variadic and read_names(item) & by_index:
            by_index |= written(item)
            inside.append(item)
        else:
            rest.append(line)
    return tuple(elements), tuple(rest)
