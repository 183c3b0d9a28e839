"""The jvp of an op: what forward mode makes of tangents, derived from the forward.

In: an `OpSpec`, its maths, and what its backward is handed. Out: a `Jvp`, and what ctx holds for both. Invariant: the jvp is the
derivative of the forward; what is saved for it is saved for the backward as well, and the reverse, since PyTorch's vmap keeps one record
of the two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from scaffold.derive.backward_program import Line
from scaffold.derive.derivation import Derivation, Jvp, Maths
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward_mode import Accumulated
from scaffold.derive.forward_mode import Forward as ForwardMode
from scaffold.derive.gradients import (
    held_by_name,
    maker_of,
    reason_of,
)
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Named, Op, Program
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.live_variables import without_dead
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.name_collisions import fresh
from scaffold.derive.plan.recomputation import plan_reuse
from scaffold.derive.plan.save_plan import PLAIN, BackwardGraph
from scaffold.derive.rules.tables import table_of
from scaffold.derive.saving import ContextNames, Origins, transfer
from scaffold.derive.simplify.constructors import Maker
from scaffold.derive.stated_gradients import outer_names
from scaffold.derive.write.statements import gradient_statements
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Node,
    Statement,
    renaming,
    rewritten,
    written,
)
from scaffold.spec import OpSpec

Lines = tuple[Statement, ...]
HINT = "leave out forward-ad, or write the forward with primitives of the table"


def with_jvp(spec: OpSpec, maths: Maths, found: Derivation) -> Derivation:
    """The op with the jvp that follows from its forward."""
    parameters = _parameters(spec, maths)
    if maths.forward is None:
        return replace(found, jvp=Jvp(parameters, (), (), missing=True))
    try:
        statements, known, again = _statements(spec, maths, found, parameters)
    except (UnsupportedError, RecursionError) as error:
        message = f"no jvp can be derived: {reason_of(error)}"
        raise ScaffoldError(message, maths.place, HINT) from None
    maths = maths._replace(
        program=statements,
        kept=frozenset(found.intermediates),
        planned=True,
        again=again,
    )
    return _handed(spec, maths, found, parameters, known)


def _parameters(spec: OpSpec, maths: Maths) -> tuple[str, ...]:
    """What the tangent of each input is called."""
    taken = set(outer_names(spec, maths.forward) | written(*maths.program))
    found = []
    for item in spec.inputs:
        found.append(fresh(f"tangent_{item.name}", taken))
        taken.add(found[-1])
    return tuple(found)


def _pairs(spec: OpSpec, parameters: Iterable[str]) -> Iterable[tuple[str, str]]:
    return zip((item.name for item in spec.inputs), parameters, strict=True)


def _statements(
    spec: OpSpec, maths: Maths, derivation: Derivation, parameters: tuple[str, ...]
) -> tuple[Lines, frozenset[str], Lines | None]:
    """Statements that assign `grad_<output>`, as the writer of gradients names what it computes, the outputs that have one, and the forward for
    what comes again.
    """
    assert maths.forward is not None
    variadic = (*(i.variadic for i in spec.differentiable), spec.outputs[-1].variadic)
    if any(variadic):
        raise UnsupportedError("it takes or returns any number of tensors")
    spec = replace(spec, save_policy="recompute", once_differentiable=None)
    wanted = tuple(item.name for item in spec.differentiable)
    taken = outer_names(spec, maths.forward) | {*parameters}
    table = table_of(spec)
    program = Program(maths.graph, table.facts, declared(spec))
    applier = Applier(program, table)
    lowered = lower(spec, maths.forward, applier, frozenset(wanted))
    seeds = _seeds(program, lowered, wanted, dict(_pairs(spec, parameters)))
    held = held_by_name(spec, lowered)
    make = maker_of(applier, lowered, held, seeds)
    ends = _ends(spec, derivation, lowered, held)
    found = ForwardMode(make, {op: seed for seed, op in seeds.items()}).run(
        tuple(ends.values())
    )
    roots = _roots(make, ends, found)
    backward = BackwardGraph(
        spec, applier, maths.forward, lowered, held, seeds, roots, found.of, {}, taken
    )
    derived = gradient_statements(backward, "setup-context")
    memory = {f"grad_{name}": op.facts.memory for name, op in ends.items()}
    statements = tuple(
        _viewed(maths.graph, item, parameters, memory) for item in derived.statements
    )
    return statements, frozenset(roots), derived.again


def _viewed(
    graph: Graph,
    item: Statement,
    parameters: Iterable[str],
    memory: Mapping[str, str],
) -> Statement:
    """`tangent_x[...]` for a tangent that may be one of an input, of an output that may be an input as it is: PyTorch wants a view."""
    said = memory.get(item.target.label) if isinstance(item, Assign) else None
    if not isinstance(item, Assign) or said in (None, "fresh"):
        return item
    bare = item.value.kind == "name" and item.value.label in parameters
    if not bare and said != "same":
        return item
    whole = graph.node("subscript", "", (item.value, graph.constant("...")))
    return replace(item, value=whole)


def _ends(
    spec: OpSpec, derivation: Derivation, lowered: Lowered, held: Mapping[Op, str]
) -> dict[str, Op]:
    """What has a tangent of what forward returns, by what is left of the names that the writer gives them.

    Intermediates have one too: without it forward mode would take them for constants of the backward, as for a Hessian.
    """
    pairs = zip(spec.outputs, lowered.results, strict=True)
    ends = {_stem(spec, item.name): op for item, op in pairs if item.differentiable}
    if derivation.extra:
        named = {name: op for op, name in held.items()}
        for name in derivation.intermediates:
            if name not in named:
                raise UnsupportedError(f"'{name}' is saved for the backward")
            ends[name] = named[name]
    return {name: op for name, op in ends.items() if op.kind in PLAIN}


def _stem(spec: OpSpec, output: str) -> str:
    return grad_name(spec, output).removeprefix("grad_")


def _seeds(
    program: Program,
    lowered: Lowered,
    wanted: Iterable[str],
    tangents: Mapping[str, str],
) -> dict[Op, Op]:
    """The tangent of each input."""
    found = {}
    for name in wanted:
        item = lowered.inputs[name]
        tangent = program.op(
            "cotangent", (), Named(tangents[name]), kind=item.kind, shape=item.shape
        )
        found[tangent] = item
    return found


def _roots(make: Maker, ends: Mapping[str, Op], found: Accumulated) -> dict[str, Op]:
    """The tangents of what forward returns; zeros of what no input with a tangent reaches."""
    roots = {}
    for (name, op), tangent in zip(ends.items(), found.results, strict=True):
        roots[name] = make.zeros(op, op.shape) if tangent is None else tangent
    return roots


def _handed(
    spec: OpSpec,
    maths: Maths,
    found: Derivation,
    parameters: tuple[str, ...],
    known: frozenset[str],
) -> Derivation:
    """The statements over ctx, and what ctx holds for both directions."""
    graph, every = maths.graph, frozenset(item.name for item in spec.differentiable)
    reuse = plan_reuse(replace(spec, style="setup-context"), maths)
    program = (*reuse.plan.repeated, *maths.program)
    ends = frozenset(f"grad_{name}" for name in known)
    program = without_dead(graph, program, ends, lambda node: False)
    program = _by_presence(spec, graph, program, dict(_pairs(spec, parameters)))
    origins = Origins(dict(maths.origins), reuse.plan.saved, reuse.described)
    lines = tuple(Line(item, every) for item in program)
    names = ContextNames(spec)
    handed = transfer(
        spec, graph, lines, origins, names, maths.place, gradients_come_in=False
    )
    there = {item.name for item in found.saved}
    extra = (item for item in handed.saved if item.name not in there)
    kept = {item.name: item for item in (*found.kept, *handed.kept)}
    returned = [_stem(spec, output.name) for output in spec.outputs]
    returned += found.intermediates if found.extra else ()
    lines_over_ctx = tuple(line.statement for line in handed.lines)
    named = _tangent_names(spec, maths, lines_over_ctx, parameters)
    results = tuple(
        graph.name(named[f"grad_{name}"]) if name in known else None
        for name in returned
    )
    statements = rewritten(graph, lines_over_ctx, renaming(graph, named))
    return replace(
        found,
        saved=(*found.saved, *extra),
        kept=tuple(kept.values()),
        jvp=Jvp(parameters, tuple(map(_said_of_value, statements)), results),
    )


def _by_presence(
    spec: OpSpec,
    graph: Graph,
    statements: tuple[Statement, ...],
    tangents: Mapping[str, str],
) -> tuple[Statement, ...]:
    """An optional input is there where its tangent is."""
    optional = {item.name for item in spec.differentiable if item.optional}

    def change(node: Node) -> Node | None:
        if node.kind != "compare" or node.label not in ("is", "is not"):
            return None
        name, other = node.args
        if name.kind != "name" or name.label not in optional or other.label != "None":
            return None
        return graph.node(
            "compare", node.label, (graph.name(tangents[name.label]), other)
        )

    return rewritten(graph, statements, change)


def _as_tangent(name: str) -> str:
    """What a value is called: as the writer of gradients calls it, but that it is a tangent."""
    return "_".join("tangent" if part == "grad" else part for part in name.split("_"))


def _tangent_names(
    spec: OpSpec, maths: Maths, statements: Lines, parameters: Iterable[str]
) -> dict[str, str]:
    """What each name that is assigned becomes; no two become one, as `y` of the forward with a `tangent_y` of the forward would."""
    names = sorted(written(*statements))
    taken = outer_names(spec, maths.forward) | {*parameters, *names}
    found: dict[str, str] = {}
    for name in names:
        new = _as_tangent(name)
        found[name] = name if new == name else fresh(new, taken)
        taken |= {found[name]}
    return found


def _said_of_value(item: Statement) -> Statement:
    """A statement whose comment says what a tangent is of."""
    if isinstance(item, If):
        body, orelse = (
            tuple(map(_said_of_value, part)) for part in (item.body, item.orelse)
        )
        return replace(item, body=body, orelse=orelse)
    said = tuple(text.replace("w.r.t. ", "of ", 1) for text in item.comments)
    return replace(item, comments=said)
