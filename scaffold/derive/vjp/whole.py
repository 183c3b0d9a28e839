"""The last resort: autograd of the whole forward.

In: an op whose forward cannot be differentiated piece by piece. Out: statements that pull the cotangent back through it, or None.
Invariant: none where the forward would draw other random numbers, change a tensor, or take what is absent.
"""

from collections.abc import Collection

from scaffold.derive.activity import is_random
from scaffold.derive.forward import Forward, grad_name
from scaffold.derive.names import fresh
from scaffold.formula import Assign, Graph, Node, Statement, expressions
from scaffold.spec import OpSpec

COMMENT = "autograd differentiates the forward as a whole"


def as_a_whole(
    spec: OpSpec,
    graph: Graph,
    forward: Forward,
    wanted: tuple[str, ...],
    taken: Collection[str],
) -> tuple[Statement, ...] | None:
    """`_, pullback = torch.func.vjp(lambda x: SomeFunction.forward(x, eps), x)`, and what it gives."""
    if not _may_run_again(spec, forward, wanted):
        return None
    pullback = graph.name(fresh("pullback", taken))
    arguments = tuple(graph.name(item.name) for item in spec.inputs)
    run = graph.node("attribute", "forward", (graph.name(spec.function_name),))
    body = graph.node("call", "", (run, *arguments))
    function = graph.node("lambda", ", ".join(wanted), (body,))
    functional = graph.node("attribute", "func", (graph.name("torch"),))
    vjp = graph.node("attribute", "vjp", (functional,))
    made = graph.node("call", "", (vjp, function, *map(graph.name, wanted)))
    cotangent = graph.name(grad_name(spec, spec.outputs[0].name))
    pulled = graph.node("call", "", (pullback, cotangent))
    names = [fresh(f"pulled_{name}", taken) for name in wanted]
    gradients = graph.node("tuple", "", tuple(map(graph.name, names)))
    return (
        Assign(
            graph.node("tuple", "", (graph.name("_"), pullback)), made, "", (COMMENT,)
        ),
        Assign(gradients, pulled),
        *(
            Assign(graph.name(f"grad_{name}"), graph.name(own))
            for name, own in zip(wanted, names, strict=True)
        ),
    )


def _may_run_again(spec: OpSpec, forward: Forward, wanted: tuple[str, ...]) -> bool:
    """Whether the forward is a function of its inputs that `torch.func` can call."""
    nodes: list[Node] = [
        node for item in forward.statements for node in expressions(item)
    ]
    optional = {item.name for item in spec.tensors if item.optional or item.variadic}
    return (
        len(spec.outputs) == 1
        and not spec.outputs[0].variadic
        and spec.style == "setup-context"
        and not spec.dirty
        and not spec.imports
        and not optional & set(wanted)
        and not any(item.keyword_only for item in spec.inputs)
        and not any(map(is_random, (*nodes, *forward.results)))
    )
