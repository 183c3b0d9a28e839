"""The gradient of a slice as it is written: in a tensor of zeros, at its place.

In: a printer and an `unsliced` op. Out: its expression. Invariant: it can be differentiated again and vmapped.
"""

from scaffold.derive.vjp.ir import Op, is_number, literal
from scaffold.derive.vjp.static_printer import StaticPrinter
from scaffold.formula import Node


def unsliced(printer: StaticPrinter, op: Op) -> Node:
    """`torch.slice_scatter(g.new_zeros(x.shape), g, dim=1, end=2)`."""
    g, dim, start, end, step = op.args
    if g.kind == "complex" or any(_is_from_the_end(item) for item in (start, end)):
        return _slice_backward(printer, op)
    zeros = printer.method(printer.node(g), "new_zeros", printer.shape(op.shape))
    args, keywords = [zeros, printer.node(g)], []
    for name, item in (("dim", dim), ("start", start), ("end", end), ("step", step)):
        if literal(item) is not None and not (name == "dim" and is_number(item, 0)):
            keywords.append(name)
            args.append(printer.node(item))
    return printer.function("torch.slice_scatter", *args, keywords=tuple(keywords))


def _slice_backward(printer: StaticPrinter, op: Op) -> Node:
    """The same where `torch.slice_scatter` cannot be vmapped, or differentiated: as autograd does it."""
    g, dim, *bounds = op.args
    graph, sizes, at = printer.graph, printer.shape(op.shape), literal(dim)
    size = graph.node("subscript", "", (sizes, printer.node(dim)))
    if sizes.kind == "tuple" and isinstance(at, int):
        size = sizes.args[at]
    usual = (graph.constant("0"), size, graph.constant("1"))
    given = [
        default if literal(item) is None else printer.node(item)
        for item, default in zip(bounds, usual, strict=True)
    ]
    name, where = "torch.ops.aten.slice_backward", printer.node(dim)
    return printer.function(name, printer.node(g), sizes, where, *given)


def _is_from_the_end(bound: Op) -> bool:
    value = literal(bound)
    return isinstance(value, int) and value < 0
