"""Choose the forward statements the backward repeats, and the names saved instead: for stated gradients and kernels.

A gradient stated by the user, `grad_x = grad * y`, may read a local `y = x.exp()` of the forward: the backward repeats that line,
or `y` is saved. `pipeline` calls `plan_reuse` for every op.

In: an `OpSpec` and its `Maths`: the forward's statements and the names the backward reads of them. Out: a `Reuse`: the statements
to repeat and the names to save. Invariant: a repeated statement gives the same value, so it reads nothing changed since, draws no
random numbers and runs no kernel of the user's; a saved value is a tensor, and the last value of its name.

`plan` decides for gradients stated by formulas or kernels. For derived gradients `save_plan` has already chosen the saved values
from the graph, and `repeated_for` only finds the statements to compute the rest.

Words: `wanted` locals of the forward are read by the backward; `results` are locals returned as outputs, available without saving
them. A name is live at a statement if a later one that is repeated, or the backward, reads the value it has there. Names in `first`
are saved if any line reads them, names in `rather` if saving pays; a name is `hit` by a statement that assigns it while it is live,
and `spoilt` if a repeated line would assign it though it is saved or returned.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from scaffold.derive.analysis.activity import (
    active_locals,
    calls_unknown,
    is_random,
    leaves_torch,
)
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.analysis.live_variables import without_checks, without_dead
from scaffold.derive.derivation import Maths
from scaffold.derive.forward.ssa_names import as_they_were
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    ValueKinds,
    data_read,
    expressions,
    free_reads,
    read_names,
    renaming,
    rewritten,
    same_tensor,
    surely_written,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec


class Plan(NamedTuple):
    """The statements to repeat in the backward, and the names to save in the forward."""

    repeated: Lines
    saved: tuple[str, ...]


class Locals(NamedTuple):
    """Facts about the forward's statements."""

    statements: Lines
    repeatable: Callable[[Statement], bool]  # it may run again in the backward
    kinds: ValueKinds  # is a name a tensor?
    results: frozenset[str]  # locals whose last value is an output
    place: Location  # of the formula, for messages
    graph: Graph
    taken: frozenset[str] = frozenset()  # names of the backward, not free


class _SavedTooEarlyError(Exception):
    """A name would have to be saved before its last assignment."""


def plan(forward: Locals, wanted: frozenset[str], rather: frozenset[str]) -> Plan:
    """Walk back from the wanted locals: repeat a statement if that is cheap and safe, else save its targets.

    Names in `rather` are saved even if their statement may be repeated. If a value to save were later overwritten, save wanted
    locals themselves: first one of them, at last all.
    """
    attempts = [frozenset[str]()]
    attempts += [frozenset({name}) for name in sorted(wanted)]
    for first in (*attempts, wanted):
        try:
            return _walk(forward, wanted, first, rather)
        except _SavedTooEarlyError:
            continue
    raise AssertionError("every wanted local can be saved")


def repeated_for(
    forward: Locals, wanted: frozenset[str], saved: frozenset[str]
) -> Plan:
    """Return the statements that compute the wanted locals from `saved`, and the names in `saved` they read.

    More is saved only if a statement cannot be repeated.
    """
    try:  # an output is available without saving
        return _walk(forward, wanted, saved - forward.results, frozenset())
    except _SavedTooEarlyError:  # a name in `saved` is assigned again: choose anew
        return plan(forward, wanted, saved)


def _walk(
    forward: Locals,
    wanted: frozenset[str],
    first: frozenset[str],
    rather: frozenset[str],
) -> Plan:
    """Walk back from `wanted`: repeat each statement that assigns a live name, or save the name if it must or should not run again.

    Names in `first` are saved if read at all, names in `rather` if worthwhile. Raise `_SavedTooEarlyError` if a value would be read
    that its name no longer holds.
    """
    statements = forward.statements
    locals_ = written(*statements)
    saved, repeated = set(first), list[tuple[int, Statement]]()
    earlier = set[str]()  # results with a value read other than the last one
    live, all_read = set(wanted - first), set(wanted)
    for position in reversed(range(len(statements))):
        item = statements[position]
        hit = written(item) & live  # live names assigned here
        if not hit:
            continue
        later = written(*statements[position + 1 :])  # assigned again below
        targets = written(item)  # all that it assigns in the forward
        item = _narrowed(item, hit, saved, forward)
        spoils = written(item) & saved  # saved names it would assign again
        saves = hit & rather and not hit & later and _worth_saving(item, hit, forward)
        if saves or spoils or not forward.repeatable(item):
            if hit & later:
                raise _SavedTooEarlyError
            saved |= hit
            live -= hit
            continue
        repeated.append((position, item))
        earlier |= written(item) & forward.results
        # An output assigned here or later is no longer the value that this line reads.
        there = forward.results - later - targets  # outputs need no saving
        read = read_names(item) & locals_
        if read & first & (later | targets):  # an earlier value than the saved one
            raise _SavedTooEarlyError
        live = (live - surely_written(item)) | (read - there - first)
        all_read |= read
    saved -= first - all_read  # those that no line reads
    _refuse_values(saved, forward)
    order = [name for item in statements for name in sorted(written(item) & saved)]
    again = _with_names_apart(forward, reversed(repeated), earlier)
    return Plan(again, tuple(dict.fromkeys(order)))


def _with_names_apart(
    forward: Locals, repeated: Iterable[tuple[int, Statement]], earlier: Iterable[str]
) -> Lines:
    """Return repeated statements with a result `h` as `first_h` up to its last assignment: the name `h` is the saved output.

    `repeated` has each statement with its position; `earlier` are the results of which a value before the last one is read.
    """
    taken = forward.taken | written(*forward.statements)
    lines = list(repeated)
    for name in sorted(earlier):
        last = max(
            k for k, item in enumerate(forward.statements) if name in written(item)
        )
        change = renaming(forward.graph, {name: fresh(f"first_{name}", taken)})
        for at, (position, item) in enumerate(lines):
            if position <= last:  # later statements read the result itself
                lines[at] = position, rewritten(forward.graph, (item,), change)[0]
    return tuple(item for _, item in lines)


def _narrowed(
    item: Statement, hit: frozenset[str], saved: set[str], forward: Locals
) -> Statement:
    """Return the part of a statement the backward may repeat: the one that gives the names `hit`, live after it.

    `spoilt` are names it binds that are saved or returned already, so that they must not be bound again, unless they are in `hit`: then an
    earlier value is read than the returned one. It stays bound, and `_with_names_apart` gives it a name of its own.
    """
    if isinstance(item, Assign):
        spoilt = written(item) & (forward.results | saved)
        return _without_values(forward.graph, item, hit) or _without_names(
            forward, item, spoilt - hit
        )
    # An `if` that assigns a name in `hit`, so one statement is left.
    (left,) = without_dead(forward.graph, (item,), hit)
    return left


def _without_values(graph: Graph, item: Assign, hit: Collection[str]) -> Assign | None:
    """Reduce `a, b = x, y` to `b = y` if `hit`, the names to recompute, has only `b`; return None for a statement of another form."""
    target, value = item.target, item.value
    one_each = target.kind == value.kind == "tuple" and not item.operator
    if not one_each or any(part.kind != "name" for part in target.args):
        return None
    pairs = [
        pair
        for pair in zip(target.args, value.args, strict=True)
        if pair[0].label in hit
    ]
    if len(pairs) == 1:
        ((name, one),) = pairs
        return Assign(name, one, "", item.comments)
    targets, values = zip(*pairs, strict=True)
    return Assign(
        graph.node("tuple", target.label, targets),
        graph.node("tuple", value.label, values),
        "",
        item.comments,
    )


def _without_names(forward: Locals, item: Assign, names: frozenset[str]) -> Assign:
    """Rename targets that must not be bound again: `values, index = x.topk(2)` -> `values, _index = x.topk(2)`, if `index` is saved.

    The statement stays if the forward has a local of such a name.
    """
    graph, taken = forward.graph, written(*forward.statements)
    if item.target.kind != "tuple" or not names or taken & {f"_{n}" for n in names}:
        return item
    targets = (
        (
            graph.name(f"_{part.label}")
            if part.kind == "name" and part.label in names
            else part
        )
        for part in item.target.args
    )
    target = graph.node("tuple", item.target.label, tuple(targets))
    return Assign(target, item.value, item.operator, item.comments)


def _worth_saving(item: Statement, hit: Iterable[str], forward: Locals) -> bool:
    """Return whether to save the names `hit` though they can be recomputed: only tensors, and no possible alias of another one."""
    copy = not isinstance(item, If) and bool(same_tensor(item.value))
    return not copy and all(forward.kinds.is_tensor(name) for name in hit)


def _refuse_values(saved: Iterable[str], forward: Locals) -> None:
    """Raise `ScaffoldError` if a value to save is not a tensor: it can be neither recomputed nor saved."""
    for name in sorted(saved):
        if not forward.kinds.is_tensor(name):
            message = f"the backward needs '{name}', which is not a tensor and cannot be recomputed"
            hint = f"make it a tensor, or compute {name} in the backward"
            raise ScaffoldError(message, forward.place, hint)


class Reuse(NamedTuple):
    """The forward statements to repeat in the backward, and the forward that saves the rest."""

    plan: Plan
    forward: Lines  # with a name of its own for every saved value
    # Saved locals that depend on an input: a second derivative sees them as constants.
    cut_off: frozenset[str]
    described: frozenset[str] = frozenset()  # locals whose shape or dtype alone is kept


def plan_reuse(spec: OpSpec, maths: Maths) -> Reuse:
    """Choose the forward's locals to recompute in the backward, and the locals to save; return the forward with names for them.

    `maths.versions` maps a name for one of several values of a local to the local; most get the user's name back here.
    `maths.again` is the forward whose lines are repeated, if that is another one.
    """
    if maths.forward is None:
        return Reuse(Plan((), ()), (), frozenset())
    graph, statements = maths.graph, maths.forward.statements
    origin = dict(maths.versions)
    again = statements if maths.again is None else maths.again
    own = written(*statements)
    chosen, described = _plan(spec, maths, again, own)
    if not own.issuperset((*chosen.saved, *described)):
        statements = again  # these have a name for every saved value
    forward = as_they_were(graph, statements, origin, {*chosen.saved, *described})
    tensors = frozenset(item.name for item in spec.differentiable)
    data = _read_as_data((*chosen.repeated, *maths.program))  # a shape is constant
    # Saved locals, computed from inputs: autograd would take them for constants in a second derivative.
    cut_off = active_locals(statements, tensors) & set(chosen.saved) & data
    return Reuse(chosen, forward, cut_off, described)


def _read_as_data(statements: Lines) -> frozenset[str]:
    """Return the names read for more than their shape, before any of the statements assigns them: their values come from outside."""
    return frozenset(
        read.name
        for read, _ in free_reads(statements)
        # `x[:, 1:].shape` does not follow from the kept shape of `x`.
        if read.element or not read.facets
    )


def _plan(
    spec: OpSpec, maths: Maths, statements: Lines, own: frozenset[str]
) -> tuple[Plan, frozenset[str]]:
    """Return the statements to repeat, and the locals of which only the shape is kept.

    If a choice is left, names in `own`, locals of the forward itself, are saved. Only a combined forward can keep the shape of a
    local on ctx, so only there is a local not computed again for its shape.
    """
    inputs = {item.name for item in spec.inputs}
    statements = without_checks(maths.graph, statements)
    locals_ = written(*statements) - inputs
    found = [read for read, _ in free_reads(maths.program) if read.name in locals_]
    wanted = frozenset(read.name for read in found)
    data = _read_as_data(maths.program) & locals_
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
    outputs = frozenset(dict(maths.origins))  # can be saved as results
    if spec.style != "combined":
        return chosen(forward, wanted - outputs), frozenset()
    # What is there if only data is asked for; other shapes are kept on ctx.
    least = chosen(forward, data - outputs)
    there = written(*least.repeated) | set(least.saved)
    described = frozenset(
        name
        for name in wanted - data - outputs - there
        if forward.kinds.is_tensor(name) and not unsure(statements, (name,))
    )
    return chosen(forward, wanted - outputs - described), described


def _chooser(
    spec: OpSpec, maths: Maths, read: frozenset[str]
) -> Callable[[Locals, frozenset[str]], Plan]:
    """Return the planning function, of the wanted locals; it may save the locals `read` if no plan says which.

    Only if the op is once differentiable: a saved local is a constant in a second derivative.
    """
    saved = maths.kept
    if saved is None:
        saved = read if spec.once_differentiable else frozenset()
    plan_ = repeated_for if maths.planned else plan
    return lambda forward, wanted: plan_(forward, wanted, saved)


class _Repeatable:
    """Tell whether repeating a statement in the backward gives the same value, at a fair price."""

    def __init__(self, spec: OpSpec, statements: Lines, kinds: ValueKinds) -> None:
        """Find the names of unknown functions, and of tensors changed in place: both make a statement not repeatable."""
        objects = {item.name for item in spec.attributes}
        self.spec, self.kinds = spec, kinds
        self.unknown = frozenset(objects | (spec.foreign - kinds.arrays))
        changes = Trace(statements).changes
        # A tensor of one name is right again once all lines that write the name are repeated.
        several = [item.holders for item in changes if len(item.holders) > 1]
        self.changed = frozenset(spec.dirty).union(*several)

    def __call__(self, item: Statement) -> bool:
        """Return whether a statement may run again: it touches nothing changed in place, and all its expressions may run again."""
        touched = written(item) | data_read(item)
        return not touched & self.changed and all(
            self._fair(node) for node in expressions(item)
        )

    def _fair(self, node: Node) -> bool:
        """Return whether an expression may run again: it draws no random numbers, calls nothing unknown, and runs no user's kernel."""
        if is_random(node) or calls_unknown(node, self.unknown):
            return False
        # It is no tensor, so it cannot be saved: even NumPy runs again.
        if self.kinds.of(node) in ("scalar", "array"):
            return True
        return not leaves_torch(node, self.unknown & self.spec.foreign)


def unsure(statements: Lines, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names assigned only in some branches: they may be unbound where they are saved."""
    sure = surely_written(*statements)
    return tuple(name for name in names if name not in sure)
