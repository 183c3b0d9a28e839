"""Differentiate primitives whose gradients depend on ranks, equations or indices: in code rather than by formulas.

`reverse` calls the function registered for a primitive with `code` in its section.

In: an op and the cotangent of its result. Out: pairs of an argument and its gradient, to be summed to the argument's shape by the
caller. Invariant: if the shapes are not known well enough (None is returned), autograd differentiates the call.

Words: `g` is the cotangent of the op, the gradient of the loss with respect to its result. A factor is one tensor of an einsum, its
letters are the names of its dims. A number is `literal` if it is written out, and else `UNKNOWN` before the call. `make.conj` and
`mH` are for complex tensors; on real ones they do nothing, or transpose.
"""

from collections.abc import Callable

from scaffold.derive.graph import shapes
from scaffold.derive.graph.conditions import given
from scaffold.derive.graph.op import Kind, OfShape, Op, literal
from scaffold.derive.graph.shape_rules import dim_of, letters_of
from scaffold.derive.graph.shapes import SCALAR, Shape, is_lead
from scaffold.derive.graph.signs import is_nonnegative
from scaffold.derive.lower import indexing
from scaffold.derive.rules.formula_words import (
    as_matrix,
    fit_to,
    reshape_as,
    size,
    unless_vector,
)
from scaffold.derive.rules.several_results import item_at
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import UNKNOWN

Pairs = list[tuple[Op, Op]]
Coded = Callable[[Maker, Op, Op], Pairs | None]
CODED: dict[str, Coded] = {}  # a primitive -> its gradients; None: unknown


def coded(*names: str) -> Callable[[Coded], Coded]:
    """Return a decorator to register a function as the gradients of primitives, named here and with `code` in their sections."""

    def register(function: Coded) -> Coded:
        CODED.update(dict.fromkeys(names, function))
        return function

    return register


# --- The gradient of `F.scaled_dot_product_attention`, with recomputed probabilities.
#
# In: an op and the cotangent of its result. Out: pairs of an argument and its gradient. Invariant: a row without anything to attend to
# has no gradient, as in PyTorch.


@coded("scaled_dot_product_attention")
def attention(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return the gradients of query, key, value and an additive mask; None if only the call tells whether it is causal.

    With `p = softmax(scale * q @ k.mT)`, the one of `v` is `p.mT @ g`, and the one of the scores `p * (g @ v.mT - sum(g @ v.mT *
    p))`, multiplied by `k` and `q`. There is no dropout, by the `when` of the rule.
    """
    query, key, value, mask, _dropout_p, causal, scale = op.args
    last = make.const(-1)  # the dim of the keys
    if literal(causal) is UNKNOWN:
        return None
    factor = _scale(make, query, scale)
    scores = make.mul(factor, make.matmul(query, make.mT(key)))
    hidden: list[Op] = []  # masks of the places that a query must not see
    if literal(causal) is True:
        below = make("tril", make.ones_like(scores))
        hidden.append(make("eq", below, make.const(0)))
    if mask.is_tensor and mask.kind != "bool":
        scores = _where_given(make, mask, make.add(scores, mask), scores)

    def without_hidden(values: Op, number: float) -> Op:
        """Return values with a number in each place excluded by the causal or a bool mask, if given; a real mask excludes none."""
        for item in hidden:
            values = make.masked_fill(values, item, make.const(number))
        if not mask.is_tensor or mask.kind != "bool":
            return values
        hides = make("bitwise_not", mask)
        found = make.masked_fill(values, hides, make.const(number))
        return _where_given(make, mask, found, values)

    scores = without_hidden(scores, float("-inf"))
    # A row with nothing to see has scores of -inf alone, and NaN as softmax: 0 here.
    probs = without_hidden(make("softmax", scores, last), 0)
    of_probs = make.matmul(g, make.mT(value))
    total = make.sum(make.mul(of_probs, probs), last, make.const(True))
    of_scores = make.mul(probs, make.sub(of_probs, total))
    pairs = [
        (query, make.mul(factor, make.matmul(of_scores, key))),
        (key, make.mul(factor, make.matmul(make.mT(of_scores), query))),
        (value, make.matmul(make.mT(probs), g)),
    ]
    return [*pairs, (mask, of_scores)] if mask.active else pairs


def _scale(make: Maker, query: Op, scale: Op) -> Op:
    """Return the factor of the scores in attention: `scale` if it is given, otherwise `1 / sqrt(query.shape[-1])`."""
    last = make.program.op("size", (make.const(-1),), OfShape(query.shape))
    usual = make("pow", last, make.const(-0.5))
    return make.choose(given(make.program, scale), scale, usual)


def _where_given(make: Maker, mask: Op, masked: Op, plain: Op) -> Op:
    """Return `masked` if the optional mask is given in a call, otherwise `plain`."""
    return make.choose(given(make.program, mask), masked, plain)


# --- The gradient of `torch.einsum`: another einsum, of the cotangent and the other operands.
#
# In: an op and the cotangent of its result. Out: pairs of an operand and its gradient; None for an operand read along an unsupported
# diagonal. Invariant: each gradient has its operand's dims, though one of size 1 may have been broadcast.


@coded("einsum")
def einsum(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return for each operand an einsum of the others: of `einsum("ij,jk->ik", x, y)`, `einsum("ik,jk->ij", g, y)` for `x`.

    None if the equation or the operands are not written out, or if a gradient has no such form.
    """
    equation, operands = op.args
    text = literal(equation)
    if not isinstance(text, str) or operands.rule != "list":
        return None
    inputs, result = letters_of(text)
    if len(inputs) != len(operands.args):
        return None
    pairs = []
    for at, operand in enumerate(operands.args):
        if not operand.active:
            continue
        others = [item for k, item in enumerate(inputs) if k != at]
        rest = [item for k, item in enumerate(operands.args) if k != at]
        factors = [g, *(make.conj(item) for item in rest)]
        found = _of_operand(make, operand, inputs[at], [result, *others], factors)
        if found is None:
            return None
        pairs.append((operand, found))
    return pairs


def _of_operand(
    make: Maker, operand: Op, letters: str, others: list[str], factors: list[Op]
) -> Op | None:
    """Return the gradient of one operand: an einsum of `factors`, the cotangent and the other operands.

    `letters` are those of the operand, `others` of each factor. A letter without a factor is a dim the operand was summed over
    alone: it is restored, and expanded. None for a letter read twice, or dims of `...` with no certain place.
    """
    dots = letters.startswith("...")  # then dims are counted from the end
    twice = len(letters) > 1 and letters[-2] == letters[-1] != "."
    # The dots first, or none: then the last two dims are surely those two letters.
    if twice and (dots or "." not in letters):
        return _of_diagonal(make, operand, letters, others, factors)
    known = set("".join(others))
    alone = [at for at, item in enumerate(letters) if item not in known]
    plain = letters.replace("...", "")
    if len(set(plain)) != len(plain) or not _dots_fit(letters, others):
        return None
    if alone and "..." in letters and not dots:
        return None
    kept = "".join(item for item in letters if item in known)
    # The cotangent alone, with its letters in order: an einsum would change nothing.
    if len(factors) == 1 and others[0] == kept:
        found = factors[0]
    else:
        found = _einsum(
            make,
            f"{','.join(others)}->{kept}",
            make.program.op("list", factors),
            operand if not alone else None,
        )
    # From the left, outer dims first, or from the right, inner ones first: numbers then hold.
    for at in reversed(alone) if dots else alone:
        place = at - len(letters) if dots else at  # from the end behind `...`
        found = make.unsqueeze(found, make.const(place))
    if not _is_as_long(letters, operand, others, factors):
        return fit_to(make, found, operand)
    return make.expanded(found, operand.shape) if alone else found


def _dots_fit(letters: str, others: list[str]) -> bool:
    """Return whether the dims of an operand's `...` are certainly all in the result, so its gradient has them.

    Behind a letter, `"i..."`, they may be fewer.
    """
    return "..." not in letters or letters[0] == "." and "..." in others[0]


def _is_as_long(
    letters: str, operand: Op, others: list[str], factors: list[Op]
) -> bool:
    """Return whether the other factors certainly have the operand's size in each letter summed over.

    Einsum broadcasts a size of 1: if the others have it, the operand may be longer, and its gradient has to be expanded. Of an
    operand with a letter of its own, which is expanded anyway, all other sizes have to agree.
    """
    sizes = _sizes(letters, operand)
    pairs = list(zip(others, factors, strict=True))
    beside = [_sizes(item, factor) for item, factor in pairs[1:]]
    # Letters summed over here: not in the cotangent. Then those of the operand alone.
    summed = set("".join(others[1:])) - set(others[0])
    return all(
        letter in sizes and any(sizes[letter] == item.get(letter) for item in beside)
        for letter in summed.intersection(letters)
    ) and (
        all(letter in "".join(others) for letter in letters)
        or _is_no_longer(letters, sizes, pairs)
    )


def _is_no_longer(
    letters: str, sizes: dict[str, object], pairs: list[tuple[str, Op]]
) -> bool:
    """Return whether each size of the factors surely equals the operand's size of the same letter, so nothing was broadcast."""
    return all(
        letter not in letters or size == sizes.get(letter)
        for item, factor in pairs
        for letter, size in _all_sizes(item, factor)
    )


def _all_sizes(letters: str, operand: Op) -> list[tuple[str, object]]:
    """Return each letter of an operand with its size, or with None if it is unknown."""
    known = _sizes(letters, operand)
    return [(letter, known.get(letter)) for letter in letters if letter != "."]


def _sizes(letters: str, operand: Op) -> dict[str, object]:
    """Return the known size of each letter of an operand: `"ij"`, `x[N, 3]` -> `{"i": N, "j": 3}`.

    Letters before `...` are counted from the start, those after it from the end.
    """
    before, _, after = letters.partition("...")
    dims, lead = operand.shape.dims, operand.shape.lead
    if dims is None:
        return {}
    found: dict[str, object] = {}
    if lead is None or lead >= len(before):
        # `dims` has those of `...` and `after` too.
        found |= zip(before, dims, strict=False)
    if after and operand.shape.trailing >= len(after):
        found |= zip(after, dims[-len(after) :], strict=True)
    return found


def _of_diagonal(
    make: Maker, operand: Op, letters: str, others: list[str], factors: list[Op]
) -> Op | None:
    """Return the gradient of an operand with its last letter twice, `"bii"`: the gradient of its diagonal, put on a diagonal.

    None if that has none.
    """
    dims = operand.shape.dims
    if dims is not None and letters[0] != "." and operand.shape.rank != len(letters):
        return None
    line = make.applier.named("diagonal", operand, *map(make.const, (0, -2, -1)))
    if dims is not None:
        line = make.program.shaped(line, Shape(dims[:-1]))
    found = _of_operand(make, line, letters[:-1], others, factors)
    if found is None:
        return None
    whole = make("diag_embed", fit_to(make, found, line))
    return make.program.shaped(whole, operand.shape)


def _einsum(make: Maker, equation: str, factors: Op, operand: Op | None) -> Op:
    """Return the einsum of `factors`; it gets the shape of `operand` if each of its sizes is certainly the operand's.

    None as operand: the result has another shape.
    """
    rule = make.applier.table.of_op("einsum")
    assert rule is not None
    plain = make.applier.apply(
        rule, {"equation": make.const(equation), "operands": factors}
    )
    if operand is None:
        return plain
    # A size of 1 may be broadcast, so it says nothing. The others tell the sizes of the cotangent, the first one.
    sure = all(
        item.shape.dims is not None
        and item.shape.lead is None
        and 1 not in item.shape.dims
        for item in (operand, *factors.args[1:])
    )
    if not (sure and _agree(equation, operand, factors)):
        return plain
    return make.program.shaped(plain, operand.shape)


def _agree(equation: str, operand: Op, factors: Op) -> bool:
    """Return whether each letter of an operand has the same size in all factors; einsum accepts a 1 beside another size."""
    letters, _, kept = equation.partition("->")
    sizes = dict(zip(kept, operand.shape.dims or (), strict=False))
    return all(
        sizes.get(letter, dim) == dim
        for part, factor in zip(letters.split(","), factors.args, strict=False)
        for letter, dim in zip(part, factor.shape.dims or (), strict=False)
    )


# --- The gradients of indexing: the cotangent is put into zeros at the index.
#
# In: an op and the cotangent of its result. Out: pairs of an argument and its gradient; None for an unsupported
# index. Invariant: the gradients of an element picked twice are summed.


@coded("narrow", "slice", "select", "index")
def getitem(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return zeros like `x` with `g` in place of `x[1:3]` or `x[2]`; None for a `narrow` that starts from the end."""
    x, *rest = op.args
    if op.rule == "index":
        return _of_index(make, op, g)
    if op.rule == "select":
        whole = make.select_scatter(make.zeros(g, x.shape), g, *rest)
        return [(x, make.program.shaped(whole, x.shape))]
    if op.rule == "narrow":
        dim, start, length = rest
        # Counted from the end, `start + length` might be 0, which ends a slice at the beginning.
        if not isinstance(first := literal(start), int) or first < 0:
            return None
        rest = [dim, start, make.add(start, length), make.const(None)]
    data = OfShape(x.shape)
    placed = make.program.op("unsliced", (g, *rest), data, kind=g.kind, shape=x.shape)
    return [(x, placed)]


def _of_index(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return the gradient of `x[i, j]` with tensors or lists in the index: `g` put into zeros, or added if an element may be read twice.

    None for tensors beside slices, unless in one of the two supported orders.
    """
    x, *parts = op.args
    program = make.program
    if any(not part.is_tensor for part in parts):
        return _of_one_part(make, op, g) or _of_last_parts(make, op, g)
    if len(parts) == 1 and (whole := _of_mask(make, x, parts[0], g)) is not None:
        return [(x, whole)]
    # Each number is a row of `x`: `index_add` takes a vector without negative ones.
    if (
        len(parts) == 1
        and parts[0].shape.rank == 1
        and _counts_from_start(make, parts[0])
    ):
        into = make.zeros(g, x.shape)
        added = make.index_add(into, make.const(0), parts[0], g)
        return [(x, program.shaped(added, x.shape))]
    # A mask reads each element once; an index may read one twice.
    accumulate = make.const(any(part.kind != "bool" for part in parts))
    indices = program.op("list", parts)
    whole = make.index_put(make.zeros(g, x.shape), indices, g, accumulate)
    return [(x, program.shaped(whole, x.shape))]


def _of_mask(make: Maker, x: Op, mask: Op, g: Op) -> Op | None:
    """Return the gradient of `x[mask].sum()`: where the mask holds the scalar cotangent, else 0, so no elements are selected.

    None unless `g` is an expanded scalar.
    """
    if g.facts.operator == "-" and len(g.args) == 1:  # a minus stays outside
        whole = _of_mask(make, x, mask, g.args[0])
        return None if whole is None else make.neg(whole)
    more = (x.shape.rank or 0) - (mask.shape.rank or 0)  # dims of x behind the mask's
    known = x.shape.rank is not None and mask.shape.rank is not None
    one = g.rule == "expanded" and g.args[0].shape == SCALAR
    if mask.kind != "bool" or not (known and one):
        return None
    for _ in range(more):
        mask = make.unsqueeze(mask, make.const(-1))
    return make.expanded(make.where(mask, g.args[0], make.const(0)), x.shape)


def _counts_from_start(make: Maker, index: Op) -> bool:
    """Return whether an index certainly has no negative number, which would count from the end."""
    return is_nonnegative(index, make.program.declared.bounded)


def _of_one_part(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return the gradient of `x[:, :, index]`, with `:` for all other dims, by `index_add`; None for other indices."""
    x, *parts = op.args
    places = [at for at, part in enumerate(parts) if not indexing.is_whole(part)]
    if len(places) != 1 or parts[places[0]].rule == "range":
        return None
    (at,) = places  # the indexed dim
    index, rank = _as_tensor(make, parts[at], g), parts[at].shape.rank
    if parts[at].rule == "list":
        rank = 1
    # A mask has no positions, which `index_add` needs.
    if index is None or rank is None or parts[at].kind == "bool":
        return None
    # `index_add` takes a vector.
    if rank == 0:
        index, g = make.unsqueeze(index, make.const(0)), make.unsqueeze(
            g, make.const(at)
        )
    elif rank > 1:
        ends = (make.const(at), make.const(at + rank - 1))
        index, g = make.flatten(index), make.flatten(g, *ends)
    if not _counts_from_start(make, parts[at]):  # -1 becomes the last index
        index = make("remainder", index, size(make, x, make.const(at)))
    into = make.zeros(g, x.shape)
    added = make.index_add(into, make.const(at), index, g)
    return [(x, make.program.shaped(added, x.shape))]


def _of_last_parts(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return the gradient of `x[:, i, j]`, with tensors for all last dims; None for other indices.

    `index_put` takes the first dims, so the last ones are moved there, and back.
    """
    x, *parts = op.args
    before = [part for part in parts if part.rule == "range"]
    indices, count = parts[len(before) :], len(before)
    dims = x.shape.dims
    if (
        dims is None
        or x.shape.rank != len(parts)
        or not all(map(indexing.is_whole, before))
        or not all(part.is_tensor and part.kind == "int" for part in indices)
    ):
        return None
    # The dims before the indices are moved to the end; a single one is given as a number.
    # There is one at least, since the parts are not all tensors (`_of_index`).
    first, last = tuple(range(count)), tuple(range(-count, 0))
    ends = [make.const(item if count > 1 else item[0]) for item in (first, last)]
    into = make.zeros(g, Shape((*dims[count:], *dims[:count])))
    listed = make.program.op("list", indices)
    added = make.index_put(into, listed, make.movedim(g, *ends), make.const(True))
    back = make.movedim(added, *reversed(ends))
    return [(x, make.program.shaped(back, x.shape))]


def _as_tensor(make: Maker, part: Op, g: Op) -> Op | None:
    """Return an index as a tensor, on the device of `g`; None if it is neither a tensor nor a tuple of integers."""
    if part.is_tensor:
        return part
    values = literal(part)
    if not isinstance(values, tuple) or not all(type(item) is int for item in values):
        return None
    return make.program.op("indices", (part, g), None, kind="int")


# --- Products of matrices, joined tensors, and values put or taken along a dim.


@coded("matmul")
def matmul(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `g @ y.mH` and `x.mH @ g` for `x @ y`; a vector is a matrix of one row or column, as far as ranks are known."""
    x, y = op.args
    # The order: a vector on either side first, then one matrix on the right, then any ranks.
    if y.shape.rank == 1:
        return _by_vector(make, x, y, g)
    if x.shape.rank == 1 and y.shape.least > 1:
        return _of_vector(make, x, y, g)
    if y.shape.rank == 2 and x.shape.rank != 2:
        left = make.matmul(g, make.mH(y))
        return [(x, left), (y, _contracted(make, make.conj(x), g))]
    wide = as_matrix(make, as_matrix(make, g, y, -1), x, -2)
    rows, columns = as_matrix(make, x, x, -2), as_matrix(make, y, y, -1)
    left = make.matmul(wide, make.mH(columns))
    right = make.matmul(make.mH(rows), wide)
    # The caller sums `left` to x, of a vector over its row. The one column of a vector y is squeezed here.
    if columns is not y:
        narrow = make.squeeze(right, make.const(-1))
        right = unless_vector(make.program, right, narrow, y)
    return [(x, left), (y, right)]


def _by_vector(make: Maker, x: Op, y: Op, g: Op) -> Pairs:
    """Return the gradients of `x @ y` with a vector `y`: `g[..., None] * y` for a matrix `x`, `x.mH @ g` for `y`."""
    if x.shape.rank == 1:
        of_x, of_y = make.conj(y), make.conj(x)
        return [(x, make.mul(g, of_x)), (y, make.mul(g, of_y))]
    wide = make.unsqueeze(g, make.const(-1))
    if x.shape.rank == 2:
        other = make.matmul(make.mH(x), g)
    else:
        # The caller sums it over the batch, down to the vector y.
        other = make.mul(wide, make.conj(x))
    return [(x, make.mul(wide, make.conj(y))), (y, other)]


def _of_vector(make: Maker, x: Op, y: Op, g: Op) -> Pairs:
    """Return the gradients of `x @ y` with a vector `x` and a matrix, or a batch of them, `y`: `y @ g` and `x[:, None] * g`."""
    minus, turned = make.const(-1), make.conj(y)
    column = make.unsqueeze(make.conj(x), minus)
    row = make.unsqueeze(g, make.const(-2))
    if y.shape.rank == 2:
        of_x = make.matmul(turned, g)
    else:
        of_x = make.matmul(turned, make.unsqueeze(g, minus))
        of_x = make.squeeze(of_x, minus)
    return [(x, of_x), (y, make.mul(column, row))]


def _contracted(make: Maker, x: Op, g: Op) -> Op:
    """Return `x.mT @ g` summed over all leading dims: the gradient of a weight, for inputs of any rank."""
    program = make.program
    kind: Kind = "complex" if "complex" in (x.kind, g.kind) else "real"
    shape = None
    if x.shape.trailing and g.shape.trailing and x.shape.dims and g.shape.dims:
        shape = Shape((x.shape.dims[-1], g.shape.dims[-1]))
    # The same dims of x and of g are summed over.
    dims = program.op("lead_dims", (), OfShape(_of_ones(g.shape)))
    return program.op("contracted", (x, g, dims, dims), None, kind=kind, shape=shape)


def _of_ones(shape: Shape) -> Shape:
    """Return a shape with as many dims, each of size 1: equal ones have the same rank."""
    if shape.dims is None:
        return shape
    return Shape(tuple(dim if is_lead(dim) else 1 for dim in shape.dims))


@coded("tensordot")
def tensordot(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `y @ g.mT` and `x @ g` for the product of two tensors over all dims but their last, as in the gradient of a weight.

    None for other dims: autograd differentiates it.
    """
    x, y, dims = op.args
    # `(lead, lead)`: the same dims of both.
    if dims.rule != "list" or len({*dims.args}) != 1:
        return None
    lead = dims.args[0]
    if not isinstance(lead.data, OfShape) or lead.rule != "lead_dims":
        return None
    if {_of_ones(item.shape) for item in (x, y)} != {_of_ones(lead.data.shape)}:
        return None
    of_x = make.matmul(make.conj(y), make.mT(g))
    of_y = make.matmul(make.conj(x), g)
    shaped = make.program.shaped
    return [(x, shaped(of_x, x.shape)), (y, shaped(of_y, y.shape))]


@coded("linear")
def linear(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `g @ weight`, `g.mT @ x` summed over all rows, and `g` for `x @ weight.t() + bias`; a weight of one dim is a vector.

    None for a weight of three dims or more, or of an unknown rank beside a vector `x`.
    """
    x, weight, bias = op.args
    if weight.shape.rank == 1:
        pairs = _by_vector(make, x, weight, g)
        return [*pairs, (bias, g)] if bias.is_tensor else pairs
    if (
        weight.shape.rank not in (2, None)
        or x.shape.rank == 1
        and weight.shape.rank is None
    ):
        return None
    if x.shape.rank == 2:
        of_weight = make.matmul(make.mT(g), make.conj(x))
    else:
        of_weight = _contracted(make, g, make.conj(x))
    if weight.shape.rank is None:
        # A weight of one dim has to raise, as `weight.mT` does: `g @ weight` would be wrong without an error.
        of_x = make(op.rule, g, make.mT(make.conj(weight)), make.const(None))
    else:
        of_x = make.matmul(g, make.conj(weight))
    pairs = [(x, of_x), (weight, of_weight)]
    return [*pairs, (bias, g)] if bias.is_tensor else pairs


@coded("cat")
def cat(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return the slices of `g` in the places of `x` and `y` in `torch.cat((x, y), dim)`; None for parts not written out.

    If all parts are surely of one size, that is a share of the size of `g`, and no part's shape is read.
    """
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list":
        return None
    none = make.const(None)
    start, pairs = none, []
    share = _equal_share(make, parts, g, dim)
    # With inputs of any shape: PyTorch skips an empty one of one dim (0, or -1) beside others of more.
    may_skip = len({part.shape for part in parts.args}) > 1 and at in (0, -1, UNKNOWN)
    inputs = (op.shape for op in make.program.ops if op.rule == "input")
    skipped = {shape for shape in inputs if may_skip and shape.dims is None}
    for position, part in enumerate(parts.args):
        last = position == len(parts.args) - 1
        taken = share or size(make, part, dim)
        end = taken if start is none else make.add(start, taken)
        if part.active:
            # A skipped part is empty: its slice of g has other dims, so it is reshaped.
            known = None if part.shape in skipped else part.shape
            if isinstance(at, int):
                bounds = (start, none if last else end, none)
                piece = indexing.sliced(make.applier, g, at, bounds, known)
            else:  # the dim is known only in the call
                first = make.const(0) if start is none else start
                piece = make.narrow(g, dim, first, taken)
                piece = make.program.shaped(piece, known) if known else piece
            pairs.append((part, piece if known else reshape_as(make, piece, part)))
        start = end
    return pairs


def _equal_share(make: Maker, parts: Op, g: Op, dim: Op) -> Op | None:
    """Return the size of each part of `cat` as a share of the size of `g`, if all have one shape, and nothing in memory has it.

    None if the shapes differ, or if an input or a named value has the shape: then its size is read.
    """
    program, first = make.program, parts.args[0].shape
    told = {op.shape for op in program.ops if op.rule == "input" or make.opaque(op)}
    # Its size can be written, by a number, a name or a tensor at hand: no share is needed.
    if first.dims is not None or first in told:
        return None
    if any(part.shape != first for part in parts.args):
        return None
    count = make.const(len(parts.args))
    return program.python("binary", "//", size(make, g, dim), count)


@coded("stack")
def stack(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `g.select(dim, 0)` and `g.select(dim, 1)` for `torch.stack((x, y), dim)`; None for parts not written out.

    A `g` that is a stack along the same dim is taken apart again.
    """
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list":
        return None
    if g.rule == op.rule and g.args[1] is dim:
        pairs = zip(parts.args, g.args[0].args, strict=True)
        return [(part, own) for part, own in pairs if part.active]
    return [
        (part, _selected(make, g, at if isinstance(at, int) else dim, position, part))
        for position, part in enumerate(parts.args)
        if part.active
    ]


@coded("flatten")
def flatten(make: Maker, op: Op, g: Op) -> Pairs:
    """Return `g` in the old shape.

    For interleaved parts, `torch.stack((x, y), -1).flatten(-2)`, that is a stack of `g[..., ::2]` and `g[..., 1::2]`: each part
    reads its slice.
    """
    x, *ends = op.args
    if x.rule != "stack" or x.args[0].rule != "list":
        return [(x, reshape_as(make, g, x))]
    parts, dim = x.args
    places = [shapes.from_end(x.shape, dim_of(item)) for item in (*ends, dim)]
    # Only the last two dims flattened, of parts stacked along the last one.
    if places != [-2, -1, -1]:
        return [(x, reshape_as(make, g, x))]
    none, count = make.const(None), make.const(len(parts.args))
    # A start of 0 is not written: `g[..., ::2]`.
    every = [
        indexing.sliced(
            make.applier, g, -1, (make.const(at or None), none, count), part.shape
        )
        for at, part in enumerate(parts.args)
    ]
    return [(x, make(x.rule, make.program.op("list", every), dim))]


def _selected(make: Maker, g: Op, at: int | Op, position: int, part: Op) -> Op:
    """Return the cotangent of `part`, the one at index `position` of a `stack` along dim `at`.

    It needs no index in an expanded `g` that is the same at each: after `h.sum()`, with all elements equal, or after `h.sum(at)`,
    whose gradient is `grad.unsqueeze(at).expand(...)`.
    """
    if not isinstance(at, int):  # the dim is known only in the call
        taken = item_at(make, make("unbind", g, at), position)
        return make.program.shaped(taken, part.shape)
    if g.rule == "expanded":
        inner = g.args[0]
        if inner.shape == SCALAR:
            return make.expanded(inner, part.shape)
        if inner.rule == "unsqueeze" and literal(inner.args[1]) == at:
            return make.expanded(inner.args[0], part.shape)
    return indexing.selected(make.applier, g, at, make.const(position), part.shape)


@coded("slice_scatter")
def slice_scatter(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `g` with zeros in place of `src`, and the slice of `g` there, for `x` with `src` put into it; None for an unknown dim."""
    x, src, dim, start, end, step = op.args
    at = literal(dim)
    if not isinstance(at, int):
        return None
    left = make.slice_scatter(g, make.zeros(g, src.shape), dim, start, end, step)
    # A step of 1 is not written in a slice.
    by = make.const(None) if literal(step) == 1 else step
    bounds = (start, end, by)
    part = indexing.sliced(make.applier, g, at, bounds, src.shape)
    return [(x, left), (src, part)]


@coded("take_along_dim")
def take_along_dim(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return zeros like `x` with `g` added at `index`, for `x.take_along_dim(index, dim)`; None if `x` may have been broadcast."""
    x, index, dim = op.args
    along = dim_of(dim)
    # Without a dim, PyTorch refuses a negative index.
    nonnegative = _is_position(make, index) or literal(dim) is None
    # PyTorch flattens x and index first, which changes no vector.
    if literal(dim) is None and x.shape.rank == index.shape.rank == 1:
        along, dim = 0, make.const(0)
    same = x.shape == index.shape and literal(dim) is not None
    if not same and not _differ_along(x.shape, op.shape, along):
        return None  # x may have been broadcast
    if not nonnegative:  # an index from the end, which no scatter takes
        index = make.applier.named("remainder", index, size(make, x, dim))
    if not same and index.shape != op.shape:
        index = make.expanded(index, op.shape)
    if x.shape.rank == 1:
        return [(x, make.index_add(make.zeros(g, x.shape), dim, index, g))]
    return [(x, make("scatter_add", make.zeros(g, x.shape), dim, index, g))]


def _is_position(make: Maker, index: Op) -> bool:
    """Return whether an index is surely not negative: a result of `argmax` or the like, or the indices of `topk` or `sort`."""
    if index.rule != "item":
        return "positions" in index.facts.flags
    rule = make.applier.table.of_op(index.args[0].rule)
    results = dict(enumerate(rule.results)) if rule is not None else {}
    return results.get(index.position) == "indices"


def _differ_along(one: Shape, two: Shape, dim: shapes.Axis) -> bool:
    """Return whether two shapes are equal except, perhaps, for one dim."""
    rest = shapes.with_dim(one, dim)
    return rest is not None and rest == shapes.with_dim(two, dim)


@coded("solve")
def solve(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Return `g_b = solve(a.mH, g)` for `b`, and `-g_b @ x.mH` for `a`, of `x = solve(a, b)`; None if batches may differ."""
    a, b = op.args
    vector = a.shape.rank == 2 and b.shape.rank == 1
    if not vector and not shapes.same_rank(a.shape, b.shape):
        return None  # b may be one vector for each matrix
    of_b = make("solve", make.mH(a), g)
    if vector:
        of_a = make.neg(make("outer", of_b, make.conj(op)))
    else:
        of_a = make.neg(make.matmul(of_b, make.mH(op)))
    return [(a, of_a), (b, of_b)]
