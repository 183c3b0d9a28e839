"""Tell the tensors plain autograd saves for a backward: by the rules, all tensors read by each primitive's gradient.

A later in-place change would spoil these tensors: autograd refuses it, and so does a derived op; `expressions` and `statements`
ask.

In: ops of a lowered forward. Out: ops. Invariant: a saved view keeps its base; a tensor read only for its shape is not saved.

Words: a tensor is `retained` if autograd keeps it for a gradient; a value is `read` if a formula needs its numbers.
"""

from collections.abc import Iterator

from scaffold.derive.graph.op import Op, tensors
from scaffold.derive.rules.table import BUILDERS, Rule, Table
from scaffold.formula import Node, checked_for_none

# Rules with gradients in code: in those of products each factor reads the others, in `cat` none is read.
PRODUCTS = frozenset({"contraction", "linalg"})


def retained(table: Table, op: Op) -> Iterator[Op]:
    """Yield the tensors autograd saves for the gradient of one op; of a call without a rule, every tensor argument."""
    if op.rule == "call":
        yield from tensors(op.args)
    elif rule := table.of_op(op.rule):
        yield from _of_rule(table, rule, op)


def _of_rule(table: Table, rule: Rule, op: Op) -> Iterator[Op]:
    """Yield the tensors saved for an op's gradients by its rule: the arguments and results its formulas read.

    Only the formulas of active arguments count; of several formulas for one gradient, all of the same value, the first.
    """
    if rule.code is not None:
        yield from _of_code(rule, op)
        return
    args = rule.by_parameter(op.args)
    for name, arg in args.items():
        if name not in rule.formulas or not any(
            part.active for part in tensors((arg,))
        ):
            continue
        for read in values_read(table.gradients(rule, name)[0]):
            # By "result", or by its name if there are several: all are results of this one op.
            if read == "result" or read in rule.results:
                yield op
            elif read in args:
                yield from tensors((args[read],))


def _of_code(rule: Rule, op: Op) -> Iterator[Op]:
    """Yield each operand of a product or a linear-algebra op if another one is active: that one's gradient reads it."""
    if rule.category not in PRODUCTS:
        return
    operands = list(tensors(op.args))
    for operand in operands:
        # The gradient of `x` in `x @ y` reads y, and not x.
        if any(other.active for other in operands if other is not operand):
            yield operand


def values_read(node: Node) -> frozenset[str]:
    """Return the names whose values a formula reads: of `grad * x` both, of `sum_to(g, x)` only `g`, as it needs just the shape of `x`.

    Of a word (`BUILDERS`) the first argument is read if it is a gradient `g`, the others never. `x is None` reads no value.
    """
    if node.kind == "name":
        return frozenset({node.label})
    args = node.args if checked_for_none(node) is None else ()
    if node.kind == "call" and node.args[0].label in BUILDERS:
        word = BUILDERS[node.args[0].label]
        # Of `sum_to(g, x)` only g: x is read for its shape.
        args = node.args[1:2] if word.parameters[0] == "g" else ()
    elif node.kind == "call":
        # Without the function: no formula calls a method of a tensor.
        args = node.args[1:]
    return frozenset[str]().union(*map(values_read, args))


def storage(table: Table, op: Op) -> Op:
    """Return the tensor whose memory a view shares: of `x.t()[0]`, x."""
    return same_storage(table, op)[-1]


def same_storage(table: Table, op: Op) -> list[Op]:
    """Return a tensor, its base if it is a view, and so on down to the owner of the memory: `x.t()[0]`, `x.t()`, `x`."""
    found = [op]
    while (rule := table.of_op(op.rule)) and rule.facts.rearranges:
        op = next(tensors(op.args))
        found.append(op)
    return found
