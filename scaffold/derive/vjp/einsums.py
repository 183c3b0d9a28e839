"""The gradient of `torch.einsum`: another einsum, of the cotangent and the other operands.

In: an op and the cotangent of its result. Out: pairs of an operand and its gradient; None where an operand is read along a
diagonal. Invariant: each gradient has its operand's dims, though one of size 1 may have been broadcast.
"""

from scaffold.derive.vjp.builders import Builders
from scaffold.derive.vjp.equations import letters_of
from scaffold.derive.vjp.ir import Op, literal
from scaffold.derive.vjp.make import Maker
from scaffold.derive.vjp.shapes import Shape

Pairs = list[tuple[Op, Op]]


def einsum(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Pairs of an operand and its gradient."""
    equation, operands = op.args
    text = literal(equation)
    if not isinstance(text, str) or operands.rule != "list":
        return None
    inputs, result = letters_of(text)
    pairs = []
    for at, operand in enumerate(operands.args):
        if not operand.active:
            continue
        others = [item for k, item in enumerate(inputs) if k != at]
        rest = [item for k, item in enumerate(operands.args) if k != at]
        factors = [g, *(make("conj", item) for item in rest)]
        found = _of_operand(make, operand, inputs[at], [result, *others], factors)
        if found is None:
            return None
        pairs.append((operand, found))
    return pairs


def _of_operand(
    make: Maker, operand: Op, letters: str, others: list[str], factors: list[Op]
) -> Op | None:
    if len(letters) > 1 and letters[-1] == letters[-2] and "." not in letters:
        return _of_diagonal(make, operand, letters, others, factors)
    known = set("".join(others))
    alone = [at for at, item in enumerate(letters) if item not in known]
    plain = letters.replace("...", "")
    if len(set(plain)) != len(plain) or not _dots_fit(letters, others):
        return None
    if alone and "..." in letters:
        return None
    kept = "".join(item for item in letters if item in known)
    if len(factors) == 1 and others[0] == kept:
        found = factors[0]
    else:
        found = _einsum(
            make,
            f"{','.join(others)}->{kept}",
            make.program.op("list", factors),
            operand if not alone else None,
        )
    for at in alone:
        found = make("unsqueeze", found, make.const(at))
    if not _is_as_long(letters, operand, others, factors):
        return Builders(make).fit_to(found, operand)
    return make.expanded(found, operand.shape) if alone else found


def _dots_fit(letters: str, others: list[str]) -> bool:
    """Whether the leading dims of an operand are those of the result as well: behind a letter they may be fewer."""
    return "..." not in letters or letters[0] == "." and "..." in others[0]


def _is_as_long(
    letters: str, operand: Op, others: list[str], factors: list[Op]
) -> bool:
    """Whether the product of the others is sure to be as long as the operand in each letter that is summed over.

    A size of 1 is broadcast: where the others have it, the operand may be longer.
    """
    sizes = _sizes(letters, operand)
    pairs = list(zip(others, factors, strict=True))
    beside = [_sizes(item, factor) for item, factor in pairs[1:]]
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
    """Whether the others are no longer than the operand in any of its letters."""
    return all(
        letter not in letters or size == sizes.get(letter)
        for item, factor in pairs
        for letter, size in _all_sizes(item, factor)
    )


def _all_sizes(letters: str, operand: Op) -> list[tuple[str, object]]:
    """The size of each letter, None where it is not known."""
    known = _sizes(letters, operand)
    return [(letter, known.get(letter)) for letter in letters if letter != "."]


def _sizes(letters: str, operand: Op) -> dict[str, object]:
    """The size of each letter of an operand that is known."""
    before, _, after = letters.partition("...")
    dims, lead = operand.shape.dims, operand.shape.lead
    if dims is None:
        return {}
    found: dict[str, object] = {}
    if lead is None or lead >= len(before):
        found |= zip(before, dims, strict=False)
    if after and operand.shape.trailing >= len(after):
        found |= zip(after, dims[-len(after) :], strict=True)
    return found


def _of_diagonal(
    make: Maker, operand: Op, letters: str, others: list[str], factors: list[Op]
) -> Op | None:
    """Of an operand that is read along the diagonal of its last two dims."""
    rank = len(letters)
    if operand.shape.dims is None or operand.shape.rank != rank:
        return None
    line = make.applier.named("diagonal", operand, *map(make.const, (0, -2, -1)))
    line = make.program.shaped(line, Shape(operand.shape.dims[:-1]))
    found = _of_operand(make, line, letters[:-1], others, factors)
    if found is None:
        return None
    whole = make("diag_embed", Builders(make).fit_to(found, line))
    return make.program.shaped(whole, operand.shape)


def _einsum(make: Maker, equation: str, factors: Op, operand: Op | None) -> Op:
    """The product; its shape is the operand's where no size is 1."""
    rule = make.applier.table.of_op("einsum")
    assert rule is not None
    plain = make.applier.apply(
        rule, {"equation": make.const(equation), "operands": factors}
    )
    if operand is None:
        return plain
    dims = operand.shape.dims
    sure = dims is not None and operand.shape.lead is None and 1 not in dims
    parts = all(
        item.shape.dims is not None
        and item.shape.lead is None
        and 1 not in item.shape.dims
        for item in factors.args[1:]
    )
    if not (sure and parts and _agree(equation, operand, factors)):
        return plain
    return make.program.op(
        "einsum",
        (make.const(equation), factors),
        "whole",
        kind=plain.kind,
        shape=operand.shape,
    )


def _agree(equation: str, operand: Op, factors: Op) -> bool:
    """Whether each letter of the operand has one size: of two, one may be 1."""
    letters, _, kept = equation.partition("->")
    sizes = dict(zip(kept, operand.shape.dims or (), strict=False))
    return all(
        sizes.get(letter, dim) == dim
        for part, factor in zip(letters.split(","), factors.args, strict=False)
        for letter, dim in zip(part, factor.shape.dims or (), strict=False)
    )
