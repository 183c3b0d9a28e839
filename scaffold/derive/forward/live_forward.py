"""Which statements of the forward stand in the backward again, and the forward that saves the other values.

In: an `OpSpec` and its `Maths`. Out: a `Reuse`, and the forward as it will stand. Invariant: a statement that reads what has changed since, draws
random numbers or runs a kernel of the user's is not repeated.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from scaffold.derive.activity import (
    active_locals,
    calls_unknown,
    is_random,
    leaves_torch,
)
from scaffold.derive.aliasing import Trace
from scaffold.derive.backward_program import free_reads, surely_written
from scaffold.derive.derivation import Forward, Maths, Saved
from scaffold.derive.forward.body import write_forward
from scaffold.derive.forward.outputs import kept_apart, saved_apart
from scaffold.derive.forward.ssa_names import as_they_were
from scaffold.derive.live_variables import without_checks, without_dead
from scaffold.derive.metadata import reads
from scaffold.derive.plan.recomputation import Locals, Plan, plan, repeated_for
from scaffold.derive.value_kinds import Kinds, kinds_of_inputs
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Node,
    Statement,
    expressions,
    sharing,
    written,
)
from scaffold.spec import OpSpec

Lines = tuple[Statement, ...]
LEFT_OUT = "something to save where no branch assigns it"


class Reuse(NamedTuple):
    """Which statements of the forward stand in the backward again."""

    plan: Plan
    forward: Lines  # with a name of its own for every value that is saved
    cut_off: frozenset[
        str
    ]  # saved locals that depend on an input: to a second derivative they are constants
    described: frozenset[str] = frozenset()  # locals of which shape or dtype is kept


def plan_reuse(spec: OpSpec, maths: Maths) -> Reuse:
    """Which locals of the forward are computed again in the backward, and which are saved."""
    if maths.forward is None:
        return Reuse(Plan((), ()), (), frozenset())
    graph, statements = maths.graph, maths.forward.statements
    origin = dict(maths.versions)
    again = statements if maths.again is None else maths.again
    own = written(*statements)
    chosen, described = _plan(spec, maths, again, own)
    if not own.issuperset((*chosen.saved, *described)):
        statements = again  # which has a name for all that is saved
    forward = as_they_were(graph, statements, origin, {*chosen.saved, *described})
    tensors = frozenset(item.name for item in spec.differentiable)
    cut_off = active_locals(statements, tensors) & set(chosen.saved)
    return Reuse(chosen, forward, cut_off, described)


def _plan(
    spec: OpSpec, maths: Maths, statements: Lines, own: frozenset[str]
) -> tuple[Plan, frozenset[str]]:
    """Which of these statements come again, and of which locals only the shape is kept; the forward's `own` names are rather saved."""
    inputs = {item.name for item in spec.inputs}
    statements = without_checks(maths.graph, statements)
    locals_ = written(*statements) - inputs
    found = [read for read, _ in free_reads(maths.program) if read.name in locals_]
    wanted = frozenset(read.name for read in found)
    # The shape of a part, `x[:, 1:].shape`, is none that is kept of the whole.
    data = frozenset(read.name for read in found if read.element or not read.facets)
    kinds = kinds_of_inputs(spec).after(statements)
    forward = Locals(
        statements,
        _Repeatable(spec, statements, kinds),
        kinds,
        locals_ & frozenset(dict(maths.origins)),
        maths.place,
        maths.graph,
        frozenset(inputs | written(*maths.program)),
    )
    chosen = _chooser(spec, maths, wanted & own)
    outputs = frozenset(dict(maths.origins))
    asked = wanted - data - outputs
    if spec.style != "combined":
        return chosen(forward, wanted - outputs), frozenset()
    least = chosen(forward, data - outputs)
    there = written(*least.repeated) | set(least.saved)
    described = frozenset(
        name
        for name in asked - there
        if forward.kinds.of_name(name) == "tensor" and not _unsure(statements, (name,))
    )
    return chosen(forward, wanted - outputs - described), described


def _chooser(
    spec: OpSpec, maths: Maths, read: frozenset[str]
) -> Callable[[Locals, frozenset[str]], Plan]:
    """What says which statements come again, of those that wanted locals need; `read` are locals that may be saved."""
    saved = maths.kept
    if saved is None:
        at_will = spec.once_differentiable or spec.forgoes_second
        saved = read if at_will else frozenset()
    plan_ = repeated_for if maths.planned else plan
    return lambda forward, wanted: plan_(forward, wanted, saved)


def _unsure(statements: Lines, names: Iterable[str]) -> tuple[str, ...]:
    """The names that only some branches assign."""
    sure = surely_written(*statements)
    return tuple(name for name in names if name not in sure)


class ReturningForward(NamedTuple):
    """The forward as it will stand."""

    forward: Lines | None  # None: not written yet
    results: tuple[Node, ...]
    extra: tuple[Node, ...]  # the locals that it returns as well, for setup_context


def forward_that_saves(
    spec: OpSpec, maths: Maths, reuse: Reuse, saved: tuple[Saved, ...]
) -> ReturningForward:
    """The forward that also returns the locals which are saved, or copies them."""
    if maths.forward is None:
        return ReturningForward(None, (), ())
    graph, results, statements = maths.graph, maths.forward.results, reuse.forward
    kept = tuple(item.origin for item in saved if item.source == "intermediate")
    begun = [
        Assign(graph.name(name), _nothing(spec, graph), "", (LEFT_OUT,))
        for name in _unsure(statements, kept)
    ]
    live = reuse.described.union(kept, *(value.names() for value in results))
    statements = without_dead(graph, statements, live, effects(spec))
    statements, extra = (*begun, *statements), tuple[Node, ...]()
    if spec.style == "setup-context":
        results, extra = kept_apart(spec, graph, statements, results, saved)
    else:
        statements = saved_apart(graph, statements, results, saved)
    return ReturningForward(statements, results, extra)


def _nothing(spec: OpSpec, graph: Graph) -> Node:
    """What to save of a local that a branch has left out: an empty tensor, on the device of an input."""
    sure = [item for item in spec.tensors if not (item.variadic or item.optional)]
    owner, maker = (sure[0].name, "new_empty") if sure else ("torch", "empty")
    function = graph.node("attribute", maker, (graph.name(owner),))
    return graph.node("call", "", (function, graph.constant("0")))


class _Repeatable:
    """Whether computing a statement again gives the same at a fair price."""

    def __init__(self, spec: OpSpec, statements: Lines, kinds: Kinds) -> None:
        objects = {item.name for item in spec.attributes}
        self.spec, self.kinds = spec, kinds
        self.unknown = frozenset(objects | (spec.foreign - kinds.arrays))
        changes = Trace(statements, sharing).changes
        several = [item.holders for item in changes if len(item.holders) > 1]
        self.changed = frozenset(spec.dirty).union(*several)

    def __call__(self, item: Statement) -> bool:
        touched = written(item) | {
            read.name
            for node in expressions(item)
            for read in reads(node)
            if not read.facets
        }
        return not touched & self.changed and all(
            self._fair(node) for node in expressions(item)
        )

    def _fair(self, node: Node) -> bool:
        if is_random(node) or calls_unknown(node, self.unknown):
            return False
        if self.kinds.of(node) in ("scalar", "array"):
            return True
        return not leaves_torch(node, self.unknown & self.spec.foreign)


def live_forward(spec: OpSpec, formula: Formula, ends: bool = False) -> Forward:
    """The forward without the lines that its results do not need; `ends`: those results that have a gradient."""
    forward = write_forward(spec, formula)
    if ends and not formula.kept:
        pairs = zip(spec.outputs, forward.results, strict=True)
        results = tuple(value for output, value in pairs if output.differentiable)
        forward = forward._replace(results=results)
    live = frozenset().union(*(value.names() for value in forward.results))
    lines = without_dead(formula.graph, forward.statements, live, effects(spec))
    return forward._replace(statements=lines)


def effects(spec: OpSpec) -> Callable[[Node], bool]:
    """Whether an expression does more than to compute its value, as far as one can see."""
    unknown = spec.foreign | {item.name for item in spec.attributes}
    return lambda node: is_random(node) or calls_unknown(node, unknown)
