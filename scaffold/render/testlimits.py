"""Limits of an op's test: questions to leave out, as the forward does not support them, and tolerances by its precision.

`testclaims.py` and `testsizes.py` ask. In: an `OpSpec`. Out: mostly yes or no. Invariant: decided by the text of the forward; in doubt
the test is made.

Words: `_nodes` are the expressions of the forward, without lines that compute nothing needed; `may_be(name, fact)` looks a function up in
the rule table; a call is *singular* if its gradient is unbounded somewhere; a mask is a tensor of booleans; to read the data of a tensor
is to use its numbers in Python, as `x.item()` and `if x > 0` do.
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
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.formula import Formula, Node, reads
from scaffold.primitives.calls import may_be, singularities
from scaffold.spec import OpSpec, is_size_name


def never_empty(spec: OpSpec) -> frozenset[str]:
    """Return named dims to keep non-empty: the gradient may divide by their length, or they give a matrix its rank.

    So are dims required by PyTorch: the channels of a convolution.
    """
    limits = _limits(spec)
    dims = [spec.tested_dims(item.name) or () for item in spec.differentiable]
    if "rank" in limits:
        return frozenset(dim for shape in dims for dim in shape if is_size_name(dim))
    called = {name for node in _nodes(spec) for name in calls(node)}
    if any(may_be(name, "channels") for name in called):
        # The channels are the dims that several inputs share.
        counts = Counter(dim for shape in dims for dim in {*shape} if is_size_name(dim))
        return frozenset(str(dim) for dim, count in counts.items() if count > 1)
    # Of a sole input an empty vector has no elements, and so no gradient that divides by 0.
    if "length" not in limits or len(dims) < 2:
        return frozenset()
    # Norms, attention and such go along the last dim as a rule: of no elements they divide by 0.
    return frozenset(shape[-1] for shape in dims if shape and is_size_name(shape[-1]))


def singular(spec: OpSpec) -> bool:
    """Return whether a second derivative may be NaN for empty inputs: the gradient divides by a sum over nothing, or by a size.

    Then gradgradcheck is left out for empty inputs.
    """
    found = (pair for node in _nodes(spec) for pair in _singular_calls(node))
    called = (item for item, limit in found if limit in ("zero", "length"))
    # `math.sqrt(n)` is of a number, which has no gradient.
    in_torch = any("math" not in item.args[0].names() for item in called)
    return in_torch or _divides_by_sizes(spec) or _hides_nan(spec)


def _hides_nan(spec: OpSpec) -> bool:
    """Return whether NaN in fully masked rows is replaced by 0: `softmax(...).nan_to_num()`."""
    masked = any(item.dtype == "bool" for item in spec.tensors)
    return masked and any("nan_to_num" in calls(node) for node in _nodes(spec))


def _divides_by_sizes(spec: OpSpec) -> bool:
    """Return whether a tensor is divided by a number computed from sizes: `loss / (c * h * w)`."""
    if spec.forward is None:
        return False
    statements = live_forward(spec, spec.forward).statements
    kinds = kinds_of_inputs(spec).after(statements)
    # Locals of the forward: an attribute, as in `x / tau`, is no size.
    own = kinds.names.keys() - {item.name for item in spec.inputs}

    def counts(divisor: Node) -> bool:
        """Return whether a divisor is a number that reads sizes (`x.shape[0]`), or a local of the forward."""
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
    """Yield calls with an unbounded gradient somewhere, and the place: "zero", "length" for an empty dim, "rank" below full rank."""
    for item in node.walk():
        constants = frozenset(a.label for a in item.args if a.kind == "constant")
        for limit in singularities(callee(item) or "", constants):
            yield item, limit


def _limits(spec: OpSpec) -> set[str]:
    """Return the places of unbounded gradients of all calls, named as in `_singular_calls`."""
    return {limit for node in _nodes(spec) for _, limit in _singular_calls(node)}


def full_rank(spec: OpSpec) -> int:
    """Return the least size of dims for products like `x.T @ x` to have full rank, even after subtracting a mean; 0 for any."""
    if "rank" not in _limits(spec):
        return 0
    dims = (dim for item in spec.tensors for dim in spec.tested_dims(item.name) or ())
    # Of x[N, 3] 3 rows, one more for the mean, and one to spare.
    return max((dim + 2 for dim in dims if isinstance(dim, int)), default=0)


def takes_any_layout(spec: OpSpec) -> bool:
    """Return whether the forward accepts non-contiguous tensors."""
    called = (name for node in _nodes(spec) for name in calls(node))
    return not any(may_be(name, "contiguous") for name in called)


# Calls returning numbers or tensors constant to autograd.
CONSTANTS = frozenset({"detach", "item", "tolist"})


def is_its_derivative(spec: OpSpec) -> bool:
    """Return whether autograd's gradient equals finite differences: nothing is detached or rounded on the way.

    If not, gradcheck is left out, and the op is only compared with its reference. `active` are the names that carry a gradient.
    """
    if spec.forward is None:
        return True  # nothing to compare with: finite differences alone judge it
    if precision(spec) != "double":
        return False
    forward = live_forward(spec, spec.forward, ends=True)
    inputs = frozenset(item.name for item in spec.differentiable)
    active = inputs | active_locals(forward.statements, inputs)
    if spec.kept is not None:  # any of its locals may carry a gradient
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
# Of a forward less precise than its inputs, in a test and in a proof.
TOLERANCES: dict[Precision, dict[str, str]] = {
    "double": {},
    "single": {"rtol": "1e-4", "atol": "1e-5"},
    "half": {"rtol": "2e-2", "atol": "1e-2"},
}


def precision(spec: OpSpec) -> Precision:
    """Return the lowest precision a gradient passes through in the forward; the tolerances of tests follow from it.

    "single" for `x.float()` or `softmax(x, -1, dtype=torch.float32)`, "half" for `x.half()`, else "double".
    """
    nodes = list(_nodes(spec))
    # In a kept forward any name may carry a gradient.
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
    """Return whether a call gives a dtype with one of these names: `x.half()`, or an argument `torch.float16`.

    The usual inputs of tests are more precise ("double"), so their values are rounded there.
    """
    method = call.args[0].kind == "attribute"
    # `args[0]` is the callee. A cast, `x.half()`, has no arguments beside it.
    if method and callee(call) in names and len(call.args) == 1:
        return True
    return any(
        arg.kind == "attribute" and arg.label in names and arg.args[0].label == "torch"
        # The values of keyword arguments come last, without their names (`Node.keywords` has those):
        # `torch.float16` of `torch.softmax(x, -1, dtype=torch.float16)`.
        for arg in call.args[1:]
    )


def maps(spec: OpSpec) -> bool:
    """Return whether torch.func.vmap supports the forward's gradient: it refuses reads of the data, `x.item()`, `if x > 0`, `x[mask]`."""
    masks = frozenset(item.name for item in spec.tensors if item.dtype == "bool")
    return not any(
        may_be(callee(item) or "", "data_dependent")
        or _is_data(item)
        or _picks(item, masks)
        for node in _nodes(spec)
        for item in node.walk()
    )


def _is_data(node: Node) -> bool:
    """Return whether a node is `x.data`."""
    return node.kind == "attribute" and node.label == "data"


def _picks(node: Node, masks: frozenset[str]) -> bool:
    """Return whether a node is `x[mask]`."""
    if node.kind != "subscript":
        return False
    index = node.args[1]
    parts = index.args if index.kind == "tuple" else (index,)
    return any(part.kind == "name" and part.label in masks for part in parts)


def _is_float(node: Node) -> bool:
    """Return whether a node is `float(x)`, not `x.float()`."""
    return callee(node) == "float" and node.args[0].kind == "name"


def _detached(node: Node) -> Node:
    """Return the value taken out of the graph by a call or an attribute: `x` of `x.detach()`, `x.data`."""
    if node.kind == "attribute":
        return node.args[0]
    # Of `torch.detach(x)` and `float(x)` the whole call: it reads the same names.
    method = node.args[0].kind == "attribute" and node.args[0].args[0].label != "torch"
    return node.args[0].args[0] if method else node


def _nodes(spec: OpSpec, ends: bool = False) -> Iterator[Node]:
    """Yield the expressions of the forward without its dead lines; with `ends`, of those needed by differentiable results."""
    formula: Formula | None = spec.forward
    if formula is None:
        return
    yield from live_forward(spec, formula, ends).expressions()
