"""Gradients that depend on ranks, equations or indices, and so are code rather than formulas.

In: an op and the cotangent of its result. Out: pairs of an argument and its gradient, which the caller sums to the
argument's shape. Invariant: what cannot be told from the shapes falls back on autograd of the one call.
"""

from collections.abc import Callable

from scaffold.derive.vjp import indexing
from scaffold.derive.vjp.builders import Builders
from scaffold.derive.vjp.ir import Kind, Op, literal
from scaffold.derive.vjp.make import Maker
from scaffold.derive.vjp.shapes import SCALAR, Shape, is_lead

Pairs = list[tuple[Op, Op]]
Coded = Callable[[Maker, Op, Op], Pairs | None]


def matmul(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, y = op.args
    of_x = g if y.shape.rank == 2 else _grown(make, g, x, -2)
    of_y = g if x.shape.rank == 2 else _grown(make, g, y, -1)
    return _of_product(make, x, y, of_x, of_y)


def _grown(make: Maker, g: Op, operand: Op, dim: int) -> Op:
    """The cotangent of a product with a dim for the operand's, where that may be a vector."""
    if operand.shape.rank is not None or operand.shape.least > 1:
        return g
    ndim = make.program.op("rank", (), operand.shape)
    return make.program.op("grown", (g, ndim), dim, kind=g.kind, shape=None)


def _of_product(make: Maker, x: Op, y: Op, g: Op, of_y: Op) -> Pairs:
    minus = make.const(-1)
    if y.shape.rank == 1 and x.shape.rank == 1:
        return [
            (x, make("mul", g, make("conj", y))),
            (y, make("mul", g, make("conj", x))),
        ]
    if y.shape.rank == 1:
        wide = make("unsqueeze", g, minus)
        if x.shape.rank == 2:
            other = make("matmul", make("mH", x), g)
        else:
            other = make("mul", wide, make("conj", x))
        return [(x, make("mul", wide, make("conj", y))), (y, other)]
    if x.shape.rank == 1:
        column = make("unsqueeze", make("conj", x), minus)
        row = make("unsqueeze", g, make.const(-2))
        turned = make("conj", y)
        if y.shape.rank == 2:
            of_x = make("matmul", turned, g)
        else:
            of_x = make("matmul", turned, make("unsqueeze", g, minus))
            of_x = make("squeeze", of_x, minus)
        return [(x, of_x), (y, make("mul", column, row))]
    left = make("matmul", g, make("mH", y))
    if y.shape.rank == 2 and x.shape.rank != 2:
        return [(x, left), (y, _contracted(make, make("conj", x), of_y))]
    return [(x, left), (y, make("matmul", make("mH", x), of_y))]


def _contracted(make: Maker, x: Op, g: Op) -> Op:
    """The product of two tensors over all dims but their last."""
    program = make.program
    kind: Kind = "complex" if "complex" in (x.kind, g.kind) else "real"
    shape = None
    if x.shape.trailing and g.shape.trailing and x.shape.dims and g.shape.dims:
        shape = SCALAR._replace(dims=(x.shape.dims[-1], g.shape.dims[-1]))
    lead = g.shape
    if lead.dims is not None:  # as many dims, whatever their sizes
        lead = Shape(tuple(dim if is_lead(dim) else 1 for dim in lead.dims))
    dims = program.op("lead_dims", (), lead)
    return program.op("contracted", (x, g, dims, dims), None, kind=kind, shape=shape)


def linear(make: Maker, op: Op, g: Op) -> Pairs | None:
    x, weight, bias = op.args
    if (
        weight.shape.rank not in (2, None)
        or x.shape.rank == 1
        and weight.shape.rank is None
    ):
        return None
    if x.shape.rank == 2:
        of_weight = make("matmul", make("mT", g), make("conj", x))
    else:
        of_weight = _contracted(make, g, make("conj", x))
    pairs = [(x, make("matmul", g, make("conj", weight))), (weight, of_weight)]
    return [*pairs, (bias, g)] if bias.is_tensor else pairs


def cat(make: Maker, op: Op, g: Op) -> Pairs | None:
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list" or not isinstance(at, int):
        return None
    build, none = Builders(make), make.const(None)
    start, pairs = none, []
    for position, part in enumerate(parts.args):
        last = position == len(parts.args) - 1
        size = build.size(part, dim)
        end = none if last else size if start is none else make("add", start, size)
        if part.active:
            bounds = (start, end, none)
            piece = indexing.sliced(make.applier, g, at, bounds, part.shape)
            pairs.append((part, piece))
        start = end
    return pairs


def stack(make: Maker, op: Op, g: Op) -> Pairs | None:
    parts, dim = op.args
    at = literal(dim)
    if parts.rule != "list" or not isinstance(at, int):
        return None
    return [
        (part, _selected(make, g, at, position, part))
        for position, part in enumerate(parts.args)
        if part.active
    ]


def _selected(make: Maker, g: Op, at: int, position: int, part: Op) -> Op:
    """One part of a stack's gradient; the same for all where that was spread over them."""
    if g.rule == "expanded":
        inner = g.args[0]
        if inner.shape == SCALAR:
            return make.expanded(inner, part.shape)
        if inner.rule == "unsqueeze" and literal(inner.args[1]) == at:
            return make.expanded(inner.args[0], part.shape)
    return indexing.selected(make.applier, g, at, make.const(position), part.shape)


def getitem(make: Maker, op: Op, g: Op) -> Pairs | None:
    x = op.args[0]
    program = make.program
    if op.rule == "narrow":
        dim, start, length = op.args[1:]
        if not isinstance(first := literal(start), int) or first < 0:
            return None
        bounds = (start, make("add", start, length), make.const(None))
        data = program.op(
            "unsliced", (g, dim, *bounds), x.shape, kind=g.kind, shape=x.shape
        )
        return [(x, data)]
    if op.rule == "slice":
        data = program.op(
            "unsliced", (g, *op.args[1:]), x.shape, kind=g.kind, shape=x.shape
        )
        return [(x, data)]
    if op.rule == "select":
        into = make.zeros(g, x.shape)
        whole = make("select_scatter", into, g, *op.args[1:])
        return [(x, make.program.shaped(whole, x.shape))]
    parts = op.args[1:]
    if any(not part.is_tensor for part in parts):
        return None
    accumulate = make.const(any(part.kind == "int" for part in parts))
    indices = program.op("list", parts)
    whole = make("index_put", make.zeros(g, x.shape), indices, g, accumulate)
    return [(x, program.shaped(whole, x.shape))]


def einsum(make: Maker, op: Op, g: Op) -> Pairs | None:
    equation, operands = op.args
    text = literal(equation)
    if not isinstance(text, str) or operands.rule != "list":
        return None
    text = text.replace(" ", "")
    if "->" not in text:
        return None
    left, result = text.split("->")
    inputs = left.split(",")
    pairs = []
    for at, (operand, letters) in enumerate(zip(operands.args, inputs, strict=True)):
        if not operand.active:
            continue
        others = [item for k, item in enumerate(inputs) if k != at]
        rest = [item for k, item in enumerate(operands.args) if k != at]
        plain = letters.replace("...", "")
        known = set("".join([result, *others]))
        dots = "..." in letters and "..." not in "".join([result, *others])
        if len(set(plain)) != len(plain) or set(plain) - known or dots:
            return None
        if len(set(result.replace("...", ""))) != len(result.replace("...", "")):
            return None
        turned = f"{','.join([result, *others])}->{letters}"
        factors = make.program.op("list", [g, *(make("conj", item) for item in rest)])
        pairs.append((operand, _einsum(make, turned, factors, operand)))
    return pairs


def _einsum(make: Maker, equation: str, factors: Op, operand: Op) -> Op:
    """The product; its shape is the operand's where no size is 1."""
    rule = make.applier.table.rule("einsum")
    plain = make.applier.apply(
        rule, {"equation": make.const(equation), "operands": factors}
    )
    dims = operand.shape.dims
    sure = dims is not None and operand.shape.lead is None and 1 not in dims
    parts = all(
        item.shape.dims is not None
        and item.shape.lead is None
        and 1 not in item.shape.dims
        for item in factors.args[1:]
    )
    if not (sure and parts):
        return plain
    return make.program.op(
        "einsum",
        (make.const(equation), factors),
        "whole",
        kind=plain.kind,
        shape=operand.shape,
    )


def solve(make: Maker, op: Op, g: Op) -> Pairs | None:
    a, b = op.args
    vector = b.shape.rank == 1
    if a.shape.rank != 2 or b.shape.rank not in (1, 2):
        return None
    of_b = make("solve", make("mH", a), g)
    if vector:
        of_a = make("neg", make("outer", of_b, make("conj", op)))
    else:
        of_a = make("neg", make("matmul", of_b, make("mH", op)))
    return [(a, of_a), (b, of_b)]


CODED: dict[str, Coded] = {
    "matmul": matmul,
    "linear": linear,
    "cat": cat,
    "stack": stack,
    "narrow": getitem,
    "slice": getitem,
    "select": getitem,
    "index": getitem,
    "einsum": einsum,
    "solve": solve,
}
