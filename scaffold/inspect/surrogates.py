"""Surrogates: decide whether a Function's gradient is meant to differ from the derivative.

A straight-through `round` or a gradient reversal is right as its author wrote it: so `verify` and `test-stub` do not compare such
a gradient with the derivative, and `adopt` accepts it.

Words: a gradient is *rough* if it is a surrogate by the text; a *step* is a jump in a function's values, as of `x.round()`.

In: the facts of a Function. Out: a bool.
Invariant: yes if forward is piecewise constant, random or returns its input, or if the text says so.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.pure_torch import reached
from scaffold.inspect.trial_inputs import CODES
from scaffold.inspect.vocabulary import creates
from scaffold.primitives.calls import (
    draws_random,
    has_memory,
    is_constant,
    is_discrete,
    mask_positions,
)

# Calls that pass a tensor on as a new one, whose gradient is then changed.
PASSING = {"alias", "clone", "contiguous", "detach", "expand_as", "view", "view_as"}
# A string, or what a tensor's type tells: no value of an element.
PLAIN = re.compile(r"(['\"]).*\1|.*\.(device|dtype|ndim|requires_grad)")
SAID = re.compile(
    r"\bste\b|straight.?through|surrogate|pseudo.?(deriv|grad)|grad(ient)?.?(rev|mul|scal|clip)"
    r"|rev(erse)?.?grad",
    re.IGNORECASE,
)
QUANTIZES = re.compile(r"(?<!de)quant|\b(binar|ternar)i[sz]", re.IGNORECASE)
WORD = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


def is_rough(facts: Facts) -> bool:
    """Return whether the gradient is a surrogate on purpose: by the words of the code, or by its forward.

    A forward with steps (`x.round()`) or random numbers, or one that returns its inputs, has no derivative of use.
    """
    forward = facts.function.forward
    if forward is None:
        return False
    if says_so(facts) or _returns_inputs(facts):
        return True
    nodes = [*_nodes(facts)]
    chosen_by = {test for node in nodes for test in _conditions(facts, node)}
    return any(_is_step(facts, node) for node in nodes if node not in chosen_by)


def _conditions(facts: Facts, node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a test that chooses between values with slopes: of an `if`, or `x > 0` of `torch.where(x > 0, x, 0.1 * x)`.

    Between numbers, `torch.where(x > 0, 1.0, 0.0)`, it makes steps.
    """
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            yield from ast.walk(test)
        case ast.Call(args=[test, *values]) if 0 in mask_positions(
            torch_call(node, facts.names)
        ):
            if not all(_is_flat(facts, value) for value in values):
                yield from ast.walk(test)


def _is_flat(facts: Facts, node: ast.expr) -> bool:
    """Return whether a value has no slope: a number, or a new tensor of one, `torch.ones_like(x)`."""
    called = torch_call(node, facts.names) or method_call(node, facts.names)
    return creates(called) or not any(isinstance(x, ast.Name) for x in ast.walk(node))


def _nodes(facts: Facts) -> Iterator[ast.AST]:
    """Yield the nodes of the forward, and of the functions of the file it calls."""
    forward = facts.function.forward
    for function in reached(facts, [forward.node]) if forward else ():
        yield from ast.walk(function)


def _is_step(facts: Facts, node: ast.AST) -> bool:
    """Return whether a node computes steps or draws random numbers: `x > 0`, `x.round()`; their derivative says nothing.

    A comparison is none if it is about objects (by `is` or `in`), or about types, labels or indices.
    """
    if isinstance(node, ast.Compare):
        no_values = any(_is_no_value(item) for item in (node.left, *node.comparators))
        objects = any(isinstance(op, ast.Is | ast.IsNot | ast.In) for op in node.ops)
        return not (no_values or objects)
    name = torch_call(node, facts.names) or method_call(node, facts.names)
    return _is_constant(name) or draws_random(name)


def _is_constant(name: str) -> bool:
    """Return whether a call gives a new tensor that is constant between steps, `round` or `argmax`; `zeros` does not count."""
    return is_constant(name) and has_memory(name, "fresh") and not creates(name)


def _rounds(facts: Facts, node: ast.AST) -> bool:
    """Return whether a node is a call with steps and values of the tensor's own type: `x.round()`, not `x.argmax()`."""
    name = torch_call(node, facts.names) or method_call(node, facts.names)
    return _is_constant(name) and not is_discrete(name)


def _is_no_value(node: ast.expr) -> bool:
    """Return whether a text is a type, a device or the like, or an index or label by its name: comparing it is no step."""
    text = ast.unparse(node)
    return bool(PLAIN.fullmatch(text) or text.isidentifier() and CODES.search(text))


def says_so(facts: Facts) -> bool:
    """Return whether the name of the class, of the file, or the docstring calls the gradient a surrogate: `RoundSTE`.

    A name of a quantizer (QUANTIZES) does so too, if its code rounds: the gradient passes by the rounding, even if the scale
    depends on the input.
    """
    node = facts.function.node
    path = facts.module.path.replace("\\", "/").rsplit("/", 1)[-1]
    texts = [WORD.sub(" ", facts.function.name), path, ast.get_docstring(node) or ""]
    if any(SAID.search(text) for text in texts):
        return True
    return any(QUANTIZES.search(text) for text in texts) and any(
        _rounds(facts, inner) for inner in _nodes(facts)
    )


def _returns_inputs(facts: Facts) -> bool:
    """Return whether the forward returns its inputs unchanged, perhaps as a view or copy: then it exists for its gradient alone."""
    forward = facts.function.forward
    given = {item.name for item in facts.inputs}
    nodes = [_stripped(item.node) for item in facts.outputs]
    same = [isinstance(node, ast.Name) and node.id in given for node in nodes]
    # `x.add_(1)`, then `return x`: the name is the input's, the values are new.
    changed = forward is not None and facts.changes(forward)
    return bool(same) and all(same) and not changed


def _stripped(node: ast.expr | None) -> ast.expr | None:
    """Return the tensor under calls passing it on: `x` for `x.view_as(x).clone()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in PASSING:
            return node
        node = node.func.value
    return node
