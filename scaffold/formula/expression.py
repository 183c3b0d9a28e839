"""One expression: `ast` -> `Node`.

`statements` and `assertions` call it for each expression of the user's text, with the names known there.

Words: an *optional* is an input that may be None, `present` the optionals known not to be None at a place (proved by tests
around it, or by asserts above); one is read *untested* if nothing proves it, and is *needed* if an assert is to prove it; a
name is *absent* if it may be None; an expression is *passed on* if a value may be or contain it unchanged.

In: an `ast` expression. Out: its node; `+`, `-` or `*` with an optional operand becomes a conditional without that
operand if it is None. Invariant: only the syntax listed here is accepted; everything else is a problem at its place. An
optional tensor may be read untested as an argument that may be None.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from scaffold.formula.constant_folding import BINARY, COMPARE, UNARY, opposite_of
from scaffold.formula.equations import wrong_equation
from scaffold.formula.graph import Graph, Node
from scaffold.formula.optionality import (
    Guarded,
    checked_for_none,
    guards,
    is_present,
    takes_none,
)
from scaffold.formula.text import BUILTINS, TOO_LARGE, WELL_KNOWN, Scope
from scaffold.primitives.calls import facts_of_attribute, facts_of_call
from scaffold.primitives.facts import MOVING


class Source(Protocol):
    """The text that contains an expression."""

    graph: Graph
    scope: Scope
    locals: set[str]  # names assigned so far
    asserts: bool  # whether it may add assertions about its inputs

    def resolve(self, node: ast.Name) -> None:
        """Report a name unknown at this point."""

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> None:
        """Report a problem at a node."""

    def spelled(self, item: ast.Constant) -> str:
        """Return the source of a literal."""


# Operators that may have an optional operand: without it the other one is left. `x / bias` is no such case.
WITH_OPTIONAL = ("+", "-", "*")
LARGEST = int(sys.float_info.max)
NO_DICT = "use names: weight_a = ..., or if and elif for modes"
ELSEWHERE = "put it into a function of your own and use --import 'module:name'"


class ExpressionParser:
    """A parser of the expressions of one formula into one graph."""

    def __init__(
        self, source: Source, optional: frozenset[str], tensors: frozenset[str]
    ) -> None:
        """Prepare to parse; `optional` names may be None, `tensors` cannot be called."""
        self.source, self.optional, self.tensors = source, optional, tensors
        self.graph, self.fail = source.graph, source.fail
        self.tests: list[tuple[Node, bool]] = []  # surrounding tests, with outcomes
        # Optionals read untested, each with the tests of other names around it, for `needs`.
        self.needed: dict[str, list[tuple[Node, bool]]] = {}
        self.passed: list[ast.expr] = []  # values assigned as they are

    @contextmanager
    def under(self, test: Node, *, holds: bool) -> Iterator[None]:
        """Note a test as true (`holds`) or false, for the parsing within this context: it is in this branch of the test."""
        self.tests.append((test, holds))
        yield
        self.tests.pop()

    def assigned(self, item: ast.expr, present: Guarded) -> Node:
        """Return the node of the value of an assignment; an optional assigned as it is, `y = bias`, is not asked to be present."""
        self.passed = [*_passed_on(item)]
        return self.parse(item, present)

    def parse(self, item: ast.expr, present: Guarded = frozenset()) -> Node:
        """Return the node of an expression; the optionals in `present` are known not to be None here."""
        match item:
            case ast.Name():
                return self._name(item, present)
            case ast.Attribute():
                return self._attribute(item, present)
            case ast.Call():
                return self._call(item, present)
            case ast.Constant():
                return self._constant(item)
            case ast.BinOp():
                return self._binary(item, present)
            case ast.Subscript(value, index):
                args = (self.parse(value, present), self.parse(index, present))
                return self.graph.node("subscript", "", args)
            case ast.Tuple(items):
                return self.graph.node("tuple", "", self._all(items, present))
            case ast.UnaryOp(operator, operand):
                inner = self.parse(operand, present)
                return self.graph.node("unary", UNARY[type(operator)], (inner,))
            case ast.Compare():
                return self._compare(item, present)
            case ast.Slice():
                return self._slice(item, present)
            case ast.IfExp():
                return self._conditional(item, present)
            case ast.BoolOp():
                return self._boolean(item, present)
            case ast.List(items):
                return self.graph.node("list", "", self._all(items, present))
            case ast.Starred():
                self.fail(item, "a star must stand in a call, a list or a tuple")
                return self.graph.node("absent")
        return self.other(item, present)

    def other(self, item: ast.expr, present: Guarded) -> Node:
        """Report an expression not allowed in a formula, a lambda for example; subclasses accept further kinds."""
        return self.refused(item)

    def refused(self, item: ast.expr) -> Node:
        """Report an expression not allowed in a formula; the node is a stand-in, so parsing goes on to later problems."""
        kind, hint = _words_on(item)
        self.fail(item, f"{kind} is not allowed in a formula", hint)
        return self.graph.node("absent")

    def absent_name(self, item: ast.expr, present: Guarded) -> str | None:
        """Return the name of an optional input, not known to be present, if the expression is just this name; else None.

        The parser treats such a name apart where it is allowed: as an argument, or beside `+`.
        """
        if isinstance(item, ast.Name) and item.id in self.optional - present:
            return item.id
        return None

    def absent_operand(self, item: ast.expr, present: Guarded) -> str | None:
        """Return the name of an operand possibly None here, perhaps reshaped: `bias[:, None]`, `bias.view(1, -1)`; else None."""
        if self.optional <= present:
            return None  # saves reading the slow table of ops that move elements
        inner = item
        while (source := _unmoved(inner)) is not None:
            inner = source
        return self.absent_name(inner, present)

    def needs(self) -> tuple[list[Node], Guarded]:
        """Return asserts for the optionals read untested so far, and the names present after them; forget these reads.

        Usually it is `assert bias is not None`. For a read under tests inside the statement (`further`) it is `assert not training
        or bias is not None`. That proves the name present in some runs only, so it is not among the names returned.
        """
        found, asserted = list[Node](), set[str]()
        for name, tests in self.needed.items():
            # Tests still open here stand around the assert, too; only the ones inside the statement go into it.
            presence, further = is_present(self.graph, name), tests[len(self.tests) :]
            for test, holds in reversed(further):  # "either the test fails, or ..."
                other = opposite_of(self.graph, test) if holds else test
                presence = self.graph.node("boolean", "or", (other, presence))
            found.append(self.graph.node("check", "assert", (presence,)))
            if not further:
                asserted.add(name)
        self.needed = {}
        return found, frozenset(asserted)

    def _name(self, item: ast.Name, present: Guarded) -> Node:
        """Return the node of a name; note an optional possibly None here to be asserted, or report it; report an unknown name."""
        if item.id in self.optional - present:
            if self._comes_with_others(item):
                # The first read decides: the tests are copied, since they end before `needs` is asked.
                self.needed.setdefault(item.id, [*self.tests])
            else:
                hint = f"write: ... if {item.id} is not None else ..."
                self.fail(item, f"'{item.id}' may be None here", hint)
        if item.id not in WELL_KNOWN and item.id not in BUILTINS:
            self.source.resolve(item)
        return self.graph.name(item.id)

    def _comes_with_others(self, item: ast.Name) -> bool:
        """Return whether an untested optional is used under a test of another name: `if training: y = x + bias`.

        It is then meant to come with the other, and an assertion can say so. A value only assigned does not count. `self.tests`
        are the tests around the place; under a test of the name itself (`if bias is None`) the read is a mistake.
        """
        if not self.source.asserts or not self.tests:
            return False
        is_assigned = any(item is one for one in self.passed)
        is_tested = any(item.id in test.names() for test, _ in self.tests)
        return not is_assigned and not is_tested

    def _constant(self, item: ast.Constant) -> Node:
        """Return the node of a literal as the user spelled it; report bytes and too large numbers."""
        if isinstance(item.value, bytes):
            self.fail(item, "bytes are not allowed in a formula")
        if isinstance(item.value, int) and abs(item.value) > LARGEST:
            self.fail(item, TOO_LARGE, "for infinity write math.inf")
            return self.graph.constant("0")  # it may have too many digits to write
        if item.value is ...:  # of `x[..., 0]`
            return self.graph.constant("...")
        return self.graph.constant(self.source.spelled(item))

    def _attribute(self, item: ast.Attribute, present: Guarded) -> Node:
        """Return the node of an attribute; report one such as `__class__`, a way around the rules for formulas."""
        if item.attr.startswith("__"):
            self.fail(
                item, f"dunder attribute '{item.attr}' is not allowed in a formula"
            )
        return self.graph.node(
            "attribute", item.attr, (self.parse(item.value, present),)
        )

    def _call(self, item: ast.Call, present: Guarded) -> Node:
        """Return the node of a call; report a wrong callee, a repeated keyword, an einsum equation unfit for its operands."""
        values = [*item.args, *(keyword.value for keyword in item.keywords)]
        keywords = tuple(keyword.arg or "**" for keyword in item.keywords)
        for position, name in enumerate(keywords):
            # `f(**a, **b)` is fine: several dicts are no repeated keyword.
            if name != "**" and name in keywords[:position]:
                self.fail(item.keywords[position], f"'{name}' is given twice")
        self._check_callee(item.func)
        # Inputs surely one tensor each, not several.
        # A name assigned in the formula may be a list by now, `x = [x, y]`.
        single = self.tensors - self.source.locals - self.source.scope.variadic
        if problem := wrong_equation(item, single):
            self.fail(item, *problem)
        # Names of values: `h.f(bias)` is a method of one, no function of the user's.
        known = self.tensors | self.source.locals | BUILTINS
        # Without optionals there is no None to pass, and the look-up is saved.
        none_allowed = takes_none(item, known) if self.optional else ()
        args = (
            self.parse(item.func, present),
            *(
                self._argument(value, present, position in none_allowed)
                for position, value in enumerate(values)
            ),
        )
        return self.graph.node("call", "", args, keywords)

    def _argument(self, item: ast.expr, present: Guarded, none_allowed: bool) -> Node:
        """Parse an argument of a call; with `none_allowed` it may be the bare name of an optional."""
        name = self.absent_name(item, present) if none_allowed else None
        return self._element(item, present | {name} if name else present)

    def _check_callee(self, callee: ast.expr) -> None:
        """Report a call of a number or a tensor, such as `2(x + 1)`: a product is meant."""
        match callee:
            case ast.Constant(int() | float() as number):
                hint = f"to multiply: {number} * (...)"
                self.fail(callee, f"'{number}' is a number and cannot be called", hint)
            # A name that the formula assigns may be a function by now: `x = F.relu`.
            case ast.Name(name) if name in self.tensors - self.source.locals:
                hint = f"to multiply: {name} * (...)"
                # An input may be called `sum`; then `sum(x)` is no call of the builtin.
                if name in BUILTINS:
                    hint = f"to call the builtin, rename the input '{name}'"
                self.fail(callee, f"'{name}' is a tensor and cannot be called", hint)

    def _slice(self, item: ast.Slice, present: Guarded) -> Node:
        """Return the node of a slice, with an `absent` node for a missing bound."""
        absent = self.graph.node("absent")
        parts = (item.lower, item.upper, item.step)
        args = tuple(self.parse(part, present) if part else absent for part in parts)
        return self.graph.node("slice", "", args)

    def _binary(self, item: ast.BinOp, present: Guarded) -> Node:
        """Return the node of an operator; with an operand possibly None it is a conditional.

        `x + bias` -> `x + bias if bias is not None else x`. If both may be None, or for an operator other than `+`, `-` and `*`,
        it is no conditional, and the read of an absent one is reported. `alone` is the other operand, `-x` for `bias - x`.
        """
        operator = BINARY[type(item.op)]
        left = self.absent_operand(item.left, present)
        right = self.absent_operand(item.right, present)
        name = left or right
        if name is None or (left and right) or operator not in WITH_OPTIONAL:
            args = (self.parse(item.left, present), self.parse(item.right, present))
            return self.graph.node("binary", operator, args)
        there = present | {name}
        args = (self.parse(item.left, there), self.parse(item.right, there))
        both = self.graph.node("binary", operator, args)
        alone = args[1] if left else args[0]
        if left and operator == "-":
            alone = self.graph.node("unary", "-", (alone,))
        return self.graph.node(
            "conditional", "", (is_present(self.graph, name), both, alone)
        )

    def _boolean(self, item: ast.BoolOp, present: Guarded) -> Node:
        """Return the node of `and` or `or`; a later operand is parsed knowing that the earlier ones are true, or false for `or`.

        So in `bias is not None and bias.sum() > 0` the second `bias` is present.
        """
        args, settled, is_and = list[Node](), present, isinstance(item.op, ast.And)
        with ExitStack() as tests:
            for value in item.values:
                args.append(self.parse(value, settled))
                tests.enter_context(self.under(args[-1], holds=is_and))
                if_true, if_false = guards(value)
                settled = settled | (if_true if is_and else if_false)
        label = "and" if is_and else "or"
        return self.graph.node("boolean", label, tuple(args))

    def _compare(self, item: ast.Compare, present: Guarded) -> Node:
        """Return the node of a comparison; in a test for None the tested name may be None.

        `present` are the optionals known not to be None; any other may be read in such a test alone.
        """
        tested = checked_for_none(item)
        known = present | {tested[0]} if tested else present
        args = tuple(
            self.parse(value, known) for value in (item.left, *item.comparators)
        )
        label = ",".join(COMPARE[type(operator)] for operator in item.ops)
        return self.graph.node("compare", label, args)

    def _conditional(self, item: ast.IfExp, present: Guarded) -> Node:
        """Return the node of `a if test else b`; in each branch the optionals proved by the test are present."""
        if_true, if_false = guards(item.test)
        test = self.parse(item.test, present)
        with self.under(test, holds=True):
            body = self.parse(item.body, present | if_true)
        with self.under(test, holds=False):
            orelse = self.parse(item.orelse, present | if_false)
        return self.graph.node("conditional", "", (test, body, orelse))

    def _all(self, items: list[ast.expr], present: Guarded) -> tuple[Node, ...]:
        return tuple(self._element(item, present) for item in items)

    def _element(self, item: ast.expr, present: Guarded) -> Node:
        """Return the node of an item of a list, a tuple or a call, which may have a star: `*shape`."""
        if isinstance(item, ast.Starred):
            return self.graph.node("starred", "", (self.parse(item.value, present),))
        return self.parse(item, present)


def _unmoved(item: ast.expr) -> ast.expr | None:
    """Return the operand of an expression that only moves or selects elements, `x` for `x.view(-1)` and `x[0]`; else None."""
    match item:
        case ast.Subscript(value):
            return value
        case ast.Call(ast.Attribute(value, word)):
            found = facts_of_call(word)
        case ast.Attribute(value, word):
            found = facts_of_attribute(word)
        case _:
            return None
    moves = {facts.category for facts in found} <= MOVING
    # An unknown word has no facts, and the empty set is a part of MOVING.
    return value if found and moves else None


def _passed_on(item: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions a value may be or contain unchanged: both sides of a choice, each item of a tuple.

    An optional among them, `y = bias`, may be None without harm.
    """
    match item:
        case ast.IfExp(_, body, orelse):
            parts = [body, orelse]
        case ast.Tuple(parts) | ast.List(parts):
            pass
        case _:
            yield item
            return
    for part in parts:
        yield from _passed_on(part)


def _words_on(item: ast.expr) -> tuple[str, str]:
    """Return the name of a rejected kind of expression, and the advice for it."""
    comprehension = ("a comprehension", "list the values: [f(a), f(b)]")
    return {
        "Lambda": ("a lambda", "write what it returns in its place"),
        "ListComp": comprehension,
        "GeneratorExp": comprehension,
        "SetComp": comprehension,
        "DictComp": comprehension,
        "JoinedStr": ("an f-string", ELSEWHERE),
        "NamedExpr": ("an assignment expression", "assign the name on a line above"),
        "Dict": ("a dict", NO_DICT),
        "Set": ("a set", "write a tuple"),
        "Await": ("await", ELSEWHERE),
        "Yield": ("yield", "return a list"),
        "YieldFrom": ("yield", "return a list"),
    }.get(type(item).__name__, (type(item).__name__, ELSEWHERE))
