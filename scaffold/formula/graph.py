"""The graph of a formula: hash-consed expression nodes under straight-line statements.

All later steps read this form: the derivation, the writers, the checks. *Hash-consed*: a request for an expression that
exists returns the existing node, so equal parts of a formula are shared, and tables can be kept by node.

Words: the *args* of a node are its parts in order, its *label* the word that its kind does not say, an operator or a name;
a *target* is the left side of an assignment; an `absent` node stands where nothing is written; a forward is *kept* if it
stays as the user wrote it.

In: the requests of the parser. Out: `Node`s, `Statement`s and a `Formula`, all immutable. Invariant: two equal
expressions of one `Graph` are the same object, so `is` compares them.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from scaffold.errors import Location
from scaffold.formula.text import WELL_KNOWN

Kind = Literal[
    "name",  # label: the identifier
    "value",  # label: of a value known to the derivation, written out later. Never user-written
    "constant",  # label: the literal as the user spelled it
    "attribute",  # label: the attribute; args: the value
    "call",  # args: the callee, then positional, then keyword arguments
    "subscript",  # args: the value, the index
    "slice",  # args: lower, upper, step; an absent one is an `absent` node
    "absent",
    "tuple",
    "list",
    "dict",  # args: keys and values alternately. Never user-written
    "starred",
    "unary",  # label: "-", "+", "~" or "not"
    "binary",  # label: the operator
    "compare",  # label: the operators, separated by commas
    "boolean",  # label: "and" or "or"
    "conditional",  # args: the test, the value if true, the value if false
    "lambda",  # args: its parameters (names or starred names), then the value, which reads them all. Never user-written
    "comprehension",  # label: "-size for size in"; args: the iterable. Never user-written
    "check",  # label: "assert" or "raise"; args: the test and the message, or the error
    "words",  # label: an f-string; args: the values in it
    "body",  # label: a whole forward, unchanged; args: every expression in it
]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One expression, with its parts as nodes below it. Compare nodes of one graph with `is`."""

    kind: Kind
    label: str = ""
    args: tuple["Node", ...] = ()
    # Names of the last arguments of a call; "**" unpacks.
    keywords: tuple[str, ...] = ()

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it once each, parents first."""
        return iter(_walked(self) if self.args else (self,))

    def root(self) -> "Node":
        """Return the node at the start of a chain of attributes: `torch` for `torch.nn.functional`, itself without one."""
        node = self
        while node.kind == "attribute":
            node = node.args[0]
        return node

    def names(self) -> frozenset[str]:
        """Return the identifiers this expression reads."""
        return _names(self)


@lru_cache(maxsize=4096)  # every pass walks the same few hundred expressions
def _walked(root: Node) -> tuple[Node, ...]:
    """Return a node and all below it, once each, even if several expressions share it; parents first.

    A loop instead of a recursion: a long formula is deeper than Python's limit.
    """
    found, waiting = dict[Node, None](), [root]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting.extend(reversed(node.args))
    return tuple(found)


@lru_cache(maxsize=8192)  # every pass asks for it on the same few hundred expressions
def _names(node: Node) -> frozenset[str]:
    return frozenset(item.label for item in node.walk() if item.kind == "name")


class Graph:
    """A factory of nodes that returns the existing node for an equal expression."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}

    def node(
        self,
        kind: Kind,
        label: str = "",
        args: tuple[Node, ...] = (),
        keywords: tuple[str, ...] = (),
    ) -> Node:
        """Return the node with these parts, as `Kind` lists them; equal parts always give the same object."""
        key = (kind, label, args, keywords)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(kind, label, args, keywords)
        return found

    def name(self, identifier: str) -> Node:
        return self.node("name", identifier)

    def constant(self, text: str) -> Node:
        return self.node("constant", text)

    def rewrite(self, node: Node, change: Callable[[Node], Node | None]) -> Node:
        """Return the expression with nodes replaced by `change`, parents first.

        `change` returns the new node, or None to keep a node and visit its arguments; a replacement is not visited again. A
        shared node is visited once.
        """
        known: dict[Node, Node] = {}

        def renewed(item: Node) -> Node:
            """Return the replacement of a node, found once for each node."""
            found = known.get(item)
            if found is None:
                found = known[item] = change(item) or over_args(item)
            return found

        def over_args(item: Node) -> Node:
            """Return a node with its arguments replaced; the same object if none changes."""
            if not item.args:
                return item
            args = tuple(map(renewed, item.args))
            if args == item.args:
                return item
            return self.node(item.kind, item.label, args, item.keywords)

        return renewed(node)


def keywords(call: Node) -> dict[str, Node]:
    """Return the keyword arguments of a call by name; those after `**` under "**"."""
    if not call.keywords:  # the usual case
        return {}
    count = len(call.keywords)
    return dict(zip(call.keywords, call.args[len(call.args) - count :], strict=True))


def arguments_of(call: Node, parameters: Iterable[str]) -> dict[str, Node]:
    """Return the arguments of a call by parameter, given the names of the parameters in order; those not passed are left out."""
    named = keywords(call)
    positional = call.args[1 : len(call.args) - len(named)]
    # A call may leave out the last parameters.
    return dict(zip(parameters, positional, strict=False)) | named


def is_of_module(node: Node) -> bool:
    """Return whether a node is a module of torch or of Python's maths, or a member of one: `torch`, `F.conv2d`."""
    root = node.root()
    return root.kind == "name" and root.label in WELL_KNOWN


@dataclass(frozen=True, slots=True)
class Assign:
    """An assignment `target = value` or `target op= value` to a name, a tuple or a subscript.

    Without a target (an `absent` node) it is a call for its effect, `x.exp_()`, or a `check`. `operator` is "+" for `+=`,
    `comments` are the user's lines above it.
    """

    target: Node
    value: Node
    operator: str = ""
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """An `if` statement; its test is a choice fixed for a call of the op: `bias is not None`, `reduction == "mean"`."""

    test: Node
    body: tuple["Statement", ...]
    orelse: tuple["Statement", ...] = ()
    comments: tuple[str, ...] = ()


Statement = Assign | If
Lines = tuple[Statement, ...]  # in execution order


def rewritten(
    graph: Graph,
    statements: Lines,
    change: Callable[[Node], Node | None],
) -> Lines:
    """Return statements with every expression rewritten by `Graph.rewrite`, targets included: names replaced, for example.

    `change` returns the new node for a node, or None to keep it.
    """

    def one(item: Statement) -> Statement:
        """Return one statement with its expressions rewritten."""
        if isinstance(item, If):
            body = rewritten(graph, item.body, change)
            orelse = rewritten(graph, item.orelse, change)
            return If(graph.rewrite(item.test, change), body, orelse, item.comments)
        target = graph.rewrite(item.target, change)
        return Assign(
            target, graph.rewrite(item.value, change), item.operator, item.comments
        )

    return tuple(one(item) for item in statements)


def renaming(graph: Graph, new: Mapping[str, str]) -> Callable[[Node], Node | None]:
    """Return a function for `Graph.rewrite` or `rewritten` that renames identifiers; `new` maps old names to new ones."""

    def change(node: Node) -> Node | None:
        found = new.get(node.label) if node.kind == "name" else None
        return graph.name(found) if found else None

    return change


def bound(target: Node) -> frozenset[str]:
    """Return the names a target assigns: `a` and `b` for `a, *b`; for `h[0]` the name of the container, `h`."""
    if target.kind == "subscript":
        return bound(target.args[0])
    if target.kind in ("tuple", "starred"):
        return frozenset(name for item in target.args for name in bound(item))
    return target.names()


def unpacked(target: Node, value: Node) -> list[tuple[Node, Node]]:
    """Return the pairs of target and value of `a, b = x, y`; any other assignment is one pair."""
    same = target.kind == value.kind == "tuple" and len(target.args) == len(value.args)
    # A star takes any number of values, so equal counts do not make pairs: `a, *b = x, y`.
    if same and all(part.kind != "starred" for part in (*target.args, *value.args)):
        return list(zip(target.args, value.args, strict=True))
    return [(target, value)]


def changed_parts(target: Node) -> tuple[Node, ...]:
    """Return the parts of a target that change a tensor in place: `v[0]` for `v[0], w`; the name `w` only gets a new value."""
    if target.kind == "subscript":
        return (target,)
    inner = target.args if target.kind in ("tuple", "starred") else ()
    return tuple(part for item in inner for part in changed_parts(item))


def expressions(*statements: Statement) -> Iterator[Node]:
    """Yield every expression read by statements and their branches.

    A target is read by `y += x`, and as a part of a tensor, `v[0] = x`; a mere name is not.
    """
    for item in statements:
        if isinstance(item, If):
            yield item.test
            yield from expressions(*item.body, *item.orelse)
            continue
        yield from (item.target,) if item.operator else changed_parts(item.target)
        yield item.value


def assignments(statements: Iterable[Statement]) -> Iterator[Assign]:
    """Yield the assignments in the order of their lines, in branches too."""
    for item in statements:
        if isinstance(item, If):
            yield from assignments((*item.body, *item.orelse))
        else:
            yield item


@dataclass(frozen=True, slots=True)
class Kept:
    """A forward kept as the user wrote it, for autograd to differentiate as a whole."""

    reason: str  # "there is a loop"
    location: Location  # of the reason
    lines: str  # the code above the last return
    value: str  # the value of the last return
    statements: Lines  # a sketch of the code's effect on names
    returned: tuple[Node, ...]  # values of all returns, the final one last


@dataclass(frozen=True, slots=True, eq=False)  # nodes compare by identity
class Formula:
    """Straight-line maths: statements, then the returned values (none for a whole backward).

    A `kept` formula has no statements, and a `body` as its result.
    """

    statements: Lines
    result: Node | None
    text: str  # as the user wrote it, for documentation
    location: Location  # its beginning
    comments: tuple[str, ...] = field(default=())  # above the return
    graph: Graph = field(default_factory=Graph, repr=False)
    kept: Kept | None = None
    # A function: the place, in the user's text, of the first syntax that a predicate accepts.
    locate: Callable[[Callable[[ast.AST], bool]], Location | None] = field(
        default=lambda wanted: None, repr=False
    )
    # A function: the lines of the user's text as the body of a function of some inputs, with
    # nothing rewritten, for a proof to compare with; () if there are none. See `own_text`.
    own_text: Callable[..., tuple[str, ...]] = field(
        default=lambda inputs, after=(): (), repr=False
    )

    def lines(self) -> Lines:
        """Return its statements and, as a last one without a target, its result: computing it may change a tensor."""
        if self.result is None:
            return self.statements
        return (*self.statements, Assign(self.graph.node("absent"), self.result))

    def expressions(self) -> Iterator[Node]:
        """Yield every expression it reads: of its statements, then its result."""
        yield from expressions(*self.statements)
        if self.result is not None:
            yield self.result

    def names(self) -> frozenset[str]:
        """Return every name it reads."""
        return frozenset(name for node in self.expressions() for name in node.names())

    def nodes(self) -> Iterator[Node]:
        """Yield every node of every expression it reads."""
        for expression in self.expressions():
            yield from expression.walk()
