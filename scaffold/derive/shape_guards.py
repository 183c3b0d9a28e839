"""Shape guards: tests at the top of forward for the declared shapes a backward relies on.

In: an `OpSpec`, its forward and its `Derivation`, and a way to derive another. Out: a `ShapeCheck` for each input
with a shape to test.
Invariant: a call that passes the tests, and PyTorch's own, has the shapes assumed by the backward; PyTorch's tests
are not repeated, and nothing is tested if the backward would be the same without the declaration.

Why: for `--inputs 'x[N, D], b[D]'` the gradient of b is a sum over dim 0, wrong for a b of another shape; so forward
raises for it. `found` is the op as declared; `derive` derives it with weaker declarations, and where it comes out the
same, no test is needed: sizes are tried first, then conditions on them, then ranks.

Words: the first input with a size of some name gives it, and others are compared with that; an optional input that
gives one is its teller (`told_by`). A condition is one on named sizes (`require`). Leading dims are any number of
dims, `...` or `*batch`, named if all inputs share them. A stated gradient is one by the user's formula. A variadic
input is any number of tensors. The rank of a tensor is its number of dims. A size is `known` if another input gives it,
and `asked` for if forward has to test it; an input is `alone` if nothing but a test of its own fixes its rank.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.derivation import Derivation, Forward, ShapeCheck
from scaffold.derive.stated_gradients import outer_names
from scaffold.errors import ScaffoldError
from scaffold.formula import Formula, Graph, Node, emit
from scaffold.formula.names import fresh
from scaffold.spec import ANY_DIMS, Dim, OpSpec, TensorInput, is_leading, leading

# Derives the op for another declaration; None if its gradients surely differ.
Derive = Callable[[OpSpec], Derivation | None]


class Place(NamedTuple):
    """One dim of one input, or its named leading dims."""

    item: TensorInput
    at: int

    @property
    def dims(self) -> tuple[Dim, ...]:
        assert self.item.dims is not None
        return self.item.dims

    @property
    def own_name(self) -> str:
        """Return a name unique among sizes and leading dims: `N_of_x_0`."""
        return f"{self.dims[self.at]}_of_{self.item.name}_{self.at}"

    @property
    def is_leading(self) -> bool:
        return is_leading(self.dims[self.at])

    @property
    def axis(self) -> int | None:
        """Return the dim's position, or None for leading dims.

        The last dim, and dims after leading ones, are counted from the end.
        """
        if self.is_leading:
            return None
        # `x.shape[-1]` for the last of several dims, `x.shape[0]` for the only one.
        last = self.at == len(self.dims) - 1 > 0
        behind = leading(self.dims[: self.at])
        return self.at - len(self.dims) if last or behind else self.at

    def node(self, graph: Graph) -> Node:
        """Return the expression `x.shape[-1]`, as a node; not for leading dims."""
        assert self.axis is not None
        shape = graph.node("attribute", "shape", (graph.name(self.item.name),))
        at = graph.constant(str(abs(self.axis)))
        index = graph.node("unary", "-", (at,)) if self.axis < 0 else at
        return graph.node("subscript", "", (shape, index))

    @property
    def size(self) -> str:
        """Return the expression of the size, as code: `x.shape[-1]`, or `x.shape[:-2]` for leading dims."""
        if self.is_leading:
            return Part(self, 1).shape
        return f"{self.item.name}.shape[{self.axis}]"


class Part(NamedTuple):
    """Adjacent dims of one input: the first one, and their number."""

    first: Place
    length: int

    @property
    def is_whole(self) -> bool:
        return self.length == len(self.first.dims)

    @property
    def behind(self) -> int:
        """Return how many dims follow, if they are counted from the end because of leading dims, else 0: 2 for `x.shape[:-2]`."""
        dims, end = self.first.dims, self.first.at + self.length
        return len(dims) - end if leading(dims[:end]) else 0

    @property
    def shape(self) -> str:
        """Return the expression of the sizes, as code: `x.shape[:2]`, `x.shape[-2:]`, or `x.shape` for all dims."""
        item, dims = self.first.item, self.first.dims
        first, end = self.first.at, self.first.at + self.length
        if self.is_whole:
            return f"{item.name}.shape"
        is_tail = first > 0 and end == len(dims)
        # Counted from the end in a tail, and behind leading dims.
        start, stop = (
            at - len(dims) if is_tail or leading(dims[:at]) else at
            for at in (first, end)
        )
        return f"{item.name}.shape[{start or ''}:{stop or ''}]"


class Known(NamedTuple):
    """The required size of each dim of an input, if known from other inputs, and the dims to test."""

    item: TensorInput
    sizes: tuple["Place | int | None", ...]
    to_test: tuple[int, ...]  # the dims
    told_by: frozenset[str]  # optional inputs that determine a size

    @property
    def dims(self) -> tuple[Dim, ...]:
        assert self.item.dims is not None
        return self.item.dims

    @property
    def fully_known(self) -> bool:
        """Return whether the whole shape is known, so one comparison is enough."""
        return bool(self.to_test) and None not in self.sizes


def shape_checks(
    spec: OpSpec, forward: Forward | None, found: Derivation, derive: Derive
) -> tuple[ShapeCheck, ...]:
    """Return the tests forward needs for the shapes of its inputs; () for an op without gradients, or an unfinished one."""
    declared = [item for item in spec.tensors if _is_fixed(item)]
    several = next((item for item in spec.tensors if _is_several(item)), None)
    stated = found.derived != {item.name for item in spec.differentiable}
    # Unless stated, the gradient of a variadic input is autograd's, for any shapes.
    of_each = _known_of_each(spec, several, declared) if several and stated else ()
    asks = spec.shape_checks and (declared or of_each)
    if not (asks and found.complete and spec.differentiable):
        return ()
    # Imported here, since it is slow: an op without declared shapes needs no engine.
    from scaffold.derive.enforced_sizes import enforced

    pairs, ranks, least = enforced(_without_names(spec), forward)
    known = _known(declared, pairs)
    conditions = _conditions_needed(spec, found, derive)
    # The shapes a stated formula is for are unknown, so all are tested; and a condition
    # reads sizes by their names. Else the op is derived once more, to see what it relies on.
    may_go = any(item.to_test for item in known) and not (stated or conditions)
    if may_go and not _relies_on_more(found, _without_names(spec), derive):
        known = [item._replace(to_test=()) for item in known]
    # Inputs whose number of dims nothing else tests; no test if any number gives the same code.
    alone = [item.item for item in known if _rank_is_free(item, ranks)]
    if (
        alone
        and not stated
        and not _relies_on_more(found, _open(spec, known, alone), derive)
    ):
        alone = []
    rank_tests = {
        item.name: f"{item.name}.ndim != {len(item.dims or ())}" for item in alone
    }
    read = [at for item in conditions for at in _sizes_read(item, declared).values()]
    everywhere = [*known, *(item.known for item in of_each)]
    rank_tests |= _least_ranks(everywhere, read, dict(least))
    checks = (
        *(_check(item, known, rank_tests) for item in known),
        *(_check_of_each(item) for item in of_each),
        *(_check_of(item, declared) for item in conditions),
    )
    return tuple(check for check in checks if check is not None)


def _relies_on_more(found: Derivation, weaker: OpSpec, derive: Derive) -> bool:
    """Return whether the op would be written differently with the weaker declarations of `weaker`, or could not be derived.

    If not, a test of these declarations is superfluous.
    """
    try:
        other = derive(weaker)
    except ScaffoldError:
        return True

    def lines(op: Derivation) -> tuple[object, ...]:
        """Return the code of forward and backward, and the contents of ctx."""
        return op.forward, op.results, op.blocks, op.elements, op.saved, op.kept

    return other is None or lines(found) != lines(other)


def _conditions_needed(
    spec: OpSpec, found: Derivation, derive: Derive
) -> tuple[Formula, ...]:
    """Return the conditions on sizes without which the op would be written differently; only these are tested.

    All of them if it has kernels: a kernel may rely on more than the formula does.
    """
    left = spec.require
    if spec.kernels:
        return left
    for condition in spec.require:
        fewer = tuple(item for item in left if item is not condition)
        if not _relies_on_more(found, replace(spec, require=fewer), derive):
            left = fewer
    return left


def _sizes_read(
    condition: Formula, declared: Sequence[TensorInput]
) -> dict[str, Place]:
    """Map each size read by a condition to its first place in the required inputs, where its test can read it."""
    names = condition.result.names() if condition.result else frozenset()
    found: dict[str, Place] = {}
    for place in (place for item in declared for place in _places(item)):
        name = str(place.dims[place.at])
        if name in names and not place.item.optional:
            found.setdefault(name, place)
    return found


def _check_of(condition: Formula, declared: Sequence[TensorInput]) -> ShapeCheck | None:
    """Return the check of a condition on sizes, `N % 2 == 0`, placed at the last input with a size it reads; None without one.

    The test is of its opposite, `x.shape[0] % 2 != 0`.
    """
    test, places = condition.result, _sizes_read(condition, declared)
    if test is None or not places:
        return None
    graph = condition.graph

    def read(node: Node) -> Node | None:
        """Return `x.shape[0]` for the name of a size; None for other nodes."""
        place = places.get(node.label) if node.kind == "name" else None
        return None if place is None else place.node(graph)

    last = list(places.values())[-1]
    tested = graph.rewrite(test, read)
    if tested.kind == "compare" and tested.label == "==":
        broken = graph.node("compare", "!=", tested.args)
    else:
        broken = graph.node("unary", "not", (tested,))
    name, dims = last.item.name, ", ".join(map(str, last.dims))
    return ShapeCheck(
        name,
        absent=(),
        tests=(emit(broken),),
        declared=f"{name}[{dims}]",
        expected=f"one with {emit(test)}",
        axis=last.axis,
        condition=condition,
        read=tuple(
            (size, place.item.name, place.axis)
            for size, place in places.items()
            if place.axis is not None  # None for leading dims, which no condition names
        ),
    )


def _is_fixed(item: TensorInput) -> bool:
    """Return whether an input is one tensor with a declared shape, more than `[...]` alone."""
    return item.dims not in (None, (ANY_DIMS,)) and not item.variadic


def _is_several(item: TensorInput) -> bool:
    """Return whether it is a variadic input of declared shape."""
    return item.variadic and _is_fixed(item._replace(variadic=False))


def _with_dims(spec: OpSpec, dims: dict[str, tuple[Dim, ...]]) -> OpSpec:
    """Return the op with other declared shapes, `dims`, for the inputs named in it."""
    inputs = (
        (
            item._replace(dims=dims[item.name])
            if isinstance(item, TensorInput) and item.name in dims
            else item
        )
        for item in spec.inputs
    )
    return replace(spec, inputs=tuple(inputs))


def _places(item: TensorInput) -> Iterator[Place]:
    """Yield each dim of an input, but for an unnamed `...`, whose dims are compared with nothing."""
    for at, dim in enumerate(item.dims or ()):
        if dim != ANY_DIMS:
            yield Place(item, at)


def _own_dims(item: TensorInput) -> tuple[Dim, ...]:
    """Return the dims of an input, each under a unique name, but for an unnamed `...`."""
    named = {place.at: place.own_name for place in _places(item)}
    return tuple(named.get(at, dim) for at, dim in enumerate(item.dims or ()))


def _without_names(spec: OpSpec) -> OpSpec:
    """Return the op with no two sizes declared equal, and none a number: the weakest declarations of the same ranks."""
    fixed = (item for item in spec.tensors if _is_fixed(item))
    dims = {item.name: _own_dims(item) for item in fixed}
    return replace(_with_dims(spec, dims), require=())


# Equal sizes


def _known(
    declared: Sequence[TensorInput], pairs: Sequence[tuple[str, str]]
) -> list[Known]:
    """Return the required sizes of each input, by the first input with a dim of the same name, and the dims to test.

    PyTorch itself enforces the `pairs` of equal sizes: one test is enough for the dims they connect, one group.
    `tellers` maps a dim to the optional input it is compared with.
    """
    places = [place for item in declared for place in _places(item)]
    group = _groups([place.own_name for place in places], pairs)
    sizes: dict[str, Place | int] = {}
    asked: set[str] = set()
    tellers: dict[str, str] = {}
    for dim in dict.fromkeys(place.dims[place.at] for place in places):
        same = [place for place in places if place.dims[place.at] == dim]
        first = next((item for item in same if not item.item.optional), same[0])
        required = dim if isinstance(dim, int) else first
        # The groups tested: a name's first place needs no test, a number always does.
        done = {group[first.own_name]} if required is first else set[str]()
        for place in same:
            if place == required:
                continue
            sizes[place.own_name] = required
            if required is first and first.item.optional:
                tellers[place.own_name] = first.item.name
            if group[place.own_name] not in done:
                done.add(group[place.own_name])
                asked.add(place.own_name)
    return [_known_of(item, sizes, asked, tellers) for item in declared]


def _known_of(
    item: TensorInput,
    sizes: dict[str, Place | int],
    asked: set[str],
    tellers: dict[str, str],
) -> Known:
    """Return the required sizes of one input: `sizes`, the dims `asked` for and the optional `tellers`, by dims' unique names."""
    places = tuple(_places(item))
    size_at = {place.at: sizes.get(place.own_name) for place in places}
    return Known(
        item,
        tuple(size_at.get(at) for at in range(len(item.dims or ()))),
        tuple(place.at for place in places if place.own_name in asked),
        frozenset(tellers[at.own_name] for at in places if at.own_name in tellers),
    )


def _groups(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Map each name to a representative of its set of equal names, by the `pairs` of equal ones: a, b equal -> {a: a, b: a}."""
    group = {name: name for name in names}
    for one, two in pairs:
        if one in group and two in group and group[one] != group[two]:
            old, new = group[two], group[one]
            group = {name: new if at == old else at for name, at in group.items()}
    return group


# Variadic inputs


class OfEach(NamedTuple):
    """The required sizes of each tensor of a variadic input, and the inputs to compare it with as a whole."""

    several: TensorInput
    known: Known
    others: tuple[Known, ...]


def _known_of_each(
    spec: OpSpec, several: TensorInput, declared: Sequence[TensorInput]
) -> tuple[OfEach, ...]:
    """Return the sizes required of each tensor of a variadic input: by required inputs and the first tensor; then by optional ones.

    The second item is left out if optional inputs require nothing more. `several` is the variadic input, `each` one
    of its tensors under the name `item`, `first` its tensor 0.
    """
    each = several._replace(name=fresh("item", outer_names(spec, None)), variadic=False)
    first = each._replace(name=f"{several.name}[0]")
    required = [item for item in declared if not item.optional]
    # As if tensor 0 and one more were inputs of their own.
    *others, known = _known([*required, first, each], ())
    # Sizes of required inputs are compared by the first item already.
    named = {dim for item in required for dim in item.dims or ()}
    absent = [item for item in declared if item.optional]
    # Optional itself, or their sizes would be compared with its own, being always there.
    *_, beside = _known([*absent, each._replace(optional=True)], ())
    sizes = [beside.sizes[at] for at in beside.to_test]
    asked = tuple(
        at
        for at, size in zip(beside.to_test, sizes, strict=True)
        if isinstance(size, Place) and beside.dims[at] not in named
    )
    # Without the shape of the first tensor: its rank is unknown.
    found = [OfEach(several, known, tuple(others[:-1]))]
    if asked:
        found.append(OfEach(several, beside._replace(item=each, to_test=asked), ()))
    return tuple(found)


def _check_of_each(item: OfEach) -> ShapeCheck | None:
    """Return the check of a variadic input, which compares each tensor in turn; None if there is nothing to test."""
    name, dims = item.known.item.name, item.known.dims
    rank_tests = {name: f"{name}.ndim != {len(dims)}"} if not leading(dims) else {}
    check = _check(item.known, item.others, rank_tests)
    return check and check._replace(
        name=item.several.name, declared=_declared(item.several), each=name
    )


# Ranks


def _rank_is_free(known: Known, ranks: frozenset[str]) -> bool:
    """Return whether a call may pass another number of dims: neither another test nor PyTorch (`ranks`) checks it."""
    return (
        not leading(known.dims)
        and not known.fully_known
        and known.item.name not in ranks
    )


def _open(spec: OpSpec, known: Sequence[Known], alone: Sequence[TensorInput]) -> OpSpec:
    """Return the op with any number of dims before the last one for the inputs in `alone`: `x[*x, D]` for `x[N, D]`.

    If it is derived alike, their number of dims needs no test. An input compared with one of them as a whole has its dims, `y[*x, D]`.
    The sizes of other inputs get names of their own, unless one is such a last size: the rest are compared with nothing any more.
    `known` has the required sizes of all inputs.
    """
    # Without a size to test, equal sizes are known to make no difference.
    base = spec if any(item.to_test for item in known) else _without_names(spec)
    declared = {item.name: item.dims for item in base.tensors}
    lasts = {item.dims[-1] for item in alone if item.dims}
    dims: dict[str, tuple[Dim, ...]] = {}
    for item in known:
        before = declared[item.item.name]
        if before is None or leading(before):  # any number of dims already
            continue
        leader = _leader(item, known, alone)
        if leader is not None:
            dims[item.item.name] = (f"*{leader.name}", *before[-1:])
        else:
            dims[item.item.name] = tuple(
                dim if item.dims[place.at] in lasts else place.own_name
                for place, dim in zip(_places(item.item), before, strict=True)
            )
    return _with_dims(base, dims)


def _leader(
    known: Known, others: Sequence[Known], alone: Sequence[TensorInput]
) -> TensorInput | None:
    """Return the input to determine the rank of another: itself, or the one it is compared with; None if not in `alone`.

    It has the rank of the other only if compared in full: `y.shape != x.shape`, not `y.shape != x.shape[:1]`.
    """
    if known.item in alone:
        return known.item
    like = _like_another(known, others) if known.fully_known else None
    return (
        like.first.item if like and like.is_whole and like.first.item in alone else None
    )


def _least_ranks(
    known: Sequence[Known], read: Sequence[Place], least: Mapping[str, int]
) -> dict[str, str]:
    """Return rank tests for inputs with perhaps fewer dims than are cut off or read: `x.ndim < 2` for `x[*batch, T, D]`.

    A tensor of shape `[D]` would pass without: its `shape[:-2]` is (), as of one without leading dims. `read` are places
    that conditions read, `least` are ranks PyTorch enforces. `cut` has the number of dims an input must have behind its
    leading ones.
    """
    cut: dict[str, int] = {}
    for place in read:
        if leading(place.dims) and place.axis is not None:
            # Two for `shape[-2]`; none for `shape[0]`, before leading dims.
            cut[place.item.name] = max(-place.axis, cut.get(place.item.name, 0))
    for item in known:
        for part in _compared_leading(item, known):
            name = part.first.item.name
            cut[name] = max(part.behind, cut.get(name, 0))
    return {
        name: f"{name}.ndim < {count}"
        for name, count in cut.items()
        # Not for one dim: PyTorch decides on a call with a scalar.
        if count > max(1, least.get(name, 0))
    }


def _compared_leading(known: Known, others: Sequence[Known]) -> tuple[Part, ...]:
    """Return the parts of the inputs to compare an input's leading dims with another's; () if they are not compared."""
    first = Place(known.item, 0)
    if not (known.to_test and first.is_leading):
        return ()
    if known.fully_known:
        part = _like_another(known, others) or _starred(known.sizes)
        return (part,) if part else ()
    return _leading_run(known, others) if 0 in known.to_test else ()


# Tests


def _check(
    known: Known, others: Sequence[Known], rank_tests: Mapping[str, str]
) -> ShapeCheck | None:
    """Return the check of one input, or None if there is nothing to test.

    A shape known in full is compared as a whole, `y.shape != x.shape`; else its rank and its dims one by one.
    `rank_tests` has the test of its number of dims, if needed.
    """
    name, dims = known.item.name, known.dims
    absent = ((name,) if known.item.optional else ()) + tuple(sorted(known.told_by))
    declared = _declared(known.item)
    if known.fully_known:
        part = _starred(known.sizes)
        all_starred = part if part and part.length == len(dims) else None
        like = _like_another(known, others) or all_starred
        sizes = ", ".join(_listed(known.sizes))
        shape = f"({sizes},)" if len(dims) == 1 else f"({sizes})"
        shown = f"{{[{sizes}]}}"
        if like:
            shape, shown = like.shape, f"{{[*{like.shape}]}}"
        if re.fullmatch(r"[\d, ]*", sizes):  # numbers alone: no braces in an f-string
            shown = f"[{sizes}]"
        test = f"{name}.shape != {shape}"
        # The generated test makes the last dim wrong; of `*batch`, no dim is surely there.
        axis = None if is_leading(dims[-1]) else -1
        return ShapeCheck(name, absent, (test,), declared, shown, axis)
    tests = [rank_tests[name]] if name in rank_tests else []
    tests += [_test(*run) for run in _runs(known, others)]
    if not tests:
        return None
    if not known.to_test:  # the number of dims alone
        too_few = bool(leading(dims))
        rank = f"at least {len(dims) - 1}-D" if too_few else f"{len(dims)}-D"
        return ShapeCheck(name, absent, tuple(tests), declared, rank, None, too_few)
    shown = ", ".join(_shown(dim, known.sizes[at]) for at, dim in enumerate(dims))
    axis = Place(known.item, known.to_test[0]).axis
    return ShapeCheck(name, absent, tuple(tests), declared, f"[{shown}]", axis)


def _declared(item: TensorInput) -> str:
    """Return an input with its dims as the user declares it, for the message: `y[N, D]`."""
    return f"{item.name}[{', '.join(map(str, item.dims or ()))}]"


def _size(size: Place | int | None) -> str:
    """Return a required size as an expression."""
    return size.size if isinstance(size, Place) else str(size)


def _listed(sizes: Sequence[Place | int | None]) -> Iterator[str]:
    """Yield sizes as elements of a tuple, the required shape as code: `*q.shape[:-1]`, `k.shape[-2]`."""
    part = _starred(sizes)
    if part is not None:
        yield f"*{part.shape}"
    yield from map(_size, sizes[part.length if part else 0 :])


def _starred(sizes: Sequence[Place | int | None]) -> Part | None:
    """Return leading dims with the following dims of the same input, or None if the sizes do not begin with leading dims.

    In the required shape they are one starred part: `(*q.shape[:-1], k.shape[-2])`.
    """
    first, length = sizes[0], 1
    if not (isinstance(first, Place) and first.is_leading):
        return None
    while sizes[length:] and sizes[length] == first._replace(at=first.at + length):
        length += 1
    return Part(first, length)


def _shown(dim: Dim, size: Place | int | None) -> str:
    """Return a size for the message, part of an f-string: as a number if it follows from another input, `{x.shape[0]}`, else its name."""
    if not isinstance(size, Place):
        return str(dim)
    return f"*{{[*{size.size}]}}" if size.is_leading else f"{{{size.size}}}"


def _runs(
    known: Known, others: Sequence[Known]
) -> Iterator[tuple[Part, Part | Place | int]]:
    """Yield the dims to test (`known.to_test`) with their required sizes; adjacent ones together, if adjacent in another input too.

    `y.shape[:2] != x.shape[:2]` is one test for two dims. Leading dims come first.
    """
    asked = known.to_test
    if asked and Place(known.item, asked[0]).is_leading:
        part, required = _leading_run(known, others)
        yield part, required
        asked = tuple(at for at in asked if at >= part.length)
    runs: list[list[int]] = []  # adjacent dims with adjacent required sizes
    for at in asked:
        last = known.sizes[at - 1] if runs and runs[-1][-1] == at - 1 else None
        if isinstance(last, Place) and known.sizes[at] == last._replace(at=last.at + 1):
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in runs:
        part, first = Part(Place(known.item, run[0]), len(run)), known.sizes[run[0]]
        assert first is not None  # a dim without a required size is not tested
        if len(run) > 1 and isinstance(first, Place):  # of numbers, each is a run
            yield part, Part(first, len(run))
        else:
            yield part, first


def _leading_run(known: Known, others: Sequence[Known]) -> tuple[Part, Part]:
    """Return the leading dims of an input, with the following ones in common with an earlier input; and these in that input.

    Compared at once, they need one test: `v.shape[:-1] != k.shape[:-1]` for `k[*batch, T, D]` and `v[*batch, T, E]`.
    """
    first, required = Place(known.item, 0), known.sizes[0]
    assert isinstance(required, Place)
    best = Part(required, 1)
    for other in _before(known, others):
        count = _common(known.dims, other.dims)
        if count > best.length and not other.item.optional:
            best = Part(Place(other.item, 0), count)
    return Part(first, best.length), best


def _before(known: Known, others: Sequence[Known]) -> Sequence[Known]:
    """Return the inputs checked before this one; all others, if it is not among them. Their shapes are known to be right."""
    return others[: others.index(known)] if known in others else others


def _common(one: Sequence[Dim], two: Sequence[Dim]) -> int:
    """Return the number of equal dims at the start of two shapes."""
    pairs = zip(one, two, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two))
    )


def _test(part: Part, required: Part | Place | int) -> str:
    """Return the test of a part against the required sizes: `y.shape[0] != x.shape[0]`, `y.shape[:2] != x.shape[:2]`."""
    if isinstance(required, Part):
        return f"{part.shape} != {required.shape}"
    return f"{part.first.size} != {_size(required)}"


def _like_another(known: Known, others: Sequence[Known]) -> Part | None:
    """Return all or some dims of an earlier input with the same sizes: `x.shape`, `x.shape[:2]`; else None.

    One comparison then tests the whole shape. It is known in full, so no `...` is in it: those may be other dims in each input.
    """
    count = len(known.dims)
    for other in _before(known, others):
        dims = other.dims
        if other.item.optional:
            continue
        if dims == known.dims:
            return Part(Place(other.item, 0), count)
        if count < 2 and not leading(known.dims):  # one size is compared by itself
            continue
        if dims[-count:] == known.dims:
            return Part(Place(other.item, len(dims) - count), count)
        if dims[:count] == known.dims:
            return Part(Place(other.item, 0), count)
    return None
