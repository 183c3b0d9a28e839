"""Where calls of the file's functions stand in an expression, and what takes their place.

In: an expression, in the order in which Python evaluates it. Out: the expression with values in place of the calls, and
the statements that have to run before it. Invariant: nothing is moved across a change that it could see, nor out of a
choice.
"""

import ast
import copy
from typing import TYPE_CHECKING

from scaffold.formula.arguments import Refusal, changes, is_pure, is_random, own_name
from scaffold.formula.resolve import Function
from scaffold.formula.substitution import named

if TYPE_CHECKING:
    from scaffold.formula.inline import Inliner

Valued = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr


class Sites(ast.NodeTransformer):
    """Visits one expression; `before` is what runs ahead of it, `whole` whether it was nothing but a call.

    Nobody looks at the value of an `idle` one, a statement of its own.
    """

    def __init__(
        self,
        inliner: "Inliner",
        known: dict[str, Function],
        root: ast.expr | None = None,
        target: ast.expr | None = None,
        conditional: bool = False,
        idle: bool = False,
    ) -> None:
        self.inliner, self.known = inliner, known
        self.direct = isinstance(root, ast.Call)
        self.target, self.conditional, self.idle = target, conditional, idle
        self.before: list[ast.stmt] = []
        self.whole = False
        self.depth = 0
        self.seen: list[ast.expr] = []  # what Python has evaluated so far

    def visit(self, node: ast.AST) -> ast.expr:
        self.depth += 1
        found: ast.expr = super().visit(node)
        self.depth -= 1
        if isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant):
            self.seen.append(found)
        return found

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = self.inliner.called(node.func, self.known)
        earlier = list(self.seen)
        if function is None:
            node.func = self.visit(node.func)
            if _is_dotted(node.func):  # `torch.tanh`, which nothing can change
                self.seen = earlier[:]
        node.args = [part for item in node.args for part in _unpacked(self.visit(item))]
        for word in node.keywords:
            word.value = self.visit(word.value)
        if function is None:
            return node
        self.seen = earlier
        whole = self.direct and self.depth == 1
        before, value = self.inliner.instance(
            node,
            function,
            self.known,
            self.target if whole else None,
            self.conditional,
            whole and self.idle,
        )
        if not whole and not self.conditional and not is_pure([value]):
            before, value = self._named(before, value)
        self._check_order(node, function, before)
        self.before += before
        self.whole = self.whole or whole
        return value

    def _named(
        self, before: list[ast.stmt], value: ast.expr
    ) -> tuple[list[ast.stmt], ast.expr]:
        """The statements with one more for a value that has to be made at once, and its name."""
        own = self.inliner.free("value")
        name = ast.copy_location(ast.Name(own, ast.Load()), value)
        return [*before, named(own, value)], name

    def _check_order(
        self, node: ast.Call, function: Function, before: list[ast.stmt]
    ) -> None:
        swapped = (
            (changes(before) and self.seen)
            or (before and changes(self.seen))
            or (is_random(before) and is_random(self.seen))
        )
        if swapped:
            shown = own_name(function.name)
            message = f"'{shown}' would run before what stands in front of it"
            raise Refusal(node, message, "give its value a name in a line above")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id.startswith("@") or node.id in self.known:
            shown = own_name(node.id)
            hint = f"call it: {shown}(...)"
            raise Refusal(node, f"the function '{shown}' is used as a value", hint)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.visit(node.test)
        node.body, node.orelse = self._chosen(node.body), self._chosen(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        first, *others = node.values
        node.values = [self.visit(first), *map(self._chosen, others)]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        node.left = self.visit(node.left)
        first, *others = node.comparators
        node.comparators = [self.visit(first), *map(self._chosen, others)]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node  # no formula holds one

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_Lambda  # type: ignore[assignment]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        made = isinstance(node.value, ast.Call)
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Tuple(items), ast.Constant(int(at))) if (
                made and at < len(items) and is_pure(items)
            ):
                return items[at]
        return node

    def _chosen(self, node: ast.expr) -> ast.expr:
        """An expression that is evaluated only in some runs."""
        outer, self.conditional = self.conditional, True
        found = self.visit(node)
        self.conditional = outer
        return found


def _is_dotted(node: ast.expr) -> bool:
    """Whether it is names alone: `F.relu`, `x.exp`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _unpacked(value: ast.expr) -> list[ast.expr]:
    """`f(*(a, b))` is `f(a, b)`."""
    match value:
        case ast.Starred(ast.Tuple(items)):
            return items
    return [value]


def as_statement_if(item: Valued, value: ast.IfExp) -> ast.If:
    """`y = a if c else b` as a statement."""
    parts: list[list[ast.stmt]] = []
    for chosen in (value.body, value.orelse):
        part = copy.copy(item)
        if isinstance(item, ast.AnnAssign):
            part = ast.copy_location(ast.Assign([item.target], chosen), item)
        part.value = chosen
        parts.append([part])
    return ast.copy_location(ast.If(value.test, *parts), item)


def place_holder(item: ast.stmt) -> ast.stmt:
    """What stands for a statement that was reported, so that the others can be read."""
    target = item.targets[0] if isinstance(item, ast.Assign) else None
    nothing = ast.copy_location(ast.Constant(None), item)
    if isinstance(target, ast.Name | ast.Tuple):
        return ast.copy_location(ast.Assign([target], nothing), item)
    if isinstance(item, ast.Return):
        return ast.copy_location(ast.Return(nothing), item)
    hole = ast.copy_location(ast.Name("_", ast.Store()), item)
    return ast.copy_location(ast.Assign([hole], nothing), item)
