"""The derivation of an op, pass by pass.

In: an `OpSpec`. Out: a `Derivation`: the final forward and backward, the saved values, the place of each line.
Invariant: pure; an unknown gradient is `missing`, never guessed.

There are three ways to a gradient: a formula states it; it is derived from the forward by the rules of its primitives;
or else autograd differentiates the whole forward. All three give statements that assign `grad_<input>`, and share all
later passes.

Two values pass from pass to pass: `maths` (`Maths`), forward and backward before it is decided what is saved; and
`found`, the `Derivation`, complete at the end. The engine (the graph, the rules, simplification) takes long to import:
it is imported inside the functions that need it.

Words: a gradient is stated if the user gives its formula, a surrogate if it is meant to differ from the derivative; a forward is
kept if it stays as the user wrote it. A version is one value of a name assigned several times. In combined style forward fills ctx
by itself.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from scaffold.derive.analysis.activity import is_random
from scaffold.derive.analysis.live_variables import without_dead
from scaffold.derive.autocast import amp_of, is_changed
from scaffold.derive.backward_kernels import with_registered_backward
from scaffold.derive.backward_program import Line, lines_of
from scaffold.derive.capabilities import (
    capabilities,
    once_differentiable,
    outside_of_pytorch,
)
from scaffold.derive.derivation import (
    Derivation,
    Forward,
    GradientStatements,
    Maths,
    RealInputs,
)
from scaffold.derive.forward.body import grad_name, write_forward
from scaffold.derive.forward.detached_outputs import detached_outputs, without_gradient
from scaffold.derive.forward.input_names import with_input_names
from scaffold.derive.forward.live_forward import forward_that_saves
from scaffold.derive.forward.ssa_names import with_versions
from scaffold.derive.library import refuse_unregistrable
from scaffold.derive.plan.recomputation import Reuse, plan_reuse
from scaffold.derive.saving import (
    ContextNames,
    Origins,
    context_of,
    is_vector,
    transfer,
    without_views,
)
from scaffold.derive.shape_guards import shape_checks
from scaffold.derive.stated_gradients import (
    element_lines,
    origins_of,
    outer_names,
    stated_backward,
)
from scaffold.derive.stated_real_inputs import of_stated
from scaffold.derive.write.common_subexpressions import with_repeats_named
from scaffold.derive.write.composition import composed
from scaffold.derive.write.output_masks import with_output_masks
from scaffold.derive.write.placement import (
    blocks_of,
    joint_gradients,
    unguarded_for_most,
)
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Lines,
    Trace,
    assigned,
    expressions,
    free_names,
    renaming,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec

if TYPE_CHECKING:
    from scaffold.derive.gradients import Differentiated


class Source(NamedTuple):
    """The part of an op's maths common to all styles."""

    graph: Graph
    place: Location
    forward: Forward | None
    versions: tuple[tuple[str, str], ...]  # a name of the forward -> the user's
    stated: Lines  # statements of the gradients' formulas
    gradients: "Differentiated | None"  # the derived gradients
    refused: str | None  # why none is derived


def derive(spec: OpSpec) -> Derivation:
    """Derive forward and backward of an op: the passes in order, each with the reason for its place."""
    # First: all later passes treat a detached output as one without gradient.
    detached = detached_outputs(spec)
    # A surrogate is another function, differentiated in place of the forward: from here
    # on its derivatives are formulas of the spec, as if the user had stated them.
    spec = _with_surrogate(without_gradient(spec, detached))
    # A kept forward stands as the user wrote it, for instance with a loop: its locals
    # are not known, so only its inputs and outputs can be saved.
    if spec.kept is not None:
        spec = replace(spec, save_policy="recompute")
    # The style is how forward fills ctx: in `setup_context`, by itself ("combined"), or
    # as a registered op ("library"). The gradients as a graph are the same in each.
    source = _before_style(spec)
    spec, maths, found = _choose_style(spec, source)
    # By this the shape checks derive the op with other shapes, to compare lines: those of `found` do not change below.
    relies = partial(_if_declared_as, source, maths, found)
    # `amp` is what the op does under autocast. Of an op that runs its backward under
    # the forward's autocast, `region` says if that is written: it is left out where no
    # line of the backward would change, unless the user asked for it.
    amp = amp_of(spec)
    region = amp == "region" and (spec.amp is not None or _is_under_autocast(found))
    found = replace(found, detached=detached, amp=amp, region=region)
    # After all simplifications of gradients, since each may drop a conjugate.
    found = replace(found, real=_real_inputs(spec, source))
    # Only the finished backward shows its reliance on declared shapes.
    checks = shape_checks(spec, source.forward, found, relies)
    if spec.forward_ad:
        from scaffold.derive.forward_mode import with_jvp  # imports the engine

        found = with_jvp(spec, maths, found)
    # After the checks, which examine each line of the backward: here lines that leave
    # PyTorch become registered ops of their own, in library style.
    found = with_registered_backward(spec, source.graph, replace(found, checks=checks))
    refuse_unregistrable(spec, found)
    return found


def _is_under_autocast(found: Derivation) -> bool:
    """Return whether the backward has a line autocast may change: only then is it written under the forward's autocast.

    A gradient still missing counts too, since nothing is known of the lines the user will write. `elements` are the
    lines of gradients of variadic inputs, written apart from the blocks.
    """
    lines = [*found.lines]
    lines += [line for element in found.elements for line in element.statements]
    values = (element.value for element in found.elements)
    return bool(found.missing) or is_changed((*expressions(*lines), *values))


def _real_inputs(spec: OpSpec, source: Source) -> RealInputs | None:
    """Return the inputs that get wrong gradients if complex, so the backward refuses such; None if there are none."""
    forward, derived = source.forward, None
    stated = of_stated(spec, forward, source.stated) if forward else None
    if source.gradients is not None:
        from scaffold.derive.real_inputs import real_inputs  # imports the engine

        derived = real_inputs(spec, source.gradients)
    if stated is None or derived is None:
        return stated or derived
    # Where an input is refused, no group has to be all real or all complex: `alike` is left out.
    either = {*stated.names, *derived.names}
    names = tuple(item.name for item in spec.tensors if item.name in either)
    told = (one.names for one in (stated, derived) if one.shown)
    return RealInputs(names, any(names == one for one in told))


def _with_surrogate(spec: OpSpec) -> OpSpec:
    """Return the op with formulas for its unstated gradients: the derivatives of its surrogate function.

    Forward `torch.sign(x)`, surrogate `torch.tanh(x)` -> the backward's formula is the gradient of tanh. One program
    for all inputs if no gradient is stated, else one formula for each unstated gradient. Return the op unchanged
    without a surrogate function, if nothing is left to derive, or if the surrogate cannot be derived.
    """
    surrogate = spec.surrogate.forward if spec.surrogate else None
    wanted = [item.name for item in spec.differentiable]
    variadic = any(item.variadic for item in spec.tensors)
    variadic |= any(item.variadic for item in spec.outputs)
    if surrogate is None or spec.forward is None or spec.backward or not spec.derive:
        return spec
    if surrogate.kept or spec.dirty or variadic or {*wanted} <= {*dict(spec.gradients)}:
        return spec
    program = _of_surrogate(spec, surrogate)
    if not program:
        return spec
    if not spec.gradients:
        lines = _without_dead(surrogate.graph, program, wanted)
        return replace(spec, backward=replace(surrogate, statements=lines, result=None))
    gradients = dict(spec.gradients)
    for name in wanted:
        lines = _without_dead(surrogate.graph, program, [name])
        result = surrogate.graph.name(f"grad_{name}")
        derived = replace(surrogate, statements=lines, result=result)
        gradients.setdefault(name, derived)
    return replace(spec, gradients=tuple(gradients.items()))


def _of_surrogate(spec: OpSpec, surrogate: Formula) -> Lines:
    """Return the statements that compute a surrogate's gradients; () if it is random, in-place or not understood.

    `surrogate` is that function. It is derived as the forward of an op `alone`, whose outputs have other names than
    the op's, as their values differ; in the end the names of its incoming gradients become those of the op's.
    """
    assert spec.forward is not None
    taken = {item.name for item in spec.inputs}
    taken |= assigned(surrogate) | assigned(spec.forward)
    names = [fresh(f"surrogate_{item.name}", taken) for item in spec.outputs]
    pairs = [*zip(spec.outputs, names, strict=True)]
    alone = replace(
        spec,
        forward=surrogate,
        outputs=tuple(item._replace(name=name) for item, name in pairs),
        surrogate=None,
        gradients=(),
        save_policy="recompute",
        style="setup-context",
        style_is_free=False,
    )
    try:
        source = _before_style(alone)
        maths = _with_derived(alone, source)
    except ScaffoldError:  # the proof reports the surrogate's error
        return ()
    graph, forward, found = source.graph, maths.forward, source.gradients
    if forward is None or found is None or found.walked is None:
        return ()
    # A gradient recomputes the surrogate's own value: the op returns another one.
    values = zip(names, forward.results, strict=True)
    results = (Assign(graph.name(name), value) for name, value in values)
    statements = forward.statements if maths.again is None else maths.again
    program = (*statements, *results, *maths.program)
    if Trace(program).changes or any(map(is_random, expressions(*program))):
        return ()
    coming = {grad_name(alone, new): grad_name(spec, old.name) for old, new in pairs}
    return rewritten(graph, program, renaming(graph, coming))


def _before_style(spec: OpSpec) -> Source:
    """Run the passes over the user's code common to all styles: names, stated formulas, derived gradients.

    Raise ScaffoldError for code that cannot be an op.
    """
    # All formulas of an op are nodes of one graph.
    formulas = (*dict(spec.gradients).values(), spec.backward, spec.forward)
    first = next(filter(None, formulas), None)
    graph = first.graph if first else Graph()
    place = first.location if first else Location(spec.name)
    # First: gradients' formulas read locals of the forward, some renamed here.
    forward = write_forward(spec, spec.forward) if spec.forward else None
    # Before versions get names: a name in a formula means its last value.
    stated = stated_backward(spec, graph, forward)
    # Before derivation: a gradient may read the first value of a local assigned twice.
    forward, versions = _with_versions(spec, graph, forward)
    # After the formulas, since only unstated gradients are derived.
    gradients, refused = _differentiated(spec, graph, forward, stated)
    return Source(graph, place, forward, versions, stated, gradients, refused)


def _choose_style(spec: OpSpec, source: Source) -> tuple[OpSpec, Maths, Derivation]:
    """Return the op in the requested or the best style, with its maths and its derivation in it.

    A combined forward (without `setup_context`) can save locals, but `torch.func` cannot transform it: it is chosen
    only where the user left the style open, and the op gives up the second derivative anyway.
    """
    may_be_combined = spec.style_is_free and bool(spec.once_differentiable)
    if may_be_combined and spec.derive and spec.kept is None:
        combined = replace(spec, style="combined")
        maths = _with_derived(combined, source)
        found = _in_style(combined, source, maths)
        # Autograd cannot differentiate such a forward, which takes ctx: a gradient may be missing.
        if not found.missing:
            return combined, maths, found
    maths = _with_derived(spec, source)
    return spec, maths, _in_style(spec, source, maths)


def _in_style(spec: OpSpec, source: Source, maths: Maths) -> Derivation:
    """Write forward and backward in the style of the spec: choose what is saved, place each line. It reads no declared shape.

    `reuse` has the locals that forward saves, and the lines of it that the backward repeats; `handed` is the backward over ctx.
    """
    # Else each backward would allocate zeros for saved values that forward returns.
    if maths.incoming.may_be_none:
        spec = replace(spec, materialize_grads=False)
    reuse, once, lines = _lines_before_ctx(spec, source, maths)
    # The lines are final now: it shows if they read a tensor's data or its shape.
    names = ContextNames(spec)
    outputs, like = dict(maths.origins), dict(maths.like)
    lines, views = without_views(spec, source.graph, lines, reuse.described)
    known = (maths.traits, maths.vectors, maths.incoming)
    origins = Origins(outputs, reuse.plan.saved, views, like, *known)
    handed = transfer(spec, source.graph, lines, origins, names, source.place)
    missing = _missing(spec, handed.lines)
    context = context_of(spec, handed, names, missing, origins)
    # After ctx: a saved local may have to be returned or copied, and the names that fill ctx are known.
    forward = forward_that_saves(spec, maths, reuse, context.saved)
    forward = with_input_names(spec, maths, forward, context)
    lines = _of_results(spec, source, handed.lines) if forward.extra else handed.lines
    if maths.derived.issuperset(item.name for item in spec.differentiable):
        lines = with_output_masks(spec, source.graph, lines)  # it reads ctx itself
    elements, lines = element_lines(spec, lines)
    return Derivation(
        **forward._asdict(),
        **context._asdict(),
        **capabilities(spec, maths)._asdict(),
        comments=maths.forward.comments if maths.forward else (),
        blocks=composed(spec, maths, blocks_of(maths, lines), elements),
        elements=elements,
        missing=missing,
        derived=maths.derived - missing,
        domains=maths.domains,
        joint=joint_gradients(lines),
        style=spec.style,
        once_differentiable=once,
        notes=maths.notes,
        incoming=maths.incoming,
    )


def _lines_before_ctx(
    spec: OpSpec, source: Source, maths: Maths
) -> tuple[Reuse, bool, tuple[Line, ...]]:
    """Return the backward's lines while they still read forward's names (`h`, `x.shape`), not yet what ctx has for them.

    Before them: `reuse`, the locals to save and the lines of the forward to repeat in the backward; and `once`, whether
    the op can be differentiated only once.
    """
    wanted = tuple(item.name for item in spec.differentiable)
    # First, before any line is dropped: the backward repeats the forward line by line.
    reuse = plan_reuse(spec, maths)
    program = (*reuse.plan.repeated, *maths.program)
    once = once_differentiable(
        spec, maths, reuse.cut_off - maths.incoming.returned, program
    )
    # Before lines get names and places: values read by dead lines alone need neither.
    program = _without_dead(source.graph, program, wanted)
    # Before ctx: a repeated expression on `x.shape` is one node, on `ctx.x_shape` it
    # may not be.
    lines = lines_of(with_repeats_named(spec, maths, program), wanted)
    if maths.derived.issuperset(wanted):
        # Before ctx: the tests determine the conditions for saving.
        lines = unguarded_for_most(spec, lines)
    return reuse, once, lines


def _if_declared_as(
    source: Source, maths: Maths, derivation: Derivation, other: OpSpec
) -> Derivation | None:
    """Derive `other`, the op with its shapes declared otherwise; return None once it is known to differ.

    `source`, `maths` and `derivation` are those of the op as declared: shape checks ask which declarations the backward
    relies on. Most of a derivation's time is spent here, so it returns at the first pass that can tell.
    """
    gradients, refused = _differentiated(
        other, source.graph, source.forward, source.stated, other=source.gradients
    )
    # The user's code reads the same: no pass before the gradients reads a declared
    # shape.
    other_source = source._replace(gradients=gradients, refused=refused)
    sources = (source, other_source)
    one, two = (item.gradients and item.gradients.outline for item in sources)
    if one != two:
        return None
    other_maths = _with_derived(other, other_source)
    if other_maths == maths:
        return derivation
    return _in_style(other, other_source, other_maths)


def _with_versions(
    spec: OpSpec, graph: Graph, forward: Forward | None
) -> tuple[Forward | None, tuple[tuple[str, str], ...]]:
    """Give every value of the forward its own name, so a gradient can read each; return also the user's name for each.

    `h = x * 2`, `h = h + y` becomes `first_h = x * 2`, `h = first_h + y`: as in SSA form, each name then means one
    value.
    """
    if forward is None:
        return None, ()
    names = written(*forward.statements)
    inputs = frozenset(item.name for item in spec.inputs)
    taken = names | outer_names(spec, forward)
    statements, origin = with_versions(graph, forward.statements, names - inputs, taken)
    return forward._replace(statements=statements), tuple(origin.items())


def _differentiated(
    spec: OpSpec,
    graph: Graph,
    forward: Forward | None,
    stated: Lines,
    other: "Differentiated | None" = None,
) -> tuple["Differentiated | None", str | None]:
    """Derive the unstated gradients; return also why they are not derived, as text for the user.

    Both are None if there is nothing to derive: a surrogate's gradients are stated by now, or unknown. With `other`, the result for the same op with other declared shapes, the
    derivation may end early, without gradients, once they must differ.
    """
    if not spec.derive or spec.surrogate or forward is None:
        return None, None
    assigned_names = written(*stated)
    names = (item.name for item in spec.differentiable)
    wanted = tuple(name for name in names if f"grad_{name}" not in assigned_names)
    refused = outside_of_pytorch(spec, forward) if wanted else None
    if not wanted or refused:
        return None, refused
    # The engine is slow to import: an op with all gradients stated is written without
    # it.
    from scaffold.derive.gradients import Question, differentiated

    taken = outer_names(spec, forward) | assigned_names
    question = Question(graph, forward, wanted, taken)
    return differentiated(spec, question, other), None


def _with_derived(spec: OpSpec, source: Source) -> Maths:
    """Join stated and derived gradients into one backward, with a forward that names the values it reads.

    `kept`, the locals to save, was decided for the derived gradients alone; the stated ones add the names they read,
    in an op that gives up its second derivative. Otherwise the choice is made anew later (None).
    """
    forward = source.forward
    derived = (
        source.gradients.statements(spec) if source.gradients else GradientStatements()
    )
    notes = derived.notes if source.refused is None else (source.refused,)
    formula = spec.kept or spec.forward
    kept = derived.kept
    if kept is not None and source.stated:  # no graph shows their reads
        kept = kept | free_names(source.stated) if spec.forgoes_second else None
    if forward is not None and derived.forward is not None:
        statements, results = derived.forward
        forward = forward._replace(statements=statements, results=results)
    names = written(*derived.statements)
    return Maths(
        graph=source.graph,
        place=source.place,
        forward=forward,
        versions=source.versions,
        program=(*source.stated, *derived.statements),
        origins=tuple(origins_of(spec, source.forward).items()),
        derived=frozenset(
            item.name for item in spec.differentiable if f"grad_{item.name}" in names
        ),
        notes=tuple(f"{formula.location}: {note}" for note in notes if formula),
        domains=derived.domains,
        kept=kept,
        planned=kept is not None and not source.stated,
        once=derived.once,
        again=derived.again,
        like=derived.like,
        traits=derived.traits,
        vectors=derived.vectors | {x.name for x in spec.tensors if is_vector(x)},
        roles=derived.roles,
        incoming=derived.incoming,
    )


def _without_dead(graph: Graph, program: Lines, wanted: Sequence[str]) -> Lines:
    """Drop statements no gradient of the `wanted` inputs needs: a gradient has no side effect, so an unread line is of no use."""
    targets = frozenset(f"grad_{name}" for name in wanted)
    return without_dead(graph, program, targets)


def _missing(spec: OpSpec, lines: Iterable[Line]) -> frozenset[str]:
    """Return the differentiable inputs without a line for `grad_<input>`: the user has to write it."""
    names = {name for line in lines for name in written(line.statement)}
    wanted = (item.name for item in spec.differentiable)
    return frozenset(name for name in wanted if f"grad_{name}" not in names)


def _of_results(
    spec: OpSpec, source: Source, lines: tuple[Line, ...]
) -> tuple[Line, ...]:
    """Let autograd of the whole forward differentiate only the op's results, not the saved locals also returned.

    `torch.func.vjp(Op.forward, x)` -> `torch.func.vjp(lambda x: Op.forward(x)[0], x)`; other lines stay as they are,
    and so do all if no gradient is derived.
    """
    if source.gradients is None:
        return lines
    run = source.gradients.of_results
    return tuple(line._replace(statement=run(spec, line.statement)) for line in lines)
