"""Python values of the graph: how they are written, what arithmetic makes of them, what is known of them without a call.

In: static ops. Out: nodes, static ops, or what is sure. Invariant: the same value; numbers are folded as an author would, so a
fold that would print a long decimal is not made; a size stands as a placeholder until the printer knows where it can be read.
"""

import math
from collections.abc import Callable

from scaffold.derive.graph.op import (
    Expression,
    OfShape,
    Op,
    Operation,
    Program,
    SizeOf,
    literal,
    number,
)
from scaffold.derive.graph.shapes import Dim, Shape, UnnamedSize, position
from scaffold.formula import Node, Number, computed

# --- Python values as expressions.


NO_SHAPE = "it needs a shape that no input tells; declare the dims of the inputs"


class UnsupportedError(Exception):
    """The forward holds something that cannot be differentiated piece by piece."""


def static_node(program: Program, op: Op) -> Node:
    """The expression of a static value."""
    graph = program.graph
    if op.rule == "static":
        return op.expression
    if op.rule == "const":
        return number_node(program, op.value)
    if op.rule == "list":
        return graph.node(
            "tuple", "", tuple(static_node(program, arg) for arg in op.args)
        )
    if op.rule == "starred":
        return graph.node("starred", "", (static_node(program, op.args[0]),))
    return program.placeholder(op)


def number_node(program: Program, value: object) -> Node:
    """A literal; a negative number is a minus and a number."""
    graph = program.graph
    if isinstance(value, float) and not math.isfinite(value):
        word = graph.node(
            "attribute", "nan" if math.isnan(value) else "inf", (graph.name("math"),)
        )
        return graph.node("unary", "-", (word,)) if value < 0 else word
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return graph.node("unary", "-", (graph.constant(_short_literal(-value)),))
    return graph.constant(_short_literal(value))


def _short_literal(value: object) -> str:
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


# --- Arithmetic on what is known before the call: numbers are folded as an author would, the rest is written down.


OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "pow": "**",
    "pow_exponent": "**",
    "pow_base": "**",
    "floor_divide": "//",
    "remainder": "%",
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OF_MATH = frozenset(
    {"exp", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh"}
    | {"cosh", "tanh", "erf", "expm1", "asin", "acos", "atan", "floor", "ceil"}
)
Write = Callable[[Op], Node]


def fold(program: Program, rule: str, args: tuple[Op, ...], write: Write) -> Op | None:
    """The static value of a primitive of static values; None where Python has no such function."""
    if rule in ("conj", "real") and len(args) == 1:
        value = number(args[0])
        if isinstance(value, complex):
            plain = value.conjugate() if rule == "conj" else value.real
            return program.const(plain)
        if is_complex(args[0]):
            return _part(program, args[0], rule, write)
        return args[0]
    values = [number(arg) for arg in args]
    if rule == "sigmoid" and values == [0]:
        return program.const(0.5)
    if rule == "neg":
        return _negated(program, args[0], write)
    if rule in OPERATORS and len(args) == 2:
        return _binary(program, rule, args, values, write)
    graph = program.graph
    nodes = tuple(write(arg) for arg in args)
    if rule in COMPARISONS:
        return program.static(graph.node("compare", COMPARISONS[rule], nodes))
    if rule in OF_MATH and len(args) == 1:
        function = graph.node("attribute", rule, (graph.name("math"),))
        return program.static(graph.node("call", "", (function, *nodes)))
    if rule == "abs":
        return program.static(graph.node("call", "", (graph.name("abs"), *nodes)))
    return None


def may_be_none(program: Program, op: Op) -> bool:
    """Whether a Python value is one that may be None."""
    match op.data:
        case Expression(Node("name", name)):
            value = program.assigned(name)
            if value is None:
                return name not in program.declared.never_none
            return may_be_none(program, value)
        case Expression(Node("conditional")):
            return True
    return False


def is_complex(op: Op) -> bool:
    """Whether a static value is written with an imaginary number."""
    if isinstance(number(op), complex):
        return True
    return op.rule == "static" and any(
        item.kind == "constant" and item.label.endswith("j")
        for item in op.expression.walk()
    )


def _part(program: Program, value: Op, rule: str, write: Write) -> Op:
    """The conjugate or the real part of a complex number."""
    graph = program.graph
    if rule == "real":
        return program.static(graph.node("attribute", "real", (write(value),)))
    method = graph.node("attribute", "conjugate", (write(value),))
    return program.static(graph.node("call", "", (method,)))


def part_of(program: Program, op: Op) -> Dim | None:
    """The size of which a Python value is a part: of `x.shape[-1] // 2` that of the last dim."""
    match program.operation(op):
        case Operation("//", (size, count)):
            by = literal(count)
            if size.rule == "size" and isinstance(by, int) and by >= 1:
                return program.size_of(size)
    return None


def is_int(program: Program, op: Op) -> bool:
    """Whether a static value is sure to be one int, and no tuple."""
    if op.rule in ("size", "rank", "count") or isinstance(number(op), int):
        return True
    return op.rule == "static" and _is_int(program, op.expression)


def _is_int(program: Program, node: Node) -> bool:
    match node:
        case Node("name", name):
            value = program.assigned(name)
            if value is None:
                return name in program.declared.ints
            return is_int(program, value)
        case Node("value"):
            return True
        case Node("attribute", "ndim") | Node(
            "subscript", _, (Node("attribute", "shape"), _)
        ):
            return True
        case Node("call", _, (Node("attribute", "dim" | "numel"), *_)):
            return True
        case Node("call", _, (Node("name", "int" | "len"), *_)):
            return True
        case Node("call", _, (Node("name", "round"), _)):
            return True
        case Node(
            "call", _, (Node("attribute", "ceil" | "floor", (Node("name", "math"),)), _)
        ):
            return True
        case Node("conditional", _, (_, *parts)):
            return all(_is_whole(program, part) for part in parts)
        case Node("unary", "-", (inner,)):
            return _is_int(program, inner)
        case Node("binary", "+" | "-" | "*" | "//" | "%", (one, two)):
            return all(_is_whole(program, part) for part in (one, two))
    return False


def _is_whole(program: Program, node: Node) -> bool:
    """Whether a part of an int is one; a number beside one is taken for one."""
    return node.kind == "constant" or _is_int(program, node)


def is_sequence(program: Program, op: Op) -> bool:
    """Whether a static value is sure to be a tuple or a list."""
    return op.rule == "list" or (
        op.rule == "static" and _is_sequence(program, op.expression)
    )


def _is_sequence(program: Program, node: Node) -> bool:
    match node:
        case Node("tuple" | "list" | "comprehension"):
            return True
        case Node("name", name):
            value = program.assigned(name)
            if value is None:
                return name in program.declared.sequences
            return is_sequence(program, value)
        case Node("call", _, (Node("name", "tuple" | "list"), *_)):
            return True
        case Node("subscript", _, (whole, Node("slice"))):
            return _is_sequence(program, whole)
        case Node("binary", "+" | "*", parts):
            return any(_is_sequence(program, part) for part in parts)
        case Node("conditional", _, (_, *parts)):
            return all(_is_sequence(program, part) for part in parts)
    return False


def _negated(program: Program, value: Op, write: Write) -> Op:
    plain = number(value)
    if plain is not None:
        return program.const(-plain)
    node = write(value)
    if node.kind == "unary" and node.label == "-":
        return program.static(node.args[0])
    return program.static(program.graph.node("unary", "-", (node,)))


def _binary(
    program: Program,
    rule: str,
    args: tuple[Op, ...],
    values: list[Number | None],
    write: Write,
) -> Op:
    label = OPERATORS[rule]
    left, right = values
    if left is not None and right is not None:
        result = computed(label, left, right, short=True)
        if result is not None:
            return program.const(result)
    neutral = {"add": (0, 0), "mul": (1, 1), "sub": (None, 0), "div": (None, 1)}
    before, after = neutral.get(rule, (None, None))
    if left is not None and left == before:
        return args[1]
    if right is not None and right == after:
        return args[0]
    if rule == "add" and args[0] is args[1] and left is None:
        return _binary(program, "mul", (program.const(2), args[0]), [2, None], write)
    if rule == "mul":
        product = _product(program, args, values, write)
        if product is not None:
            return product
    if label == "**" and right == 1:
        return args[0]
    nodes = tuple(write(arg) for arg in args)
    return program.static(program.graph.node("binary", label, nodes))


def _product(
    program: Program,
    args: tuple[Op, ...],
    values: list[Number | None],
    write: Write,
) -> Op | None:
    """Numbers first and as one, signs before them; a root times itself is what it is the root of."""
    left, right = args
    if values[1] is not None and values[0] is None:
        return _binary(program, "mul", (right, left), [values[1], None], write)
    signed = _signs_out(program, args, values, write)
    if signed is not None:
        return signed
    one, two = write(left), write(right)
    match one, two:
        case Node("call", _, (Node("attribute", "sqrt"), Node("constant", text))), _:
            if one is two:
                plain = program.const(int(text)) if text.isdigit() else None
                return plain or program.static(one.args[1])
        case (
            Node("call", _, (Node("attribute", "sqrt"), first)),
            Node("call", _, (Node("attribute", "sqrt"), second)),
        ):
            inner = (program.static(item) for item in (second, first))
            root = write(fold(program, "mul", tuple(inner), write) or left)
            function = program.graph.node(
                "attribute", "sqrt", (program.graph.name("math"),)
            )
            return program.static(program.graph.node("call", "", (function, root)))
        case _, Node("binary", "*" | "/" as label, (Node("constant", text), rest)):
            return _scaled(program, values[0], label, text, rest)
    return None


def _signs_out(
    program: Program,
    args: tuple[Op, ...],
    values: list[Number | None],
    write: Write,
) -> Op | None:
    """`-a * b` as `-(a * b)`, `-2 * -a` as `2 * a`."""
    parts, minus = list[Op](), False
    for arg, value in zip(args, values, strict=True):
        node = write(arg)
        if value is None and node.kind == "unary" and node.label == "-":
            parts.append(program.static(node.args[0]))
            minus = not minus
        elif value is not None and not isinstance(value, complex) and value < 0:
            parts.append(program.const(-value))
            minus = not minus
        else:
            parts.append(arg)
    if all(part is arg for part, arg in zip(parts, args, strict=True)):
        return None
    if minus and number(parts[0]) is not None:  # `-2 * a` is as plain as can be
        if parts[1] is args[1]:
            return None
        plain = program.const(_negative(parts[0]))
        return _binary(program, "mul", (plain, parts[1]), [number(plain), None], write)
    inner = _binary(
        program, "mul", (parts[0], parts[1]), [number(part) for part in parts], write
    )
    return _negated(program, inner, write) if minus else inner


def _negative(op: Op) -> Number:
    value = number(op)
    assert value is not None
    return -value


def _scaled(
    program: Program, factor: Number | None, label: str, text: str, rest: Node
) -> Op | None:
    """A number times `2 * a` or `2 / a`."""
    if factor is None:
        return None
    whole = computed("*", factor, _number(text), short=True)
    if whole is None:
        return None
    if whole == 1 and label == "*":
        return program.static(rest)
    graph = program.graph
    scaled = number_node(program, whole)
    return program.static(graph.node("binary", label, (scaled, rest)))


def _number(text: str) -> Number:
    """The number that a literal is."""
    return float(text) if not text.isdigit() else int(text)


# --- Sizes by their names.
#
# In: a shape and a dim. Out: a static op. Invariant: a size that has a name, or an expression of its own, is that.


def size_at(program: Program, shape: Shape, dim: int) -> Op:
    """The size of a shape at a dim."""
    at = position(shape, dim)
    if at is not None and shape.dims is not None:
        size = shape.dims[at]
        if isinstance(size, int):
            return program.const(size)
        told = program.told_size(size)
        if told is not None:
            return told
        if not isinstance(size, UnnamedSize):
            return program.op("size", (), SizeOf(size))
    return program.op("size", (program.const(dim),), OfShape(shape))


def is_length(op: Op) -> bool:
    """Whether a Python value is a size, or is computed of one, so that it may be 0."""
    if op.rule in ("size", "count", "ratio"):
        return True
    return op.rule == "static" and any(
        node.kind == "value" for node in op.expression.walk()
    )
