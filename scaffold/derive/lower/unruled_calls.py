"""Turn calls without a rule into ops: each is one op, a template with a hole for every tensor.

`torch.foo(x, y, n)` -> the op `call` of x and y, with the template `torch.foo(:0, :1, n)`. So the call can be repeated in the
backward, and autograd differentiates it there.

In: a call's expression. Out: the same with holes for its tensors. Invariant: Python values stay as written. `expressions` decides
which calls have no rule; `autograd_fallback` differentiates them.

Words: a hole is the place of a tensor in the text of a call, and a template a call with its holes. To make (`made`) is to give the
op of a tensor made from Python values alone. A kind is "kept" if it is that of the arguments.
"""

from collections.abc import Callable, Sequence

from scaffold.derive.graph.op import Kind, Op, Program, Template, unlisted
from scaffold.derive.graph.shape_rules import made_shape
from scaffold.derive.graph.static_values import UnsupportedError, dotted, is_int
from scaffold.formula import Graph, Node, is_of_module, keywords
from scaffold.primitives.calls import (
    changed_tensors,
    draws_random,
    is_discrete,
    is_made_of_numbers,
    kinds,
    may_be_argument,
    name_alone,
)


def template_of(
    graph: Graph,
    node: Node,
    tensor: Callable[[Node], Op | None],
    fixed: Callable[[Node], Node],
) -> tuple[Template, list[Op]]:
    """Return a call with a hole for each tensor, and the tensors: `torch.foo(x, y, n)` -> `torch.foo(:0, :1, n)`, `[x, y]`.

    `tensor` gives the op of an argument, None for a Python value; `fixed` rewrites such a value for the backward. Raise
    `UnsupportedError` for an expression of another kind, such as a comprehension.
    """
    if node.kind not in ("call", "binary", "attribute"):
        raise UnsupportedError(f"'{node.label}' has no rule")
    args, holes = list[Op](), list[Node]()
    method = node.args[0] if node.kind == "call" else None

    def placed(item: Node) -> Node | None:
        """Return a hole for a tensor, the rewritten Python value for another argument; None to go on inside a tuple or a list."""
        if item is node or item.kind in ("tuple", "list", "slice", "constant"):
            return None
        if item.kind == "attribute" and is_of_module(item):  # `torch.float32`
            return item
        # What is called, if it is no function of a module: `x.foo`, to go on to x.
        if item is method:
            return None
        op = tensor(item)
        if op is None:
            return fixed(item)
        if op not in args:
            args.append(op)
            holes.append(graph.node("value", f":{len(holes)}"))
        return holes[args.index(op)]

    return Template(graph.rewrite(node, placed), tuple(holes)), args


def refuse_changes(node: Node) -> None:
    """Raise `UnsupportedError` for a call that changes running statistics, as `F.batch_norm` in training: it cannot be repeated."""
    if changes_statistics(node):
        raise UnsupportedError(f"{node.args[0].label} changes its running statistics")


def changes_statistics(node: Node) -> bool:
    """Return whether a call changes running statistics in place, `F.batch_norm(x, mean, var, training=True)`.

    A backward that repeats it would change them again. One that is given None for them changes nothing.
    """
    if node.kind != "call":
        return False
    named = keywords(node)
    positional = node.args[1 : len(node.args) - len(named)]
    given = (
        named.get(name) or (positional[at] if at < len(positional) else None)
        for at, name in changed_tensors(node.args[0].label)
    )
    return any(item is not None and item.label != "None" for item in given)


def creates(node: Node) -> bool:
    """Return whether a call makes a tensor from Python values alone: `torch.arange(n)`; it needs no gradient."""
    path = dotted(node.args[0]) if node.kind == "call" else None
    if path is None or not path.startswith("torch."):
        return False
    word = path.rpartition(".")[2]  # of `torch.fft.fftfreq` too
    made = is_made_of_numbers(word) and not draws_random(word)
    return made or may_be_argument(word)  # `torch.as_tensor(2.0)`


def made(program: Program, template: Template, args: list[Op], read: list[Op]) -> Op:
    """Return the op of a tensor made by a call from Python values, `torch.arange(n)`, with the kind and shape they imply.

    `args` are these values; `read` are the `dtype` ops among them, as of `dtype=x.dtype`: the op's only arguments.
    """
    node = template.node
    name = node.args[0].label
    first = args[: len(args) - len(node.keywords)]
    named = dict(zip(node.keywords, args[len(first) :], strict=True))
    kind: Kind = "real"
    if "dtype" in named:
        kind = program.dtype(named["dtype"]) or "real"
    elif is_discrete(name) or _is_made_of_ints(program, name, first):
        kind = "int"
    return program.op(
        "call", read, template, kind=kind, shape=made_shape(program, name, first)
    )


def _is_made_of_ints(program: Program, name: str, args: Sequence[Op]) -> bool:
    """Return whether a call makes an integer tensor from integer arguments: `torch.arange(x.shape[0])`."""
    parts = unlisted(args)  # of `torch.tensor([[0, 1], [1, 0]])`
    # "kept", the word of the table: the result has the kind of the arguments.
    return kinds(name) == {"kept"} and all(is_int(program, item) for item in parts)


def item_of_call(program: Program, op: Op, position: int) -> Op:
    """Return the op of `call[position]`, for a call without a gradient: the index becomes part of the template."""
    template = op.template
    index = program.graph.constant(str(position))
    item = program.graph.node("subscript", "", (template.node, index))
    kind = kind_of_call(template.node, op.args)
    # Of `torch.unique(labels, return_counts=True)` all results are integers if the labels are.
    if kind == "real" and all(arg.kind == "int" for arg in op.args):
        kind = "int"
    with_index = template._replace(node=item)
    return program.op("call", op.args, with_index, kind=kind, shape=None)


def kind_of_call(node: Node, args: Sequence[Op]) -> Kind:
    """Return the kind of a call's result: by its name if that decides, otherwise complex for a complex argument, or real.

    Real is the safe guess: a gradient may then pass, and autograd is asked for it.
    """
    name = node.args[0].label if node.args else ""
    # Two: the function, and its only argument. `torch.where(mask)` is another function then.
    possible = kinds(name_alone(name) if len(node.args) == 2 else name)
    for kind in ("real", "int", "bool", "complex"):
        if possible == {kind}:
            return kind
    return "complex" if any(arg.kind == "complex" for arg in args) else "real"
