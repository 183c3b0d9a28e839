"""Effects: the tensors an expression changes, and the memory it shares.

In: nodes. Out: names. Invariant: in doubt two names share memory, and a call by PyTorch's convention
for names (`exp_`, `out=`, `inplace=True`) changes its tensor.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from scaffold.formula.graph import Node
from scaffold.formula.text import WELL_KNOWN
from scaffold.primitives.calls import (
    facts_of_attribute,
    is_in_place,
    may_be,
    may_be_argument,
    may_share_memory,
)

# Builtins whose result contains or yields their arguments.
HOLDERS = frozenset({"enumerate", "list", "reversed", "tuple", "zip"})


@lru_cache(maxsize=1024)  # the passes of a derivation often ask for the same nodes
def changed_in_place(value: Node) -> tuple[str, ...]:
    """Return the names of tensors an expression changes: `x.exp_()`, `torch.exp_(x[0])`, `torch.exp(x, out=y)`."""
    changed = (item for node in value.walk() for item in written_to(node))
    return tuple(name for item in changed for name in sorted(sharing(item)))


def written_to(node: Node) -> Iterator[Node]:
    """Yield the tensors a call itself changes, as expressions."""
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


@lru_cache(maxsize=4096)  # called by lowering for every line; few lines change memory
def changes_memory(value: Node) -> bool:
    """Return whether a call in an expression changes a tensor, named or not."""
    return any(True for node in value.walk() for _ in written_to(node))


def keywords(call: Node) -> dict[str, Node]:
    """Return the keyword arguments of a call."""
    if not call.keywords:  # the usual case
        return {}
    count = len(call.keywords)
    return dict(zip(call.keywords, call.args[len(call.args) - count :], strict=True))


def arguments_of(call: Node, parameters: Iterable[str]) -> dict[str, Node]:
    """Return the arguments of a call by parameter: the positional ones in order, then the keywords."""
    named = keywords(call)
    positional = call.args[1 : len(call.args) - len(named)]
    return dict(zip(parameters, positional, strict=False)) | named


@lru_cache(maxsize=4096)  # each trace of a forward asks for the same expressions
def sharing(value: Node) -> frozenset[str]:
    """Return the names the value may share memory with: aliases and bases of views."""
    return _names(same_memory(value))


def same_memory(value: Node) -> Iterator[Node]:
    """Yield the expressions the value may share memory with, itself first."""
    return _sources(value, may_share_memory, views=True)


def same_tensor(value: Node) -> frozenset[str]:
    """Return the names the value may alias, as the same tensor object."""
    return _names(_sources(value, may_be_argument, views=False))


def copied(value: Node) -> frozenset[str]:
    """Return the names the value aliases by assignment alone, without a call."""
    return _names(_sources(value, lambda word: False, views=False))


def _names(several: Iterator[Node]) -> frozenset[str]:
    return frozenset(node.label for node in several if node.kind == "name")


def _sources(value: Node, shares: Callable[[str], bool], views: bool) -> Iterator[Node]:
    yield value
    for inner in _parts(value, shares, views):
        yield from _sources(inner, shares, views)


def _parts(value: Node, shares: Callable[[str], bool], views: bool) -> tuple[Node, ...]:
    """Return the subexpressions the value may be equal to, or a view of."""
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
    """Return whether a value is several tensors: a literal tuple or list, or `torch.atleast_1d(x, y)`.

    Such a call may return its arguments themselves.
    """
    match value:
        case Node("tuple" | "list"):
            return True
        case Node("call", _, (Node("attribute", label) as callee, *_)):
            return may_be(label, "several") and not _is_method(callee)
    return False


def _is_method(callee: Node) -> bool:
    """Return whether a call is of a tensor's method rather than of a module's function."""
    return callee.kind == "attribute" and not is_of_module(callee)


def is_of_module(node: Node) -> bool:
    """Return whether it is a module of torch or of Python's maths, or a member of one: `torch`, `F.conv2d`."""
    root = node.root()
    return root.kind == "name" and root.label in WELL_KNOWN


def _attribute_shares(label: str, views: bool) -> bool:
    """Return whether an attribute may be the tensor itself, `x.real`, or with `views` a view of it: `x.mT`, `x.data`."""
    if views and label == "data":
        return True
    wanted = ("same", "view") if views else ("same",)
    return any(facts.memory in wanted for facts in facts_of_attribute(label))


def _is_true(node: Node | None) -> bool:
    return node is not None and node.kind == "constant" and node.label == "True"
