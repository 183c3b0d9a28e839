"""Python values of the graph: their expressions, arithmetic on them, and facts known before a call.

In: static ops. Out: nodes, static ops, or certain facts. Invariant: the same value; numbers are folded as an author
would, so a fold is not made if it would print a long decimal. If an expression is needed as text, for a call without
a rule, sizes in it are placeholders until the printer knows a tensor to read them from.

For scales, exponents, sizes and flags in a forward: its gradient is to show `6 * x`, not `2 * (3 * x)`. Words: a
`static` op is a Python value, a number, a tuple or a string, rather than a tensor; a literal is a `const` written
out, any other value is `UNKNOWN` before the call. `op.is_python(kind, ...)`: it is an operation on Python values, as
`n + 1`. Declarations (`program.declared`) are what the signature says of names: which are ints, which may be None. A
local assigned once stands for its value (`program.assigned`).
"""

import math
from collections.abc import Sequence

from scaffold.derive.graph import shapes
from scaffold.derive.graph.op import (
    Constant,
    Expression,
    Named,
    OfShape,
    Op,
    Operation,
    Operator,
    Program,
    SizeOf,
    literal,
    literal_text,
    number,
)
from scaffold.derive.graph.shapes import Dim, Shape, UnnamedSize
from scaffold.derive.graph.sizes import is_made_of_named_sizes
from scaffold.formula import (
    UNKNOWN,
    Node,
    Number,
    as_number,
    computed,
    evaluated,
    has_many_digits,
    literal_value,
)

# --- Python values as expressions.


NO_SHAPE = "it needs a shape that no input tells; declare the dims of the inputs"


class UnsupportedError(Exception):
    """A forward that cannot be differentiated piece by piece."""


def static_node(program: Program, op: Op) -> Node:
    """Return the expression of a Python value; a size in it is a placeholder until the printer knows a tensor to read it from."""
    graph = program.graph
    match op.data:
        case Expression(node):
            return node
        case Operator(kind, label):
            return graph.node(kind, label, _argument_nodes(program, op))
    if op.rule == "const":
        return number_node(program, op.value)
    if op.rule == "list":
        return graph.node("tuple", "", _argument_nodes(program, op))
    if op.rule == "starred":
        return graph.node("starred", "", _argument_nodes(program, op))
    return program.placeholder(op)


def _argument_nodes(program: Program, op: Op) -> tuple[Node, ...]:
    """Return the expressions of an op's arguments."""
    return tuple(static_node(program, arg) for arg in op.args)


def number_node(program: Program, value: object) -> Node:
    """Return the expression of a Python literal; a negative number is a minus and a number, an infinite one `math.inf`."""
    graph = program.graph
    if isinstance(value, float) and not math.isfinite(value):
        word = graph.node(
            "attribute", "nan" if math.isnan(value) else "inf", (graph.name("math"),)
        )
        return graph.node("unary", "-", (word,)) if value < 0 else word
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return graph.node("unary", "-", (graph.constant(literal_text(-value)),))
    return graph.constant(literal_text(value))


def dotted(node: Node) -> str | None:
    """Return the dotted path of a callee, `"torch.nn.functional.relu"`; None for any other expression, as a method of a call."""
    if node.kind == "name":
        return node.label
    if node.kind == "attribute":
        inner = dotted(node.args[0])
        return f"{inner}.{node.label}" if inner else None
    return None


# --- Arithmetic on values known before the call: numbers are folded as an author would, the rest is written as an expression.


ARITHMETIC = frozenset({"+", "-", "*", "/", "//", "%", "**"})
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
# Numbers without an effect on the left and on the right of each operator.
NEUTRAL = {
    "+": (0, 0),
    "-": (None, 0),
    "*": (1, 1),
    "/": (None, 1),
    "**": (None, 1),
}


def fold(program: Program, rule: str, args: tuple[Op, ...]) -> Op | None:
    """Return the Python value of a primitive applied to Python values: `mul(2, x)` -> `2 * x`, `exp(x)` -> `math.exp(x)`.

    None if Python has no such function. A rule of the table may so be applied to numbers as to tensors.
    """
    if rule in ("conj", "real"):
        return _conj_or_real(program, args[0], rule)
    # `math` has no sigmoid: only that of 0 is a plain number.
    if rule == "sigmoid" and number(args[0]) == 0:
        return program.const(0.5)
    if rule == "neg":
        return _negated(program, args[0])
    facts = program.table(rule)
    label = facts.operator if facts is not None else ""
    if label in ARITHMETIC and len(args) == 2:  # not `+x`
        return binary(program, label, *args)
    if label in COMPARISONS:
        return program.python("compare", label, *args)
    # `math.prod` has no `dim`.
    if rule in vars(math) and len(args) == 1:
        return program.called(f"math.{rule}", *args)
    return program.called("abs", *args) if rule == "abs" else None


def difference(program: Program, one: Op, two: Op) -> Op:
    """Return one Python value minus another."""
    return binary(program, "-", one, two)


def may_be_none(program: Program, op: Op) -> bool:
    """Return whether an input or a Python value may be None, by the declarations of the op; a choice of Python values may be.

    Then code that reads it stands under a test. False for a value computed otherwise, as `n + 1`.
    """
    match op.data:
        case Named(name):
            return op.rule == "input" and name in program.declared.optional
        case Expression(Node("name", name)):
            value = program.assigned(name)
            if value is None:
                # An attribute, or a name assigned twice: it may be None unless its annotation excludes that.
                return name not in program.declared.never_none
            return may_be_none(program, value)
    return op.is_python("conditional")


def known_value(op: Op) -> object:
    """Return the value of an expression of literals, as `math.inf` or `2 * 3`; `UNKNOWN` for anything else."""
    found = literal(op)
    return evaluated(as_text(op)) if found is UNKNOWN else found


def as_text(op: Op) -> Node:
    """Return a Python value as an expression to inspect, not to print: a size in it is the name `_`, without a value."""
    match op.data:
        case Expression(node):
            return node
        case Operator(kind, label):
            return Node(kind, label, tuple(map(as_text, op.args)))
        case Constant(_, value):
            return Node("constant", repr(value))
    return Node("name", "_")  # a size: known to no evaluation


def is_complex(op: Op) -> bool:
    """Return whether a static value contains an imaginary number, `2j * n`: it has a conjugate then."""
    if op.rule == "const":
        return isinstance(op.value, complex)
    return any(map(_is_imaginary, op.walk()))


def _is_imaginary(op: Op) -> bool:
    """Return whether an op itself, not its arguments, has an imaginary number, as `2j`."""
    if isinstance(number(op), complex):
        return True
    return op.rule == "static" and any(
        item.kind == "constant" and item.label.endswith("j")
        for item in op.expression.walk()
    )


def _conj_or_real(program: Program, value: Op, rule: str) -> Op:
    """Return the conjugate or the real part of a Python number, a real one itself; `rule` is "conj" or "real"."""
    known = number(value)
    if isinstance(known, complex):
        return program.const(known.conjugate() if rule == "conj" else known.real)
    if not is_complex(value):
        return value
    if rule == "real":
        return program.python("attribute", "real", value)
    method = program.python("attribute", "conjugate", value)
    return program.python("call", "", method)


def part_of(program: Program, op: Op) -> Dim | None:
    """Return the size `N` of a Python value `N // k`: for `x.shape[-1] // 2`, the size of the last dim; None for other values.

    A slice up to such a value, or from it on, then has a size that can be written: `n`, or `size - n`.
    """
    match program.operation(op):
        case Operation("//", (size, count)):
            by = literal(count)
            # By 1 or more: then the part is surely not longer than the size.
            if size.rule == "size" and isinstance(by, int) and by >= 1:
                return program.size_of(size)
    return None


def item_of_sequence(program: Program, op: Op) -> Op:
    """Return the item meant by `rows[0]` if the list is written out in the forward; any other value unchanged.

    What is known of the item then holds for the subscript.
    """
    if not op.is_python("subscript"):
        return op
    whole, index = op.args
    items, at = _items(program, whole), literal(index)
    if isinstance(at, int) and -len(items) <= at < len(items):
        return items[at]
    return op


def _items(program: Program, op: Op) -> Sequence[Op]:
    """Return the items of `(a, b)` or `[a, b]`; none for a list known only by name."""
    value = program.value_of(item_of_sequence(program, op))
    written_out = value.is_python("tuple") or value.is_python("list")
    return value.args if value.rule == "list" or written_out else ()


def is_int(program: Program, op: Op) -> bool:
    """Return whether a Python value is certainly one int, not a tuple or a float; False if that is unknown."""
    if op.rule in ("size", "rank", "count", "ratio") or isinstance(number(op), int):
        return True
    match op.data:
        case Expression(Node("name", name)):
            value = program.assigned(name)
            if value is None:
                return name in program.declared.ints
            return is_int(program, value)
        case Operator("attribute", "ndim"):
            return True
        case Operator("subscript"):
            whole, index = op.args
            one = not index.is_python("slice")
            return one and whole.is_python("attribute", "shape")
        case Operator("unary", "-"):
            return is_int(program, op.args[0])
        # Not `**`: `2 ** -1` is a float.
        case Operator("binary", "+" | "-" | "*" | "//" | "%"):
            return all(is_int(program, part) for part in op.args)
        case Operator("conditional"):  # the first argument is the test
            return all(is_int(program, part) for part in op.args[1:])
        case Operator("call"):
            # The first argument of a call is what is called: `x.dim` of `x.dim()`.
            if op.args[0].is_python("attribute", "dim", "numel"):
                return True
            callee = dotted(as_text(op.args[0]))
            # The callee and one argument: `round(x)` is an int, `round(x, 1)` is not.
            return callee in ("int", "len", "math.ceil", "math.floor") or (
                callee == "round" and len(op.args) == 2
            )
    return False


def is_literal(op: Op) -> bool:
    """Return whether a Python value is a literal without a minus: `2`, not `-2` and not `n`."""
    if op.rule == "static":
        return op.expression.kind == "constant"
    value = number(op)
    return op.rule == "const" and not (isinstance(value, int | float) and value < 0)


def is_sequence(program: Program, op: Op) -> bool:
    """Return whether a Python value is certainly a tuple or a list, as sizes may be: `x.shape[1:]`, `(2, n)`."""
    if op.rule in ("list", "shape"):
        return True
    match op.data:
        case Expression(Node("comprehension")):
            return True
        case Expression(Node("name", name)):
            value = program.assigned(name)
            if value is None:
                return name in program.declared.sequences
            return is_sequence(program, value)
        case Operator("attribute", "shape"):
            return True
        case Operator("call"):
            if op.args[0].is_python("attribute", "size"):  # `x.size()`, not `x.size(0)`
                return len(op.args) == 1
            return dotted(as_text(op.args[0])) in ("tuple", "list")
        case Operator("subscript"):
            whole, index = op.args
            if index.is_python("slice"):
                return is_sequence(program, whole)
            return any(is_sequence(program, item) for item in _items(program, whole))
        case Operator("tuple" | "list" | "comprehension"):
            return True
        # One is enough: what is added to a tuple is one too, and `(1,) * n` is a tuple.
        case Operator("binary", "+" | "*"):
            return any(is_sequence(program, part) for part in op.args)
        case Operator("conditional"):
            return all(is_sequence(program, part) for part in op.args[1:])
    return False


def is_no_string(program: Program, op: Op) -> bool:
    """Return whether a Python value is certainly not a string: a number, or several. Then `p == "fro"` is known to be False."""
    if op.is_tensor or is_int(program, op) or is_sequence(program, op):
        return True
    match op.data:
        case Expression(Node("name", name)):
            value = program.assigned(name)
            if value is None:
                return name in program.declared.no_strings
            return is_no_string(program, value)
        case Expression(Node("constant", text)):
            return not isinstance(literal_value(text), str)
        case Constant(_, value):
            return not isinstance(value, str)
        case Operator("unary" | "compare"):
            return True
        case Operator("binary", label):
            return label in NO_STRING_OPERATORS
        case Operator("conditional"):
            return all(is_no_string(program, part) for part in op.args[1:])
    return False


# Strings have `+`, `*` and `%`: `"a" + "b"`, `"a" * 2`, `"%s" % n`.
NO_STRING_OPERATORS = frozenset({"-", "/", "//", "**"})


def _negated(program: Program, value: Op) -> Op:
    """Return `-value` without a double minus: `-a` -> `a`, `-2 * a` -> `2 * a`."""
    plain = number(value)
    if plain is not None:
        return program.const(-plain)
    if value.is_python("unary", "-"):
        return value.args[0]
    if is_negative(value):
        factor, rest = value.args
        return binary(program, "*", _negated(program, factor), rest)
    return program.python("unary", "-", value)


def is_negative(value: Op) -> bool:
    """Return whether it is a negative number, or a product with one as first factor: `-0.5 * beta`. A name is never.

    Such a value is printed with a minus in front.
    """
    plain = number(value.args[0] if value.is_python("binary", "*") else value)
    return isinstance(plain, int | float) and plain < 0


def binary(program: Program, label: str, one: Op, two: Op) -> Op:
    """Return arithmetic on two Python values: the number if both are known and its text is short, else the simplest expression.

    `a + 0` -> `a`, `a + a` -> `2 * a`. `label` is the operator.
    """
    left, right = number(one), number(two)
    if left is not None and right is not None:
        result = computed(label, left, right, short=True)
        if result is not None:
            return program.const(result)
    before, after = NEUTRAL.get(label, (None, None))
    if left is not None and left == before:
        return two
    if right is not None and right == after:
        return one
    # Two equal numbers come this far if their sum has no short text: they stay a sum.
    if label == "+" and one is two and left is None:
        return binary(program, "*", program.const(2), one)
    if label == "+":  # `eps + (1 - eps)`: the weights of smoothed labels
        for part, rest in ((one, two), (two, one)):
            if rest.is_python("binary", "-") and rest.args[1] is part:
                return rest.args[0]
    if label == "*":
        product = _product(program, one, two)
        if product is not None:
            return product
    return program.python("binary", label, one, two)


def _product(program: Program, left: Op, right: Op) -> Op | None:
    """Return a product in a simpler form, `a * 2` -> `2 * a`, `-a * b` -> `-(a * b)`, `sqrt(a) * sqrt(a)` -> `a`.

    None if it has no simpler form.
    """
    factor, other = number(left), number(right)
    if other is not None and (factor is None or _stands_behind(factor, other)):
        return binary(program, "*", right, left)
    signed = _signs_out(program, left, right)
    if signed is not None:
        return signed
    first, second = _under_root(left), _under_root(right)
    if first is not None and second is not None:
        if left is right:
            return first
        root = binary(program, "*", second, first)
        return program.called("math.sqrt", root)
    # `a * (2 * b)` -> `2 * a * b`: the number to the front
    if right.is_python("binary", "*", "/") and is_literal(right.args[0]):
        found = _times_product(program, factor, right)
        if found is not None:
            return found
    # `3 * (0.044715 * b)` -> `3 * 0.044715 * b`
    if factor is not None and right.is_python("binary", "*"):
        first, rest = right.args
        if number(first) is not None:
            factors = binary(program, "*", left, first)
            return program.python("binary", "*", factors, rest)
    return None


def _stands_behind(factor: Number, other: Number) -> bool:
    """Return whether a number of many digits has a short one behind it, `0.044715 * 3`: an author writes that first."""
    return has_many_digits(factor) and not has_many_digits(other)


def _under_root(op: Op) -> Op | None:
    """Return `x` of `math.sqrt(x)`, so a product of two roots becomes one root; None for other values."""
    # Two arguments: what is called, and its one argument.
    if not op.is_python("call") or len(op.args) != 2:
        return None
    callee, value = op.args
    return value if callee.is_python("attribute", "sqrt") else None


def _signs_out(program: Program, left: Op, right: Op) -> Op | None:
    """Return a product with its minus signs outside: `-a * b` -> `-(a * b)`, `-2 * -a` -> `2 * a`.

    None without a sign to move: `-2 * a` has its simplest form.
    """
    parts, minus = list[Op](), False
    for arg in (left, right):
        value = number(arg)
        if arg.is_python("unary", "-"):
            parts.append(arg.args[0])
            minus = not minus
        elif isinstance(value, int | float) and value < 0:
            parts.append(program.const(-value))
            minus = not minus
        else:
            parts.append(arg)
    first, second = parts
    if first is left and second is right:
        return None
    factor = number(first)
    if minus and factor is not None:  # `-2 * a` is already simplest
        if second is right:
            return None
        return binary(program, "*", program.const(-factor), second)
    inner = binary(program, "*", first, second)
    return _negated(program, inner) if minus else inner


def _times_product(program: Program, factor: Number | None, product: Op) -> Op | None:
    """Return `factor` times a product or quotient with a literal first: 3, `2 * a` -> `6 * a`; 3, `2 / a` -> `6 / a`.

    None if the factor is unknown, or the new number has no short text.
    """
    assert isinstance(product.data, Operator)
    literal_factor, rest = product.args
    inner_factor = _literal_number(literal_factor)
    if factor is None or inner_factor is None:
        return None
    result = computed("*", factor, inner_factor, short=True)
    if result is None:
        return None
    # 0.5 times `2 * a` is `a`, but 0.5 times `2 / a` is `1 / a`.
    if result == 1 and product.data.label == "*":
        return rest
    return program.python("binary", product.data.label, program.const(result), rest)


def _literal_number(op: Op) -> Number | None:
    """Return the number of a literal, also of one kept as the user spelled it, `1e-06`; None if it is no number."""
    if op.rule == "static":
        return as_number(literal_value(op.expression.label))
    return number(op)


# --- Sizes by their names.
#
# In: a shape and a dim. Out: a static op. Invariant: a size with a name, or with an expression of its own, is represented by it.


def size_at(program: Program, shape: Shape, dim: int) -> Op:
    """Return the size of a dim as a Python value: a number, the forward's own value for it, a named size, or `shape[dim]`."""
    known = shapes.size(shape, dim)
    if isinstance(known, int):
        return program.const(known)
    if known is not None:
        noted = program.noted_size(known)
        if noted is not None:
            return noted
        # Written by names, `3*D`; a size that has none is read from the shape below.
        if not isinstance(known, UnnamedSize) or is_made_of_named_sizes(known):
            return program.op("size", (), SizeOf(known))
    return program.op("size", (program.const(dim),), OfShape(shape))


def is_length(op: Op) -> bool:
    """Return whether a Python value may be 0 as a size may: it is one, or is computed from one. Simplifications divide by no such."""
    return any(item.rule in ("size", "count", "ratio") for item in op.walk())
