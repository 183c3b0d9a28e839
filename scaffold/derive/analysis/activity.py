"""Activity of expressions: does one carry a gradient, and may it be recomputed?

In: expressions, and the names with a gradient. Out: True or False. Invariant: in doubt it carries a gradient, and a
function from outside torch is not called twice.
"""

from collections.abc import Iterator
from functools import lru_cache

from scaffold.formula import (
    BUILTINS,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    keywords,
    metadata_read,
    written,
)
from scaffold.primitives.calls import by_shape, draws_random, is_constant, may_be
from scaffold.primitives.python_values import READ_OUT

NUMPY = frozenset({"numpy", "from_numpy", "as_tensor"})


def callee(node: Node) -> str | None:
    """Return the name of a call's function, without its module or tensor: `exp` for `torch.exp(x)` and `x.exp()`; None for other nodes."""
    if node.kind != "call":
        return None
    return node.args[0].label or None


def carries_gradient(node: Node, active: frozenset[str], flat: bool = False) -> bool:
    """Return whether a gradient passes from the value to one of the `active` names.

    With `flat` also through step functions as `torch.sign`, with a gradient of zeros recorded by autograd.
    """
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
    """Return whether it is a call autograd has no gradient for, treated as a constant: `torch.special.bessel_j0(x)`."""
    return may_be(callee(node) or "", "undifferentiated")


def _is_constant(node: Node) -> bool:
    """Return whether no gradient passes an expression: a comparison, `sign`, `x.shape`; but through `x.expand_as(y)` one passes to x.

    `torch.equal` is a Python bool; `torch.sgn` of a complex number has a gradient, which a forward seldom needs.
    """
    name = callee(node)
    step = name is not None and (is_constant(name) or may_be(name, "recorded"))
    if step or name == "equal":
        return node.args[0].kind == "attribute" or name in BUILTINS
    of_its_receiver = name is not None and by_shape(name, creates=False)
    metadata = metadata_read(node) is not None and not of_its_receiver
    return metadata or node.kind == "compare"


def calls(node: Node) -> Iterator[str]:
    """Yield the name of each function called in an expression, as given by `callee`."""
    return (name for item in node.walk() if (name := callee(item)))


@lru_cache(maxsize=1024)  # asked for every line in each style and for each declaration
def leaves_torch(node: Node, imported: frozenset[str]) -> bool:
    """Return whether an expression runs NumPy, code of the user's, or Python on numbers of a tensor, as `x.item()`: no compiler sees it."""
    return leaves_autograd(node, imported) or any(
        name in READ_OUT for name in calls(node)
    )


def leaves_autograd(node: Node, imported: frozenset[str]) -> bool:
    """Return whether the expression runs code hidden from autograd: NumPy, or code of the user's."""
    through = [item for item in node.walk() if callee(item) in NUMPY]
    return bool(node.names() & imported) or not all(map(_is_no_array, through))


def _is_no_array(call: Node) -> bool:
    """Return whether a call for NumPy arrays certainly gets none: `torch.as_tensor` of names and literals.

    A call among its arguments may return an array; `x.numpy()` in a line of its own was found there.
    """
    plain = call.args[1 : len(call.args) - len(call.keywords)]
    inner = [item for one in plain for item in one.walk() if item.kind == "call"]
    return callee(call) == "as_tensor" and not inner


@lru_cache(maxsize=1024)  # asked for every line in each style and for each declaration
def is_random(node: Node) -> bool:
    """Return whether the expression draws random numbers; dropout with `training=False` draws none."""
    return any(
        item.kind == "call"
        and (
            draws_random(item.args[0].label)
            and not _is_off(item)
            or drops(item)
            or _of_random(item)
        )
        for item in node.walk()
    )


def drops(call: Node) -> bool:
    """Return whether a call drops elements at random by an argument: `F.scaled_dot_product_attention(..., dropout_p=p)`."""
    rate = keywords(call).get("dropout_p")
    return rate is not None and rate.label not in ("0", "0.0")


def _is_off(call: Node) -> bool:
    """Return whether a call's dropout is off: `F.dropout(x, p, training=False)`."""
    training = keywords(call).get("training")
    return training is not None and training.label == "False"


def _of_random(call: Node) -> bool:
    """Return whether a call is in a module `random`: `np.random.standard_normal(...)`."""
    return any(item.label == "random" for item in call.args[0].walk())


def calls_unknown(node: Node, names: frozenset[str]) -> bool:
    """Return whether an expression calls one of `names`, functions of unknown effect, or a method of it: `f(x)`, `f.g(x)`."""
    for item in node.walk():
        root = item.args[0].root() if item.kind == "call" else item
        if root is not item and root.kind == "name" and root.label in names:
            return True
    return False


def active_locals(
    statements: Lines, inputs: frozenset[str], flat: bool = False
) -> frozenset[str]:
    """Return the locals computed differentiably from one of the inputs; with `flat`, also by step functions, of gradient 0.

    A local becomes active too if it shares the memory of a name which becomes active by an in-place change.
    """
    changes = Trace(statements).changes
    active = set(inputs)
    for position, item in enumerate(statements):
        before = frozenset(active)
        _activate(item, active, flat)
        for change in changes:
            if change.position == position and change.name in active - before:
                active |= change.holders
    return frozenset(active - inputs)


def _activate(item: Statement, active: set[str], flat: bool) -> None:
    """Add the names a statement makes active to `active`; the test of an `if` carries no gradient."""
    if isinstance(item, If):
        for inner in (*item.body, *item.orelse):
            _activate(inner, active, flat)
    elif carries_gradient(item.value, frozenset(active), flat):
        active |= written(item)
