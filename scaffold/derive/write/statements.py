"""Write the graph of the gradients as statements, and the forward with names for its values that these read.

The last step of the engine, after `plan`: `gradients` calls `gradient_statements` once for each style, `pipeline` then places the
lines.

In: the gradients as a graph, and what is saved. Out: `GradientStatements`: `grad_x = grad_output * x.cos()`. Invariant: run in
order the statements give the gradients' values, whatever names the forward has; no line is longer than an author would let it be,
since parts of a long one get names, unless it is a sum with a line for each term.

Words: `held` maps the forward's values with a name to it; `own` has locals of the forward computed by new lines of the backward,
not by repeating the forward's; a value is `asked` for if its shape is read though it has no name. `of` maps a cotangent to its
forward value, `via` one reader's part of a cotangent to that value and the reader. A region is the branches around a line,
outermost first. A root is the gradient of an input. A temporary is a value of the backward with one reader, which may be written
over in place. An attempt writes all statements for one choice of names; what it lacks (names of values asked for, of parts of long
lines) is given to the next. `again` says of lines and names that they are of the forward, repeated in the backward; `over` are the ops
that write over a temporary; `once`: a second derivative is given up, or impossible.
"""

from collections import Counter
from collections.abc import (
    Collection,
    Container,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import NamedTuple

from scaffold.derive.autocast import amp_of
from scaffold.derive.autograd_fallback import pullback_of
from scaffold.derive.backward_program import needed_for
from scaffold.derive.derivation import (
    LINE,
    METHOD,
    STEP,
    Forward,
    GradientStatements,
    IncomingGradients,
    Traits,
)
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import is_recorded
from scaffold.derive.graph.op import Op, Program, down_to
from scaffold.derive.graph.precision import Precision
from scaffold.derive.graph.shapes import SCALAR
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.forward_names import named_apart, respelled
from scaffold.derive.plan.costs import is_dear, is_never_named
from scaffold.derive.plan.save_plan import BackwardGraph, computed_twice, save_plan
from scaffold.derive.simplify.algebra import guarded_power
from scaffold.derive.simplify.rewrites import is_one_hot
from scaffold.derive.write.dialect import Dialect, dialect_of, fused_sums
from scaffold.derive.write.in_place import Temporaries, adds_in_place, in_place_call
from scaffold.derive.write.placement import under, without_copy
from scaffold.derive.write.printer import Owners, Printer, Scope, shape_owners
from scaffold.derive.write.schedule import SHARED, Region, Safety, Schedule, Scheduler
from scaffold.derive.write.shape_sources import Holders, UnknownShapeError, is_there
from scaffold.derive.write.value_names import (
    Namer,
    denominators_of,
    owners_of,
    users_of,
)
from scaffold.formula import (
    Assign,
    If,
    Lines,
    Node,
    Statement,
    emit,
    free_names,
    free_reads,
    is_present,
    nodes,
    read_names,
)
from scaffold.spec import Style

# --- The gradients, and the names that the forward needs for them.

LEAST_OVER = 2  # temporaries to be written over, for a second derivative to be given up


class _Attempt(NamedTuple):
    """Statements, and what they lack or cost: values asked for, how many temporaries are written over, and each name's preferred one."""

    statements: Lines
    asked: set[Op]
    over: int
    roles: Mapping[str, str]


def gradient_statements(backward: BackwardGraph, style: Style) -> GradientStatements:
    """Write the statements of the backward in a style, and the forward to go with them.

    The names decide the length of a line and the shapes it can read, and the lines decide which names are worth it: so statements are
    written (`_first_fit`) until they ask for no further name.
    """
    # Values to save, locals with new lines, and whether a call has no derivative.
    saved, own, once = save_plan(backward)
    in_place = backward.saves and style == "combined"
    names = _Names(backward, saved)
    # Values computed twice get names before any line is written, unless lines ask for shapes, as they do where none are declared.
    declared = all(item.dims is not None for item in backward.spec.tensors)
    named = declared and names.repeat(saved, own)
    attempt = _first_fit(backward, names.repeated, own, in_place)
    if named and attempt.asked:
        names = _Names(backward, saved)
        attempt = _first_fit(backward, names.repeated, own, in_place)
    # Only a combined forward can keep the shape of a local; each name may bring the next shape that is asked for.
    while style == "combined" and names.add(attempt.asked):
        attempt = _first_fit(backward, names.repeated, own, in_place)
    if names.repeat(saved, own, attempt):
        attempt = _first_fit(backward, names.repeated, own, in_place)
    is_once = once or bool(saved) or bool(backward.spec.once_differentiable)
    # A second derivative, if there is one, is not given up for a single temporary.
    if 0 < attempt.over < LEAST_OVER and not is_once:
        attempt = _first_fit(backward, names.repeated, own, False)
    if style != "combined":  # that style keeps a shape on ctx
        attempt = _with_shapes_of_others(backward, names, own, in_place, attempt)
    return GradientStatements(
        attempt.statements,
        forward=names.forward(),
        kept=_kept(backward, names.all, saved, attempt.statements),
        once=once or attempt.over > 0,
        again=names.forward_again(),
        traits=_traits(backward, names.all),
        # Vectors and scalars: too small to be worth a test when they are saved.
        vectors=frozenset(n for op, n in names.all.items() if op.shape.rank in (0, 1)),
        roles=attempt.roles,
        incoming=_incoming(backward),
    )


def _incoming(backward: BackwardGraph) -> IncomingGradients:
    """Describe the gradients autograd hands to backward, for outputs and for values forward returns to be saved.

    `pipeline` needs it to write what happens if one of them is None.
    """
    spec, lowered = backward.spec, backward.lowered
    names = (output.name for output in spec.outputs)
    outputs = dict(zip(names, lowered.results, strict=True))
    kinds = {result.kind for result in lowered.results}
    # Under autocast a norm's results may have other dtypes than its inputs, and its backward asks for theirs.
    of_norm = any(
        op.rule == "item" and op.args[0].facts.autocast for op in outputs.values()
    )
    tensors = [(op, name) for name, op in (*lowered.inputs.items(), *outputs.items())]
    tensors += backward.returned.items()
    return IncomingGradients(
        handed=tuple(
            (g.name, backward.returned[op]) for op, g in backward.handed.items()
        ),
        undefined=frozenset(g.name for g in backward.undefined),
        scalars=frozenset(name for name, op in outputs.items() if op.shape == SCALAR),
        returned=frozenset(backward.returned.values()),
        # Of the kind of all outputs: zeros may be made like it.
        akin=frozenset(
            name
            for op, name in tensors
            if op.active and {op.kind} == kinds and not of_norm
        ),
    )


def _with_shapes_of_others(
    backward: BackwardGraph,
    names: "_Names",
    own: Mapping[Op, str],
    in_place: bool,
    attempt: _Attempt,
) -> _Attempt:
    """Return an attempt without forward values computed for their shape alone, if others have that shape; else `attempt` itself.

    The new statements must read as well: no longer line for a broadcast shape, unless that value is expensive to compute. `own` and
    `in_place` are as in `_first_fit`.
    """
    known_names = {**names.all, **names.again}
    saved = {*backward.returned, *backward.lowered.results}
    best, unsolved = attempt, _read_for_shapes(known_names, saved, attempt.statements)
    last = set(unsolved)  # asked for a shape only if no other value has it
    while unsolved:
        try:
            other = _first_fit(backward, names.repeated, own, in_place, last)
        except UnsupportedError:  # no other value tells it
            return best
        found = _read_for_shapes(known_names, saved, other.statements)
        # `torch.broadcast_shapes(...)` reads worse than a value of that shape, unless this is expensive to compute.
        longer = _broadcasts(other.statements) > _broadcasts(attempt.statements)
        longer = longer and not any(map(is_dear, down_to(unsolved - found, saved)))
        if len(found) < len(unsolved) and other.asked <= attempt.asked and not longer:
            best, unsolved = other, found
        elif found <= last:  # all of these are asked last already
            return best
        last |= found  # one of them may tell it in the place of another
    return best


def _read_for_shapes(
    names: Mapping[Op, str], saved: Collection[Op], lines: Lines
) -> set[Op]:
    """Return the recomputed forward values the lines read for their shape alone: another value may have it.

    `names` are those of the forward's values in the lines; `saved` values are not recomputed.
    """
    ops = {name: op for op, name in names.items()}
    reads = [read for read, _ in free_reads(lines) if read.name in ops]
    # A read has facets if only the shape or the dtype is read.
    data = {ops[read.name] for read in reads if not read.facets}
    # What lies on the way to a value read as data is computed anyway.
    alone = {ops[read.name] for read in reads} - {*down_to(data - {*saved}, saved)}
    return {op for op in alone if op.rule != "input" and op not in saved}


def _broadcasts(lines: Lines) -> int:
    """Count the different calls of `torch.broadcast_shapes` in the lines, each of which makes a line longer."""
    calls = (node.args[0] for node in {*nodes(*lines)} if node.kind == "call")
    return sum(callee.label == "broadcast_shapes" for callee in calls)


def _traits(backward: BackwardGraph, names: Mapping[Op, str]) -> dict[str, Traits]:
    """Return the shape and dtype, as numbers, of each named tensor that shares its shape with another one.

    `saving` keeps fewer tensors by it: a shape is read from a tensor that is saved anyway. Only tensors present in every call
    count.
    """
    inputs, inside = backward.lowered.inputs, backward.lowered.held_in_branches
    tensors = backward.spec.tensors
    # The inputs that are one tensor in every call.
    given = (item.name for item in tensors if not (item.optional or item.variadic))
    named = {op: name for op, name in names.items() if op.rule != "input"}
    named |= {inputs[name]: name for name in given}
    # Present in every call, and no scalar.
    present = [
        op
        for op in named
        if op not in inside and is_there(op) and (op.shape.least or op.shape.dims)
    ]
    precision = Precision(backward.seeds)
    counts = Counter(op.shape for op in present)
    # Numbers in place of shapes: the traits of an op declared otherwise compare equal.
    numbers: dict[Hashable, int] = {}

    def number(value: Hashable) -> int:
        return numbers.setdefault(value, len(numbers))

    return {
        named[op]: Traits(number(op.shape), number((op.kind, precision(op))))
        for op in present
        if counts[op.shape] > 1
    }


def _kept(
    backward: BackwardGraph,
    names: Mapping[Op, str],
    saved: Collection[Op],
    lines: Lines,
) -> frozenset[str]:
    """Return the names of locals the forward must save: those `saved` by plan, and random values, as they cannot be drawn again.

    If the op is once differentiable and saves no values by plan, these are all the tensors the `lines` read.
    """
    ops = backward.applier.program.ops
    drawn = frozenset(op.name for op in ops if op.rule == "drawn")
    if backward.spec.once_differentiable and not backward.saves:
        tensors = {name for op, name in names.items() if op.is_tensor}
        return drawn.union(tensors & free_names(lines))
    return drawn.union(names[op] for op in saved)


def _first_fit(
    backward: BackwardGraph,
    new: Mapping[Op, str],
    own: Mapping[Op, str],
    in_place: bool,
    last: Collection[Op] = (),
) -> _Attempt:
    """Write the statements; of the forward's locals, `own` ones are computed by new lines if possible, `new` names are added.

    They are sources of shapes, if their lines come early enough. None is computed so if a repeated line of the forward reads one,
    or if a shape is asked for that only they have. `in_place` lets lines write over temporaries. Values in `last` are sources of
    shapes if no other is.
    """
    # First with the own lines as sources of shapes; if that fails, with other sources.
    for sources in (own, {}) if own else ():
        try:
            found = _attempt(backward, new, own, sources, in_place, last)
        except UnsupportedError:
            continue
        names = _repeated(backward.forward.statements, found.statements)
        # Without them as sources, a shape is asked for that only they have.
        is_late = not sources and _asks_inside(found.asked, own)
        if not (is_late or names & {*own.values()}):
            return found
    return _attempt(backward, new, {}, {}, in_place, last)


def _attempt(
    backward: BackwardGraph,
    new: Mapping[Op, str],
    own: Mapping[Op, str],
    sources: Mapping[Op, str],
    in_place: bool,
    last: Collection[Op],
) -> _Attempt:
    """Write the backward once: with `new` names, `own` locals in new lines, and `sources` among these to read shapes from."""
    spec, lowered, applier = backward.spec, backward.lowered, backward.applier
    kept = {op: name for op, name in backward.held.items() if op not in own}
    outer = {**kept, **new}
    held = {**lowered.held_in_branches, **outer}
    inputs = [lowered.inputs[item.name] for item in spec.tensors if not item.variadic]
    optional = [lowered.inputs[item.name] for item in spec.tensors if item.optional]
    inside = (op for op in lowered.held_in_branches if op not in backward.held)
    sure = [op for op in inputs if op not in optional]
    first = (*_coming(backward), *sure)  # best first: gradients need no saving
    # Saved or named values need not be computed to read their shape.
    shaped = {**backward.returned, **outer, **sources}
    holders = Holders(applier.program, first, optional, shaped, last=last)
    handed = {g: op for op, g in backward.handed.items()}
    precision = Precision(backward.seeds) if in_place else None
    dialect = dialect_of(applier.table, backward.forward.expressions())
    if spec.save_policy == "balanced":
        dialect = dialect._replace(fused=fused_sums(backward.roots.values()))
    emission = Emission(
        applier=applier,
        holders=holders,
        held=held,
        of={**backward.of, **backward.seeds, **handed},
        via=backward.via,
        optional=(*optional, *inside, *_absent(backward)),  # all that may be None
        taken={*backward.taken, *new.values()},
        asked=set(),
        roles={},
        precision=precision,
        over=set(),
        own=own,
        indent=backward.indent,
        region=amp_of(spec) == "region",
        dialect=dialect,
    )
    statements = emitted(emission, backward.roots)
    return _Attempt(statements, emission.asked, len(emission.over), emission.roles)


def _coming(backward: BackwardGraph) -> Iterable[Op]:
    """Yield the incoming gradients to read shapes from: never None, and of a result that is a tensor in every call."""
    for seed, result in backward.seeds.items():
        # In the backward of a backward, a seed comes in for each gradient: None for that of an absent input.
        if is_there(result) and seed not in backward.undefined:
            yield seed


def _absent(backward: BackwardGraph) -> list[Op]:
    """Return the attributes that may be None, as ops: lines reading one need a test."""
    program = backward.applier.program
    names = [item.name for item in backward.spec.attributes]
    maybe = [name for name in names if name not in program.declared.never_none]
    return [program.static(program.graph.name(name)) for name in maybe]


def _asks_inside(asked: Collection[Op], own: Collection[Op]) -> bool:
    """Return whether a value asked for its shape is computed from an `own` local, whose line may come too late for it."""
    return any(op in own for value in asked for op in value.walk())


def _repeated(forward: Sequence[Statement], lines: Lines) -> frozenset[str]:
    """Return the names read by the lines of the backward, and by the forward's lines it repeats for them."""
    names = free_names(lines)
    return names.union(*(read_names(forward[at]) for at in needed_for(forward, names)))


def names_of_returned(backward: BackwardGraph, returned: Sequence[Op]) -> dict[Op, str]:
    """Return names for the values forward returns to be saved: those they have, or new ones."""
    names = _Names(backward, returned).all
    return {op: names[op] for op in returned}


class _Names:
    """Names for nameless values of the forward, so it can save them, or the backward can repeat their lines."""

    def __init__(self, backward: BackwardGraph, saved: Collection[Op]) -> None:
        """Name the values returned by forward to be saved, or else those `saved` without a name."""
        self.backward = backward
        self.namer = Namer(
            {*backward.taken, *backward.held.values()},
            backward.held,
            of={},  # forward values alone get names here
            via={},
            users=users_of(backward.of),
            owners={},
            denominators=denominators_of(backward.applier.program.ops),
        )
        self.new: dict[Op, str] = {}
        # Names in the statements that the backward repeats, not in the forward itself.
        self.again: dict[Op, str] = {}
        if backward.returned:  # these have names already
            named = backward.returned.items()
            self.new |= {op: name for op, name in named if op not in backward.held}
            self.new |= self._named_new(self._siblings(self.new))
        else:
            self.new |= self._named_new(op for op in saved if op not in backward.held)

    def _siblings(self, ops: Collection[Op]) -> list[Op]:
        """Return the other results, read by the forward, of calls with one result in `ops`: `values` for `indices` of `x.topk(2)`.

        They get names together, since a call is unpacked on one line.
        """
        calls = {op.args[0] for op in ops if op.rule == "item"}
        held, last = self.backward.held, len(self.backward.forward.statements)
        return [
            op
            for op, places in self.backward.lowered.places.items()
            if op not in ops and not calls.isdisjoint(op.args[:1])
            # A result computed in `return` itself has the output's name, and no line.
            if op not in held or all(place.position == last for place in places)
        ]

    @property
    def all(self) -> dict[Op, str]:
        return {**self.backward.held, **self.new}

    @property
    def repeated(self) -> dict[Op, str]:
        """Return the new names, with those in the statements the backward repeats."""
        return {**self.new, **self.again}

    def add(self, asked: Collection[Op]) -> bool:
        """Name values asked for their shape; return whether any had no name, so statements must be written again."""
        places = self.backward.lowered.places
        # Only a value with an expression in the forward (`places`) can get a line there.
        more = [op for op in asked if op in places and op not in self.new]
        self.new |= self._named_new(sorted(more, key=lambda op: op.serial))
        return bool(more)

    def repeat(
        self,
        saved: Collection[Op],
        own: Collection[Op],
        attempt: "_Attempt | None" = None,
    ) -> bool:
        """Name the values computed both by a repeated line of the forward and by a gradient; return whether there are any.

        With a name, the gradient reads the value from the repeated line. `saved` values are not repeated; `own` ones are computed
        by new lines. Without an `attempt` only the graph says what the backward reads.
        """
        forward = self.backward.forward
        asked = attempt.asked if attempt else ()
        lines: Lines = attempt.statements if attempt else ()
        read = free_names(lines)
        all_names = {**self.all, **self.again}
        # An own local counts only if a line reads its name, so that the forward's line is repeated.
        held = {op: n for op, n in all_names.items() if op not in own or n in read}
        twice = computed_twice(
            (*self.backward.roots.values(), *asked),
            read,
            held,
            self.backward.lowered.places,
            forward.statements,
            {*forward.returned, *(held[op] for op in saved)},
        )
        self.again |= self._named_new(twice)
        return bool(twice)

    def _named_new(self, ops: Iterable[Op]) -> dict[Op, str]:
        """Choose new names for forward values, and for other results of their calls; return them."""
        several = list(ops)
        several += [op for op in self._siblings(several) if op not in several]
        self.namer.tell_apart(several)
        return {op: self.namer.name(op) for op in several}

    def forward(self) -> tuple[Lines, tuple[Node, ...]] | None:
        """Return the forward with the new names, statements and results; None if there are no new ones."""
        if not self.new:
            return None
        named = self._named(self.new)
        return named.statements, named.results

    def forward_again(self) -> Lines | None:
        """Return the statements the backward may repeat, if they differ from the forward; else None."""
        return self._named(self.repeated).statements if self.again else None

    def _named(self, names: Mapping[Op, str]) -> Forward:
        """Return the forward with these values on lines of their own, by these names: `x.exp().sum()` -> `exp = x.exp()`, `exp.sum()`."""
        places = self.backward.lowered.places
        graph = self.backward.applier.program.graph
        named = named_apart(graph, self.backward.forward, places, names)
        return respelled(graph, named, self.backward.lowered.call_of_parts)


# --- Lines that are longer than an author would let them be: which part of one gets a name.

# What is left of a line under `if ctx.needs_input_grad[0]:`.
WIDTH = LINE - METHOD - STEP
LEAST = 12  # a shorter part of a line gets no name
# How many terms a sum on several lines has; of two, a formatter would break the last one inside its brackets.
TERMS = range(3, 10)
# Chosen by eye: a term's line holds 70 columns, but a wider term than this reads better by a name.
WIDEST_TERM = 56
WIDEST_CHOICE = 60  # `a if test else b`; a wider one is an `if` statement
LONGEST_COMMENT = 48  # the value in `w.r.t. x * y`

# Ops whose value is best named by something else: `product` says little.
ARITHMETIC = frozenset({"mul", "div", "add", "sub", "summed_to", "where"})


def part_to_name(
    printer: Printer, op: Op, width: int, of: Mapping[Op, Op], held: Container[Op]
) -> Op | None:
    """Return the part of a long line, `op`, to give a name: about half of its `width`, preferably more than arithmetic.

    None if there is no such part.
    """
    # A distance that every part undercuts.
    best, distance = None, 2 * width
    for part in _inline_ops(printer, op, of, held):
        size = len(emit(printer.expression(part)))
        away = abs(size - width // 2)
        # A product that is the cotangent of a value has a good name all the same: `grad_h`.
        if part.rule in ARITHMETIC and part not in of:
            away += width // 3
        if away < distance and size > LEAST:
            best, distance = part, away
    return best


def stands_on_lines(value: Node) -> bool:
    """Return whether a formatter breaks the value as an author would: it is a sum, with a line for each of its few terms."""
    terms = list(_terms(value))
    return len(terms) in TERMS and all(len(emit(one)) <= WIDEST_TERM for one in terms)


def is_broken_well(value: Node, width: int) -> bool:
    """Return whether a formatter breaks the value well: all arguments of an ATen call, or the slices in a `cat`, fit on a second line.

    So no part of it needs a name. A call with an index behind, `torch.ops.aten.f(...)[0]`, would get no shorter by a name.
    """
    has_index = value.kind == "subscript" and value.args[1].kind == "constant"
    call = value.args[0] if has_index else value
    callee = emit(call.args[0]) if call.kind == "call" else ""
    aten = callee.startswith("torch.ops.aten.")
    if has_index and aten:
        return True
    # The length of what stands between the brackets.
    arguments = len(emit(value)) - len(callee) - 2
    of_slices = callee == "torch.cat" and all(map(_is_slice, value.args[1].args))
    return (aten or of_slices) and arguments <= width - STEP


def _is_slice(value: Node) -> bool:
    """Return whether a value is short: a name, a part of a value, or one of them with a minus."""
    base = value.args[0] if value.kind == "unary" else value
    return base.kind in ("name", "subscript")


def _terms(value: Node) -> Iterator[Node]:
    """Yield the terms of a sum, without signs: `a`, `b`, `c` of `a + b - c`; a value that is no sum is one term."""
    if value.kind == "binary" and value.label in ("+", "-"):
        # Only the left operand is taken apart: a sum on the right stands in brackets.
        yield from _terms(value.args[0])
        yield value.args[1]
    else:
        yield value


def _inline_ops(
    printer: Printer, op: Op, of: Mapping[Op, Op], held: Container[Op]
) -> Iterator[Op]:
    """Yield the ops written inside the expression of `op`, candidates for a name.

    Ops with a name are left out, and so are parts of a call that a name would break up: a product in a fused `addcmul`, a one-hot as an index.
    """
    # Each part by its reader and position there, since that decides whether it is fused.
    waiting = [(op, at) for at in range(len(op.args))]
    while waiting:
        user, at = waiting.pop()
        part = user.args[at]
        if part in printer.names or part.rule in ("input", "cotangent"):
            continue
        if printer.in_place is not None and is_one_hot(part):
            continue  # written as the index of a `scatter_`
        # `-g` needs no name, unless as the gradient of a local: `grad_h = -g`.
        is_short = part.rule in ("zeros", "neg") and of.get(part) not in held
        # Of a fused sum the product comes first (`[:1]`): `addcmul` takes its factors.
        fused = part in printer.dialect.fused.get(user, ())[:1]
        fused |= printer.in_place is not None and printer.in_place.fuses(user, at)
        if not (is_short or fused or is_never_named(part)):
            yield part
        # The branches of a choice are not searched: what its test guards stays inside.
        if part.rule != "cond":
            waiting += [(part, at) for at in range(len(part.args))]


# --- The statements.


class Emission(NamedTuple):
    """All that the statements are written from: the graph, the names of values, options; and sets filled while they are written."""

    applier: Applier
    holders: Holders
    held: dict[Op, str]
    of: Mapping[Op, Op]
    via: Mapping[Op, tuple[Op, Op]]
    optional: Collection[Op]
    taken: set[str]
    asked: set[Op]  # filled: values without a name whose shape is read
    roles: dict[str, str]  # filled: a name -> the preferred one, had it been free
    precision: Precision | None  # of values, if temporaries may be written over
    over: set[Op]  # filled: the ops that write over one
    own: Mapping[Op, str]  # locals of the forward that get new lines here
    indent: int  # of all lines, besides that of a method's body
    region: bool  # autocast may give cotangents other dtypes than their values
    dialect: Dialect

    @property
    def guarded(self) -> frozenset[str]:
        """Return the inputs whose gradient is computed only if they are present."""
        return frozenset(op.name for op in self.optional if op.rule == "input")


def emitted(emission: Emission, roots: Mapping[str, Op]) -> Lines:
    """Return the statements of all gradients, written again and again until no line is too long: a part of each long one gets a name.

    `forced` ops must have a name whatever their use: they are read twice, or stand in several lines.
    """
    ops = {op for root in roots.values() for op in root.walk()}
    # Calls that autograd differentiates, and their arguments: parameters of a lambda.
    pulled = [op for op in ops if op.rule in ("vjp", "jvp")]
    needing = {arg for op in pulled for arg in (op, *op.pullback.args)}
    needing -= {op for op in roots.values() if op.rule == "jvp"}  # `grad_x` itself
    needing |= {op.args[0] for op in ops if op.rule == "fitted_to"}  # read twice
    needing |= {op.args[1] for op in ops if op.rule == "cast"}  # for its dtype
    needing |= {op for op in ops if op.rule == "accumulated"}  # in two statements
    if emission.region:  # zeros of the dtype of no other tensor
        needing |= {op.args[0] for op in ops if op.rule == "zeros"}
    named = ("input", "cotangent")  # have names already
    forced = {op for op in needing if op.rule not in named} | emission.own.keys()
    known = _known(emission, roots)
    # A part of a long line that gets a name may be a long line itself, and names make other lines shorter.
    writer = None
    for _ in range(60):  # more than any op has needed
        writer = _Writer(emission, known, forced, writer)
        statements = writer.statements()
        more = (writer.too_long() | writer.repeated(statements)) - forced
        if not more:
            emission.roles.update(writer.namer.preferred)
            return statements
        forced |= more
    # A line may still be too long, but it is right; a formatter breaks it.
    return statements


class _Known(NamedTuple):
    """Facts that all attempts at the statements have in common, whichever ops get names."""

    roots: Mapping[str, Op]
    regions: Mapping[str, Region]  # of each root
    present: Mapping[int, str]  # a gradient's step in a region -> its input
    safe: Safety
    scheduler: Scheduler
    shapes: Owners
    owners: Mapping[Op, list[str]]
    first_below: Mapping[str, frozenset[Op]]  # a root -> ops of no earlier root
    namer: Namer
    in_forward: Printer  # writes values by the names of the forward alone, for comments


def _known(emission: Emission, roots: Mapping[str, Op]) -> _Known:
    """Gather facts common to all attempts: regions, needs, names, sources of shapes.

    The gradient of an optional input gets a region with one step, a negative number: the test that the input is present.
    """
    program, held = emission.applier.program, emission.held
    # From -1 down, as the steps from 0 up are serials of choices.
    present = {-at: name for at, name in enumerate(roots, 1)}
    regions: dict[str, Region] = {
        name: ((step, 0),) if name in emission.guarded else ()
        for step, name in present.items()
    }
    takes_none = emission.applier.takes_none
    safe = Safety(emission.optional, held, takes_none, present, program.ops)
    pairs = [(op, regions[name]) for name, op in roots.items()]
    owners, names = owners_of(roots), {**held, **emission.own}
    namer = Namer(
        emission.taken,
        names,
        of=emission.of,
        via=emission.via,
        users=users_of(emission.of),
        owners=owners,
        denominators=denominators_of(program.ops),
    )
    shapes = shape_owners(program, safe.needs)
    common = emission.applier, emission.holders, names, shapes, emission.asked
    return _Known(
        roots,
        regions,
        present,
        safe,
        Scheduler(pairs, held, safe, sparing=emission.precision is not None),
        shapes,
        owners,
        _first_below(roots),
        namer,
        Printer(*common, dialect=emission.dialect),
    )


def _first_below(roots: Mapping[str, Op]) -> dict[str, frozenset[Op]]:
    """Map each gradient's name to its ops not part of an earlier gradient: their lines stand just before its own."""
    found: dict[str, frozenset[Op]] = {}
    done = set[Op]()
    for name, root in roots.items():
        found[name] = frozenset(down_to((root,), done)) - done
        done |= found[name]
    return found


class _Writer:
    """One attempt at the statements, with a choice of the ops that get names."""

    def __init__(
        self,
        emission: Emission,
        known: _Known,
        forced: Collection[Op],
        earlier: "_Writer | None" = None,
    ) -> None:
        """Plan the statements with a name for each op in `forced`; expressions of the `earlier` attempt that read the same are reused."""
        self.emission, self.known = emission, known
        self.roots, self.regions = known.roots, known.regions
        self.program: Program = emission.applier.program
        self.graph = self.program.graph
        held = emission.held
        self.plan: Schedule = known.scheduler(forced)
        self.names: dict[Op, str] = dict(held)
        self.namer = known.namer.afresh(emission.taken)
        # A call with several results -> the names that its line assigns.
        self.pulled: dict[Op, tuple[str, ...]] = {}
        self._name_all()
        emission.over.clear()
        self.temporaries = self._temporaries()
        written = None
        # Reused expressions would not record which temporaries they write over.
        if earlier is not None and self.temporaries is None:
            written = earlier.printer.still_written(self.names)
        common = emission.applier, emission.holders, self.names, known.shapes
        self.printer: Printer = Printer(
            *common,
            emission.asked,
            self.temporaries,
            written=written,
            dialect=emission.dialect,
        )
        self.printers: dict[Region, Printer] = {}
        self.long: list[tuple[Op, int, Printer]] = []  # ops of long lines, their width
        self.comments = set[str]()  # written so far; one explanation is enough

    def _name_all(self) -> None:
        """Give names to all ops with a statement of their own: first to ops needing a certain name, or several on one line."""
        several = sorted(self.plan.named, key=self._place)
        for op in several:
            if op.rule == "vjp":
                self._name_pulled(op)
            elif op in self.emission.own:
                self.names.setdefault(op, self.emission.own[op])
            elif self._is_unpacked(op):
                self._name_parts(op)
        rest = [op for op in several if op not in self.names]
        self.names |= self.namer.name_all(rest)

    def _place(self, op: Op) -> tuple[int, int]:
        """Return the sort key for naming and numbering values: values read by several gradients first, then gradient by gradient."""
        owners = self.known.owners.get(op, [])
        sole = [*self.roots].index(owners[0]) if len(owners) == 1 else -1
        return sole, op.serial

    def _temporaries(self) -> Temporaries | None:
        """Return the values that may be written over in place, read by a single line each; None if the op does not allow it."""
        precision = self.emission.precision
        if precision is None:
            return None
        single = {op for op in self.plan.named if self.plan.uses[op] == 1}
        return Temporaries(self.names, single, precision, self.emission.over, {})

    def repeated(self, statements: Iterable[Statement]) -> set[Op]:
        """Return the ops written in place in two lines: with a name, each changes its temporary only once."""
        return over.repeated(statements) if (over := self.temporaries) else set()

    def _name_pulled(self, op: Op) -> None:
        """Name a pullback, the function by which autograd differentiates one call, and its results; unread ones get `_`."""
        self.names[op] = "pullback"
        items = self.program.items_of(op)
        self.names |= {item: self.namer.name(item) for item in items.values()}
        self._unpack(op, items, len(op.pullback.args))

    def _unpack(self, op: Op, items: Mapping[int, Op], count: int) -> None:
        """Note the names a call's line assigns to its `count` results: `_` for an unread one."""
        names = {at: self.names[item] for at, item in items.items()}
        self.pulled[op] = tuple(names.get(at, "_") for at in range(count))

    def _is_unpacked(self, op: Op) -> bool:
        """Return whether a call is unpacked on one line, `mean, rstd = ...`: several of its results are read, and none is a gradient."""
        parts = self._parts(op)
        # The statistics of a norm, `mean, rstd = ...`; not the `values, indices` of a `topk`.
        known = not any(part.active or part.kind == "int" for part in parts.values())
        return known and len(parts) > 1 and not self.namer.is_gradient(op)

    def _parts(self, op: Op) -> dict[int, Op]:
        """Return the results of a call the backward reads, by position; none for a call with one result."""
        items = self.program.items_of(op) if op.kind == "group" else {}
        return {at: item for at, item in items.items() if item in self.known.owners}

    def _name_parts(self, op: Op) -> None:
        """Name the results of a call unpacked: `mean, rstd = ...`; the call itself has no name."""
        items = self._parts(op)
        self.names |= self.namer.name_all(items.values())
        self.names[op] = ""  # of none as a whole
        self._unpack(op, items, len(op.facts.results))

    def statements(self) -> Lines:
        """Return all statements, each value before its first use; values that only one gradient needs stand before it."""
        lines = list[Statement]()
        for name, op in self.roots.items():
            region = self.regions[name]
            before = self._region((), self.known.first_below[name])
            guarded = self._region(region) if region else []
            guarded += self._assigned(f"grad_{name}", op, region)
            lines += [*before, *guarded]  # gradients keep branches of their own
        return tuple(lines)

    def _region(
        self, region: Region, among: Collection[Op] | None = None
    ) -> list[Statement]:
        """Return the lines of a region: for the values named in it, each under the tests it shares with others.

        With `among`, only for these ops. Lines in a branch of a choice or of a gradient are left to that branch.
        """
        depth = len(region)
        # Steps from SHARED on are shared tests; all others are branches.
        ops = [
            op
            for op, place in self.plan.named.items()
            if place[:depth] == region
            if all(step >= SHARED for step, _ in place[depth:])
        ]
        if among is not None:
            ops = [op for op in ops if op in among]
        lines: list[Statement] = []
        for op in sorted(ops, key=lambda item: item.serial):
            place = self.plan.named[op]
            printer = self._at(region)
            # The shared tests around this line, inside the region.
            conds = [
                (self.program.ops[step - SHARED], at) for step, at in place[depth:]
            ]
            tests = [(printer.test(cond), at) for cond, at in conds]
            made = self._assigned(self.names[op], op, place)
            lines += under(self.graph, tests, made)
        return lines

    def _at(self, region: Region) -> Printer:
        """Return the printer for lines in a region."""
        if region not in self.printers:
            self.printers[region] = self._printer_in(region)
        return self.printers[region]

    def _printer_in(self, region: Region) -> Printer:
        """Make a printer for a region: it knows the outcomes of tests around a line, and the optional input of its gradient."""
        # A test shared by several choices is numbered `SHARED` plus the serial of the first.
        steps = [(step % SHARED, at) for step, at in region if step >= 0]
        tests = tuple((self.program.ops[step].test, at) for step, at in steps)
        present = self.known.present
        gradient = next((present[step] for step, _ in region if step < 0), None)
        return self.printer.in_scope(Scope(gradient, tests))

    def _assigned(self, name: str, op: Op, region: Region) -> list[Statement]:
        """Return the statements to bind a name to the value of an op: one assignment, an `if`, or the lines of a pullback."""
        target = self.graph.name(name)
        # The value has a name already: `grad_y = grad_h`.
        if op in self.names and self.names[op] != name:
            return [Assign(target, self.graph.name(self.names[op]))]
        if op in self.names and op.rule == "item" and op.args[0].rule == "vjp":
            return []  # the pullback leaves it under that name
        if op.rule == "vjp":
            return self._pulled_back(op, region)
        if op.rule == "jvp":
            return self._pushed_forward(name, op, region)
        if op.rule == "accumulated":
            return self._accumulated(name, op, region)
        printer = self._at(region)
        if op in self.pulled:
            names = map(self.graph.name, self.pulled[op])
            parts = self.graph.node("tuple", "", tuple(names))
            return [Assign(parts, printer.expression(op), "", self._why(op, printer))]
        if op.rule == "cond" and self._takes_statements(op, region, printer):
            body, orelse = (self._branch(name, op, at, region) for at in (0, 1))
            alike = body == orelse  # one call, which has a rule for each case
            comments = self._why_recorded(op)
            choice = If(printer.test(op), body, orelse, comments)
            return list(body) if alike else [choice]
        value = printer.expression(op)
        # Right for a second derivative, too: that of a product reads its factors, and not the product.
        if adds_in_place(op, self.roots.values()):
            first = printer.node(op.args[0])
            value = in_place_call(self.graph, value, op, first) or value
        self._measure(name, value, op, printer)
        comment = self._comment(op, Scope(printer.scope.gradient))
        return [Assign(target, value, "", (*comment, *self._why(op, printer)))]

    def _why(self, op: Op, printer: Printer) -> tuple[str, ...]:
        """Return comments on the line of an op: why it casts a tensor (said once in a backward), or guards an exponent.

        The line has all ops down to those with a name (`inner`).
        """
        inner = down_to((op,), self.names.keys() - {op})
        written = [part for part in inner if part is op or part not in self.names]
        powers = filter(None, map(guarded_power, written))
        comments = [
            f"if {emit(printer.node(power))} is 0 the gradient is 0, not 0 * inf"
            for power in powers
        ]
        casts = self.emission.region and any(part.rule == "cast" for part in written)
        if casts:
            comments += self._unsaid("autocast may leave these in different dtypes")
        return tuple(comments)

    def _unsaid(self, comment: str) -> tuple[str, ...]:
        """Return a comment the first time it is asked for in a backward, later ()."""
        again = comment in self.comments
        self.comments.add(comment)
        return () if again else (comment,)

    def _why_recorded(self, op: Op) -> tuple[str, ...]:
        """Return the comment on a choice by whether autograd records the backward: the other call has no derivative, or a wrong one.

        () for a choice by another test.
        """
        if op.test is not is_recorded(self.program):
            return ()
        _, unrecorded = op.args  # the value if the test does not hold
        rules = (self.emission.applier.table.of_op(x.rule) for x in unrecorded.walk())
        once = next((rule for rule in rules if rule and rule.ends_derivatives), None)
        if once is None:
            return ()
        name = once.spelled.name.rpartition(".")[2]
        if "wrong_beyond" in once.facts.flags:
            return self._unsaid(f"{name}'s second derivative is wrong")
        return self._unsaid(f"{name} has no derivative")

    def _accumulated(self, name: str, op: Op, region: Region) -> list[Statement]:
        """Return the lines for a cotangent, plus the gradient autograd hands in for the saved value: `if extra is not None`."""
        graph, target = self.graph, self.graph.name(name)
        value, extra = op.args[0], graph.name(op.args[1].name)
        total = graph.node("binary", "+", (target, extra))
        added = If(is_present(graph, extra.label), (Assign(target, total),))
        return [*self._assigned(name, value, region), added]

    def _comment(self, op: Op, scope: Scope) -> tuple[str, ...]:
        """Return the comment `w.r.t. x * y` for a cotangent named only by an operator, `grad_product`; () for others."""
        value = self.emission.of.get(op)
        if value is None or op not in self.plan.named or not value.facts.operator:
            return ()
        # Any other name says by itself what the gradient is of.
        if self.names[op] not in {f"grad_{word}" for word in value.facts.words}:
            return ()
        # The value is called so itself, `product`: its line says what it is.
        if value in self.names or value in self.emission.own:
            return ()
        # The comment is only a help: there is none without a text for the value, nor with a long one.
        try:
            text = emit(self.known.in_forward.in_scope(scope).expression(value))
        except (UnsupportedError, UnknownShapeError):
            return ()
        return (f"w.r.t. {text}",) if len(text) <= LONGEST_COMMENT else ()

    def _branch(self, name: str, op: Op, at: int, region: Region) -> Lines:
        """Return the statements of one branch of a choice, `at` 0 or 1; the last one assigns its value to `name`."""
        inner = (*region, (op.serial, at))
        value = op.args[at]
        lines = self._region(inner)
        # A literal needs no lines; `branch` writes a 0 beside a tensor as zeros.
        if value.rule == "const":
            node = self._at(inner).branch(op, value)
            return (*lines, Assign(self.graph.name(name), node))
        lines += self._assigned(name, value, inner)
        # Without another reader, the value needs no name besides this one.
        sole = self.plan.named.get(value) == inner and self.plan.uses[value] == 1
        return without_copy(lines, sole)

    def _takes_statements(self, op: Op, region: Region, printer: Printer) -> bool:
        """Return whether a choice is written as an `if` statement, not as `a if test else b`.

        It is if a branch has lines, or makes zeros, or if it is longer than `WIDEST_CHOICE`; in an `else` it becomes an `elif`.
        """
        # Whether any line stands inside this choice: then the choice is the next step of its place.
        depth = len(region)
        has_lines = any(
            len(place) > depth and place[depth][0] == op.serial
            for place in self.plan.named.values()
        )
        makes_zeros = any(arg.rule == "zeros" for arg in op.args)
        in_else = bool(region) and region[-1][1] == 1
        if has_lines or makes_zeros or in_else:
            return True
        return len(emit(printer.expression(op))) > WIDEST_CHOICE

    def _pulled_back(self, op: Op, region: Region) -> list[Statement]:
        """Return the lines that let autograd differentiate a call without a rule.

        `pullback = torch.func.vjp(lambda x: f(x), x)[1]`, then `(pulled_x,) = pullback(grad)`. The results have their names by
        `_name_pulled`.
        """
        graph, printer = self.graph, self._at(region)
        function, given = self._function(op, printer)
        pullback = graph.name(self.namer.another("pullback"))
        comment = "there is no rule for this call: autograd differentiates it"
        gradients = tuple(map(graph.name, self.pulled[op]))
        return [
            pullback_of(graph, pullback, function, given, comment),
            Assign(
                graph.node("tuple", "", gradients),
                graph.node("call", "", (pullback, printer.node(op.args[0]))),
            ),
        ]

    def _function(self, op: Op, printer: Printer) -> tuple[Node, tuple[Node, ...]]:
        """Return the call to be differentiated by autograd for an op, as `lambda x: f(x)`, and the arguments to differentiate it at, `x`."""
        call, args = op.pullback
        given = tuple(self.graph.name(self.names.get(arg) or arg.name) for arg in args)
        body = printer.expression(call)
        return self.graph.node("lambda", "", (*given, body)), given

    def _pushed_forward(self, name: str, op: Op, region: Region) -> list[Statement]:
        """Return the lines for the tangent of a call without a rule, by its gradient's gradient, which is linear in the cotangent.

        `torch.func.jvp` in a `jvp` would nest forward mode, which autograd refuses.
        """
        graph, printer = self.graph, self._at(region)
        function, given = self._function(op, printer)
        pulled = graph.name(self.namer.another("pulled"))
        # `pulled = torch.func.vjp(lambda x: f(x), x)`: the value, and its pullback.
        run = graph.node("attribute", "func", (graph.name("torch"),))
        vjp = graph.node("attribute", "vjp", (run,))
        # The pullback is linear: any cotangent will do to differentiate it at, and the value has the shape.
        result, pullback = (
            graph.node("subscript", "", (pulled, graph.constant(at))) for at in "01"
        )
        # `torch.func.vjp(pulled[1], pulled[0])[1]` takes tangents of the arguments.
        second_vjp = graph.node("call", "", (vjp, pullback, result))
        pushed = graph.node("subscript", "", (second_vjp, graph.constant("1")))
        tangents = tuple(map(printer.node, op.args[: len(given)]))
        value = graph.node("call", "", (pushed, graph.node("tuple", "", tangents)))
        comment = "no tangent is known of this call: its gradient is differentiated"
        first_vjp = graph.node("call", "", (vjp, function, *given))
        target = graph.node("tuple", "", (graph.name(name),))
        return [Assign(pulled, first_vjp, "", (comment,)), Assign(target, value)]

    def _measure(self, name: str, value: Node, op: Op, printer: Printer) -> None:
        """Record a line that is too long in `long`, unless a formatter breaks it well."""
        # 3 for the ` = `.
        width = len(name) + 3 + len(emit(value))
        most = WIDTH - self.emission.indent
        if width > most and not (stands_on_lines(value) or is_broken_well(value, most)):
            self.long.append((op, width, printer))

    def too_long(self) -> set[Op]:
        """Return a part of each line recorded as too long, to be given a name in the next attempt."""
        found = set[Op | None]()
        of, held = self.emission.of, self.emission.held
        for op, width, printer in self.long:
            found.add(part_to_name(printer, op, width, of, held))
        return {part for part in found if part is not None}
