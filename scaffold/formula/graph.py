"""The graph of a formula: hash-consed expression nodes under straight-line statements.

In: nothing but what the parser asks for. Out: `Node`s, `Statement`s and a `Formula`, all immutable.
Invariant: two equal expressions of one `Graph` are the same object, so `is` compares them.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from scaffold.errors import Location

Kind = Literal[
    "name",  # label: the identifier
    "value",  # what the derivation knows by this label, and writes out later. The user writes none
    "constant",  # label: the literal as the user spelled it
    "attribute",  # label: the attribute; args: the value
    "call",  # args: the callee, then positional, then keyword arguments
    "subscript",  # args: the value, the index
    "slice",  # args: lower, upper, step; an absent one is an `absent` node
    "absent",
    "tuple",
    "list",
    "dict",  # args: keys and values by turns. The user writes none
    "starred",
    "unary",  # label: "-", "+", "~" or "not"
    "binary",  # label: the operator
    "compare",  # label: the operators, separated by commas
    "boolean",  # label: "and" or "or"
    "conditional",  # args: the test, the value if true, the value if false
    "lambda",  # args: its parameters, each a name or a starred one, then the value, which reads them all. The user writes none
    "comprehension",  # label: "-size for size in"; args: what it goes over. The user writes none
    "check",  # label: "assert" or "raise"; args: the test and the words, or the error
    "words",  # label: an f-string; args: the values in it
    "body",  # label: a whole forward as it stands; args: every expression in it
]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One expression. Compare nodes of one graph with `is`."""

    kind: Kind
    label: str = ""
    args: tuple["Node", ...] = ()
    # Of a call: the names of its last arguments; "**" unpacks.
    keywords: tuple[str, ...] = ()

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, parents first; each comes once, however often it is used."""
        return iter(_walked(self) if self.args else (self,))

    def names(self) -> frozenset[str]:
        """The identifiers that this expression reads."""
        return _names(self)


@lru_cache(maxsize=4096)  # every pass goes over the same few hundred expressions
def _walked(root: Node) -> tuple[Node, ...]:
    found, waiting = dict[Node, None](), [root]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting.extend(reversed(node.args))
    return tuple(found)


@lru_cache(maxsize=8192)  # every pass asks it of the same few hundred expressions
def _names(node: Node) -> frozenset[str]:
    return frozenset(item.label for item in node.walk() if item.kind == "name")


class Graph:
    """Makes nodes; an expression that was made before is returned as it was."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[object, ...], Node] = {}

    def node(
        self,
        kind: Kind,
        label: str = "",
        args: tuple[Node, ...] = (),
        keywords: tuple[str, ...] = (),
    ) -> Node:
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
        """The expression with every node that `change` answers for replaced, parents first.

        A shared node is asked about once.
        """
        known: dict[Node, Node] = {}

        def renewed(item: Node) -> Node:
            found = known.get(item)
            if found is None:
                found = known[item] = change(item) or over_args(item)
            return found

        def over_args(item: Node) -> Node:
            if not item.args:
                return item
            args = tuple(map(renewed, item.args))
            if args == item.args:
                return item
            return self.node(item.kind, item.label, args, item.keywords)

        return renewed(node)


@dataclass(frozen=True, slots=True)
class Assign:
    """`target = value`, or `target op= value`; a target is a name, a tuple or a subscript.

    Without a target (an `absent` node) it is a call for its effect, `x.exp_()`, or a `check`.
    """

    target: Node
    value: Node
    operator: str = ""
    comments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    """A choice that is fixed for a call: `bias is not None`, `reduction == "mean"`."""

    test: Node
    body: tuple["Statement", ...]
    orelse: tuple["Statement", ...] = ()
    comments: tuple[str, ...] = ()


Statement = Assign | If
Lines = tuple[Statement, ...]  # in the order in which they run


def rewritten(
    graph: Graph,
    statements: Lines,
    change: Callable[[Node], Node | None],
) -> Lines:
    """Statements with every expression rewritten as `Graph.rewrite` does, targets included."""

    def one(item: Statement) -> Statement:
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
    """A change for `rewrite` that gives names other identifiers."""

    def change(node: Node) -> Node | None:
        found = new.get(node.label) if node.kind == "name" else None
        return graph.name(found) if found else None

    return change


def changed_parts(target: Node) -> tuple[Node, ...]:
    """The parts of tensors that are assigned: of `v[0], w` it is `v[0]`."""
    if target.kind == "subscript":
        return (target,)
    inner = target.args if target.kind in ("tuple", "starred") else ()
    return tuple(part for item in inner for part in changed_parts(item))


def expressions(statement: Statement) -> Iterator[Node]:
    """Every expression that a statement reads, those of its branches included."""
    if isinstance(statement, If):
        yield statement.test
        for item in (*statement.body, *statement.orelse):
            yield from expressions(item)
        return
    if statement.operator:
        yield statement.target
    else:
        yield from changed_parts(statement.target)
    yield statement.value


def assignments(statements: Iterable[Statement]) -> Iterator[Assign]:
    """The assignments in the order of their lines, those of branches included."""
    for item in statements:
        if isinstance(item, If):
            yield from assignments((*item.body, *item.orelse))
        else:
            yield item


@dataclass(frozen=True, slots=True)
class Kept:
    """A forward that stays as the user wrote it, for autograd to differentiate as a whole."""

    reason: str  # "there is a loop"
    location: Location  # of what is the reason
    lines: str  # the code above the last return
    value: str  # what that returns
    statements: Lines  # a sketch: what the code does to its names
    returned: tuple[Node, ...]  # of every return, the last one of the code last


@dataclass(frozen=True, slots=True, eq=False)  # nodes are the same or they are not
class Formula:
    """Straight-line maths: statements, then the values it returns (none for a whole backward).

    A `kept` one has no statements, and a `body` as its result.
    """

    statements: Lines
    result: Node | None
    text: str  # as the user wrote it, for documentation
    location: Location  # where it begins
    comments: tuple[str, ...] = field(default=())  # those above the return
    graph: Graph = field(default_factory=Graph, repr=False)
    kept: Kept | None = None
    # Where the first syntax that is wanted stands.
    locate: Callable[[Callable[[ast.AST], bool]], Location | None] = field(
        default=lambda wanted: None, repr=False
    )
    # The body of a function of these inputs, with nothing rewritten; () for none.
    own_text: Callable[..., tuple[str, ...]] = field(
        default=lambda inputs, after=(): (), repr=False
    )

    def expressions(self) -> Iterator[Node]:
        """Every expression that it reads: of its statements, and its result."""
        for item in self.statements:
            yield from expressions(item)
        if self.result is not None:
            yield self.result

    def names(self) -> frozenset[str]:
        """Every name that it reads."""
        return frozenset(name for node in self.expressions() for name in node.names())

    def nodes(self) -> Iterator[Node]:
        """Every node of every expression that it reads."""
        for expression in self.expressions():
            yield from expression.walk()
