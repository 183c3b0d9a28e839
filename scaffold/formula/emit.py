"""Nodes of a formula -> source text.

Every writer of generated code ends here: the forward, the backward and the texts of messages are nodes until then.

Words: an operator *binds tighter* than another if it takes its operands first, as `*` does in `a + b * c`; its *strength* in
PRECEDENCE is then larger. An operand that binds less tightly than its place needs parentheses: `(a + b) * c`.

In: nodes and statements. Out: expressions with no more parentheses than they need, and lines of code.
Invariant: parsing the output gives the same graph; line breaks are left to the formatter. `shown` text is the user's
own, unless it refers to names defined only in their file.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from scaffold.formula.assertions import with_words
from scaffold.formula.graph import If, Lines, Node, Statement
from scaffold.formula.text import Text, parse_source

ATOM = 16  # names, calls, literals: never in parentheses
PRECEDENCE = {  # as Python's grammar has it; larger binds tighter
    "or": 2,
    "and": 3,
    "not": 4,
    "|": 6,
    "^": 7,
    "&": 8,
    "<<": 9,
    ">>": 9,
    "+": 10,
    "-": 10,
    "*": 11,
    "@": 11,
    "/": 11,
    "//": 11,
    "%": 11,
    "**": 13,
}
CONDITIONAL, COMPARE, UNARY = 1, 5, 12


@lru_cache(maxsize=8192)  # each choice of names asks for the length of a line
def emit(node: Node) -> str:
    """Return the source of an expression."""
    return WRITERS[node.kind](node)


def emit_lines(statements: Iterable[Statement]) -> list[str]:
    """Return the lines of statements, nested ones indented by four spaces."""
    return [line for item in statements for line in _statement(item)]


def _statement(item: Statement) -> list[str]:
    """Return the lines of a statement, below its comments."""
    above = [f"# {comment}" if comment else "#" for comment in item.comments]
    if isinstance(item, If):
        return above + _choice(item, "if")
    if item.target.kind == "absent":
        return [*above, emit(item.value)]
    return [*above, f"{_bare(item.target)} {item.operator}= {_bare(item.value)}"]


def _choice(item: If, keyword: str) -> list[str]:
    """Return the lines of an `if`; an `if` alone in the other branch becomes an `elif`."""
    lines = [f"{keyword} {emit(item.test)}:", *_indented(item.body)]
    match item.orelse:
        # With comments of its own it stays an `if` below `else:`, so that they can stand above it.
        case (If(comments=()) as inner,):
            return lines + _choice(inner, "elif")
        case ():
            return lines
    return [*lines, "else:", *_indented(item.orelse)]


def _indented(statements: Lines) -> list[str]:
    return [f"    {line}" for line in emit_lines(statements)]


def _bare(node: Node) -> str:
    """Return the source of an expression without the parentheses of a tuple."""
    # The empty tuple is written as its parentheses: `x[()]`.
    return _elements(node) if node.kind == "tuple" and node.args else emit(node)


def _precedence(node: Node) -> int:
    """Return how tightly the outermost operator of an expression binds; names, calls and other atoms bind tightest."""
    if node.kind in ("binary", "boolean"):
        return PRECEDENCE[node.label]
    if node.kind == "unary":
        return PRECEDENCE["not"] if node.label == "not" else UNARY
    return {"conditional": CONDITIONAL, "lambda": CONDITIONAL, "compare": COMPARE}.get(
        node.kind, ATOM
    )


def _within(node: Node, least: int) -> str:
    """Return the source, in parentheses if it binds less tightly than the strength `least` its place needs."""
    text = emit(node)
    return f"({text})" if _precedence(node) < least else text


def _binary(node: Node) -> str:
    """Return the source of a binary operation, spaced as black does it.

    The right operand gets parentheses also if it binds as tightly: `a - (b - c)`.
    """
    left, right = node.args
    strength = PRECEDENCE[node.label]
    if node.label == "**":  # black: `x**2`, but `f(x) ** 2`
        space = "" if _is_simple(left) and _is_simple(_first(right)) else " "
        # `(a**b)**c` needs its parentheses, `a ** -b` and `a**b**c` do not.
        base, exponent = _within(left, strength + 1), _within(right, UNARY)
        return f"{base}{space}**{space}{exponent}"
    return f"{_within(left, strength)} {node.label} {_within(right, strength + 1)}"


def _first(exponent: Node) -> Node:
    """Return the first operand of an exponent, as black chooses spaces by it: `n` for `-n` and `n**2`."""
    while exponent.kind == "unary" or exponent.label == "**":
        exponent = exponent.args[0]
    return exponent


def _is_simple(node: Node) -> bool:
    """Return whether black puts no spaces around `**` for this operand: names, numbers, attributes of names."""
    root = node.root()
    return root.kind in ("name", "value") or (
        root.kind == "constant" and root.label[0] not in "'\""
    )


def _unary(node: Node) -> str:
    operand = _within(node.args[0], _precedence(node))
    return f"not {operand}" if node.label == "not" else f"{node.label}{operand}"


def _boolean(node: Node) -> str:
    """Return the source of `a and b and c`; an operand that is such an `and` itself gets parentheses."""
    strength = PRECEDENCE[node.label]
    return f" {node.label} ".join(_within(arg, strength + 1) for arg in node.args)


def _compare(node: Node) -> str:
    """Return the source of a comparison, also a chain `a < b < c`: its label has the operators, separated by commas."""
    # A comparison as an operand, `(a < b) == c`, would else become a part of the chain.
    first, *rest = (_within(arg, COMPARE + 1) for arg in node.args)
    pairs = zip(node.label.split(","), rest, strict=True)
    return first + "".join(f" {operator} {value}" for operator, value in pairs)


def _conditional(node: Node) -> str:
    """Return the source of `a if test else b`; only `b` may be a conditional without parentheses."""
    test, body, orelse = node.args
    above = CONDITIONAL + 1
    return f"{_within(body, above)} if {_within(test, above)} else {emit(orelse)}"


def _call(node: Node) -> str:
    """Return the source of a call: positional arguments, then keywords and `**`."""
    callee, *args = node.args
    split = len(args) - len(node.keywords)
    named = [
        f"**{_within(value, UNARY)}" if name == "**" else f"{name}={emit(value)}"
        for name, value in zip(node.keywords, args[split:], strict=True)
    ]
    return f"{_value(callee)}({', '.join([*map(emit, args[:split]), *named])})"


def _value(node: Node) -> str:
    """Return the source of a value that is called, subscripted or read for an attribute, in parentheses if it is an operation.

    A number needs them too: `(2).bit_length()`.
    """
    text = _within(node, ATOM)
    return f"({text})" if node.kind == "constant" and text[0].isdigit() else text


def _subscript(node: Node) -> str:
    value, index = node.args
    return f"{_value(value)}[{_bare(index)}]"


def _slice(node: Node) -> str:
    """Return the source of a slice, `1:n` or `::2`; a missing bound is an `absent` node, whose source is empty."""
    lower, upper, step = (emit(arg) for arg in node.args)
    return f"{lower}:{upper}:{step}" if step else f"{lower}:{upper}"


def _elements(node: Node) -> str:
    return ", ".join(map(emit, node.args)) + ("," if len(node.args) == 1 else "")


def _items(node: Node) -> str:
    """Return the items of a dict, `"a": x, "b": y`; keys and values alternate in the arguments of its node."""
    pairs = zip(node.args[::2], node.args[1::2], strict=True)
    return ", ".join(f"{emit(key)}: {emit(value)}" for key, value in pairs)


def _lambda(node: Node) -> str:
    """Return the source of a lambda, `lambda x, w: x * w`, such as `torch.func.vjp` gets in a gradient left to autograd.

    Raise AssertionError if its value does not read all parameters: the derivation makes none such.
    """
    *parameters, value = node.args
    read = value.names()
    assert all(part.names() <= read for part in parameters), "a parameter is not read"
    return f"lambda {', '.join(map(emit, parameters))}: {emit(value)}"


WRITERS: dict[str, Callable[[Node], str]] = {
    "name": lambda node: node.label,
    "value": lambda node: f"<{node.label}>",
    "constant": lambda node: node.label,
    "absent": lambda node: "",
    "attribute": lambda node: f"{_value(node.args[0])}.{node.label}",
    "call": _call,
    "subscript": _subscript,
    "slice": _slice,
    "tuple": lambda node: f"({_elements(node)})",
    "list": lambda node: f"[{', '.join(map(emit, node.args))}]",
    "dict": lambda node: f"{{{_items(node)}}}",
    # Python's grammar allows an operand of `|` after a star; anything looser is put in parentheses.
    "starred": lambda node: f"*{_within(node.args[0], PRECEDENCE['|'])}",
    "unary": _unary,
    "binary": _binary,
    "compare": _compare,
    "boolean": _boolean,
    "conditional": _conditional,
    "lambda": _lambda,
    "comprehension": lambda node: f"[{node.label} {_within(node.args[0], CONDITIONAL + 1)}]",
    "body": lambda node: node.label,
    # `_elements` ends one item with a comma, as for a tuple: `assert x` is no `assert x,`.
    "check": lambda node: f"{node.label} {_elements(node).removesuffix(',')}",
    "words": lambda node: with_words(node, emit),
}


def shown(
    text: Text,
    body: Sequence[ast.stmt],
    statements: Lines,
    result: Node | None,
) -> str:
    """Return the text of a formula to show to the user, in docstrings and messages.

    It is the user's own, if its syntax equals `body`, the syntax that was parsed. A function of a file may have had names
    replaced in `body`, a constant of the file by its value for example: then it is written from the parsed `statements` and
    `result`, since the own text would name things shown nowhere.
    """
    own = text.value.strip()
    # Names are replaced only in the text of a file; a whole backward has no result to write.
    if text.origin is None or result is None or as_written(text, body):
        return own
    several = result.args if result.kind == "tuple" else (result,)
    value = ", ".join(map(emit, several))
    return "\n".join([*emit_lines(statements), f"return {value}"])


def as_written(text: Text, body: Sequence[ast.stmt]) -> ast.Module | None:
    """Return the syntax of a text if it equals the given statements, so nothing in them was rewritten; else None."""
    module = parse_source(text)
    same = ast.dump(module) == ast.dump(ast.Module([*body], []))
    return module if same else None
