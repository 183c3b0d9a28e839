"""What an expression means for the derivative: whether it carries a gradient, and whether it may be computed a second time.

In: expressions, and the names that carry a gradient. Out: yes or no. Invariant: in doubt it carries a gradient, and a
function from outside torch is not called twice.
"""

from collections.abc import Iterator
from functools import lru_cache

from scaffold.derive.analysis.aliasing import Trace
from scaffold.derive.analysis.metadata import metadata_read
from scaffold.formula import (
    BUILTINS,
    If,
    Lines,
    Node,
    Statement,
    keywords,
    sharing,
    written,
)
from scaffold.primitives.calls import by_shape, draws_random, is_constant, may_be
from scaffold.primitives.python_values import READ_OUT

NUMPY = frozenset({"numpy", "from_numpy", "as_tensor"})


def callee(node: Node) -> str | None:
    """The name of what is called, without its module or its tensor: `exp` of `torch.exp(x)` and of `x.exp()`; None of what is no call."""
    if node.kind != "call":
        return None
    return node.args[0].label or None


def carries_gradient(node: Node, active: frozenset[str], flat: bool = False) -> bool:
    """Whether the value depends on one of the `active` names in a differentiable way; `flat`: or by steps."""
    seen, waiting = set[int](), [node]
    while waiting:
        item = waiting.pop()
        steps = flat and may_be(callee(item) or "", "recorded")
        if id(item) in seen or _is_constant(item) and not steps:
            continue
        seen.add(id(item))
        if item.kind == "name" and item.label in active:
            return True
        waiting += item.args
    return False


def is_undifferentiated(node: Node) -> bool:
    """Whether it is a call that autograd has no gradient of, and takes for a constant: `torch.special.bessel_j0(x)`."""
    return may_be(callee(node) or "", "undifferentiated")


def _is_constant(node: Node) -> bool:
    """Whether no gradient passes: a comparison, `sign`, `x.shape`; but `x.expand_as(y)` is x.

    `torch.equal` is a bool of Python's; `torch.sgn` of a complex number has a gradient, which a forward seldom means.
    """
    name = callee(node)
    step = name is not None and (is_constant(name) or may_be(name, "recorded"))
    if step or name == "equal":
        return node.args[0].kind == "attribute" or name in BUILTINS
    of_its_receiver = name is not None and by_shape(name, creates=False)
    metadata = metadata_read(node) is not None and not of_its_receiver
    return metadata or node.kind == "compare"


def calls(node: Node) -> Iterator[str]:
    """The names of all that is called in an expression, as `callee` has them."""
    return (name for item in node.walk() if (name := callee(item)))


@lru_cache(maxsize=1024)  # asked of every line in each style and for each declaration
def leaves_torch(node: Node, imported: frozenset[str]) -> bool:
    """Whether the expression goes through Python, NumPy or code of the user's, which no compiler sees into."""
    return leaves_autograd(node, imported) or any(
        name in READ_OUT for name in calls(node)
    )


def leaves_autograd(node: Node, imported: frozenset[str]) -> bool:
    """Whether the expression goes where autograd does not see: NumPy, or code of the user's."""
    through = [item for item in node.walk() if callee(item) in NUMPY]
    return bool(node.names() & imported) or not all(map(_is_no_array, through))


def _is_no_array(call: Node) -> bool:
    """Say if `as_tensor` is given a name or a number, no call; `x.numpy()` counts in the statement where it stands."""
    plain = call.args[1 : len(call.args) - len(call.keywords)]
    inner = [item for one in plain for item in one.walk() if item.kind == "call"]
    return callee(call) == "as_tensor" and not inner


@lru_cache(maxsize=1024)  # asked of every line in each style and for each declaration
def is_random(node: Node) -> bool:
    """Whether the expression draws random numbers."""
    return any(
        item.kind == "call"
        and (
            draws_random(item.args[0].label)
            and not _is_off(item)
            or _drops(item)
            or _of_random(item)
        )
        for item in node.walk()
    )


def _drops(call: Node) -> bool:
    """Whether a call drops elements at random by an argument: `F.scaled_dot_product_attention(..., dropout_p=p)`."""
    rate = keywords(call).get("dropout_p")
    return rate is not None and rate.label not in ("0", "0.0")


def _is_off(call: Node) -> bool:
    """Whether a call is told to drop nothing: `F.dropout(x, p, training=False)`."""
    training = keywords(call).get("training")
    return training is not None and training.label == "False"


def _of_random(call: Node) -> bool:
    """Whether a call is of a module `random`: `np.random.standard_normal(...)`."""
    return any(item.label == "random" for item in call.args[0].walk())


def calls_unknown(node: Node, names: frozenset[str]) -> bool:
    """Whether the expression calls one of the names, or a method of it."""
    for item in node.walk():
        if item.kind == "call":
            root = item.args[0]
            while root.kind == "attribute":
                root = root.args[0]
            if root.kind == "name" and root.label in names:
                return True
    return False


def active_locals(
    statements: Lines, inputs: frozenset[str], flat: bool = False
) -> frozenset[str]:
    """The locals that carry a gradient of one of the inputs; `flat`: even one that is 0 all over."""
    changes = Trace(statements, sharing).changes
    active = set(inputs)
    for position, item in enumerate(statements):
        before = frozenset(active)
        _activate(item, active, flat)
        for change in changes:
            if change.position == position and change.name in active - before:
                active |= change.holders
    return frozenset(active - inputs)


def _activate(item: Statement, active: set[str], flat: bool) -> None:
    """Add what a statement makes active; the test of an `if` carries no gradient."""
    if isinstance(item, If):
        for inner in (*item.body, *item.orelse):
            _activate(inner, active, flat)
    elif carries_gradient(item.value, frozenset(active), flat):
        active |= written(item)
