"""Joined variadic inputs: one tensor to the forward, by `torch.stack(tensors)`, `sum(tensors)` or `torch.cat(tensors)`.

In: an op, and the inputs to differentiate. Out: the same with one input in place of that tensor, and the gradient of
each of the tensors from that input's. Invariant: the substitute's name does not appear in the final results; other
uses of the tensors are left to other modules.

The engine (`gradients`) differentiates only by single tensors, so it gets such an op over one input. Words: a
variadic input is any number of tensors, `several` in fields; its joined input, or substitute, is the one tensor made
of them.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.derivation import Forward, GradientStatements
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Statement,
    evaluated,
    expressions,
    keywords,
    rewritten,
)
from scaffold.formula.names import fresh
from scaffold.primitives.calls import facts_of_call
from scaffold.spec import OpSpec, TensorInput

INDEX = "i"  # index of the tensor in its gradient
# Shape facts of calls that join tensors along a dim.
JOINING = frozenset({"joined", "stacked"})


class JoinedInput(NamedTuple):
    """A substitute input for the one tensor made by the forward from a variadic input."""

    several: TensorInput
    name: str
    value: Node  # the forward's expression: `torch.stack(tensors)`
    dim: int | None  # None: they are added up

    def spec(self, spec: OpSpec) -> OpSpec:
        """Return the op with that input, of unknown shape: the forward does not check it against other inputs."""
        one = self.several._replace(name=self.name, dims=None, variadic=False)
        inputs = (one if item is self.several else item for item in spec.inputs)
        return replace(spec, inputs=tuple(inputs))

    def derived(self, graph: Graph, found: GradientStatements) -> GradientStatements:
        """Turn the gradients derived for the substitute into one of each tensor, with the user's expression in its place.

        The gradient of the substitute, `grad_joined`, stays a local, and the new last line reads it: `grad_tensors =
        grad_joined[i]`.
        """
        original = {graph.name(self.name): self.value}

        def over(items: Sequence[Statement]) -> Lines:
            """Write the user's expression for the substitute in lines."""
            return rewritten(graph, tuple(items), original.get)

        grad = graph.name(f"grad_{self.name}")
        *lines, last = self._without_its_comments(over(found.statements))
        value = last.value if isinstance(last, Assign) and last.target is grad else None
        if value is not None and value.kind == "name":
            grad = value  # `grad_output` needs no second name
        else:
            lines.append(last)
        target = graph.name(f"grad_{self.several.name}")
        lines.append(Assign(target, self._element(graph, grad)))
        forward = found.forward
        if forward is not None:
            results = tuple(graph.rewrite(item, original.get) for item in forward[1])
            forward = over(forward[0]), results
        again = None if found.again is None else over(found.again)
        # A test draws no values for an input that the op does not have.
        domains = tuple(item for item in found.domains if item[0] != self.name)
        return found._replace(
            statements=tuple(lines), forward=forward, again=again, domains=domains
        )

    def _without_its_comments(self, lines: Lines) -> Lines:
        """Drop comments about the joined input: the op has no such input."""
        return tuple(
            (
                replace(item, comments=())
                if any(self.name in text for text in item.comments)
                else item
            )
            for item in lines
        )

    def _element(self, graph: Graph, grad: Node) -> Node:
        """Return the gradient of tensor `i`: the part of the joined gradient at its place, or the gradient summed to its shape.

        Stacked: `grad[i]`; `torch.cat`: `grad.split([tensor.shape[0] for tensor in tensors], 0)[i]`; a sum:
        `grad.sum_to_size(tensors[i].shape)`.
        """
        index, tensors = graph.name(INDEX), graph.name(self.several.name)
        if self.dim is None:  # a sum of the tensors
            tensor = graph.node("subscript", "", (tensors, index))
            shape = _attribute(graph, tensor, "shape")
            return _method(graph, grad, "sum_to_size", shape)
        if _shape_of(self.value) == "stacked":
            return graph.node("subscript", "", (grad, self._place(graph, index)))
        dim = _number(graph, self.dim)
        label = f"tensor.shape[{self.dim}] for tensor in"
        sizes = graph.node("comprehension", label, (tensors,))
        parts = _method(graph, grad, "split", sizes, dim)
        return graph.node("subscript", "", (parts, index))

    def _place(self, graph: Graph, index: Node) -> Node:
        """Return the index of one stacked tensor: `i` for dim 0, `:, i` for dim 1, `..., i` for dim -1."""
        assert self.dim is not None
        absent = graph.node("absent")
        whole = graph.node("slice", "", (absent, absent, absent))
        if self.dim >= 0:
            parts = (*[whole] * self.dim, index)
        else:
            parts = (graph.constant("..."), index, *[whole] * (-1 - self.dim))
        return graph.node("tuple", "", parts) if len(parts) > 1 else index


def joined_input(
    spec: OpSpec, forward: Forward, graph: Graph, wanted: Collection[str]
) -> JoinedInput | None:
    """Return an input for the tensor made from a variadic input; None without one, or if the tensors have other uses too.

    `wanted` are the inputs with a gradient to derive. None too if the forward has a name `i`, the index in the
    gradient.
    """
    several = next((item for item in spec.tensors if item.variadic), None)
    # A kept forward is not read as maths.
    if several is None or several.name not in wanted or spec.kept is not None:
        return None
    nodes = [*forward.results, *expressions(*forward.statements)]
    names = {
        *(item.name for item in spec.inputs),
        *(n for top in nodes for n in top.names()),
    }
    found = {node for top in nodes for node in top.walk() if _joins(node, several.name)}
    if len(found) != 1 or INDEX in names:
        return None
    (value,) = found
    joined = JoinedInput(several, fresh("joined", names), value, _dim(value))
    change = _to_joined(graph, joined)
    # Whether the tensors are read anywhere else.
    read = any(several.name in graph.rewrite(top, change).names() for top in nodes)
    return None if read else joined


def with_joined(graph: Graph, forward: Forward, joined: JoinedInput) -> Forward:
    """Replace the joining call by the joined input in the forward: `torch.stack(xs).exp()` -> `joined.exp()`."""
    change = _to_joined(graph, joined)
    statements = rewritten(graph, forward.statements, change)
    results = tuple(graph.rewrite(item, change) for item in forward.results)
    return forward._replace(statements=statements, results=results)


def _to_joined(graph: Graph, joined: JoinedInput) -> Callable[[Node], Node | None]:
    """Return the change of nodes, for `rewritten`, to the joined input in place of the call."""
    name = graph.name(joined.name)
    return lambda node: name if node is joined.value else None


def _joins(node: Node, name: str) -> bool:
    """Return whether a call joins all tensors of the variadic input `name` into one: `sum(xs)`, `torch.stack(xs)`, `torch.cat(xs, 1)`."""
    match node:
        case Node("call", _, (Node("name", "sum"), Node("name", read)), ()):
            return read == name
        case Node(
            "call",
            _,
            (
                Node("attribute", _, (Node("name", "torch"),)),
                Node("name", read),
                *_,
            ),
        ):
            known = _shape_of(node) in JOINING and _dim(node) is not None
            return known and read == name
    return False


def _dim(node: Node) -> int | None:
    """Return the dim along which a call joins tensors, 0 by default; None if they are added up, or if it is no known integer."""
    callee, _, *others = node.args
    if callee.kind == "name":  # `sum(tensors)`
        return None
    # With keywords, `others` has their values as well.
    dim = keywords(node).get("dim") or (
        others[0] if others and not node.keywords else None
    )
    if dim is None:
        return None if others else 0
    value = evaluated(dim)
    return value if type(value) is int else None  # `True` is no dim


def _attribute(graph: Graph, node: Node, label: str) -> Node:
    return graph.node("attribute", label, (node,))


def _method(graph: Graph, node: Node, label: str, *args: Node) -> Node:
    return graph.node("call", "", (_attribute(graph, node, label), *args))


def _number(graph: Graph, number: int) -> Node:
    plain = graph.constant(str(abs(number)))
    return plain if number >= 0 else graph.node("unary", "-", (plain,))


def _shape_of(call: Node) -> str:
    """Return the table's fact on the shape of a joining call's result ("joined" by cat, "stacked"), or "" for another call."""
    found = facts_of_call(call.args[0].label)
    return next((facts.shape for facts in found if "joins" in facts.flags), "")
