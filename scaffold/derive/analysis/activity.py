"""Activity of expressions: does one carry a gradient, and may it be recomputed?

In: expressions, and the names with a gradient. Out: True or False. Invariant: in doubt it carries a gradient, and a
function from outside torch is not called twice.

The passes that read the user's text ask here; those of the engine ask the graph of primitives. Words: an `active`
name carries a gradient: it is an input with one, or computed from such an input. A call is flat if its gradient is 0
where it has one, `torch.sign(x)`. `imported` are the names of the user's imports from outside torch: functions of
unknown effect.
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
from scaffold.primitives import Facts, built_in_primitives
from scaffold.primitives.calls import (
    by_shape,
    draws_random,
    facts_of_call,
    is_constant,
    may_be,
)
from scaffold.primitives.python_values import READ_OUT

NUMPY = frozenset({"numpy", "from_numpy", "as_tensor"})


def callee(node: Node) -> str | None:
    """Return the name of a call's function, without its module or tensor: `exp` for `torch.exp(x)` and `x.exp()`; None for other nodes.

    By this name the table of primitives is asked; a function and a method of one name are the same there.
    """
    if node.kind != "call":
        return None
    return node.args[0].label or None


def known_facts(node: Node) -> tuple[Facts, ...]:
    """Return the facts of all primitives a call or an operator may be: several have the name `sum`. () for an unknown call."""
    if node.kind == "binary":
        return built_in_primitives().named("operator", node.label)
    if node.args[0].kind == "name":  # a Python builtin: `pow(x, 2)`
        return built_in_primitives().named("function", node.args[0].label)
    return facts_of_call(callee(node) or "")


def carries_gradient(node: Node, active: frozenset[str], flat: bool = False) -> bool:
    """Return whether a gradient passes from the value to one of the `active` names: `x * 2` carries one to x, `x.shape[0]` none.

    With `flat` also through step functions as `torch.sign`, for which autograd records a gradient of zeros: the value
    then requires grad in PyTorch.
    """
    seen, waiting = set[Node](), [node]
    while waiting:
        item = waiting.pop()
        is_recorded = flat and may_be(callee(item) or "", "recorded")
        if item in seen or _is_constant(item) and not is_recorded:
            continue
        seen.add(item)
        if item.kind == "name" and item.label in active:
            return True
        waiting += item.args
    return False


def is_undifferentiated(node: Node) -> bool:
    """Return whether it is a call autograd has no gradient for, treated as a constant: `torch.special.bessel_j0(x)`.

    The table of primitives lists such functions ("undifferentiated"); the derivation tells the user.
    """
    return may_be(callee(node) or "", "undifferentiated")


def _is_constant(node: Node) -> bool:
    """Return whether no gradient passes an expression: a comparison, `sign`, `x.shape`.

    But through `x.expand_as(y)`, which reads y's metadata alone, one passes to its receiver x. `torch.equal` is a
    Python bool; `torch.sgn` of a complex number has a gradient, which a forward seldom needs. For a step function
    that is "recorded" in the table, autograd records a gradient of zeros.
    """
    name = callee(node)
    step = name is not None and (is_constant(name) or may_be(name, "recorded"))
    if step or name == "equal":
        # `torch.sign(x)`, `x.sign()`, `len(x)`; but not a function `sign` of the user's
        return node.args[0].kind == "attribute" or name in BUILTINS
    of_its_receiver = name is not None and by_shape(name, creates=False)
    metadata = metadata_read(node) is not None and not of_its_receiver
    return metadata or node.kind == "compare"


def calls(node: Node) -> Iterator[str]:
    """Yield the name of each function called in an expression, as given by `callee`."""
    return (name for item in node.walk() if (name := callee(item)))


@lru_cache(maxsize=1024)  # asked for every line in each style and for each declaration
def leaves_torch(node: Node, imported: frozenset[str]) -> bool:
    """Return whether an expression runs NumPy, code of the user's, or Python on numbers of a tensor, as `x.item()`.

    No compiler sees such code, and the backward does not repeat it.
    """
    return leaves_autograd(node, imported) or any(
        name in READ_OUT for name in calls(node)
    )


def leaves_autograd(node: Node, imported: frozenset[str]) -> bool:
    """Return whether the expression runs code hidden from autograd: NumPy, or code of the user's. Its gradient must be stated.

    `imported` are names of the user's imports: none may be read.
    """
    conversions = [item for item in node.walk() if callee(item) in NUMPY]
    return bool(node.names() & imported) or not all(map(_is_no_array, conversions))


def _is_no_array(call: Node) -> bool:
    """Return whether a call for NumPy arrays certainly gets none: `torch.as_tensor` of names and literals.

    A call among its arguments may return an array; `a = x.numpy()` in a line of its own was found at that line.
    """
    positional = call.args[1 : len(call.args) - len(call.keywords)]
    inner = [item for one in positional for item in one.walk() if item.kind == "call"]
    return callee(call) == "as_tensor" and not inner


@lru_cache(maxsize=1024)  # asked for every line in each style and for each declaration
def is_random(node: Node) -> bool:
    """Return whether the expression draws random numbers, so repeating it would give others.

    Dropout with `training=False` draws none; `dropout_p=0.1` of attention draws.
    """
    calls_ = (item for item in node.walk() if item.kind == "call")
    return any(map(_draws, calls_))


def _draws(call: Node) -> bool:
    """Return whether a call draws random numbers, by its name, its `dropout_p`, or its module."""
    if draws_random(call.args[0].label) and not _is_off(call):
        return True
    return drops(call) or _of_random(call)


def drops(call: Node) -> bool:
    """Return whether a call drops elements at random by an argument: `F.scaled_dot_product_attention(..., dropout_p=p)`.

    The numbers are drawn inside the call, so they cannot be saved for the backward.
    """
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
    """Return whether an expression calls one of `names`, functions of unknown effect, or a method of it: `f(x)`, `f.g(x)`.

    Such a line is neither dropped nor repeated.
    """
    called = (item.args[0] for item in node.walk() if item.kind == "call")
    roots = (function.root() for function in called)  # `f` of `f.g(x)`
    return any(root.kind == "name" and root.label in names for root in roots)


def active_locals(
    statements: Lines, inputs: frozenset[str], flat: bool = False
) -> frozenset[str]:
    """Return the locals computed differentiably from one of the inputs; with `flat`, also by step functions, of gradient 0.

    `h = torch.empty(3)`, `h[0] = x`: `h` becomes active by an in-place change; and so does then each name with its
    memory (`holders`), as `v = h[0]` above that line.
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
    """Add the names a statement makes active (computed from an active name) to `active`; the test of an `if` carries no gradient.

    Names of both branches are added, since either may run.
    """
    if isinstance(item, If):
        for inner in (*item.body, *item.orelse):
            _activate(inner, active, flat)
    elif carries_gradient(item.value, frozenset(active), flat):
        active |= written(item)
