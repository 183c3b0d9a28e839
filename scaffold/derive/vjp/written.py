"""Python values of a program as expressions.

In: static ops. Out: nodes. Invariant: a size is a placeholder, `<serial>`, until the printer knows where it can be read.
"""

import math

from scaffold.derive.negation import are_opposite, negated
from scaffold.derive.vjp.ir import Op, Program
from scaffold.formula import Assign, Graph, If, Node, Statement


class UnsupportedError(Exception):
    """The forward holds something that cannot be differentiated piece by piece."""


def static_node(program: Program, op: Op) -> Node:
    """The expression of a static value."""
    graph = program.graph
    if op.rule == "static" and isinstance(op.data, Node):
        return op.data
    if op.rule == "const":
        return number_node(program, op.value)
    if op.rule == "list":
        return graph.node(
            "tuple", "", tuple(static_node(program, arg) for arg in op.args)
        )
    if op.rule == "starred":
        return graph.node("starred", "", (static_node(program, op.args[0]),))
    return graph.name(f"<{op.serial}>")  # the printer knows where a size can be read


def number_node(program: Program, value: object) -> Node:
    """A literal; a negative number is a minus and a number."""
    graph = program.graph
    if isinstance(value, float) and not math.isfinite(value):
        word = graph.node(
            "attribute", "nan" if math.isnan(value) else "inf", (graph.name("math"),)
        )
        return graph.node("unary", "-", (word,)) if value < 0 else word
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return graph.node("unary", "-", (graph.constant(_short(-value)),))
    return graph.constant(_short(value))


def _short(value: object) -> str:
    """A literal as one writes it: `1e-6` rather than `1e-06`."""
    if not isinstance(value, float):
        return repr(value)
    digits, mark, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}" if mark else digits


def dotted(node: Node) -> str | None:
    """The path that a callee is, if it is one."""
    if node.kind == "name":
        return node.label
    if node.kind == "attribute":
        inner = dotted(node.args[0])
        return f"{inner}.{node.label}" if inner else None
    return None


def merged(lines: list[Statement]) -> list[Statement]:
    """Neighbours under the same test, or one and its opposite, as one `if`."""
    done: list[Statement] = []
    for line in lines:
        last = done[-1] if done else None
        if isinstance(line, If) and isinstance(last, If) and last.test is line.test:
            body = tuple(merged([*last.body, *line.body]))
            done[-1] = If(last.test, body, tuple(merged([*last.orelse, *line.orelse])))
        elif (
            isinstance(line, If)
            and isinstance(last, If)
            and not (last.orelse or line.orelse)
            and are_opposite(last.test, line.test)
        ):
            done[-1] = If(last.test, last.body, line.body)
        else:
            done.append(line)
    return done


def under(
    graph: Graph, tests: list[tuple[Node, int]], lines: list[Statement]
) -> list[Statement]:
    """Statements under tests, each of which holds (0) or does not (1)."""
    for test, at in reversed(tests):
        test = negated(graph, test) if at else test
        lines = [If(test, tuple(lines))]
    return lines


def without_copy(lines: list[Statement], sole: bool) -> tuple[Statement, ...]:
    """Statements whose last one copies what the one before has made: made under that name at once.

    Where the copy is the `sole` use, also in the branches of an `if`.
    """
    match lines:
        case [*before, Assign(made, value, "", comments), Assign(target, last)] if (
            last is made
        ):
            return (*before, Assign(target, value, "", comments))
        case [*before, If() as choice, Assign(target, last)] if sole:
            found = _assigned_in(choice, last, target)
            if found is not None:
                return (*before, found)
    return tuple(lines)


def _assigned_in(choice: If, made: Node, target: Node) -> If | None:
    """A choice that assigns another name, if all of its branches end with that assignment."""
    branches = list[tuple[Statement, ...]]()
    for body in (choice.body, choice.orelse):
        match body:
            case (*before, Assign(name, value, "", comments)) if name is made:
                branches.append((*before, Assign(target, value, "", comments)))
            case (*before, If() as inner):
                found = _assigned_in(inner, made, target)
                if found is None:
                    return None
                branches.append((*before, found))
            case _:
                return None
    return If(choice.test, branches[0], branches[1])
