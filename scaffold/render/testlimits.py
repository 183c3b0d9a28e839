"""What the generated test leaves out because the forward itself does not take it, or is no function of its inputs alone.

In: an `OpSpec`. Out: yes or no. Invariant: asked of the text of the forward; where in doubt the test is made.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from scaffold.derive import live_forward
from scaffold.derive.analysis.activity import (
    active_locals,
    callee,
    calls,
    carries_gradient,
)
from scaffold.derive.analysis.metadata import reads
from scaffold.derive.analysis.value_kinds import kinds_of_inputs
from scaffold.formula import Formula, Node, expressions
from scaffold.primitives.calls import may_be, singularities
from scaffold.spec import OpSpec, is_size_name


def never_empty(spec: OpSpec) -> frozenset[str]:
    """The named dims that the gradient may divide by the length of, that give a matrix its rank, or that PyTorch wants: the channels of a convolution."""
    limits = {limit for node in _nodes(spec) for _, limit in _singular_calls(node)}
    dims = [spec.tested_dims(item.name) or () for item in spec.differentiable]
    if "rank" in limits:
        return frozenset(dim for shape in dims for dim in shape if is_size_name(dim))
    called = {name for node in _nodes(spec) for name in calls(node)}
    if any(may_be(name, "channels") for name in called):
        counts = Counter(dim for shape in dims for dim in {*shape} if is_size_name(dim))
        return frozenset(str(dim) for dim, count in counts.items() if count > 1)
    if "length" not in limits or len(dims) < 2:
        return frozenset()
    return frozenset(shape[-1] for shape in dims if shape and is_size_name(shape[-1]))


def singular(spec: OpSpec) -> bool:
    """Whether the second derivative may divide by 0 where a sum of nothing is 0."""
    found = (pair for node in _nodes(spec) for pair in _singular_calls(node))
    called = (item for item, limit in found if limit in ("zero", "length"))
    in_torch = any("math" not in item.args[0].names() for item in called)
    return in_torch or _divides_by_sizes(spec) or _hides_nan(spec)


def _hides_nan(spec: OpSpec) -> bool:
    """Whether rows that a mask closes are made 0 behind what gives NaN of them: `softmax(...).nan_to_num()`."""
    masked = any(item.dtype == "bool" for item in spec.tensors)
    return masked and any("nan_to_num" in calls(node) for node in _nodes(spec))


def _divides_by_sizes(spec: OpSpec) -> bool:
    """Whether a tensor is divided by a number that is made of sizes: `loss / (c * h * w)`."""
    if spec.forward is None:
        return False
    statements = live_forward(spec, spec.forward).statements
    kinds = kinds_of_inputs(spec).after(statements)
    own = kinds.names.keys() - {item.name for item in spec.inputs}

    def counts(divisor: Node) -> bool:
        if kinds.of(divisor) != "scalar":
            return False
        return any(read.facets or read.name in own for read in reads(divisor))

    return any(
        kinds.of(item.args[0]) != "scalar" and counts(item.args[1])
        for node in _nodes(spec)
        for item in node.walk()
        if item.kind == "binary" and item.label == "/"
    )


def _singular_calls(node: Node) -> Iterator[tuple[Node, str]]:
    """The calls whose gradient has no bound somewhere, each with where: at zero, at a length of 0, below the full rank."""
    for item in node.walk():
        constants = frozenset(a.label for a in item.args if a.kind == "constant")
        for limit in singularities(callee(item) or "", constants):
            yield item, limit


def full_rank(spec: OpSpec) -> int:
    """The least size of a dim with which sums of products have full rank, though the mean is taken off; 0 for any."""
    limits = {limit for node in _nodes(spec) for _, limit in _singular_calls(node)}
    if "rank" not in limits:
        return 0
    dims = (dim for item in spec.tensors for dim in spec.tested_dims(item.name) or ())
    return max((dim + 2 for dim in dims if isinstance(dim, int)), default=0)


def takes_any_layout(spec: OpSpec) -> bool:
    """Whether the forward takes tensors that are not contiguous."""
    called = (name for node in _nodes(spec) for name in calls(node))
    return not any(may_be(name, "contiguous") for name in called)


# What gives a number, or a tensor, that autograd takes for a constant.
CONSTANTS = frozenset({"detach", "item", "tolist"})


def is_its_derivative(spec: OpSpec) -> bool:
    """Whether the gradient of autograd is that of finite differences: nothing is detached on the way."""
    if spec.forward is None:
        return True
    if precision(spec) != "double":
        return False
    forward = live_forward(spec, spec.forward, ends=True)
    inputs = frozenset(item.name for item in spec.differentiable)
    active = inputs | active_locals(forward.statements, inputs)
    if spec.kept is not None:  # whose locals may all carry a gradient
        active |= {name for node in forward.results for name in node.names()}
        if any(
            callee(item) == "no_grad" for node in _nodes(spec) for item in node.walk()
        ):
            return False
    return not any(
        _detached(item).names() & active
        for node in _nodes(spec, ends=True)
        for item in node.walk()
        if callee(item) in CONSTANTS or _is_data(item) or _is_float(item)
    )


Precision = Literal["double", "single", "half"]
ROUNDED: tuple[tuple[Precision, frozenset[str]], ...] = (
    ("half", frozenset({"bfloat16", "float16", "half"})),
    ("single", frozenset({"float", "float32"})),
)


def precision(spec: OpSpec) -> Precision:
    """To what is rounded that carries a gradient: `x.float()`, `softmax(x, -1, dtype=torch.float32)`, `x.half()`."""
    nodes = list(_nodes(spec))
    if spec.forward is None or spec.forward.kept is not None:
        active = frozenset(name for node in nodes for name in node.names())
    else:
        inputs = frozenset(item.name for item in spec.differentiable)
        forward = live_forward(spec, spec.forward)
        active = inputs | active_locals(forward.statements, inputs)
    calls_of = [
        item
        for node in nodes
        for item in node.walk()
        if item.kind == "call" and carries_gradient(item, active)
    ]
    found = (
        word
        for word, names in ROUNDED
        if any(_rounds(item, names) for item in calls_of)
    )
    return next(found, "double")


def _rounds(call: Node, names: frozenset[str]) -> bool:
    """Whether a call is told to compute in a type of these names."""
    method = call.args[0].kind == "attribute"
    if method and callee(call) in names and len(call.args) == 1:
        return True
    return any(
        arg.kind == "attribute" and arg.label in names and arg.args[0].label == "torch"
        for arg in call.args[1:]
    )


def maps(spec: OpSpec) -> bool:
    """Whether torch.func.vmap takes the gradient of the forward: under torch.func.grad it refuses what reads the data."""
    masks = frozenset(item.name for item in spec.tensors if item.dtype == "bool")
    return not any(
        may_be(callee(item) or "", "data_dependent")
        or _is_data(item)
        or _picks(item, masks)
        for node in _nodes(spec)
        for item in node.walk()
    )


def _is_data(node: Node) -> bool:
    """Whether it is `x.data`."""
    return node.kind == "attribute" and node.label == "data"


def _picks(node: Node, masks: frozenset[str]) -> bool:
    """Whether it is `x[mask]`."""
    if node.kind != "subscript":
        return False
    index = node.args[1]
    parts = index.args if index.kind == "tuple" else (index,)
    return any(part.kind == "name" and part.label in masks for part in parts)


def _is_float(node: Node) -> bool:
    """Whether it is `float(x)`, and not `x.float()`."""
    return callee(node) == "float" and node.args[0].kind == "name"


def _detached(node: Node) -> Node:
    """What a call or an attribute takes out of the graph."""
    if node.kind == "attribute":
        return node.args[0]
    method = node.args[0].kind == "attribute" and node.args[0].args[0].label != "torch"
    return node.args[0].args[0] if method else node


def _nodes(spec: OpSpec, ends: bool = False) -> Iterator[Node]:
    formula: Formula | None = spec.forward
    if formula is None:
        return
    forward = live_forward(spec, formula, ends)
    for item in forward.statements:
        yield from expressions(item)
    yield from forward.results
