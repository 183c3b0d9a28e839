"""Optional inputs: turning `a if bias is not None else b` in the forward into a more readable `if` statement.

In: statements with `x @ w + bias if bias is not None else x @ w`. Out: `out = x @ w`, then `if bias is not None:
...`.
Invariant: the same values, and no computation that the chosen branch would have left out.

Few forwards spell such a choice out (3 of 661 known ops); `x @ w + bias` with an optional `bias` becomes one, as in
each example of a linear layer. Words: a conditional is droppable if one value is an operation with the other as an
operand, so that without `bias` the operation is dropped: `both` is the larger value, `alone` the operand that
remains.
"""

from scaffold.formula import Assign, Graph, If, Lines, Node, Statement, changed_in_place
from scaffold.formula.names import take

STEMS = {"+": "total", "-": "difference", "*": "product"}


class Unfolder:
    """Unfolder of one body's conditionals, except in assignments to `unsplit` targets; new names avoid `taken`.

    Such a target is the gradient of one tensor of a variadic input: it must stay one expression.
    """

    def __init__(
        self, graph: Graph, taken: set[str], unsplit: frozenset[str] = frozenset()
    ) -> None:
        self.graph, self.taken, self.unsplit = graph, taken, unsplit

    def block(self, statements: Lines) -> Lines:
        """Return a body in which each conditional on an optional input is an `if` statement."""
        return tuple(line for item in statements for line in self._statement(item))

    def result(self, name: str, value: Node) -> tuple[Lines, Node]:
        """Return statements and the value to return; a value that needs an `if` is assigned to `name`, the output's."""
        if _droppable(value) is None:
            return self._hoisted(value)
        target = self.graph.name(name)
        return self._assign(target, value, ()), target

    def _statement(self, item: Statement) -> Lines:
        """Return the lines for a statement, with droppable conditionals in its value written as `if`s.

        In `y += a if t else b`, and of `x[0] = ...`, the conditional gets a name first.
        """
        if isinstance(item, If):
            body, orelse = self.block(item.body), self.block(item.orelse)
            return (If(item.test, body, orelse, item.comments),)
        if item.target.label in self.unsplit:
            return (item,)
        if item.operator or item.target.kind != "name":
            before, value = self._hoisted(item.value)
            return (*before, Assign(item.target, value, item.operator, item.comments))
        return self._assign(item.target, item.value, item.comments)

    def _assign(self, target: Node, value: Node, comments: tuple[str, ...]) -> Lines:
        """Return `target = alone`, then `if bias is not None: target = target + bias`; one line for a value without such a choice.

        `both` is the value with the optional, `alone` the operand of it that remains without.
        """
        choice = _droppable(value)
        # `y = x + y if t else x`: the first line, `y = x`, would spoil the y that is added.
        if choice is None or _reads_later(target.label, *choice):
            before, plain = self._hoisted(value)
            return (*before, Assign(target, plain, "", comments))
        test, both, alone = choice
        begun = self._assign(target, alone, comments)
        kept = tuple(target if arg is alone else arg for arg in both.args)
        given = Assign(target, self.graph.node("binary", both.label, kept))
        return (*begun, If(test, (given,)))

    def _hoisted(self, value: Node) -> tuple[Lines, Node]:
        """Return lines for the droppable conditionals inside a value, and the value over their names.

        `f(x @ w + bias if bias is not None else x @ w)` -> `total = x @ w`, ..., `f(total)`. Only for those always
        evaluated: an operand of `and` may not be.
        """
        if any(changed_in_place(value)):  # the order of evaluation matters
            return (), value
        before: list[Statement] = []

        def lift(node: Node) -> Node | None:
            """Return the name for a droppable conditional, after assigning it in a line `before`; None for other nodes."""
            choice = None if node is value else _droppable(node)
            if choice is not None:
                target = self.graph.name(take(self.taken, STEMS[choice[1].label]))
                before.extend(self._assign(target, node, ()))
                return target
            # Only the first operand is always evaluated.
            if node.kind in ("conditional", "boolean"):
                first, *rest = node.args
                args = (self.graph.rewrite(first, lift), *rest)
                return self.graph.node(node.kind, node.label, args)
            return None

        plain = self.graph.rewrite(value, lift)
        return tuple(before), plain


def _droppable(node: Node) -> tuple[Node, Node, Node] | None:
    """Return test, value with the optional, and value without it, of `x @ w + bias if bias is not None else x @ w`; else None.

    Droppable: without `bias` one operator is dropped, and its other operand is left. None too if that is a mere name:
    then an expression is as clear.
    """
    match node:
        case Node(
            "conditional", _, (test, Node("binary", "+" | "-" | "*") as both, alone)
        ):
            # Once: of `a * a if t else a` no single operand is dropped.
            if alone.kind != "name" and sum(arg is alone for arg in both.args) == 1:
                return test, both, alone
    return None


def _reads_later(name: str, test: Node, both: Node, alone: Node) -> bool:
    """Return whether the `if` would read `name`, the target assigned on the line above it: `y = x + y if t else x`."""
    others = [test, *(arg for arg in both.args if arg is not alone)]
    return any(name in other.names() for other in others)
