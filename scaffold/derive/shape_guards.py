"""The declared shapes that a backward relies on, as tests at the top of forward.

In: an `OpSpec`, its forward and its `Derivation`, and how another is made. Out: a `ShapeCheck` for each input whose shape has to be asked.
Invariant: a call that passes the tests, and that PyTorch takes, has the shapes that the backward is for; what PyTorch itself demands
is not asked again, and where the backward would be the same without the declaration nothing is.
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

# The op as it is written for another declaration; None where its gradients are known to be others.
Derive = Callable[[OpSpec], Derivation | None]


class Place(NamedTuple):
    """One dim of one input, or its leading dims where they have a name."""

    item: TensorInput
    at: int

    @property
    def dims(self) -> tuple[Dim, ...]:
        assert self.item.dims is not None
        return self.item.dims

    @property
    def own_name(self) -> str:
        """A name that no other size has, and no other leading dims."""
        return f"{self.dims[self.at]}_of_{self.item.name}_{self.at}"

    @property
    def is_leading(self) -> bool:
        return is_leading(self.dims[self.at])

    @property
    def axis(self) -> int | None:
        """Its position: the last one and what stands behind leading dims are counted from the end; None for those."""
        last = self.at == len(self.dims) - 1 > 0
        behind = leading(self.dims[: self.at])
        if self.is_leading:
            return None
        return self.at - len(self.dims) if last or behind else self.at

    def node(self, graph: Graph) -> Node:
        """The expression `x.shape[-1]`, as a node."""
        assert self.axis is not None
        shape = graph.node("attribute", "shape", (graph.name(self.item.name),))
        at = graph.constant(str(abs(self.axis)))
        index = graph.node("unary", "-", (at,)) if self.axis < 0 else at
        return graph.node("subscript", "", (shape, index))

    @property
    def size(self) -> str:
        """The expression: `x.shape[-1]`, or `x.shape[:-2]` for leading dims."""
        if self.is_leading:
            return Part(self, 1).shape
        return f"{self.item.name}.shape[{self.axis}]"


class Part(NamedTuple):
    """Neighbouring dims of one input, so many from the first one."""

    first: Place
    length: int

    @property
    def is_whole(self) -> bool:
        return self.length == len(self.first.dims)

    @property
    def behind(self) -> int:
        """How many dims follow, where they are counted from the end since leading dims come before."""
        dims, end = self.first.dims, self.first.at + self.length
        return len(dims) - end if leading(dims[:end]) else 0

    @property
    def shape(self) -> str:
        """The expression: `x.shape[:2]`, `x.shape[-2:]`."""
        item, dims = self.first.item, self.first.dims
        first, end = self.first.at, self.first.at + self.length
        if self.is_whole:
            return f"{item.name}.shape"
        last = first > 0 and end == len(dims)
        start, stop = (
            at - len(dims) if last or leading(dims[:at]) else at for at in (first, end)
        )
        return f"{item.name}.shape[{start or ''}:{stop or ''}]"


class Known(NamedTuple):
    """What each dim of an input must be, where that follows from other inputs; and which of them have to be tested."""

    item: TensorInput
    sizes: tuple["Place | int | None", ...]
    asked: tuple[int, ...]
    of: frozenset[str]  # optional inputs that it follows from

    @property
    def dims(self) -> tuple[Dim, ...]:
        assert self.item.dims is not None
        return self.item.dims

    @property
    def fully_known(self) -> bool:
        """Whether all of the shape is known, so that one comparison is enough."""
        return bool(self.asked) and None not in self.sizes


def shape_checks(
    spec: OpSpec, forward: Forward | None, found: Derivation, derive: Derive
) -> tuple[ShapeCheck, ...]:
    """What forward has to ask of the shapes of its inputs."""
    declared = [item for item in spec.tensors if _is_fixed(item)]
    several = next((item for item in spec.tensors if _is_several(item)), None)
    stated = found.derived != {item.name for item in spec.differentiable}
    # The gradient of any number of tensors is autograd's, of any shapes, where nobody states it.
    of_each = _known_of_each(spec, several, declared) if several and stated else ()
    asks = spec.shape_checks and (declared or of_each)
    if not (asks and found.complete and spec.differentiable):
        return ()
    # Here, since an op without declared shapes does without the engine, which takes long to import.
    from scaffold.derive.enforced_sizes import enforced

    pairs, ranks, least = enforced(_without_names(spec), forward)
    known = _known(declared, pairs)
    conditions = _conditions_needed(spec, found, derive)
    # Nobody knows which shapes a stated formula is for, so all of them are tested; and a condition is on sizes by their names.
    asked = any(item.asked for item in known) and not (stated or conditions)
    if asked and not _relies_on_more(found, _without_names(spec), derive):
        known = [item._replace(asked=()) for item in known]
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
    """Whether the op would be written otherwise if no more was declared than in the weaker spec."""
    try:
        other = derive(weaker)
    except ScaffoldError:
        return True
    return other is None or any(
        one != two
        for one, two in (
            (found.forward, other.forward),
            (found.results, other.results),
            (found.blocks, other.blocks),
            (found.elements, other.elements),
            (found.saved, other.saved),
            (found.kept, other.kept),
        )
    )


def _conditions_needed(
    spec: OpSpec, found: Derivation, derive: Derive
) -> tuple[Formula, ...]:
    """The conditions on sizes without which the op would be written otherwise."""
    left = spec.require
    for condition in spec.require:
        fewer = tuple(item for item in left if item is not condition)
        if not _relies_on_more(found, replace(spec, require=fewer), derive):
            left = fewer
    return left


def _sizes_read(
    condition: Formula, declared: Sequence[TensorInput]
) -> dict[str, Place]:
    """For each size that a condition reads, the first place in the inputs that has it."""
    names = condition.result.names() if condition.result else frozenset()
    found: dict[str, Place] = {}
    for place in (place for item in declared for place in _places(item)):
        name = str(place.dims[place.at])
        if name in names and not place.item.optional:
            found.setdefault(name, place)
    return found


def _check_of(condition: Formula, declared: Sequence[TensorInput]) -> ShapeCheck | None:
    """What is asked of the last input that a condition reads a size of."""
    test, places = condition.result, _sizes_read(condition, declared)
    if test is None or not places:
        return None
    graph = condition.graph

    def read(node: Node) -> Node | None:
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
        (),
        (emit(broken),),
        f"{name}[{dims}]",
        f"one with {emit(test)}",
        last.axis,
        condition=condition,
        read=tuple(
            (size, place.item.name, place.axis)
            for size, place in places.items()
            if place.axis is not None
        ),
    )


def _is_fixed(item: TensorInput) -> bool:
    return item.dims not in (None, (ANY_DIMS,)) and not item.variadic


def _is_several(item: TensorInput) -> bool:
    """Whether it is any number of tensors of a declared shape."""
    return item.variadic and _is_fixed(item._replace(variadic=False))


def _with_dims(spec: OpSpec, dims: dict[str, tuple[Dim, ...]]) -> OpSpec:
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
    for at, dim in enumerate(item.dims or ()):
        if dim != ANY_DIMS:
            yield Place(item, at)


def _own_dims(item: TensorInput) -> tuple[Dim, ...]:
    """The dims of an input, each under a name that no other has."""
    named = {place.at: place.own_name for place in _places(item)}
    return tuple(named.get(at, dim) for at, dim in enumerate(item.dims or ()))


def _without_names(spec: OpSpec) -> OpSpec:
    """The op as if no two sizes were declared equal, and none a number."""
    fixed = (item for item in spec.tensors if _is_fixed(item))
    own = _with_dims(spec, {item.name: _own_dims(item) for item in fixed})
    return replace(own, require=())


# Which sizes follow from which


def _known(
    declared: Sequence[TensorInput], pairs: Sequence[tuple[str, str]]
) -> list[Known]:
    """For each input what its sizes must be, by the first input that has the name, and which of them have to be tested."""
    places = [place for item in declared for place in _places(item)]
    group = _groups([place.own_name for place in places], pairs)
    sizes: dict[str, Place | int] = {}
    asked: set[str] = set()
    tellers: dict[str, str] = {}
    for dim in dict.fromkeys(place.dims[place.at] for place in places):
        same = [place for place in places if place.dims[place.at] == dim]
        first = next((item for item in same if not item.item.optional), same[0])
        done = set[str]() if isinstance(dim, int) else {group[first.own_name]}
        for place in same:
            if isinstance(dim, str) and place == first:
                continue
            sizes[place.own_name] = dim if isinstance(dim, int) else first
            if isinstance(dim, str) and first.item.optional:
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
    own = tuple(_places(item))
    size_at = {place.at: sizes.get(place.own_name) for place in own}
    return Known(
        item,
        tuple(size_at.get(at) for at in range(len(item.dims or ()))),
        tuple(place.at for place in own if place.own_name in asked),
        frozenset(tellers[one.own_name] for one in own if one.own_name in tellers),
    )


def _groups(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """One representative for each set of names that are equal: name -> representative."""
    group = {name: name for name in names}
    for one, two in pairs:
        if one in group and two in group and group[one] != group[two]:
            old, new = group[two], group[one]
            group = {name: new if at == old else at for name, at in group.items()}
    return group


# Any number of tensors


class OfEach(NamedTuple):
    """What each of any number of tensors must be, and the inputs that it may be compared with as a whole."""

    several: TensorInput
    known: Known
    others: tuple[Known, ...]


def _known_of_each(
    spec: OpSpec, several: TensorInput, declared: Sequence[TensorInput]
) -> tuple[OfEach, ...]:
    """What each must be by the required inputs and by the first of them; then by inputs that may be absent."""
    each = several._replace(name=fresh("item", outer_names(spec, None)), variadic=False)
    first = each._replace(name=f"{several.name}[0]")
    required = [item for item in declared if not item.optional]
    *others, known = _known([*required, first, each], ())
    named = {dim for item in required for dim in item.dims or ()}
    absent = [item for item in declared if item.optional]
    *_, beside = _known([*absent, each._replace(optional=True)], ())
    told = [beside.sizes[at] for at in beside.asked]
    asked = tuple(
        at
        for at, size in zip(beside.asked, told, strict=True)
        if isinstance(size, Place) and beside.dims[at] not in named
    )
    # Not with the shape of the first one, of which nobody says how many dims it has.
    found = [OfEach(several, known, tuple(others[:-1]))]
    if asked:
        found.append(OfEach(several, beside._replace(item=each, asked=asked), ()))
    return tuple(found)


def _check_of_each(item: OfEach) -> ShapeCheck | None:
    """The check of an input of several tensors, which compares each in turn."""
    name, dims = item.known.item.name, item.known.dims
    rank_tests = {name: f"{name}.ndim != {len(dims)}"} if not leading(dims) else {}
    check = _check(item.known, item.others, rank_tests)
    return check and check._replace(
        name=item.several.name, declared=_declared(item.several), each=name
    )


# Ranks


def _rank_is_free(known: Known, ranks: frozenset[str]) -> bool:
    """Whether no other test, and not PyTorch itself, sees to the number of dims."""
    return (
        not leading(known.dims)
        and not known.fully_known
        and known.item.name not in ranks
    )


def _open(spec: OpSpec, known: Sequence[Known], alone: Sequence[TensorInput]) -> OpSpec:
    """The op as if of these inputs, and of those compared with them, nothing but the last dim was declared."""
    base = spec if any(item.asked for item in known) else _without_names(spec)
    names = {item.name: item.dims for item in base.tensors}
    lasts = {item.dims[-1] for item in alone if item.dims}
    dims: dict[str, tuple[Dim, ...]] = {}
    for item in known:
        own = names[item.item.name]
        if own is None or leading(own):
            continue
        leader = _leader(item, known, alone)
        if leader is not None:
            dims[item.item.name] = (f"*{leader.name}", *own[-1:])
        else:
            dims[item.item.name] = tuple(
                dim if item.dims[place.at] in lasts else place.own_name
                for place, dim in zip(_places(item.item), own, strict=True)
            )
    return _with_dims(base, dims)


def _leader(
    known: Known, others: Sequence[Known], alone: Sequence[TensorInput]
) -> TensorInput | None:
    """The input that decides the rank of another: itself, or the one that it is compared with."""
    if known.item in alone:
        return known.item
    like = _like_another(known, others) if known.fully_known else None
    return (
        like.first.item if like and like.is_whole and like.first.item in alone else None
    )


def _least_ranks(
    known: Sequence[Known], read: Sequence[Place], least: Mapping[str, int]
) -> dict[str, str]:
    """Tests of inputs from which more dims are cut off or read than they may have: of `[D]`, `shape[:-2]` is that of no leading dims."""
    cut: dict[str, int] = {}
    for place in read:
        if leading(place.dims) and place.axis is not None:
            cut[place.item.name] = max(-place.axis, cut.get(place.item.name, 0))
    for item in known:
        for part in _compared_leading(item, known):
            name = part.first.item.name
            cut[name] = max(part.behind, cut.get(name, 0))
    return {
        name: f"{name}.ndim < {count}"
        for name, count in cut.items()
        if count > max(1, least.get(name, 0))
    }


def _compared_leading(known: Known, others: Sequence[Known]) -> tuple[Part, ...]:
    """The parts that are compared to hold the leading dims of an input against those of another."""
    first = Place(known.item, 0)
    if not (known.asked and first.is_leading):
        return ()
    if known.fully_known:
        part = _like_another(known, others) or _starred(known.sizes)
        return (part,) if part else ()
    return _leading_run(known, others) if 0 in known.asked else ()


# Tests


def _check(
    known: Known, others: Sequence[Known], rank_tests: Mapping[str, str]
) -> ShapeCheck | None:
    """What is asked of one input."""
    name, dims = known.item.name, known.dims
    absent = ((name,) if known.item.optional else ()) + tuple(sorted(known.of))
    declared = _declared(known.item)
    if known.fully_known:
        part = _starred(known.sizes)
        all_starred = part if part and part.length == len(dims) else None
        like = _like_another(known, others) or all_starred
        sizes = ", ".join(_listed(known.sizes))
        shape = like.shape if like else f"({sizes}{',' * (len(dims) == 1)})"
        shown = f"{{[*{like.shape}]}}" if like else f"{{[{sizes}]}}"
        if re.fullmatch(r"[\d, ]*", sizes):
            shown = f"[{sizes}]"
        test = f"{name}.shape != {shape}"
        axis = None if is_leading(dims[-1]) else -1
        return ShapeCheck(name, absent, (test,), declared, shown, axis)
    tests = [rank_tests[name]] if name in rank_tests else []
    tests += [_test(*run) for run in _runs(known, others)]
    if not tests:
        return None
    shown = ", ".join(_shown(dim, known.sizes[at]) for at, dim in enumerate(dims))
    rank = f"at least {len(dims) - 1}-D" if leading(dims) else f"{len(dims)}-D"
    expected = f"[{shown}]" if known.asked else rank
    axis = Place(known.item, known.asked[0]).axis if known.asked else None
    too_few = bool(leading(dims)) and not known.asked
    return ShapeCheck(name, absent, tuple(tests), declared, expected, axis, too_few)


def _declared(item: TensorInput) -> str:
    return f"{item.name}[{', '.join(map(str, item.dims or ()))}]"


def _size(size: Place | int | None) -> str:
    return size.size if isinstance(size, Place) else str(size)


def _listed(sizes: Sequence[Place | int | None]) -> Iterator[str]:
    """Sizes as they stand in a tuple: `*q.shape[:-1]`, `k.shape[-2]`."""
    part = _starred(sizes)
    if part is not None:
        yield f"*{part.shape}"
    yield from map(_size, sizes[part.length if part else 0 :])


def _starred(sizes: Sequence[Place | int | None]) -> Part | None:
    """Leading dims, with the dims that follow them in the same input."""
    first, length = sizes[0], 1
    if not (isinstance(first, Place) and first.is_leading):
        return None
    while sizes[length:] and sizes[length] == first._replace(at=first.at + length):
        length += 1
    return Part(first, length)


def _shown(dim: Dim, size: Place | int | None) -> str:
    """A size in the message: as a number where it follows from another input."""
    if not isinstance(size, Place):
        return str(dim)
    return f"*{{[*{size.size}]}}" if size.is_leading else f"{{{size.size}}}"


def _runs(
    known: Known, others: Sequence[Known]
) -> Iterator[tuple[Part, Part | Place | int | None]]:
    """The dims to ask, those together that stand side by side as they do in another input, with what they must be."""
    asked = known.asked
    if asked and Place(known.item, asked[0]).is_leading:
        part, there = _leading_run(known, others)
        yield part, there
        asked = tuple(at for at in asked if at >= part.length)
    runs: list[list[int]] = []
    for at in asked:
        last = known.sizes[runs[-1][-1]] if runs else None
        this = known.sizes[at]
        adjacent = isinstance(last, Place) and last._replace(at=last.at + 1) == this
        if runs and adjacent and runs[-1][-1] + 1 == at:
            runs[-1].append(at)
        else:
            runs.append([at])
    for run in runs:
        part, first = Part(Place(known.item, run[0]), len(run)), known.sizes[run[0]]
        if len(run) > 1 and isinstance(first, Place):
            yield part, Part(first, len(run))
        else:
            yield part, first


def _leading_run(known: Known, others: Sequence[Known]) -> tuple[Part, Part]:
    """The leading dims, with as many behind them as some input before has too: `v.shape[:-1]` for T of `k[*batch, T, D]`."""
    first, teller = Place(known.item, 0), known.sizes[0]
    assert isinstance(teller, Place)
    best = Part(teller, 1)
    for other in _before(known, others):
        count = _common(known.dims, other.dims)
        if count > best.length and not other.item.optional:
            best = Part(Place(other.item, 0), count)
    return Part(first, best.length), best


def _before(known: Known, others: Sequence[Known]) -> Sequence[Known]:
    """The inputs that are checked before this one."""
    return others[: others.index(known)] if known in others else others


def _common(one: Sequence[Dim], two: Sequence[Dim]) -> int:
    """How many dims at the start are the same."""
    pairs = zip(one, two, strict=False)
    return next(
        (at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(two))
    )


def _test(part: Part, there: Part | Place | int | None) -> str:
    """`y.shape[0] != x.shape[0]`, or `y.shape[:2] != x.shape[:2]`."""
    if isinstance(there, Part):
        return f"{part.shape} != {there.shape}"
    return f"{part.first.size} != {_size(there)}"


def _like_another(known: Known, others: Sequence[Known]) -> Part | None:
    """All or some dims of an input before, which has the same sizes: `x.shape`, `x.shape[:2]`."""
    count = len(known.dims)
    for other in _before(known, others):
        dims = other.dims
        if other.item.optional or other.item.dims is None:
            continue
        if dims == known.dims:
            return Part(Place(other.item, 0), count)
        if count < 2 and not leading(known.dims):
            continue
        if ANY_DIMS not in dims[-count:] and dims[-count:] == known.dims:
            return Part(Place(other.item, len(dims) - count), count)
        if dims[:count] == known.dims:
            return Part(Place(other.item, 0), count)
    return None
