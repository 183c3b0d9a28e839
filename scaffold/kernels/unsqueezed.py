"""Inputs read with more dims: the op with `cos[:, None, :]` as an input of those dims.

In: an `OpSpec`. Out: the op, and the inputs whose dims changed. Invariant: the numbers lie in memory as before; an input that is also read
as it is declared stays as it is.
"""

from dataclasses import replace

from scaffold.formula import Assign, Node, emit, evaluated, read_names, rewritten
from scaffold.spec import Dim, OpSpec, is_leading

Dims = tuple[Dim, ...]


def unsqueezed(spec: OpSpec) -> tuple[OpSpec, dict[str, Dims]]:
    """Return the op with `cos[:, None]` written as `cos`, declared with that dim of size 1, and the new dims of each such input.

    An input with several such readings, or read as it is declared too, is left as it is.
    """
    formula = spec.forward
    assert formula is not None and formula.result is not None
    graph = formula.graph
    declared = {
        item.name: item.dims
        for item in spec.tensors
        if item.dims and not any(is_leading(dim) for dim in item.dims)
    }
    # The leading dims of the op are those of the input with the most dims.
    lead = max(declared.values(), key=len, default=())[:-1]
    views: dict[str, set[Dims]] = {}

    def gather(node: Node) -> Node | None:
        """Note the dims an input is read with, and replace this read by None, so that `rest` has all other ones."""
        if (found := _view(node, declared, lead)) is None:
            return None
        views.setdefault(found[0], set()).add(found[1])
        return graph.constant("None")

    lines = (*formula.statements, Assign(graph.name("_"), formula.result))
    rest = read_names(*rewritten(graph, lines, gather))
    single = {k: v for k, v in views.items() if len(v) == 1 and k not in rest}
    known = {name: next(iter(dims)) for name, dims in single.items()}

    def change(node: Node) -> Node | None:
        """Return the bare input for its one view, `cos` for `cos[:, None]`; None for others."""
        found = _view(node, declared, lead)
        return graph.name(found[0]) if found and found[0] in known else None

    tensors = (x._replace(dims=known.get(x.name, x.dims)) for x in spec.tensors)
    lines = rewritten(graph, formula.statements, change)
    result = graph.rewrite(formula.result, change)
    formula = replace(formula, statements=lines, result=result)
    return replace(spec, inputs=(*tensors, *spec.attributes), forward=formula), known


def _input(node: Node, declared: dict[str, Dims]) -> str | None:
    """Return the name of a node if it is an input with declared dims, else None."""
    return node.label if node.kind == "name" and node.label in declared else None


def _view(node: Node, declared: dict[str, Dims], lead: Dims) -> tuple[str, Dims] | None:
    """Return the input and the dims of `cos[:, None]`: with `cos[B, D]` `("cos", ("B", 1, "D"))`; the same of `cos.unsqueeze(1)`; else None.

    None too if a dim is added at the end of all leading dims (`lead`): `t.unsqueeze(-1)` of `t[N]` is a number of each row, a primitive of
    the row program.
    """
    if node.kind == "call" and node.args[0].kind == "attribute":
        callee, *args = node.args
        name = _input(callee.args[0], declared)
        if callee.label != "unsqueeze" or name is None or len(args) != 1:
            return None
        at, dims = evaluated(args[0]), [*declared[name]]
        # At the end of all leading dims: `t.unsqueeze(-1)` of `t[N]`, see above.
        if not isinstance(at, int) or at in (-1, len(dims)) and (*dims,) == lead:
            return None
        dims.insert(at % (len(dims) + 1), 1)
        return name, (*dims,)
    name = _input(node.args[0], declared) if node.kind == "subscript" else None
    if name is None:
        return None
    index, rest = node.args[1], [*declared[name]]
    dims = []
    for item in index.args if index.kind == "tuple" else (index,):
        whole = item.kind == "slice" and all(x.kind == "absent" for x in item.args)
        if emit(item) == "None":
            # The same, written `t[:, None]`.
            if not rest and declared[name] == lead:
                return None
            dims.append(1)
        elif whole and rest:
            dims.append(rest.pop(0))
        else:
            return None
    # Without such a dim it is no view with more dims: `x[:]`.
    return (name, (*dims, *rest)) if 1 in dims else None
