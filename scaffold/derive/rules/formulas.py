"""Evaluate the formula of a rule, `grad * y`, into ops of the graph.

`reverse` does it for each op that it differentiates, `lower/expressions` for a rule's `value` and `when`.

In: a formula's node, and the op of each name in it. Out: the op of its value. Invariant: all primitives are made by the smart
constructors; a test of literal arguments is decided here.

Words: a word of formulas is a function that is no primitive, such as `sum_to`. `literal(op)` is the value of a Python value that is
written out, else `UNKNOWN`: only the call tells it.
"""

from collections.abc import Mapping

from scaffold.derive.graph.conditions import given, opposite
from scaffold.derive.graph.op import Op, literal, tensors
from scaffold.derive.graph.static_values import ARITHMETIC as PYTHON
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    binary,
    dotted,
    may_be_none,
)
from scaffold.derive.lower.evaluator import Evaluator
from scaffold.derive.rules.formula_words import WORDS
from scaffold.derive.rules.several_results import item_at
from scaffold.derive.rules.table import BUILDERS, Rule, Table
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import UNKNOWN, Assign, Node, compared, keywords

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div", "@": "matmul"}


def value_of(make: Maker, table: Table, rule: Rule, args: Mapping[str, Op]) -> Op:
    """Return the `value` of a rule, its call written in primitives (`x * sigmoid(x)` of silu), for the given arguments."""
    formula, env, table = table.value(rule), dict(args), table.home(rule)
    # PyTorch takes complex tensors here, but the rule is for real ones: complex inputs are refused later.
    if "takes_complex" in rule.facts.flags:
        make.program.real_in_calls.update(tensors(args.values()))
    evaluator = FormulaEvaluator(make, env, table)
    for step in formula.statements:
        assert isinstance(step, Assign)  # guaranteed by the checks of tables
        env[step.target.label] = evaluator.value(step.value)
    assert formula.result is not None
    return evaluator.value(formula.result)


def condition_of(make: Maker, table: Table, rule: Rule, args: Mapping[str, Op]) -> Op:
    """Return the `when` of a rule as a test on the arguments of a call, for one that only the call decides."""
    test = table.condition(rule)
    assert test is not None, rule.name
    return FormulaEvaluator(make, args, table.home(rule)).value(test)


class FormulaEvaluator(Evaluator):
    """An evaluator of formulas of one rule, for the arguments of one op."""

    def __init__(
        self,
        make: Maker,
        env: Mapping[str, Op],
        table: Table,
        for_shape: bool = False,
    ) -> None:
        """Evaluate formulas of a rule of `table`, over the op of each name in `env`.

        With `for_shape` only the shape of the result is read, so nothing may be simplified to a number, as `x - x` would be.
        """
        super().__init__(make.applier, env)
        self.make = make
        self.table = table  # the rule's table
        self.for_shape = for_shape

    def attribute(self, node: Node) -> Op:
        """Return a constant of `math`, as `math.pi`; raise `UnsupportedError` for other attributes."""
        if not (dotted(node) or "").startswith("math."):
            raise UnsupportedError(f".{node.label} in a formula")
        return self.program.static(self._copied(node))

    def _copied(self, node: Node) -> Node:
        """Return a node of the table's graph as a node of the program's: each graph has nodes of its own."""
        args = tuple(map(self._copied, node.args))
        return self.program.graph.node(node.kind, node.label, args, node.keywords)

    def operator(self, node: Node, *values: Op) -> Op:
        """Return the op of an operator: a primitive of tensors, or of Python values the number, the bool or the expression."""
        if node.kind == "compare":
            return self._compare(node.label, *values)
        if node.label == "not":
            plain = literal(values[0])
            if plain is not UNKNOWN:
                return self.make.const(not plain)
            return self.program.python("unary", "not", *values)
        if node.label == "-" and len(values) == 1:
            return self.make.neg(*values)
        if node.label in ARITHMETIC:
            # Of Python values alone, a simpler form has the same value, and no shape.
            simplified = not (self.for_shape and any(tensors(values)))
            make = self.make if simplified else self.make.applier.named
            return make(ARITHMETIC[node.label], *values)
        return self._by_operator(node.label, *values)

    def _compare(self, label: str, left: Op, right: Op) -> Op:
        """Return a comparison: a constant if it is known, a test of Python values, or an elementwise comparison of tensors."""
        if label in ("is", "is not") and literal(right) is None and left.is_tensor:
            return self._presence(label, left)
        if left.is_tensor or right.is_tensor:
            return self._by_operator(label, left, right)
        settled = self._settled(label, left, right)
        if settled is not None:
            return self.make.const(settled)
        return self.program.python("compare", label, left, right)

    def _presence(self, label: str, tensor: Op) -> Op:
        """Return `tensor is None` or `is not None` (`label`): a constant, or a test if the tensor is an optional input."""
        there = given(self.program, tensor)
        if literal(there) is not UNKNOWN:
            return self.make.const((label == "is not") == literal(there))
        return there if label == "is not" else opposite(self.program, there)

    def _settled(self, label: str, left: Op, right: Op) -> bool | None:
        """Return the outcome of a comparison of Python values, `2 > 1` or `dim is None`; None if only the call tells.

        A value that is unknown, but never None, differs from None.
        """
        one, two = literal(left), literal(right)
        if label in ("is", "is not") and two is None and one is UNKNOWN:
            if may_be_none(self.program, left):
                return None
            return label == "is not"
        return compared(label, one, two)

    def other(self, node: Node) -> Op:
        """Return `and` or `or` of several tests, without those known; raise `UnsupportedError` for any other expression."""
        if node.kind != "boolean":
            raise UnsupportedError(f"{node.kind} in a formula")
        values = [self.value(arg) for arg in node.args]
        decisive = node.label == "or"  # the value that settles the whole
        rest = dict[Op, None]()  # each test once
        for value in values:
            plain = literal(value)
            if plain is UNKNOWN:
                rest[value] = None
            elif bool(plain) is decisive:
                return self.make.const(decisive)
        if not rest:
            return self.make.const(not decisive)
        if len(rest) == 1:
            return next(iter(rest))
        return self.program.python("boolean", node.label, *rest)

    def test(self, node: Node) -> Op | bool:
        """Return a test that has one outcome in each call, or the outcome as a bool if it is known before."""
        told = self.value(node)
        plain = literal(told)
        return told if plain is UNKNOWN else bool(plain)

    def item(self, op: Op, position: int) -> Op:
        """Return one of several results, made anew if the forward does not use it."""
        return item_at(self.make, op, position)

    def call(self, node: Node) -> Op:
        """Return a call of a primitive by its name, a word of formulas, or a function of Python values.

        Raise `UnsupportedError` for any other name.
        """
        callee, *args = node.args
        # `count(x - y, dim)`: the argument must keep its shape, whatever its numbers are.
        if not self.for_shape and _reads_metadata(callee):  # of its arguments
            make, env, table = self.make, self.env, self.table
            return FormulaEvaluator(make, env, table, for_shape=True).call(node)
        if callee.kind != "name":
            return self._python_call(node)
        count = len(args) - len(node.keywords)
        values = [self.value(arg) for arg in args[:count]]
        named = {key: self.value(arg) for key, arg in keywords(node).items()}
        if callee.label in WORDS:
            return WORDS[callee.label](self.make, *values)
        # Python's own: for tensors, the table has `minimum` and others.
        if callee.label in ("min", "max"):
            return self.program.called(callee.label, *values)
        if callee.label not in self.table:
            raise UnsupportedError(f"{callee.label} in a formula")
        rule = self.table.rule(callee.label)
        given = self._in_order(rule, values, named)
        if rule.value is not None:
            return value_of(self.make, self.table, rule, self._completed(rule, given))
        return self.make(rule.op, *given)

    def _completed(self, rule: Rule, values: list[Op]) -> dict[str, Op]:
        """Return the argument of each parameter of a rule, by name, with defaults for the missing ones."""
        whole = self.make.applier.completed(rule, rule.by_parameter(values))
        assert whole is not None, rule.name
        return whole

    def _in_order(self, rule: Rule, values: list[Op], named: dict[str, Op]) -> list[Op]:
        """Return the arguments by position: keywords in their places, and defaults for parameters between them."""
        if not named:
            return values
        rest = rule.parameters[len(values) :]
        last = max(at for at, item in enumerate(rest) if item.name in named)
        for item in rest[: last + 1]:
            default = item.default
            assert item.name in named or default is not None
            values.append(named[item.name] if item.name in named else self.make.applier.default(default))  # type: ignore[arg-type]
        return values

    def _python_call(self, node: Node) -> Op:
        """Return the call of a function of Python values, as `math.sqrt(n)`."""
        callee, *args = node.args
        function = self.program.static(self._copied(callee))
        return self.program.python("call", "", function, *map(self.value, args))

    def _by_operator(self, label: str, *values: Op) -> Op:
        """Return an operator other than arithmetic on tensors, `x > 0` or `n % 2`, by its rule or as a Python value."""
        if label in PYTHON and all(value.kind == "static" for value in values):
            return binary(self.make.program, label, *values)
        bound = self.make.applier.meant_rule("operator", label, values)
        if bound is None:
            raise UnsupportedError(f"{label} in a formula")
        return self.make(bound.rule.op, *values)


def _reads_metadata(callee: Node) -> bool:
    """Return whether a callee is a word with a Python value, as `count(x, dim)`, so `x` is read for its shape only."""
    return callee.label in BUILDERS and not BUILDERS[callee.label].tensor
