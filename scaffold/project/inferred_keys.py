"""What options leave out beside the inputs, where the rest says it: outputs, what changes in place, what a gradient is of.

In: the keys of an op as they were given. Out: the keys with what was meant, and a note for each that was added.
Invariant: nothing that was stated is changed; where two things could be meant nothing is taken, and the message that follows says so.
"""

import ast
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from scaffold.derive import Derivation, derive
from scaffold.derive.analysis.aliasing import Trace
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Assign, Formula, Node, Scope, Text, emit, sharing
from scaffold.formula.operators import ARRAYS
from scaffold.formula.program import program_of
from scaffold.primitives.calls import is_constant
from scaffold.spec import OpSpec
from scaffold.spec.maths import read_reference
from scaffold.spec.problems import Locate
from scaffold.spec.signature import parse_inputs

Raw = Mapping[str, Any]
FORMULAS = ("forward", "backward")
_NOWHERE = Location("--inputs")  # for what is asked of inputs that are read again


class Completed(NamedTuple):
    """The keys of an op with what was left out, and what is said of it."""

    raw: Raw
    notes: tuple[str, ...] = ()


# --- Before the specification is built.


def completed(raw: Raw, locate: Locate, read: Callable[[str], str]) -> Completed:
    """The keys with NumPy imported, outputs counted, and the sole gradient named."""
    notes = list[str]()
    found = dict(raw)
    if numpy := _numpy(raw):
        found["import"] = [*raw.get("import", ()), *numpy]
    if (sole := _sole_gradient(raw)) is not None:
        found["grad"] = {sole: raw["grad"][""]}
        notes.append(f"the gradient is taken for that of {sole}")
    outputs = _outputs(found, locate, read)
    if outputs is not None:
        found["outputs"] = outputs
        notes.append(f"outputs taken from the forward: {outputs}")
    return Completed(found, tuple(notes))


def _numpy(raw: Raw) -> list[str]:
    """NumPy's names that formulas call and nothing imports; of an op to be derived PyTorch's own function is to be named."""
    stated = [raw[key] for key in FORMULAS if isinstance(raw.get(key), str)]
    stated += [text for text in dict(raw.get("grad", {})).values()]
    trees = [tree for tree in map(_tree, stated) if tree is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    there = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    own = raw.get("grad") or raw.get("backward") or "numpy" in there
    known = " ".join([*raw.get("import", ()), str(raw.get("inputs", ""))])
    if not own:
        return []
    return [
        item for name, item in ARRAYS.items() if name in names and name not in known
    ]


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sole_gradient(raw: Raw) -> str | None:
    """The one input that a gradient without a name can be of."""
    if [*raw.get("grad", {})] != [""] or not isinstance(raw.get("inputs"), str):
        return None
    try:
        inputs = parse_inputs(raw["inputs"], _NOWHERE)
    except ScaffoldError:
        return None
    names = [item.name for item in inputs if getattr(item, "differentiable", False)]
    return names[0] if len(names) == 1 else None


def _outputs(raw: Raw, locate: Locate, read: Callable[[str], str]) -> str | None:
    """The outputs of a forward that returns a tuple, by the names of what it returns."""
    stated = raw.get("forward")
    if {"outputs", "schema"} & raw.keys() or not isinstance(stated, str):
        return None
    place = locate(("forward",))
    try:
        text = Text(stated, place)
        if stated.lstrip().startswith("@"):
            text = read_reference(stated, "forward", place, read).text
        body = program_of(text, Scope(frozenset())).body
    except ScaffoldError:
        return None  # what is amiss is told when the forward is read
    last = body[-1] if body else None
    if not isinstance(last, ast.Return | ast.Expr):
        return None
    match last.value:
        case ast.Tuple([_, _, *_] as items):
            return ", ".join(_called(items, _inputs_of(raw)))
    return None


def _inputs_of(raw: Raw) -> frozenset[str]:
    try:
        return frozenset(item.name for item in parse_inputs(raw["inputs"], _NOWHERE))
    except (ScaffoldError, KeyError):
        return frozenset()


def _called(items: Iterable[ast.expr], taken: Collection[str]) -> list[str]:
    """What returned values are called: as they are where all are names of their own, else y1, y2."""
    every = list(items)
    names = [item.id for item in every if isinstance(item, ast.Name)]
    own = len(set(names)) == len(every) and not {*names} & {*taken}
    return names if own else [f"y{at}" for at, _ in enumerate(every, 1)]


# --- Once there is a specification.


def meant(spec: OpSpec, raw: Raw) -> Completed:
    """The keys with what only the parsed forward tells: what `relu_` changes, and that a gradient is no derivative."""
    if spec.forward is None or spec.forward.kept is not None:
        return Completed(raw)
    _refuse_caret(spec, spec.forward)
    changed = _changed(spec, spec.forward) if _names_a_change(spec) else ()
    if changed:
        names = ", ".join(changed)
        note = (
            f"{spec.name} changes {names} in place, as its name says: --dirty {names}"
        )
        return Completed({**raw, "dirty": [*changed]}, (note,))
    flat = _flat(spec) if "surrogate" not in raw else ()
    if flat:
        names = " and ".join(flat)
        what = "a surrogate" if len(flat) == 1 else "surrogates"
        note = f"the derivative by {names} is zero everywhere: what is stated is taken for {what} (--surrogate)"
        return Completed({**raw, "surrogate": True}, (note,))
    return Completed(raw)


def as_surrogate(spec: OpSpec, raw: Raw, build: Callable[[Raw], OpSpec]) -> OpSpec:
    """Take what a table states for a surrogate where each derivative is zero, as a command does."""
    known = "surrogate" in raw or spec.forward is None or spec.forward.kept is not None
    return spec if known or not _flat(spec) else build({**raw, "surrogate": True})


def _refuse_caret(spec: OpSpec, formula: Formula) -> None:
    """Refuse `x^2` of a floating input: it is an exclusive or, which no such tensor takes."""
    floating = {item.name for item in spec.differentiable}
    for node in formula.nodes():
        if node.kind == "binary" and node.label == "^":
            names = [one.label for one in node.args if one.kind == "name"]
            if floating & {*names} and any(one.kind == "constant" for one in node.args):
                one, two = map(emit, node.args)
                message = f"'{one} ^ {two}' is an exclusive or of integers"
                raise ScaffoldError(message, formula.location, f"write: {one}**{two}")


def _names_a_change(spec: OpSpec) -> bool:
    """Whether the op is called as PyTorch calls what works in place: `relu_`."""
    return spec.name.endswith("_") and not spec.dirty


def _changed(spec: OpSpec, formula: Formula) -> tuple[str, ...]:
    """The inputs that the forward changes."""
    lines = [*formula.statements]
    if formula.result:  # `x.exp_()` alone changes its input too
        lines.append(Assign(formula.graph.node("absent"), formula.result))
    changed = {name for one in Trace(lines, sharing).changes for name in one.outside}
    return tuple(item.name for item in spec.tensors if item.name in changed)


def _flat(spec: OpSpec) -> tuple[str, ...]:
    """The inputs whose gradient is stated, where each of their derivatives is zero everywhere."""
    stated = tuple(dict(spec.gradients))
    if spec.backward is not None:
        stated = tuple(item.name for item in spec.differentiable)
    assert spec.forward is not None
    if not stated or not any(map(_is_flat, spec.forward.nodes())):
        return ()
    try:
        alone = derive(replace(spec, gradients=(), backward=None, derive=True))
    except ScaffoldError:
        return ()
    return stated if {*stated} <= zero_gradients(alone) else ()


def _is_flat(node: Node) -> bool:
    """Whether a part of a forward has a gradient of zero: `round`, `x > 0`."""
    called = node.kind == "call" and node.args[0].kind == "attribute"
    compared = node.kind == "compare" and node.label not in ("is", "is not")
    return compared or called and is_constant(node.args[0].label)


def zero_gradients(derivation: Derivation) -> frozenset[str]:
    """The inputs whose derived gradient is zeros."""
    assigned = [
        item
        for block in derivation.blocks
        for item in block.statements
        if isinstance(item, Assign) and _is_zeros(item.value)
    ]
    names = {f"grad_{name}": name for name in derivation.derived}
    found = (names.get(one.target.label) for one in assigned)
    return frozenset(filter(None, found))


def _is_zeros(value: Node) -> bool:
    made = value.kind == "call" and value.args[0].kind == "attribute"
    return made and value.args[0].label in ("new_zeros", "zeros_like")
