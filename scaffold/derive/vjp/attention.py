"""The gradient of `F.scaled_dot_product_attention`, whose probabilities are computed again.

In: an op and the cotangent of its result. Out: pairs of an argument and its gradient. Invariant: a row without anything to attend to
has no gradient, as in PyTorch.
"""

from scaffold.derive.vjp.ir import UNKNOWN, Op, literal
from scaffold.derive.vjp.make import Maker
from scaffold.derive.vjp.statics import may_be_none
from scaffold.derive.vjp.written import static_node

Pairs = list[tuple[Op, Op]]


def attention(make: Maker, op: Op, g: Op) -> Pairs | None:
    """Pairs of query, key, value and a mask that is added, and their gradients."""
    query, key, value, mask, _, causal, scale = op.args
    minus = make.const(-1)
    if literal(causal) is UNKNOWN:
        return None
    factor = _scale(make, query, scale)
    scores = make("mul", factor, make("matmul", query, make("mT", key)))
    hidden: list[Op] = []
    if literal(causal) is True:
        below = make("tril", make("ones_like", scores))
        hidden.append(make("eq", below, make.const(0)))
    if mask.is_tensor:
        found = _masked(make, scores, mask, hidden)
        scores = _where_given(make, mask, found, scores)
    for item in hidden:
        scores = make("masked_fill", scores, item, make.const(float("-inf")))
    probs = make("softmax", scores, minus)
    for item in hidden:
        probs = make("masked_fill", probs, item, make.const(0))
    of_probs = make("matmul", g, make("mT", value))
    total = make("sum", make("mul", of_probs, probs), minus, make.const(True))
    of_scores = make("mul", probs, make("sub", of_probs, total))
    pairs = [
        (query, make("mul", factor, make("matmul", of_scores, key))),
        (key, make("mul", factor, make("matmul", make("mT", of_scores), query))),
        (value, make("matmul", make("mT", probs), g)),
    ]
    return [*pairs, (mask, of_scores)] if mask.active else pairs


def _scale(make: Maker, query: Op, scale: Op) -> Op:
    """The factor of the scores."""
    size = make.program.op("size", (make.const(-1),), query.shape)
    usual = make("pow", size, make.const(-0.5))
    if literal(scale) is None:
        return usual
    if not may_be_none(make.program, scale):
        return scale
    graph = make.program.graph
    pair = (static_node(make.program, scale), graph.constant("None"))
    return make.choose(graph.node("compare", "is not", pair), scale, usual)


def _masked(make: Maker, scores: Op, mask: Op, hidden: list[Op]) -> Op:
    """The scores with a mask that is added to them; one that hides joins the hidden."""
    if mask.kind == "bool":
        hidden.append(make("bitwise_not", mask))
        return scores
    return make("add", scores, mask)


def _where_given(make: Maker, mask: Op, masked: Op, plain: Op) -> Op:
    if mask not in make.program.optional or masked is plain:
        return masked
    graph = make.program.graph
    pair = (graph.name(str(mask.data)), graph.constant("None"))
    return make.choose(graph.node("compare", "is not", pair), masked, plain)
