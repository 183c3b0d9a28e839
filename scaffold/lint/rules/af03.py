"""AF03: backward returns too few gradients.

Autograd wants one for each argument of apply, None where there is none; fewer is a RuntimeError when backward runs. The fix
appends None: `return grad * w` -> `return grad * w, None`.

Words: `function.own` are the methods the class itself defines; an inherited one is reported for its parent; `item.length` is
the number of values a return of backward surely gives, None if unknown; `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import never_differentiable


def find(facts: Facts) -> Iterator[Found]:
    """Yield returns of backward with a known length below the number of inputs; only advice if all they return is None.

    Not for inherited methods, reported for the parent, nor if backward never runs.
    """
    function = facts.function
    forward, backward = function.forward, function.backward
    if forward is None or backward is None:
        return
    if not any(method in function.own for method in (forward, backward)):
        return  # reported for the parent
    wanted, source = _wanted(facts)
    for item in facts.gradients:
        if item.length is None or item.length >= wanted:
            continue
        if item.node is None or never_differentiable(facts):
            continue
        given = f"{item.length} gradient{'s' * (item.length != 1)}"
        message = f"backward returns {given}, but {source}: RuntimeError"
        empty = isinstance(item.node, ast.Constant) or _says_nothing(item.values)
        # The text of the return shows all its values, so that more can be appended.
        whole = getattr(item.step.statement, "value", None) is item.node
        shown = isinstance(item.node, ast.Tuple) or item.values == (item.node,)
        missing = wanted - item.length
        edits = _with_none(facts, item.node, missing) if whole and shown else ()
        yield Found(item.node, message, edits, "advice" if empty else None)


def _says_nothing(values: tuple[ast.expr, ...] | None) -> bool:
    """Return whether all returned values are surely None: backward then gives no gradient, and fewer of them may be meant."""
    return values is not None and all(is_none(value) for value in values)


def _wanted(facts: Facts) -> tuple[int, str]:
    """Return the number of gradients needed, and its source in words: the required inputs, or more given by a call in the file."""
    function = facts.function
    assert function.forward is not None
    required = function.forward.required
    source = f"forward has {required} input{'s' * (required != 1)}"
    # Calls of `apply`, if the name of the class surely means this one.
    for item in function.applications if function.unique else ():
        arguments = item.call.args
        if any(isinstance(argument, ast.Starred) for argument in arguments):
            continue
        positional = len(function.forward.positional)
        # A call with more arguments than forward takes is a mistake of its own.
        fits = function.forward.variadic or len(arguments) <= positional
        if len(arguments) > required and fits:
            required = len(arguments)
            source = f"line {item.call.lineno} calls it with {required}"
    return required, source


def _with_none(facts: Facts, node: ast.expr, missing: int) -> tuple[Edit, ...]:
    """Return the edit to append `missing` Nones to a returned tuple or value; () if the new text does not parse to that length."""
    text = ast.get_source_segment(facts.module.text, node)
    wanted = missing + (len(node.elts) if isinstance(node, ast.Tuple) else 1)
    more = ", ".join(["None"] * missing)
    if text is None or "#" in text:
        return ()
    # `(a, b,)` -> `(a, b, None)`; for `a, b`, without parentheses, the second candidate fits.
    inner = text[:-1].rstrip().rstrip(",")
    for candidate in (f"{inner}, {more})", f"{text.rstrip().rstrip(',')}, {more}"):
        if _length(candidate) == wanted:
            return (Edit("replace", span(node), candidate),)
    return ()


def _length(text: str) -> int:
    """Return the number of elements in a text parsed as a tuple; 0 if it is none."""
    try:
        parsed = ast.parse(f"({text})", mode="eval").body
    except SyntaxError:
        return 0
    return len(parsed.elts) if isinstance(parsed, ast.Tuple) else 0


RULE = Rule(
    id="AF03",
    title="backward returns too few gradients",
    why=(
        "One for each argument of apply, None where there is none; fewer is a "
        "RuntimeError when backward runs. More is legal as long as they are None."
    ),
    bad="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor
""",
    good="""\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
""",
    each=find,
    fixes=True,
)
