"""Optional inputs: the op with all of them, and a number in the place of each absent one.

In: an `OpSpec`. Out: the op of required inputs, and 0 for a bias, 1 for a weight. Invariant: with that number in its place the op
computes what it does without the input, whichever of them are absent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.formula import (
    PRESENT,
    UNKNOWN,
    Assign,
    Formula,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    emit,
    emit_lines,
    evaluated,
    rewritten,
    truth,
)
from scaffold.kernels.written_out import written_out
from scaffold.spec import OpSpec

NEUTRAL = {"+": 0, "-": 0, "*": 1, "/": 1}  # what changes nothing on the right


def with_all(spec: OpSpec) -> tuple[OpSpec, dict[str, str]]:
    """Return the op with its optional inputs required, and for each the number to read in its place: `{"weight": "1.0", "bias": "0.0"}`.

    Numbers are chosen for one absent input at a time, then checked for every subset of absent ones; UnsupportedError if any is wrong.
    """
    names = [item.name for item in spec.tensors if item.optional]
    if not names:
        return spec, {}
    found = dict[str, str]()
    for name in names:
        numbers = (x for x in ("0.0", "1.0") if _agree(spec, names, {name: x}))
        found[name] = next(numbers, "")
        if not found[name]:
            reason = "is optional, and neither 0 nor 1 can replace it"
            raise UnsupportedError(f"'{name}' {reason}")
    for absent in product((False, True), repeat=len(names)):
        gone = (name for name, it in zip(names, absent, strict=True) if it)
        given = {name: found[name] for name in gone}
        if not _agree(spec, names, given):
            raise UnsupportedError(f"no number can replace {' and '.join(given)}")
    tensors = (item._replace(optional=False) for item in spec.tensors)
    spec = replace(spec, inputs=(*tensors, *spec.attributes))
    return _without(spec, names, ()), found


def _agree(spec: OpSpec, names: list[str], given: Mapping[str, str]) -> bool:
    """Return whether the op without some inputs equals the op with numbers in their places: both as text, after `x + 0.0` -> `x`.

    `given`: absent inputs and their numbers; `names`: all optional inputs.
    """
    ops = (_without(spec, names, absent) for absent in ((), given))
    whole, without = map(written_out, ops)
    assert whole.forward is not None and without.forward is not None
    graph = whole.forward.graph

    def filled(node: Node) -> Node | None:
        """Return the number of an absent input, also for `w[None]` and `w.unsqueeze(0)`: views of a number are that number."""
        # `w[None]` and `w.unsqueeze(0)` have the viewed tensor, or the method of it, first.
        of = node.args[0] if node.kind in ("subscript", "call") else node  # a view
        owner = of.args[0] if of.label == "unsqueeze" else of
        if owner.kind == "name" and owner.label in given:
            return graph.constant(given[owner.label])
        return None

    pair = (_changed(whole.forward, filled), without.forward)
    simpler = partial(_simpler, graph)
    one, two = (_plain(_changed(item, simpler)) for item in pair)
    return one == two


def _plain(formula: Formula) -> tuple[Sequence[str], str]:
    """Return the lines and the result of a formula as text, without lines like `h = h`, left of `h = h * weight`."""
    every = formula.statements
    lines = [x for x in every if not isinstance(x, Assign) or x.target != x.value]
    return emit_lines(lines), emit(formula.result) if formula.result else ""


def _changed(formula: Formula, change: Callable[[Node], Node | None]) -> Formula:
    """Return a formula with its nodes replaced; `change` returns None for a node to leave as it is."""
    lines = rewritten(formula.graph, formula.statements, change)
    result = formula.result and formula.graph.rewrite(formula.result, change)
    return replace(formula, statements=lines, result=result)


def _simpler(graph: Graph, node: Node) -> Node | None:
    """Return `x` for `x + 0.0`, `x - 0.0`, `x / 1.0` and `1.0 * x`, also inside the operands; None if the node is no such operator."""
    if node.kind != "binary" or node.label not in NEUTRAL:
        return None
    one, two = (graph.rewrite(item, partial(_simpler, graph)) for item in node.args)
    if _is_number(two, NEUTRAL[node.label]):
        return one
    # On the left these two alone: `0.0 - x` and `1.0 / x` are not `x`.
    if node.label in "+*" and _is_number(one, NEUTRAL[node.label]):
        return two
    return graph.node("binary", node.label, (one, two))


def _is_number(node: Node, number: int) -> bool:
    return node.kind == "constant" and node.label in (str(number), f"{number}.0")


def _without(
    spec: OpSpec, names: list[str], absent: Mapping[str, str] | tuple[()]
) -> OpSpec:
    """Return the op for a call with the `absent` optional inputs None, the others given: `x * w if w is not None else x` -> `x` or `x * w`."""
    formula = spec.forward
    assert formula is not None
    graph = formula.graph

    def read(node: Node) -> object:
        """Return what is known of a name: whether an optional input is present."""
        if node.kind != "name" or node.label not in names:
            return UNKNOWN
        # None is the value of an absent input here, as in `w is None`, and no "unknown".
        return None if node.label in absent else PRESENT

    def outcome(test: Node) -> bool | None:
        """Return whether a test holds; None if it depends on more than the presence of inputs."""
        return truth(evaluated(test, read))

    def settle(node: Node) -> Node | None:
        """Return the taken side of `a if test else b`, and None for an absent input; no change if the test depends on other values."""
        if node.kind == "name" and node.label in absent:
            return graph.constant("None")
        if node.kind == "conditional" and (holds := outcome(node.args[0])) is not None:
            return graph.rewrite(node.args[1 if holds else 2], settle)
        return None

    def settled(lines: Lines) -> Lines:
        """Return lines with the taken branch in place of each `if` with a known test."""
        found: list[Statement] = []
        for line in lines:
            holds = outcome(line.test) if isinstance(line, If) else None
            if isinstance(line, If) and holds is not None:
                found += settled(line.body if holds else line.orelse)
            else:
                found += rewritten(graph, (line,), settle)
        return (*found,)

    result = formula.result and graph.rewrite(formula.result, settle)
    formula = replace(formula, statements=settled(formula.statements), result=result)
    return replace(spec, forward=formula)
