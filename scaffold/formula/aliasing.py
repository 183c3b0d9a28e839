"""Aliasing: the memory of formula text, and its changes in place.

`derive` asks it, so that no tensor is saved for the backward and overwritten before, and an input that the forward changes
or returns is declared to autograd.

Words: two values *share* memory if one is the other or a view of it (`x` and `x.view(-1)`); a *holder* of some memory is a
name whose value uses it; the memory *held* by a name is what its value may use; a name *from outside* is an input of the
forward; a *trace* follows these facts statement by statement.

In: expressions and statements as nodes. Out: the names an expression changes or shares memory with; the memory each
name may hold after statements. Invariant: in doubt two names share memory, and a call by PyTorch's convention for names
(`exp_`, `out=`, `inplace=True`) changes its tensor. What each function of PyTorch does is known to the table of primitives.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from scaffold.formula.graph import (
    If,
    Node,
    Statement,
    arguments_of,
    bound,
    changed_parts,
    is_of_module,
    keywords,
    unpacked,
)
from scaffold.primitives.calls import (
    facts_of_attribute,
    is_in_place,
    may_be,
    may_be_argument,
    may_share_memory,
)

# Builtins whose result contains or yields (views of) their arguments, and so shares their memory.
HOLDERS = frozenset({"enumerate", "list", "reversed", "tuple", "zip"})


@lru_cache(maxsize=1024)  # the passes of a derivation often ask for the same nodes
def changed_in_place(value: Node) -> tuple[str, ...]:
    """Return the names of tensors an expression changes: `x` for `x.exp_()` and `torch.exp_(x[0])`, `y` for `torch.exp(x, out=y)`.

    Of a changed view its base is named: `x` for `x.t().exp_()`.
    """
    changed = (item for node in value.walk() for item in written_to(node))
    return tuple(name for item in changed for name in sorted(sharing(item)))


def written_to(node: Node) -> Iterator[Node]:
    """Yield the tensors a call itself changes, as expressions: `x` of `x.exp_()`, `y` of `torch.exp(x, out=y)`.

    Calls inside its arguments do not count; see `changed_in_place` for all of an expression.
    """
    if node.kind != "call":
        return
    callee, named = node.args[0], keywords(node)
    if "out" in named:
        yield named["out"]
    # A plain name, `scale_(x)`, is no function of PyTorch: its convention does not apply.
    if callee.kind == "attribute" and (
        is_in_place(callee.label) or _may_be_true(named.get("inplace"))
    ):
        inputs = arguments_of(node, ("input",))
        if _is_method(callee):
            yield callee.args[0]
        elif "input" in inputs:
            yield inputs["input"]


@lru_cache(maxsize=4096)  # called by lowering for every line; few lines change memory
def changes_memory(value: Node) -> bool:
    """Return whether a call in an expression changes any tensor in place, also a new one without a name: `(x * 2).exp_()`."""
    return any(True for node in value.walk() for _ in written_to(node))


@lru_cache(maxsize=4096)  # each trace of a forward asks for the same expressions
def sharing(value: Node) -> frozenset[str]:
    """Return the names the value may share memory with: `x` for `x.view(-1)`, none for `x + 1`."""
    return _names(same_memory(value))


def same_memory(value: Node) -> Iterator[Node]:
    """Yield the subexpressions the value may share memory with, itself first: for `x.t()[0]` it, `x.t()` and `x`."""
    return _sources(value, may_share_memory, views=True)


def same_tensor(value: Node) -> frozenset[str]:
    """Return the names the value may be, as the same tensor object: `x` for `x.contiguous()`, none for the view `x.t()`.

    Asked of returned values, since autograd treats an input that is returned as it is differently from a new tensor.
    """
    return _names(_sources(value, may_be_argument, views=False))


def copied(value: Node) -> frozenset[str]:
    """Return the names the value is a plain copy of, without a call: `x` and `y` for `x if c else y`, none for `x.contiguous()`."""
    # No function may return its argument.
    return _names(_sources(value, lambda word: False, views=False))


def _names(several: Iterator[Node]) -> frozenset[str]:
    return frozenset(node.label for node in several if node.kind == "name")


def _sources(value: Node, shares: Callable[[str], bool], views: bool) -> Iterator[Node]:
    """Yield an expression and, recursively, the ones its value may share memory with; `shares` and `views` as in `_parts`."""
    yield value
    for inner in _parts(value, shares, views):
        yield from _sources(inner, shares, views)


def _parts(value: Node, shares: Callable[[str], bool], views: bool) -> tuple[Node, ...]:
    """Return the subexpressions the value may be equal to, or a view of: `x` for `x.view(-1)`, both for `x if c else y`.

    `shares` answers, for the name of a function or method, whether its result may be its argument (or a view of it). Without
    `views`, only the same tensor counts. A call of `out=` or of `exp_` gives the tensor that it changes.
    """
    match value:
        case Node("conditional", _, (_, *inner)):
            return tuple(inner)
        case Node("boolean" | "starred" | "tuple" | "list", _, args):
            return args
        # `+x` may be x itself; `-x` is new.
        case Node("unary", "+", (inner,)):
            return (inner,)
        case Node("attribute", label, (inner,)) if _attribute_shares(label, views):
            return (inner,)
        # An item of a tuple, `(x, y)[0]`, is the tensor itself; of a tensor, `x[0]`, it is a view.
        case Node("subscript", _, (inner, _)) if views or holds_several(inner):
            return (inner,)
        case Node("call", _, (Node("name", name), *args)) if views and name in HOLDERS:
            return tuple(args)
        case Node("call", _, (Node("attribute", label) as callee, *args)):
            if shares(label):
                if _is_method(callee):
                    return callee.args
                if args and args[0].kind == "constant":  # the equation of `einsum`
                    # Of one operand the result may be a view; a product is new memory.
                    args = args[1:] if len(args) == 2 else []
                # `torch.atleast_1d(x, y)` returns a view of each argument; other functions work on their first one.
                return tuple(args if may_be(label, "several") else args[:1])
            return tuple(written_to(value))  # `out=y` and `y.exp_()` return y
    return ()


def holds_several(value: Node) -> bool:
    """Return whether a value is several tensors: a literal tuple or list, or `torch.atleast_1d(x, y)`.

    An item of it is then one of these tensors, not a new view of one tensor as `x[0]` is.
    """
    match value:
        case Node("tuple" | "list"):
            return True
        case Node("call", _, (Node("attribute", label) as callee, *_)):
            return may_be(label, "several") and not _is_method(callee)
    return False


def _is_method(callee: Node) -> bool:
    """Return whether a call is of a method of a tensor, `x.exp()`, rather than of a module's function, `torch.exp(x)`."""
    return callee.kind == "attribute" and not is_of_module(callee)


def _attribute_shares(label: str, views: bool) -> bool:
    """Return whether an attribute may be the tensor itself, `x.real`, or with `views` a view of it: `x.mT`, `x.data`."""
    # `x.data` is no primitive, so the table has nothing about it.
    if views and label == "data":
        return True
    wanted = ("same", "view") if views else ("same",)
    return any(facts.memory in wanted for facts in facts_of_attribute(label))


def _may_be_true(node: Node | None) -> bool:
    """Return whether an option is given and is not written out as False: a flag may be known in the call alone."""
    return node is not None and not (node.kind == "constant" and node.label == "False")


# --- The memory of names, statement by statement.


# The memories a value may use: each by the name of an input that brought it, or `@1`, `@2`
# if it was made inside.
Memory = frozenset[str]
Sources = Callable[[Node], frozenset[str]]  # an expression -> names it may share with


class Change(NamedTuple):
    """A change in place: the name it was written with, and all names holding the changed memory."""

    position: int  # the index of the statement
    name: str
    holders: frozenset[str]  # names whose value changes with it
    outside: frozenset[str]  # the names from outside in the changed memory
    memory: Memory  # the changed memory


class Trace:
    """A trace of the memory each name may hold, statement by statement, and of changes in place.

    After `y = x.view(-1); y.exp_()` it has one change, of `y`, with the holders `x` and `y`: so `x` is no longer what it was.
    """

    def __init__(
        self, statements: Iterable[Statement], sources: Sources = sharing
    ) -> None:
        """Follow statements in order; `sources` returns the names an expression's value may share memory with.

        `held` are the memories of each name at the current statement, `changes` the changes in place so far.
        """
        self.sources = sources
        self.held: dict[str, Memory] = {}
        # All memories a name holds at any statement.
        self.ever: dict[str, Memory] = {}
        self.groups: set[str] = set()  # names of several tensors: `ys = (x, w)`
        self.changes: list[Change] = []
        self._made = 0  # the number of new memories so far
        for position, item in enumerate(statements):
            self._run(item, position)

    def of(self, name: str) -> Memory:
        """Return the memory a name may hold; one never assigned is an input with its own."""
        return self.held.get(name, frozenset({name}))

    @property
    def changed(self) -> frozenset[str]:
        """Return the names that held a changed memory when it changed."""
        return frozenset().union(*(change.holders for change in self.changes))

    @property
    def changed_outside(self) -> frozenset[str]:
        """Return the inputs with changed memory, even if their names were assigned anew before."""
        return frozenset().union(*(change.outside for change in self.changes))

    def holders_ever(self, change: Change) -> frozenset[str]:
        """Return the names that hold the changed memory now, before or later."""
        others = {name for name, memory in self.ever.items() if memory & change.memory}
        return change.holders | others

    def of_value(self, value: Node) -> Memory:
        """Return the memory an expression's value may have, given the statements so far.

        An item of a name with several tensors, `ys[0]`, is one of them, with its memory; of any other name it is a part of the
        tensor. Empty for a new value.
        """
        names = self.sources(value)
        match value:
            case Node("subscript", _, (Node("name", name), _)) if name in self.groups:
                # Not among `names` yet if the trace asks for the same tensor only (`sources`): an item of a tensor is a view.
                names |= {name}
        return frozenset().union(*map(self.of, names))

    def _run(self, item: Statement, position: int) -> None:
        """Record the changes in place made by a statement, then the memory of the names it assigns."""
        if isinstance(item, If):
            self._choose(item, position)
            return
        changed = list(changed_in_place(item.value))
        # `y += x` changes y, `y[0] = x` too.
        parts = (item.target,) if item.operator else changed_parts(item.target)
        changed += [name for part in parts for name in sorted(bound(part))]
        for name in changed:
            self._change(name, position)
        # After `y += x` the name y still holds the same memory.
        if not item.operator:
            self._assign(item.target, item.value)

    def _choose(self, item: If, position: int) -> None:
        """Follow both branches of an `if`; after it, a name may hold the memory of either."""
        for name in changed_in_place(item.test):
            self._change(name, position)
        before = dict(self.held)  # both branches start from it
        for inner in item.body:
            self._run(inner, position)
        after_body, self.held = self.held, before
        for inner in item.orelse:
            self._run(inner, position)
        for name in {*after_body, *self.held}:
            # Not assigned in the body, a name still holds its own input's memory.
            other = after_body.get(name, frozenset({name}))
            self.held[name] = self.of(name) | other

    def _change(self, name: str, position: int) -> None:
        """Record a change in place through a name, with all names possibly holding the same memory.

        Memory of an input bears the input's name (`outside`); new memory has a name with `@`. `inside` are the assigned names
        with such memory; `inputs` are those whose name was not assigned anew, so it still means the changed tensor.
        `position` is that of the outermost statement.
        """
        memory = self.of(name)
        outside = frozenset(part for part in memory if not part.startswith("@"))
        inside = {other for other in self.held if self.of(other) & memory}
        inputs = {other for other in outside if other in self.of(other)}
        holders = frozenset(inside | inputs)
        self.changes.append(Change(position, name, holders, outside, memory))

    def _assign(self, target: Node, value: Node) -> None:
        """Record the memory of assigned names: the value's, or new memory such as `@1`.

        `a, b = x, y` is taken in pairs. All values are read before the first name is assigned, as Python does.
        """
        pairs = unpacked(target, value)
        memories = [self.of_value(part) for _, part in pairs]
        for (part, part_value), memory in zip(pairs, memories, strict=True):
            if part.kind == "name" and holds_several(part_value):
                self.groups.add(part.label)
            for name in sorted(_given(part)):
                self._made += 1
                held = memory or frozenset({f"@{self._made}"})
                self.held[name] = held
                self.ever[name] = self.ever.get(name, frozenset()) | held


def _given(target: Node) -> frozenset[str]:
    """Return the names a target gives a new value: `w` for `v[0], w`, since `v` keeps its memory and changes in part."""
    if target.kind in ("tuple", "starred"):
        return frozenset().union(*map(_given, target.args))
    return frozenset() if target.kind == "subscript" else bound(target)
