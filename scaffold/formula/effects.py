"""What an expression or a statement does to names: which it assigns, which tensors it changes, whose memory it shares.

In: nodes and statements. Out: names. Invariant: in doubt two names share memory, and a call by PyTorch's convention
for names (`exp_`, `out=`, `inplace=True`) changes its tensor.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

from scaffold.formula.graph import If, Lines, Node, Statement, expressions
from scaffold.formula.text import WELL_KNOWN
from scaffold.primitives.calls import (
    facts_of_attribute,
    is_in_place,
    may_be,
    may_be_argument,
    may_share_memory,
)

# Functions of Python's own that hold, or yield, what they are given.
HOLDERS = frozenset({"enumerate", "list", "reversed", "tuple", "zip"})


def written(*statements: Statement) -> frozenset[str]:
    """The names that statements assign or change in place, in any of their branches."""
    if len(statements) == 1:  # as most passes ask
        return _written_by(statements[0])
    return frozenset().union(*map(_written_by, statements))


@lru_cache(maxsize=4096)  # the passes of a derivation ask it of every statement
def _written_by(item: Statement) -> frozenset[str]:
    if isinstance(item, If):
        return written(*item.body, *item.orelse)
    return bound(item.target).union(changed_in_place(item.value))


def bound(target: Node) -> frozenset[str]:
    """The names that a target assigns; for `h[0]` that of the container."""
    if target.kind == "subscript":
        return bound(target.args[0])
    if target.kind in ("tuple", "starred"):
        return frozenset(name for item in target.args for name in bound(item))
    return target.names()


def misspelt(
    statements: Lines, targets: frozenset[str], known: frozenset[str]
) -> list[str]:
    """Names that begin with `grad_`, are assigned and never read, and are no gradient that is wanted: misspelt ones."""
    names = written(*statements)
    nodes = (node for item in statements for node in expressions(item))
    read = {name for node in nodes for name in node.names()}
    found = sorted(names - targets - read - known)
    return [name for name in found if name.startswith("grad_")]


@lru_cache(maxsize=1024)  # the nodes of a derivation, which asks this of each often
def changed_in_place(value: Node) -> tuple[str, ...]:
    """The names whose tensors an expression changes: `x.exp_()`, `torch.exp_(x[0])`, `torch.exp(x, out=y)`."""
    changed = (item for node in value.walk() for item in written_to(node))
    return tuple(name for item in changed for name in sorted(sharing(item)))


def written_to(node: Node) -> Iterator[Node]:
    """The tensors that a call itself changes, as expressions."""
    if node.kind != "call":
        return
    callee, args, named = node.args[0], node.args[1:], keywords(node)
    if "out" in named:
        yield named["out"]
    first = args[0] if args else named.get("input")
    if is_in_place(callee.label) or _is_true(named.get("inplace")):
        changed = callee.args[0] if _is_method(callee) else first
        if callee.kind == "attribute" and changed is not None:
            yield changed


@lru_cache(maxsize=4096)  # lowering asks it of every line, and of few lines it is true
def changes_memory(value: Node) -> bool:
    """Whether a call in an expression changes a tensor, be it one that has no name."""
    return any(True for node in value.walk() for _ in written_to(node))


def keywords(call: Node) -> dict[str, Node]:
    """The keyword arguments of a call."""
    if not call.keywords:  # as of most
        return {}
    count = len(call.keywords)
    return dict(zip(call.keywords, call.args[len(call.args) - count :], strict=True))


@lru_cache(maxsize=4096)  # each trace of a forward asks it of the same expressions
def sharing(value: Node) -> frozenset[str]:
    """The names whose memory the value may share: its own, and those it is a view of."""
    return _names(same_memory(value))


def same_memory(value: Node) -> Iterator[Node]:
    """The expressions whose memory the value may share, itself first."""
    return _sources(value, may_share_memory, views=True)


def same_tensor(value: Node) -> frozenset[str]:
    """The names whose very tensor the value may be."""
    return _names(_sources(value, may_be_argument, views=False))


def copied(value: Node) -> frozenset[str]:
    """The names whose very tensor the value is, by assignment alone."""
    return _names(_sources(value, lambda word: False, views=False))


def _names(several: Iterator[Node]) -> frozenset[str]:
    return frozenset(node.label for node in several if node.kind == "name")


def _sources(value: Node, shares: Callable[[str], bool], views: bool) -> Iterator[Node]:
    yield value
    for inner in _parts(value, shares, views):
        yield from _sources(inner, shares, views)


def _parts(value: Node, shares: Callable[[str], bool], views: bool) -> tuple[Node, ...]:
    """The expressions of which the value may be one, or a view."""
    match value:
        case Node("conditional", _, (_, *inner)):
            return tuple(inner)
        case Node("boolean" | "starred" | "tuple" | "list", _, args):
            return args
        case Node("unary", "+", (inner,)):
            return (inner,)
        case Node("attribute", label, (inner,)) if _attribute_shares(label, views):
            return (inner,)
        case Node("subscript", _, (inner, _)) if views or holds_several(inner):
            return (inner,)
        case Node("call", _, (Node("name", name), *args)) if views and name in HOLDERS:
            return tuple(args)
        case Node("call", _, (Node("attribute", label) as callee, *args)):
            if shares(label):
                if _is_method(callee):
                    return callee.args
                if args and args[0].kind == "constant":  # the equation of `einsum`
                    args = args[1:] if len(args) == 2 else []  # a product is new
                first = args if may_be(label, "several") else args[:1]
                return tuple(first)
            return tuple(written_to(value))
    return ()


def holds_several(value: Node) -> bool:
    """Whether a value is several tensors that are written out, or that one call returns as they are."""
    match value:
        case Node("tuple" | "list"):
            return True
        case Node("call", _, (Node("attribute", label) as callee, *_)):
            return may_be(label, "several") and not _is_method(callee)
    return False


def _is_method(callee: Node) -> bool:
    """Whether a call is of a tensor's method rather than of a module's function."""
    if callee.kind != "attribute":
        return False
    root = callee.args[0]
    while root.kind == "attribute":
        root = root.args[0]
    return not (root.kind == "name" and root.label in WELL_KNOWN)


def _attribute_shares(label: str, views: bool) -> bool:
    """Whether an attribute may be the tensor itself, `x.real`, or, of `views`, one of them: `x.mT`, `x.data`."""
    if views and label == "data":
        return True
    wanted = ("same", "view") if views else ("same",)
    return any(facts.memory in wanted for facts in facts_of_attribute(label))


def _is_true(node: Node | None) -> bool:
    return node is not None and node.kind == "constant" and node.label == "True"
