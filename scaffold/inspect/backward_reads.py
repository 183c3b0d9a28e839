"""What backward reads of forward, said in forward's own names: the tensors that are saved, and the attributes of ctx.

In: the facts of a Function and the names of its outputs. Out: expressions over inputs, outputs and locals of forward.
Invariant: an expression has the value in backward that it had where it was kept: its names have one value each, and what
may differ from call to call, as a random number or a mode of PyTorch, is a reason rather than computed again.
"""

import ast
import builtins
import copy
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.formula import BUILTINS
from scaffold.inspect.facts import Facts, is_none
from scaffold.inspect.flow import Bound, Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.method_formulas import Unfit, asks_need, rebound
from scaffold.inspect.values import is_shapely
from scaffold.inspect.vocabulary import is_steady as is_steady_call
from scaffold.inspect.vocabulary import is_tensor_call

DEPTH = 10  # a chain of names longer than this is not followed
PURE = BUILTINS | {"reversed", "sorted", "str"}


class Read(NamedTuple):
    """One thing that backward reads."""

    name: str  # of the attribute of ctx; "" for a saved tensor
    value: ast.expr  # over the names of forward
    node: ast.expr  # as it stands
    step: Step


def handed(
    facts: Facts, outputs: tuple[str, ...], steady: bool = True
) -> tuple[Read, ...]:
    """The saved tensors in their order, then the attributes; unless `steady`, also what cannot be worked out again."""
    saver = facts.function.saver
    if saver is None:
        return ()
    return tuple(_handed(facts, _Scope(facts, saver, outputs, steady)))


def _handed(facts: Facts, scope: "_Scope") -> Iterator[Read]:
    saver = scope.saver
    calls = facts.context_calls(saver, "save_for_backward")
    if len(calls) > 1 or any(c.starred or c.step.guards for c in calls):
        raise Unfit(saver.node, "what is saved depends on the branch")
    for item in calls:
        for node in item.call.args:
            value = scope.in_forward(_present(node), item.step)
            yield Read("", value, node, item.step)
    seen: set[str] = set()
    for kept in facts.kept(saver):
        if kept.step.guards or kept.name in seen:
            raise Unfit(kept.target, f"ctx.{kept.name} has more than one value")
        seen.add(kept.name)
        value = scope.in_forward(_present(kept.value), kept.step)
        if scope.steady and not is_steady(facts, value):
            what = (
                f"ctx.{kept.name} may have another value where it is worked out again"
            )
            raise Unfit(kept.target, what)
        yield Read(kept.name, value, kept.value, kept.step)


def _present(node: ast.expr) -> ast.expr:
    """What is read where it is there: `x` of `x if ctx.needs_input_grad[0] else None`."""
    if isinstance(node, ast.IfExp) and is_none(node.orelse):
        test = node.test
        if asks_need(test) or _is_there(test):
            return node.body
    return node


def _is_there(test: ast.expr) -> bool:
    """`x is not None`."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and is_none(test.comparators[0])
    )


class _Scope:
    """The names of the method that keeps things, as forward has them."""

    def __init__(
        self, facts: Facts, saver: Method, outputs: tuple[str, ...], steady: bool
    ) -> None:
        self.facts, self.saver, self.steady = facts, saver, steady
        self.inputs = tuple(item.name for item in facts.inputs)
        self.results = (*outputs, *_results(facts)[len(outputs) :])
        self.separate = saver is not facts.function.forward

    def in_forward(self, node: ast.expr, step: Step) -> ast.expr:
        """An expression with every name replaced by what forward calls it."""
        if not self.separate and not self.steady:
            return node
        if not self.separate:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name):
                    self._check_one_value(inner)
            return node
        return self._translated(copy.deepcopy(node), step, DEPTH)

    def _check_one_value(self, node: ast.Name) -> None:
        """Refuse a name that means one thing where it is kept and another in a formula."""
        if rebound(self.saver, node.id):
            raise Unfit(node, f"'{node.id}' has several values in forward")

    def _translated(self, node: ast.expr, step: Step, depth: int) -> ast.expr:
        known = self._element(node, step)
        if known:
            return ast.Name(known, ast.Load())
        if isinstance(node, ast.Name):
            return self._named(node, step, depth)
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, field, self._translated(value, step, depth))
            elif isinstance(value, list):
                value[:] = [
                    self._translated(v, step, depth) if isinstance(v, ast.expr) else v
                    for v in value
                ]
        return node

    def _element(self, node: ast.expr, step: Step) -> str:
        """`inputs[0]`, `output[1]` and an output alone; '' for anything else."""
        if isinstance(node, ast.Name) and len(self.results) == 1:
            return self.results[0] if self._is(node, 1, step) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            at = node.slice.value
            for position, names in enumerate((self.inputs, self.results)):
                if self._is(node.value, position, step) and isinstance(at, int):
                    return names[at] if -len(names) <= at < len(names) else ""
        return ""

    def _is(self, node: ast.expr, position: int, step: Step) -> bool:
        """Whether an expression is the tuple of inputs, or what forward gave."""
        parameters = [item.name for item in self.saver.positional]
        if not isinstance(node, ast.Name) or position >= len(parameters):
            return False
        flow = self.saver.flow
        return node.id == parameters[position] and flow.is_parameter(node.id, step)

    def _named(self, node: ast.Name, step: Step, depth: int) -> ast.expr:
        flow = self.saver.flow
        if node.id not in flow.bindings and node.id not in flow.parameters:
            return node  # a name of the module
        bound = flow.definite(node.id, step)
        if bound is None or bound.value is None or depth == 0:
            raise Unfit(node, f"'{node.id}' has no one value where it is kept")
        return self._bound(node, bound, depth)

    def _bound(self, node: ast.Name, bound: Bound, depth: int) -> ast.expr:
        assert bound.value is not None
        step = self.saver.flow.steps[bound.order]
        if bound.element is None:
            return self._translated(copy.deepcopy(bound.value), step, depth - 1)
        for position, names in enumerate((self.inputs, self.results)):
            known = "" if bound.starred else "".join(names[bound.element :][:1])
            if known and self._is(bound.value, position, step):
                return ast.Name(names[bound.element], ast.Load())
        raise Unfit(node, f"what '{node.id}' is where it is kept cannot be told")


def _results(facts: Facts) -> tuple[str, ...]:
    """The names under which forward returns things; its last ones may be for backward alone."""
    values = facts.outputs[0].values if len(facts.outputs) == 1 else None
    return tuple(v.id if isinstance(v, ast.Name) else "" for v in values or ())


def is_steady(facts: Facts, value: ast.expr) -> bool:
    """Whether an expression has the same value when it is worked out again."""
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda | ast.Await | ast.NamedExpr | ast.Yield):
            return False
        if isinstance(node, ast.Call) and not _is_pure(facts, node):
            return False
    return True


def _is_pure(facts: Facts, call: ast.Call) -> bool:
    if is_shapely(call):
        return True
    name = torch_call(call, facts.names) or method_call(call, facts.names)
    if name:
        return is_tensor_call(name) and is_steady_call(name)
    dotted = facts.names.resolve(call.func)
    builtin = dotted in PURE and dotted in dir(builtins)
    return builtin or dotted.startswith("math.")
