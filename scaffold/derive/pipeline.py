"""An op's `Derivation` from the formulas that the user gave.

In: an `OpSpec`. Out: forward and backward as they will stand, what is saved, where each line goes.
Invariant: pure; a gradient that nobody gave is `missing`, never guessed.
"""

from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.activity import is_random, leaves_torch
from scaffold.derive.derivation import Derivation, Filled, Kept, Saved
from scaffold.derive.forward.body import grad_name
from scaffold.derive.forward.detached_outputs import detached_outputs, without_gradient
from scaffold.derive.forward.live_forward import Reuse, effects, plan_reuse
from scaffold.derive.forward.outputs import kept_apart, saved_apart
from scaffold.derive.forward.verbatim_forward import fills_a_constant, is_steady
from scaffold.derive.given import Given, take_apart
from scaffold.derive.plan.recomputation import unsure
from scaffold.derive.saving import ContextNames, Origins, Transfer, transfer
from scaffold.derive.shape_guards import shape_checks
from scaffold.derive.stated_gradients import element_lines
from scaffold.derive.write.backward_program import Line, lines_of, read_names
from scaffold.derive.write.layout import blocks_of, once_each
from scaffold.derive.write.live_variables import without_dead
from scaffold.derive.write.placement import joint_gradients
from scaffold.errors import ScaffoldError
from scaffold.formula import Assign, Graph, Node, Statement, expressions, written
from scaffold.spec import OpSpec

Lines = tuple[Statement, ...]
LEFT_OUT = "something to save where no branch assigns it"


def derive(spec: OpSpec) -> Derivation:
    """What forward and backward of the op are."""
    detached = detached_outputs(spec)
    found = _in_its_style(without_gradient(spec, detached))
    return replace(found, detached=detached) if detached else found


def _in_its_style(spec: OpSpec) -> Derivation:
    if spec.style_is_free and spec.derive and spec.kept is None:
        combined = replace(spec, style="combined")
        found = _derived(combined)
        if found.once_differentiable and not found.missing:
            return _checked(combined, found)
    return _checked(spec, _derived(spec))


def _checked(spec: OpSpec, found: Derivation) -> Derivation:
    """With the checks of the declared shapes that the backward relies on."""
    return replace(found, checks=shape_checks(spec, found, _derived))


def _derived(spec: OpSpec) -> Derivation:
    given = take_apart(spec)
    reuse = plan_reuse(spec, given)
    program = (*reuse.plan.repeated, *given.program)
    once = _once_differentiable(spec, given, reuse, program)
    wanted = [item.name for item in spec.differentiable]
    program = once_each(spec, given, _live(given.graph, program, wanted))
    lines = lines_of(program, wanted)
    like = dict(given.like)
    origins = Origins(given.origins, reuse.plan.saved, reuse.described, like)
    names = ContextNames(spec)
    handed = transfer(spec, given.graph, lines, origins, names, given.place)
    return _derivation(spec, given, reuse, handed, names, once)


def _live(graph: Graph, program: Lines, wanted: list[str]) -> Lines:
    targets = frozenset(f"grad_{name}" for name in wanted)
    return without_dead(graph, program, targets, lambda node: False)


class _Context(NamedTuple):
    """What goes from forward to backward, and which incoming gradients it is for."""

    saved: tuple[Saved, ...]
    kept: tuple[Kept, ...]
    filled: tuple[Filled, ...]
    watched: tuple[str, ...]


def _derivation(
    spec: OpSpec,
    given: Given,
    reuse: Reuse,
    handed: Transfer,
    names: ContextNames,
    once: bool,
) -> Derivation:
    missing = _missing(spec, handed.lines)
    context = _context(spec, handed, names, missing)
    statements, results, extra = _forward(spec, given, reuse, context.saved)
    lines = _without_extra(spec, given.graph, handed.lines) if extra else handed.lines
    elements, lines = element_lines(spec, lines)
    found = Derivation(
        forward=statements,
        results=results,
        extra=extra,
        comments=given.forward.comments if given.forward else (),
        blocks=blocks_of(given, lines),
        elements=elements,
        missing=missing,
        derived=given.derived - missing,
        domains=given.domains,
        joint=joint_gradients(lines),
        saved=context.saved,
        kept=context.kept,
        filled=context.filled,
        watched=context.watched,
        style=spec.style,
        once_differentiable=once,
        notes=given.notes,
    )
    return _judged(found, spec, given)


def _without_extra(
    spec: OpSpec, graph: Graph, lines: tuple[Line, ...]
) -> tuple[Line, ...]:
    """The lines in which autograd of the forward as a whole sees its results, and not the locals that it saves."""
    from scaffold.derive.autograd_fallback import of_results

    return tuple(
        line._replace(statement=of_results(spec, graph, line.statement))
        for line in lines
    )


def _judged(found: Derivation, spec: OpSpec, given: Given) -> Derivation:
    """With what the rest of PyTorch can make of the op."""
    opaque, random = _opaque(spec, given), _draws(given)
    steady = is_steady(spec)
    forward = given.forward
    fills = forward and fills_a_constant(forward.statements, forward.results)
    pure = steady and not (opaque or random or spec.dirty or fills)
    return replace(
        found,
        opaque=opaque,
        random=random,
        compiles=steady and not opaque and not _sole_constant(spec),
        transforms=_transforms(spec, pure),
    )


def _context(
    spec: OpSpec, handed: Transfer, names: ContextNames, missing: frozenset[str]
) -> _Context:
    """What ctx holds; all that there is where a gradient is still to be written."""
    saved, kept = handed.saved, handed.kept
    watched = () if spec.materialize_grads else _watched(spec, handed.lines, missing)
    if missing:
        saved, kept = _all_for(missing, spec, handed, names)
        return _Context(saved, kept, (), watched)
    filled = _filled(spec, watched, names)
    return _Context(saved, (*kept, *_kept_for(filled, kept)), filled, watched)


def _forward(
    spec: OpSpec, given: Given, reuse: Reuse, saved: tuple[Saved, ...]
) -> tuple[Lines | None, tuple[Node, ...], tuple[Node, ...]]:
    """The forward, its results and what it returns beside them, as saving some of its locals asks."""
    if given.forward is None:
        return None, (), ()
    graph, results, statements = given.graph, given.forward.results, reuse.forward
    kept = tuple(item.origin for item in saved if item.source == "intermediate")
    begun = [
        Assign(graph.name(name), _nothing(spec, graph), "", (LEFT_OUT,))
        for name in unsure(statements, kept)
    ]
    live = reuse.described.union(kept, *(value.names() for value in results))
    statements = without_dead(graph, statements, live, effects(spec))
    statements, extra = (*begun, *statements), tuple[Node, ...]()
    if spec.style == "setup-context":
        results, extra = kept_apart(spec, graph, statements, results, saved)
    else:
        statements = saved_apart(graph, statements, results, saved)
    return statements, results, extra


def _nothing(spec: OpSpec, graph: Graph) -> Node:
    """What to save of a local that a branch has left out."""
    sure = [item for item in spec.tensors if not (item.variadic or item.optional)]
    owner, maker = (sure[0].name, "new_empty") if sure else ("torch", "empty")
    function = graph.node("attribute", maker, (graph.name(owner),))
    return graph.node("call", "", (function, graph.constant("0")))


def _once_differentiable(
    spec: OpSpec, given: Given, reuse: Reuse, program: Lines
) -> bool:
    """As the user says; else where a second derivative would be silently wrong or is impossible."""
    if spec.once_differentiable is None:
        constant = bool(reuse.constant) or given.once
        return constant or _leaves_torch(spec, program)
    if reuse.constant and not spec.once_differentiable:
        message = f"'{min(reuse.constant)}' cannot be computed again, so it is saved as a constant"
        hint = "the second derivative would be wrong: let the op be once-differentiable"
        raise ScaffoldError(message, given.place, hint)
    return spec.once_differentiable


def _transforms(spec: OpSpec, pure: bool) -> bool:
    """As the user says; else where torch.func can do without the user's own rule."""
    if spec.transforms is None:
        return pure and spec.style == "setup-context"
    return spec.transforms


def _leaves_torch(spec: OpSpec, statements: Lines) -> bool:
    nodes = (node for item in statements for node in expressions(item))
    return any(leaves_torch(node, spec.foreign) for node in nodes)


def _opaque(spec: OpSpec, given: Given) -> bool:
    forward = given.forward
    if forward and any(leaves_torch(node, spec.foreign) for node in forward.results):
        return True
    return _leaves_torch(
        spec, (*(forward.statements if forward else ()), *given.program)
    )


def _draws(given: Given) -> bool:
    """Whether the forward draws random numbers."""
    if given.forward is None:
        return False
    inner = (node for item in given.forward.statements for node in expressions(item))
    return any(is_random(node) for node in (*inner, *given.forward.results))


def _sole_constant(spec: OpSpec) -> bool:
    """A single output that is marked non-differentiable, which torch.compile does not take."""
    return len(spec.outputs) == 1 and spec.outputs[0].const


def _missing(spec: OpSpec, lines: tuple[Line, ...]) -> frozenset[str]:
    names = {name for line in lines for name in written(line.statement)}
    return frozenset(
        item.name for item in spec.differentiable if f"grad_{item.name}" not in names
    )


def _all_for(
    missing: frozenset[str], spec: OpSpec, handed: Transfer, names: ContextNames
) -> tuple[tuple[Saved, ...], tuple[Kept, ...]]:
    """What an unwritten gradient may want: every tensor input and every attribute."""
    found = {item.name: item for item in handed.saved}
    for item in spec.tensors:
        serves = found[item.name].serves if item.name in found else frozenset()
        saved = Saved(item.name, "input", serves | missing, item.name)
        found[item.name] = saved
    ordered = [found.pop(item.name) for item in spec.tensors if not item.variadic]
    last = [found.pop(item.name) for item in spec.tensors if item.variadic]
    kept = {item.name: item for item in handed.kept}
    for attribute in spec.attributes:
        name = names.attribute(attribute.name)
        kept[name] = Kept(name, attribute.name)
    return (*ordered, *found.values(), *last), tuple(kept.values())


def _watched(
    spec: OpSpec, lines: tuple[Line, ...], missing: frozenset[str]
) -> tuple[str, ...]:
    """The outputs without whose gradients, if all are None, there is nothing to compute."""
    outputs = [item.name for item in spec.outputs if item.differentiable]
    if missing:
        return tuple(outputs)
    names = read_names(*(line.statement for line in lines))
    return tuple(name for name in outputs if grad_name(spec, name) in names)


def _filled(
    spec: OpSpec, watched: tuple[str, ...], names: ContextNames
) -> tuple[Filled, ...]:
    """Gradients of several outputs: each is zeros where another is there."""
    several = any(item.variadic for item in spec.outputs if item.name in watched)
    if len(watched) < 2 and not several:
        return ()
    facets = ("shape", "dtype", "device")
    return tuple(
        Filled(name, *(names.facet(name, facet) for facet in facets))
        for name in watched
    )


def _kept_for(filled: tuple[Filled, ...], kept: tuple[Kept, ...]) -> tuple[Kept, ...]:
    known = {item.name for item in kept}
    found = []
    for item in filled:
        pairs = ((item.shape, "shape"), (item.dtype, "dtype"), (item.device, "device"))
        found += [Kept(name, facet, item.output) for name, facet in pairs]
    return tuple(item for item in found if item.name not in known)
